"""Budgets, runners, addresses and folders that cannot work: one line, exit 2 or 1 as it may pass, nothing on disk."""

import os
import socket
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from dpbeam.selectors.registry import selectors
from dpbeam.storage import cloud
from tests.support.commands import COLUMNS, key_warning, without_progress
from tests.support.instances import popular_table

BUDGET = ["--epsilon=2", "--delta=1e-3"]


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """A job's input; the folder `tmp_path/temp` is where temporary files go by default."""
    temp = tmp_path / "temp"
    temp.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temp))
    pq.write_table(popular_table(200, 0), tmp_path / "pairs.parquet")
    return str(tmp_path / "pairs.parquet")


def refused(capsys, tmp_path, pairs, *flags) -> str:
    out = tmp_path / "out"
    code = main(["select", "--input", pairs, *COLUMNS, *BUDGET, f"--output={out / 'x'}", *flags])
    told, err = capsys.readouterr()
    assert (code, told) == (2, "") and err.count("\n") == 1, (code, told, err)
    assert not out.exists() and os.listdir(tmp_path / "temp") == []
    return err.removeprefix("dpbeam select: error: ").rstrip("\n")


class TestRunners:
    @pytest.mark.parametrize(
        "flags,message",
        [
            (["--runner=FlinkRuner"], "--runner: unknown runner 'FlinkRuner'; did you mean FlinkRunner?"),
            (["--runner=x"], "--runner: unknown runner 'x'; one of "),
            (["--runner=no.such.Runner"], "--runner: there is no class no.such.Runner"),
            (["--runner=os.NoRunner"], "--runner: there is no class os.NoRunner"),
            (
                ["--direct_num_workers=-1"],
                "--direct_num_workers must be a number from 0 (all cores), got '-1'",
            ),
            (
                ["--direct_num_workers", "-1"],
                "--direct_num_workers must be a number from 0 (all cores), got '-1'",
            ),
            (
                ["--runner=FlinkRunner", "--flink_master=no such host"],
                "--flink_master: 'no such host' is no address",
            ),
            (
                ["--runner=PortableRunner", "--job_endpoint=a b:1"],
                "--job_endpoint: 'a b:1' is no address",
            ),
            (
                ["--runner=PortableRunner", "--untested_runner"],
                "job server: PortableRunner has no address; give --job_endpoint=HOST:PORT",
            ),
            (["--labels=x", "--direct_test_splits=}"], "--direct_test_splits: invalid "),
        ],
    )
    def test_are_refused(self, flags, message, pairs, tmp_path, capsys):
        assert refused(capsys, tmp_path, pairs, *flags).startswith(message)

    @pytest.mark.parametrize(
        "flags", [["--runner=FlinkRuner"], ["--runner=FlinkRunner", "--flink_master=a b"]]
    )
    def test_check_says_so(self, flags, capsys):
        code = main(["check", *flags])
        out, err = capsys.readouterr()
        assert (
            (code, err) == (1, "")
            and "NO" in out
            and out.rstrip().endswith("not ready: fix the lines marked NO")
        )

    @pytest.mark.parametrize("name", ["FnApiRunner", "DirectRunner", "direct", "fnapirunner"])
    def test_names_that_beam_takes(self, name, pairs, tmp_path, capsys):
        flags = [f"--runner={name}", f"--output={tmp_path / 'x'}", "--dry_run"]
        assert main(["select", "--input", pairs, *COLUMNS, *BUDGET, *flags]) == 0

    @pytest.mark.engines  # processes of workers
    def test_worker_processes_keep_their_log_to_themselves(self, pairs, tmp_path):
        """And release what this process does."""
        budget = [*BUDGET, "--users_at_least=100"]
        command = ["select", "--input", pairs, *COLUMNS, *budget, "--insecure_test_key=ab"]
        flags = ["--direct_running_mode=multi_processing", "--direct_num_workers=1"]
        flags.append(f"--temp_location={tmp_path}")  # the machine's own may hold what a killed run left
        done = subprocess.run(
            [sys.executable, "-m", "dpbeam.cli", *command, *flags, f"--output={tmp_path / 'x'}"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, without_progress(done.stderr)) == (0, key_warning("select"))
        assert main([*command, f"--output={tmp_path / 'y'}"]) == 0
        x, y = (next(tmp_path.glob(f"{name}-*.parquet")) for name in "xy")
        assert x.read_bytes() == y.read_bytes() and pq.read_table(x).num_rows > 0


class TestTempLocation:
    def test_is_tried_first(self, pairs, tmp_path, capsys):
        (tmp_path / "file").write_text("")
        for place, message in (
            (tmp_path / "file", "is a file, not a folder; correct --temp_location"),
            (tmp_path / "file" / "x", "is a file, not a folder; correct --temp_location"),
            ("/proc/x", "cannot write in /proc: "),
            ("foo://x", "no filesystem for this path; "),
        ):
            told = refused(capsys, tmp_path, pairs, f"--temp_location={place}")
            assert told.startswith(f"--temp_location {place}: ") and message in told


class TestStoreThatIsDown:
    """It may be there a minute later: exit code 1, one line that names the flag."""

    @pytest.fixture(autouse=True)
    def nobody_listens(self, monkeypatch):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{probe.getsockname()[1]}")
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
                monkeypatch.setenv(name, "test")
            endpoint = f"BlobEndpoint=http://127.0.0.1:{probe.getsockname()[1]}/a"
            monkeypatch.setenv(
                "AZURE_STORAGE_CONNECTION_STRING", f"AccountName=a;AccountKey=c2VjcmV0;{endpoint}"
            )
            monkeypatch.setattr(cloud, "ATTEMPTS", 1)
            yield

    @pytest.mark.parametrize(
        "flag",
        [
            f"{flag}={store}://b/x{end}"
            for store in ("s3", "az")
            for flag, end in (("--input", "*.parquet"), ("--output", ""), ("--temp_location", ""))
        ],
    )
    def test_may_be_tried_again(self, flag, pairs, tmp_path, capsys):
        command = ["select", "--input", pairs, *COLUMNS, *BUDGET, f"--output={tmp_path}/out/x", "--quiet"]
        assert main([*command, flag]) == 1
        (told,) = without_progress(capsys.readouterr().err).splitlines()
        assert told.startswith(f"dpbeam select: error: {flag.partition('=')[0]}")
        assert "the store does not answer" in told
        assert not (tmp_path / "out").exists() and os.listdir(tmp_path / "temp") == []


class TestBudgets:
    @pytest.mark.parametrize("method", selectors())
    @pytest.mark.parametrize(
        "budget", [("1e-300", "1e-300"), ("1e-300", "1e-4"), ("1e300", "1e-300"), ("1e-9", "1e-320")]
    )
    def test_extreme_ones_are_planned_or_refused(self, method, budget, capsys):
        code = main(["plan", f"--epsilon={budget[0]}", f"--delta={budget[1]}", f"--method={method}"])
        err = without_progress(capsys.readouterr().err)
        errors = [line for line in err.splitlines() if "error: " in line]
        assert code == (2 if errors else 0) and len(errors) <= 1, err

    @pytest.mark.parametrize("budget", [("1e-300", "1e-5"), ("1e-300", "1e-29")])
    def test_of_top_k(self, budget, capsys):
        code = main(
            ["plan", f"--epsilon={budget[0]}", f"--delta={budget[1]}", "--k=3", "--mechanism=cdp-peel"]
        )
        err = capsys.readouterr().err
        assert code == 2 and (
            "cannot be calibrated" in err or "more than the fixed-point weights hold" in err
        )


class TestFilesForResults:
    def test_are_checked_before_the_run(self, pairs, tmp_path, capsys):
        there = tmp_path / "there.json"
        there.write_text("{}")
        for flag, message in (
            (f"--result_file={there}", f"--result_file: '{there}' exists; pass --overwrite to replace it"),
            (
                f"--result_file={tmp_path}",
                f"--result_file: '{tmp_path}' is a folder; give the name of a file",
            ),
            (f"--result_file={pairs}/r", f"--result_file: cannot write '{pairs}/r': "),
            (
                f"--not_private_counts={pairs}/r",
                f"--not_private_counts: cannot write '{pairs}/r': ",
            ),
            (f"--result_file={pairs}", f"--result_file: '{pairs}' is an input of this run"),
            (f"--not_private_counts={pairs}", f"--not_private_counts: '{pairs}' is an input of this run"),
        ):
            assert refused(capsys, tmp_path, pairs, flag).startswith(message)
