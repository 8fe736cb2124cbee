"""Keyed randomness: fingerprints, pseudo-random bits, variates. No Beam here."""

from dpbeam.randomness.prf import KEY_BYTES, RunKey, fingerprints, pair_bits, prf_bits
from dpbeam.randomness.variates import VARIATES, exponential, gaussian, gumbel, laplace

__all__ = [
    "KEY_BYTES",
    "VARIATES",
    "RunKey",
    "exponential",
    "fingerprints",
    "gaussian",
    "gumbel",
    "laplace",
    "pair_bits",
    "prf_bits",
]
