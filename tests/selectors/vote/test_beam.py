"""The vote on Beam: replies that differ by block, and users that are whole already."""

import itertools

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that

from dpbeam.accounting.geometric import CountNoise
from dpbeam.engine.beam.blocks import SubsamplePerUser
from dpbeam.engine.beam.graph import RunProgram
from dpbeam.engine.beam.store import RunFolder
from dpbeam.engine.in_process import run_in_process
from dpbeam.engine.program import replies_by_link
from dpbeam.selectors.vote.program import VoteProgram
from tests.support.instances import batches, random_pairs
from tests.support.running import key, release

PAIRS = random_pairs(5, users=400, items=60)


def program() -> VoteProgram:
    return VoteProgram(noise=CountNoise(2.0, 0.02), quota=4, trips=6, max_items=8)


def released_on_beam(batches, folder, check, **sizes):
    """Runs the pipeline and hands the released (item, noisy count) pairs to `check`."""
    chosen = program()
    options = PipelineOptions(["--runner=FnApiRunner"])
    with RunFolder(str(folder), key("vote")) as run, beam.Pipeline(options=options) as pipeline:
        released = (
            pipeline
            | beam.Create(batches)
            | SubsamplePerUser(run.store, cap=chosen.cap, ranges=replies_by_link(chosen), **sizes)
            | RunProgram(run.store, chosen)
            | beam.FlatMap(
                lambda b: list(zip(b.column("item").to_pylist(), b.column("noisy_weight").to_pylist()))
            )
        )
        assert_that(released, check)


def as_record_batches(pairs, size=300):
    return [
        pa.record_batch([u, i], names=["user", "item"]) for u, i in batches(pairs, size, pa.large_binary())
    ]


def test_beam_equals_in_process(tmp_path):
    inside = release(program(), PAIRS, key("vote"))
    wanted = dict(zip(inside.items.to_pylist(), inside.noisy_weight.tolist()))
    assert len(wanted) >= 10

    def check(released):
        assert dict(released) == wanted

    for blocks, shards in ((1, 1), (5, 3)):
        released_on_beam(as_record_batches(PAIRS), tmp_path, check, num_blocks=blocks, num_shards=shards)


def whole_users(pairs, sizes) -> list[tuple[int, pa.RecordBatch]]:
    """Blocks of whole users of these sizes, numbered out of order as the readers do."""
    users = sorted({user for user, _ in pairs})
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    assert bounds[-1] == len(users)
    elements = []
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        ordinal = {user: n for n, user in enumerate(users[start:stop])}
        rows = sorted((ordinal[u], i.encode()) for u, i in pairs if u in ordinal)
        arrays = [
            pa.array([u for u, _ in rows], pa.int64()),
            pa.array([i for _, i in rows], pa.large_binary()),
        ]
        elements.append(
            (977 * (number + 1) % 1000, pa.RecordBatch.from_arrays(arrays, names=["user", "item"]))
        )
    return elements


def test_whole_users_are_put_into_the_order_of_fingerprints(tmp_path):
    """Blocks of the input are no ranges of a fixed order of users; the order must not follow them."""
    users_in_order = whole_users(PAIRS, [150, 50, 200])
    pairs = [
        (np.array([number, user], "<u8").tobytes(), item)
        for number, batch in users_in_order
        for user, item in zip(batch.column("user").to_pylist(), batch.column("item").to_pylist())
    ]
    names = [pa.array([p[side] for p in pairs], pa.large_binary()) for side in (0, 1)]
    inside = run_in_process(program(), [tuple(names)], key("vote"))
    wanted = dict(zip(inside.items.to_pylist(), inside.noisy_weight.tolist()))
    assert len(wanted) >= 10

    def check(released):
        assert dict(released) == wanted

    released_on_beam(users_in_order, tmp_path, check, num_blocks=4, num_shards=2, complete=True)
