"""Noisy numbers of users of the items of a public list. No Beam here but in `transforms`."""
