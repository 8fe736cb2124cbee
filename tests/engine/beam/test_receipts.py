"""Receipts of units, blocks and shards: those of a whole run hold, and each that lacks or says otherwise stops it."""

import copy

import apache_beam as beam
import pytest

from dpbeam import RunFolder, SelectionConfig, SelectPartitions
from dpbeam.engine.beam.receipts import (
    BATCHES,
    BLOCKS,
    FIRST,
    MET,
    READ,
    RELAYED,
    RELAYS,
    RESULT,
    ROWS,
    SHARDS,
    STATED,
    UNITS,
    ReceiptDoFn,
    batch_number,
    check_receipts,
    plan_reading,
    plan_result,
)
from dpbeam.errors import RunnerError
from dpbeam.kernels.pairs import PairKeys, partition_again, partition_pairs, rows_in
from tests.support import memory_store
from tests.support.instances import random_pairs, to_arrays
from tests.support.pipelines import outcome

#: Of a run of two units, three blocks, two relays and two shards, whose blocks meet on trip 1 and shards on trip 2.
WHOLE = {
    UNITS: {0: 2, 1: 1, 2: 0},
    STATED: {0: 10, 1: 4},
    READ: {0: 9, 1: 5, 2: 0},
    BATCHES: {batch_number(0, 0): 10, batch_number(0, 1): 4, batch_number(1, 0): 0},
    ROWS: {0: 7, 1: 6, 2: 1},
    BLOCKS: {0: 1, 1: 1, 2: 1},
    FIRST: {0: 2, 1: 2, 2: 1},
    RELAYS: {0: 3, 1: 2},
    RELAYED: {0: 2, 1: 1},
    SHARDS: {0: 2, 1: 1},
    MET: {1: 3, 2: 2},
    RESULT: {0: 5, 1: 0},
}
NOTICED = "the runner lost or doubled |not as many rows of the input were read"
MEETS = {1: "blocks", 2: "shards"}


@pytest.fixture(params=["disk", "objects"])
def store(request, tmp_path, monkeypatch):
    memory_store.install(monkeypatch)
    folder = RunFolder("s3://bucket/temp" if request.param == "objects" else str(tmp_path))
    plan_reading(folder.store, [2, 0, 1])
    plan_result(folder.store, MEETS, "shards")
    yield folder.store
    folder.remove()


def leave(store, said) -> None:
    """The receipts of one bundle."""
    fn = ReceiptDoFn(store)
    fn.start_bundle()
    for kind, numbers in said.items():
        for part, number in numbers.items():
            fn.receipt(kind, part, number)
    fn.finish_bundle()


def test_those_of_a_whole_run_hold(store):
    for kind, numbers in WHOLE.items():
        for part, number in numbers.items():
            leave(store, {kind: {part: number}})
    assert check_receipts(store) == 5
    leave(store, WHOLE)  # all of it tried again
    assert check_receipts(store) == 5


@pytest.mark.parametrize("kind", WHOLE)
def test_each_that_lacks_is_noticed(kind, store, tmp_path):
    for part in WHOLE[kind]:
        said = copy.deepcopy(WHOLE)
        del said[kind][part]
        store.remove(store.names("receipts-"))
        leave(store, said)
        if kind == MET or (kind in (BATCHES, READ) and not WHOLE[kind][part]):
            continue  # a run may end before a meeting
        with pytest.raises(RunnerError, match=NOTICED):
            check_receipts(store)


@pytest.mark.parametrize("kind", [kind for kind in WHOLE if kind not in (BLOCKS, RESULT)])
def test_each_that_says_otherwise_is_noticed(kind, store):
    for part, number in WHOLE[kind].items():
        for other in (number + 1, max(number - 1, 0)):
            if other == number:
                continue
            said = copy.deepcopy(WHOLE)
            said[kind][part] = other
            store.remove(store.names("receipts-"))
            leave(store, said)
            with pytest.raises(RunnerError, match=NOTICED):
                check_receipts(store)


def test_a_step_that_says_something_else_when_it_is_made_again_is_noticed(store):
    leave(store, WHOLE)
    leave(store, {ROWS: {0: 8}})
    with pytest.raises(RunnerError, match="made again told of other rows than before"):
        check_receipts(store)


def test_what_a_failed_bundle_said_does_not_count(store):
    leave(store, {**WHOLE, SHARDS: {0: 2}})
    fn = ReceiptDoFn(store)
    fn.start_bundle()
    fn.receipt(SHARDS, 1, 1)
    fn.start_bundle()
    fn.finish_bundle()
    with pytest.raises(RunnerError):
        check_receipts(store)


def test_part_of_the_trips(store):
    """After a job of a chain: what the trips so far have left."""
    rest = {kind: said for kind, said in WHOLE.items() if kind != RESULT}
    built = {kind: rest[kind] for kind in (UNITS, BATCHES, ROWS, BLOCKS)}
    leave(store, built)
    check_receipts(store, 0)
    with pytest.raises(RunnerError, match="blocks"):
        check_receipts(store, 1)
    leave(store, rest)
    check_receipts(store, 1)
    with pytest.raises(RunnerError, match="results"):
        check_receipts(store)


def test_the_hub_on_the_first_trip(tmp_path):
    folder = RunFolder(str(tmp_path))
    plan_result(folder.store, {0: "blocks"}, "one")
    leave(folder.store, {BLOCKS: {4: 1, 9: 1}, FIRST: {4: 1, 9: 1}, MET: {0: 2}, RESULT: {0: 3}})
    assert check_receipts(folder.store) == 3
    leave(folder.store, {BLOCKS: {5: 1}, FIRST: {5: 1}})
    with pytest.raises(RunnerError, match="messages from blocks"):
        check_receipts(folder.store)
    folder.remove()


def test_they_are_files_of_bundles_and_encrypted_as_all_are(tmp_path, monkeypatch):
    monkeypatch.setenv("DPBEAM_FOLDER_KEY", "ab" * 32)
    with RunFolder(str(tmp_path), encrypt=True) as folder:
        leave(folder.store, WHOLE)
        (name,) = folder.store.names("receipts-")
        assert b"batches" not in (tmp_path / folder.path.split("/")[-1] / name).read_bytes()
        assert folder.store.read(name)["rows"].tolist() == [0, 7, 1, 6, 2, 1]


@pytest.mark.parametrize("cap", [1, 3, 1000])
def test_messages_stand_for_all_rows_also_those_of_users_above_the_cap(cap):
    pairs = random_pairs(1, users=40)
    users, items = to_arrays(pairs)
    keys = PairKeys(*(bytes([n]) * 32 for n in range(3)))
    direct = list(partition_pairs(users, items, keys, 12, cap))
    groups = list(partition_pairs(users, items, keys, 12, cap, group=4))
    again = [
        m
        for number in {n for n, _ in groups}
        for m in partition_again([g for n, g in groups if n == number], keys, 12, cap)
    ]
    for messages in (direct, groups, again):
        assert sum(rows_in(message) for _, message in messages) == len(pairs)
    cut = [message for _, message in direct if "cut" in message]
    assert bool(cut) == (cap < 1000)


class TestTransforms:
    """`SelectPartitions` in somebody's own pipeline: the end of the folder's context asks."""

    CONFIG = SelectionConfig(epsilon=5.0, delta=1e-2, method="basic")
    PAIRS = random_pairs(2, users=200)

    def run(self, folder):
        outcome(
            lambda p: p | beam.Create(self.PAIRS) | SelectPartitions(self.CONFIG, run=folder, num_blocks=3)
        )

    def test_a_whole_run_ends_well(self, tmp_path):
        with RunFolder(str(tmp_path)) as folder:
            self.run(folder)
            assert folder.check() > 0
        assert list(tmp_path.iterdir()) == []

    def test_a_lost_shard_is_an_error_at_the_end(self, tmp_path, monkeypatch):
        from dpbeam.engine.beam import shard_stages

        process = shard_stages._Release.process
        monkeypatch.setattr(
            shard_stages._Release, "process", lambda self, e: process(self, e) if e[0] else iter(())
        )
        with (
            pytest.raises(RunnerError, match="the runner lost or doubled results"),
            RunFolder(str(tmp_path)) as folder,
        ):
            self.run(folder)
        assert list(tmp_path.iterdir()) == []

    def test_another_error_is_not_hidden(self, tmp_path):
        with pytest.raises(KeyError), RunFolder(str(tmp_path)) as folder:
            _ = beam.Pipeline() | beam.Create(self.PAIRS) | SelectPartitions(self.CONFIG, run=folder)
            raise KeyError
        assert list(tmp_path.iterdir()) == []
