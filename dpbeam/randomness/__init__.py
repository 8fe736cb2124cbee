"""Keyed randomness: fingerprints, pseudo-random bits, variates. No Beam here."""

from dpbeam.randomness.prf import KEY_BYTES, RunKey, fingerprints, pair_bits, prf_bits
from dpbeam.randomness.variates import exponential, gaussian, gumbel

__all__ = [
    "KEY_BYTES",
    "RunKey",
    "exponential",
    "fingerprints",
    "gaussian",
    "gumbel",
    "pair_bits",
    "prf_bits",
]
