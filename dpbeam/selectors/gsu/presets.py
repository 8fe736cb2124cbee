"""Public constants of GSU: the presets, tuned on public and synthetic data; privacy does not depend on them."""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_ROUNDS = 64


@dataclass(frozen=True)
class ScoreConstants:
    """Constants of the score that decides where users aim; public, without effect on privacy."""

    a: float
    a1: float
    k1: float
    kk: float
    b: float
    k2: float
    g: float


@dataclass(frozen=True)
class GsuPreset:
    """Every public constant of one GSU setting. `max_items` is D0, `fin` the last spending share."""

    fractions: tuple[float, ...]
    fin: float
    delta_gauss_share: float
    max_items: int
    c0: float
    eta: float
    score: ScoreConstants

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.fractions)

    @property
    def spending(self) -> tuple[float, ...]:
        """The share of the budget that is spent by the end of each round, (rounds,)."""
        return spending(self.rounds, self.fin)


def geometric_fractions(rounds: int, first: float) -> tuple[float, ...]:
    """f_r = first q^(r-1) with q >= 0 such that the fractions sum to 1 (float sum; see `calibrate_gsu`).

    Raises: ValueError unless 1 <= rounds <= 64 and 0 < first < 1 (first is 1 for one round).
    """
    check_round_count(rounds)
    if rounds == 1:
        return (1.0,)
    if not 0 < first < 1:
        raise ValueError(f"first must lie strictly between 0 and 1, got {first}")
    low, high = 0.0, 1.0
    while first * sum(high**r for r in range(rounds)) < 1:
        high *= 2
    while True:
        q = (low + high) / 2
        if not low < q < high:
            break
        if first * math.fsum(q**r for r in range(rounds)) < 1:
            low = q
        else:
            high = q
    raw = [first * low**r for r in range(rounds)]
    return tuple(value / math.fsum(raw) for value in raw)


def spending(rounds: int, fin: float) -> tuple[float, ...]:
    """Shares of delta_threshold per checkpoint: `fin` for the last, the others equal; (1,) for one round.

    Raises: ValueError unless 1 <= rounds <= 64 and 0 < fin <= 1.
    """
    check_round_count(rounds)
    if not 0 < fin <= 1:
        raise ValueError(f"fin must lie in (0, 1], got {fin}")
    if rounds == 1:
        return (1.0,)
    return (*[(1 - fin) / (rounds - 1)] * (rounds - 1), float(fin))


def check_round_count(rounds: int) -> None:
    """Raises ValueError unless the number of rounds is an integer from 1 to MAX_ROUNDS."""
    if isinstance(rounds, bool) or int(rounds) != rounds or not 1 <= rounds <= MAX_ROUNDS:
        raise ValueError(f"rounds must be an integer from 1 to {MAX_ROUNDS}, got {rounds}")


GSU_PRESETS: dict[str, GsuPreset] = {
    "gsu2": GsuPreset(
        fractions=(0.25, 0.75),
        fin=0.9,
        delta_gauss_share=0.7,
        max_items=300,
        c0=0.15,
        eta=0.86,
        score=ScoreConstants(a=1.2, a1=0.0, k1=0.72, kk=0.0, b=-1.1, k2=2.5, g=1.1),
    ),
    "gsu4": GsuPreset(
        fractions=geometric_fractions(4, 0.10),
        fin=0.9,
        delta_gauss_share=0.7,
        max_items=300,
        c0=0.18,
        eta=0.4,
        score=ScoreConstants(a=1.15, a1=0.0, k1=0.65, kk=0.0, b=-0.67, k2=2.1, g=1.05),
    ),
    "gsu8": GsuPreset(
        fractions=geometric_fractions(8, 0.04),
        fin=0.71,
        delta_gauss_share=0.7,
        max_items=300,
        c0=0.26,
        eta=0.23,
        score=ScoreConstants(a=1.0, a1=0.0, k1=0.78, kk=0.0, b=-0.57, k2=2.45, g=1.1),
    ),
    "gsu16": GsuPreset(
        fractions=geometric_fractions(16, 0.03),
        fin=0.89,
        delta_gauss_share=0.72,
        max_items=400,
        c0=0.23,
        eta=0.25,
        score=ScoreConstants(a=0.89, a1=-0.69, k1=0.77, kk=-0.36, b=-0.57, k2=2.4, g=1.1),
    ),
}
