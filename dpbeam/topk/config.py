"""Settings of top-k, and the plan that divides the budget between selection, choice and noisy counts.

Stages: a selection releases the domain, the exact counts of its items are taken over everybody's full set, and a
known-domain mechanism chooses k of them. Two ways to compose the stages are calibrated, and the one that leaves the
choice more budget is used: basic composition, and all stages as one, named "zcdp", where a Gaussian selection costs
1/(2 sigma^2), k choices of bounded range epsilon0 cost k epsilon0^2/8, or their exact composition if that is less.
gauss-rank is composed exactly, as Gaussian noise beside the Gaussian rounds of the selection and of the noisy counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from dpbeam.accounting.accountant import account, largest_choice_range, sigma_beside
from dpbeam.accounting.budget import MAX_DELTA, Budget, calibrates, check_share, split_amount
from dpbeam.accounting.events import ComposedEvent, Event, PeelingEvent, PureEvent
from dpbeam.accounting.search import largest_fitting
from dpbeam.counts.gathered import NO_ITEMS, public_domain
from dpbeam.counts.noisy_counts import CORRELATED, GAUSSIAN, LAPLACE, NoisyCounts
from dpbeam.errors import SettingError, param
from dpbeam.selection.config import MAX_ITEMS_PER_USER, SelectionConfig
from dpbeam.selection.domain import DEFAULT_SELECTOR
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selectors.base import value_or
from dpbeam.topk.gauss_rank import GaussRank
from dpbeam.topk.mechanisms import (
    MECHANISMS,
    OF_BUDGET,
    CdpPeel,
    FastJoint,
    Joint,
    LimitedDomain,
    Mechanism,
    PnfPeel,
)
from dpbeam.topk.program import topk_program

if TYPE_CHECKING:
    from dpbeam.topk.family import TopKConfig

MAX_K = 100_000
_DEFAULT_SELECTOR_SHARE = 0.5
_DEFAULT_COUNT_SHARE = 0.2
_LIMITED_DOMAIN_ITEMS = 100
_KBAR_FACTOR = 10  # lab/docs/reference/topk_results.md has the comparison
_DOWN = 1 - 1e-12
#: Mechanism -> fields of the config that its calibration takes besides k and the budget.
_OWN_SETTINGS = {FastJoint.name: ("beta",), LimitedDomain.name: ("kbar", "max_items_per_user")}
_NOTHING_LEFT = f"{param('selector_share')} and {param('noisy_count_share')} leave nothing for the choice"


@dataclass(frozen=True)
class TopKPlan:
    """A calibrated top-k job.

    Attributes:
      config: settings with all shares filled in.
      selection: plan of the selection stage, or None.
      mechanism: the calibrated choice.
      counts: the calibrated noisy counts, or None.
      event: what the ledger records.
      composition: "basic", "zcdp" or "gaussian".
      choice_budgets: the choice's parameter under each composition, for the ledger.

    Raises: see `check_plan`.
    """

    config: TopKConfig
    selection: SelectionPlan | None
    mechanism: Mechanism
    counts: NoisyCounts | None
    event: ComposedEvent
    composition: str
    choice_budgets: dict[str, float]

    def __post_init__(self) -> None:
        topk_program(self, public_domain(NO_ITEMS) if self.config.public_domain else None)

    @property
    def ranks_users(self) -> bool:
        """Whether the choice looks at what each user holds of the domain, after the domain is known."""
        return isinstance(self.mechanism, GaussRank)


class _Stages(NamedTuple):
    """What is composed: settings, selection and counts where there are such, (epsilon, delta) of each stage."""

    config: TopKConfig
    selection: SelectionPlan | None
    counts: NoisyCounts | None
    budgets: dict[str, tuple[float, float]]


@calibrates
def plan_topk(config: TopKConfig) -> TopKPlan:
    """Check and calibrate; needs no data.

    Raises:
      InputError: a setting is out of range or does not belong to the mechanism; names the flag.
    """
    config = _resolved(config)
    budgets = _split(config)
    selection = None
    if config.selects and config.selection is not None:
        selection = make_plan(config.selection.with_budget(*budgets["selection"]))
    ranks = config.mechanism == GaussRank.name
    counts = None
    if config.noisy_counts:
        counts = NoisyCounts.calibrate(config.k, *budgets["counts"])
        if ranks and counts.noise == LAPLACE:  # gauss-rank composes with Gaussian noise alone
            normal = CORRELATED if config.k > 1 else GAUSSIAN
            counts = NoisyCounts.calibrate(config.k, *budgets["counts"], normal)
    stages = _Stages(config, selection, counts, budgets)
    return _rank(stages) if ranks else _compose(stages)


def _rank(stages: _Stages) -> TopKPlan:
    """gauss-rank with the mu^2 that other stages leave; beside a selection that is not Gaussian, its own shares."""
    config, selection, counts, budgets = stages
    gaussian = selection is None or selection.event.kind == "gaussian"
    paid = () if counts is None else (counts.event,)
    if gaussian:
        own = () if selection is None else (replace(selection.event, epsilon=None),)
        epsilon, delta, paid = config.epsilon, config.delta, (*own, *paid)
    else:
        others = [budgets[name] for name in ("counts", "choice") if name in budgets]
        epsilon, delta = (math.fsum(values) * _DOWN for values in zip(*others))
    sigma = sigma_beside(paid, epsilon, delta)
    if sigma is None:
        raise SettingError(_NOTHING_LEFT)
    rounds = [spec.round for spec in selection.event.noises()] if selection is not None else []
    mechanism = GaussRank.calibrate(config.k, sigma, max(rounds, default=0) + 1)
    event = ComposedEvent("gaussian", (*paid, *mechanism.events), epsilon=epsilon, label="top-k")
    if selection is not None and not gaussian:
        event = ComposedEvent("basic", (selection.event.at(budgets["selection"][0]), event), label="top-k")
    budget = {event.kind: mechanism.budget}
    return TopKPlan(config, selection, mechanism, counts, event, event.kind, budget)


def _split(config: TopKConfig) -> dict[str, tuple[float, float]]:
    """(epsilon, delta) of each stage; a pure choice beside other stages leaves its delta to them."""
    shares = {"selection": config.selector_share or 0.0, "counts": config.noisy_count_share or 0.0}
    shares["choice"] = 1.0 - math.fsum(shares.values())
    stages = [name for name, share in shares.items() if share > 0]
    epsilons = dict(zip(stages, split_amount(config.epsilon, [shares[name] for name in stages])))
    if config.delta == 0:
        return {name: (epsilon, 0.0) for name, epsilon in epsilons.items()}
    pure = MECHANISMS[config.mechanism].pure
    spenders = [name for name in stages if not (pure and name == "choice")] or stages
    total = math.fsum(shares[name] for name in spenders)
    deltas = dict(zip(spenders, split_amount(config.delta, [shares[name] / total for name in spenders])))
    return {name: (epsilons[name], deltas.get(name, 0.0)) for name in stages}


def _compose(stages: _Stages) -> TopKPlan:
    config, selection, counts, _ = stages
    basic, basic_event, basic_budget = _basic(stages)
    budgets_of = {"basic": basic_budget}
    plan = TopKPlan(config, selection, basic, counts, basic_event, "basic", budgets_of)
    if not isinstance(basic, CdpPeel | PnfPeel | Joint) or config.delta == 0:
        return plan
    by_zcdp = _zcdp(stages, basic)
    if by_zcdp is None:
        return plan
    mechanism, event, budget = by_zcdp
    budgets_of["zcdp"] = budget
    if budget > basic_budget:
        return replace(plan, mechanism=mechanism, event=event, composition="zcdp")
    return plan


def _basic(stages: _Stages) -> tuple[Mechanism, ComposedEvent, float]:
    config, selection, counts, budgets = stages
    epsilon, delta = budgets["choice"]
    mechanism = _calibrated(config, epsilon, delta)
    parts: list[Event] = [] if selection is None else [selection.event.at(budgets["selection"][0])]
    parts += [_at_epsilon(event, epsilon) for event in mechanism.events]
    if counts is not None:
        parts.append(_at_epsilon(counts.event, budgets["counts"][0]))
    return mechanism, ComposedEvent("basic", tuple(parts), label="top-k"), mechanism.budget


def _at_epsilon(event: Event, epsilon: float) -> Event:
    """A mechanism's event as a part of a basic composition."""
    pure = type(event) is PureEvent or (
        type(event) is PeelingEvent and event.epsilon0 * event.rounds <= epsilon
    )
    if pure:
        return event
    gaussian = event.gaussian_sigma() is not None
    return ComposedEvent("gaussian" if gaussian else "zcdp", (event,), epsilon=epsilon)


def _zcdp(stages: _Stages, basic: CdpPeel | PnfPeel | Joint) -> tuple[Mechanism, ComposedEvent, float] | None:
    """The largest choice, of the kind of `basic`, that fits (epsilon, delta) when all stages are composed as one.

    None if none fits, or where there is no other stage.
    """
    config, selection, counts, _ = stages
    if selection is not None and selection.event.kind not in ("gaussian", "pure"):
        return None
    fixed: tuple[Event, ...] = () if selection is None else (replace(selection.event, epsilon=None),)
    fixed += () if counts is None else (counts.event,)

    if not fixed:
        return None

    def fits(budget: float) -> tuple[Mechanism, ComposedEvent] | None:
        mechanism = basic.with_budget(budget)
        event = ComposedEvent("zcdp", (*fixed, *mechanism.events), epsilon=config.epsilon, label="top-k")
        return (mechanism, event) if account(event).delta <= config.delta * (1 - 1e-12) else None

    choices = basic.events[0].choices()
    if choices is not None:
        budget = largest_choice_range(fixed, choices[0], config.epsilon, config.delta)
        exact = fits(budget) if budget > 0 else None
        return None if exact is None else (*exact, budget)
    budget, best = largest_fitting(fits, 0.0, 4.0 * config.epsilon)
    return None if best is None else (*best, budget)


def _calibrated(config: TopKConfig, epsilon: float, delta: float) -> Mechanism:
    mechanism = OF_BUDGET[config.mechanism]
    settings = {name: getattr(config, name) for name in _OWN_SETTINGS.get(config.mechanism, ())}
    own = {name: value for name, value in settings.items() if value}  # kbar may be 0, which is all
    return mechanism.calibrate(config.k, epsilon, delta, **own)


def _resolved(config: TopKConfig) -> TopKConfig:
    if config.mechanism not in MECHANISMS:
        raise SettingError(
            f"{param('mechanism')} must be one of {', '.join(MECHANISMS)}, got {config.mechanism!r}"
        )
    _check_budget(config)
    if not 1 <= config.k <= MAX_K:
        raise SettingError(f"{param('k')} must be an integer from 1 to {MAX_K}, got {config.k}")
    if config.mechanism == LimitedDomain.name:
        config = _resolved_limited(config)
    elif config.kbar is not None:
        raise SettingError(f"{param('kbar')} applies to {param('mechanism')}=limited-domain alone")
    elif config.max_items_per_user is not None:
        raise SettingError(
            f"{param('max_items_per_user')} applies to a selection, and to {param('mechanism')}=limited-domain, alone"
        )
    if config.beta is not None and not 0 < config.beta < 1:
        raise SettingError(f"{param('beta')} must lie strictly between 0 and 1, got {config.beta}")
    if config.selects:
        selection = config.selection or SelectionConfig(config.epsilon, config.delta, method=DEFAULT_SELECTOR)
        if selection.noisy_counts:
            raise SettingError(
                "noisy_counts is none of the settings of a domain's selection, which shows none"
            )
        config = replace(config, selection=selection)
        config = replace(
            config, selector_share=value_or(config.selector_share, default_share(config.mechanism, config.k))
        )
    elif config.selector_share is not None:
        raise SettingError(
            f"{param('selector_share')} needs a selection stage: drop it, or {param('domain')}, limited-domain"
        )
    elif config.selection is not None:
        raise SettingError(
            f"there is no selection stage: drop the settings of one, or {param('domain')}, limited-domain"
        )
    if config.noisy_counts:
        config = replace(config, noisy_count_share=value_or(config.noisy_count_share, _DEFAULT_COUNT_SHARE))
    elif config.noisy_count_share is not None:
        raise SettingError(f"{param('noisy_count_share')} needs {param('noisy_counts')}")
    for name in ("selector_share", "noisy_count_share"):
        share = getattr(config, name)
        if share is not None:
            check_share(name, share)
    if (config.selector_share or 0) + (config.noisy_count_share or 0) >= 1:
        raise SettingError(_NOTHING_LEFT)
    return config


def default_share(mechanism: str, k: int) -> float:
    """The selection's share of the budget: half, and for gauss-rank more above k = 100, up to 0.7 from k = 1008 on.

    A domain of few more than k items costs more than a noisier ranking, and gauss-rank ranks with the mu^2 that is
    left: 75 % of it at a share of 0.5, 51 % at 0.7 (docs/explanation/topk.md).
    """
    if mechanism != GaussRank.name:
        return _DEFAULT_SELECTOR_SHARE
    return min(0.7, _DEFAULT_SELECTOR_SHARE + 0.06 * max(0.0, math.log2(k / 100)))


def _check_budget(config: TopKConfig) -> None:
    """Delta may be 0 where every stage is pure: no selection, and a choice whose guarantee needs none."""
    pure = config.delta == 0 and not config.selects and MECHANISMS[config.mechanism].pure
    Budget(config.epsilon, MAX_DELTA if pure else config.delta)


def _resolved_limited(config: TopKConfig) -> TopKConfig:
    if config.public_domain:
        raise SettingError(
            f"{param('mechanism')}=limited-domain is for an unknown domain: use another mechanism with "
            f"{param('domain')}"
        )
    if config.kbar is not None and config.kbar != 0 and config.kbar < config.k:
        raise SettingError(
            f"{param('kbar')} must be 0 (all) or at least {param('k')} ({config.k}), got {config.kbar}"
        )
    largest = config.max_items_per_user
    if largest is not None and not 1 <= largest <= MAX_ITEMS_PER_USER:
        raise SettingError(
            f"{param('max_items_per_user')} must be an integer from 1 to {MAX_ITEMS_PER_USER}, got {largest}"
        )
    if config.kbar is None:
        config = replace(config, kbar=_KBAR_FACTOR * config.k)
    if config.kbar == 0 and largest is None:
        config = replace(config, max_items_per_user=_LIMITED_DOMAIN_ITEMS)
    return config
