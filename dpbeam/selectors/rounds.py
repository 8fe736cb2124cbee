"""Rounds that each test their own noisy weights: noise, thresholds and events of all of them.

Guarantee: theorem "weight and threshold" (docs/explanation/privacy.md), with l2-sensitivity 1 and the novel l_inf
sensitivity of each round; sigma and thresholds rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpbeam.accounting.budget import split_amount
from dpbeam.accounting.events import ComposedEvent, Event, ThresholdEvent, noise_event
from dpbeam.accounting.gaussian import gaussian_sigma, split_sigma
from dpbeam.accounting.noise import NoiseSpec
from dpbeam.accounting.threshold import NovelWeight, novel_threshold
from dpbeam.selectors.base import Request, RoundPlan


@dataclass(frozen=True)
class Round:
    """Noise and threshold of one round, with the events that pay for them."""

    noise: NoiseSpec
    threshold: float
    delta: float
    events: tuple[Event, ...]

    @classmethod
    def create(cls, noise: NoiseSpec, delta: float, novel: float, max_items: int, label: str) -> Round:
        """A round whose threshold lets a novel item pass with probability at most delta.

        Args:
          novel: a new user puts at most novel/sqrt(t) (Laplace noise: novel/t) on each of t items of its own.
        """
        weight = NovelWeight.of(noise, novel)
        threshold = novel_threshold(noise, delta, max_items, weight)
        test = ThresholdEvent(
            threshold=threshold,
            delta=delta,
            novel_linf=weight.scale,
            novel_power=weight.power,
            max_items=max_items,
            round=noise.round,
            label=label,
        )
        return cls(noise, threshold, delta, (noise_event(noise, label=label), test))

    @property
    def plan(self) -> RoundPlan:
        """The round as programs take it, of noise on both sides alike."""
        return RoundPlan(self.noise, self.threshold, self.noise, 1.0, self.delta)


def gaussian_rounds(
    request: Request, *, shares: Sequence[float], novel: Sequence[float], accounting: str, label: str
) -> tuple[list[Round], ComposedEvent]:
    """Calibrate rounds of Gaussian noise; half of delta goes to the noise, half to the thresholds.

    Args:
      request: resolved.
      shares: per round; of epsilon and delta with basic accounting, of 1/sigma^2 and of the thresholds' delta with
        Gaussian accounting.
      novel: per round, the factor of the novel l_inf sensitivity.
      accounting: "basic" or "gaussian".
    """
    epsilon, delta, max_items = request.epsilon, request.delta, request.max_items
    assert max_items is not None

    def create(number: int, sigma: float, part: float) -> Round:
        noise = NoiseSpec("gaussian", sigma, number)
        return Round.create(noise, part, novel[number - 1], max_items, label)

    if accounting == "basic":
        parts = list(zip(split_amount(epsilon, shares), split_amount(delta, shares)))
        rounds = [create(n, gaussian_sigma(e, d / 2), d / 2) for n, (e, d) in enumerate(parts, start=1)]
        costs = tuple(
            ComposedEvent("gaussian", r.events, label=label, epsilon=e) for r, (e, _) in zip(rounds, parts)
        )
        return rounds, ComposedEvent("basic", costs, label=label)
    sigmas = split_sigma(gaussian_sigma(epsilon, delta / 2), shares)
    deltas = split_amount(delta / 2, shares)
    rounds = [create(number, *pair) for number, pair in enumerate(zip(sigmas, deltas), start=1)]
    events = tuple(event for r in rounds for event in r.events)
    return rounds, ComposedEvent("gaussian", events, label=label, epsilon=epsilon)
