"""How many blocks and shards a job gets."""

import pytest

from dpbeam.selection.sizes import (
    DEFAULT_PAIRS,
    LINKS_PER_PAIR,
    LINKS_PER_SHARD,
    MAX_BLOCKS,
    MAX_PAIRS_IN_STEP,
    MAX_PAIRS_PER_BLOCK,
    PAIRS_IN_PROCESS,
    PAIRS_IN_STEP,
    PAIRS_PER_BLOCK,
    ROOM_PER_PAIR,
    ROOM_PER_TEXT,
    TEXT_IN_PROCESS,
    TEXT_PER_BLOCK,
    TEXT_PER_SHARD,
    Sizes,
    choose_sizes,
)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (None, Sizes(8, 8)),
        (0, Sizes(1, 1, True)),
        (1, Sizes(1, 1, True)),
        (50_000, Sizes(1, 1, True)),
        (120_000, Sizes(3, 1, True)),
        (1_000_000, Sizes(4, 4, True)),
        (8_000_000, Sizes(8, 8)),
        (10**9, Sizes(300, 83)),
        (4 * 10**9, Sizes(1000, 100)),
        (43 * 10**9, Sizes(10_750, 1_075)),
        (78 * 10**10, Sizes(195_000, 19_500)),
        (10**13, Sizes(MAX_BLOCKS, 250_000)),
    ],
)
def test_sizes_by_number_of_pairs(pairs, expected):
    assert choose_sizes(pairs) == expected


def test_blocks_and_shards_grow_and_stay_within_bounds():
    before = Sizes(0, 0)
    for exponent in range(130):
        pairs = int(10 ** (exponent / 10))
        sizes = choose_sizes(pairs)
        assert sizes.num_blocks >= before.num_blocks
        assert 1 <= sizes.num_shards <= sizes.num_blocks <= MAX_BLOCKS
        assert pairs * LINKS_PER_PAIR / sizes.num_shards <= max(LINKS_PER_SHARD, PAIRS_PER_BLOCK)
        if sizes.num_blocks < MAX_BLOCKS:
            assert pairs / sizes.num_blocks <= MAX_PAIRS_PER_BLOCK
        before = sizes
    assert choose_sizes(None) == choose_sizes(DEFAULT_PAIRS)
    assert choose_sizes(40 * PAIRS_PER_BLOCK).num_blocks == 40
    few = [choose_sizes(n * PAIRS_PER_BLOCK).num_blocks for n in range(4, 14)]
    assert few == [4, 8, 8, 8, 8, 12, 12, 12, 12, 16]  # a whole number for each of two or four workers


def test_the_callers_number_of_shards_is_kept():
    assert choose_sizes(10**6, 3) == Sizes(4, 3)
    assert choose_sizes(10**6, 64) == Sizes(64, 64)
    assert choose_sizes(10**9, 2) == Sizes(300, 2)


@pytest.mark.parametrize("pairs", [10**5, 3 * 10**7, 4 * 10**9])
@pytest.mark.parametrize("item_bytes", [20, 64, 600, 10_000])
def test_long_items_make_smaller_blocks_and_shards(pairs, item_bytes):
    sizes, short = choose_sizes(pairs, item_bytes=item_bytes), choose_sizes(pairs)
    assert sizes.num_blocks >= short.num_blocks
    assert pairs * item_bytes / sizes.num_blocks <= TEXT_PER_BLOCK
    assert pairs * LINKS_PER_PAIR * item_bytes / sizes.num_shards <= TEXT_PER_SHARD
    if item_bytes == 20:
        assert sizes == short


def test_what_fits_one_worker_runs_in_one_step_unless_partitions_are_asked_for():
    assert choose_sizes(PAIRS_PER_BLOCK).one_step
    assert not choose_sizes(PAIRS_PER_BLOCK + 1).one_step
    assert not choose_sizes(None).one_step
    assert not choose_sizes(1000, num_shards=2).one_step
    assert not choose_sizes(PAIRS_PER_BLOCK, item_bytes=2 * TEXT_PER_BLOCK / PAIRS_PER_BLOCK).one_step


def test_the_in_process_runner_takes_one_step_for_more():
    """With smaller blocks."""
    sizes = choose_sizes(PAIRS_IN_PROCESS, in_process=True)
    assert sizes.one_step and not choose_sizes(PAIRS_IN_PROCESS).one_step
    assert sizes.num_blocks * PAIRS_IN_STEP == PAIRS_IN_PROCESS
    assert not choose_sizes(PAIRS_IN_PROCESS + 1, in_process=True).one_step
    assert not choose_sizes(PAIRS_IN_PROCESS, num_shards=2, in_process=True).one_step
    for item_bytes, one_step in ((0.99, True), (1.01, False)):
        length = item_bytes * TEXT_IN_PROCESS / PAIRS_IN_PROCESS
        assert choose_sizes(PAIRS_IN_PROCESS, item_bytes=length, in_process=True).one_step == one_step


def test_the_in_process_runner_exchanges_larger_messages():
    assert choose_sizes(10**9, in_process=True) == Sizes(300, 56)


def test_memory_lets_one_step_take_more_pairs():
    """Of counted pairs alone, whose items' length is known."""
    pairs, length = 70 * PAIRS_IN_PROCESS // 10, 13
    needed = pairs * (ROOM_PER_PAIR + ROOM_PER_TEXT * length)
    sizes = choose_sizes(pairs, item_bytes=length, room=needed)
    assert sizes.one_step and sizes.num_blocks == -(-pairs // MAX_PAIRS_IN_STEP // 4) * 4
    assert not choose_sizes(pairs, item_bytes=length, room=needed - 1).one_step
    assert not choose_sizes(pairs, 5, item_bytes=length, room=needed).one_step
    assert not choose_sizes(pairs, room=10 * needed).one_step
    assert not choose_sizes(None, item_bytes=length, room=10**15).one_step
    assert choose_sizes(PAIRS_PER_BLOCK, item_bytes=length, room=0).one_step


@pytest.mark.parametrize("pairs", [10**9, 43 * 10**9, 12 * 10**10])
def test_blocks_and_shards_speak_directly_while_messages_are_few(pairs):
    assert choose_sizes(pairs).relays is None
    assert choose_sizes(pairs, num_shards=100).relays is None


@pytest.mark.parametrize("pairs", [14 * 10**10, 78 * 10**10, 4 * 10**12])
def test_relays_are_no_larger_than_shards_and_save_most_messages(pairs):
    sizes = choose_sizes(pairs)
    relays = sizes.relays
    assert pairs * LINKS_PER_PAIR / (relays.groups * relays.ranges) <= LINKS_PER_SHARD
    relayed = sizes.num_blocks * relays.ranges + relays.groups * sizes.num_shards
    assert relayed < sizes.num_blocks * sizes.num_shards / 80
    assert relays.span * (relays.ranges - 1) < sizes.num_shards <= relays.span * relays.ranges
