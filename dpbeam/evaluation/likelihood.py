"""The privacy loss of a transcript, from the noise as it is measured.

A program states its noise; here the engine draws much of it and its law is measured: the covariance over rounds of
Gaussian noise, the scale of Laplace noise, and whether the draws follow the stated kind and Laplace rounds are
unrelated. Scales are widened by their own confidence bounds, so that chance cannot raise the loss. Tables of count
noise and of coins have no scale to fit: their draws are held against the stated law itself, which gives the loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpbeam.accounting.coins import CoinNoise
from dpbeam.accounting.geometric import CountNoise
from dpbeam.accounting.noise import NoiseSpec
from dpbeam.accounting.tables import TableNoise
from dpbeam.engine.program import Keys, Program
from dpbeam.evaluation.confidence import gaussian_spread_factor
from dpbeam.kernels.grid import UNITS

_SAMPLES = 400_000
_RIDGE = 1e-9  # share of the variance that is always taken for independent: keeps repeated noise invertible
_AGREE = 8.0  # standard errors of the share of draws that agree by chance
_RELATED = 0.05  # thirty standard errors of a correlation of independent rounds


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
    def measure(cls, program: Program, keys: Keys, level: float) -> Likelihood:
        """From the noise that fresh items would get.

        Args:
          level: probability that a widened scale is below the true one, and that a sound law is called a fault.
        """
        trips = [trip for trip in range(program.trips) if program.noise(trip) is not None]
        specs = [program.noise(trip) for trip in trips]
        fp = np.arange(2 * _SAMPLES, dtype=np.uint64).reshape(-1, 2)
        units = np.array([keys.noise(spec, fp) for spec in specs])
        drawn = units / UNITS
        rows = {
            name: np.array([i for i, s in enumerate(specs) if s.kind in kinds], int)
            for name, kinds in _KINDS.items()
        }
        if sum(map(len, rows.values())) < len(specs):
            raise ValueError(f"no likelihood is known for noise of kinds {sorted({s.kind for s in specs})}")
        return cls(
            trips=trips,
            gaussian=rows["gaussian"],
            inverse=_inverse_covariance(drawn[rows["gaussian"]], level),
            laplace=rows["laplace"],
            scales=_laplace_scales(drawn[rows["laplace"]], level),
            tables=rows["table"],
            table_noises=tuple(specs[i] for i in rows["table"]),
            fault=_wrong_law(specs, drawn, level)
            or _related(drawn, np.concatenate((rows["laplace"], rows["table"])))
            or _same_words(units, rows["gaussian"]),
        )

    def log_ratio(self, seen: np.ndarray, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """ln of the density of what is seen given the sums `here` over that given `there`, (items,), over all rounds.

        Args:
          seen: noisy sums, or 1 and 0 where bits alone are seen.
          here, there: exact sums; all (rounds, items) float64 in weight, rows as `trips`.
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
                loss += noise.law.bit_log_ratio(
                    seen[row] > 0, here[row] * noise.grid, there[row] * noise.grid
                )
            else:
                loss += noise.law.log_ratio(drawn[row], moved[row])
        return loss


_KINDS = {"gaussian": ("gaussian",), "laplace": ("laplace",), "table": (CountNoise.kind, CoinNoise.kind)}


def _inverse_covariance(drawn: np.ndarray, level: float) -> np.ndarray:
    rounds = len(drawn)
    if not rounds:
        return np.zeros((0, 0))
    covariance = drawn @ drawn.T / _SAMPLES
    covariance *= gaussian_spread_factor(_SAMPLES, rounds, level)
    covariance += _RIDGE * np.trace(covariance) * np.eye(rounds)
    return np.linalg.inv(covariance)


def _laplace_scales(drawn: np.ndarray, level: float) -> np.ndarray:
    """Mean absolute values, widened: the mean of n exponentials is below (1 - t) b with prob. exp(-n t^2 / 2)."""
    t = math.sqrt(2.0 * math.log(max(len(drawn), 1) / level) / _SAMPLES)
    return np.abs(drawn).mean(axis=1) / (1.0 - t)


def _wrong_law(specs: list[NoiseSpec | TableNoise], drawn: np.ndarray, level: float) -> str:
    """The first round whose draws do not follow the stated kind, at whatever scale they have.

    Dvoretzky, Kiefer and Wolfowitz: the empirical distribution strays by more than sqrt(ln(2/level) / 2n) with
    probability at most `level`; fitting the scale moves it by less than that again.
    """
    allowed = 2.0 * math.sqrt(math.log(2.0 * max(len(specs), 1) / level) / (2.0 * _SAMPLES))
    rank = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
    for spec, values in zip(specs, drawn):
        if isinstance(spec, TableNoise):
            points, counts = np.unique(values, return_counts=True)
            reached = np.cumsum(counts[::-1])[::-1] / _SAMPLES
            if np.abs(reached - spec.tail(points)).max() > allowed:
                return f"noise of round {spec.round} is not as stated"
            continue
        fitted = NoiseSpec(spec.kind, spec.scale * math.sqrt(np.mean(np.square(values))) / spec.deviation)
        strays = float(np.abs(1.0 - np.asarray(fitted.tail(np.sort(values))) - rank).max())
        if strays > allowed:
            return f"noise of round {spec.round} is not {spec.kind}"
    return ""


def _related(drawn: np.ndarray, rows: np.ndarray) -> str:
    """Noise of these rows that is correlated with that of another round; for Gaussian noise the covariance tells."""
    if not len(rows) or len(drawn) < 2:
        return ""
    correlation = np.abs(np.corrcoef(drawn) - np.eye(len(drawn)))[rows]
    return "noise of two rounds is related" if correlation.max() > _RELATED else ""


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
