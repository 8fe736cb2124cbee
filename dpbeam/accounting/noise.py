"""Noise as data: what a round draws, stated before anything is drawn.

Design. A program states its noise as a `StatedNoise` and never draws any; the engine draws it in one place
(`dpbeam.engine.program.Keys.noise`), as exact integers (docs/explanation/noise.md). The same object yields the event
of the ledger, the thresholds, keep probabilities, the range that the fixed point must hold and the likelihood of the
audit, so none of them can describe other noise than what is drawn.

A new kind of noise is a subclass of `StatedNoise`, or for symmetric noise on weights one row of `NOISE_KINDS` and one
law in `dpbeam.randomness`. What it does not say is refused where it is needed (`NotStatedError`): nothing is
assumed of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy import special

from dpbeam.accounting.discrete import SMALLEST_SIGMA, SMOOTHING, equivalent_sigma
from dpbeam.accounting.gaussian import check_positive
from dpbeam.accounting.peeling import check_rounds

L1, L2, LINF = "l1", "l2", "linf"
# h(t) = scale / t^power bounds what a user of that norm puts on each of t items.
_NOVEL_POWERS = {L1: 1.0, L2: 0.5}


class NotStatedError(ValueError):
    """Noise does not say what is needed of it."""


class Words(Protocol):
    """What noise is drawn from: keyed words of one label, for n items."""

    def bits(self) -> np.ndarray:
        """(n, 2) uint64 uniform bits, the same on every call."""

    def exact(self, kind: str, scale: float, fraction: np.ndarray | None, fraction_bits: int) -> np.ndarray:
        """(n,) int64 of the exact law of a kind, as fine as the fraction and rounded down with it; scale in grid units.

        Raises: NotStatedError where no law of that kind is known.
        """


class StatedNoise:
    """The noise of a round.

    Attributes:
      kind: what it is, in words.
      round: which noisy round, counted from 1; noise of different rounds is independent.
      filtered: whether one filter stands for the noise of all trips that state it (`share`).
    """

    kind: str
    round: int
    filtered: ClassVar[bool] = False

    def _unsaid(self, what: str) -> NotStatedError:
        return NotStatedError(
            f"noise of kind {getattr(self, 'kind', type(self).__name__)!r} does not say {what}"
        )

    @property
    def norm(self) -> str:
        """The norm in which one user's contribution must be at most 1 for this noise to protect it."""
        raise self._unsaid("which norm it protects")

    @property
    def bits(self) -> bool:
        """Whether only the comparison of a noisy sum with a threshold is protected, not the sum itself."""
        raise self._unsaid("whether noisy sums may be seen")

    @property
    def deviation(self) -> float:
        """Standard deviation, in weight."""
        raise self._unsaid("its standard deviation")

    @property
    def largest(self) -> float:
        """Bound on the absolute value of any draw, in weight."""
        raise self._unsaid("how large a draw can be")

    @property
    def gaussian_sigma(self) -> float | None:
        """Standard deviation where the noise is Gaussian, None elsewhere."""
        return None

    @property
    def novel_power(self) -> float:
        """p of the bound scale / t^p on what a user puts on each of t items that nobody else holds."""
        if self.norm not in _NOVEL_POWERS:
            raise self._unsaid("what a user can put on items that nobody else holds")
        return _NOVEL_POWERS[self.norm]

    def admits(self, items: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Whether it protects users that touch up to `items` items and add at most `weight` to each, (m,) bool."""
        raise self._unsaid("for how many items of a user it is calibrated")

    def tail(self, x: Any) -> Any:
        """P(noise >= x), for numbers or arrays, in weight."""
        raise self._unsaid("its tail")

    def quantile(self, probability: Any) -> Any:
        """x with P(noise >= x) = probability, for numbers or arrays in (0, 1)."""
        raise self._unsaid("its quantiles")

    def check_sums(self, units: int, sums: np.ndarray, fraction: np.ndarray | None) -> None:
        """Refuse exact sums that the noise does not protect.

        Args:
          units: of a weight, a power of two.
          sums, fraction: in units, and below them; as in `dpbeam.engine.program.Exact`.

        Raises: NoiseMismatchError.
        """
        raise self._unsaid("which sums it protects")

    def draw(
        self, words: Words, units: int, fraction: np.ndarray | None = None, fraction_bits: int = 0
    ) -> np.ndarray:
        """(n,) int64 in units, a power of two of them in a weight; fractions as in `Words.exact`."""
        raise self._unsaid("how it is drawn")

    def shown(self, noisy: np.ndarray, units: int) -> np.ndarray:
        """What a program may see of noisy sums."""
        if self.bits:
            raise self._unsaid("with what its noisy sums are compared")
        return noisy

    def alone(self, seen: np.ndarray, exact: np.ndarray) -> np.ndarray:
        """What a program would see of items if nobody held them, from what it sees and their exact sums."""
        return np.zeros_like(seen) if self.bits else seen - exact

    def share(self, share: float, trip: int) -> StatedNoise:
        """The noise of a trip that takes this share of the filter."""
        raise self._unsaid("what a share of it is: it is under no filter")


def _unknown_equivalent(scale: float) -> float:
    raise NotStatedError("this kind of noise does not say which integer noise stands for it")


def _gaussian_equivalent(scale: float) -> float:
    """Integer noise of variance s^2 + 39/8 has no privacy curve above that of real noise of variance s^2."""
    drawn = max(scale, SMALLEST_SIGMA)
    while equivalent_sigma(drawn) < scale:
        drawn = math.nextafter(max(drawn, math.sqrt(drawn * drawn + float(SMOOTHING))), math.inf)
    return drawn


@dataclass(frozen=True)
class Kind:
    """A family of symmetric noise, at scale 1.

    Attributes:
      norm: L1 or L2, the norm in which one user's contribution must be bounded for this noise to protect it.
      deviation: standard deviation.
      largest: bound on |x| of any draw.
      tail: x -> P(X >= x), arrays, accurate in the upper tail.
      quantile: p -> x with P(X >= x) = p, arrays, accurate for small p.
      equivalent: scale -> scale of the integer noise that is at least as private, in grid units.
    """

    norm: str
    deviation: float
    largest: float
    tail: Callable[[np.ndarray], np.ndarray]
    quantile: Callable[[np.ndarray], np.ndarray]
    equivalent: Callable[[float], float] = _unknown_equivalent


def _laplace_tail(x: np.ndarray) -> np.ndarray:
    half = 0.5 * np.exp(-np.abs(x))
    return np.where(x >= 0, half, 1.0 - half)


def _laplace_quantile(p: np.ndarray) -> np.ndarray:
    return np.where(p <= 0.5, -np.log(2.0 * p), np.log1p(1.0 - 2.0 * p))


NOISE_KINDS = {
    "gaussian": Kind(
        L2, 1.0, 16.01, lambda x: special.ndtr(-x), lambda p: -special.ndtri(p), _gaussian_equivalent
    ),
    # Integer Laplace noise is pure at its own scale.
    "laplace": Kind(L1, math.sqrt(2.0), 106.0, _laplace_tail, _laplace_quantile, lambda scale: scale),
}


@dataclass(frozen=True)
class NoiseSpec(StatedNoise):
    """Independent noise on every item's weight in one round.

    Attributes:
      kind: a name of NOISE_KINDS.
      scale: standard deviation of Gaussian noise; b of Laplace noise, density exp(-|x|/b)/(2b). In weight.
      round: which noisy round, counted from 1; noise of different rounds is independent.

    Raises: ValueError on an unknown kind or a value out of range.
    """

    kind: str
    scale: float
    round: int = 1

    def __post_init__(self) -> None:
        if self.kind not in NOISE_KINDS:
            raise ValueError(f"kind of noise must be one of {', '.join(NOISE_KINDS)}, got {self.kind!r}")
        object.__setattr__(self, "scale", check_positive("scale", self.scale))
        object.__setattr__(self, "round", check_rounds(self.round, "round"))

    @property
    def norm(self) -> str:
        return NOISE_KINDS[self.kind].norm

    @property
    def bits(self) -> bool:
        return False

    @property
    def gaussian_sigma(self) -> float | None:
        return self.scale if self.kind == "gaussian" else None

    def admits(self, items: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return weight <= 1.0  # of any number of items: the norm bounds them all

    @property
    def deviation(self) -> float:
        return NOISE_KINDS[self.kind].deviation * self.scale

    @property
    def largest(self) -> float:
        return NOISE_KINDS[self.kind].largest * self.scale

    def drawn_scale(self, units: int) -> float:
        """The scale of the integer noise that stands for this noise, in units, a power of two of them in a weight."""
        return NOISE_KINDS[self.kind].equivalent(self.scale * units)

    def check_sums(self, units: int, sums: np.ndarray, fraction: np.ndarray | None) -> None:
        """Any are protected that are bounded in the norm."""

    def draw(
        self, words: Words, units: int, fraction: np.ndarray | None = None, fraction_bits: int = 0
    ) -> np.ndarray:
        return words.exact(self.kind, self.drawn_scale(units), fraction, fraction_bits)

    def tail(self, x: Any) -> Any:
        tail = NOISE_KINDS[self.kind].tail(np.asarray(x, np.float64) / self.scale)
        return float(tail) if np.ndim(x) == 0 else tail

    def quantile(self, probability: Any) -> Any:
        quantile = self.scale * NOISE_KINDS[self.kind].quantile(np.asarray(probability, np.float64))
        return float(quantile) if np.ndim(probability) == 0 else quantile

    def __str__(self) -> str:
        return f"{self.kind} noise of scale {self.scale:.17g} in round {self.round}"


@dataclass(frozen=True)
class SavedNoise(NoiseSpec):
    """Gaussian noise of one round of several over which a user's squared norm is bounded in sum.

    By itself it protects nobody whose norm is above 1: only all rounds of the event that states it do
    (`dpbeam.accounting.events.SavedNormEvent`).

    Attributes:
      most: the largest l2 norm of what one user gives in this round.
    """

    most: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind != "gaussian":
            raise ValueError(f"norm is saved under Gaussian noise alone, not {self.kind}")
        object.__setattr__(self, "most", check_positive("most", self.most))

    def admits(self, items: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return weight <= self.most  # of any number of items: the norm bounds them all

    def __str__(self) -> str:
        return f"{super().__str__()}, of norms up to {self.most:g} that are bounded over all rounds"


@dataclass(frozen=True)
class FilteredNoise(StatedNoise):
    """Gaussian noise whose scale is chosen round by round, from what was released before, under a privacy filter.

    Each round takes a share of the filter, and the shares never add up to more than one: `scale` says what noise a
    share is worth. However they are chosen, all rounds together cost what one Gaussian mechanism with this sigma
    costs (`dpbeam.accounting.events.GaussianFilterEvent`).

    Attributes:
      sigma: standard deviation of that one mechanism, per unit of l2-sensitivity.
      sensitivity: l2-sensitivity of the query of every round.
      round: the first round; each round has noise of its own.
    """

    sigma: float
    sensitivity: float
    round: int = 1

    kind: ClassVar[str] = "filtered gaussian"  # type: ignore[misc]
    filtered: ClassVar[bool] = True

    @property
    def norm(self) -> str:
        return L2

    @property
    def bits(self) -> bool:
        return False

    def admits(self, items: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return weight <= 1.0  # of any number of items: the norm bounds them all

    def share(self, share: float, trip: int) -> NoiseSpec:
        return NoiseSpec("gaussian", self.scale_of(share), self.round + trip)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", check_positive("sigma", self.sigma))
        object.__setattr__(self, "sensitivity", check_positive("sensitivity", self.sensitivity))
        object.__setattr__(self, "round", check_rounds(self.round, "round"))

    def scale_of(self, share: float) -> float:
        """Standard deviation of a round that takes this share of the filter, rounded up.

        Raises: ValueError unless 0 < share <= 1.
        """
        if not 0 < share <= 1:
            raise ValueError(f"share must lie in (0, 1], got {share}")
        # Three roundings of half an ulp each; four are added.
        return self.scale / math.sqrt(share) * (1 + 2.0**-50)

    @property
    def scale(self) -> float:
        """Standard deviation of one round that takes everything."""
        return self.sigma * self.sensitivity * (1 + 2.0**-51)

    def __str__(self) -> str:
        sensitivity = f"on sums of sensitivity {self.sensitivity:.17g}"
        return f"Gaussian noise under a filter of sigma {self.sigma:.17g} {sensitivity}"


class NoiseMismatchError(ValueError):
    """A ledger describes noise that the program does not draw, or a program draws noise that nobody pays for."""


def check_same_noise(stated: Sequence[StatedNoise], drawn: Sequence[StatedNoise]) -> None:
    """Hold the noise of a ledger's events against what a program draws, round by round.

    Raises: NoiseMismatchError on any difference, or in the number of rounds.
    """

    def ordered(specs: Sequence[StatedNoise]) -> list[StatedNoise]:
        return sorted(specs, key=lambda spec: (spec.round, spec.kind, str(spec)))

    stated, drawn = ordered(stated), ordered(drawn)
    if len(stated) != len(drawn):
        raise NoiseMismatchError(
            f"the ledger states {len(stated)} noisy rounds, the program draws {len(drawn)}"
        )
    for there, here in zip(stated, drawn):
        if there != here:
            raise NoiseMismatchError(f"the ledger states {there}, the program draws {here}")
    rounds = [spec.round for spec in drawn]
    if len(set(rounds)) < len(rounds):
        raise NoiseMismatchError("two trips draw the noise of one round: they would draw the same numbers")
