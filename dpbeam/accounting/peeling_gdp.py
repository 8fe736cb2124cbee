"""Adaptive choices of bounded range as one Gaussian mechanism: the mu for which k of them are mu-GDP.

Sources: Dong, Durfee and Rogers 2020 (bounded range and its composition); Dong, Roth and Su 2022 (Gaussian DP). A
choice of bounded range e has a privacy loss in [t - e, t] for some t in [0, e], and no hockey-stick divergence of it
exceeds that of the two-point loss at the ends. So with V_0(u) = max(0, 1 - u), j adaptive choices have divergences of
at most

    V_j(u) = sup over t of q_t V_(j-1)(u e^-t) + (1 - q_t) V_(j-1)(u e^(e - t)),   q_t = (e^e - e^t)/(e^e - 1),

and they are mu-GDP if V_j(u) is at most that of N(mu, 1) against N(0, 1) for every u: hockey-stick divergences at all u
determine every other one. What is mu-GDP given the history composes exactly with Gaussian noise, in any adaptive order.

Design. V_j is bounded from above on the grid u = e^(i h), h = e/n, by three exact facts: V_j is convex in u; V_j(u) =
1 - u + u V_j(1/u), because the recursion does not know which of two neighbours comes first; and over a cell [t, t + h]
the supremum is at most the larger end plus tanh(h/4)/(e^e - 1) max(0, e^(t+h) D' - e^t D), with D and D' the
differences V(u e^-t) - V(u e^(e-t)) at its ends. For with a = e^t, b = e^(t+h) and w between them convexity gives

    V(u/w) <= l V(u/a) + (1 - l) V(u/b),   l = a (b - w)/(w (b - a)),

and the same for the other argument. q is linear in w, so the objective is at most its chord plus

    (b - w)(w - a)/(w (b - a)(e^e - 1)) (b D' - a D),   and   (b - w)(w - a)/w <= (sqrt(b) - sqrt(a))^2.

Every term is positive, so rounding is
relative. More than `_BLOCK` choices are blocks of so many, whose mu^2 add. Safe side: mu up, epsilon0 down.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import special

from dpbeam.accounting.gaussian import check_positive
from dpbeam.accounting.peeling import check_rounds

_STEPS = 32  # grid steps per range of a choice; costs about 0.1 % in mu
_BLOCK = 64  # choices whose composition is followed exactly
_LARGEST_LOG = 600.0  # of e^(range of a block)
_ROUNDING = 1e-9  # relative; the recursion is off by less than 1e-13
_LARGEST_RANGE = 20.0
_SQRT2 = math.sqrt(2.0)


def peeling_mu(epsilon0: float, rounds: int) -> float:
    """A mu for which `rounds` adaptive choices of bounded range epsilon0 are mu-GDP, rounded up.

    Raises: ValueError unless epsilon0 is in (0, 20] and rounds an integer of at least 1.
    """
    rounds = check_rounds(rounds)
    epsilon0 = check_positive("epsilon0", epsilon0)
    if epsilon0 > _LARGEST_RANGE:
        raise ValueError(f"epsilon0 must be at most {_LARGEST_RANGE:g}, got {epsilon0}")
    block = min(_BLOCK, int(_LARGEST_LOG / epsilon0))
    whole, rest = divmod(rounds, block)
    squares = [whole * _block_mu(epsilon0, block) ** 2] if whole else []
    if rest:
        squares.append(_block_mu(epsilon0, rest) ** 2)
    return math.sqrt(math.fsum(squares)) * (1 + 1e-14)


@functools.lru_cache(maxsize=256)
def gdp_epsilon0(mu: float, rounds: int) -> float:
    """The largest epsilon0 found for which `rounds` choices are mu-GDP: `peeling_mu(epsilon0, rounds) <= mu` holds.

    Raises: ValueError unless mu > 0 is finite and rounds is an integer of at least 1.
    """
    mu, rounds = check_positive("mu", mu), check_rounds(rounds)
    # mu is nearly proportional to epsilon0: a few steps along the ratio, then down to where it surely holds.
    epsilon0 = min(_LARGEST_RANGE, 2 * mu / math.sqrt(rounds))
    for _ in range(6):
        ratio = mu / peeling_mu(epsilon0, rounds)
        epsilon0 = min(_LARGEST_RANGE, epsilon0 * ratio)
        if abs(ratio - 1) < 1e-6:
            break
    step = 1e-6
    while peeling_mu(epsilon0, rounds) > mu:
        epsilon0, step = epsilon0 * (1 - step), 2 * step
    return epsilon0


@functools.lru_cache(maxsize=4096)
def _block_mu(epsilon0: float, rounds: int) -> float:
    u, bound = _divergences(epsilon0, rounds)
    low, high = 0.0, 2.0 * max(1.0, epsilon0) * math.sqrt(rounds)
    most = _pure_mu(rounds * epsilon0)
    while not _dominates(high, u, bound):
        if high > most:  # V(1) is so near to 1 that no curve is above it by the margin
            return most
        high *= 2
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _dominates(middle, u, bound) else (middle, high)
    return high


def _pure_mu(epsilon: float) -> float:
    """The mu for which whatever is epsilon-DP is mu-GDP, rounded up.

    The trade-off of an epsilon-DP mechanism is at least that of randomised response, two lines that meet at alpha =
    beta = 1/(1 + e^epsilon). The convex curve of N(mu, 1) that passes there lies below them.
    """
    return -2 * float(special.ndtri_exp(-np.logaddexp(0.0, epsilon))) * (1 + 1e-9)


def _divergences(epsilon0: float, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """(u, upper bounds of V_rounds(u)), u = 1 .. e^(rounds epsilon0) on the grid; the last bound is 0."""
    n, h = _STEPS, epsilon0 / _STEPS
    size = rounds * n + 1
    u = np.exp(h * np.arange(size))
    t = h * np.arange(n + 1)
    whole = math.expm1(epsilon0)
    q = -np.expm1(t - epsilon0) * math.exp(epsilon0) / whole
    slack = math.tanh(h / 4) / whole
    growth = np.exp(t)
    v = np.zeros(size)  # V_0 for u >= 1
    for _ in range(rounds):
        below = -np.expm1(-h * np.arange(n, 0, -1)) + v[n:0:-1] / u[n:0:-1]  # u = e^(-i h), i = n..1
        padded = np.concatenate((below, v, np.zeros(n)))
        # Row i of `lower` is V(u e^-t_i), of `upper` V(u e^(epsilon0 - t_i)).
        windows = np.lib.stride_tricks.sliding_window_view(padded, size)
        lower, upper = windows[n::-1], windows[2 * n : n - 1 : -1]
        at_ends = q[:, None] * lower + (1 - q)[:, None] * upper
        scaled = growth[:, None] * (lower - upper)
        cells = np.maximum(at_ends[:-1], at_ends[1:]) + slack * np.maximum(0.0, scaled[1:] - scaled[:-1])
        v = cells.max(axis=0)
        v[-1] = 0.0  # the loss of all choices together is at most rounds * epsilon0
    return u, v


def _dominates(mu: float, u: np.ndarray, bound: np.ndarray) -> bool:
    """Whether the chords of `bound` lie below the divergence of N(mu, 1) against N(0, 1) for every u >= 1.

    In a cell the convex curve is above its tangents at both ends, and the chord minus the larger tangent is largest at
    the ends or where the tangents meet.
    """
    at = np.log(u)
    curve, slope = gaussian_divergence(at, mu), -special.ndtr(-at / mu - mu / 2)
    limit = 1 - _ROUNDING
    if not np.all(bound <= curve * limit):
        return False
    width = np.diff(u)
    # Tangents from both ends meet at this share of the cell.
    turn = np.diff(slope) * width
    meet = np.divide(
        curve[1:] - curve[:-1] - slope[1:] * width, -turn, out=np.full(len(turn), 0.5), where=turn > 0
    )
    meet = np.clip(meet, 0.0, 1.0)
    tangent = np.maximum(curve[:-1] + slope[:-1] * width * meet, curve[1:] - slope[1:] * width * (1 - meet))
    chord = bound[:-1] + (bound[1:] - bound[:-1]) * meet
    return bool(np.all(chord <= tangent * limit))


def gaussian_divergence(log_u: np.ndarray, mu: float) -> np.ndarray:
    """Hockey-stick divergence of N(mu, 1) against N(0, 1) at u = exp(log_u) >= 1, as `gaussian_delta`."""
    x = (log_u / mu - mu / 2) / _SQRT2
    y = x + mu / _SQRT2
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = 0.5 * np.exp(-x * x) * (special.erfcx(x) - special.erfcx(y))
        direct = special.ndtr(-x * _SQRT2) - 0.5 * np.exp(-x * x) * special.erfcx(y)
    return np.where(x > 0, scaled, direct)
