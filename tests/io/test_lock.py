"""One run at a time has a prefix: the lock beside it, who it keeps out, and what becomes of its file."""

import fcntl
import os
import subprocess
import sys

import pytest

from dpbeam.cli import main
from dpbeam.errors import InputError, UnavailableError
from dpbeam.io.lock import LOCK_SUFFIX, hold
from dpbeam.jobs.charged import RunCharge
from tests.jobs.conftest import account, draw, flags, place, release, when_run  # noqa: F401  (fixture)

UNDER_WAY = "--output: another run is under way that writes '{}'; try again when it has ended"


def test_one_has_it(tmp_path):
    prefix = f"{tmp_path}/new/out"
    with hold(prefix), hold(f"{prefix}2"):
        assert (tmp_path / "new" / f"out{LOCK_SUFFIX}").stat().st_size == 0
        (tmp_path / "link").symlink_to("new")
        for name in (prefix, f"{tmp_path}/link/out"):
            with pytest.raises(UnavailableError) as error, hold(name):
                pass
            assert str(error.value) == UNDER_WAY.format(name)
    with hold(prefix):
        pass
    assert not (tmp_path / "new").exists()


def test_folders_in_which_nothing_was_written_go_again(tmp_path):
    """A run that is refused leaves nothing."""
    (tmp_path / "there").mkdir()
    with hold(str(tmp_path / "there/new/newer/items")):
        assert (tmp_path / "there/new/newer").is_dir()
    assert os.listdir(tmp_path / "there") == []
    with hold(str(tmp_path / "there/new/newer/items")):
        (tmp_path / "there/new/file").write_text("")
    assert os.listdir(tmp_path / "there/new") == ["file"]


def test_a_killed_process_holds_nobody_up(tmp_path):
    prefix = f"{tmp_path}/out"
    killed = f"import os; from dpbeam.io.lock import hold\nwith hold({prefix!r}): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", killed]).returncode == -9
    assert os.listdir(tmp_path) == [f"out{LOCK_SUFFIX}"]
    with hold(prefix):
        pass
    assert os.listdir(tmp_path) == []


def test_clean_removes_what_a_killed_process_left(tmp_path):
    prefix = f"{tmp_path}/out"
    clean = ["clean", f"--output={prefix}", f"--temp_location={tmp_path}", "--quiet"]
    with hold(prefix):
        assert main(clean) == 0
        assert os.listdir(tmp_path) == [f"out{LOCK_SUFFIX}"]
    (tmp_path / f"out{LOCK_SUFFIX}").touch()
    assert main([*clean, "--dry_run"]) == 0 and os.listdir(tmp_path) != []
    assert main(clean) == 0 and os.listdir(tmp_path) == []


def test_a_file_that_its_holder_removes_at_this_moment_is_no_lock(tmp_path, monkeypatch):
    path, flock = tmp_path / f"out{LOCK_SUFFIX}", fcntl.flock
    removals = [path.unlink]

    def late(descriptor, how):
        if removals:
            removals.pop()()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with hold(f"{tmp_path}/out"):
        assert path.exists() and not removals


@pytest.mark.parametrize("umask", [0, 0o777])
def test_anybody_may_ask_for_it(umask, tmp_path):
    before = os.umask(umask)
    try:
        with hold(f"{tmp_path}/out"):
            assert (tmp_path / f"out{LOCK_SUFFIX}").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


def test_a_file_of_somebody_else_stays(tmp_path):
    path = tmp_path / f"out{LOCK_SUFFIX}"
    path.write_text("mine")
    with hold(f"{tmp_path}/out"):
        pass
    assert path.read_text() == "mine"
    path.unlink()
    path.symlink_to("elsewhere")
    refused = pytest.raises(InputError, match=r"^--output: cannot write '.*/out': Too many levels")
    with refused, hold(f"{tmp_path}/out"):
        pass


@pytest.mark.parametrize("number, kind", [(28, UnavailableError), (13, InputError)])
def test_where_the_lock_cannot_be_made(number, kind, tmp_path, monkeypatch):
    def fails(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "makedirs", fails)
    with pytest.raises(kind, match=f"^--output: cannot write '.*/out': {os.strerror(number)}$"):
        hold(f"{tmp_path}/out").__enter__()


def test_a_filesystem_without_locks_holds_nobody_up(tmp_path, monkeypatch):
    def refuses(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuses)
    with hold(f"{tmp_path}/out"), hold(f"{tmp_path}/out"):
        pass


@pytest.mark.parametrize("more", [[], ["--overwrite"]])
def test_a_second_run_waits_for_the_first(more, place, monkeypatch, capsys):  # noqa: F811
    codes = []

    def second_comes() -> None:
        when_run(monkeypatch, lambda: pytest.fail("ran"))
        codes.append(main(flags("--release_id=second", "--epsilon=0.2", *more)))
        draw()

    when_run(monkeypatch, second_comes)
    assert main(flags(*more)) == 0
    assert codes == [1] and f"dpbeam select: error: {UNDER_WAY.format('out')}\n" in capsys.readouterr().err
    assert release().state == "committed" and account().releases["second"].state == "returned"
    assert sorted(path.name for path in place.glob("out*")) == [
        *(f"out-0000{n}-of-00002.parquet" for n in (0, 1)),
        "out.ledger.json",
    ]


def test_a_second_run_that_comes_when_the_first_ends_does_no_work(place, monkeypatch, capsys):  # noqa: F811
    """It looked at the place before the first was done."""
    reserve = RunCharge.reserve

    def first_ends(charge, ledger) -> None:
        monkeypatch.setattr(RunCharge, "reserve", reserve)
        assert main(flags("--release_id=first", "--epsilon=0.2")) == 0
        when_run(monkeypatch, lambda: pytest.fail("ran"))
        reserve(charge, ledger)

    monkeypatch.setattr(RunCharge, "reserve", first_ends)
    assert main(flags()) == 2
    assert "'out.ledger.json' has appeared during the run" in capsys.readouterr().err
    assert release().state == "returned" and len(list(place.glob("out*"))) == 3
