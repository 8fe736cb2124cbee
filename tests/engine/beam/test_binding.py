"""A key draws noise for one set of data: whatever brings it other data is refused before anything is drawn."""

import hmac
import json
import struct
import threading
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpbeam.engine.beam import block_stages, graph, hub, owner, shard_stages, trip_files
from dpbeam.engine.beam.run import StoredProgram
from dpbeam.engine.beam.store import RunFolder
from dpbeam.engine.binding import digest_of
from dpbeam.engine.in_process import build_blocks, link_shards, run_in_process
from dpbeam.engine.program import Keys
from dpbeam.errors import InputError, UnavailableError
from dpbeam.kernels import shards
from dpbeam.kernels.columns import encode
from dpbeam.kernels.shards import sum_messages
from dpbeam.packing.batches import agent_messages
from dpbeam.packing.config import Market, Resource
from dpbeam.packing.config import make_plan as packing_plan
from dpbeam.packing.family import PackingConfig
from dpbeam.packing.market import build_agents
from dpbeam.packing.program import PackingProgram
from dpbeam.packing.transforms import AgentBlocks, packing_sizes
from dpbeam.randomness import RunKey
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selection.transforms import SelectPartitions
from dpbeam.selectors.registry import selectors
from tests.engine.beam.test_hub import KEY, PAIRS, PROGRAMS, blocks_of, chained, jobs, options
from tests.support import memory_store
from tests.support.instances import batches
from tests.support.markets import batch_of
from tests.support.pipelines import unchecked
from tests.support.running import key

pytestmark = pytest.mark.usefixtures("quick_pipelines")
CONFIG = SelectionConfig(epsilon=1.0, delta=1e-3, method="basic", max_items_per_user=4, noisy_weights=True)
REFUSED = "the noise of this run belongs to other data or settings"
MANY = [(f"u{n}", item) for n in range(400) for item in ("a", "b", f"c{n % 3}")]
WAYS = {"one step": {"pairs": 1_200}, "stages": {"num_blocks": 3, "num_shards": 2}}


def rows_of(path: str) -> list:
    return [tuple(row) for row in json.loads(Path(path).read_text())]


def write(path, rows) -> None:
    Path(path).write_text(json.dumps(rows))


class TestPipelineThatRunsTwice:
    @pytest.fixture(params=WAYS)
    def pipeline(self, request, tmp_path):
        """Reads (user, item) of the file `in`, writes `out`; its folder stays while the test runs."""
        with unchecked(RunFolder(str(tmp_path / "temp"))) as folder:
            made = beam.Pipeline(options=options())
            released = (
                made
                | beam.Create([str(tmp_path / "in")])
                | beam.FlatMap(rows_of)
                | SelectPartitions(CONFIG, run=folder, **WAYS[request.param])
                | beam.combiners.ToList()
            )
            _ = released | beam.Map(lambda rows, path: write(path, sorted(rows)), str(tmp_path / "out"))
            yield made

    def run(self, pipeline, folder, rows) -> list:
        write(folder / "in", rows)
        (folder / "out").unlink(missing_ok=True)
        pipeline.run().wait_until_finish()
        return rows_of(folder / "out")

    @pytest.mark.parametrize(
        "change",
        [
            lambda rows: [*rows, ("one more", "a")],
            lambda rows: [*rows[:-1], (rows[-1][0], "b"), (rows[-1][0], "new")],
        ],
    )
    def test_on_other_data_it_is_refused(self, change, pipeline, tmp_path):
        assert len(self.run(pipeline, tmp_path, MANY)) > 2
        with pytest.raises(Exception, match=REFUSED):
            self.run(pipeline, tmp_path, change(MANY))
        assert not (tmp_path / "out").exists()

    def test_on_the_same_data_in_another_order_it_gives_the_same(self, pipeline, tmp_path):
        assert self.run(pipeline, tmp_path, MANY) == self.run(pipeline, tmp_path, MANY[::-1])


class TestStages:
    """The places where noise is drawn, by hand: a retry draws again for the same data alone."""

    @pytest.fixture
    def store(self, tmp_path):
        with unchecked(RunFolder(str(tmp_path), key(KEY))) as folder:
            yield folder.store

    def shard(self, program, pairs):
        blocks = list(build_blocks(batches(pairs), Keys(key(KEY)), program.cap, num_blocks=2, num_shards=1))
        (shard,) = link_shards(blocks)
        sent = {block.id: program.weigh(0, block, {}, Keys(key(KEY)))[0] for block in blocks}
        shard.sums = sum_messages(shard, program.sum_names(0), sent)
        return shard

    def blocks(self, program, pairs):
        return list(build_blocks(batches(pairs), Keys(key(KEY)), program.cap, num_blocks=1, num_shards=2))

    @pytest.mark.parametrize("kept", [False, True], ids=["sent", "kept for the next job"])
    @pytest.mark.parametrize("name", [*PROGRAMS, *selectors()])
    def test_blocks(self, name, kept, store):
        """One that is built again from other pairs is neither sent nor stored."""
        program = chained(name)
        stored = StoredProgram.put(store, program)
        stage = graph.KeepBlock(stored, 0) if kept else block_stages._FirstWeights(stored, 0, False)
        stage.setup()

        def leave(pairs) -> list:
            (block,) = self.blocks(program, pairs)
            return list(stage.process((block.id, block)))

        sent = leave(PAIRS)
        assert len(leave(PAIRS[::-1])) == len(sent) > 0
        files = {name: store.read_bytes(name) for name in store.names("block-")}
        assert bool(files) == (kept or trip_files.keeps_blocks(program))
        user, item = PAIRS[0]
        for other in (
            PAIRS[1:],
            [*PAIRS, ("new", item)],
            [("new", item), *PAIRS[1:]],
            [(user, "new"), *PAIRS[1:]],
        ):
            with pytest.raises(InputError, match=REFUSED):
                leave(other)
        assert files == {name: store.read_bytes(name) for name in store.names("block-")}

    @pytest.mark.parametrize("name", ["basic", "gsu"])
    def test_no_user_counts_in_one_shard_for_this_and_in_another_for_that(self, name, store):
        """A user of D0 = 1 changes its item after the shard of the first has drawn, before that of the second does."""
        program = make_plan(SelectionConfig(1.0, 1e-5, name, max_items_per_user=1)).program
        names = [f"i{n}" for n in range(40)]
        shard_of = {item: shards.shard_slices(self.blocks(program, [("w", item)])[0])[0][0] for item in names}
        mine, theirs = ([item for item in names if shard_of[item] == shard][:2] for shard in (0, 1))
        others = [("o", mine[1]), ("p", theirs[1])]
        stages = [block_stages._FirstWeights(StoredProgram.put(store, program), 0, False)]
        stages += [kind(stages[0]._stored, 0) for kind in (shard_stages._SumByItem, shard_stages._Noise)]
        for stage in stages:
            stage.setup()
        weigh, add_up, draw = stages

        def draw_in(shard, pairs) -> int:
            (block,) = self.blocks(program, pairs)
            messages = [data for receiver, data in weigh.process((block.id, block)) if receiver == shard]
            ((_, summed),) = add_up.process((shard, messages))
            ((_, noisy),) = draw.process((shard, summed))
            return len(noisy)

        assert draw_in(0, [("v", mine[0]), *others]) == 2
        with pytest.raises(InputError, match=REFUSED):
            draw_in(1, [("v", theirs[0]), *others])
        assert draw_in(1, [("v", mine[0]), *others]) == 1

    def test_blocks_of_agents(self, store):
        """What the input says of each user is part of its block."""
        market = Market((Resource("beds", 500),), num_agents=1_000)
        program = PackingProgram(packing_plan(PackingConfig(4.0, 1e-6, alpha=0.9), market))
        stage = block_stages._FirstWeights(StoredProgram.put(store, program), 0, False)
        stage.setup()

        def send(*values):
            batch = batch_of(np.array(values), np.ones((len(values), 1)))
            ((_, message),) = agent_messages(batch, market, None, Keys(key(KEY)).pairs.user, 1)
            return list(stage.process((0, build_agents(0, [message]))))

        assert send(0.5, 0.25) == send(0.5, 0.25) != []
        for other in [(0.5, 0.5), (0.5,), (0.5, 0.25, 0.25)]:
            with pytest.raises(InputError, match=REFUSED):
                send(*other)

    @pytest.mark.parametrize("name", [name for name in selectors() if chained(name).noise(0) is not None])
    def test_noise_of_items(self, name, store):
        program = chained(name)
        stage = shard_stages._Noise(StoredProgram.put(store, program), 0)
        stage.setup()
        first, again = (next(iter(stage.process((0, self.shard(program, PAIRS)))))[1] for _ in range(2))
        assert first.state.keys() == again.state.keys()
        assert all(np.array_equal(first.state[n], again.state[n]) for n in first.state)
        for other in (PAIRS[1:], [*PAIRS, ("new", PAIRS[0][1])], [*PAIRS, ("new", "item")]):
            with pytest.raises(InputError, match=REFUSED):
                list(stage.process((0, self.shard(program, other))))

    def test_the_hub(self, store):
        program = PROGRAMS["blocks and hub"]
        stage = hub._Decide(StoredProgram.put(store, program), 0)
        stage.setup()

        def meet(counts, item=b"i"):
            summary = {"from": np.array([4]), "trip": np.array([0]), "fp": np.ones((1, 2), np.uint64)}
            summary |= {"counts": np.array([counts]), "items": pa.array([item], pa.large_binary())}
            return list(stage.process((0, [encode(summary)])))

        assert meet(7) == meet(7)
        for other in [(8,), (7, b"j")]:
            with pytest.raises(InputError, match=REFUSED):
                meet(*other)

    def test_one_step(self, store):
        program = PROGRAMS["shards, hub and blocks"]
        stage = graph._AllTrips(StoredProgram.put(store, program), 0)
        stage.setup()

        def run(pairs):
            blocks = build_blocks(batches(pairs), Keys(key(KEY)), program.cap, num_blocks=2, num_shards=2)
            parts = [encode(block.to_columns(with_items=True)) for block in blocks]
            return [batch.to_pylist() for batch in stage.process((0, parts[::-1]))]

        assert run(PAIRS) == run(PAIRS) != []
        with pytest.raises(InputError, match=REFUSED):
            run(PAIRS[1:])


class TestFolder:
    """One that is opened again goes on with its own data and settings."""

    @pytest.fixture
    def folder(self, tmp_path):
        """Of a run that came to its end, and whose folder was not removed."""
        run = RunFolder(str(tmp_path), key(KEY))
        jobs(run, chained("dp-sips"), str(tmp_path / "out"), trips_per_job=32)
        yield run
        run.remove()

    def test_of_a_living_run(self, folder, tmp_path):
        with pytest.raises(UnavailableError, match="is the private folder of a run that is still going"):
            RunFolder.resume(folder.path)
        folder.leave()
        RunFolder.resume(folder.path)
        assert owner.state_of(folder.path) == "alive"

    @pytest.mark.parametrize(
        "change",
        [{"program": "mad2r"}, {"num_shards": 3}, {"num_blocks": 2}],
        ids=["program", "shards", "blocks"],
    )
    def test_with_other_settings(self, change, folder, tmp_path):
        folder.leave()
        program = chained(change.get("program", "dp-sips"))
        sizes = {name: value for name, value in change.items() if name != "program"}
        with pytest.raises(InputError, match=REFUSED):
            jobs(RunFolder.resume(folder.path), program, str(tmp_path / "again"), trips_per_job=32, **sizes)

    def test_another_way(self, folder):
        """All trips in one step would be bound in another place."""
        folder.leave()
        again, program = RunFolder.resume(folder.path), chained("dp-sips")
        blocks = blocks_of(beam.Pipeline(options=options()), again.store, program, PAIRS[1:])
        with pytest.raises(InputError, match=REFUSED):
            _ = blocks | graph.RunProgram(again.store, program, one_step=True)

    def test_with_other_blocks_of_agents(self, tmp_path):
        plan = packing_plan(
            PackingConfig(4.0, 1e-6, alpha=0.9), Market((Resource("beds", 500),), num_agents=1_000)
        )
        with RunFolder(str(tmp_path), key(KEY)) as run:

            def build(blocks):
                rows = beam.Pipeline(options=options()) | beam.Create([]).with_output_types(pa.RecordBatch)
                return rows | AgentBlocks(run.store, plan, packing_sizes(plan.market, blocks))

            build(2), build(2)
            with pytest.raises(InputError, match=REFUSED):
                build(3)

    def test_with_other_data(self, folder, tmp_path, monkeypatch):
        folder.leave()
        again, out = RunFolder.resume(folder.path), str(tmp_path / "again")
        jobs(again, chained("dp-sips"), out, trips_per_job=32)
        assert Path(out).read_text() == (tmp_path / "out").read_text()
        monkeypatch.setattr("tests.engine.beam.test_hub.PAIRS", PAIRS[1:])
        with pytest.raises(Exception, match=REFUSED):
            jobs(again, chained("dp-sips"), str(tmp_path / "other"), trips_per_job=32)
        assert not (tmp_path / "other").exists()


class TestKeys:
    def test_a_key_of_known_bytes_begins_no_run(self, tmp_path):
        with RunFolder(str(tmp_path)) as folder:
            read = folder.store.run_key()
            for used in (RunKey(bytes(range(32))), read, RunKey(RunKey.fresh().secret_bytes())):
                with pytest.raises(ValueError, match="or was made from bytes that may have"):
                    RunFolder(str(tmp_path), used)
                with pytest.raises(ValueError, match="or was made from bytes that may have"):
                    run_in_process(chained("gsu"), batches(PAIRS), used)
        RunFolder(str(tmp_path), RunKey.fresh()).remove()


class TestStore:
    """`RunStore.bind` on a filesystem with links, on one without, and on objects."""

    @pytest.fixture(params=["links", "no links", "objects"])
    def store(self, request, tmp_path, monkeypatch):
        if request.param == "no links":

            def refuses(*_):
                raise OSError(95, "Operation not supported")

            monkeypatch.setattr("os.link", refuses)
        memory_store.install(monkeypatch)
        place = "s3://bucket/temp" if request.param == "objects" else str(tmp_path)
        with RunFolder(place, key(KEY)) as folder:
            yield folder.store

    def test_the_first_digest_stays(self, store):
        assert store.bind("a", b"1" * 32) and store.bind("a", b"1" * 32)
        assert not store.bind("a", b"2" * 32)
        assert store.bind("a b", b"2" * 32)
        assert [name for name in store.names("") if ".tmp-" in name] == []

    def test_of_many_at_once_one_at_most_may_draw(self, store):
        for attempt in range(5):
            start, won = threading.Barrier(8), []

            def compete(digest, attempt=attempt, start=start, won=won):
                start.wait()
                if store.bind(f"place-{attempt}", digest):
                    won.append(digest)

            threads = [threading.Thread(target=compete, args=(bytes([n % 3]) * 32,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(set(won)) <= 1


class TestDigest:
    KEY = bytes(32)
    BASE = ({"a": np.array([1, 2]), "b": pa.array([b"x", b"yz"], pa.large_binary())},)

    @pytest.mark.parametrize(
        "other",
        [
            (),
            ({"a": np.array([1, 2])}, {"b": BASE[0]["b"]}),
            ({**BASE[0], "a": np.array([1, 3])},),
            ({**BASE[0], "a": np.array([1, 2], np.int32)},),
            ({**BASE[0], "a": np.array([[1, 2]])},),
            ({**BASE[0], "b": pa.array([b"xy", b"z"], pa.large_binary())},),
            ({**BASE[0], "b": pa.array([b"x", b"yz", b""], pa.large_binary())},),
            ({"a": BASE[0]["a"], "c": BASE[0]["b"]},),
        ],
    )
    def test_what_differs_has_another(self, other):
        assert digest_of(self.KEY, other) != digest_of(self.KEY, self.BASE)

    def test_equal_values_have_the_same(self):
        """However they lie in memory."""
        sliced = pa.array([b"no", b"x", b"yz", b"no"], pa.large_binary()).slice(1, 2)
        strided = np.array([1, 0, 2, 0])[::2]
        assert digest_of(self.KEY, ({"b": sliced, "a": strided},)) == digest_of(self.KEY, self.BASE)
        assert digest_of(bytes([1]) * 32, self.BASE) != digest_of(self.KEY, self.BASE)
        empty = ({"b": pa.array([], pa.large_binary()), "a": np.zeros((0, 2), np.uint64)},)
        assert digest_of(self.KEY, empty) != digest_of(self.KEY, self.BASE)

    @pytest.mark.parametrize("at_once", [1, 16, 1 << 30])
    def test_by_its_law(self, at_once, monkeypatch):
        """HMAC of the GMAC of all parts, each after its length, from the one-shot interface; long ones in pieces."""
        monkeypatch.setattr("dpbeam.engine.binding._AT_ONCE", at_once)
        cells = [
            *(b"<i8 (2,) a", np.array([1, 2], "<i8").tobytes()),
            *(b"text b", np.array([1, 2], "<i8").tobytes(), b"xyz"),
        ]
        encoded = struct.pack("<Q", 2) + b"".join(struct.pack("<Q", len(cell)) + cell for cell in cells)
        key = hmac.digest(self.KEY, b"universal hash", "sha256")
        tag = AESGCM(key).encrypt(bytes(12), b"", encoded)
        assert digest_of(self.KEY, self.BASE) == hmac.digest(self.KEY, tag, "sha256") != tag

    def test_of_more_than_two_gigabytes(self):
        many = np.zeros(1 << 28, np.uint64)
        assert digest_of(self.KEY, ({"a": many},)) != digest_of(self.KEY, ({"a": many[1:]},))
