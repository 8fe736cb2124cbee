"""Keyed randomness: fingerprints, pseudo-random bits, variates, exact noise. No Beam here."""

from collections.abc import Callable

from dpbeam.randomness.discrete import DiscreteGaussian, DiscreteLaplace, KeyedBits
from dpbeam.randomness.once import Once
from dpbeam.randomness.prf import KEY_BYTES, RunKey, fingerprints, pair_bits, prf_bits
from dpbeam.randomness.variates import exponential, gaussian, gumbel

#: Exact laws of noise by the kind of a `NoiseSpec`; made from a scale in grid units.
LAWS: dict[str, Callable[..., DiscreteGaussian | DiscreteLaplace]] = {
    "gaussian": DiscreteGaussian,
    "laplace": DiscreteLaplace,
}

__all__ = [
    "KEY_BYTES",
    "LAWS",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "KeyedBits",
    "Once",
    "RunKey",
    "exponential",
    "fingerprints",
    "gaussian",
    "gumbel",
    "pair_bits",
    "prf_bits",
]
