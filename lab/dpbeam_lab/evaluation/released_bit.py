"""The best chances of release where the bit alone is shown, under approximate Renyi DP; baselines that use them.

The law of Harrison and Manurangsi ("Optimal partition selection with Renyi differential privacy", arXiv 2603.09167,
2026), derived here from the definition. (b, t) stands for t-approximate Renyi DP of order a with divergence b (Bun and
Steinke 2016; Papernot and Steinke 2022): both laws P and Q are mixtures (1 - t) P' + t P'', (1 - t) Q' + t Q'', where
D_a of P' and Q' is at most b in both directions. Of two bits that is

    p = (1 - t) p' + t p'',    q = (1 - t) q' + t q'',    D_a(B(p') || B(q')), D_a(B(q') || B(p')) <= b.

*One item.* q is largest for p'' = 0, q'' = 1: q = (1 - t) C_b(p / (1 - t)) + t, C_b(x) the largest y whose divergences
from x are at most b, C_b(0) = 0. C_b rises with x, so p_0 = 0 and p_(n+1) = q(p_n) is the largest sequence at every n.

*Weights of l2 norm at most 1.* p is a function of an item's weight with step(x) = (b x^2, t x^2) for every change x of
the weight, from any weight on. Then a user costs (b, t) in all, whatever its weights and how many they are: b x_i^2 add
up by composition and t x_i^2 by the union bound. The largest such p is p(w) = the least of q_x(p(w - x)) over all x
up to the cap, by the same argument. A novel item of weight x has p(x) <= t x^2: this part of delta *shrinks with
the weight*, where a threshold needs delta / D0 for each of D0 items; no D0 enters. With `flat_items` = D0 it is t / D0
for every item instead, which shows what that is worth.

NOT PRIVATE: baselines, drawn from ordinary generators. Curves hold for weights and changes that are multiples of their
step; between grid points they are interpolated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from dpbeam.accounting.coins import divergence_of_logs
from dpbeam.accounting.noise import NoiseSpec
from dpbeam.accounting.renyi import likely_order, renyi_budget
from dpbeam.accounting.threshold import NovelWeight, novel_threshold
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import UNITS
from dpbeam.selectors.mad.kernels import MadTables, excess_ratio, initial_sums, second_sums, total_weight
from dpbeam.selectors.mad.weights import user_weights
from dpbeam_lab.evaluation.allocation import ReleaseCurve, sampled
from dpbeam_lab.evaluation.oracles import policy_weights, visits

_NOVEL_SHARES = (0.3, 0.4, 0.5, 0.6)  # of delta, for what is outside the divergence
_ORDERS = 2.0 ** np.arange(-1.0, 1.25, 0.25)  # times the likely one
_END, _TOP = 1.0 - 1e-9, 1.0 - 1e-12  # where a curve ends; above every chance before that
_LONGEST = 20_000
_STEPS, _COARSE = 16, 6  # of a grid; of one that only chooses


@functools.lru_cache(maxsize=32)
def weighted_curve(
    order: float,
    divergence: float,
    delta: float,
    *,
    cap: float = 1.0,
    steps: int = _STEPS,
    flat_items: int | None = None,
    up_to: float = _END,
) -> ReleaseCurve:
    """The largest chance of release by weight, for changes of at most `cap` whose squares add up to at most 1.

    Args:
      steps: grid points in a weight of `cap`.
      flat_items: delta / flat_items for every item that changes; None: delta times the square of the change.
      up_to: the chance at which the curve may end.

    Raises: ValueError where the curve is longer than 20,000 steps.
    """
    squares = (np.arange(1, steps + 1) * (cap / steps)) ** 2
    outside = delta * squares if flat_items is None else np.full(steps, delta / flat_items)
    return ReleaseCurve(cap / steps, _curve(order, divergence * squares, outside, up_to))


def _curve(order: float, divergences: np.ndarray, outside: np.ndarray, up_to: float = _END) -> np.ndarray:
    """p_n, the least over j of the largest chance that a change by j + 1 steps allows above p_(n-j-1)."""
    chances = [0.0]
    while chances[-1] < up_to:
        before = np.array(chances[: -len(divergences) - 1 : -1])
        b, t = divergences[: len(before)], outside[: len(before)]
        novel, bound = before <= 0, (before > 0) & (before < 1 - t)
        top = float(t[novel].min()) if novel.any() else _TOP
        low, b, t = before[bound] / (1 - t[bound]), b[bound], t[bound]
        logs = np.log(low), np.log1p(-low)

        def excess(
            chance: float, low: np.ndarray = low, b: np.ndarray = b, t: np.ndarray = t, logs: Any = logs
        ) -> float:
            high = np.maximum((chance - t) / (1 - t), low)
            return float((divergence_of_logs(logs, (np.log(high), np.log1p(-high)), order) - b).max())

        if len(low) and excess(top) > 0:  # the last chance obeys: each change was allowed to be one step less
            near = min(top, 3 * chances[-1] - 2 * chances[-2])
            ends = (chances[-1], near) if excess(near) > 0 else (near, top)
            top = brentq(excess, *ends, xtol=1e-300, rtol=1e-15)
        chances.append(top)
        if len(chances) > _LONGEST:
            raise ValueError(f"a curve of more than {_LONGEST} steps")
    return np.array(chances if up_to < _END else [*chances[:-1], 1.0])


def weight_of(curve: ReleaseCurve, chance: float) -> float:
    """The least weight whose chance of release is `chance`."""
    return curve.step * float(np.interp(chance, curve.chance, np.arange(len(curve.chance))))


@dataclass(frozen=True)
class Stages:
    """Stages that share a budget at one order.

    Attributes:
      order: alpha.
      divergences, deltas: (stages,) of each.
      last: the curve of the last stage.
    """

    order: float
    divergences: tuple[float, ...]
    deltas: tuple[float, ...]
    last: ReleaseCurve

    def curve(self, stage: int, cap: float) -> ReleaseCurve:
        """The curve of any stage."""
        return weighted_curve(self.order, self.divergences[stage], self.deltas[stage], cap=cap)


@functools.lru_cache(maxsize=32)
def stages(
    epsilon: float,
    delta: float,
    shares: tuple[float, ...] = (1.0,),
    cap: float = 1.0,
) -> Stages:
    """The order and the split of delta whose last stage has an even chance at the smallest weight.

    Args:
      shares: of the stages, in the divergence and in what is outside of it; sum 1.

    Raises: ValueError on a budget out of range, or too small for any order.
    """
    about = likely_order(epsilon, delta)

    def budgets(order: float, part: float) -> tuple[float, float]:
        return renyi_budget(order, epsilon, (1 - part) * delta), part * delta

    def even(order: float, part: float) -> float:
        budget, outside = budgets(order, part)
        if budget <= 0:
            return math.inf
        try:
            curve = weighted_curve(
                order,
                shares[-1] * budget,
                shares[-1] * outside,
                cap=cap,
                steps=_COARSE,
                up_to=0.5,
            )
        except ValueError:
            return math.inf
        return weight_of(curve, 0.5)

    order = min((1 + about * _ORDERS).tolist(), key=lambda order: even(order, _NOVEL_SHARES[1]))
    part = min(_NOVEL_SHARES, key=lambda part: even(order, part))
    if even(order, part) == math.inf:
        raise ValueError(f"epsilon ({epsilon:g}) and delta ({delta:g}) are too small for a curve")
    budget, outside = budgets(order, part)
    last = weighted_curve(order, shares[-1] * budget, shares[-1] * outside, cap=cap)
    return Stages(order, tuple(s * budget for s in shares), tuple(s * outside for s in shares), last)


def _drawn(curve: ReleaseCurve, weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.random(len(weight)) < curve.at(weight)


def uniform_bits(
    sets: Csr,
    num_items: int,
    epsilon: float,
    delta: float,
    *,
    rng: np.random.Generator,
    max_items_per_user: int = 100,
    budget_split: Sequence[float] = (1.0,),
    cap: float = 1.0,
) -> np.ndarray:
    """Basic (one share) or DP-SIPS (several) with the released bit in place of Gaussian noise. For comparison only.

    Args:
      budget_split: shares of the rounds; what a round finds leaves every user's set.
      cap: the largest weight of a user on an item: min(cap, 1/sqrt(d)).

    Returns: (items,) bool, released.
    """
    plan = stages(epsilon, delta, tuple(budget_split), cap)
    released = np.zeros(num_items, bool)
    for stage in range(len(plan.divergences)):
        rows = sampled(sets.restrict(~released[sets.links]), max_items_per_user, rng)
        each = np.minimum(cap, 1 / np.sqrt(np.maximum(rows.degrees, 1)))
        weight = np.bincount(rows.links, rows.per_pair(each), num_items)
        curve = plan.last if stage == len(plan.divergences) - 1 else plan.curve(stage, cap)
        released |= _drawn(curve, weight, rng)
    return released


def policy_bits(
    sets: Csr,
    num_items: int,
    epsilon: float,
    delta: float,
    *,
    rng: np.random.Generator,
    max_items_per_user: int = 100,
    excess: float = 3.0,
) -> np.ndarray:
    """PolicyGaussian with the released bit in place of its noise. Sequential; for comparison only.

    Args:
      excess: the bar is the weight whose chance is that of a normal deviate below `excess`.

    Returns: (items,) bool, released.
    """
    curve = stages(epsilon, delta).last
    tau = weight_of(curve, float(ndtr(excess)))
    return _drawn(curve, policy_weights(visits(sets, rng, max_items_per_user), num_items, tau), rng)


def mad2r_bits(
    sets: Csr,
    num_items: int,
    epsilon: float,
    delta: float,
    *,
    rng: np.random.Generator,
    max_items_per_user: int = 100,
    budget_split: Sequence[float] = (0.3, 0.7),
    max_adaptive_degree: int = 50,
) -> np.ndarray:
    """MAD2R whose second round shows the bit alone; the first stays Gaussian, as its noisy weights are used.

    Both rounds are paid for at one Renyi order; other numbers are those of the paper (b 1/2 to 2, C_lb 1, C_ub 3, beta
    2 deviations, which in the second round is the weight of the same chance). For comparison only.

    Returns: (items,) bool, released.
    """
    share, last = budget_split
    plan = stages(epsilon, delta, (share, last))
    sigma = math.sqrt(plan.order / (2 * plan.divergences[0]))
    noise = NoiseSpec("gaussian", sigma)
    rho = novel_threshold(noise, plan.deltas[0], max_items_per_user, NovelWeight.of(noise, 1.0))
    rows = sampled(sets, max_items_per_user, rng)
    tables = MadTables.create(tau=rho + 2 * sigma, max_adaptive_degree=max_adaptive_degree, b_min=1.0)
    weight = _mad_weights(rows, tables, _equal_weights, num_items)
    noisy = weight + sigma * rng.standard_normal(num_items)
    released = (weight > 0) & (noisy >= rho)
    target = weight_of(plan.last, 0.5)
    bias = np.clip(target / np.maximum(noisy - sigma, target), 0, 1)
    left = ~released & (noisy + 3 * sigma >= target)
    rows = sampled(sets.restrict(left[sets.links]), max_items_per_user, rng)
    tau = weight_of(plan.last, float(ndtr(2.0)))
    tables = MadTables.create(tau=tau, max_adaptive_degree=max_adaptive_degree, b_min=0.5)
    rows, _ = rows.select_rows(rows.degrees > 0)

    def direct(part: Csr) -> np.ndarray:
        return user_weights(part, bias[part.links], 0.5, 2.0)

    return released | _drawn(plan.last, _mad_weights(rows, tables, direct, num_items), rng)


def _equal_weights(rows: Csr) -> np.ndarray:
    return rows.per_pair(np.floor(UNITS / np.sqrt(np.maximum(rows.degrees, 1))).astype(np.int64))


def _mad_weights(
    rows: Csr, tables: MadTables, direct: Callable[[Csr], np.ndarray], num_items: int
) -> np.ndarray:
    """(items,) weights of a round of MAD; for `direct` see `second_sums`."""
    initial = initial_sums(rows, tables, num_items)
    ratio = excess_ratio(initial, tables.tau_units)
    moved = second_sums(rows, tables, direct, ratio, num_items)
    return total_weight(initial, *moved, tables.tau_units)[0] / UNITS
