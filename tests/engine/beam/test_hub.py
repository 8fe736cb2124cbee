"""Parts that meet at a hub, programs in one step, chains of jobs, and the size of job graphs."""

import glob
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dpbeam.accounting.noise import NoiseSpec
from dpbeam.engine import in_process as in_process_engine
from dpbeam.engine.beam.blocks import SubsamplePerUser
from dpbeam.engine.beam.driver import Checkpoint, run_in_jobs
from dpbeam.engine.beam.graph import RunProgram
from dpbeam.engine.beam.run import StoredProgram
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.engine.beam.sweep import unneeded
from dpbeam.engine.in_process import build_blocks, output_batches, run_trips
from dpbeam.engine.program import Keys
from dpbeam.errors import InputError, RunnerError
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selectors.registry import selectors
from tests.support.hub_programs import Applause, GreedyCover, Tally
from tests.support.instances import batches, random_pairs
from tests.support.pipelines import kept, outcome, unchecked
from tests.support.running import key

pytestmark = pytest.mark.usefixtures("quick_pipelines")
ROOT = Path(__file__).resolve().parents[3]
KEY = "hub"
PAIRS = random_pairs(3, users=150)
PROGRAMS = {"blocks and hub": GreedyCover(4, 2.0), "shards, hub and blocks": Applause()}


def chained(name):
    if name in PROGRAMS:
        return PROGRAMS[name]
    return make_plan(SelectionConfig(2.0, 1e-2, name, max_items_per_user=8)).program


def several_trips() -> list[str]:
    """Methods whose blocks hear of more than their first items."""
    return [name for name in selectors() if chained(name).trips > 3]


class Loud(Tally):
    """With noise on every trip."""

    def noise(self, trip):
        return NoiseSpec("gaussian", 1.0, trip + 1)


class Blind(Tally):
    """Reads its blocks on the first trip alone."""

    def reads_block(self, trip):
        return trip == 0


def options():
    return PipelineOptions(["--runner=FnApiRunner"])


def in_process(program, pairs, num_blocks=3, num_shards=2) -> list:
    keys = Keys(key(KEY))
    blocks = list(
        build_blocks(batches(pairs), keys, program.cap, num_blocks=num_blocks, num_shards=num_shards)
    )
    return rows(output_batches(program, run_trips(program, blocks, keys)))


def rows(results) -> list:
    return sorted(tuple(row.items()) for batch in results for row in batch.to_pylist())


def record_batches(pairs):
    schema = pa.schema([("user", pa.large_string()), ("item", pa.large_string())])
    return [pa.RecordBatch.from_arrays(list(columns), schema=schema) for columns in batches(pairs)]


def blocks_of(pipeline, store, program, pairs, num_blocks=3, num_shards=2):
    return (
        pipeline
        | beam.Create(record_batches(pairs)).with_output_types(pa.RecordBatch)
        | SubsamplePerUser(store, num_blocks=num_blocks, num_shards=num_shards, cap=program.cap)
    )


def saved(result, path):
    together = result | beam.Map(lambda batch: (0, batch)) | beam.GroupByKey()
    return together | beam.Map(_save, path)


def _save(together, path):
    with open(path, "w") as file:
        file.write(repr(rows(together[1])))


def on_beam(program, pairs, folder, *, one_step=False, threads=1, relays=None, **sizes) -> list:
    with RunFolder(folder, key(KEY)) as run:
        rounds = RunProgram(run.store, program, one_step=one_step, threads=threads, relays=relays)
        return rows(outcome(lambda p: kept(blocks_of(p, run.store, program, pairs, **sizes) | rounds)))


@pytest.mark.usefixtures("beams_runner")
@pytest.mark.parametrize("name", PROGRAMS)
def test_beam_decides_what_the_in_process_run_decides(name, tmp_path):
    program, sizes = PROGRAMS[name], {"num_blocks": 4, "num_shards": 3}
    expected = in_process(program, PAIRS, **sizes)
    assert len(expected) >= 1
    assert on_beam(program, PAIRS, str(tmp_path), **sizes) == expected
    assert on_beam(program, PAIRS, str(tmp_path), one_step=True, **sizes) == expected


@pytest.mark.parametrize("name", [*PROGRAMS, *several_trips()])
def test_threads_of_one_step_do_not_matter(name, tmp_path, monkeypatch):
    """More blocks and shards than threads, of which one may come first every time: they are so small."""
    monkeypatch.setattr(in_process_engine, "LINKS_FOR_THREADS", 0)
    seen = set()

    class Pool(ThreadPoolExecutor):
        def submit(self, work, *part):
            return super().submit(lambda: (seen.add(threading.get_ident()), work(*part))[1])

    monkeypatch.setattr(in_process_engine, "ThreadPoolExecutor", Pool)
    program = chained(name)
    pairs, sizes = random_pairs(5, users=200), {"num_blocks": 7, "num_shards": 5}
    expected = in_process(program, pairs, **sizes)
    assert not seen
    assert on_beam(program, pairs, str(tmp_path), one_step=True, threads=3, **sizes) == expected
    assert seen and len(expected) >= 1


def greedy(pairs, picks: int) -> list[str] | None:
    """The cover by a loop over sets; None where two items tie."""
    held: dict[str, set] = {}
    for user, item in pairs:
        held.setdefault(user, set()).add(item)
    picked, left = [], list(held.values())
    for _ in range(picks):
        (first, most), (_, second) = Counter(item for items in left for item in items).most_common(2)
        if most == second:
            return None
        picked.append(first)
        left = [items for items in left if first not in items]
    return picked


def test_the_cover_is_greedy_and_does_not_depend_on_blocks():
    """With noise far below one user."""
    compared = 0
    for seed in range(16):
        pairs = random_pairs(seed, users=150)
        picked = greedy(pairs, 3)
        if picked is None:
            continue
        expected = sorted((("item", item.encode()),) for item in picked)
        for blocks in (1, 2, 7):
            assert in_process(GreedyCover(3, 1e-3), pairs, blocks) == expected
        compared += 1
    assert compared >= 3


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("one_step", [False, True])
def test_the_hub_decides_where_there_is_nobody(name, one_step, tmp_path):
    assert on_beam(PROGRAMS[name], [], str(tmp_path), one_step=one_step) == []


def test_noise_of_the_hub_and_of_items_are_unrelated():
    """Also in a round of the same number: an item's noise in one place must tell nothing of the other."""
    keys, spec = Keys(key(KEY)), NoiseSpec("gaussian", 2.0)
    fp = np.arange(2_000, dtype=np.uint64).reshape(-1, 2)
    hub, items = keys.hub(spec).noisy(np.zeros(len(fp), np.int64), fp), keys.noise(spec, fp)
    assert (hub != items).all()
    assert abs(np.corrcoef(hub, items)[0, 1]) < 0.2  # 6 standard deviations


class HowMany(GreedyCover):
    """The hub says how many items it picked, also when that is none."""

    def hub_output(self, state):
        return pa.record_batch([pa.array([len(state["picked"])])], ["item"])


@pytest.mark.parametrize("one_step", [False, True])
def test_the_hub_speaks_where_there_is_nobody(one_step, tmp_path):
    program = HowMany(3, 1e-3)
    expected = in_process(program, [])
    assert len(expected) == 1
    assert on_beam(program, [], str(tmp_path), one_step=one_step) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reply_columns": {}}, "nothing returns to the blocks after trip 0: reply, or let blocks meet"),
        ({"output": "hub", "meets": lambda trip: None}, "does not reach its hub"),
        ({"output": "shards", "meets": lambda trip: "blocks"}, "does not reach its shards"),
    ],
)
def test_trips_that_do_not_hang_together_are_refused(change, message, tmp_path):
    program = Applause()
    vars(program).update(change)
    with pytest.raises(ValueError, match=message):
        in_process(program, PAIRS)
    with RunFolder(str(tmp_path), key(KEY)) as run, pytest.raises(ValueError, match=message):
        StoredProgram.put(run.store, program)


IN_PROCESS = "in one process"
WAYS = {IN_PROCESS: {}, "one step": {"one_step": True}, "three shards": {"num_shards": 3}}


@pytest.mark.parametrize("way", WAYS)
class TestBlocksThatMeet:
    """Whatever way a program is run: it gives the same, or is refused before anything runs."""

    def run(self, way, program, folder) -> list:
        return (
            in_process(program, PAIRS) if way == IN_PROCESS else on_beam(program, PAIRS, folder, **WAYS[way])
        )

    def test_between_trips_to_the_shards(self, way, tmp_path):
        program = Tally(("shards", "blocks", "shards"), {0, 2}, {0})
        ((*numbers,),) = self.run(way, program, str(tmp_path))
        pairs, users = len(set(PAIRS)), len({user for user, _ in PAIRS})
        assert numbers == [("0 shards", pairs), ("1 blocks", users), ("2 shards", pairs)]

    @pytest.mark.parametrize(
        ("program", "message"),
        [
            (
                Tally(("blocks", "shards"), {0, 1}, {0}),
                "trip 0 of Tally, where blocks meet, reaches no shard",
            ),
            (Tally(("blocks", "shards"), {0, 1}, {}), "trip 0 of Tally, where blocks meet, reaches no shard"),
            (
                Tally(("shards", "blocks"), {0}, {0, 1}),
                "trip 1 of Tally, where blocks meet, reaches no shard",
            ),
            (
                Tally(("blocks", "shards"), {1}, {}),
                "trip 1 of Tally reaches shards, which learn of their items",
            ),
            (Loud(("shards", "shards"), {0}, {0}), "trip 1 of Loud has noise, and no sums"),
            (
                Blind(("shards", "shards"), {0, 1}, {0}),
                "trip 1 of Blind reaches the shards of blocks that it",
            ),
        ],
    )
    def test_where_the_engine_would_not_follow_they_are_refused(self, program, message, way, tmp_path):
        with pytest.raises(ValueError, match=message):
            self.run(way, program, str(tmp_path))


def test_a_missing_part_is_noticed(tmp_path):
    from dpbeam.engine.beam.hub import _Decide
    from dpbeam.kernels.columns import encode

    program = PROGRAMS["blocks and hub"]
    with unchecked(RunFolder(str(tmp_path), key(KEY))) as run:

        def meet(trip, parts):
            stage = _Decide(StoredProgram.put(run.store, program), trip)
            stage.setup()
            summary = {"fp": np.ones((1, 2), np.uint64), "counts": np.ones(1, np.int64)}
            summary["items"] = pa.array([b"i"], pa.large_binary())
            return list(
                stage.process(
                    (0, [encode({"from": np.array([p]), "trip": np.array([trip]), **summary}) for p in parts])
                )
            )

        assert [part for part, _ in meet(0, [4, 2])] == [2, 4]
        with pytest.raises(RunnerError, match="the runner lost or doubled blocks on their way to the hub"):
            meet(1, [4])
        with pytest.raises(RunnerError, match="the runner doubled a summary"):
            meet(1, [4, 4])


def jobs(
    folder: RunFolder,
    program,
    out: str,
    *,
    trips_per_job: int,
    fail_in: int | None = None,
    blocks_first: bool = False,
    repeat: int = 0,
    look=lambda: None,
    relays=None,
    **sizes,
) -> int:
    """Runs a chain of jobs, the `fail_in`-th (from 0) of which breaks; returns how many ran.

    Args:
      repeat: how many times more every bundle is run, as an engine's retries do.
      look: called before each job.
    """
    count = 0

    def run(build):
        nonlocal count
        look()
        runner = FnApiRunner(bundle_repeat=repeat)
        with beam.Pipeline(runner=runner, options=options()) as pipeline:
            build(pipeline)
            if count == fail_in:
                _ = pipeline | "Break" >> beam.Create([0]) | beam.Map(lambda _: 1 / 0)
        count += 1

    run_in_jobs(
        folder.store,
        program,
        read=lambda pipeline: blocks_of(pipeline, folder.store, program, PAIRS, **sizes),
        write=lambda result: saved(result, out),
        run=run,
        trips_per_job=trips_per_job,
        blocks_first=blocks_first,
        relays=relays,
    )
    return count


@pytest.mark.parametrize(
    "name, trips_per_job", [*zip(PROGRAMS, (1, 32)), *((name, 3) for name in several_trips())]
)
def test_a_chain_of_jobs_gives_the_same_result(name, trips_per_job, tmp_path, monkeypatch):
    """And binds blocks and draws: as many places as there are blocks, and shards and hubs with noise."""
    program, out, bound = chained(name), str(tmp_path / "out"), []
    bind = RunStore.bind
    monkeypatch.setattr(
        RunStore, "bind", lambda self, place, digest: (bound.append(place), bind(self, place, digest))[1]
    )
    with RunFolder(str(tmp_path), key(KEY)) as folder:
        count = jobs(folder, program, out, trips_per_job=trips_per_job)
    assert count == -(-program.trips // trips_per_job)
    assert eval(Path(out).read_text()) == in_process(program, PAIRS)
    noisy = [trip for trip in range(program.trips) if program.noise(trip) is not None]
    met = [trip for trip in range(program.trips) if program.meets(trip) is not None]
    places = {f"block-{block}" for block in range(3)}
    places |= {f"shard-{shard}-trip-{trip}" for shard in range(2) for trip in noisy}
    assert set(bound) == places | {f"hub-trip-{trip}" for trip in met} | {"program", "sizes"}


@pytest.mark.parametrize("name, fail_in", [("gsu", 2), ("blocks and hub", 1)])
def test_a_failed_run_goes_on_from_its_last_checkpoint(name, fail_in, tmp_path):
    program, out = chained(name), str(tmp_path / "out")
    with RunFolder(str(tmp_path), key(KEY)) as folder:
        with pytest.raises(Exception, match="division by zero"):
            jobs(folder, program, out, trips_per_job=3, fail_in=fail_in)
        at = Checkpoint.last(folder.store, program.trips)
        # The broken step is beside the chain, so its job may or may not have come to its end.
        done = 0 if at is None else at.trip // 3
        assert done in (fail_in, fail_in + 1)
        folder.leave()
        again = RunFolder.resume(folder.path)
        assert jobs(again, program, out, trips_per_job=3) == -(-program.trips // 3) - done
    assert eval(Path(out).read_text()) == in_process(program, PAIRS)
    assert glob.glob(str(tmp_path / "dpbeam-run-*")) == []


@pytest.mark.usefixtures("beams_runner")
@pytest.mark.parametrize("name", ["dp-sips", *PROGRAMS])  # dp-sips samples anew: it asks who the items are
def test_between_jobs_the_folder_loses_what_no_later_one_reads(name, tmp_path, monkeypatch):
    """A job for the blocks and one for each trip, every bundle run twice: the same result from a swept folder."""
    monkeypatch.setattr("dpbeam.engine.beam.messages.INLINE_BYTES", 1)  # all messages in files
    program, out, seen = chained(name), str(tmp_path / "out"), []
    with RunFolder(str(tmp_path), key(KEY)) as folder:
        look = lambda: seen.append(folder.store.names(""))  # noqa: E731
        count = jobs(folder, program, out, trips_per_job=1, blocks_first=True, repeat=1, look=look)
    assert count == program.trips + 1 == len(seen)
    assert eval(Path(out).read_text()) == in_process(program, PAIRS)
    for trip, names in enumerate(seen[1:]):
        assert list(unneeded(program, trip, names)) == []
        assert not [
            n for n in names if n.startswith("sent-") and not n.startswith(f"sent-replies-{trip - 1}-")
        ]
        assert len({name.split("-")[1] for name in names if name.endswith(f"-inbox-{trip}")}) == bool(
            trip
        ) * len({name for name in names if re.fullmatch(r"block-\d+", name)})
        written = [name for name in names if re.search(r"-(state|inbox|waits)-\d+$", name)]
        assert all(int(name.rpartition("-")[2]) in (trip, trip - 1) for name in written if "shard" in name)


def test_every_job_of_a_swept_chain_may_fail_once(tmp_path, monkeypatch):
    """What the sweeps have left is enough for any job to be done anew."""
    program, out, failed = chained("mad2r"), str(tmp_path / "out"), []
    save = Checkpoint.save

    def saved_at_the_second_attempt(self, store):
        if self.trip not in failed:
            failed.append(self.trip)
            raise OSError("the disk is away")
        save(self, store)

    monkeypatch.setattr("dpbeam.engine.beam.messages.INLINE_BYTES", 1)
    monkeypatch.setattr(Checkpoint, "save", saved_at_the_second_attempt)
    with RunFolder(str(tmp_path), key(KEY)) as folder:
        for trip in range(program.trips):
            with pytest.raises(Exception, match="the disk is away"):
                jobs(folder, program, out, trips_per_job=1, blocks_first=True)
            assert failed[-1] == trip
        folder.leave()
        jobs(RunFolder.resume(folder.path), program, out, trips_per_job=1, blocks_first=True)
    assert eval(Path(out).read_text()) == in_process(program, PAIRS)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    out = str(tmp_path / "out")
    with RunFolder(str(tmp_path), key(KEY)) as folder:
        jobs(folder, GreedyCover(4, 1.0), out, trips_per_job=2)
        with pytest.raises(InputError, match="belongs to other data or settings"):
            jobs(folder, GreedyCover(4, 2.0), out, trips_per_job=2)
        with pytest.raises(ValueError, match="trips_per_job must be at least 1, got 0"):
            jobs(folder, GreedyCover(4, 1.0), out, trips_per_job=0)


def graph_bytes(rounds: int, folder: str) -> int:
    config = SelectionConfig(1.0, 1e-5, "gsu", gsu_fractions=(1 / rounds,) * rounds)
    program = make_plan(config).program
    pipeline = beam.Pipeline(options=options())
    with RunFolder(folder) as run:
        _ = blocks_of(pipeline, run.store, program, PAIRS[:1]) | RunProgram(run.store, program)
        return len(pipeline.to_runner_api().SerializeToString())


def test_a_round_adds_at_most_15_kb_to_the_job_graph(tmp_path):
    """And every round adds the same: tables and constants lie in the run's folder."""
    small, middle, large = (graph_bytes(rounds, str(tmp_path)) for rounds in (4, 8, 16))
    assert (middle - small) / 4 < 15_000
    assert (large - middle) / 8 == pytest.approx((middle - small) / 4, rel=0.05)


def test_a_table_of_a_million_entries_is_stored_once(tmp_path):
    program = make_plan(SelectionConfig(1.0, 1e-5, "basic", max_items_per_user=1_000_000)).program
    pipeline = beam.Pipeline(options=options())
    with RunFolder(str(tmp_path)) as run:
        _ = blocks_of(pipeline, run.store, program, PAIRS[:1]) | RunProgram(run.store, program)
        assert len(pipeline.to_runner_api().SerializeToString()) < 100_000
        assert len(glob.glob(f"{run.path}/program-*")) == 1
