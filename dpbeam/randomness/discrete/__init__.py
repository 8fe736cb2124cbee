"""Noise and coins whose law is exact up to 2^-130 in total variation per draw; proof: docs/explanation/noise.md."""

from dpbeam.randomness.discrete.choices import gumbel_peel, largest_of_groups
from dpbeam.randomness.discrete.gaussian import DiscreteGaussian
from dpbeam.randomness.discrete.laplace import DiscreteLaplace
from dpbeam.randomness.discrete.words import KeyedBits, coins

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "KeyedBits",
    "coins",
    "gumbel_peel",
    "largest_of_groups",
]
