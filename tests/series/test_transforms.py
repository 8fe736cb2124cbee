"""Nights on an engine: the same bytes as in one process, mixed with such nights, and made once."""

import os
from dataclasses import replace

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.errors import InputError, UnavailableError
from dpbeam.kernels.canonical import METADATA_KEY, Kinds
from dpbeam.randomness import RunKey
from dpbeam.series import transforms
from dpbeam.series.family import SeriesConfig
from dpbeam.series.folder import Folder, RemoteFolder
from dpbeam.series.night_program import NightProgram
from dpbeam.series.parts import OpenItems, PartFiles
from dpbeam.series.saved import FULL
from dpbeam.series.schedule import Schedule
from dpbeam.series.state import SeriesState
from dpbeam.series.store import SeriesStore
from dpbeam.series.transforms import SeriesNight
from dpbeam.series.window import SeriesWindow
from dpbeam.storage import lease
from tests.series.streams import arrays, random_nights, released
from tests.support import memory_store

STRINGS = Kinds("string", ("string",)).metadata()
UNEVEN = Schedule((1, 2, 2, 2, 3, 4), (0.1, 0.1, 0.1, 0.1, 0.2, 0.4), (0.1, 0.1, 0.1, 0.1, 0.1, 0.5))


def config(**more) -> SeriesConfig:
    settings = {"preset": None, "schedule": UNEVEN, "max_items_per_user": 6, "saved_norm": 1.0}
    return SeriesConfig(4.0, 0.1, 4, **{**settings, **more})


def batches(pairs, size=50):
    columns = [column.cast(pa.large_string()) for column in arrays(pairs)]
    whole = pa.RecordBatch.from_arrays(columns, ["user", "item"])
    return [whole.slice(start, size) for start in range(0, whole.num_rows, size)]


def in_process(window, number, pairs):
    return window.run(number, *arrays(pairs), STRINGS[METADATA_KEY])


def on_engine(folder, number, pairs, *, num_blocks=3, num_shards=2, commit=True):
    folder = folder if isinstance(folder, Folder) else str(folder)
    with SeriesNight(folder, night=number, num_blocks=num_blocks, num_shards=num_shards) as night:
        with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
            came = pipeline | beam.Create(batches(pairs), reshuffle=False) if pairs else pipeline
            _ = came | "Night" >> night
        return night.commit() if commit else None


def same(state, other):
    for name, values in state.to_columns().items():
        assert np.array_equal(np.asarray(values), np.asarray(other.to_columns()[name])), name


@pytest.mark.usefixtures("beams_runner")
def test_nights_on_an_engine_and_in_a_process_are_the_same(tmp_path):
    nights = random_nights(3)
    nights[1] = []
    memory = SeriesWindow.open(config(), RunKey.insecure_fixed("a"))
    SeriesWindow.open(config(), RunKey.insecure_fixed("a"), folder=str(tmp_path / "f"))
    for number, (way, pairs) in enumerate(zip("pepe", nights), start=1):
        expected = in_process(memory, number, pairs)
        window = SeriesWindow.load(str(tmp_path / "f"))
        if way == "e":
            on_engine(tmp_path / "f", number, pairs)
        else:
            in_process(window, number, pairs)
        state = window.whole(window.snapshot)
        same(state, expected)
        assert window.snapshot.digests == memory.snapshot.digests
    assert len(released(state)) > 3


def test_a_step_that_an_engine_makes_again_is_charged_once(tmp_path, monkeypatch):
    """Retried or made beside itself: neither block nor program remembers what it has given before."""
    nights, weigh = random_nights(3)[:2], NightProgram.weigh
    memory = SeriesWindow.open(config(), RunKey.insecure_fixed("a"))
    SeriesWindow.open(config(), RunKey.insecure_fixed("a"), folder=str(tmp_path / "f"))
    expected = [in_process(memory, number, pairs) for number, pairs in enumerate(nights, start=1)]

    def twice(self, trip, block, reply, keys):
        weigh(self, trip, block, reply, keys)
        return weigh(self, trip, block, reply, keys)

    monkeypatch.setattr(NightProgram, "weigh", twice)
    for number, pairs in enumerate(nights, start=1):
        on_engine(tmp_path / "f", number, pairs)
    window = SeriesWindow.load(str(tmp_path / "f"))
    same(window.whole(window.snapshot), expected[-1])
    assert 0 < expected[-1].energy.min() < FULL


def test_what_a_night_sends_is_bound(tmp_path, monkeypatch):
    """Its users, and what open items have gathered on the nights before."""
    bound, bind = set(), RunStore.bind
    monkeypatch.setattr(
        RunStore, "bind", lambda self, place, digest: (bound.add(place), bind(self, place, digest))[1]
    )
    SeriesWindow.open(config(), RunKey.insecure_fixed("n"), folder=str(tmp_path / "f"))
    for night, pairs in enumerate(random_nights(2)[:2], start=1):
        bound.clear()
        on_engine(tmp_path / "f", night, pairs)
        gathered = range(3, 5) if night > 1 else ()
        assert {p for p in bound if p.startswith("block")} == {f"block-{n}" for n in (*range(3), *gathered)}


def test_erased_users_and_late_items_and_counts(tmp_path):
    """Erasure of parts is that of the whole; an item whose holders are gone goes on with its noise."""
    settings = config(noisy_counts=True, noisy_count_share=0.3)
    nights = random_nights(10)
    memory = SeriesWindow.open(settings, RunKey.insecure_fixed("b"))
    SeriesWindow.open(settings, RunKey.insecure_fixed("b"), folder=str(tmp_path / "f"))
    gone = pa.array([f"user {user}".encode() for user in range(0, 60, 2)] + [b"stranger"], pa.large_binary())
    for number, pairs in enumerate(nights, start=1):
        expected = in_process(memory, number, pairs)
        on_engine(tmp_path / "f", number, pairs)
        window = SeriesWindow.load(str(tmp_path / "f"))
        same(window.whole(window.snapshot), expected)
        if number in (1, 2):
            before = window.snapshot.number
            memory.erase(gone), window.erase(gone)
            same(window.whole(window.snapshot), memory.snapshot.state)
            assert window.snapshot.number == before + 1
            window.erase(gone)  # nobody is left to be erased
            assert window.snapshot.number == before + 1
    assert len(released(expected)) > 3 and expected.released_count.any()
    window.close(), memory.close()
    same(window.snapshot.state, memory.snapshot.state)
    assert not any(name.startswith("part-") for name in os.listdir(tmp_path / "f"))


def test_parts_become_more_and_never_fewer(tmp_path):
    nights = random_nights(4)
    memory = SeriesWindow.open(config(), RunKey.insecure_fixed("c"))
    SeriesWindow.open(config(), RunKey.insecure_fixed("c"), folder=str(tmp_path / "f"))
    for number, (blocks, shards, becomes) in enumerate([(2, 1, (2, 1)), (5, 3, (4, 3)), (1, 1, (4, 3))]):
        expected = in_process(memory, number + 1, nights[number])
        on_engine(tmp_path / "f", number + 1, nights[number], num_blocks=blocks, num_shards=shards)
        window = SeriesWindow.load(str(tmp_path / "f"))
        assert (len(window.snapshot.parts.blocks), len(window.snapshot.parts.shards)) == becomes
        same(window.whole(window.snapshot), expected)


def test_a_user_of_many_items_is_cut_alike(tmp_path):
    """More than twice D0 of a user on one night, some of them held or out before."""
    nights = [[(f"user {u}", f"item {i}") for u in range(40) for i in range(n, 60, n)] for n in (7, 1)]
    memory = SeriesWindow.open(config(), RunKey.insecure_fixed("d"))
    SeriesWindow.open(config(), RunKey.insecure_fixed("d"), folder=str(tmp_path / "f"))
    for number, pairs in enumerate(nights, start=1):
        expected = in_process(memory, number, pairs)
        on_engine(tmp_path / "f", number, pairs)
        window = SeriesWindow.load(str(tmp_path / "f"))
        same(window.whole(window.snapshot), expected)
    assert expected.used.max() == 6


def test_a_night_again_is_looked_up_and_other_pairs_are_refused(tmp_path):
    nights, folder = random_nights(5), tmp_path / "f"
    SeriesWindow.open(config(), RunKey.insecure_fixed("e"), folder=str(folder))
    on_engine(folder, 1, nights[0])
    state = on_engine(folder, 2, nights[1])
    before = {name: (folder / name).read_bytes() for name in os.listdir(folder)}
    assert released(on_engine(folder, 1, nights[0][::-1], num_blocks=4)) == released(state)
    for pairs in ([*nights[0], ("stranger", "item 1")], []):
        with pytest.raises(InputError, match="night 1 is out, and was made from other pairs"):
            on_engine(folder, 1, pairs)
    window = SeriesWindow.load(str(folder))
    in_process(window, 2, nights[1])
    with pytest.raises(InputError, match="other pairs"):
        in_process(window, 2, nights[0])
    with pytest.raises(InputError, match="night 3 comes next"):
        on_engine(folder, 4, nights[3])
    assert {name: (folder / name).read_bytes() for name in os.listdir(folder)} == before


@pytest.mark.parametrize("place", ["shards", "state"])  # the simulator kills elsewhere too
def test_a_night_that_was_killed_is_made_by_the_next(tmp_path, monkeypatch, place):
    """Wherever it stood, and whatever the killed one would have made of other pairs: what comes is undisturbed."""
    nights, folder = random_nights(6), tmp_path / "f"
    memory = SeriesWindow.open(config(), RunKey.insecure_fixed("g"))
    SeriesWindow.open(config(), RunKey.insecure_fixed("g"), folder=str(folder))
    in_process(memory, 1, nights[0])
    in_process(SeriesWindow.load(str(folder)), 1, nights[0])
    before = {name: (folder / name).read_bytes() for name in os.listdir(folder)}
    at = {"shards": (transforms._KeepShard, "process"), "state": (SeriesStore, "commit")}[place]
    calls = []

    def killed(*arguments, **options):
        calls.append(place)
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(*at, killed)
        patch.setattr(RunFolder, "remove", lambda self: None)  # nobody cleans up after kill -9
        with pytest.raises(RuntimeError, match="killed"):
            on_engine(folder, 2, nights[1])
    assert calls
    left = set(os.listdir(folder)) - set(before)
    assert any(name.startswith("work-") for name in left)
    assert {name: (folder / name).read_bytes() for name in before} == before
    window = SeriesWindow.load(str(folder))
    assert window.snapshot.state.night == 1  # nothing of it counts
    same(window.whole(window.snapshot), memory.snapshot.state)
    on_engine(folder, 2, nights[1]), in_process(memory, 2, nights[1])
    window = SeriesWindow.load(str(folder))
    same(window.whole(window.snapshot), memory.snapshot.state)
    kept = {name for name in os.listdir(folder) if name.startswith(("part-", "work-"))}
    assert kept == set(window.snapshot.parts.names)


def test_erasure_removes_what_a_killed_night_has_left(tmp_path, monkeypatch):
    nights, folder = random_nights(6), tmp_path / "f"
    SeriesWindow.open(config(), RunKey.insecure_fixed("g"), folder=str(folder))
    on_engine(folder, 1, nights[0])
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "remove", lambda self: None)
        on_engine(folder, 2, nights[1], commit=False)
    window = SeriesWindow.load(str(folder))
    window.erase(pa.array([b"nobody that is here"], pa.large_binary()))
    kept = {name for name in os.listdir(folder) if name.startswith(("part-", "work-"))}
    assert kept == set(window.snapshot.parts.names)


def test_one_makes_a_night_at_a_time_and_a_state_once(tmp_path):
    nights, folder = random_nights(7), tmp_path / "f"
    SeriesWindow.open(config(), RunKey.insecure_fixed("h"), folder=str(folder))
    with SeriesNight(str(folder)) as night:
        with pytest.raises(UnavailableError, match="another run of the series"):
            in_process(SeriesWindow.load(str(folder)), 1, nights[0])
        with pytest.raises(UnavailableError), SeriesNight(str(folder)):
            pass
        with pytest.raises(ValueError, match="has not run to its end"):
            night.commit()
        with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
            _ = pipeline | beam.Create(batches(nights[0])) | night
        # Somebody who takes no notice of locks was faster.
        night._window.store.commit(1, night._window.snapshot.to_bytes())
        with pytest.raises(UnavailableError, match="was faster"):
            night.commit()


def test_ids_of_other_types_and_a_place_out_of_reach_are_refused(tmp_path):
    nights, folder = random_nights(8), tmp_path / "f"
    SeriesWindow.open(config(), RunKey.insecure_fixed("i"), folder=str(folder))
    with SeriesNight(str(folder), night=1, pairs=10) as night:
        with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
            _ = pipeline | beam.Create(nights[0]) | night  # tuples, as of `SelectPartitions`
        assert night.any_pairs
        night.commit()
    with (
        pytest.raises(Exception, match="other types than on earlier nights"),
        SeriesNight(str(folder)) as night,
        beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline,
    ):
        _ = pipeline | beam.Create([(1, "item 1")]) | night
    with (
        pytest.raises(InputError, match="out of reach"),
        SeriesNight(SeriesWindow.open(config(), RunKey.fresh())),
    ):
        pass
    with pytest.raises(ValueError, match="inside of its context"):
        _ = beam.Pipeline() | SeriesNight(str(folder))
    assert SeriesWindow.load(str(folder)).snapshot.state.night == 1


def night_of(folder, *came: pa.RecordBatch) -> bool:
    """The next night of these batches; whether a pair has come."""
    with SeriesNight(str(folder)) as night:
        with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
            _ = pipeline | beam.Create(came) | night
        any_pairs = night.any_pairs
        night.commit()
    return any_pairs


def test_types_are_those_of_the_schema_whether_or_not_a_user_came(tmp_path):
    folder = tmp_path / "f"
    SeriesWindow.open(config(), RunKey.insecure_fixed("i"), folder=str(folder))
    integers = pa.RecordBatch.from_pydict({"user": pa.array([1]), "item": pa.array([1])})
    no_type = pa.RecordBatch.from_pydict({"user": pa.nulls(0), "item": pa.nulls(0)})
    assert not night_of(folder, no_type) and not night_of(folder, integers[:0])
    assert (
        SeriesWindow.load(str(folder)).snapshot.state.kinds == Kinds("int", ("int",)).metadata()[METADATA_KEY]
    )
    with pytest.raises(Exception, match="other types than on earlier nights"):
        night_of(folder, batches([("user 1", "item 1")])[0][:0])
    assert night_of(folder, integers, no_type)


def test_a_part_that_was_changed_is_refused(tmp_path):
    nights, folder = random_nights(9), tmp_path / "f"
    SeriesWindow.open(config(), RunKey.insecure_fixed("j"), folder=str(folder))
    on_engine(folder, 1, nights[0])
    name = next(name for name in SeriesWindow.load(str(folder)).snapshot.parts.blocks if name)
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(Exception, match="is not what the series wrote"):
        on_engine(folder, 2, nights[1])
    os.remove(folder / name)
    with pytest.raises(InputError, match="is gone"):
        in_process(SeriesWindow.load(str(folder)), 2, nights[1])
    assert SeriesWindow.load(str(folder)).snapshot.state.night == 1


def test_parts_may_lie_on_a_store(monkeypatch):
    store = memory_store.install(monkeypatch)
    place, nights = RemoteFolder("s3://bucket/series"), random_nights(3)[:2]
    memory = SeriesWindow.open(config(), RunKey.insecure_fixed("k"))
    SeriesWindow.open(config(), RunKey.insecure_fixed("k"), folder=place)
    for number, pairs in enumerate(nights, start=1):
        expected = in_process(memory, number, pairs)
        on_engine(place, number, pairs)
        window = SeriesWindow.load(place)
        same(window.whole(window.snapshot), expected)
        there = {url.rpartition("/")[2] for url in store.objects if "part-" in url or "work-" in url}
        assert there == set(window.snapshot.parts.names)
    window.close()
    assert not any("part-" in url for url in store.objects)


def test_who_lost_the_folder_without_knowing_removes_no_parts(monkeypatch):
    memory_store.install(monkeypatch)
    place, nights = RemoteFolder("s3://bucket/series"), random_nights(3)
    SeriesWindow.open(config(), RunKey.insecure_fixed("k"), folder=place)
    on_engine(place, 1, nights[0])
    woken = SeriesWindow.load(place)
    before = woken.snapshot
    on_engine(place, 2, nights[1])
    with pytest.raises(UnavailableError, match="was faster"):
        woken.store.sweep(before.parts.names, before.number)  # as it would have, had it not stood still
    window = SeriesWindow.load(place)
    expected = window.whole(window.snapshot)
    with pytest.raises(UnavailableError, match="was faster"):  # and the other way round: its parts are gone
        window.commit(replace(window.snapshot, parts=before.parts))
    same(SeriesWindow.load(place).whole(window.snapshot), expected)


@pytest.mark.parametrize("ended", [False, True])
def test_who_lost_the_folder_without_knowing_says_so(monkeypatch, ended):
    """A night stood still; another took over, which is under way or has ended: the first finds its own work gone."""
    memory_store.install(monkeypatch)
    place, [pairs, *_] = RemoteFolder("s3://bucket/series"), random_nights(3)
    SeriesWindow.open(config(), RunKey.insecure_fixed("k"), folder=place)
    with pytest.raises(UnavailableError, match="was faster") as raised, SeriesNight(place, night=1) as night:
        monkeypatch.setattr(lease, "_is_free", lambda *_: True)  # a minute later
        if ended:
            on_engine(place, 1, pairs)
        else:
            SeriesWindow.load(place).store.folder.tidy()
        with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
            _ = pipeline | beam.Create(batches(pairs), reshuffle=False) | night
    assert "the run has ended" in str(raised.value.__cause__)


def test_a_part_of_other_pairs_under_the_same_name_is_refused(tmp_path):
    window = SeriesWindow.open(config(), RunKey.insecure_fixed("n"), folder=str(tmp_path / "f"))
    memory = SeriesWindow.open(config(), RunKey.insecure_fixed("n"))
    one, other = (
        in_process(memory, night, pairs) for night, pairs in enumerate(random_nights(2)[:2], start=1)
    )
    files = PartFiles(window.store, PartFiles.new_attempt())
    parts = files.split(one, 1, 1)
    assert files.split(one, 1, 1) == parts  # a step that runs again
    with pytest.raises(InputError, match="its input has changed since"):
        files.split(other, 1, 1)


@pytest.mark.parametrize("nothing_first", [True, False])
@pytest.mark.parametrize("write", [PartFiles.write_users, PartFiles.write_items])
def test_a_part_that_one_try_found_empty_is_empty_for_the_other(tmp_path, write, nothing_first):
    window = SeriesWindow.open(config(), RunKey.insecure_fixed("n"), folder=str(tmp_path / "f"))
    state = in_process(SeriesWindow.open(config(), RunKey.insecure_fixed("n")), 1, random_nights(2)[0])
    files = PartFiles(window.store, PartFiles.new_attempt())
    contents = (
        (state, SeriesState.empty())
        if write is PartFiles.write_users
        else map(OpenItems.of, (state, SeriesState.empty()))
    )
    first, then = reversed([*contents]) if nothing_first else contents
    name = write(files, 3, first)
    assert write(files, 3, first) == name and (name == "") == nothing_first
    with pytest.raises(InputError, match="its input has changed since"):
        write(files, 3, then)
    window.store.sweep((), 0)
    assert not any(name.startswith("part-") for name in os.listdir(tmp_path / "f"))
