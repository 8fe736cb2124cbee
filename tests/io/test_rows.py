"""Blocks do not depend on how rows arrive."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.io.rows import BlockMaker, block_id
from dpbeam.kernels.canonical import Kinds
from dpbeam.kernels.pair_rules import Pairs

INTEGER_ITEMS = Kinds(None, ("int",))


def blocks_of(degrees, cuts, target):
    """Blocks of users with these numbers of items, added in batches cut at the given users."""
    maker = BlockMaker(0, INTEGER_ITEMS, target)
    made = []
    bounds = sorted({0, len(degrees), *(cut % (len(degrees) + 1) for cut in cuts)})
    item = 0
    for a, b in pairwise(bounds):
        row = np.repeat(np.arange(b - a), degrees[a:b])
        items = pa.array([str(item + k).encode() for k in range(len(row))], pa.large_binary())
        item += len(row)
        made += maker.add(Pairs(row, items, None, b - a))
    return made + list(maker.finish())


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.lists(st.integers(0, 40), max_size=5),
    st.integers(1, 12),
)
def test_blocks_depend_on_users_alone(degrees, cuts, target):
    whole = blocks_of(degrees, [], target)
    parts = blocks_of(degrees, cuts, target)
    assert [number for number, _ in whole] == [number for number, _ in parts]
    assert [batch.to_pydict() for _, batch in whole] == [batch.to_pydict() for _, batch in parts]
    flat = [item for _, batch in whole for item in batch.column("item").to_pylist()]
    assert flat == [str(k).encode() for k in range(sum(degrees))]
    owners = [(number, user) for number, batch in whole for user in batch.column("user").to_pylist()]
    lengths = [owners.count(owner) for owner in dict.fromkeys(owners)]
    assert lengths == [degree for degree in degrees if degree]


def test_blocks_are_numbered_and_never_share_a_number():
    """A hash of 63 bits could name two blocks alike, and with them users."""
    numbers = [block_id(unit, ordinal) for unit in (0, 1, 2**31 - 2) for ordinal in (0, 1, 2**32 - 1)]
    assert [(number >> 32) - 1 for number in numbers[::3]] == [0, 1, 2**31 - 2]
    assert numbers == sorted(set(numbers)) and numbers[0] > 0 and numbers[-1] < 2**63
    for unit, ordinal in ((2**31 - 1, 0), (0, 2**32), (-1, 0)):
        with pytest.raises(ValueError, match="no block has the number"):
            block_id(unit, ordinal)
