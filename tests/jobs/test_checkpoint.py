"""`--checkpoint`: a command that was killed goes on when it is given again, and only where that is the same run."""

import glob
import importlib
import os
import re
import signal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.cli import COMMANDS, main
from dpbeam.cli.select import SelectOptions
from dpbeam.engine.beam import owner
from dpbeam.jobs import checkpoint, job, running
from dpbeam.jobs.identity import settings_digest
from tests.support.kill_at import in_child

ROUNDS = 4
#: Flags that change nothing of what is released. Another one here is another digest of runs that accounts know.
OPERATIONAL = {
    *("quiet", "verbose", "config", "dry_run", "overwrite", "result_file", "not_private_counts"),
    *("checkpoint", "passes_per_job", "num_shards", "users_at_least", "budget", "charge_test_key"),
    *("encrypt_intermediates", "allow_empty", "untested_runner"),
}


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.parquet"
    users = [f"u{n}" for n in range(300) for _ in range(3)]
    items = [f"i{(n * 7 + k * k) % 11}" for n in range(300) for k in range(3)]
    sessions = [f"s{n}" for n in range(len(users))]
    pq.write_table(pa.table({"user": users, "session": sessions, "item": items, "other": items}), path)
    return path


def flags(pairs, output, kept, *more: str) -> list[str]:
    return [
        *(
            "select",
            f"--input={pairs}",
            "--user_column=user",
            "--item_column=item",
            "--epsilon=1",
            "--delta=1e-6",
        ),
        *(
            "--method=gsu",
            f"--set=rounds={ROUNDS}",
            f"--output={output}",
            "--insecure_test_key=ab",
            "--quiet",
        ),
        *([f"--checkpoint={kept}", "--passes_per_job=1"] if kept else []),
        *more,
    ]


def released(output) -> list[dict]:
    rows = [row for path in glob.glob(f"{output}-*.parquet") for row in pq.read_table(path).to_pylist()]
    return sorted(rows, key=str)


def fail_in(monkeypatch, number: int) -> list[int]:
    """Jobs fail from the `number`-th (from 0) on; the list counts those that ran."""
    ran: list[int] = []
    run = running.run_and_wait

    def fails(*args):
        if len(ran) >= number:
            raise OSError(28, "No space left on device")
        ran.append(1)
        return run(*args)

    monkeypatch.setattr(running, "run_and_wait", fails)
    return ran


class TestGoingOn:
    def test_a_failed_run_goes_on_and_gives_what_one_run_gives(self, pairs, tmp_path, monkeypatch, capsys):
        kept = tmp_path / "kept"
        assert main(flags(pairs, tmp_path / "whole", None)) == 0
        with monkeypatch.context() as broken:
            fail_in(broken, 2)
            assert main(flags(pairs, tmp_path / "out", kept)) == 1
        assert f"its checkpoint stay in {kept}" in capsys.readouterr().err
        assert released(tmp_path / "out") == []
        (folder,) = os.listdir(kept)
        assert os.stat(kept / folder).st_mode & 0o077 == 0
        ran = fail_in(monkeypatch, ROUNDS)
        monkeypatch.setattr(job.Job, "read", None)  # the input is not read again
        assert main(flags(pairs, tmp_path / "out", kept)) == 0
        assert len(ran) == ROUNDS - 2
        assert released(tmp_path / "out") == released(tmp_path / "whole") != []
        assert os.listdir(kept) == []

    def test_the_private_folder_goes_where_there_is_nothing_to_go_on_from(self, pairs, tmp_path, monkeypatch):
        fail_in(monkeypatch, 0)
        assert main(flags(pairs, tmp_path / "out", tmp_path / "kept")) == 1
        assert os.listdir(tmp_path / "kept") == []

    def test_another_run_is_refused(self, pairs, tmp_path, monkeypatch, capsys):
        kept = tmp_path / "kept"
        with monkeypatch.context() as broken:
            fail_in(broken, 1)
            assert main(flags(pairs, tmp_path / "out", kept)) == 1
        (before,) = os.listdir(kept)

        def refused(why: str, *change: str) -> None:
            capsys.readouterr()
            assert main(flags(pairs, tmp_path / "out", kept, *change)) == 2
            assert f"--checkpoint: '{kept}' holds a run {why}; take another folder" in capsys.readouterr().err
            assert os.listdir(kept) == [before]

        for change in (
            *("--epsilon=2", "--insecure_test_key=cd", "--user_column=session", "--item_column=other"),
            *(
                "--on_null=drop",
                "--input_format=parquet",
                "--item_type=string",
                f"--output={tmp_path / 'else'}",
            ),
        ):
            refused("with other settings", change)
        assert main(["clean", f"--temp_location={kept}", "--quiet"]) == 0
        assert os.listdir(kept) == []

    def test_another_input_is_refused(self, pairs, tmp_path, monkeypatch, capsys):
        """One of the same name, size and time; a file that was copied, or touched, is the same."""
        kept, about, held = tmp_path / "kept", os.stat(pairs), pairs.read_bytes()
        with monkeypatch.context() as broken:
            fail_in(broken, 1)
            assert main(flags(pairs, tmp_path / "out", kept)) == 1
        place = held.index(b"u299")
        for data in (held[:place] + b"u298" + held[place + 4 :], held):
            pairs.unlink()
            pairs.write_bytes(data)
            os.utime(pairs, ns=(about.st_atime_ns, about.st_mtime_ns))
            assert main(flags(pairs, tmp_path / "out", kept)) == (0 if data == held else 2)
            said = f"--checkpoint: '{kept}' holds a run of an input that has changed since"
            assert (said in capsys.readouterr().err) == (data != held)

    def test_every_flag_is_part_of_the_run_unless_it_is_named_operational(self):
        for command, (module, _) in COMMANDS.items():
            parser = importlib.import_module(module).make_parser()
            names = {action.dest for action in parser._actions} - {"help", "version", "output"}
            if "insecure_test_key" not in names:
                continue
            options = parser.kind
            plain = settings_digest(command, options({}), "/out")
            for name in names:
                values = (
                    ({"rounds": 2}, {"rounds": 4}, {"gsu_cap": 0.5}) if name == "set" else ("a", "b", True)
                )
                digests = {settings_digest(command, options({name: value}), "/out") for value in values}
                operational = getattr(getattr(options, name, None), "operational", False)
                assert operational == (name in OPERATIONAL), (command, name)
                assert len(digests | {plain}) == (1 if operational else 4), (command, name)
        assert settings_digest("select", options({}), "/out") != settings_digest(
            "select", options({}), "/out2"
        )

    def test_a_constant_is_part_of_the_run_as_it_was_when_it_was_a_flag(self):
        """An account of version 1 knows a release by the digest of its flags."""
        now = {"k": 1, "set": {"rounds": 4, "budget_split": (0.5, 0.5)}}
        once = {"budget_split": (0.5, 0.5), "k": 1, "rounds": 4}
        assert (
            settings_digest("select", SelectOptions(now), "/out")
            == settings_digest("select", SelectOptions(once), "/out")
            == "19c445994ed11376714c082639bd0c192f0737cee7284c31030a235c8f2c5861"
        )

    def test_a_living_run_is_left_alone(self, pairs, tmp_path, monkeypatch, capsys):
        kept = tmp_path / "kept"
        with monkeypatch.context() as broken:
            fail_in(broken, 1)
            assert main(flags(pairs, tmp_path / "out", kept)) == 1
        (folder,) = glob.glob(f"{kept}/*")
        owner.mark(folder)
        assert main(flags(pairs, tmp_path / "out", kept)) == 1
        assert f"the run in '{kept}' is still going" in capsys.readouterr().err

    def test_runs_of_others_in_the_folder_stay_and_one_that_ends_meanwhile_is_in_nobodys_way(
        self, pairs, tmp_path, monkeypatch
    ):
        gone, other = (tmp_path / "kept" / f"dpbeam-run-{name}" for name in ("gone", "other"))
        other.mkdir(parents=True)
        (other / "key").write_text("secret")
        monkeypatch.setattr(checkpoint, "_folders", lambda folder: [str(gone), str(other)])
        assert main(flags(pairs, tmp_path / "out", tmp_path / "kept")) == 0
        assert released(tmp_path / "out") and (other / "key").read_text() == "secret"

    @pytest.mark.parametrize("name", ["", ".removed"])
    def test_a_run_that_was_being_removed_is_none_to_go_on_with(self, name, pairs, tmp_path, monkeypatch):
        """Its key went first."""
        kept = tmp_path / "kept"
        with monkeypatch.context() as broken:
            fail_in(broken, 1)
            assert main(flags(pairs, tmp_path / "out", kept)) == 1
        (folder,) = kept.iterdir()
        (folder / "key").unlink()
        folder.rename(f"{folder}{name}")
        assert main(flags(pairs, tmp_path / "out", kept)) == 0
        assert released(tmp_path / "out") and os.listdir(kept) == []

    def test_a_run_that_cannot_say_what_it_is_leaves_nothing(self, pairs, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(checkpoint.RunIdentity, "keep", full)
        assert main(flags(pairs, tmp_path / "out", tmp_path / "kept")) == 1
        assert os.listdir(tmp_path / "kept") == []

    @pytest.mark.parametrize(
        "more, message",
        [
            (["--passes_per_job=0"], "--passes_per_job must be at least 1, got 0"),
            (["--input=-", "--input_format=csv"], "--checkpoint: a pipe cannot be read again"),
        ],
    )
    def test_what_cannot_go_on_is_refused(self, more, message, pairs, tmp_path, capsys):
        assert main(flags(pairs, tmp_path / "out", tmp_path / "kept", *more)) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "kept").exists()

    def test_a_file_is_no_folder(self, pairs, tmp_path, capsys):
        assert main(flags(pairs, tmp_path / "out", pairs)) == 2
        assert f"--checkpoint {pairs}: {pairs} is a file, not a folder" in capsys.readouterr().err


def test_a_killed_command_goes_on(pairs, tmp_path, capsys):
    """kill -9 once there is a checkpoint."""
    kept = tmp_path / "kept"

    def killed() -> int:
        run = running.run_and_wait

        def run_or_die(*args):
            if glob.glob(f"{kept}/*/checkpoint-*"):
                os.kill(os.getpid(), signal.SIGKILL)
            return run(*args)

        running.run_and_wait = run_or_die
        return main(flags(pairs, tmp_path / "out", kept))

    assert in_child(killed) == -signal.SIGKILL
    assert main(flags(pairs, tmp_path / "whole", None)) == 0
    # What the dead process staged stays: with a name of its own, named by the next run.
    capsys.readouterr()
    assert main(flags(pairs, tmp_path / "out", kept)) == 0
    assert "a killed run left" in capsys.readouterr().err
    assert released(tmp_path / "out") == released(tmp_path / "whole") != []
    assert os.listdir(kept) == []


@pytest.mark.usefixtures("beams_runner")
def test_a_large_local_job_is_a_chain_that_releases_the_same(pairs, tmp_path, monkeypatch, capsys):
    """From PAIRS_FOR_JOBS on: a job for the blocks and one for each pass, which say what they do as one would."""

    def run(output: str) -> tuple[list[dict], list[str]]:
        arguments = flags(pairs, tmp_path / output, None, "--num_shards=3")
        assert main([a for a in arguments if a != "--quiet"]) == 0
        said = re.findall(r"round \d+ of \d+, [a-z ]*[a-z]", capsys.readouterr().err)
        return released(tmp_path / output), said

    expected, stages = run("one job")
    jobs = fail_in(monkeypatch, 100)
    monkeypatch.setattr(running, "PAIRS_FOR_JOBS", 1)
    assert run("a chain") == (expected, stages)
    assert len(jobs) == ROUNDS + 1
    assert expected and len(stages) >= ROUNDS
