"""Packing algorithms of the literature and the optimum, on arrays in memory: for comparison alone.

Nothing here is a release: the guarantee of `published` is a sketch with unnamed constants, noise is floating point
from a generator of the caller, `optimum` and `over` look at exact data. What agents get is what the algorithm gives,
before any scaling to feasibility.

Shapes: values (n,), demands (n, m), all in [0, 1]; b is the supply of every resource.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from dpbeam.accounting.gaussian import gaussian_sigma


@dataclass(frozen=True)
class Solved:
    """An allocation, (n,) in [0, 1], and the rounds that it took."""

    allocation: np.ndarray
    rounds: int


def optimum(values: np.ndarray, demands: np.ndarray, b: float) -> float:
    """The value of the linear program, by HiGHS.

    Raises: RuntimeError where the solver gives up.
    """
    supplies = np.full(demands.shape[1], b)
    solution = linprog(-values, A_ub=demands.T, b_ub=supplies, bounds=(0, 1), method="highs")
    if solution.status != 0:
        raise RuntimeError(f"the linear program was not solved: {solution.message}")
    return float(-solution.fun)


def over(demands: np.ndarray, b: float, allocation: np.ndarray) -> float:
    """The largest use of a resource over the supply: above 1 where there is too little."""
    return float((demands.T @ allocation).max() / b)


def truncated_laplace(scale: float, width: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """Laplace noise conditioned on [-width, width], by inversion (Huang and Zhu, section 3.2)."""
    inside = -math.expm1(-width / scale)  # P(|x| <= width)
    magnitude = -scale * np.log1p(-inside * rng.random(size))
    return np.where(rng.random(size) < 0.5, magnitude, -magnitude)


def published(
    values: np.ndarray,
    demands: np.ndarray,
    b: float,
    epsilon: float,
    delta: float,
    alpha: float,
    rng: np.random.Generator,
) -> Solved:
    """Algorithm 1 of Huang and Zhu as printed, the large side of the gradient taken by its absolute value.

    Steps and noise scales depend on exact sums, and the stop on their exact sum (the paper omits its private counter
    too). T of the noise scale is the bound of section 5.4.
    """
    n, m = demands.shape
    largest, total = 2 * n / b, math.log(m + 1) / (alpha * b)
    bound = 3 * (m + 1) * math.log(m + 1) / alpha**2
    prices = np.full(m + 1, largest / (m + 1))
    won, taken, rounds = np.zeros(n), 0.0, 0
    while taken < total:
        wants = values >= demands @ prices[:m]
        gradient = b - demands.T @ wants
        size = alpha / max(b, np.abs(gradient).max())
        scale = math.sqrt(m * total * size * math.log(bound * m / delta)) / epsilon
        moves = size * gradient + truncated_laplace(scale, 1 - alpha, m, rng)
        prices[:m] *= np.exp(-moves)
        prices *= largest / prices.sum()
        won += size * wants
        taken += size
        rounds += 1
    return Solved(won / taken, rounds)


def gradient_descent(
    values: np.ndarray,
    demands: np.ndarray,
    b: float,
    epsilon: float,
    delta: float,
    rounds: int,
    rng: np.random.Generator,
) -> Solved:
    """Dual gradient descent of Hsu et al. with a fixed step and Gaussian noise of exact composition.

    Prices lie in [0, 2 n / b]; the step is the one of the regret bound, diameter over gradient times root of rounds.
    """
    n, m = demands.shape
    largest = 2 * n / b
    scale = _scale(m, epsilon, delta, rounds)
    size = largest * math.sqrt(m) / (math.sqrt(m) * (n + scale) * math.sqrt(rounds))

    def move(prices: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        return np.clip(prices - size * gradient, 0, largest)

    return _average(values, demands, b, np.full(m, largest / (m + 1)), move, scale, rounds, rng)


def fixed_steps(
    values: np.ndarray,
    demands: np.ndarray,
    b: float,
    epsilon: float,
    delta: float,
    rounds: int,
    rng: np.random.Generator,
) -> Solved:
    """Dual multiplicative weights of Huang and Zhu (2018): one step, for a width of n, in every round."""
    n, m = demands.shape
    largest = 2 * n / b
    scale = _scale(m, epsilon, delta, rounds)
    size = math.sqrt(math.log(m + 1) / rounds) / (n + scale)

    def move(prices: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        weights = np.append(prices, largest - prices.sum()) * np.exp(-size * np.append(gradient, 0.0))
        return (largest * weights / weights.sum())[:m]

    return _average(values, demands, b, np.full(m, largest / (m + 1)), move, scale, rounds, rng)


def online(
    values: np.ndarray,
    demands: np.ndarray,
    b: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> Solved:
    """Online dual multiplicative weights: one agent a step, in random order, each seeing the prices of its turn."""
    n, m = demands.shape
    largest = 2 * n / b
    scale = math.sqrt(m) * gaussian_sigma(epsilon, delta)  # every agent is asked once
    size = math.sqrt(math.log(m + 1) / n) / (1 + scale)
    theta, won = np.zeros(m), np.zeros(n)
    for agent in rng.permutation(n):
        top = max(0.0, theta.max())
        weights = np.exp(theta - top)
        prices = largest * weights / (weights.sum() + math.exp(-top))
        won[agent] = values[agent] >= demands[agent] @ prices
        noise = rng.normal(size=m) * scale
        theta -= size * (b / n - demands[agent] * won[agent] + noise)
    return Solved(won, n)


def _scale(m: int, epsilon: float, delta: float, rounds: int) -> float:
    """Gaussian noise for so many gradients of l2-sensitivity root m."""
    return math.sqrt(m * rounds) * gaussian_sigma(epsilon, delta)


def _average(
    values: np.ndarray,
    demands: np.ndarray,
    b: float,
    prices: np.ndarray,
    move: Callable[[np.ndarray, np.ndarray], np.ndarray],
    scale: float,
    rounds: int,
    rng: np.random.Generator,
) -> Solved:
    won = np.zeros(len(values))
    for _ in range(rounds):
        wants = values >= demands @ prices
        won += wants
        prices = move(prices, b - demands.T @ wants + rng.normal(size=len(prices)) * scale)
    return Solved(won / rounds, rounds)
