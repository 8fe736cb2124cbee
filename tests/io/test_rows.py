"""Blocks do not depend on how rows arrive."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.io.rows import BlockMaker, Pairs, block_id
from dpbeam.kernels.canonical import Kinds

KINDS = Kinds(None, ("int",))


def blocks_of(degrees, cuts, target):
    """Blocks of users with these numbers of items, added in batches cut at the given users."""
    maker = BlockMaker("unit", KINDS, target)
    found = []
    bounds = sorted({0, len(degrees), *(cut % (len(degrees) + 1) for cut in cuts)})
    item = 0
    for a, b in pairwise(bounds):
        row = np.repeat(np.arange(b - a), degrees[a:b])
        items = pa.array([str(item + k).encode() for k in range(len(row))], pa.large_binary())
        item += len(row)
        found += maker.add(Pairs(row, items, None, b - a))
    return found + list(maker.finish())


@settings(max_examples=200, deadline=None)
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


def test_block_ids_are_fixed():
    assert block_id("unit", 0) == block_id("unit", 0)
    numbers = {block_id(label, ordinal) for label in ("a", "b", "1\na") for ordinal in range(1000)}
    assert len(numbers) == 3000 and min(numbers) > 0 and max(numbers) < 2**63
    assert type(block_id("a", 0)) is int
