"""The Beam stages: equal to the in-process run, robust to retries, and nothing private where it must not be."""

import glob
import os
import stat

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

from dpbeam.engine.beam import block_stages, messages, shard_stages
from dpbeam.engine.beam import blocks as pair_stages
from dpbeam.engine.beam.block_stages import WeightPerUser
from dpbeam.engine.beam.blocks import SubsamplePerUser
from dpbeam.engine.beam.coders import BlockCoder, RecordBatchCoder, ShardCoder
from dpbeam.engine.beam.graph import RunProgram
from dpbeam.engine.beam.run import StoredProgram
from dpbeam.engine.beam.shard_stages import AddNoise, GroupByItem, Release, RerouteExcess, Threshold
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.engine.in_process import run_in_process
from dpbeam.errors import InputError, RunnerError
from dpbeam.kernels.columns import Packed, decode, encode, pack
from dpbeam.kernels.pairs import Block, partition_again, partition_pairs, unpack_pairs
from dpbeam.kernels.shards import LinkedItems, Shard
from dpbeam.randomness import RunKey
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selectors.registry import variants
from tests.support import memory_store
from tests.support.pipelines import kept, outcome

KEY = "stages"
METHODS = variants()
#: Of each method the first variant: a program's options are nothing to the stages.
FIRST = {METHODS[name]["method"]: name for name in reversed(METHODS)}


def plan_of(name, **more):
    settings = {"max_items_per_user": 16, **METHODS[name], **more}
    return make_plan(SelectionConfig(epsilon=2.0, delta=1e-3, **settings))


def options(*arguments):
    return PipelineOptions(["--runner=FnApiRunner", *arguments])


def sample_pairs(seed=1, users=600, items=400, mean=25):
    """Pairs with repeated rows and a few users far above the cap, so that every stage has work."""
    rng = np.random.default_rng(seed)
    sizes = rng.geometric(1 / mean, users)
    sizes[:3] = 300
    user = np.repeat(np.arange(users), sizes)
    item = np.minimum((items ** rng.random(len(user))).astype(int), items - 1)
    order = rng.permutation(len(user))
    return (
        pa.array([f"user {u}" for u in user[order]], pa.large_string()),
        pa.array([f"item {i}" for i in item[order]], pa.large_string()),
    )


def batches_of(users, items, rows=2_000):
    schema = pa.schema([("user", pa.large_string()), ("item", pa.large_string())])
    return [
        pa.RecordBatch.from_arrays([users.slice(s, rows), items.slice(s, rows)], schema=schema)
        for s in range(0, len(users), rows)
    ]


def release(pipeline, plan, users, items, run):
    """The released batches of sample pairs, in three blocks and two shards."""
    return (
        pipeline
        | beam.Create(batches_of(users, items), reshuffle=False).with_output_types(pa.RecordBatch)
        | SubsamplePerUser(run.store, num_blocks=3, num_shards=2, cap=plan.program.cap)
        | RunProgram(run.store, plan.program)
    )


def released_by_beam(plan, batches, folder, num_blocks, num_shards, run_program=RunProgram):
    """Released (item bytes, noisy weight) pairs of a Beam run, in a sorted list."""
    with RunFolder(folder, RunKey.insecure_fixed(KEY)) as run:

        def build(pipeline):
            blocks = (
                pipeline
                | beam.Create(batches, reshuffle=False).with_output_types(pa.RecordBatch)
                | SubsamplePerUser(
                    run.store, num_blocks=num_blocks, num_shards=num_shards, cap=plan.program.cap
                )
            )
            kept(blocks | run_program(run.store, plan.program) | beam.FlatMap(_rows))

        released = sorted(outcome(build))
    assert glob.glob(os.path.join(folder, "dpbeam-run-*")) == []
    return released


def _rows(batch):
    return list(zip(batch.column("item").to_pylist(), batch.column("noisy_weight").to_pylist()))


def in_process(plan, users, items, num_blocks=3, num_shards=2):
    released = run_in_process(
        plan.program,
        [(users, items)],
        RunKey.insecure_fixed(KEY),
        num_blocks=num_blocks,
        num_shards=num_shards,
    )
    return sorted(zip(released.items.to_pylist(), released.noisy_weight.tolist()))


@pytest.mark.parametrize("name", FIRST.values())
def test_beam_releases_what_the_in_process_run_releases(name, tmp_path, monkeypatch):
    """Where all messages go through files, too: all shuffles carry references alone."""
    if name in ("mad2r", "gsu8", "vote"):
        monkeypatch.setattr(messages, "INLINE_BYTES", 0)
    users, items = sample_pairs()
    plan = plan_of(name)
    expected = in_process(plan, users, items)
    assert 10 < len(expected) < 380
    assert released_by_beam(plan, batches_of(users, items), str(tmp_path), 5, 4) == expected


@pytest.mark.parametrize("groups,inline_bytes", [(4, 0), (20, messages.INLINE_BYTES)])
def test_many_blocks_are_split_in_two_steps(groups, inline_bytes, tmp_path, monkeypatch):
    """Groups of 5 of 20 blocks, or of one each, worked on in pieces; few users are above the cap."""
    monkeypatch.setattr(messages, "INLINE_BYTES", inline_bytes)
    for name, value in (("FANOUT", 19), ("GROUPS", groups), ("PARTITION_ROWS", 700)):
        monkeypatch.setattr(pair_stages, name, value)
    parts = set()

    def counted(chosen, *arguments):
        parts.add(len(chosen))
        return partition_again(chosen, *arguments)

    monkeypatch.setattr(pair_stages, "partition_again", counted)
    users, items = sample_pairs()
    plan = plan_of("basic")
    released = released_by_beam(plan, batches_of(users, items, 1_000), str(tmp_path), 20, 3)
    assert released == in_process(plan, users, items)
    assert len(parts) > 1 and max(parts) > 1


@pytest.mark.parametrize("num_blocks", [12, 40])
def test_a_pair_goes_where_its_user_goes(num_blocks, tmp_path, monkeypatch):
    """Batches in another order, or cut otherwise: every pair reaches the same group, also when both attempts count.

    An engine that runs the step again after some of its output was consumed mixes the two attempts.
    """
    for name, value in (("FANOUT", 19), ("GROUPS", 4), ("PARTITION_ROWS", 700)):
        monkeypatch.setattr(pair_stages, name, value)
    users, items = sample_pairs()
    attempts = []
    with RunFolder(str(tmp_path), RunKey.insecure_fixed(KEY)) as run:
        for rows, step in ((1_000, 1), (333, -1), (2_500, 1)):
            group = 1 if num_blocks <= 19 else num_blocks // 4
            stage = pair_stages._PartitionPairs(run.store, num_blocks, 60, group)
            stage.setup()
            stage.start_bundle()
            elements = [e for batch in batches_of(users, items, rows)[::step] for e in stage.process(batch)]
            elements += [e.value for e in stage.finish_bundle()]
            places: dict[bytes, set] = {}
            for number, message in elements:
                for columns in map(unpack_pairs, messages.receive(run.store, [message])):
                    for fp in columns["user_fp"]:
                        places.setdefault(fp.tobytes(), set()).add(number)
            assert {len(place) for place in places.values()} == {1}
            attempts.append(places)
    assert attempts[0] == attempts[1] == attempts[2]
    assert len(set().union(*attempts[0].values())) == (num_blocks if num_blocks <= 19 else 4)


def test_the_runs_folder_may_be_an_object_store(monkeypatch):
    """No renaming: a retry finds the block that the first attempt stored."""
    monkeypatch.setattr(messages, "INLINE_BYTES", 1_500)
    objects = memory_store.install(monkeypatch).objects
    users, items = sample_pairs()
    plan = plan_of("mad2r")
    with RunFolder("s3://bucket/temp", RunKey.insecure_fixed(KEY)) as run:
        for _ in range(2):
            with beam.Pipeline(options=options()) as pipeline:
                released = release(pipeline, plan, users, items, run) | beam.FlatMap(_rows)
                assert_that(released, equal_to(in_process(plan, users, items)))
        assert any(messages.FILE_PREFIX in name for name in objects)
        assert not [name for name in objects if ".tmp-" in name]
    assert objects == {}


@pytest.mark.parametrize("num_blocks,num_shards", [(1, 7), (16, 1)])
def test_blocks_and_shards_do_not_matter(num_blocks, num_shards, tmp_path):
    users, items = sample_pairs(2)
    plan = plan_of("mad2r")
    expected = in_process(plan, users, items)
    batches = batches_of(users, items, rows=777)[::-1]
    assert released_by_beam(plan, batches, str(tmp_path), num_blocks, num_shards) == expected


@pytest.mark.parametrize("limit", [{"PARTITION_ROWS": 1_500}, {"PARTITION_BYTES": 50_000}])
def test_rows_are_partitioned_in_pieces_of_bounded_size(limit, tmp_path, monkeypatch):
    """Many rows or long items: a worker holds no more at once, and the release is the same."""
    partitioned = []

    def counted(users, items, *arguments, **more):
        partitioned.append(len(users))
        return partition_pairs(users, items, *arguments, **more)

    monkeypatch.setattr(pair_stages, "partition_pairs", counted)
    for name, value in limit.items():
        monkeypatch.setattr(pair_stages, name, value)
    users, items = sample_pairs()
    plan = plan_of("basic")
    released = released_by_beam(plan, batches_of(users, items, 1_000), str(tmp_path), 3, 2)
    assert released == in_process(plan, users, items)
    assert sum(partitioned) == len(users)
    assert max(partitioned) <= 3_000


def test_released_items_leave_in_batches_of_bounded_size(monkeypatch):
    """Long items: engines hold many batches at once."""
    monkeypatch.setattr(shard_stages, "RELEASED_BYTES", 400)
    items = pa.array([b"%0100d" % n for n in range(20)], pa.large_binary())
    shard = Shard(0, np.empty((20, 2), np.uint64), *[np.empty(0)] * 3, items=items, kinds=b"kinds")
    members = {"released": lambda self, shard: (np.arange(20) != 3, np.arange(20.0))}
    program = type("P", (), {**members, "released_names": ("noisy_weight",)})()
    release = shard_stages._Release(StoredProgram(RunStore("unused"), "", ""), 0)
    release._program = program
    batches = list(release.process((0, shard)))
    assert max(batch.num_rows for batch in batches) == 3
    assert [row for batch in batches for row in _rows(batch)] == [
        (b"%0100d" % n, float(n)) for n in range(20) if n != 3
    ]


class _EveryStageAlone(beam.PTransform):
    """RunProgram with a shuffle after every stage, so that nothing fuses and every object crosses a coder."""

    def __init__(self, store, program):
        super().__init__()
        self.store, self.program = store, program

    def expand(self, flowing):
        stored, program = StoredProgram.put(self.store, self.program), self.program
        for trip in range(program.trips):
            stages = [WeightPerUser(stored, trip), GroupByItem(stored, trip)]
            if program.noise(trip) is not None:
                stages += [AddNoise(stored, trip), Threshold(stored, trip)]
            if trip in program.reply_columns:
                stages.append(RerouteExcess(stored, trip))
            for number, stage in enumerate(stages):
                flowing = (
                    flowing | f"Apart{trip}-{number}" >> beam.Reshuffle() | f"Stage{trip}-{number}" >> stage
                )
        return flowing | Release(stored, program.trips - 1)


def test_stages_need_not_be_fused(tmp_path):
    users, items = sample_pairs(3)
    plan = plan_of("mad2r")
    got = released_by_beam(plan, batches_of(users, items), str(tmp_path), 3, 2, run_program=_EveryStageAlone)
    assert got == in_process(plan, users, items)


def test_two_consumers_and_a_second_execution_see_the_same_noise(tmp_path):
    """Both branches recompute every trip in the same folder, as a runner does that keeps no intermediate results."""
    users, items = sample_pairs(4)
    plan = plan_of("mad", noisy_weights=True)
    with (
        RunFolder(str(tmp_path), RunKey.insecure_fixed(KEY)) as run,
        beam.Pipeline(options=options()) as pipeline,
    ):
        blocks = (
            pipeline
            | beam.Create(batches_of(users, items), reshuffle=False).with_output_types(pa.RecordBatch)
            | SubsamplePerUser(run.store, num_blocks=3, num_shards=2, cap=plan.program.cap)
        )
        first = blocks | "First" >> RunProgram(run.store, plan.program) | "Rows1" >> beam.FlatMap(_rows)
        second = blocks | "Second" >> RunProgram(run.store, plan.program) | "Rows2" >> beam.FlatMap(_rows)
        expected = in_process(plan, users, items)
        assert_that(first, equal_to(expected), label="first")
        assert_that(second, equal_to(expected), label="second")


class _FailsOnce(beam.DoFn):
    """Emits, then raises the first time it sees a bundle; the mark lies on disk, as a new worker would see it."""

    def __init__(self, mark):
        self.mark = mark

    def process(self, element):
        yield element
        if not os.path.exists(self.mark):
            open(self.mark, "w").close()
            raise OSError("the worker's disk is gone")


def test_a_job_that_failed_after_emitting_gives_the_same_output_when_it_runs_again(tmp_path):
    users, items = sample_pairs(5)
    plan = plan_of("gsu2")
    mark = str(tmp_path / "failed")
    run = RunFolder(str(tmp_path), RunKey.insecure_fixed(KEY))

    def job():
        with beam.Pipeline(options=options()) as pipeline:
            released = (
                release(pipeline, plan, users, items, run)
                | "FailsOnce" >> beam.ParDo(_FailsOnce(mark)).with_output_types(pa.RecordBatch)
                | beam.FlatMap(_rows)
            )
            assert_that(released, equal_to(in_process(plan, users, items)))

    with pytest.raises(Exception, match="disk is gone"):
        job()
    job()
    run.remove()


def test_a_retried_step_rewrites_identical_files(tmp_path):
    users, items = sample_pairs(6)
    plan = plan_of("mad2r")
    contents = []
    for _ in range(2):
        with RunFolder(str(tmp_path), RunKey.insecure_fixed(KEY)) as run:
            with beam.Pipeline(options=options()) as pipeline:
                _ = release(pipeline, plan, users, items, run)
            names = [name for name in os.listdir(run.path) if not name.startswith("receipts-")]
            contents.append({name: run.store.read_bytes(name) for name in names})
    assert contents[0] == contents[1]
    assert {"key", "block-0", "block-0-state-2", "shard-1", "shard-1-items", "shard-1-state-2"} <= set(
        contents[0]
    )
    assert not [name for name in contents[0] if "tmp" in name]


def test_stages_stand_in_the_job_graph_by_name(tmp_path):
    plan = plan_of("mad2r")
    pipeline = beam.Pipeline(options=options())
    with RunFolder(str(tmp_path)) as run:
        _ = (
            pipeline
            | beam.Create([], reshuffle=False).with_output_types(pa.RecordBatch)
            | SubsamplePerUser(run.store, num_blocks=2, num_shards=2, cap=plan.program.cap)
            | RunProgram(run.store, plan.program)
        )
        proto = pipeline.to_runner_api()
        secret = run.store.run_key().secret_bytes()
    names = " ".join(t.unique_name for t in proto.components.transforms.values())
    for stage in (
        "SubsamplePerUser",
        "WeightPerUser",
        "GroupByItem",
        "AddNoise",
        "Threshold",
        "RerouteExcess",
    ):
        assert stage in names
    everything = proto.SerializeToString() + repr(pipeline.options.get_all_options()).encode()
    assert secret not in everything
    assert secret.hex().encode() not in everything


def test_no_metrics_tell_about_the_data(tmp_path):
    users, items = sample_pairs(7)
    plan = plan_of("basic")
    with RunFolder(str(tmp_path), RunKey.insecure_fixed(KEY)) as run:
        pipeline = beam.Pipeline(options=options())
        _ = release(pipeline, plan, users, items, run)
        result = pipeline.run()
        result.wait_until_finish()
        metrics = result.metrics().query()
    assert not [m for kind in metrics.values() for m in kind if m.key.metric.namespace.startswith("dpbeam")]
    assert metrics["counters"] == metrics["distributions"] == metrics["gauges"] == []


def test_empty_input_releases_nothing(tmp_path):
    empty = pa.array([], pa.large_string())
    assert released_by_beam(plan_of("basic"), batches_of(empty, empty), str(tmp_path), 3, 2) == []


class TestMessages:
    """A trip must hear from every linked partner exactly once."""

    def setup_method(self):
        self.plan = plan_of("basic")
        self.first = shard_stages._SumByItem(StoredProgram(RunStore("unused"), "", ""), 0)
        self.first._program = self.plan.program
        self.first._keys = type("K", (), {"pairs": type("P", (), {"item": bytes(32)})})

    def message(self, block, trip=0, items=("a", "b")):
        weights = np.arange(1, len(items) + 1)
        columns = {"from": np.array([block]), "trip": np.array([trip]), **pack("weight", weights)}
        columns["items"] = pa.array([i.encode() for i in items], pa.large_binary())
        columns["kinds"] = pa.array([b""], pa.large_binary())
        return encode(columns)

    def test_sums(self):
        [(number, shard)] = self.first.process((3, [self.message(7), self.message(2, items=("b", "c"))]))
        assert number == shard.id == 3
        by_item = dict(zip(shard.items.unpack().to_pylist(), shard.sums["weight"].tolist()))
        assert by_item == {b"a": 1, b"b": 3, b"c": 2}

    def test_sums_may_have_a_name_that_begins_like_items(self, monkeypatch):
        monkeypatch.setattr(type(self.plan.program), "sum_names", lambda self, trip: ("items_weight",))
        columns = decode(self.message(7))
        columns |= {f"items_{name}": columns.pop(name) for name in ("weight.length", "weight.values")}
        [(_, shard)] = self.first.process((3, [encode(columns)]))
        assert sorted(shard.sums["items_weight"].tolist()) == [1, 2]

    def test_a_block_that_speaks_twice_is_refused(self):
        with pytest.raises(RunnerError, match="the runner doubled a message to shard 3"):
            list(self.first.process((3, [self.message(7), self.message(7)])))

    def test_a_message_of_another_trip_is_refused(self):
        with pytest.raises(RuntimeError, match="a message of trip 1 arrived on trip 0"):
            list(self.first.process((3, [self.message(7, trip=1)])))

    def test_a_missing_block_is_refused(self, tmp_path):
        [(_, shard)] = self.first.process((3, [self.message(7), self.message(2)]))
        with RunFolder(str(tmp_path), RunKey.insecure_fixed(KEY)) as run:
            program = plan_of("dp-sips published").program
            run.store.write("shard-3", shard.links_columns())
            run.store.write("shard-3-state-0", {})
            run.store.write("shard-3-items", shard.items_columns())
            later = shard_stages._SumByItem(StoredProgram.put(run.store, program), 1)
            later.setup()
            with pytest.raises(RunnerError, match="lost or doubled messages of blocks to shard 3"):
                list(later.process((3, [self.message(7, trip=1)])))
            with pytest.raises(RunnerError, match="lost or doubled messages of blocks to shard 3"):
                list(later.process((3, [self.message(7, trip=1), self.message(9, trip=1)])))

    def test_a_missing_reply_is_refused(self, tmp_path):
        program = plan_of("dp-sips published").program
        block = Block(
            id=5,
            offsets=np.array([0, 2]),
            links=np.array([0, 1], np.int32),
            shard_offsets=np.array([0, 1, 2]),
            identity=np.array([[1, 1], [2**63, 2]], np.uint64),
            user_fp=np.array([[1, 2]], np.uint64),
        )
        with RunFolder(str(tmp_path), RunKey.insecure_fixed(KEY)) as run:
            run.store.write("block-5", block.to_columns(with_items=False))
            later = block_stages._LaterWeights(StoredProgram.put(run.store, program), 1)
            later.setup()
            reply = {
                "from": np.array([0]),
                "trip": np.array([0]),
                **pack("released", np.array([0], np.uint8)),
            }
            with pytest.raises(RunnerError, match="the runner lost replies to block 5"):
                list(later.process((5, [encode(reply)])))

    def test_mixed_kinds_are_refused(self):
        other = {"from": np.array([1]), "trip": np.array([0]), **pack("weight", np.array([1]))}
        other["items"] = pa.array([b"a"], pa.large_binary())
        other["kinds"] = pa.array([b"int"], pa.large_binary())
        with pytest.raises(ValueError, match="ids mix types"):
            list(self.first.process((3, [self.message(7), encode(other)])))


class TestStore:
    def test_local_folder_is_private_and_vanishes(self, tmp_path):
        with RunFolder(str(tmp_path / "new" / "temp")) as run:
            assert stat.S_IMODE(os.stat(run.path).st_mode) == 0o700
            assert stat.S_IMODE(os.stat(os.path.join(run.path, "key")).st_mode) == 0o600
            assert not run.store.run_key().insecure
            run.store.write("a", {"x": np.arange(3)})
            np.testing.assert_array_equal(run.store.read("a")["x"], [0, 1, 2])
        assert not os.path.exists(run.path)
        with pytest.raises(OSError):
            run.store.write("late", {"x": np.arange(3)})
        assert not os.path.exists(run.path)

    def test_folder_vanishes_after_a_failure(self, tmp_path):
        with pytest.raises(KeyError), RunFolder(str(tmp_path)) as run:
            raise KeyError
        assert not os.path.exists(run.path)

    def test_every_run_has_its_own_key(self, tmp_path):
        with RunFolder(str(tmp_path)) as one, RunFolder(str(tmp_path)) as two:
            assert one.store.run_key().secret_bytes() != two.store.run_key().secret_bytes()

    def test_fixed_key_stays_marked(self, tmp_path):
        with RunFolder(str(tmp_path), RunKey.insecure_fixed("x")) as run:
            assert run.insecure_key
            assert run.store.run_key().insecure
            assert run.store.run_key().secret_bytes() == RunKey.insecure_fixed("x").secret_bytes()

    def test_a_reader_never_sees_half_a_file(self, tmp_path, monkeypatch):
        store = RunStore(str(tmp_path))
        store.write_bytes("a", b"old")

        def crash(*_):
            raise OSError("disk full")

        monkeypatch.setattr(os, "replace", crash)
        with pytest.raises(OSError, match="disk full"):
            store.write_bytes("a", b"new and longer")
        assert store.read_bytes("a") == b"old"


def test_coders_round_trip():
    users, items = sample_pairs(8, users=20, items=30)
    batch = batches_of(users, items, rows=50)[0]
    sliced = batch.slice(5, 7)
    coded = RecordBatchCoder().encode(sliced)
    assert RecordBatchCoder().decode(coded).equals(sliced)
    assert len(coded) < 4_000
    from dpbeam.engine.program import Keys
    from dpbeam.kernels.pairs import build_block, partition_pairs

    keys = Keys(RunKey.insecure_fixed("coder")).pairs
    messages = [columns for _, columns in partition_pairs(users, items, keys, 1, 60, b"kinds")]
    block = build_block(0, messages, keys, 3, 60)
    block.state = {"s.x": np.arange(4)}
    block.user_values = {"demand": np.linspace(0, 1, len(block.user_fp))}
    block.pair_values = {"amount": np.arange(len(block.links))}
    again = BlockCoder().decode(BlockCoder().encode(block))
    for name in ("offsets", "links", "shard_offsets", "item_fp", "user_fp"):
        np.testing.assert_array_equal(getattr(again, name), getattr(block, name))
    assert (again.id, again.kinds, again.items) == (block.id, block.kinds, block.items)
    np.testing.assert_array_equal(again.state["s.x"], np.arange(4))
    np.testing.assert_array_equal(again.user_values["demand"], block.user_values["demand"])
    np.testing.assert_array_equal(again.pair_values["amount"], block.pair_values["amount"])
    shard = Shard(
        id=2,
        fp=block.item_fp,
        block_ids=np.array([4]),
        slot_offsets=np.array([0, 2]),
        slots=np.array([1, 0], np.int32),
        sums={"w": np.array([5, 6])},
        state={"found": np.array([True, False])},
        items=block.items,
        kinds=b"k",
    )
    back = ShardCoder().decode(ShardCoder().encode(shard))
    assert back.items == shard.items and back.kinds == b"k" and back.id == 2
    np.testing.assert_array_equal(back.state["found"], [True, False])
    np.testing.assert_array_equal(back.sums["w"], [5, 6])


def test_to_say_how_large_an_element_is_reads_and_unpacks_nothing():
    """Beam asks in the middle of a run."""

    def unread(*_):
        raise AssertionError("read")

    class Unread(Packed):
        unpack = unread

    block = Block.unread(3)
    block.identity, block.state = unread, {"x": np.zeros(100)}
    links = np.zeros(7, np.int32)
    shard = Shard(0, np.zeros((1, 2), np.uint64), np.array([3]), np.array([0, 7]), links)
    part = Unread.of(pa.array([b"abc"] * 7, pa.large_binary()))
    shard.items = LinkedItems(shard, [part])
    assert BlockCoder().estimate_size(block) == 800 + 8 + 8
    assert ShardCoder().estimate_size(shard) == 16 + 8 + 16 + 28 + 7 + 21


def test_a_folder_with_files_of_another_layout_is_refused(tmp_path, monkeypatch):
    program = plan_of("basic").program
    with RunFolder(str(tmp_path), RunKey.insecure_fixed(KEY)) as run:
        assert StoredProgram.put(run.store, program) == StoredProgram.put(run.store, program)
        monkeypatch.setattr("dpbeam.engine.beam.run._LAYOUT", 1)
        with pytest.raises(InputError, match="belongs to other data or settings"):
            StoredProgram.put(run.store, program)


def joined(*columns):
    items = pair_stages._Items()
    for column in columns:
        items.add(column)
    return items.joined()


@pytest.mark.parametrize("rows", [3, 100], ids=["mostly distinct", "often repeated"])
def test_dictionaries_of_several_batches_join_to_the_same_items(rows, monkeypatch):
    """Joined end to end, where a value may be twice in the dictionary, or unified: the same values in order."""
    columns = [
        pa.array([b"x", b"y%d" % part, b"x"] * (rows // 3), pa.large_binary()).dictionary_encode()
        for part in range(3)
    ]
    whole = joined(*columns)
    assert whole.to_pylist() == [value for column in columns for value in column.to_pylist()]
    assert len(whole.dictionary) == (6 if rows == 3 else 4)
    sliced = joined(columns[0].slice(1), columns[1])
    assert sliced.to_pylist() == [*columns[0].to_pylist()[1:], *columns[1].to_pylist()]
    plain = [column.dictionary_decode() for column in columns]
    for mixed in (plain, [columns[0], *plain[1:]], [plain[0], columns[1], plain[2]]):
        assert joined(*mixed).to_pylist() == whole.to_pylist()
    assert len(joined(*plain).dictionary) == 4  # batches that come plain share a dictionary,
    monkeypatch.setattr(pair_stages, "TABLE_ROWS", len(plain[0]))
    assert len(joined(*plain).dictionary) == len(whole.dictionary)  # up to so many rows


@pytest.mark.parametrize(
    ("different", "messages", "entries"), [(90, 500, 1000), (50, 500, 500), (90, 0, 900)]
)
def test_items_that_are_rare_in_a_message_have_an_entry_each(different, messages, entries):
    """Of 1000 rows, in which so many of a hundred are different."""
    values = [b"%d" % (n // 100 * 100 + n % different) for n in range(1000)]
    items = pair_stages._Items()
    for start in range(0, 1000, 250):
        items.add(pa.array(values[start : start + 250], pa.large_binary()))
    whole = items.joined(messages)
    assert whole.to_pylist() == values and len(whole.dictionary) == entries
