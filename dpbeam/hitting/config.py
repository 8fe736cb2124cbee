"""Settings of k-hitting set, and the plan that divides the budget between the selection of a domain and the peeling.

The peeling is k choices of bounded range epsilon0 that a user takes part in up to its first hit: beside the
Gaussian noise of a selection it costs what `dpbeam.accounting.first_hit` says, whatever k is. As k mere choices
(`dpbeam.topk.config`) it costs less where k is small. The plan takes whichever leaves the larger range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dpbeam.accounting.accountant import account
from dpbeam.accounting.events import ComposedEvent, Event, FirstHitEvent
from dpbeam.errors import InputError
from dpbeam.selection.config import SelectionConfig, check_budget
from dpbeam.selection.plan import SelectionPlan
from dpbeam.topk.config import TopKConfig, plan_topk

MAX_K = 10_000
#: The selector that misses the fewest users at equal budget over both data sets (docs/hitting_set.md).
DEFAULT_SELECTOR = "gsu"
FIRST_HIT = "first-hit"
_LEAST_SHARE, _MOST_SHARE = 0.3, 0.9
_BISECTIONS = 60
_ROOM = 1 - 1e-12


@dataclass(frozen=True)
class HittingSetConfig:
    """What a hitting-set job is asked to do.

    Attributes:
      epsilon, delta: the budget of all stages together.
      k: number of items.
      selection: settings of the selection of a domain (default: `DEFAULT_SELECTOR`); its epsilon and delta are ignored,
        they follow from the share.
      selector_share: share of epsilon and delta that the selection gets (default: `default_share`).
      public_domain: the domain is public: there is no selection.
    """

    epsilon: float
    delta: float
    k: int
    selection: SelectionConfig | None = None
    selector_share: float | None = None
    public_domain: bool = False


@dataclass(frozen=True)
class HittingSetPlan:
    """A calibrated hitting-set job.

    Attributes:
      config: settings with the share filled in.
      selection: plan of the selection, or None.
      epsilon0: bounded range of one choice.
      event: what the ledger records.
      composition: the one in use: "first-hit", or one of `plan_topk`.
      ranges: composition -> the range that it leaves.

    Raises: ValueError where the events do not state what is done.
    """

    config: HittingSetConfig
    selection: SelectionPlan | None
    epsilon0: float
    event: ComposedEvent
    composition: str
    ranges: dict[str, float]

    def __post_init__(self) -> None:
        choices = (event for event in _leaves(self.event) if hasattr(event, "epsilon0"))
        stated = [(event.epsilon0, getattr(event, "rounds", None)) for event in choices]
        if stated != [(self.epsilon0, self.config.k)]:
            raise ValueError(
                f"the events state choices (range, number) {stated}, the plan makes {self.config.k} of range "
                f"{self.epsilon0:.17g}"
            )


def _leaves(event: ComposedEvent) -> Iterator[Event]:
    for part in event.parts:
        if type(part) is ComposedEvent:
            yield from _leaves(part)
        else:
            yield part


def default_share(k: int, epsilon: float) -> float:
    """Share of the budget for the selection: it grows with k/epsilon, from 0.3 to 0.9.

    A small k wants few items, which any share finds; a large one runs out of domain. Measured on steam-200k and
    amazon-magazine at epsilon 1 and 0.1 (docs/hitting_set.md).
    """
    share = 0.55 + 0.4 * math.log10(k / (100 * epsilon))
    return round(min(_MOST_SHARE, max(_LEAST_SHARE, share)), 2)


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
    event, composition = replace(choices.event, label="hitting set"), choices.composition
    epsilon0 = ranges[composition]
    found = _first_hit(config, choices.selection)
    if found is not None:
        ranges[FIRST_HIT] = found[0]
        if found[0] > epsilon0 * (1 + 1e-9):
            (epsilon0, event), composition = found, FIRST_HIT
    return HittingSetPlan(config, choices.selection, epsilon0, event, composition, ranges)


def _first_hit(
    config: HittingSetConfig, selection: SelectionPlan | None
) -> tuple[float, ComposedEvent] | None:
    """The largest range that fits (epsilon, delta), and the events; None where none does."""

    def fits(epsilon0: float) -> tuple[float, ComposedEvent] | None:
        event = _composed(config, selection, FirstHitEvent(epsilon0, config.k, label="user peeling"))
        spent = account(event)
        kept = spent.epsilon <= config.epsilon * (1 + 1e-15) and spent.delta <= config.delta * _ROOM
        return (epsilon0, event) if kept else None

    if selection is not None and not _leaves_epsilon(selection, config.epsilon):
        return None
    low, high, best = 0.0, 1.0, None
    while high < 64 and (found := fits(high)) is not None:
        low, high, best = high, 2 * high, found
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        found = fits(middle)
        if found is None:
            high = middle
        else:
            low, best = middle, found
    return best


def _leaves_epsilon(selection: SelectionPlan, epsilon: float) -> bool:
    """Whether a selection that is added up as (epsilon, delta) leaves anything; others compose exactly."""
    return selection.event.kind != "basic" or account(selection.event).epsilon < epsilon


def _composed(
    config: HittingSetConfig, selection: SelectionPlan | None, peeling: FirstHitEvent
) -> ComposedEvent:
    """Selection and peeling: exactly, or by basic composition where the selection's own rounds are composed so."""
    if selection is None:
        return ComposedEvent(FIRST_HIT, (peeling,), epsilon=config.epsilon, label="hitting set")
    if selection.event.kind != "basic":
        before = replace(selection.event, epsilon=None)
        return ComposedEvent(FIRST_HIT, (before, peeling), epsilon=config.epsilon, label="hitting set")
    left = (config.epsilon - account(selection.event).epsilon) * (1 - 1e-15)
    after = ComposedEvent(FIRST_HIT, (peeling,), epsilon=left)
    return ComposedEvent("basic", (selection.event, after), label="hitting set")


def _resolved(config: HittingSetConfig) -> HittingSetConfig:
    check_budget(config.epsilon, config.delta)
    if isinstance(config.k, bool) or not 1 <= config.k <= MAX_K or config.k != int(config.k):
        raise InputError(f"--k must be an integer from 1 to {MAX_K}, got {config.k}")
    config = replace(config, k=int(config.k))
    if config.public_domain:
        if config.selection is not None or config.selector_share is not None:
            raise InputError(
                "a public domain needs no selection: drop --selector_share and the selector's flags"
            )
        return config
    selection = config.selection or SelectionConfig(config.epsilon, config.delta, method=DEFAULT_SELECTOR)
    share = config.selector_share
    if share is None:
        share = default_share(config.k, config.epsilon)
    elif not 0 < share < 1:
        raise InputError(f"--selector_share must lie strictly between 0 and 1, got {share}")
    return replace(config, selection=selection, selector_share=share)
