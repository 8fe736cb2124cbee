"""What exact integer noise costs beside the continuous noise that the accountant computes with.

`dpbeam.randomness.discrete` draws on the grid (integers, in units of 2^-30). Everything here is in those units. The
statements, with proofs in docs/explanation/noise.md:

- Each draw is within a total variation of 2^-130 of the law that is claimed. One user touches some number of draws;
  delta rises by at most that number times (1 + e^eps) 2^-130, on top of what a ledger says.
- The discrete Gaussian of deviation sigma is, within 2^-130 as well, a function of a real Gaussian of variance
  sigma^2 - 39/8: no curve (eps, delta), in any dimension and in any composition, is worse than that Gaussian's
  (`equivalent_sigma`). It is also exactly (sensitivity / sigma)^2 / 2-zCDP (Canonne, Kamath, Steinke 2020,
  Theorem 4), so zCDP accounting needs nothing.
- Discrete Laplace noise of scale b is pure (l1 sensitivity / b)-DP, exactly.
- Discrete noise of either kind is stochastically below the continuous noise of the same scale plus one unit: a
  threshold calibrated for continuous noise is safe once it is raised by `threshold_surcharge`, which is one unit for a
  single draw.

Safe side: surcharges are rounded up, equivalent sigmas down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from dpbeam.accounting.gaussian import check_positive

SMOOTHING = Fraction(39, 8)  # the variance, in squared units, that this function needs
SMALLEST_SIGMA = 8.0  # units; below it the discrete law is better treated as what it is


def equivalent_sigma(sigma: float) -> float:
    """Deviation of the real Gaussian whose privacy the discrete Gaussian has at least, rounded down.

    Args:
      sigma: deviation of the discrete Gaussian in grid units, at least 8.

    Returns: sqrt(sigma^2 - 39/8), the largest double not above it; relative loss 2.5 / sigma^2.

    Raises: ValueError if sigma is smaller or not finite.
    """
    sigma = check_positive("sigma", sigma)
    if sigma < SMALLEST_SIGMA:
        raise ValueError(f"sigma must be at least 8 grid units, got {sigma}")
    exact = Fraction(sigma) ** 2 - SMOOTHING
    root = math.sqrt(exact)
    while Fraction(root) ** 2 > exact:
        root = math.nextafter(root, 0.0)
    return root


def threshold_surcharge(coefficients: Iterable[float] = (1.0,)) -> int:
    """Grid units to add to a threshold on sum of c_r noise_r that was calibrated for continuous noise.

    Every draw is below its continuous counterpart plus one (independently, but for 2^-130 each), and so is -draw.

    Args:
      coefficients: c_r, by default a single draw of weight one.
    """
    return sum((abs(Fraction(c)) for c in coefficients), Fraction(0)).__ceil__()
