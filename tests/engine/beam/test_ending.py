"""Runs that the hub ends before their last trip, with noise under a filter: one step, one job, chains of jobs."""

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from dpbeam.accounting.noise import FilteredNoise
from dpbeam.accounting.zcdp import BudgetExceededError
from dpbeam.engine.beam.blocks import BuildsBlocks
from dpbeam.engine.beam.driver import run_in_jobs
from dpbeam.engine.beam.graph import RunProgram
from dpbeam.engine.beam.store import RunFolder
from dpbeam.engine.beam.trip_files import last_broadcast
from dpbeam.engine.in_process import output_batches, run_trips
from dpbeam.engine.program import Keys, Program, check_trips
from dpbeam.kernels.pairs import Block
from tests.support.pipelines import kept, outcome, unchecked
from tests.support.running import key

pytestmark = pytest.mark.usefixtures("quick_pipelines")
TRIPS = 9


class Heads(Program):
    """Counts users with noise until shares of a quarter have used up the filter; each block tells what it heard."""

    norm, cap, weight_grid, output = "l2", 1, 1.0, "blocks"
    may_end = True

    def __init__(self, share=0.25, trips=TRIPS):
        self.trips, self.share, self.reply_columns = trips, share, {}

    def sum_names(self, trip):
        return ()

    def noise(self, trip):
        return None

    def hub_noise(self, trip):
        return FilteredNoise(2.0, 1.0)

    def meets(self, trip):
        return "blocks"

    def weigh(self, trip, block, reply, keys):
        return {}, None

    def summarise(self, trip, part, keys):
        return {"heads": np.array([len(part.user_fp)])}

    def decide(self, trip, state, summaries, draw):
        total = np.array([sum(int(s["heads"][0]) for s in summaries) << 30])
        noisy = draw.noisy_within(self.share, total, np.array([[1, 1]], np.uint64))
        heard = np.concatenate([state.get("heard", np.empty(0, np.int64)), noisy])
        return {"heard": heard}, {"heard": heard, "left": np.array([1 - self.share * len(heard)])}

    def done(self, trip, broadcast):
        return broadcast["left"][0] <= 0

    def finish_block(self, block):
        return pa.RecordBatch.from_pydict({"block": [block.id], "heard": [block.broadcast["heard"].tolist()]})


def block(number, users):
    fp = np.arange(2 * users, dtype=np.uint64).reshape(-1, 2)
    empty = np.empty(0, np.int32)
    return Block(
        number, np.zeros(users + 1, np.int64), empty, np.zeros(1, np.int64), np.empty((0, 2), np.uint64), fp
    )


BLOCKS = [block(3, 2), block(5, 4)]


def in_process(program=None):
    program = program or Heads()
    finished = run_trips(program, BLOCKS, Keys(key("ends")))
    return finished, [row for batch in output_batches(program, finished) for row in batch.to_pylist()]


class _Built(BuildsBlocks):
    """Blocks as they are, with the receipts of those that were built."""

    def process(self, element):
        self.built(element[0], None, element[1])
        yield element


def source(pipeline, store):
    blocks = pipeline | beam.Create([(b.id, b) for b in BLOCKS]).with_output_types(tuple[int, Block])
    return blocks | "Built" >> beam.ParDo(_Built(store)).with_output_types(tuple[int, Block])


def test_the_run_ends_with_the_filter():
    finished, rows = in_process()
    assert finished.trip == 3
    assert [len(row["heard"]) for row in rows] == [4, 4]
    assert len(set(rows[0]["heard"])) == 4


def rows(result):
    return kept(result | beam.FlatMap(pa.RecordBatch.to_pylist))


@pytest.mark.parametrize("one_step", [False, True])
def test_one_job_skips_the_trips_that_are_left(tmp_path, one_step):
    with RunFolder(str(tmp_path), key("ends")) as folder:
        program = RunProgram(folder.store, Heads(), one_step=one_step)
        came = outcome(lambda pipeline: rows(source(pipeline, folder.store) | program))
        assert (
            last_broadcast(Heads(), folder.store, TRIPS)["heard"] == in_process()[0].broadcast["heard"]
        ).all()
    assert sorted(came, key=str) == in_process()[1]


@pytest.mark.parametrize("per_job,jobs", [(3, 3), (1, 5)])
def test_jobs_that_are_left_are_skipped_but_the_last(tmp_path, per_job, jobs):
    made = []
    with RunFolder(str(tmp_path), key("ends")) as folder:
        run_in_jobs(
            folder.store,
            Heads(),
            read=lambda pipeline: source(pipeline, folder.store),
            write=rows,
            run=lambda build: made.append(outcome(build)),
            trips_per_job=per_job,
        )
    assert sorted(made[-1], key=str) == in_process()[1]
    assert len(made) == jobs


def test_what_is_taken_from_the_filter_is_remembered_across_trips(tmp_path):
    with pytest.raises(BudgetExceededError):
        in_process(Heads(share=0.4))

    class Forgetful(Heads):
        def done(self, trip, broadcast):
            return False

    with (
        unchecked(RunFolder(str(tmp_path), key("ends"))) as folder,
        pytest.raises(Exception, match="would overrun the budget"),
    ):
        outcome(lambda pipeline: source(pipeline, folder.store) | RunProgram(folder.store, Forgetful(0.4, 4)))


def test_a_filter_stands_once_among_the_noises():
    assert Heads().noises() == [FilteredNoise(2.0, 1.0)]


def test_a_run_that_may_end_is_one_of_blocks_and_hub():
    program = Heads()
    program.output = "hub"
    with pytest.raises(ValueError, match="in a run that may end early blocks meet the hub"):
        check_trips(program)
