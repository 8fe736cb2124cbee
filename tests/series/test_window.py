"""A series is made once: again, otherwise, at once, killed, erased, closed."""

import contextlib
import json
import os
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpbeam
from dpbeam import disk
from dpbeam.engine.seal import FOLDER_KEY, wrap
from dpbeam.errors import InputError, UnavailableError
from dpbeam.randomness import RunKey
from dpbeam.series import folder as folder_module
from dpbeam.series import window as window_module
from dpbeam.series.family import SeriesConfig
from dpbeam.series.schedule import Schedule
from dpbeam.series.window import SeriesWindow
from tests.series.streams import arrays, random_nights, released
from tests.support.forks import in_fork, in_thread

CONFIG = SeriesConfig(
    4.0,
    0.05,
    4,
    preset=None,
    schedule=Schedule((1, 2, 3, 4), (0.25,) * 4, (0.25,) * 4),
    max_items_per_user=20,
)
NIGHTS = random_nights(5)
STRINGS = b"strings"


def opened(folder, seed=1) -> SeriesWindow:
    return SeriesWindow.open(CONFIG, RunKey.insecure_fixed(str(seed)), folder=folder and str(folder))


def run(window, night, pairs=None):
    return window.run(night, *arrays(NIGHTS[night - 1] if pairs is None else pairs), STRINGS)


def in_memory():
    window = opened(None)
    return [run(window, n) for n in (1, 2, 3, 4)][-1]


def test_with_a_folder_and_without_it_the_same_goes_out(tmp_path):
    opened(tmp_path / "s")
    for night in (1, 2, 3, 4):  # a process of its own for each night
        state = run(SeriesWindow.load(str(tmp_path / "s")), night)
    assert released(state) == released(in_memory()) and len(released(state)) > 2
    for name, values in in_memory().to_columns().items():
        assert np.array_equal(np.asarray(values), np.asarray(state.to_columns()[name])), name


@pytest.mark.parametrize("stored", [True, False])
def test_the_same_night_again_gives_the_same(tmp_path, stored):
    window = opened(tmp_path / "s" if stored else None)
    run(window, 1), run(window, 2)
    before = window.snapshot.to_bytes()
    again = run(window, 1, NIGHTS[0][::-1] + NIGHTS[0][:3])  # the order of rows is no other input
    assert window.snapshot.to_bytes() == before and released(again) == released(window.snapshot.state)


@pytest.mark.parametrize("stored", [True, False])
def test_other_pairs_for_a_night_that_is_out_are_refused(tmp_path, stored):
    window = opened(tmp_path / "s" if stored else None)
    run(window, 1), run(window, 2)
    before = window.snapshot.to_bytes()
    for pairs in (NIGHTS[0][1:], [*NIGHTS[0], ("stranger", "item 1")], NIGHTS[1], []):
        with pytest.raises(InputError, match="night 1 is out, and was made from other pairs"):
            run(window, 1, pairs)
    with pytest.raises(InputError, match="other types"):
        window.run(3, *arrays(NIGHTS[2]), b"integers")
    assert window.snapshot.to_bytes() == before


def test_nights_come_in_their_order_and_end():
    window = opened(None)
    with pytest.raises(InputError, match="night 1 comes next"):
        run(window, 2)
    for night in (1, 2, 3, 4):
        run(window, night)
    with pytest.raises(InputError, match="all 4 nights of the series are made"):
        run(window, 5, [])


def test_of_two_runs_at_once_one_wins(tmp_path):
    window, other = opened(tmp_path / "s"), SeriesWindow.load(str(tmp_path / "s"))
    with window.store.locked(), pytest.raises(UnavailableError, match="another run of the series"):
        run(other, 1)
    assert other.snapshot.state.night == 0
    # Also where locks are of no use: a state of a number exists once.
    run(window, 1)
    number = window.store.number
    with pytest.raises(UnavailableError, match="was faster"):
        other.store.commit(number, b"something else")
    assert released(run(other, 1)) == released(window.snapshot.state)


def in_the_middle(monkeypatch, call) -> list:
    """What another thread gets of a call while the next night is made; filled in by then."""
    ends, run_kept = [], window_module.run_kept

    def meanwhile(*arguments):
        monkeypatch.setattr(window_module, "run_kept", run_kept)
        ends.append(in_thread(call))
        return run_kept(*arguments)

    monkeypatch.setattr(window_module, "run_kept", meanwhile)
    return ends


@pytest.mark.parametrize("stored", [True, False])
def test_of_two_threads_one_makes_the_night(tmp_path, monkeypatch, stored):
    """Two would draw one noise for two sets of data."""
    window = opened(tmp_path / "s" if stored else None)
    ends = in_the_middle(monkeypatch, lambda: run(window, 1, NIGHTS[1]))
    state = run(window, 1)
    assert [type(end) for end in ends] == [UnavailableError]
    assert re.search(
        "another (thread is at work on this series|run of the series .* is under way)", str(ends[0])
    )
    assert window.snapshot.to_bytes() == replace(window.snapshot, state=state).to_bytes()
    run(window, 2)  # the other thread holds nothing


@pytest.mark.parametrize("stored", [True, False])
def test_a_forked_process_makes_no_night_beside_this_one(tmp_path, stored):
    window = opened(tmp_path / "s" if stored else None)
    calls = [
        lambda: run(window, 1),
        lambda: window.erase(pa.array([b"user 1"], pa.large_binary())),
        window.close,
    ]
    with window.alone() if stored else contextlib.nullcontext():
        told = [in_fork(call) for call in calls]
    expected = (
        "is under way" if stored else "SettingError: a series in memory stays in the process that opened it"
    )
    assert [expected in text for text in told] == [True] * 3, told
    run(window, 1)


@pytest.mark.parametrize("stored", [True, False])
def test_a_change_follows_the_one_that_it_knows(tmp_path, stored):
    window = opened(tmp_path / "s" if stored else None)
    before = window.snapshot
    run(window, 1)
    with pytest.raises(UnavailableError, match="was faster"):
        window.commit(before)
    assert window.snapshot.state.night == window.snapshot.number == 1


class KilledError(BaseException):
    pass


def killing(monkeypatch, step):
    """From this call of the operating system on nothing is done any more, cleaning up included."""
    left = [step]

    def watched(name, real):
        def call(*arguments, **options):
            if Path(str(arguments[0])).name == "lock":
                return real(*arguments, **options)
            left[0] -= 1
            if left[0] < 0:
                raise KilledError(name)
            return real(*arguments, **options)

        return call

    class Os:
        def __getattr__(self, name):
            real = getattr(os, name)
            return (
                watched(name, real)
                if name in ("open", "fsync", "link", "unlink", "remove", "close")
                else real
            )

    for module in (folder_module, disk):
        monkeypatch.setattr(module, "os", Os())
    return left


@pytest.mark.parametrize("night", [1, 2])
def test_killed_at_every_step_a_series_goes_on_with_the_same_result(tmp_path, monkeypatch, night):
    expected, step, done = released(in_memory()), 0, False
    while not done:
        folder = tmp_path / str(step)
        opened(folder)
        for earlier in range(1, night):
            run(SeriesWindow.load(str(folder)), earlier)
        with monkeypatch.context() as patch:
            killing(patch, step)
            try:
                run(SeriesWindow.load(str(folder)), night)
                done = True
            except KilledError:
                pass
        for later in range(night, 5):
            state = run(SeriesWindow.load(str(folder)), later)
        assert released(state) == expected
        names = sorted(os.listdir(folder))
        assert names == ["key", "known", "series.json", "state-00000004"]
        step += 1
    assert step > 4  # the steps were there


def test_killed_while_it_is_opened_it_is_whole_or_opened_again(tmp_path, monkeypatch):
    step, done, refused = 0, False, 0
    while not done:
        folder = tmp_path / str(step)
        with monkeypatch.context() as patch:
            killing(patch, step)
            try:
                opened(folder)
                done = True
            except KilledError:
                pass
        try:
            window = SeriesWindow.load(str(folder))
        except InputError as error:
            assert "holds no series" in str(error)
            refused += 1
            window = opened(folder)
        run(window, 1)
        assert sorted(os.listdir(folder)) == ["key", "known", "series.json", "state-00000001"]
        with pytest.raises(InputError, match="is not empty"):
            opened(folder)
        step += 1
    assert refused > 4


def test_files_are_the_owners_alone_and_changed_ones_are_refused(tmp_path):
    window = opened(tmp_path / "s")
    run(window, 1)
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    state = tmp_path / "s" / "state-00000001"
    for name in ("key", "known", "series.json", "state-00000001"):
        assert (tmp_path / "s" / name).stat().st_mode & 0o777 == 0o600
    data = bytearray(state.read_bytes())
    data[-1] ^= 1
    state.write_bytes(bytes(data))
    with pytest.raises(InputError, match="is not what the series wrote"):
        run(SeriesWindow.load(str(tmp_path / "s")), 2)


@pytest.mark.parametrize("name", ["numpy", "dpbeam", "calibration"])
def test_other_software_makes_no_night_of_a_window(tmp_path, name, monkeypatch):
    window = opened(tmp_path / "s")
    run(window, 1)
    made_with = window_module._made_with
    monkeypatch.setattr(window_module, "_made_with", lambda plan: {**made_with(plan), name: "other"})
    again = SeriesWindow.load(str(tmp_path / "s"))
    with pytest.raises(InputError, match=f"was opened with another {name}"):
        run(again, 2)
    assert released(run(again, 1)) == released(window.snapshot.state)  # what is stored is served
    again.close()


@pytest.mark.parametrize("folder", ["", "s3://bucket/series"])
def test_folders_elsewhere_are_refused(folder):
    with pytest.raises(InputError, match="--folder must be a folder of this machine"):
        SeriesWindow.load(folder)


class TestEncrypted:
    """A folder whose keeper is not to read it (`dpbeam.engine.seal`)."""

    @pytest.fixture
    def folder(self, tmp_path, monkeypatch) -> str:
        monkeypatch.setenv(FOLDER_KEY, "5e" * 32)
        key = RunKey.insecure_fixed("1")
        window = SeriesWindow.open(CONFIG, key, folder=str(tmp_path / "s"), encrypt=True)
        run(window, 1)
        return str(tmp_path / "s")

    def test_the_same_goes_out_and_no_file_holds_what_it_knows(self, folder, tmp_path):
        window = SeriesWindow.load(folder)
        assert window.encrypted
        state = window.snapshot.state
        secrets = [window.key.secret_bytes(), *state.items.to_pylist()]
        secrets += [state.item_fp.tobytes(), state.accumulators["z"].tobytes()]
        run(opened(tmp_path / "plain"), 1)
        for where, holds in ((tmp_path / "plain", True), (Path(folder), False)):
            data = b"".join(path.read_bytes() for path in where.iterdir())
            assert {secret in data for secret in secrets} == {holds}
        for night in (2, 3, 4):
            state = run(SeriesWindow.load(folder), night)
        assert released(state) == released(in_memory())

    def test_known_items_are_encrypted(self, folder, tmp_path):
        known, other = pa.array([b"a known item"], pa.large_binary()), str(tmp_path / "other")
        SeriesWindow.open(CONFIG, RunKey.fresh(), known, other, encrypt=True)
        assert b"a known item" not in Path(other, "known").read_bytes()
        assert SeriesWindow.load(other).known.to_pylist() == [b"a known item"]

    def test_another_folder_key_or_none_opens_nothing(self, folder, monkeypatch):
        monkeypatch.setenv(FOLDER_KEY, "5f" * 32)
        with pytest.raises(InputError, match="the run's key cannot be opened"):
            SeriesWindow.load(folder)
        monkeypatch.delenv(FOLDER_KEY)
        with pytest.raises(InputError, match=f"{FOLDER_KEY} is not in the environment"):
            SeriesWindow.load(folder)

    def test_a_key_of_another_series_opens_nothing(self, folder, tmp_path):
        other = str(tmp_path / "other")
        SeriesWindow.open(CONFIG, RunKey.insecure_fixed("2"), folder=other, encrypt=True)
        Path(folder, "key").write_bytes(Path(other, "key").read_bytes())
        with pytest.raises(InputError, match="the run's key cannot be opened"):
            SeriesWindow.load(folder)

    def test_settings_that_were_changed_open_nothing(self, folder):
        path = Path(folder, "series.json")
        settings = json.loads(path.read_text())
        for change in ({"epsilon": 700.0}, {"settings": {"output": "elsewhere"}}, {"fixed_key": False}):
            path.write_text(json.dumps({**settings, **change}))
            with pytest.raises(InputError, match="or the private folder was changed"):
                SeriesWindow.load(folder)
        path.write_text(json.dumps(settings))
        assert SeriesWindow.load(folder).snapshot.state.night == 1

    def test_a_folder_of_before_the_settings_were_bound_goes_on(self, folder, monkeypatch):
        window = SeriesWindow.load(folder)
        Path(folder, "key").write_bytes(wrap(f"series {window.id}", window.key.secret_bytes()))
        assert released(run(SeriesWindow.load(folder), 2)) == released(run(window, 2))

    def test_a_state_in_anothers_place_is_refused(self, folder):
        Path(folder, "state-00000002").write_bytes(Path(folder, "state-00000001").read_bytes())
        with pytest.raises(InputError, match="is not what the series wrote"):
            run(SeriesWindow.load(folder), 2)

    def test_without_a_key_nothing_is_made(self, tmp_path, monkeypatch):
        monkeypatch.delenv(FOLDER_KEY, raising=False)
        with pytest.raises(InputError, match=f"{FOLDER_KEY} is not in the environment"):
            SeriesWindow.open(CONFIG, RunKey.insecure_fixed("1"), folder=str(tmp_path / "s"), encrypt=True)
        assert os.listdir(tmp_path) == []
        with pytest.raises(InputError, match="a series in memory has nothing to encrypt"):
            SeriesWindow.open(CONFIG, RunKey.insecure_fixed("1"), encrypt=True)


OWN = ["notes", ".hidden", "key", "known", "opened", "series.json", "lock", "new-paper", "work-plan/notes"]
OWN += [f"work-{32 * '0'}/notes", "state-00000001", f"new-{15 * '0'}"]


@pytest.mark.parametrize("name", OWN)
def test_a_folder_that_is_not_empty_is_refused(tmp_path, name):
    path = tmp_path / "mine" / name
    path.parent.mkdir(parents=True)
    path.write_text('{"mine": "of 32 bytes, as a key has"}'[:32])
    (tmp_path / "mine").chmod(0o755)
    with pytest.raises(InputError, match="is not empty"):
        opened(tmp_path / "mine")
    assert [file for file in (tmp_path / "mine").rglob("*") if file.is_file()] == [path]
    assert path.read_text() == '{"mine": "of 32 bytes, as a key has"}'[:32]
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o755


def test_of_what_lies_in_the_folder_of_a_series_it_removes_its_own_alone(tmp_path):
    folder = tmp_path / "s"
    opened(folder)
    for name in ("work-plan/notes", "new-paper", f"work-{32 * '0'}/bound", f"new-{16 * '0'}"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")
    run(SeriesWindow.load(str(folder)), 1)
    names = ["key", "known", "new-paper", "series.json", "state-00000001", "work-plan"]
    assert sorted(os.listdir(folder)) == names and (folder / "work-plan" / "notes").read_text() == "mine"


def test_a_closed_series_makes_no_night_and_holds_no_users(tmp_path):
    window = opened(tmp_path / "s")
    for night in (1, 2):
        state = run(window, night)
    window.close()
    with pytest.raises(InputError, match="the series is closed"):
        run(window, 3)
    with pytest.raises(InputError, match="the series is closed"):
        window.erase(pa.array([b"user 1"], pa.large_binary()))
    made = SeriesWindow.load(str(tmp_path / "s")).snapshot
    assert released(made.state) == released(state) == released(run(window, 1))
    assert len(made.state.user_fp) == len(made.state.items) == 0


def test_what_an_erasure_took_is_in_no_file(tmp_path):
    """Names are hashed; what tells of a user's items is the list of its pairs."""
    window = opened(tmp_path / "s")
    run(window, 1)
    users = pa.array([b"user 1", b"user 2", b"never seen"], pa.large_binary())
    pairs = len(window.snapshot.state.links)
    window.erase(users)
    assert len(window.snapshot.state.links) < pairs
    assert sorted(n for n in os.listdir(tmp_path / "s") if n.startswith("state")) == ["state-00000002"]
    assert released(run(window, 1)) == released(window.snapshot.state)  # its stored result is served


@pytest.fixture
def series(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield lambda **more: dpbeam.Series(epsilon=4, delta=0.05, nights=4, insecure_test_key="1", **more)


def frame(pairs):
    return {"user": [u for u, _ in pairs], "item": [i for _, i in pairs]}


def test_the_front_door(series, tmp_path):
    one = series(first_night="2026-11-01", folder=str(tmp_path / "s"))
    new = [one.run(frame(pairs), night=f"2026-11-0{n}") for n, pairs in enumerate(NIGHTS, start=1)]
    table = one.released()
    assert sum(map(len, new)) == table.num_rows > 2
    assert table["item"].to_pylist() == [item for night in new for item in night.items]
    assert new[3].ledger.parameters["night"] == "2026-11-04" and not new[3].ledger.private
    assert new[3].ledger.events == one.ledger.events  # the window is paid once
    loaded = dpbeam.Series.load(str(tmp_path / "s"))
    assert loaded.run(frame(NIGHTS[1]), night="2026-11-02").items == new[1].items
    loaded.close()
    assert one.closed and one.nights_made == 4 and one.released() == table


def test_an_encrypted_folder_by_the_front_door(series, tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_KEY, "5e" * 32)
    one = series(folder=str(tmp_path / "s"), encrypt_intermediates=True)
    new = one.run(frame(NIGHTS[0]))
    assert dpbeam.Series.load(str(tmp_path / "s")).released()["item"].to_pylist() == new.items
    monkeypatch.delenv(FOLDER_KEY)
    with pytest.raises(InputError, match=f"^encrypt_intermediates: {FOLDER_KEY} is not in the environment"):
        dpbeam.Series.load(str(tmp_path / "s"))
    with pytest.raises(InputError, match=r"^encrypt_intermediates: a series in memory .* give folder"):
        series(encrypt_intermediates=True)


def test_known_items_are_not_released_and_take_no_rank(series):
    without = series(max_items_per_user=2)
    for pairs in NIGHTS:
        without.run(frame(pairs))
    out = without.released()["item"].to_pylist()
    later = series(max_items_per_user=2, known=out)
    for pairs in NIGHTS:
        later.run(frame(pairs))
    known = set(out)
    assert known and not known & set(later.released()["item"].to_pylist())
    bare = series(max_items_per_user=2)
    for pairs in NIGHTS:
        bare.run(frame([pair for pair in pairs if pair[1] not in known]))
    assert bare.released() == later.released()
    assert later.ledger.public_items


def test_a_user_keeps_its_type(series):
    one = series()
    one.run({"user": pa.array([1, 2]), "item": ["a", "b"]})
    with pytest.raises(InputError, match="other types than on earlier nights"):
        one.run({"user": ["1", "2"], "item": ["a", "b"]})
    with pytest.raises(InputError, match="users holds string values"):
        one.erase(["1"])
    one.erase(pa.array([1]))
    assert one.nights_made == 1


NO_STRINGS = {"user": pa.array([], pa.string()), "item": pa.array([], pa.string())}
INTEGERS = {"user": pa.array([1, 2]), "item": pa.array([1, 2])}
NO_INTEGERS = {name: values[:0] for name, values in INTEGERS.items()}
NO_TYPE = {"user": [], "item": []}
DAYS = {"user": pa.array([20_000], pa.date32()), "item": ["a"]}
MOMENTS = {"user": DAYS["user"].cast(pa.timestamp("us")), "item": ["a"]}
TEXTS = {"user": DAYS["user"].cast(pa.string()), "item": ["a"]}


@pytest.mark.parametrize(
    ("first", "then", "refused"),
    [
        (NO_STRINGS, INTEGERS, True),
        (NO_STRINGS, NO_INTEGERS, True),
        (INTEGERS, NO_STRINGS, True),
        (NO_INTEGERS, INTEGERS, False),
        (NO_TYPE, INTEGERS, False),
        (INTEGERS, NO_TYPE, False),
        (DAYS, MOMENTS, True),
        (TEXTS, DAYS, True),
        (DAYS, {**DAYS, "user": DAYS["user"].cast(pa.date64())}, False),
    ],
)
def test_types_are_those_of_the_schema_whether_or_not_a_user_came(series, first, then, refused):
    """With types by the first pair one user alone decided whether the next night was refused."""
    one = series()
    one.run(first)
    with pytest.raises(InputError, match="other types") if refused else contextlib.nullcontext():
        one.run(then)
    assert one.nights_made == (1 if refused else 2)
    assert one.run(first, night=1).items == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"preset": "sometimes"}, "^preset must be"),
        ({"folder": "s3://x"}, "^folder must be"),
        ({"known": pa.array([1, 2])}, "known holds int values"),
        ({"known": ["a", None]}, "known holds a null"),
        ({"item": ["a", "a"]}, "^item names one column or several different ones"),
        ({"item_type": "strng"}, "^item_type must be one of string, int, bytes, got 'strng'"),
        ({"item_type": ["int", "int"]}, "^item_type: 2 types for 1 item columns"),
    ],
)
def test_arguments_out_of_range_name_themselves(changed, message, tmp_path):
    settings = {"epsilon": 4, "delta": 0.05, "nights": 4, "folder": str(tmp_path / "s"), **changed}
    with pytest.raises(InputError, match=message):
        dpbeam.Series(**settings)
    assert not list(tmp_path.iterdir())
