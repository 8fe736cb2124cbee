"""From settings to a calibrated program and its events: noise and thresholds of every round, before any data.

Guarantee of every plan: (epsilon, delta)-DP, privacy unit one user, neighbours differ by adding or removing one
user; per-user samples of at most D0 distinct items; theorem "weight and threshold" (docs/privacy.md) with l2
sensitivity 1 and the novel l_inf sensitivity of the method; sigma and thresholds rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpbeam.accounting.budget import Budget, split_amount
from dpbeam.accounting.events import ComposedEvent, GaussianEvent, ThresholdEvent
from dpbeam.accounting.gaussian import gaussian_sigma, split_sigma
from dpbeam.accounting.threshold import novel_threshold
from dpbeam.engine.program import Program
from dpbeam.errors import InputError
from dpbeam.selection.config import POOL, SelectionConfig
from dpbeam.selectors.gsu.calibration import calibrate_gsu, spending
from dpbeam.selectors.gsu.kernels import ScoreConstants
from dpbeam.selectors.gsu.program import GsuProgram
from dpbeam.selectors.mad.kernels import MadTables
from dpbeam.selectors.mad.program import Mad2rProgram, MadProgram, MadRound
from dpbeam.selectors.uniform.program import UniformProgram

# The largest draw, 13.1 standard deviations, then stays below 2^62 grid units.
_MAX_SIGMA = 2.0**28


@dataclass(frozen=True)
class RoundPlan:
    """Public numbers of one round.

    Attributes:
      number: from 1.
      sigma: standard deviation of the noise that the round adds to its weights.
      threshold: release threshold; for gsu that of the cumulative statistic (inf: nothing is tested).
      statistic_sigma: standard deviation of what is compared with the threshold.
      weight_factor: what a constant weight of 1 in every round adds to that statistic.
      delta_threshold: probability allowed for a novel item to pass here; None where rounds share it.
    """

    number: int
    sigma: float
    threshold: float
    statistic_sigma: float
    weight_factor: float
    delta_threshold: float | None


@dataclass(frozen=True)
class SelectionPlan:
    """A calibrated job.

    Attributes:
      config: resolved settings.
      program: what runs, in process or on Beam.
      rounds: public numbers per round.
      event: what the ledger records, root of the event tree.
    """

    config: SelectionConfig
    program: Program
    rounds: tuple[RoundPlan, ...]
    event: ComposedEvent


def make_plan(config: SelectionConfig) -> SelectionPlan:
    """Calibrate a selection; needs no data.

    Raises:
      InputError: settings are out of range or violate a precondition of the method.
    """
    config = config.resolve()
    plan = _PLANNERS[config.method](config)
    largest = max(row.sigma for row in plan.rounds)
    if largest > _MAX_SIGMA:
        raise InputError(
            f"--epsilon ({config.epsilon:g}) and --delta ({config.delta:g}) need noise of standard deviation "
            f"{largest:.3g}, more than the fixed-point weights hold; raise one of them"
        )
    return plan


def _sqrt_novel(scale: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda t: scale / np.sqrt(t)


@dataclass(frozen=True)
class _Noise:
    """Noise and threshold of one round, with the events that pay for them."""

    sigma: float
    threshold: float
    delta_threshold: float
    events: tuple[GaussianEvent, ThresholdEvent]

    def row(self, number: int) -> RoundPlan:
        return RoundPlan(number, self.sigma, self.threshold, self.sigma, 1.0, self.delta_threshold)


def _noise(sigma: float, delta: float, novel: float, max_items: int, number: int, label: str) -> _Noise:
    threshold = novel_threshold(sigma, delta, max_items, _sqrt_novel(novel))
    events = (
        GaussianEvent(sigma=sigma, round=number, label=label),
        ThresholdEvent(
            threshold=threshold, delta=delta, novel_linf=novel, max_items=max_items, round=number, label=label
        ),
    )
    return _Noise(sigma, threshold, delta, events)


def _compose(config: SelectionConfig, novel: tuple[float, ...]) -> tuple[list[_Noise], ComposedEvent]:
    """Calibrate all rounds; `novel` holds each round's novel l_inf factor b, meaning b/sqrt(t)."""
    shares = config.budget_split or (1.0,)
    d0, label = config.max_items_per_user, config.method
    if config.accounting == "basic":
        parts, rounds = [], []
        for number, (budget, b) in enumerate(
            zip(Budget(config.epsilon, config.delta).split(shares), novel), start=1
        ):
            sigma = gaussian_sigma(budget.epsilon, budget.delta / 2)
            noise = _noise(sigma, budget.delta / 2, b, d0, number, label)
            rounds.append(noise)
            parts.append(ComposedEvent("gaussian", noise.events, label=label, epsilon=budget.epsilon))
        return rounds, ComposedEvent("basic", tuple(parts), label=label)
    sigmas = split_sigma(gaussian_sigma(config.epsilon, config.delta / 2), shares)
    deltas = split_amount(config.delta / 2, shares)
    rounds = [
        _noise(sigma, delta, b, d0, number, label)
        for number, (sigma, delta, b) in enumerate(zip(sigmas, deltas, novel), start=1)
    ]
    events = tuple(event for noise in rounds for event in noise.events)
    return rounds, ComposedEvent("gaussian", events, label=label, epsilon=config.epsilon)


def _plan_uniform(config: SelectionConfig) -> SelectionPlan:
    shares = config.budget_split or (1.0,)
    rounds, event = _compose(config, (1.0,) * len(shares))
    program = UniformProgram(
        sigmas=[r.sigma for r in rounds],
        thresholds=[r.threshold for r in rounds],
        max_items=config.max_items_per_user,
        pool=POOL if config.resample else None,
    )
    return SelectionPlan(config, program, _rows(rounds), event)


def _mad_round(config: SelectionConfig, noise: _Noise, b_min: float) -> MadRound:
    tau = noise.threshold + config.adaptive_excess * noise.sigma
    if tau < 1.0:
        raise InputError(
            f"--adaptive_excess: MAD needs an adaptive threshold of at least 1, which is {tau:.4g} at this epsilon "
            "and delta; use --method=basic, or a larger --adaptive_excess"
        )
    tables = MadTables.create(tau=tau, max_adaptive_degree=config.max_adaptive_degree, b_min=b_min)
    return MadRound(noise.sigma, noise.threshold, tables)


def _plan_mad(config: SelectionConfig) -> SelectionPlan:
    rounds, event = _compose(config, (1.0,))
    program = MadProgram(round=_mad_round(config, rounds[0], 1.0), max_items=config.max_items_per_user)
    return SelectionPlan(config, program, _rows(rounds), event)


def _plan_mad2r(config: SelectionConfig) -> SelectionPlan:
    rounds, event = _compose(config, (1.0, config.max_bias))
    program = Mad2rProgram(
        first=_mad_round(config, rounds[0], 1.0),
        second=_mad_round(config, rounds[1], config.min_bias),
        max_items=config.max_items_per_user,
        b_min=config.min_bias,
        b_max=config.max_bias,
        lower_confidence=config.lower_confidence,
        upper_confidence=config.upper_confidence,
        pool=POOL if config.resample else None,
    )
    return SelectionPlan(config, program, _rows(rounds), event)


def _plan_gsu(config: SelectionConfig) -> SelectionPlan:
    calibration = calibrate_gsu(
        config.epsilon,
        config.delta,
        config.gsu_fractions,
        spending(config.rounds, config.gsu_final_spending) if config.rounds > 1 else (1.0,),
        config.gsu_delta_share,
        config.max_items_per_user,
        config.gsu_cap,
        config.gsu_growth,
    )
    program = GsuProgram(
        sigma=calibration.sigma,
        fractions=calibration.fractions,
        round_sigmas=calibration.round_sigmas,
        coefficients=calibration.a,
        drifts=calibration.G,
        variances=calibration.V,
        thresholds=calibration.thresholds,
        caps=calibration.caps,
        max_items=config.max_items_per_user,
        score=ScoreConstants(*config.gsu_score_constants) if config.gsu_score else None,
    )
    rows = tuple(
        RoundPlan(
            number=k + 1,
            sigma=float(calibration.round_sigmas[k]),
            threshold=float(calibration.thresholds[k]),
            statistic_sigma=float(calibration.sigma * math.sqrt(calibration.V[k])),
            weight_factor=float(calibration.G[k]),
            delta_threshold=None,
        )
        for k in range(config.rounds)
    )
    return SelectionPlan(config, program, rows, calibration.event())


def _rows(rounds: list[_Noise]) -> tuple[RoundPlan, ...]:
    return tuple(noise.row(number) for number, noise in enumerate(rounds, start=1))


_PLANNERS = {
    "basic": _plan_uniform,
    "dp-sips": _plan_uniform,
    "mad": _plan_mad,
    "mad2r": _plan_mad2r,
    "gsu": _plan_gsu,
}
