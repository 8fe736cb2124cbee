"""A series on a store: made once, whatever is killed, breaks, or runs at the same time."""

import threading
import warnings

import pyarrow as pa
import pytest

import dpbeam
from dpbeam.engine.seal import FOLDER_KEY
from dpbeam.errors import InputError, UnavailableError
from dpbeam.randomness import RunKey
from dpbeam.series.folder import RemoteFolder
from dpbeam.series.window import SeriesWindow
from dpbeam.storage import lease
from dpbeam.storage.files import UNAVAILABLE, NotOnceError
from tests.series.streams import released
from tests.series.test_window import CONFIG, NIGHTS, KilledError, in_memory, run
from tests.support import memory_store

PLACE = "s3://bucket/series"


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(lease, "SECONDS", 0.05)
    monkeypatch.setattr(lease, "_LOOK", 0.01)
    return memory_store.install(monkeypatch)


def opened(**more) -> SeriesWindow:
    return SeriesWindow.open(CONFIG, RunKey.insecure_fixed("1"), folder=RemoteFolder(PLACE), **more)


def loaded() -> SeriesWindow:
    return SeriesWindow.load(RemoteFolder(PLACE))


def held(store) -> dict[str, int]:
    """Name -> size, but of locks."""
    names = {url.removeprefix(f"{PLACE}/"): len(data) for url, data in store.objects.items()}
    return {name: size for name, size in names.items() if not name.startswith("lock-")}


def from_request(store, number: int, error: BaseException, *, on: bool = True):
    """This request fails, and all that follow where `on`."""
    left = [number]

    def watch(kind: str, url: str) -> None:
        left[0] -= 1
        if left[0] == 0 or (on and left[0] < 0):
            raise error

    store.watch = watch
    return left


@pytest.mark.parametrize(
    "name", ["notes", "key", "empty", "probe-x", "a.tmp-b", "lock-mine", "work-plan/notes"]
)
def test_a_prefix_that_is_not_empty_is_refused(store, name):
    store.objects[f"{PLACE}/{name}"] = b"" if name == "empty" else bytes(32)
    before = dict(store.objects)
    with pytest.raises(InputError, match="is not empty"):
        opened()
    assert store.objects == before


def test_the_mark_of_a_folder_is_no_file_in_it(store):
    store.objects[f"{PLACE}/"] = b""
    run(opened(), 1)
    assert run(loaded(), 1).night == 1 and f"{PLACE}/" in store.objects


def test_the_same_goes_out_as_from_memory(store):
    opened()
    for night in (1, 2, 3, 4):
        state = run(loaded(), night)
    assert released(state) == released(in_memory()) and len(released(state)) > 2
    sizes = held(store)
    assert {name for name, size in sizes.items() if not size} == {f"state-0000000{n}" for n in (1, 2, 3)}
    assert {name for name, size in sizes.items() if size} == {"key", "known", "series.json", "state-00000004"}
    assert released(run(loaded(), 2)) == released(state)
    with pytest.raises(InputError, match="night 2 is out, and was made from other pairs"):
        run(loaded(), 2, NIGHTS[2])


@pytest.mark.parametrize(("night", "way"), [(2, "killed"), (2, "fails"), (1, "stays away")])
def test_wherever_a_night_ends_the_series_goes_on_with_the_same_result(store, night, way):
    """Killed, or refused one request, or all from one on: the state before stands or the state after."""
    error = KilledError() if way == "killed" else OSError(UNAVAILABLE, "the store does not answer")
    expected, number, done = released(in_memory()), 0, False
    opened()
    for earlier in range(1, night):
        run(loaded(), earlier)
    before = dict(store.objects)
    while not done:
        number += 3 if way == "killed" else 1
        store.objects.clear()
        store.objects.update(before)
        left = from_request(store, number, error, on=way != "fails")
        try:
            run(loaded(), night)
            done = left[0] > 0
        except KilledError:
            pass
        except UnavailableError as refused:
            assert "the store does not answer" in str(refused) and str(refused).startswith("--folder: ")
        store.watch = lambda kind, url: None
        for later in range(night, 5):
            state = run(loaded(), later)
        assert released(state) == expected
        assert {name for name, size in held(store).items() if size} == {
            *("key", "known", "series.json", "state-00000004")
        }
    assert number > 10  # the requests were there


@pytest.mark.parametrize("way", ["killed", "fails"])
def test_wherever_an_opening_ends_it_is_whole_or_made_anew(store, way):
    error = KilledError() if way == "killed" else OSError(UNAVAILABLE, "the store does not answer")
    number, done, anew = 0, False, 0
    while not done:
        number += 1
        store.objects.clear()
        left = from_request(store, number, error, on=way == "killed")
        try:
            opened()
            done = left[0] > 0
        except (KilledError, UnavailableError):
            pass
        store.watch = lambda kind, url: None
        try:
            window = loaded()
        except InputError as refused:
            assert "holds no series" in str(refused)
            anew += 1
            window = opened()
        run(window, 1)
        assert set(held(store)) == {"key", "known", "series.json", "state-00000001"}
        with pytest.raises(InputError, match="is not empty"):
            opened()
    assert anew > 5


def test_of_two_runs_at_once_one_makes_the_night(store, monkeypatch):
    monkeypatch.setattr(lease, "SECONDS", 30.0)
    monkeypatch.setattr(lease, "BEAT", 0.01)
    window, other = opened(), loaded()
    with window.alone(), pytest.raises(UnavailableError, match="another run of the series in 's3://bucket"):
        run(other, 1)
    assert other.snapshot.state.night == 0
    assert released(run(other, 1)) == released(window.snapshot.state)


@pytest.mark.parametrize("nights", [1, 2, 3])
def test_who_lost_the_folder_without_knowing_commits_nothing(store, monkeypatch, nights):
    """A process that stood still while others took the folder and made nights: its own is no state of any number."""
    window, woken = opened(), loaded()
    make = woken.commit

    def stood_still(made):
        for night in range(1, nights + 1):
            run(loaded(), night)
        make(made)

    monkeypatch.setattr(woken, "commit", stood_still)
    with pytest.raises(UnavailableError, match="was faster"):
        run(woken, 1, NIGHTS[3])  # the same rounds on other data
    for night in (1, 2, 3, 4):
        state = run(window, night)
    assert released(state) == released(in_memory())


def test_many_at_once_make_it_once(store, monkeypatch):
    monkeypatch.setattr(lease, "SECONDS", 30.0)
    monkeypatch.setattr(lease, "BEAT", 0.01)
    opened()
    ended = []

    def work(pairs) -> None:
        try:
            ended.append(released(run(loaded(), 1, pairs)))
        except (UnavailableError, InputError) as error:
            ended.append(str(error))

    threads = [threading.Thread(target=work, args=(NIGHTS[n % 2],)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = [one for one in ended if not isinstance(one, str)]
    assert len(ended) == 6 and made and all(one == made[0] for one in made)
    assert held(store).keys() == {"key", "known", "series.json", "state-00000001"}


def test_a_store_without_conditions_is_refused(store):
    store.conditions = False
    with pytest.raises(InputError, match="this store replaces a file that was to be made once"):
        opened()
    assert store.objects == {}


def test_a_store_that_makes_nothing_once_is_refused(store, monkeypatch):
    def put_once(*arguments, **how):
        raise NotOnceError(PLACE)

    monkeypatch.setattr(memory_store.MemoryFiles, "put_once", put_once)
    with pytest.raises(InputError, match="could be made twice"):
        opened()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("dpx://b/f", "no filesystem is known for dpx://"),
        ("s3://", "names no folder"),
        ("hdfs:///f", "HOST:PORT"),
    ],
)
def test_folders_where_no_series_can_be(path, message):
    with pytest.raises(InputError, match=message):
        RemoteFolder(path).make()


def test_the_front_door(store):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"epsilon": 4, "delta": 0.05, "nights": 4, "insecure_test_key": "1"}
        one, other = dpbeam.Series(**settings, folder=dpbeam.RemoteFolder(PLACE)), dpbeam.Series(**settings)
    for pairs in NIGHTS:
        frame = {"user": [u for u, _ in pairs], "item": [i for _, i in pairs]}
        assert dpbeam.Series.load(dpbeam.RemoteFolder(PLACE)).run(frame).items == other.run(frame).items
    assert one.released() == other.released() and one.nights_made == 4
    with pytest.raises(InputError, match=r"^folder: 'dpx://b/f': no filesystem is known"):
        dpbeam.Series.load(dpbeam.RemoteFolder("dpx://b/f"))


def test_what_was_closed_or_erased_is_in_no_object(store):
    window = opened()
    run(window, 1)
    state = window.snapshot.state
    window.erase(pa.array([b"user 1", b"user 2"], pa.large_binary()))
    assert held(store)["state-00000001"] == 0
    run(window, 2)
    window.close()
    data = b"".join(store.objects.values())
    still = set(state.items.to_pylist()) - set(window.snapshot.state.released.to_pylist())
    assert still and not any(item in data for item in still)
    assert state.user_fp.tobytes() not in data


def test_an_encrypted_folder_holds_nothing_that_tells(store, monkeypatch):
    monkeypatch.setenv(FOLDER_KEY, "5e" * 32)
    window = opened(encrypt=True)
    run(window, 1)
    state = loaded().snapshot.state
    data = b"".join(store.objects.values())
    for secret in (window.key.secret_bytes(), *state.items.to_pylist(), state.accumulators["z"].tobytes()):
        assert secret not in data
    for night in (2, 3, 4):
        state = run(loaded(), night)
    assert released(state) == released(in_memory())
    url = f"{PLACE}/state-00000004"
    store.objects[url] = store.objects[url][:-1] + bytes([store.objects[url][-1] ^ 1])
    with pytest.raises(InputError, match="is not what the series wrote"):
        run(loaded(), 4)
