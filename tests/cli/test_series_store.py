"""`dpbeam series` with its folder and its output on a store, which breaks or loses its client at any request."""

import errno
import json

import pytest

from dpbeam.cli import main
from dpbeam.storage import lease
from dpbeam.storage.files import UNAVAILABLE
from tests.cli.test_series import COLUMNS, write_night
from tests.support import memory_store

PLACE = "s3://bucket/team"
OPEN = [
    *("open", f"--folder={PLACE}/f", f"--output={PLACE}/out/x", "--nights=2", "--epsilon=4", "--delta=1e-3"),
    *("--preset=toward-end", "--insecure_test_key=ab", "--quiet"),
]


class KilledError(BaseException):
    pass


@pytest.fixture
def store(tmp_path, monkeypatch, own_temp):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lease, "SECONDS", 0.02)
    monkeypatch.setattr(lease, "_LOOK", 0.005)
    for night in (1, 2):
        write_night(f"n{night}.csv", night)
    return memory_store.install(monkeypatch)


def night(number: int) -> list[str]:
    return ["run", f"--folder={PLACE}/f", f"--night={number}", f"--input=n{number}.csv", *COLUMNS, "--quiet"]


def output(store) -> dict[str, object]:
    """Files of the output, of ledgers what does not tell of time or of this series' random name."""
    files: dict[str, object] = {}
    for url, data in store.objects.items():
        name = url.removeprefix(f"{PLACE}/")
        if name.endswith(".json") and name.startswith("out/"):
            ledger = json.loads(data)
            ledger.pop("release", None)
            ledger["parameters"].pop("series", None)
            files[name] = ledger
        elif not name.startswith("f/") and not name.endswith(
            "/probe"
        ):  # an empty file, which `clean` removes
            files[name] = data
    return files


def test_the_output_is_that_of_a_folder_of_this_machine(store, capsys, tmp_path):
    for argv in (OPEN, night(1), night(2)):
        assert main(["series", *argv]) == 0
    local = [word.replace(PLACE, str(tmp_path)) for word in OPEN]
    for argv in (local, *([w.replace(PLACE, str(tmp_path)) for w in night(n)] for n in (1, 2))):
        assert main(["series", *argv]) == 0
    for name, data in output(store).items():
        if not name.endswith(".json"):
            assert (tmp_path / name).read_bytes() == data
    assert len(output(store)) == len(list((tmp_path / "out").iterdir())) == 8
    capsys.readouterr()
    assert main(["series", "show", f"--folder={PLACE}/f", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nights_made"] == 2
    assert main(["series", *night(1)[:3], "--input=n2.csv", *COLUMNS]) == 2
    assert "night 1 is out, and was made from other pairs" in capsys.readouterr().err
    assert (
        main(["verify", "--contents", "--quiet", f"{PLACE}/out/x-2.ledger.json"]) == 1
    )  # for the test key alone
    assert main(["series", "close", f"--folder={PLACE}/f", "--quiet"]) == 0


@pytest.mark.parametrize("way", ["killed", "fails"])
@pytest.mark.parametrize("what", ["open", "night"])
def test_wherever_a_command_ends_the_same_again_makes_it_whole(store, capsys, what, way):
    before = [OPEN] if what == "night" else []
    argv = night(1) if what == "night" else OPEN
    for earlier in before:
        assert main(["series", *earlier]) == 0
    saved = dict(store.objects)
    assert main(["series", *argv]) == 0
    expected = output(store)
    number, done = (0 if way == "killed" else -1), False
    while not done:
        number += 7
        store.objects.clear()
        store.objects.update(saved)
        left = [number]

        def watch(kind: str, url: str, left=left) -> None:
            left[0] -= 1
            if left[0] == 0 or (left[0] < 0 and way == "killed"):
                raise KilledError if way == "killed" else OSError(UNAVAILABLE, "the store does not answer")

        store.watch = watch
        try:
            code = main(["series", *argv])
            assert code in (0, 1), capsys.readouterr().err
        except KilledError:
            pass
        done = left[0] > 0
        store.watch = lambda kind, url: None
        said = capsys.readouterr().err
        assert "Traceback" not in said
        _check_complete(store)
        assert main(["series", *argv]) == 0, (number, capsys.readouterr().err)
        assert output(store) == expected, number
    assert number > 20


def _check_complete(store) -> None:
    """A ledger stands for whole files; a night that is out is in the state."""
    for url in store.objects:
        if url.startswith(f"{PLACE}/out/") and url.endswith(".ledger.json"):
            prefix = url.removesuffix(".ledger.json")
            assert f"{prefix}-00000-of-00001.parquet" in store.objects
            if prefix != f"{PLACE}/out/x":
                assert f"{prefix}.released.parquet" in store.objects
                assert f"{PLACE}/f/state-00000001" in store.objects


def test_a_store_that_denies_access_is_named(store, capsys):
    def watch(kind: str, url: str) -> None:
        raise PermissionError(errno.EACCES, "the store denies access (AccessDenied)", url)

    store.watch = watch
    assert main(["series", *OPEN]) == 2
    assert "denies access" in capsys.readouterr().err
    assert main(["series", *night(1)]) == 2
    said = capsys.readouterr().err
    assert (
        said
        == f"dpbeam series: error: --folder: cannot use '{PLACE}/f': the store denies access (AccessDenied)\n"
    )
