"""What a killed run leaves behind is named by the next one, and `dpbeam clean` removes it, and nothing else."""

import contextlib
import glob
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import pytest

from dpbeam.cli import main
from dpbeam.engine.beam import owner
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.io.output import OutputTarget
from dpbeam.jobs import running
from dpbeam.signals import interrupting
from dpbeam.storage import processes
from dpbeam.storage.processes import Owner
from tests.support.commands import select_flags, small_pairs
from tests.support.kill_at import in_child


def folder_of(parent, name, **changes):
    """A run folder whose owner file is that of this process, changed."""
    folder = parent / name
    folder.mkdir(parents=True)
    owner.mark(str(folder))
    if changes:
        path = folder / owner.FILE
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    (folder / "key").write_text("secret")
    return folder


@pytest.fixture
def dead() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


class TestOwner:
    def test_states(self, tmp_path, dead):
        assert owner.state_of(str(folder_of(tmp_path, "own"))) == "alive"
        assert owner.state_of(str(folder_of(tmp_path, "parent", pid=1, started="0"))) == "gone"
        assert owner.state_of(str(folder_of(tmp_path, "dead", pid=dead))) == "gone"
        assert owner.state_of(str(folder_of(tmp_path, "away", host="another"))) == "elsewhere"
        assert owner.state_of(str(folder_of(tmp_path, "bad", pid="x"))) == "unknown"
        (tmp_path / "none").mkdir()
        assert owner.state_of(str(tmp_path / "none")) == "unknown"

    def test_a_number_used_again_is_another_process(self, tmp_path):
        assert owner.state_of(str(folder_of(tmp_path, "x", started="1"))) == "gone"

    @pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
    def test_a_dead_process_that_nobody_waited_for_is_gone(self, tmp_path):
        process = subprocess.Popen(["sleep", "60"])
        fields = processes._stat(process.pid)
        folder = str(folder_of(tmp_path, "x", pid=process.pid, started=fields[19]))
        assert owner.state_of(folder) == "alive"
        process.kill()
        until = time.monotonic() + 20
        while processes._stat(process.pid)[0] != "Z" and time.monotonic() < until:
            time.sleep(0.01)
        assert owner.state_of(folder) == "gone"
        process.wait()

    def test_a_run_folder_names_its_process(self, tmp_path):
        with RunFolder(str(tmp_path)) as run:
            assert owner.state_of(run.path) == "alive"
        assert os.listdir(tmp_path) == []

    def test_a_resumed_run_folder_belongs_to_who_resumed_it(self, tmp_path, dead):
        run = RunFolder(str(tmp_path))
        path = tmp_path / run.path / owner.FILE
        path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": dead}))
        assert owner.state_of(run.path) == "gone"
        with RunFolder.resume(run.path):
            assert owner.state_of(run.path) == "alive"

    def test_a_run_folder_that_cannot_be_made_whole_is_removed(self, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("dpbeam.engine.beam.store.RunStore.write_bytes", full)
        with pytest.raises(OSError, match="No space left"):
            RunFolder(str(tmp_path))
        assert os.listdir(tmp_path) == []


def unlinking(monkeypatch, name, act):
    """Before a file of this name is deleted, or any, something else happens."""
    unlink = os.unlink

    def first(path, **place):
        if name in (None, os.path.basename(path)):
            act()
        unlink(path, **place)

    monkeypatch.setattr(os, "unlink", first)


class Killed(BaseException):
    """Ends the process where a test says so."""


class TestRemoval:
    """A folder that was removed is gone, or what is left of it is known, whatever happens meanwhile."""

    @pytest.fixture
    def run(self, tmp_path):
        run = RunFolder(str(tmp_path))
        run.store.write_bytes("block-0", b"private")
        os.makedirs(os.path.join(run.path, "a", "b"))
        return run

    def test_a_late_worker_finds_no_folder(self, run, tmp_path, monkeypatch, capsys):
        late, refused = RunStore(run.path), []

        def write():
            with pytest.raises(FileNotFoundError):
                late.write_bytes("late", b"private")
            refused.append(True)

        unlinking(monkeypatch, "block-0", write)
        run.remove()
        assert refused and os.listdir(tmp_path) == []
        run.remove()
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize("kind", ["run", "staging"])
    def test_what_a_killed_process_leaves_is_known(self, kind, tmp_path, monkeypatch):
        """Killed before any file is deleted. The key goes first; staged output keeps its path, which accounts name."""
        step = left = 0
        while step == 0 or left:
            place = tmp_path / str(step)
            if kind == "run":
                run = RunFolder(str(place))
                folder, remove, names = run.path, run.remove, ["block-0", "sent-1"]
            else:
                target = OutputTarget(str(place / "x"))
                folder, remove, names = target.prepare(), target.abort, ["shard-0", "ledger.json"]
                owner.mark(folder)
            for name in names:
                pathlib.Path(folder, name).write_text("private")
            before, deleted = len(os.listdir(folder)), []

            def die(step=step, deleted=deleted):
                if len(deleted) == step:
                    raise Killed
                deleted.append(True)

            with monkeypatch.context() as patch, contextlib.suppress(Killed):
                unlinking(patch, None, die)
                remove()
            left = [path for path in place.iterdir() if any(path.iterdir())]
            assert all(owner.owner_of(str(path)) == Owner.this_process() for path in left)
            assert all(path.name.startswith(os.path.basename(folder)) for path in left)
            if kind == "staging":
                assert [str(path) for path in left] in ([folder], [])
            elif step:
                assert not any((path / "key").exists() for path in left)
            step += 1
        assert step > before

    def test_what_stays_is_said(self, run, tmp_path, monkeypatch, capsys):
        def denied():
            raise PermissionError(13, "Permission denied")

        target = OutputTarget(str(tmp_path / "x"))
        target.prepare()
        pathlib.Path(target.staging, "block-0").touch()
        with monkeypatch.context() as patch:
            unlinking(patch, "block-0", denied)
            run.remove()
            target.abort()
        first, second = capsys.readouterr().err.splitlines()
        said = first.partition("remove what is left: ")[2]
        assert first.startswith("dpbeam: warning: private data of a run could not be removed")
        assert sorted(os.listdir(said)) == ["block-0", owner.FILE]
        assert owner.folders(str(tmp_path), owner.RUN_FOLDER) == [said]
        assert second.startswith("dpbeam: warning: staged output") and second.endswith(target.staging)
        assert sorted(os.listdir(target.staging)) == ["block-0", owner.FILE]
        owner.unmark(said)
        assert main(["clean", f"--temp_location={tmp_path}", "--quiet"]) == 0
        assert os.listdir(tmp_path) == [os.path.basename(target.staging)]

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_waits(self, run, tmp_path, monkeypatch, number):
        unlinking(monkeypatch, "block-0", lambda: signal.raise_signal(number))
        with interrupting(every=True), pytest.raises(KeyboardInterrupt):
            run.remove()
        assert os.listdir(tmp_path) == []

    def test_a_handler_that_could_not_be_put_back_stays(self, run, tmp_path, monkeypatch):
        """One that is not of Python."""
        taken = []
        monkeypatch.setattr(signal, "getsignal", lambda number: None)
        monkeypatch.setattr(signal, "signal", lambda number, handler: taken.append(number))
        run.remove()
        assert os.listdir(tmp_path) == taken == []


class TestClean:
    @pytest.fixture
    def places(self, tmp_path, dead):
        """Folders of every kind, run folders and staged output, for a prefix with wildcards."""
        temp, out = tmp_path / "temp", tmp_path / "out"
        made = {
            "gone": folder_of(temp, "dpbeam-run-1", pid=dead),
            "alive": folder_of(temp, "dpbeam-run-2"),
            "elsewhere": folder_of(temp, "dpbeam-run-3", host="another"),
            "other name": folder_of(temp, "run-4", pid=dead),
            "staged": folder_of(out, "x[1]*.staging-00", pid=dead),
            "staged beside": folder_of(out, "x1.staging-00", pid=dead),
        }
        (temp / "dpbeam-run-5").mkdir()
        made["unknown"] = temp / "dpbeam-run-5"
        return made, [f"--temp_location={temp}", f"--output={out}/x[1]*"]

    def left(self, made):
        return {name for name, folder in made.items() if folder.exists()}

    def test_removes_what_is_gone_alone(self, places, capsys):
        made, flags = places
        assert main(["clean", *flags, "--dry_run"]) == 0
        assert self.left(made) == set(made)
        assert "would be removed" in capsys.readouterr().out
        assert main(["clean", *flags]) == 0
        assert self.left(made) == set(made) - {"gone", "staged"}
        out = capsys.readouterr().out
        assert "2 folders removed" in out
        assert "made on another machine, or by a pipeline; left as it is, --force removes it" in out

    def test_force_spares_the_living(self, places):
        made, flags = places
        assert main(["clean", *flags, "--force", "--quiet"]) == 0
        assert self.left(made) == {"alive", "other name", "staged beside"}

    @pytest.mark.parametrize("spelling", ["~/out/x", "file:{}/out/x", "file://{}/out/x"])
    def test_the_output_is_named_as_for_the_run(self, tmp_path, dead, spelling, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        staged = folder_of(tmp_path / "out", "x.staging-00", pid=dead)
        (tmp_path / "temp").mkdir()
        flags = [f"--temp_location={tmp_path / 'temp'}", f"--output={spelling.format(tmp_path)}", "--quiet"]
        assert main(["clean", *flags]) == 0
        assert not staged.exists()

    @pytest.mark.parametrize("flag", ["--temp_location", "--output"])
    def test_an_unknown_scheme_is_refused(self, flag, capsys):
        assert main(["clean", f"{flag}=foo://b/x"]) == 2
        err = capsys.readouterr().err
        assert err.startswith(
            f"dpbeam clean: error: {flag}: cannot look up 'foo://b/x': no filesystem is known"
        )
        assert err.count("\n") == 1

    def test_links_are_not_followed(self, tmp_path, dead):
        target = folder_of(tmp_path, "elsewhere", pid=dead)
        (tmp_path / "temp").mkdir()
        (tmp_path / "temp" / "dpbeam-run-1").symlink_to(target)
        assert main(["clean", f"--temp_location={tmp_path / 'temp'}", "--force", "--quiet"]) == 0
        assert target.exists()


def test_a_killed_run_is_named_and_cleaned(tmp_path, capsys, monkeypatch):
    temp, out = tmp_path / "temp", tmp_path / "out[1]*"
    temp.mkdir()
    argv = ["select", *select_flags(small_pairs(tmp_path), out / "x", temp)]
    with monkeypatch.context() as patch:
        patch.setattr(running, "run_and_wait", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        assert in_child(lambda: main(argv)) == -signal.SIGKILL
    [folder] = glob.glob(f"{temp}/dpbeam-run-*")
    assert os.path.exists(f"{folder}/key") and sorted(os.listdir(out))[0] == "x.dpbeam.lock"
    capsys.readouterr()
    assert main(argv) == 0
    warning = "dpbeam select: warning: a killed run left "
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith(warning)]
    assert "which may hold private data; remove it: dpbeam clean" in line and " and 1 more" in line
    dpbeam, *words = shlex.split(line.split("remove it: ")[1])
    assert dpbeam == "dpbeam" and main(words) == 0
    assert os.listdir(temp) == [] and len(os.listdir(out)) == 2


def test_empty_folders_of_beam(tmp_path, capsys):
    """They name no process: an empty one that is a day old is no living run's, one with anything in it may be."""
    for name in ("old", "young", "full"):
        (tmp_path / f"beam-pipeline-temp{name}").mkdir()
    (tmp_path / "beam-pipeline-tempfull" / "x").write_text("")
    for name in ("old", "full"):
        os.utime(tmp_path / f"beam-pipeline-temp{name}", (0, 0))
    (tmp_path / "dpbeam-evaluate-x").mkdir()
    owner.unmark(str(tmp_path / "dpbeam-evaluate-x"))
    assert main(["clean", f"--temp_location={tmp_path}"]) == 0
    assert sorted(os.listdir(tmp_path)) == ["beam-pipeline-tempfull", "beam-pipeline-tempyoung"]
    assert main(["clean", f"--temp_location={tmp_path}", "--force", "--quiet"]) == 0
    assert os.listdir(tmp_path) == ["beam-pipeline-tempfull"]


def test_a_library_that_is_not_there_is_no_word_of_ours(tmp_path):
    argv = [sys.executable, "-m", "dpbeam.cli", "clean", f"--temp_location={tmp_path}"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 folders removed\n", "")
