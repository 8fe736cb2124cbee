"""Relays between blocks and shards: the same results, far fewer messages, and nothing lost or doubled unnoticed."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dpbeam.engine.beam import block_stages, shard_stages, store, trip_messages
from dpbeam.engine.beam.messages import send
from dpbeam.engine.beam.relays import _ReplyToBlocks, _SumOfBlocks
from dpbeam.engine.beam.run import StoredProgram
from dpbeam.engine.beam.store import RunFolder
from dpbeam.engine.in_process import build_blocks
from dpbeam.engine.program import Keys, replies_by_link
from dpbeam.errors import InputError, RunnerError
from dpbeam.kernels import columns, shards
from dpbeam.kernels.columns import decode, pack
from dpbeam.kernels.relays import Relays
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from tests.engine.beam.test_hub import KEY, PAIRS, PROGRAMS, chained, in_process, jobs, on_beam, several_trips
from tests.support.instances import batches
from tests.support.running import key

SIZES = {"num_blocks": 11, "num_shards": 7}
RELAYS = Relays(7, 3, 3)


@pytest.mark.usefixtures("quick_pipelines")
@pytest.mark.parametrize("name", [*several_trips(), *PROGRAMS])
def test_relays_change_nothing_that_is_released(name, tmp_path, monkeypatch):
    program, written = chained(name), set()
    write = store.RunStore.write

    def noted(self, name, columns):
        written.add(name)
        write(self, name, columns)

    monkeypatch.setattr(store.RunStore, "write", noted)
    expected = in_process(program, PAIRS, **SIZES)
    assert expected
    assert on_beam(program, PAIRS, str(tmp_path), relays=RELAYS, **SIZES) == expected
    relayed = {name for name in written if name.startswith("relay-")}
    direct = replies_by_link(program) or "shard-0" not in written
    assert bool(relayed) != direct


def test_a_swept_chain_of_jobs_with_every_bundle_run_twice(tmp_path, monkeypatch):
    monkeypatch.setattr("dpbeam.engine.beam.messages.INLINE_BYTES", 1)
    program, out = chained("mad2r"), str(tmp_path / "out")
    with RunFolder(str(tmp_path), key(KEY)) as folder:
        jobs(folder, program, out, trips_per_job=2, blocks_first=True, repeat=1, relays=RELAYS, **SIZES)
        assert folder.store.names("relay-")
    assert eval(Path(out).read_text()) == in_process(program, PAIRS)


def test_another_road_is_another_program(tmp_path):
    """A folder of a run with relays is none of a run without: its blocks wait for other senders."""
    program = chained("mad2r")
    for mine, other in itertools.permutations((None, RELAYS, Relays(7, 2, 2)), 2):
        with RunFolder(str(tmp_path), key(KEY)) as folder:
            assert StoredProgram.put(folder.store, program, mine) == StoredProgram.put(
                folder.store, program, mine
            )
            with pytest.raises(InputError, match="belongs to other data or settings"):
                StoredProgram.put(folder.store, program, other)


class Road:
    """The stages of one trip by hand, with all elements in sight."""

    def __init__(self, folder):
        self.program = make_plan(SelectionConfig(2.0, 1e-2, "gsu", max_items_per_user=8)).program
        self.store = folder.store
        self.stored = StoredProgram.put(self.store, self.program, RELAYS)
        self.blocks = list(
            build_blocks(batches(PAIRS), Keys(key(KEY)), self.program.cap, num_blocks=11, num_shards=7)
        )

    def stage(self, kind, trip, *args):
        stage = kind(self.stored, trip, *args)
        stage.setup()
        return stage

    def to_relays(self) -> dict[int, list[bytes]]:
        weigh = self.stage(block_stages._FirstWeights, 0, False)
        return by_receiver(e for block in self.blocks for e in weigh.process((block.id, block)))

    def to_shards(self, sent, trip=0) -> dict[int, list[bytes]]:
        stage = self.stage(_SumOfBlocks, trip)
        return by_receiver(e for element in sorted(sent.items()) for e in stage.process(element))


def by_receiver(elements) -> dict[int, list[bytes]]:
    messages: dict[int, list[bytes]] = {}
    for receiver, data in elements:
        messages.setdefault(receiver, []).append(data)
    return messages


@pytest.fixture
def road(tmp_path):
    with RunFolder(str(tmp_path), key(KEY)) as folder:
        yield Road(folder)


def test_a_trip_takes_messages_of_groups_and_ranges_not_of_all_pairs(road):
    sent = road.to_relays()
    assert 25 < sum(map(len, sent.values())) <= len(road.blocks) * 3
    assert set(sent) <= set(range(9))
    arrived = road.to_shards(sent)
    assert set(arrived) == set(range(7))
    direct = sum(len(shards.shard_slices(block)) for block in road.blocks)
    assert 15 < sum(map(len, arrived.values())) <= 3 * 7 < direct / 2
    # What a shard hears is exact: the sums of all blocks.
    summing = road.stage(shard_stages._SumByItem, 0)
    total = 0
    for number, elements in arrived.items():
        ((_, shard),) = summing.process((number, elements))
        total += int(shard.sums["weight"].sum())
    keys = Keys(key(KEY))
    wanted = sum(int(road.program.weigh(0, b, {}, keys)[0]["weight"].sum()) for b in road.blocks)
    assert total == wanted > 0


def test_a_relay_writes_the_same_whatever_the_order_it_hears_in(road):
    sent = road.to_relays()
    first = road.to_shards(sent)
    files = {name: road.store.read_bytes(name) for name in road.store.names("relay-")}
    assert len(files) == len(sent)
    assert road.to_shards({relay: elements[::-1] for relay, elements in sent.items()}) == first
    assert files == {name: road.store.read_bytes(name) for name in files}


def test_lost_and_doubled_sums_stop_the_run(road):
    sent = road.to_relays()
    relay = max(sent, key=lambda number: len(sent[number]))
    with pytest.raises(RunnerError, match=f"the runner doubled a message to relay {relay}"):
        road.to_shards({relay: [*sent[relay], sent[relay][0]]})
    road.to_shards(sent)
    later = [
        {**decode(data), "trip": np.array([1], np.int64)} for data in sent[relay]
    ]  # a second trip with the weights of the first
    elements = [data for _, data in send(road.store, [(relay, message) for message in later])]
    road.to_shards({relay: elements}, trip=1)
    with pytest.raises(RunnerError, match="lost or doubled messages of blocks to relay"):
        road.to_shards({relay: elements[1:]}, trip=1)
    with pytest.raises(RuntimeError, match="arrived on trip"):
        road.to_shards({relay: elements}, trip=2)
    with pytest.raises(RuntimeError, match="not behind it"):
        road.to_shards({(relay + 1) % 3 + relay // 3 * 3: sent[relay]})


def test_lost_doubled_and_strange_replies_stop_the_run(road):
    road.to_shards(road.to_relays())
    stage, relay = road.stage(_ReplyToBlocks, 0), 0
    kept = stage._load(relay)
    rng = np.random.default_rng(1)
    values = rng.integers(0, 9, len(kept)).astype(np.uint16)
    (name, column), *others = road.program.reply_columns[0].items()
    assert not others
    messages = [
        (
            relay,
            trip_messages.addressed(shard, 0) | pack(name, values[part].astype(column.dtype), column.default),
        )
        for shard, part in kept.shard_slices()
    ]
    assert len(messages) > 1
    elements = [data for _, data in send(road.store, messages)]
    replies = dict(stage.process((relay, elements)))
    assert sorted(replies) == kept.block_ids.tolist()
    for position, block in enumerate(kept.block_ids):
        received = columns.unpack(name, decode(replies[block]), column.dtype, column.default)
        assert np.array_equal(received, values[kept.links_of(position)])
    with pytest.raises(RunnerError, match="the runner lost replies to"):
        list(stage.process((relay, elements[1:])))
    with pytest.raises(RunnerError, match="the runner doubled a reply to"):
        list(stage.process((relay, [*elements, elements[0]])))


def test_groups_are_even_and_every_shard_lies_in_one_range():
    relays = Relays(19_500, 441, 45)
    sizes = Counter(relays.of(block, 0) for block in range(195_000))
    assert len(sizes) == 441
    assert max(sizes.values()) < 1.05 * 195_000 / 441
    shards = np.concatenate([relays.shards_of(relay) for relay in range(45, 90)])
    assert np.array_equal(shards, np.arange(19_500))
