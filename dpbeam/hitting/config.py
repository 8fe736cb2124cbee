"""Settings of k-hitting set, and the plan that divides the budget between the selection of a domain and the peeling.

The peeling is k choices of bounded range epsilon0 that a user takes part in up to its first hit: beside the Gaussian
noise of a selection it costs what `dpbeam.accounting.first_hit` says, whatever k is, and a far larger range costs
no more where users take part with a probability below 1. As k mere choices (`dpbeam.topk.config`) it costs less
where k is small. The plan takes what errs least: see `spread`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpbeam.accounting.accountant import account
from dpbeam.accounting.budget import Budget, calibrates, check_share
from dpbeam.accounting.events import ComposedEvent, FirstHitEvent
from dpbeam.accounting.search import largest_fitting
from dpbeam.counts.gathered import NO_ITEMS, public_domain
from dpbeam.errors import SettingError, param
from dpbeam.hitting.program import HittingSetProgram
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.domain import DEFAULT_SELECTOR
from dpbeam.selection.plan import SelectionPlan
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig

if TYPE_CHECKING:
    from dpbeam.hitting.family import HittingSetConfig

MAX_K = 10_000
FIRST_HIT = "first-hit"
_LEAST_SHARE, _MOST_SHARE = 0.3, 0.9
#: Probabilities with which users take part, from which the plan takes one.
RATES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01)
#: Users that an item hits where choices are hard; what `spread` is taken at.
HARD_COUNT = 30
_BISECTIONS = 30
_LARGEST_RANGE = 32.0
_ROOM = 1 - 1e-12
_LABEL = "hitting set"


@dataclass(frozen=True)
class HittingSetPlan:
    """A calibrated hitting-set job.

    Attributes:
      config: settings with the share filled in.
      selection: plan of the selection, or None.
      epsilon0: bounded range of one choice.
      rate: probability with which a user takes part in the choices.
      event: what the ledger records.
      composition: the one in use: "first-hit", or one of `plan_topk`.
      ranges: composition -> the range that it leaves; for "first-hit" at `rate`, or at the best rate if not in use.

    Raises: see `HittingSetProgram`.
    """

    config: HittingSetConfig
    selection: SelectionPlan | None
    epsilon0: float
    rate: float
    event: ComposedEvent
    composition: str
    ranges: dict[str, float]

    def __post_init__(self) -> None:
        HittingSetProgram(self, public_domain(NO_ITEMS) if self.config.public_domain else None)


def default_share(k: int, epsilon: float) -> float:
    """Share of the budget for the selection: it grows with k/epsilon, from 0.3 to 0.9.

    A small k wants few items, which any share finds; a large one runs out of domain. Measured on steam-200k and
    amazon-magazine at epsilon 1 and 0.1 (lab/docs/reference/hitting_set_results.md).
    """
    share = 0.6 + 0.35 * math.log10(k / (100 * epsilon))
    return round(min(_MOST_SHARE, max(_LEAST_SHARE, share)), 2)


@calibrates
def plan_hitting_set(config: HittingSetConfig) -> HittingSetPlan:
    """Check and calibrate; needs no data.

    Raises:
      InputError: a setting is out of range; names the flag.
    """
    config = _resolved(config)
    choices = plan_topk(
        TopKConfig(
            config.epsilon,
            config.delta,
            config.k,
            mechanism="cdp-peel",
            selection=config.selection,
            selector_share=config.selector_share,
            public_domain=config.public_domain,
        )
    )
    if choices.selection is not None:
        config = replace(config, selection=choices.selection.config)
    ranges = dict(choices.choice_budgets)
    composed = HittingSetPlan(
        config,
        choices.selection,
        ranges[choices.composition],
        1.0,
        replace(choices.event, label=_LABEL),
        choices.composition,
        ranges,
    )
    first_hit = _first_hit(config, choices.selection)
    if first_hit is None:
        return composed
    peeling, event = first_hit
    ranges[FIRST_HIT] = peeling.epsilon0
    if spread(peeling.epsilon0, peeling.rate) >= spread(composed.epsilon0, 1.0) * (1 - 1e-9):
        return composed
    return HittingSetPlan(config, choices.selection, peeling.epsilon0, peeling.rate, event, FIRST_HIT, ranges)


def spread(epsilon0: float, rate: float) -> float:
    """Variance with which a choice sees a count of `HARD_COUNT` users: of the sample of users, and of the noise."""
    return HARD_COUNT * (1 - rate) / rate + math.pi**2 / 6 / (rate * epsilon0) ** 2


def _first_hit(
    config: HittingSetConfig, selection: SelectionPlan | None
) -> tuple[FirstHitEvent, ComposedEvent] | None:
    """The choices that fit (epsilon, delta) and err least, and all events; None where none fit."""
    if selection is not None and not _leaves_epsilon(selection, config.epsilon):
        return None
    best, least = None, math.inf
    for rate in RATES:
        if spread(math.inf, rate) >= least:
            break  # a smaller sample errs more than the best so far, whatever the noise
        at_rate = largest_range(config, selection, rate)
        if at_rate is not None and spread(at_rate[0].epsilon0, rate) < least:
            best, least = at_rate, spread(at_rate[0].epsilon0, rate)
    return best


def largest_range(
    config: HittingSetConfig, selection: SelectionPlan | None, rate: float
) -> tuple[FirstHitEvent, ComposedEvent] | None:
    """The largest range that fits at a rate; None where none does."""

    def fits(epsilon0: float) -> tuple[FirstHitEvent, ComposedEvent] | None:
        peeling = FirstHitEvent(epsilon0, config.k, rate, label="user peeling")
        event = _composed(config, selection, peeling)
        spent = account(event)
        kept = spent.epsilon <= config.epsilon * (1 + 1e-15) and spent.delta <= config.delta * _ROOM
        return (peeling, event) if kept else None

    low, high, best = 0.0, 1.0, None
    while high < _LARGEST_RANGE and (fitting := fits(high)) is not None:
        low, high, best = high, 2 * high, fitting
    return largest_fitting(fits, low, high, best, _BISECTIONS)[1]


def _leaves_epsilon(selection: SelectionPlan, epsilon: float) -> bool:
    """Whether a selection that is added up as (epsilon, delta) leaves anything; others compose exactly."""
    return _is_exact(selection) or account(selection.event, selection.config.epsilon).epsilon < epsilon


def _is_exact(selection: SelectionPlan) -> bool:
    """Whether the selection's rounds compose with choices up to a first hit."""
    return selection.event.kind in ("gaussian", "pure")


def _composed(
    config: HittingSetConfig, selection: SelectionPlan | None, peeling: FirstHitEvent
) -> ComposedEvent:
    """Selection and peeling: exactly, or by basic composition where the selection's own rounds are composed so."""
    if selection is None:
        return ComposedEvent(FIRST_HIT, (peeling,), epsilon=config.epsilon, label=_LABEL)
    if _is_exact(selection):
        before = replace(selection.event, epsilon=None)
        return ComposedEvent(FIRST_HIT, (before, peeling), epsilon=config.epsilon, label=_LABEL)
    before = selection.event.at(selection.config.epsilon)
    left = (config.epsilon - account(before).epsilon) * (1 - 1e-15)
    after = ComposedEvent(FIRST_HIT, (peeling,), epsilon=left)
    return ComposedEvent("basic", (before, after), label=_LABEL)


def _resolved(config: HittingSetConfig) -> HittingSetConfig:
    Budget(config.epsilon, config.delta)
    if not 1 <= config.k <= MAX_K:
        raise SettingError(f"{param('k')} must be an integer from 1 to {MAX_K}, got {config.k}")
    if config.public_domain:
        if config.selection is not None or config.selector_share is not None:
            raise SettingError(
                f"a public domain needs no selection: drop {param('selector_share')} and the selector's flags"
            )
        return config
    selection = config.selection or SelectionConfig(config.epsilon, config.delta, method=DEFAULT_SELECTOR)
    share = config.selector_share
    if share is None:
        share = default_share(config.k, config.epsilon)
    else:
        check_share("selector_share", share)
    return replace(config, selection=selection, selector_share=share)
