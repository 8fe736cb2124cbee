"""Inputs of pairs, and everything that an input holds, read in this process."""

from dpbeam.io.spec import InputSpec
from dpbeam.testing.formats import read_input as read

__all__ = ["pairs_spec", "read"]


def pairs_spec(*patterns, **options) -> InputSpec:
    """Pairs in columns `user` and `item`."""
    return InputSpec.create(patterns, user_column="user", item_columns=["item"], **options)
