"""What a job did to the data, as data. Each event class owns its mathematics; `accountant.py` only composes.

The contract of an event class:

- It derives from `Event`, is frozen, checks its values when made (those whose names all events share, `Event` checks;
  the others are named in `CHECKED`, or the class is refused), and is registered with `@event`. The registry is
  exact: subclasses and strangers are refused wherever events are composed, written or read (fail closed).
- It says what it costs by the methods of `Event`; each answers None where it has no such cost, and the accountant
  refuses a composition that needs it. Costs are rounded up.
- What a family has in common stands in a base class, which is no event: a Gaussian mechanism, choices of bounded range,
  thresholds, and thresholds at checkpoints.
- An event of noise states it (`StatedNoise`); an event of a threshold recomputes in `check` what its round's noise
  requires, and is believed only then.
- What old ledgers contain stays as it is: a class is never renamed or removed, a field never changes its meaning. A
  new field has a default that says what old ledgers meant, is named in `LATER`, and is written only where it differs
  from it. A ledger with a class or field that is not known is refused.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from scipy import special

from dpbeam.accounting.coins import BitCurve, CoinCurve, CoinNoise, WeightCurve
from dpbeam.accounting.first_hit import check_rate
from dpbeam.accounting.gaussian import check_delta, check_epsilon, check_positive, compose_sigmas
from dpbeam.accounting.geometric import CountNoise
from dpbeam.accounting.noise import (
    FilteredNoise,
    NoiseMismatchError,
    NoiseSpec,
    NotStatedError,
    SavedNoise,
    StatedNoise,
)
from dpbeam.accounting.peeling import bounded_range_zcdp, check_rounds, gaussian_zcdp
from dpbeam.accounting.peeling_gdp import peeling_mu
from dpbeam.accounting.threshold import NovelWeight, ReleaseTest, item_allowance, novel_threshold
from dpbeam.plugins import EVENTS, added, load

TOLERANCE = 1e-12  # relative, for rounding where a stated value is recomputed
LARGEST_CAPS = "largest admitted"
COMPOSITION_KINDS = ("basic", "gaussian", "pure", "zcdp", "first-hit", "renyi")


class UnknownEventError(ValueError):
    """The accountant does not know this event, or not in this composition."""


class InconsistentEventError(ValueError):
    """An event contradicts itself, or a threshold the noise of its round."""


EVENT_TYPES: dict[str, type[Event]] = {}


def event(cls: type[Event]) -> type[Event]:
    """Class decorator: registers an event class under its name.

    Raises:
      TypeError: another event has its name; or nobody checks a field: its name is none that means the same in every
        event, and not in `CHECKED`.
    """
    if cls.__name__ in EVENT_TYPES:
        raise TypeError(f"an event is named {cls.__name__} already")
    known = {*_POSITIVE, *_COUNTS, "delta", "label", *cls.CHECKED}
    unchecked = [item.name for item in fields(cls) if item.name not in known]
    if unchecked:
        raise TypeError(f"{cls.__name__} must check {', '.join(unchecked)}, and say so in CHECKED")
    EVENT_TYPES[cls.__name__] = cls
    return cls


def is_event(value: object) -> bool:
    """Whether the value is of exactly a registered class."""
    return EVENT_TYPES.get(type(value).__name__) is type(value)


#: Fields that mean the same in every event: numbers above 0, and integers from 1 on.
_POSITIVE = ("sigma", "shared_sigma", "sensitivity", "scale", "epsilon0", "gap", "weight_cap", "rho")
_COUNTS = ("round", "rounds", "counts", "max_items", "max_changed")


@dataclass(frozen=True)
class Event:
    """What one event costs. The defaults say: nothing is known, hence nothing may be composed.

    Raises:
      ValueError: when an event is made: a value is out of its field's range.
    """

    LATER: ClassVar[tuple[str, ...]] = ()  # fields that early ledgers lack
    CHECKED: ClassVar[tuple[str, ...]] = ()  # fields that the class checks itself, in `__post_init__`

    def __post_init__(self) -> None:
        """Check values by the names of their fields, and make them plain numbers and texts."""
        for name, value in list(vars(self).items()):
            if name in _POSITIVE:
                _set(self, **{name: check_positive(name, value)})
            elif name in _COUNTS:
                _set(self, **{name: check_rounds(value, name)})
            elif name == "delta":
                _set(self, delta=check_delta(value))
            elif name == "label":
                _set(self, label=str(value))

    @property
    def noise(self) -> StatedNoise | None:
        """The noise that a program must draw for this event; None where it draws none through the engine."""
        return None

    def noises(self) -> list[StatedNoise]:
        """The same as a list, of events that state the noise of several rounds too."""
        return [] if self.noise is None else [self.noise]

    def gaussian_sigma(self) -> float | None:
        """Standard deviation per unit of l2-sensitivity where the event is exactly a Gaussian mechanism."""
        return None

    def pure_epsilon(self) -> float | None:
        """epsilon where the event is epsilon-DP."""
        return None

    def zcdp_rho(self) -> float | None:
        """rho where the event is rho-zCDP; epsilon-DP implies epsilon^2/2 (Bun and Steinke 2016, Prop. 1.4)."""
        epsilon = self.pure_epsilon()
        return None if epsilon is None else epsilon**2 / 2

    def renyi_divergence(self, order: float = 2.0) -> float | None:
        """The divergence of an order; rho-zCDP implies alpha rho."""
        rho = self.zcdp_rho()
        return None if rho is None else order * rho

    def exact_delta(self, epsilon: float) -> float | None:
        """All of delta at `epsilon` where the event stands alone and it is known exactly."""
        return None

    def first_hit(self) -> tuple[float, float] | None:
        """Range of one choice and rate of users, where the event is choices that end for a user with its first hit."""
        return None

    def choices(self) -> tuple[int, float] | None:
        """(rounds, epsilon0) where the event is adaptive choices of bounded range epsilon0 and nothing else."""
        return None

    def outside_delta(self) -> float:
        """Probability that is added to delta outside of the factor exp(epsilon)."""
        return 0.0

    @property
    def is_threshold(self) -> bool:
        """Whether the event has no noise of its own and rests on that of its round."""
        return False

    @property
    def noisy_rounds(self) -> tuple[int, ...]:
        """The noisy rounds that the event is about: those whose noise it states, or whose threshold it is."""
        return tuple(noise.round for noise in self.noises())

    def admits(self, items: np.ndarray, weight: np.ndarray, noises: Mapping[int, StatedNoise]) -> np.ndarray:
        """Whether the event counts users that touch up to `items` items of a round and add at most `weight` to each.

        Args:
          items, weight: (m,) arrays.
          noises: by round.

        Returns: (m,) bool.

        Raises: NotStatedError where neither the event nor its noise says so.
        """
        if self.noise is None:
            raise NotStatedError(
                f"{describe(self)} does not say for how many items of a user it is calibrated"
            )
        return self.noise.admits(items, weight)

    def release_tests(self) -> dict[int, ReleaseTest]:
        """The tests that the event pays for, by the noisy round whose numbers they come after."""
        return {}

    def check(self, noises: Mapping[int, StatedNoise]) -> None:
        """Recompute what the noise of the rounds requires.

        Args:
          noises: by round, of the events beside this one in the same composition.

        Raises: InconsistentEventError where that noise does not support the event.
        """


def _set(event: Event, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(event, name, value)


class _GaussianMechanism(Event):
    """Events that cost what one Gaussian mechanism of sensitivity 1 costs."""

    def gaussian_sigma(self) -> float:
        raise NotImplementedError

    def zcdp_rho(self) -> float:
        return gaussian_zcdp(self.gaussian_sigma())


@event
@dataclass(frozen=True)
class GaussianEvent(_GaussianMechanism):
    """Noise N(0, sigma^2) on every coordinate of a query of this l2-sensitivity; `round` counts from 1."""

    sigma: float
    sensitivity: float = 1.0
    round: int = 1
    label: str = ""

    @property
    def noise(self) -> NoiseSpec:
        return NoiseSpec("gaussian", self.sigma, self.round)

    def gaussian_sigma(self) -> float:
        sigma = self.sigma / self.sensitivity
        return sigma if self.sensitivity == 1 else math.nextafter(sigma, 0.0)


@event
@dataclass(frozen=True)
class GaussianFilterEvent(_GaussianMechanism):
    """All Gaussian noise that passed one privacy filter (`FilteredNoise`).

    Round t answers a query of l2-sensitivity `sensitivity` with noise of scale s_t, chosen from the answers before it,
    and sum_t (sensitivity / s_t)^2 <= 1 / sigma^2 whatever the answers are. All rounds together are then exactly as
    private as one Gaussian mechanism of standard deviation `sigma` at sensitivity 1 (Smith and Thakurta 2022;
    docs/explanation/packing.md has the argument).
    """

    sigma: float
    sensitivity: float
    label: str = ""

    @property
    def noise(self) -> FilteredNoise:
        return FilteredNoise(self.sigma, self.sensitivity)

    def gaussian_sigma(self) -> float:
        return self.sigma


@event
@dataclass(frozen=True)
class SavedNormEvent(_GaussianMechanism):
    """Rounds of noise N(0, sigmas_r^2) on sums to which one user adds x_r with sum_r shares_r |x_r|^2 <= 1, whatever
    the noisy sums before round r were; |x_r| <= largest.

    Believed only if sigmas_r^2 shares_r >= sigma^2 in every round, exactly: then sum_r |x_r|^2 / sigmas_r^2 is at most
    1 / sigma^2, and all rounds together are as private as one Gaussian mechanism of standard deviation `sigma` at
    sensitivity 1 (docs/explanation/series.md has the argument). A round alone is not: its norm may be above 1.
    """

    CHECKED: ClassVar[tuple[str, ...]] = ("sigmas", "shares", "largest")

    sigma: float
    sigmas: tuple[float, ...]
    shares: tuple[float, ...]
    largest: float
    label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        sigmas = tuple(check_positive("sigmas", value) for value in self.sigmas)
        shares = tuple(check_positive("shares", value) for value in self.shares)
        if len(sigmas) != len(shares) or not sigmas:
            raise ValueError("sigmas and shares must have one value per round")
        _set(self, sigmas=sigmas, shares=shares, largest=check_positive("largest", self.largest))
        for number, (sigma, share) in enumerate(zip(sigmas, shares), start=1):
            if Fraction(sigma) ** 2 * Fraction(share) < Fraction(self.sigma) ** 2:
                raise InconsistentEventError(
                    f"noise of scale {sigma:.17g} in round {number} does not pay for a share of {share:.17g} under "
                    f"sigma {self.sigma:.17g}"
                )

    def noises(self) -> list[StatedNoise]:
        numbered = enumerate(self.sigmas, start=1)
        return [SavedNoise("gaussian", sigma, number, self.largest) for number, sigma in numbered]

    def admits(self, items: np.ndarray, weight: np.ndarray, noises: Mapping[int, StatedNoise]) -> np.ndarray:
        return weight <= self.largest  # of any number of items: the norm bounds them all

    def gaussian_sigma(self) -> float:
        return self.sigma


@event
@dataclass(frozen=True)
class CorrelatedGaussianEvent(_GaussianMechanism):
    """`counts` counts, of which one user raises any by 1 each, with Gaussian noise of their own and one noise for all.

    Count i is released as c_i + N(0, sigma^2) + N(0, shared_sigma^2), the second variate being the same for all i. That
    is the sum of c_i - n/2 + N(0, sigma^2) and n/2 + N(0, shared_sigma^2), n the number of users: one user moves each
    of these by 1/2 (Lebeda 2024; docs/explanation/topk.md).
    """

    sigma: float
    shared_sigma: float
    counts: int
    label: str = ""

    def gaussian_sigma(self) -> float:
        """1/sqrt(counts / (4 sigma^2) + 1 / (4 shared_sigma^2)), rounded down."""
        own = 2 * self.sigma / math.sqrt(self.counts) * (1 - 1e-15)
        return compose_sigmas([own, 2 * self.shared_sigma])


@event
@dataclass(frozen=True)
class RankEvent(_GaussianMechanism):
    """One of two mechanisms, whichever the history says, each (1/sigma)-Gaussian-DP whatever the history.

    Either noise N(0, sigma^2) on sums to which one user adds a vector of l2 norm at most 1, or `rounds` adaptive
    choices of bounded range epsilon0. Believed only if the choices are (1/sigma)-GDP (`peeling_gdp.py`), so the event
    costs what the noise alone costs, in any adaptive composition (docs/explanation/topk.md).
    """

    sigma: float
    epsilon0: float
    rounds: int
    round: int = 1
    label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        needed = peeling_mu(self.epsilon0, self.rounds)
        if needed * self.sigma > 1 + TOLERANCE:
            raise InconsistentEventError(
                f"{self.rounds} choices of range {self.epsilon0:.9g} are {needed:.9g}-GDP, the noise beside them is "
                f"{1 / self.sigma:.9g}-GDP"
            )

    @property
    def noise(self) -> NoiseSpec:
        return NoiseSpec("gaussian", self.sigma, self.round)

    def gaussian_sigma(self) -> float:
        return self.sigma


@event
@dataclass(frozen=True)
class LaplaceEvent(Event):
    """Laplace noise of density exp(-|x|/scale)/(2 scale) on every coordinate of a query of this l1-sensitivity."""

    scale: float
    sensitivity: float = 1.0
    round: int = 1
    label: str = ""

    @property
    def noise(self) -> NoiseSpec:
        return NoiseSpec("laplace", self.scale, self.round)

    def pure_epsilon(self) -> float:
        return math.nextafter(self.sensitivity / self.scale, math.inf)


def noise_event(noise: NoiseSpec, *, label: str = "") -> Event:
    """The event of noise on weights of sensitivity 1 in the norm that this kind of noise protects.

    Raises: UnknownEventError where there is none.
    """
    makers = {"gaussian": GaussianEvent, "laplace": LaplaceEvent}
    if noise.kind not in makers:
        raise UnknownEventError(f"no event says what {noise} costs")
    return makers[noise.kind](noise.scale, round=noise.round, label=label)


@event
@dataclass(frozen=True)
class CountEvent(Event):
    """Truncated geometric noise on counts of which one user moves one by one (`geometric.py`).

    The noisy counts of all items of the universe cost (epsilon, delta), and with them the release of items: there is no
    threshold to pay for. delta stands outside: but for a probability of delta the outputs of two neighbours are
    those of an epsilon-DP mechanism (Kairouz, Oh and Viswanath 2015), which composes as such.
    """

    CHECKED: ClassVar[tuple[str, ...]] = ("epsilon",)

    epsilon: float
    delta: float
    round: int = 1
    label: str = ""

    def __post_init__(self) -> None:
        noise = CountNoise(self.epsilon, self.delta, self.round)
        _set(self, epsilon=noise.epsilon)
        super().__post_init__()

    @property
    def noise(self) -> CountNoise:
        return CountNoise(self.epsilon, self.delta, self.round)

    def pure_epsilon(self) -> float:
        return self.epsilon

    def outside_delta(self) -> float:
        return self.delta


def _covers(moves: Sequence[tuple[int, int]], max_items: int, grid: int) -> bool:
    """Whether pairs (n, s) begin with a weight of 1 for few counts, end with max_items, and fall in between."""
    falling = all(n < n2 and s > s2 for (n, s), (n2, s2) in itertools.pairwise(moves))
    return bool(moves) and falling and moves[0][1] == grid and moves[-1][0] == max_items


class _Coins(Event):
    """Release of items by coins on weights of which one user moves some, each by steps of a table.

    The cost is recomputed from the table that the event's numbers generate (`coins.py`), whatever they are. No rho is
    stated: the divergence of a coin is no multiple of its order.
    """

    round: int
    moves: tuple[tuple[int, int], ...]

    @functools.cached_property
    def curve(self) -> BitCurve:
        raise NotImplementedError

    @property
    def _moves(self) -> tuple[tuple[int, int], ...]:
        return self.moves

    def _set_moves(self, max_items: int) -> None:
        moves = tuple((check_rounds(n, "moves"), check_rounds(s, "moves")) for n, s in self.moves)
        if (moves or self.curve.grid > 1) and not _covers(moves, max_items, self.curve.grid):
            raise InconsistentEventError(
                f"moves must say for every number of counts up to max_items ({max_items}) by how many steps they "
                f"move, from {self.curve.grid} steps, a weight of 1, downwards"
            )
        _set(self, moves=moves)

    def steps(self, items: int) -> int:
        """By how much a user moves each of so many counts, in steps of the table."""
        return next(steps for most, steps in self._moves if most >= items)

    @property
    def noise(self) -> CoinNoise:
        return CoinNoise(self.curve, self.round, self._moves)

    def renyi_divergence(self, order: float = 2.0) -> float:
        return max(n * self.curve.divergence(order, steps) for n, steps in self._moves) * (1 + TOLERANCE)

    def outside_delta(self) -> float:
        return max(n * self.curve.missing(steps) for n, steps in self._moves)


@event
@dataclass(frozen=True)
class BernoulliEvent(_Coins):
    """Coins that depend on counts of which one user moves at most `max_items`, each by one.

    With `start` the table is finer: `moves` lists pairs (n, s), and a user moves, for one of them, at most n counts by
    s steps of the table each. The first s is a weight of 1, and the last n is `max_items`.
    """

    LATER: ClassVar[tuple[str, ...]] = ("start", "moves")
    CHECKED: ClassVar[tuple[str, ...]] = ("corners", "start", "moves")

    corners: tuple[tuple[float, float], ...]
    max_items: int
    round: int = 1
    label: str = ""
    start: tuple[float, ...] = ()
    moves: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        _set(self, corners=self.curve.corners, start=self.curve.start)
        super().__post_init__()
        self._set_moves(self.max_items)

    @functools.cached_property
    def curve(self) -> CoinCurve:
        return CoinCurve(self.corners, self.start)

    @property
    def _moves(self) -> tuple[tuple[int, int], ...]:
        return self.moves or ((self.max_items, 1),)

    def exact_delta(self, epsilon: float) -> float | None:
        return self.curve.single_delta(epsilon) if self._moves == ((1, 1),) else None


@event
@dataclass(frozen=True)
class WeightedBernoulliEvent(_Coins):
    """Coins that depend on weights, of `grid` steps each unit; `knots` and `outside` give their table (`WeightCurve`).

    `moves` lists pairs (n, s): a user moves, for one of them, at most n weights by s steps each. The first s is a
    weight of 1.
    """

    CHECKED: ClassVar[tuple[str, ...]] = ("knots", "grid", "outside", "moves")

    knots: tuple[tuple[int, float], ...]
    grid: int
    outside: float
    moves: tuple[tuple[int, int], ...]
    round: int = 1
    label: str = ""

    def __post_init__(self) -> None:
        curve = self.curve
        _set(self, knots=curve.knots, grid=curve.grid, outside=curve.outside)
        super().__post_init__()
        if not self.moves:
            raise InconsistentEventError("moves must say by how many steps a user moves a weight")
        self._set_moves(self.max_items)

    @property
    def max_items(self) -> int:
        """D0."""
        return check_rounds(self.moves[-1][0], "moves")

    @functools.cached_property
    def curve(self) -> WeightCurve:
        return WeightCurve(self.knots, self.grid, self.outside)


class _Threshold(Event):
    """Events that rest on the noise of their rounds; with probability `delta` a novel item of a user passes."""

    delta: float

    @property
    def is_threshold(self) -> bool:
        return True

    def outside_delta(self) -> float:
        return self.delta


@event
@dataclass(frozen=True)
class ThresholdEvent(_Threshold):
    """Release of the items whose noisy weight of this round reaches `threshold`.

    A user puts at most novel_linf / t^novel_power on each of t <= max_items items that nobody else holds;
    delta bounds the probability that one of them passes. `novel_linf` is 1 for Basic, DP-SIPS and MAD,
    b_max for MAD with biases; the power is 1/2 for contributions bounded in l2, 1 for l1.
    """

    LATER: ClassVar[tuple[str, ...]] = ("novel_power",)
    CHECKED: ClassVar[tuple[str, ...]] = ("threshold", "novel_linf", "novel_power")

    threshold: float
    delta: float
    novel_linf: float
    max_items: int
    round: int = 1
    label: str = ""
    novel_power: float = 0.5

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold):
            raise ValueError(f"threshold must be finite, got {self.threshold}")
        novel = NovelWeight(self.novel_linf, self.novel_power)
        _set(self, threshold=float(self.threshold), novel_linf=novel.scale, novel_power=novel.power)
        super().__post_init__()

    @property
    def noisy_rounds(self) -> tuple[int, ...]:
        return (self.round,)

    def release_tests(self) -> dict[int, ReleaseTest]:
        return {self.round: ReleaseTest(self.threshold)}

    def admits(self, items: np.ndarray, weight: np.ndarray, noises: Mapping[int, StatedNoise]) -> np.ndarray:
        return (items <= self.max_items) & (weight <= 1.0)

    def check(self, noises: Mapping[int, StatedNoise]) -> None:
        if self.round not in noises:
            raise InconsistentEventError(f"threshold of round {self.round} ({self.label!r}) has no noise")
        noise = noises[self.round]
        try:
            noise.quantile(0.5)
            power = noise.novel_power
        except NotStatedError as error:
            raise InconsistentEventError(
                f"threshold of round {self.round} ({self.label!r}) needs noise on weights, not {noise}: {error}"
            ) from None
        if power != self.novel_power:
            raise InconsistentEventError(
                f"threshold of round {self.round} ({self.label!r}) counts weights bounded in another norm than "
                f"the {noise.kind} noise of its round protects"
            )
        novel = NovelWeight(self.novel_linf, self.novel_power)
        needed = novel_threshold(noise, self.delta, self.max_items, novel)
        if not self.threshold >= needed - TOLERANCE * abs(needed):
            raise InconsistentEventError(
                f"threshold {self.threshold:.9g} of round {self.round} ({self.label!r}) is below the "
                f"{needed:.9g} that its noise and delta require"
            )


class _Checkpoints(_Threshold):
    """Thresholds of sums over all rounds so far: of a checkpoint each, None where nothing is tested."""

    CHECKED: ClassVar[tuple[str, ...]] = ("thresholds", "coefficients")

    thresholds: tuple[float | None, ...]
    coefficients: tuple[float, ...]
    label: str

    def __post_init__(self) -> None:
        thresholds = tuple(None if value is None else float(value) for value in self.thresholds)
        if any(value is not None and not math.isfinite(value) for value in thresholds):
            raise ValueError("thresholds must be finite, or None where nothing is tested")
        coefficients = tuple(check_positive("coefficients", value) for value in self.coefficients)
        if len(thresholds) != len(coefficients) or not thresholds:
            raise ValueError("thresholds and coefficients must have one value per round")
        _set(self, thresholds=thresholds, coefficients=coefficients)
        super().__post_init__()

    @property
    def noisy_rounds(self) -> tuple[int, ...]:
        return tuple(range(1, len(self.coefficients) + 1))

    def release_tests(self) -> dict[int, ReleaseTest]:
        return dict(zip(self.noisy_rounds, map(ReleaseTest, self.thresholds, self.coefficients)))

    def crossing(self, weight: np.ndarray, noises: Mapping[int, StatedNoise]) -> np.ndarray:
        """Union bound over the checkpoints, for one item that nobody else holds: float64 of the shape of `weight`."""
        rounds = range(1, len(self.coefficients) + 1)
        if any(r not in noises for r in rounds):
            raise InconsistentEventError(f"cumulative thresholds ({self.label!r}) lack the noise of a round")
        sigmas = [sigma for r in rounds if (sigma := noises[r].gaussian_sigma) is not None]
        if len(sigmas) < len(rounds):
            raise InconsistentEventError(f"cumulative thresholds ({self.label!r}) need Gaussian noise")
        variances = [(c * sigma) ** 2 for c, sigma in zip(self.coefficients, sigmas)]
        total = np.zeros(weight.shape)
        for threshold, drift, deviation in zip(
            self.thresholds, np.cumsum(self.coefficients), np.sqrt(np.cumsum(variances))
        ):
            if threshold is not None:
                total += special.ndtr((drift * weight - threshold) / deviation)
        return total


@event
@dataclass(frozen=True)
class CumulativeThresholdEvent(_Checkpoints):
    """Release at checkpoints k = 1..R of items with Z_k = sum_{r<=k} coefficients_r weight_r >= threshold_k.

    weight_r is the noisy weight of round r. Nobody that holds max_items items puts more than weight_cap on one, and
    with d < max_items items nobody puts more on one than `caps` says. A threshold of None marks a checkpoint where
    nothing is tested.

    Attributes:
      caps: rule of the caps by number of items d. LARGEST_CAPS: the largest c <= 1 at which all checkpoints together
        let an item of drift c times the coefficients pass with probability at most 1 - (1 - delta)^(1/d). It is
        at least weight_cap, as what is allowed falls with d.
    """

    LATER: ClassVar[tuple[str, ...]] = ("caps",)
    CHECKED: ClassVar[tuple[str, ...]] = (*_Checkpoints.CHECKED, "caps")

    thresholds: tuple[float | None, ...]
    coefficients: tuple[float, ...]
    delta: float
    weight_cap: float
    max_items: int
    label: str = ""
    caps: str = LARGEST_CAPS

    def __post_init__(self) -> None:
        if self.caps != LARGEST_CAPS:
            raise ValueError(f"caps must be {LARGEST_CAPS!r}, the rule that is known, got {self.caps!r}")
        super().__post_init__()

    def admits(self, items: np.ndarray, weight: np.ndarray, noises: Mapping[int, StatedNoise]) -> np.ndarray:
        """By the caps' rule, at every number of items."""
        allowed = item_allowance(self.delta, np.maximum(items, 1)) * (1 + TOLERANCE)
        return (items <= self.max_items) & (weight <= 1.0) & (self.crossing(weight, noises) <= allowed)

    def check(self, noises: Mapping[int, StatedNoise]) -> None:
        """At max_items items; with fewer more is allowed, and by `caps` nobody puts more on an item than that."""
        crossing = float(self.crossing(np.array(self.weight_cap), noises))
        allowed = item_allowance(self.delta, self.max_items)
        if not crossing <= allowed * (1 + TOLERANCE):
            raise InconsistentEventError(
                f"cumulative thresholds ({self.label!r}) let a novel item pass with probability "
                f"{crossing:.9g} where {allowed:.9g} is allowed"
            )


@event
@dataclass(frozen=True)
class RankedThresholdEvent(_Checkpoints):
    """Release at checkpoints k = 1..R of items with Z_k = sum_{r<=k} coefficients_r weight_r >= threshold_k.

    As `CumulativeThresholdEvent`, but what a user puts on an item is bounded by the rank in which the item came to
    that user: at most caps[j - 1] on the item of rank j, for ranks 1..len(caps), whatever its other items are
    (docs/explanation/series.md). delta bounds the sum of all ranks' crossing probabilities.
    """

    CHECKED: ClassVar[tuple[str, ...]] = (*_Checkpoints.CHECKED, "caps")

    thresholds: tuple[float | None, ...]
    coefficients: tuple[float, ...]
    delta: float
    caps: tuple[float, ...]
    label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        caps = tuple(check_positive("caps", cap) for cap in self.caps)
        if not caps or caps != tuple(sorted(caps, reverse=True)):
            raise ValueError("caps must be given, and must not grow with the rank")
        _set(self, caps=caps)

    def admits(self, items: np.ndarray, weight: np.ndarray, noises: Mapping[int, StatedNoise]) -> np.ndarray:
        """One weight for all items does not say what each rank gets: the plan of a series holds that against `caps`."""
        raise NotStatedError(f"{describe(self)} bounds weights by rank")

    def check(self, noises: Mapping[int, StatedNoise]) -> None:
        """Union bound over checkpoints and ranks; and no cap is above what the noise of its rounds admits."""
        crossing = math.fsum(self.crossing(np.array(self.caps), noises).tolist())
        for noise in (noises[r] for r in self.noisy_rounds):
            if not noise.admits(np.array([len(self.caps)]), np.array([self.caps[0]])).all():
                raise InconsistentEventError(
                    f"ranked thresholds ({self.label!r}) have a cap of {self.caps[0]:.9g}, above what {noise} admits"
                )
        if not crossing <= self.delta * (1 + TOLERANCE):
            raise InconsistentEventError(
                f"ranked thresholds ({self.label!r}) let a novel item of a user pass with probability "
                f"{crossing:.9g} where {self.delta:.9g} is allowed"
            )


class _Choices(Event):
    """Events that cost what `rounds` adaptive choices of bounded range epsilon0 cost."""

    epsilon0: float
    rounds: int

    def pure_epsilon(self) -> float:
        return self.epsilon0 * self.rounds

    def zcdp_rho(self) -> float:
        return self.rounds * bounded_range_zcdp(self.epsilon0)


@event
@dataclass(frozen=True)
class PeelingEvent(_Choices):
    """`rounds` adaptive choices, each of bounded range epsilon0 (Gumbel noise of scale 1/epsilon0)."""

    epsilon0: float
    rounds: int
    label: str = ""

    def choices(self) -> tuple[int, float]:
        return self.rounds, self.epsilon0


@event
@dataclass(frozen=True)
class FirstHitEvent(_Choices):
    """`rounds` adaptive choices, each of bounded range epsilon0, of which a user is no part once one of its items is
    chosen (user peeling), and takes part at all with probability `rate`. As mere choices they cost what `PeelingEvent`
    costs; `first_hit.py` has what they cost beside Gaussian noise, whatever `rounds` is.
    """

    CHECKED: ClassVar[tuple[str, ...]] = ("rate",)

    epsilon0: float
    rounds: int
    rate: float = 1.0
    label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _set(self, rate=check_rate(self.rate))

    def first_hit(self) -> tuple[float, float]:
        return self.epsilon0, self.rate


@event
@dataclass(frozen=True)
class LimitedDomainEvent(_Choices):
    """Peeling of at most `rounds` items of range epsilon0, stopped by a noisy mark `gap` above h_(kbar+1).

    Costs what `PeelingEvent(epsilon0, rounds)` costs, and delta besides, outside the factor exp(epsilon), if
    gap >= 1 + ln(max_changed / delta) / epsilon0; one user changes at most max_changed of the kbar places
    (Durfee and Rogers 2019; `dpbeam.topk.limited_domain` has the argument).
    """

    epsilon0: float
    rounds: int
    gap: float
    delta: float
    max_changed: int
    label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        needed = 1 + math.log(self.max_changed / self.delta) / self.epsilon0
        if self.gap < needed * (1 - TOLERANCE):
            raise InconsistentEventError(f"gap is {self.gap:.17g}, its delta needs {needed:.17g}")

    def choices(self) -> tuple[int, float]:
        return self.rounds, self.epsilon0

    def outside_delta(self) -> float:
        return self.delta


@event
@dataclass(frozen=True)
class PureEvent(Event):
    """An epsilon-DP mechanism."""

    CHECKED: ClassVar[tuple[str, ...]] = ("epsilon",)

    epsilon: float
    label: str = ""

    def __post_init__(self) -> None:
        _set(self, epsilon=check_positive("epsilon", self.epsilon))
        super().__post_init__()

    def pure_epsilon(self) -> float:
        return self.epsilon


@event
@dataclass(frozen=True)
class ZCDPEvent(Event):
    """A rho-zCDP mechanism, or everything that passed one privacy filter of total rho."""

    rho: float
    label: str = ""

    def zcdp_rho(self) -> float:
        return self.rho


@event
@dataclass(frozen=True)
class ComposedEvent(Event):
    """Adaptive composition of `parts`; the kinds are those of `accountant.py`.

    `epsilon` is where the delta of a gaussian or zcdp composition is taken; it is required for a part of a
    basic composition, optional at the root and refused elsewhere.
    """

    CHECKED: ClassVar[tuple[str, ...]] = ("kind", "parts", "epsilon")

    kind: str
    parts: tuple
    epsilon: float | None = None
    label: str = ""

    def __post_init__(self) -> None:
        if self.kind not in COMPOSITION_KINDS:
            raise UnknownEventError(
                f"unknown kind of composition {self.kind!r}; known: {', '.join(COMPOSITION_KINDS)}"
            )
        if not self.parts:
            raise ValueError("parts must not be empty")
        if self.epsilon is not None:
            if not self.takes_epsilon:
                raise ValueError(f"a {self.kind} composition takes its epsilon from its parts")
            _set(self, epsilon=check_epsilon(self.epsilon))
        _set(self, parts=tuple(self.parts))
        super().__post_init__()

    @property
    def takes_epsilon(self) -> bool:
        """Whether the delta of this kind is taken at an epsilon; the others get both from their parts."""
        return self.kind not in ("basic", "pure")

    @property
    def lacks_epsilon(self) -> bool:
        """Whether somebody must still say where the delta is taken."""
        return self.takes_epsilon and self.epsilon is None

    def at(self, epsilon: float) -> ComposedEvent:
        """The composition with this epsilon where it lacks one, else itself."""
        return replace(self, epsilon=epsilon) if self.lacks_epsilon else self

    def noises(self) -> list[StatedNoise]:
        """The noise of all events of the tree."""
        return [noise for part in self.parts if is_event(part) for noise in part.noises()]


def leaves(event: Event | ComposedEvent) -> list[Event]:
    """The simple events of a tree."""
    if type(event) is not ComposedEvent:
        return [event]
    return [leaf for part in event.parts for leaf in leaves(part)]


def check_stated(event: ComposedEvent, mechanisms: Iterable[Event]) -> list[Event]:
    """Hold what a program does against what its ledger will state.

    Args:
      mechanisms: each stands in the composition, and as often as here.

    Returns:
      what else stands there.

    Raises:
      NoiseMismatchError: one does not.
    """
    stated = leaves(event)
    for mechanism in mechanisms:
        if mechanism not in stated:
            raise NoiseMismatchError(f"the events do not state {describe(mechanism)}")
        stated.remove(mechanism)
    return stated


def check_choices(event: ComposedEvent, epsilon0: float, rounds: int, rate: float) -> None:
    """Hold noisy choices of an item, of which a run makes one series, against what its ledger will state.

    Args:
      epsilon0: bounded range of one choice; rounds: their number.
      rate: probability with which a user takes part in them.

    Raises:
      NoiseMismatchError: the composition states other choices, none, or two series of them.
    """
    stated = [
        (leaf.epsilon0, getattr(leaf, "rounds", None), getattr(leaf, "rate", 1.0))
        for leaf in leaves(event)
        if hasattr(leaf, "epsilon0")
    ]
    if stated != [(epsilon0, rounds, rate)]:
        raise NoiseMismatchError(
            f"the events state choices (range, number, rate) {stated}, the plan makes {(epsilon0, rounds, rate)}"
        )


def event_to_dict(event: Event) -> dict[str, Any]:
    """The event as plain JSON values with its class name under "event".

    Raises: UnknownEventError if it is not of exactly a registered class.
    """
    if not is_event(event):
        raise UnknownEventError(f"cannot write {describe(event)}")
    values = {}
    for item in fields(event):
        value = getattr(event, item.name)
        if item.name not in event.LATER or value != item.default:
            values[item.name] = list(value) if isinstance(value, tuple) else value
    if type(event) is ComposedEvent:
        values["parts"] = [event_to_dict(part) for part in event.parts]
    return {"event": type(event).__name__, **values}


def event_from_dict(values: Any) -> Event:
    """Inverse of `event_to_dict`.

    Raises: UnknownEventError if the class, or the set of its fields, is not exactly a known one.
    """
    name = values.get("event") if isinstance(values, dict) else type(values).__name__
    if name not in EVENT_TYPES:
        for module in added(EVENTS).values():
            load(module)
    if name not in EVENT_TYPES or not isinstance(values, dict):
        raise UnknownEventError(f"unknown event {name!r}: is the package that wrote it installed?")
    cls = EVENT_TYPES[name]
    arguments = {name: value for name, value in values.items() if name != "event"}
    known = {item.name for item in fields(cls)}
    if not known - set(cls.LATER) <= set(arguments) <= known:
        raise UnknownEventError(f"{cls.__name__} has not exactly the fields that are known")
    if cls is ComposedEvent:
        arguments["parts"] = tuple(event_from_dict(part) for part in arguments["parts"])
    return cls(**arguments)


def describe(event: object) -> str:
    """What an event is, for messages."""
    if type(event) is ComposedEvent:
        stated = "no" if event.epsilon is None else "an"
        return f"a {event.kind} composition with {stated} epsilon of its own"
    return f"an event of type {type(event).__name__}"
