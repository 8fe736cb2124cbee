"""Bounds of d_max, for settings and kernels; without numpy, as flags are read."""

MIN_ADAPTIVE_DEGREE = 4  # a precondition of the sensitivity proof
MAX_ADAPTIVE_DEGREE = 1024  # keeps every product of the kernels below 2^63
