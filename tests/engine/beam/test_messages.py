"""Messages: small ones inline, large ones through the run's folder, the same on both ways, whole or not at all."""

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from dpbeam.engine.beam import block_stages, messages
from dpbeam.engine.beam import store as store_module
from dpbeam.engine.beam.messages import FILE_PREFIX, INLINE_BYTES, inline_bytes, receive, send
from dpbeam.engine.beam.run import StoredProgram
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.kernels.columns import encode


def letters(sizes, seed=0):
    """Messages of about these bytes, which do not compress, to receivers 7, 8, ..."""
    rng = np.random.default_rng(seed)
    return [
        (7 + number, {"from": np.array([number]), "data": rng.integers(0, 256, size, np.uint8)})
        for number, size in enumerate(sizes)
    ]


def same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert np.array_equal(left[name], right[name])


@pytest.fixture
def store(tmp_path):
    return RunStore(str(tmp_path))


LIMIT = inline_bytes(RunStore("/local/folder"))
SIZES = [10, 3 * LIMIT, 0, LIMIT, 1_000, LIMIT - 2_000]


def test_a_request_to_an_object_store_is_worth_a_larger_message():
    assert LIMIT < INLINE_BYTES == inline_bytes(RunStore("s3://bucket/folder"))


def test_every_message_arrives_as_it_was_sent(store):
    sent = letters(SIZES)
    elements = list(send(store, sent))
    assert sorted(to for to, _ in elements) == [to for to, _ in sent]
    for (to, element), columns in zip(elements, receive(store, (data for _, data in elements)), strict=True):
        same(columns, sent[to - 7][1])
        assert len(element) < LIMIT


class TestInMemory:
    """Where all steps are made in one process: nothing is written, and each message is taken once."""

    @pytest.fixture
    def run(self, tmp_path):
        with RunFolder(str(tmp_path)) as folder:
            folder.store.in_memory = True
            yield folder

    def test_messages_are_held_over_as_they_are(self, run):
        there = os.listdir(run.path)
        sent = letters(SIZES)
        elements = list(send(run.store, sent))
        assert os.listdir(run.path) == there
        assert [to for to, _ in elements] == [to for to, _ in sent]
        assert all(len(element) < 50 for _, element in elements)
        worker = pickle.loads(pickle.dumps(run.store))  # as a step carries it
        received = list(receive(worker, (data for _, data in elements)))
        assert all(columns is handed for columns, (_, handed) in zip(received, sent, strict=True))

    def test_what_is_no_columns_is_packed_for_files_alone(self, run, tmp_path):
        def read(store, messages):
            elements = dict(send(store, messages, pack=lambda text: {"text": pa.array([text], pa.binary())}))
            return list(receive(store, elements.values(), lambda columns: columns["text"][0].as_py()))

        messages = [(1, b"few"), (2, b"many" * LIMIT)]
        with RunFolder(str(tmp_path)) as other:
            assert read(other.store, messages) == [text for _, text in messages]
        assert all(one is other for one, (_, other) in zip(read(run.store, messages), messages, strict=True))

    def test_a_message_is_taken_once(self, run):
        ((_, element),) = send(run.store, letters([10]))
        list(receive(run.store, [element]))
        with pytest.raises(RuntimeError, match="was taken before"):
            list(receive(run.store, [element]))

    def test_what_nobody_took_goes_with_the_folder(self, run):
        ((_, element),) = send(run.store, letters([10]))
        assert run.path in store_module._kept_by_run
        run.remove()
        assert run.path not in store_module._kept_by_run
        with pytest.raises(RuntimeError, match="was taken before"):
            list(receive(run.store, [element]))

    def test_threads_that_send_first_at_once_send_to_one_place(self, run, monkeypatch):
        both = threading.Barrier(2)
        begin = store_module._KeptHere.__init__

        def at_once(kept):
            both.wait(60)
            begin(kept)

        monkeypatch.setattr(store_module._KeptHere, "__init__", at_once)
        with ThreadPoolExecutor(2) as pool:
            elements = list(pool.map(lambda letter: next(send(run.store, [(0, letter)]))[1], "ab"))
        assert list(receive(run.store, elements)) == ["a", "b"]

    def test_a_run_has_its_own(self, run, tmp_path):
        with RunFolder(str(tmp_path)) as other:
            ((_, element),) = send(run.store, letters([10]))
            with pytest.raises(RuntimeError, match="another process"):
                list(receive(other.store, [element]))


def test_large_messages_share_a_file_and_small_ones_have_none(store):
    elements = dict(send(store, letters(SIZES)))
    (name,) = os.listdir(store.path)
    assert name.startswith(FILE_PREFIX)
    large = [encode(letters(SIZES)[number][1]) for number in (1, 3)]
    assert store.read_bytes(name) == b"".join(large)
    assert all(len(elements[to]) < 100 for to in (8, 10))
    assert all(elements[to] == encode(letters(SIZES)[to - 7][1]) for to in (7, 9, 11, 12))
    list(send(store, letters([5, 6])))
    assert os.listdir(store.path) == [name]


def test_a_reference_leaves_only_when_its_file_is_whole(store):
    """A receiver that runs at once finds the file; small messages need not wait."""
    seen = []
    for _, element in send(store, letters(SIZES)):
        seen.append(element.startswith(messages._REFERENCE))
        (columns,) = receive(store, [element])
        assert len(columns["data"]) in SIZES
    assert seen == [False] * 4 + [True] * 2


def test_a_retry_never_touches_what_was_sent_before(store):
    first = list(send(store, letters(SIZES)))
    before = {name: store.read_bytes(name) for name in os.listdir(store.path)}
    second = list(send(store, letters(SIZES, seed=1)[::-1]))
    assert {name: store.read_bytes(name) for name in before} == before
    for seed, elements in ((0, first), (1, second)):
        for (to, _), columns in zip(elements, receive(store, [e for _, e in elements]), strict=True):
            same(columns, letters(SIZES, seed)[to - 7][1])


@pytest.mark.parametrize("stop", ["raise", "close"])
def test_a_sender_that_stops_leaves_no_file(stop, store):
    def broken():
        yield from letters(SIZES)[:2]
        yield from letters([3])
        if stop == "raise":
            raise OSError("no space left")
        yield from letters([4])

    sending = send(store, broken())
    if stop == "raise":
        with pytest.raises(OSError, match="no space left"):
            list(sending)
    else:
        assert [len(next(sending)[1]) for _ in range(2)]
        assert len(os.listdir(store.path)) == 1
        sending.close()
    assert os.listdir(store.path) == []


def test_a_lost_or_cut_file_is_an_error_and_never_an_empty_message(store):
    elements = [element for _, element in send(store, letters([2 * LIMIT]))]
    (name,) = os.listdir(store.path)
    path = os.path.join(store.path, name)
    os.truncate(path, os.path.getsize(path) - 1)
    with pytest.raises(OSError, match="ends 1 bytes too early"):
        list(receive(store, elements))
    os.remove(path)
    with pytest.raises(FileNotFoundError):
        list(receive(store, elements))


def test_replies_on_a_store_are_fetched_several_at_once(store):
    """Such a store takes milliseconds to answer."""
    at_once = threading.Barrier(3)

    class Elsewhere(RunStore):
        is_near = False

        def read_range(self, name, offset, size):
            at_once.wait(10)
            return store.read_range(name, offset, size)

    sent = letters([2 * LIMIT] * 6)
    elements = (data for _, data in send(store, sent))
    weigh = block_stages._LaterWeights(StoredProgram(elsewhere := Elsewhere(store.path), "program"), 1)
    for (_, columns), received in zip(sent, receive(elsewhere, weigh._waiting(0, elements)), strict=True):
        same(columns, received)
    assert list(receive(elsewhere, weigh._waiting(0, []))) == []


def test_a_worker_that_outlives_the_run_does_not_bring_its_folder_back(tmp_path):
    gone = RunStore(str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError):
        list(send(gone, letters([LIMIT])))
    assert os.listdir(tmp_path) == []


def test_no_inline_message_looks_like_a_reference():
    for columns in ({}, {"a": np.zeros(0)}, {"a": pa.array([b"x" * 2_000], pa.large_binary())}):
        assert not encode(columns).startswith(messages._REFERENCE[:1])
