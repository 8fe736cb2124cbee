"""Pairs on their way to blocks go once all blocks are stored; steps that run again afterwards take stored blocks."""

import glob
import os

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from dpbeam.engine.beam import block_stages, messages, shard_stages, trip_files, trip_messages
from dpbeam.engine.beam import blocks as pair_stages
from dpbeam.engine.beam.blocks import PartitionByUser, SubsamplePerUser
from dpbeam.engine.beam.graph import RunProgram
from dpbeam.engine.beam.messages import FILE_PREFIX, PAIRS_GONE, PAIRS_PREFIX, let_pairs_go, pairs_gone
from dpbeam.engine.beam.run import StoredProgram
from dpbeam.engine.beam.store import RunFolder
from dpbeam.errors import InputError
from dpbeam.kernels.shards import shard_slices
from dpbeam.randomness import RunKey
from tests.engine.beam.test_stages import KEY, batches_of, options, plan_of, sample_pairs

pytestmark = pytest.mark.usefixtures("quick_pipelines")
BLOCKS, GROUP, CAP = 12, 5, 16
EMPTY = 99  # a block to which nobody belongs


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Every message in a file."""
    monkeypatch.setattr(messages, "INLINE_BYTES", 0)
    with RunFolder(str(tmp_path), RunKey.insecure_fixed(KEY)) as run:
        yield run


def made(stage):
    stage.setup()
    return stage


def grouped(elements):
    groups: dict[int, list[bytes]] = {}
    for number, message in elements:
        groups.setdefault(number, []).append(message)
    return groups


def partition(store, group, seed=1):
    stage = made(pair_stages._PartitionPairs(store, BLOCKS, CAP, group, PAIRS_PREFIX))
    stage.start_bundle()
    elements = [e for batch in batches_of(*sample_pairs(seed)) for e in stage.process(batch)]
    return grouped([*elements, *(e.value for e in stage.finish_bundle())])


def build(store, parts):
    stage = made(pair_stages._BuildBlocks(store, 3, CAP))
    return dict(block for part in sorted(parts.items()) for block in stage.process(part))


def keep(store, blocks, name="mad2r"):
    for block in blocks.values():
        trip_files.keep_block(store, plan_of(name).program, block, shard_slices(block))


def assert_same(blocks, others):
    assert list(blocks) == list(others)
    for number, block in blocks.items():
        left = block.to_columns(with_items=True)
        right = others[number].to_columns(with_items=True)
        assert left.keys() == right.keys() and "items" in left and "item_fp" in left
        for column, values in left.items():
            if isinstance(values, pa.Array):
                assert values.equals(right[column])
            else:
                np.testing.assert_array_equal(values, right[column], strict=True)


def test_a_block_is_built_again_from_what_is_stored(folder):
    store, parts = folder.store, partition(folder.store, 1)
    blocks = build(store, parts)
    assert len(blocks) == BLOCKS
    keep(store, blocks)
    let_pairs_go(store)
    assert not store.names(PAIRS_PREFIX)
    assert_same(build(store, parts), blocks)
    assert build(store, {EMPTY: [PAIRS_GONE]}) == {}


def test_a_group_of_blocks_is_split_again_into_what_is_stored(folder):
    store = folder.store
    again = made(pair_stages._PartitionAgain(store, BLOCKS, CAP, GROUP, PAIRS_PREFIX))
    groups = partition(store, GROUP)
    assert len(groups) == 3
    parts = grouped(element for group in groups.items() for element in again.process(group))
    blocks = build(store, parts)
    assert list(blocks) == list(range(BLOCKS))
    keep(store, blocks)
    let_pairs_go(store)
    gone = grouped(element for group in groups.items() for element in again.process(group))
    assert gone == {number: [PAIRS_GONE] for number in range(BLOCKS)}
    assert_same(build(store, gone), blocks)
    # One attempt's pairs beside another's, of which some are gone.
    assert_same(build(store, {n: [*messages, *gone[n]] for n, messages in parts.items()}), blocks)


def test_pairs_that_are_missing_before_are_an_error(folder):
    store, groups = folder.store, partition(folder.store, GROUP)
    again = made(pair_stages._PartitionAgain(store, BLOCKS, CAP, GROUP, PAIRS_PREFIX))
    parts = grouped(element for group in groups.items() for element in again.process(group))
    blocks = build(store, parts)
    keep(store, {0: blocks[0]})  # one block is there already: the others would be lost
    store.remove(store.names(PAIRS_PREFIX))
    assert not pairs_gone(store)
    with pytest.raises(OSError, match="No such file"):
        list(again.process((0, groups[0])))
    for number in (0, 1):
        with pytest.raises(OSError, match="No such file"):
            build(store, {number: parts[number]})


def test_other_data_are_not_replaced_by_stored_blocks(folder):
    """A step that runs again with other pairs builds other blocks, which are refused; stored ones are sent again."""
    store, parts = folder.store, partition(folder.store, 1)
    blocks = build(store, parts)
    weigh = made(block_stages._FirstWeights(StoredProgram.put(store, plan_of("mad2r").program), 0, False))
    sent = [len(list(weigh.process(block))) for block in blocks.items()]
    let_pairs_go(store)
    assert [len(list(weigh.process(block))) for block in build(store, parts).items()] == sent
    other = build(store, partition(store, 1, seed=2))
    with pytest.raises(AssertionError):
        assert_same(other, blocks)
    for block in other.items():
        with pytest.raises(InputError, match="belongs to other data or settings"):
            list(weigh.process(block))


@pytest.mark.parametrize(("name", "stored"), [("mad2r", True), ("basic", False)])
def test_a_run_lets_its_pairs_go_where_blocks_are_stored(name, stored, folder, monkeypatch):
    """A program of one trip stores none, so nothing may go."""
    there = []
    gather = trip_messages.gathered

    def watched(*arguments):
        there.append((bool(folder.store.names(PAIRS_PREFIX)), bool(folder.store.names(FILE_PREFIX))))
        return gather(*arguments)

    monkeypatch.setattr(shard_stages, "gathered", watched)
    plan = plan_of(name, max_items_per_user=CAP)
    with beam.Pipeline(options=options()) as pipeline:
        _ = (
            pipeline
            | beam.Create(batches_of(*sample_pairs())).with_output_types(pa.RecordBatch)
            | SubsamplePerUser(folder.store, num_blocks=3, num_shards=2, cap=CAP)
            | RunProgram(folder.store, plan.program)
        )
    assert there and set(there) == {(not stored, True)}
    assert pairs_gone(folder.store) == stored


def test_only_who_takes_stored_blocks_says_that_pairs_may_go(folder):
    """A night of a series extends blocks that it does not store."""
    with beam.Pipeline(options=options()) as pipeline:
        _ = (
            pipeline
            | beam.Create(batches_of(*sample_pairs())).with_output_types(pa.RecordBatch)
            | PartitionByUser(folder.store, 3, CAP)
        )
    assert glob.glob(os.path.join(folder.path, f"{FILE_PREFIX}*"))
    assert not folder.store.names(PAIRS_PREFIX)
