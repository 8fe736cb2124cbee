"""Noise as data: what a round draws, stated before anything is drawn.

Design. A program states its noise as a `NoiseSpec` and never draws any; the engine draws it in one place
(`dpbeam.engine.program.Keys.noise`), as exact integers (docs/noise.md). The same object yields the event of the ledger,
the thresholds, keep probabilities, the range that the fixed point must hold and the likelihood of the audit, so none
of them can describe other noise than what is drawn. A new kind of noise is one row of `KINDS` and one law in
`dpbeam.randomness`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from dpbeam.accounting.discrete import SMALLEST_SIGMA, SMOOTHING, equivalent_sigma
from dpbeam.accounting.gaussian import check_positive
from dpbeam.accounting.peeling import check_rounds

L1, L2, LINF = "l1", "l2", "linf"


@dataclass(frozen=True)
class Kind:
    """A family of symmetric noise, at scale 1.

    Attributes:
      norm: L1 or L2, the norm in which one user's contribution must be bounded for this noise to protect it.
      deviation: standard deviation.
      largest: bound on |x| of any draw.
      tail: x -> P(X >= x), arrays, accurate in the upper tail.
      quantile: p -> x with P(X >= x) = p, arrays, accurate for small p.
    """

    norm: str
    deviation: float
    largest: float
    tail: Callable[[np.ndarray], np.ndarray]
    quantile: Callable[[np.ndarray], np.ndarray]


def _laplace_tail(x: np.ndarray) -> np.ndarray:
    half = 0.5 * np.exp(-np.abs(x))
    return np.where(x >= 0, half, 1.0 - half)


def _laplace_quantile(p: np.ndarray) -> np.ndarray:
    return np.where(p <= 0.5, -np.log(2.0 * p), np.log1p(1.0 - 2.0 * p))


KINDS = {
    "gaussian": Kind(L2, 1.0, 16.01, lambda x: special.ndtr(-x), lambda p: -special.ndtri(p)),
    "laplace": Kind(L1, math.sqrt(2.0), 106.0, _laplace_tail, _laplace_quantile),
}


@dataclass(frozen=True)
class NoiseSpec:
    """Independent noise on every item's weight in one round.

    Attributes:
      kind: a name of KINDS.
      scale: standard deviation of Gaussian noise; b of Laplace noise, density exp(-|x|/b)/(2b). In weight.
      round: which noisy round, counted from 1; noise of different rounds is independent.

    Raises: ValueError on an unknown kind or a value out of range.
    """

    kind: str
    scale: float
    round: int = 1

    bits: ClassVar[bool] = False  # the noisy sums themselves are protected

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"kind of noise must be one of {', '.join(KINDS)}, got {self.kind!r}")
        object.__setattr__(self, "scale", check_positive("scale", self.scale))
        object.__setattr__(self, "round", check_rounds(self.round, "round"))

    @property
    def norm(self) -> str:
        """The norm in which a user's contribution must be bounded."""
        return KINDS[self.kind].norm

    @property
    def deviation(self) -> float:
        """Standard deviation."""
        return KINDS[self.kind].deviation * self.scale

    @property
    def largest(self) -> float:
        """Bound on the absolute value of any draw."""
        return KINDS[self.kind].largest * self.scale

    def drawn_scale(self, units: int) -> float:
        """The scale of the integer noise that stands for this noise, in units of 1/units of a weight, a power of two.

        Integer Gaussian noise of variance s^2 + 39/8 has no privacy curve above that of real noise of variance s^2
        (`discrete.equivalent_sigma`), so that is what is drawn; Laplace noise is pure at its own scale.
        """
        scale = self.scale * units
        if self.kind != "gaussian":
            return scale
        drawn = max(scale, SMALLEST_SIGMA)
        while equivalent_sigma(drawn) < scale:
            drawn = math.nextafter(max(drawn, math.sqrt(drawn * drawn + float(SMOOTHING))), math.inf)
        return drawn

    def tail(self, x) -> float | np.ndarray:
        """P(noise >= x), for numbers or arrays."""
        found = KINDS[self.kind].tail(np.asarray(x, np.float64) / self.scale)
        return float(found) if np.ndim(x) == 0 else found

    def quantile(self, probability) -> float | np.ndarray:
        """x with P(noise >= x) = probability, for numbers or arrays in (0, 1)."""
        found = self.scale * KINDS[self.kind].quantile(np.asarray(probability, np.float64))
        return float(found) if np.ndim(probability) == 0 else found

    def __str__(self) -> str:
        return f"{self.kind} noise of scale {self.scale:.17g} in round {self.round}"


@dataclass(frozen=True)
class FilteredNoise:
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

    kind = "filtered gaussian"
    norm = L2

    def __post_init__(self):
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


def check_same_noise(stated: Sequence[Any], drawn: Sequence[Any]) -> None:
    """Hold the noise of a ledger's events against what a program draws, round by round.

    Args: `NoiseSpec`, or what is stated likewise: a kind, a scale, a round, and equality.

    Raises: NoiseMismatchError on a difference in kind, scale or number of rounds.
    """

    def ordered(specs: Sequence[Any]) -> list[Any]:
        return sorted(specs, key=lambda spec: (spec.round, spec.kind, spec.scale))

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
