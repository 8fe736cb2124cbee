"""How many blocks and shards a job gets."""

import pytest

from dpbeam.selection.sizes import DEFAULT_PAIRS, MAX_BLOCKS, PAIRS_PER_BLOCK, Sizes, choose_sizes


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (None, Sizes(8, 8)),
        (0, Sizes(1, 1)),
        (1, Sizes(1, 1)),
        (50_000, Sizes(1, 1)),
        (120_000, Sizes(3, 1)),
        (1_000_000, Sizes(4, 4)),
        (8_000_000, Sizes(8, 8)),
        (10**9, Sizes(1000, 25)),
        (8 * 10**11, Sizes(800_000, 25)),
        (10**13, Sizes(MAX_BLOCKS, 238)),
    ],
)
def test_sizes_by_number_of_pairs(pairs, expected):
    assert choose_sizes(pairs) == expected


def test_blocks_and_shards_grow_and_stay_within_bounds():
    before = Sizes(0, 0)
    for exponent in range(130):
        sizes = choose_sizes(int(10 ** (exponent / 10)))
        assert sizes.num_blocks >= before.num_blocks
        assert 1 <= sizes.num_shards <= sizes.num_blocks <= MAX_BLOCKS
        before = sizes
    assert choose_sizes(None) == choose_sizes(DEFAULT_PAIRS)
    assert choose_sizes(40 * PAIRS_PER_BLOCK).num_blocks == 40


def test_the_callers_number_of_shards_is_kept():
    assert choose_sizes(10**6, 3) == Sizes(4, 3)
    assert choose_sizes(10**6, 64) == Sizes(64, 64)
    assert choose_sizes(10**9, 2) == Sizes(1000, 2)
