"""The privacy loss of a transcript, from the noise as it is measured.

A program states its noise; here it runs on many items that a user each holds, and what it got is measured, noisy less
exact sums: the covariance over rounds of Gaussian noise, the scale of Laplace noise, whether rounds are unrelated, and
whether all is of the stated law (`dpbeam_lab.audit.draws`). Scales are widened by their own confidence bounds, so that
chance cannot raise the loss. Tables of count noise and of coins have no scale to fit: the stated law gives the loss. Of
coins a run shows bits alone; how rounds of them are related is measured on what the engine draws for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpbeam.accounting.coins import CoinNoise
from dpbeam.accounting.geometric import CountNoise
from dpbeam.accounting.noise import StatedNoise
from dpbeam.accounting.tables import ReleaseLaw, TableNoise
from dpbeam.engine.program import Keys, Program
from dpbeam.kernels.grid import UNITS
from dpbeam_lab.audit.confidence import gaussian_spread_factor
from dpbeam_lab.audit.draws import ITEMS, Drawn
from dpbeam_lab.audit.neighbours import all_novel, build
from dpbeam_lab.audit.transcript import run_observed

SAMPLES = 400_000
_RIDGE = 1e-9  # share of the variance that is always taken for independent: keeps repeated noise invertible
_AGREE = (
    8.0  # standard errors of a share of draws that agree by chance, or of a correlation of independent rounds
)
_RELATED = 0.05  # no smaller correlation is looked at


@dataclass(frozen=True)
class Likelihood:
    """What the rounds' noise is like.

    Attributes:
      trips: trips that end with noise, ascending: the rows of every array below.
      gaussian: rows of Gaussian rounds; inverse: their inverse widened covariance, in weight^-2.
      laplace: rows of Laplace rounds; scales: (rounds,) their widened scales.
      tables: rows of rounds of noise by a table; table_noises: what they state.
      fault: what about the noise is not as stated; empty if nothing is.
    """

    trips: list[int]
    gaussian: np.ndarray
    inverse: np.ndarray
    laplace: np.ndarray
    scales: np.ndarray
    tables: np.ndarray
    table_noises: tuple[TableNoise, ...]
    fault: str

    @classmethod
    def measure(
        cls,
        program: Program,
        keys: Keys,
        level: float,
        *,
        stated: Mapping[int, StatedNoise] | None = None,
        samples: int = SAMPLES,
    ) -> Likelihood:
        """From a run on items that one user each holds.

        Args:
          level: probability that a widened scale is below the true one, and that a sound law is called a fault.
          stated: round -> the noise that is paid for; None: what the program states.
          samples: items.
        """
        stating = {trip: spec for trip in range(program.trips) if (spec := program.noise(trip)) is not None}
        trips, specs = list(stating), list(stating.values())
        units, drawn = _drawn(program, trips, keys, samples, stated or {spec.round: spec for spec in specs})
        rows = {
            name: np.array([i for i, s in enumerate(specs) if s.kind in kinds], int)
            for name, kinds in _KINDS_BY_LAW.items()
        }
        if sum(map(len, rows.values())) < len(specs):
            raise ValueError(f"no likelihood is known for noise of kinds {sorted({s.kind for s in specs})}")
        weights = units / UNITS
        return cls(
            trips=trips,
            gaussian=rows["gaussian"],
            inverse=_inverse_covariance(weights[rows["gaussian"]], level),
            laplace=rows["laplace"],
            scales=_laplace_scales(weights[rows["laplace"]], level),
            tables=rows["table"],
            table_noises=tuple(specs[i] for i in rows["table"]),
            fault=drawn.fault(level)
            or _related(weights, np.concatenate((rows["laplace"], rows["table"])))
            or _same_words(units, rows["gaussian"]),
        )

    def log_ratio(self, seen: np.ndarray, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """ln of the density of what is seen given the sums `here` over that given `there`, (items,), over all rounds.

        Args:
          seen: noisy sums, or 1 and 0 where bits alone are seen.
          here, there: exact sums; all (trips, items) float64 in weight, rows as `trips`.
        """
        drawn, moved = seen - here, here - there
        loss = np.zeros(seen.shape[1])
        if len(self.gaussian):
            noise, step = drawn[self.gaussian], moved[self.gaussian]
            loss += np.einsum("ri,ri->i", self.inverse @ step, noise + 0.5 * step)
        if len(self.laplace):
            noise, step = drawn[self.laplace], moved[self.laplace]
            loss += ((np.abs(noise + step) - np.abs(noise)) / self.scales[:, None]).sum(axis=0)
        for row, noise in zip(self.tables, self.table_noises):
            if noise.bits:
                loss += _ratio_of_bits(
                    noise.law, seen[row] > 0, here[row] * noise.grid, there[row] * noise.grid
                )
            else:
                loss += _ratio_of_draws(noise.law, drawn[row], moved[row])
        return loss


def _ratio_of_draws(law: ReleaseLaw, z: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """ln P(Z = z) / P(Z = z + moved), whole numbers; inf where one of them is impossible."""
    here, there = _log_mass(law, z), _log_mass(law, z + moved)
    return np.where(np.isinf(here), np.inf, np.where(np.isinf(here), 0.0, here) - there)


def _log_mass(law: ReleaseLaw, z: np.ndarray) -> np.ndarray:
    index = law.threshold - 1 - np.rint(z).astype(np.int64)
    inside = (index >= 0) & (index < len(law.masses))
    with np.errstate(divide="ignore"):
        return np.log(np.where(inside, law.masses[np.where(inside, index, 0)], 0.0))


def _ratio_of_bits(law: ReleaseLaw, shown: np.ndarray, here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """ln of the probability of a released bit with `here` users over that with `there`.

    inf where one of them is 0.
    """
    p, rest = law.probabilities
    chances = [
        np.where(shown, p[at], rest[at])
        for at in (np.minimum(np.rint(n).astype(np.int64), len(p) - 1) for n in (here, there))
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(chances[0]) - np.log(chances[1])
    return np.where((chances[0] == 0) | (chances[1] == 0), np.inf, ratio)


_KINDS_BY_LAW = {
    "gaussian": ("gaussian",),
    "laplace": ("laplace",),
    "table": (CountNoise.kind, CoinNoise.kind),
}


def _drawn(
    program: Program, trips: list[int], keys: Keys, samples: int, stated: Mapping[int, StatedNoise]
) -> tuple[np.ndarray, Drawn]:
    """Noise of the trips, (trips, samples) int64 units, and all of it as it was shown."""
    novel = all_novel(1)
    seen = run_observed(program, build(novel, samples, keys, program.cap, with_newcomer=True), keys, samples)
    fp = np.arange(2 * samples, dtype=np.uint64).reshape(-1, 2)
    drawn, units = Drawn(), []
    for trip in trips:
        spec, exact, noisy = program.noise(trip), seen.column("sums", trip), seen.column("noisy", trip)
        assert spec is not None
        drawn.add_items(stated.get(spec.round, spec), exact, noisy)
        units.append(keys.noise(spec, fp) if spec.bits else noisy - exact)
        if spec.bits:
            drawn.add_noise((ITEMS, spec.round), stated.get(spec.round, spec), units[-1])
    return np.array(units), drawn


def _inverse_covariance(drawn: np.ndarray, level: float) -> np.ndarray:
    rounds = len(drawn)
    if not rounds:
        return np.zeros((0, 0))
    samples = drawn.shape[1]
    covariance = drawn @ drawn.T / samples
    covariance *= gaussian_spread_factor(samples, rounds, level)
    covariance += _RIDGE * np.trace(covariance) * np.eye(rounds)
    return np.linalg.inv(covariance)


def _laplace_scales(drawn: np.ndarray, level: float) -> np.ndarray:
    """Mean absolute values, widened: the mean of n exponentials is below (1 - t) b with prob. exp(-n t^2 / 2)."""
    t = math.sqrt(2.0 * math.log(max(len(drawn), 1) / level) / drawn.shape[1])
    return np.abs(drawn).mean(axis=1) / (1.0 - t)


def _related(drawn: np.ndarray, rows: np.ndarray) -> str:
    """Noise of these rows that is correlated with that of another round; for Gaussian noise the covariance tells."""
    if not len(rows) or len(drawn) < 2:
        return ""
    correlation = np.abs(np.corrcoef(drawn) - np.eye(len(drawn)))[rows]
    allowed = max(_RELATED, _AGREE / math.sqrt(drawn.shape[1]))
    return "noise of two rounds is related" if correlation.max() > allowed else ""


def _same_words(units: np.ndarray, gaussian: np.ndarray) -> str:
    """Gaussian rounds of different scales that were drawn from the same words: their low bits agree.

    Such noise need not be correlated. Of independent rounds one draw in 32 agrees in five bits.
    """
    chance = 1 / 32
    allowed = _AGREE * math.sqrt(chance * (1 - chance) / units.shape[1])
    for at, row in enumerate(gaussian):
        for other in gaussian[:at]:
            agree = float(np.mean((units[row] ^ units[other]) & 31 == 0))
            if abs(agree - chance) > allowed and not np.array_equal(units[row], units[other]):
                return "noise of two rounds is related"
    return ""
