"""How a command ends: exit codes when printing fails, warnings, the summary, results for programs, completion."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dpbeam import __version__
from dpbeam.accounting.ledger import Ledger
from dpbeam.cli import COMMANDS, hitting_set, main
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.jobs.console import run_command
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.jobs.progress import Progress
from dpbeam.selection.config import SelectionConfig
from tests.support.commands import COLUMNS, without_progress

ROOT = Path(__file__).resolve().parents[2]
BUDGET = ["--epsilon=2", "--delta=1e-3", "--users_at_least=100"]
PLAN = ["plan", "--epsilon=1", "--delta=1e-5", "--method=basic"]


def shell(line: str, *arguments: str) -> subprocess.CompletedProcess:
    """A line of bash in which "$@" is `dpbeam ARGUMENTS`."""
    command = [sys.executable, "-m", "dpbeam.cli", *arguments]
    return subprocess.run(
        ["bash", "-c", line, "bash", *command], capture_output=True, text=True, cwd=ROOT, timeout=120
    )


def job(pairs: str, tmp_path, *flags: str) -> list[str]:
    return ["select", "--input", pairs, *COLUMNS, *BUDGET, f"--output={tmp_path / 'out' / 'x'}", *flags]


@pytest.fixture
def full():
    """A stream on a device without room."""
    with open("/dev/full", "w", buffering=1) as stream:
        yield stream
        with contextlib.suppress(OSError):
            stream.close()


class TestPrinting:
    def test_a_committed_run_is_done_whatever_becomes_of_its_messages(
        self, pairs, tmp_path, full, monkeypatch, capsys
    ):
        monkeypatch.setattr("sys.stdout", full)
        assert main(job(pairs, tmp_path)) == 0
        [warning] = without_progress(capsys.readouterr().err).splitlines()
        assert warning == "dpbeam select: warning: cannot write to standard output: No space left on device"
        assert len(os.listdir(tmp_path / "out")) == 2

    def test_no_standard_output(self, pairs, tmp_path, monkeypatch, capsys):
        """As Python begins where it is closed."""
        monkeypatch.setattr("sys.stdout", None)
        assert main(job(pairs, tmp_path)) == 0
        assert without_progress(capsys.readouterr().err) == ""
        assert len(os.listdir(tmp_path / "out")) == 2

    def test_errors_that_nobody_can_read(self, pairs, tmp_path, full, monkeypatch):
        monkeypatch.setattr("sys.stderr", full)
        assert main(job(pairs, tmp_path)) == 0
        assert len(os.listdir(tmp_path / "out")) == 2

    def test_a_reader_may_leave(self, monkeypatch, capsys):
        done = shell('"$@" | true; exit ${PIPESTATUS[0]}', "select", "--help")
        assert (done.returncode, done.stderr) == (0, "")
        end, other = os.pipe()
        os.close(end)
        with open(other, "w") as left:
            monkeypatch.setattr("sys.stdout", left)
            assert main([*PLAN, "--json"]) == 0 and capsys.readouterr().err == ""

    @pytest.mark.parametrize("arguments", [PLAN, ["select", "--help"]])
    def test_a_product_that_is_lost_is_a_failure(self, arguments):
        done = shell('"$@" > /dev/full', *arguments)
        assert done.returncode == 1
        assert done.stderr.endswith(": error: cannot write to standard output: No space left on device\n")
        assert done.stderr.count("\n") == 1

    def test_letters_that_the_terminal_lacks(self, monkeypatch, capsys):
        printed = io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(printed, encoding="ascii", errors="strict"))
        assert main(PLAN) == 0 and capsys.readouterr().err == ""
        assert b"limit of any algorithm" in printed.getvalue()

    def test_trouble_after_the_commit_is_a_warning(self, pairs, tmp_path, capsys, monkeypatch):
        def broken(*_):
            raise RuntimeError("no such luck")

        monkeypatch.setattr("dpbeam.jobs.running.count_released", broken)
        assert main(job(pairs, tmp_path)) == 0
        err = without_progress(capsys.readouterr().err)
        assert err == (
            "dpbeam select: warning: the output is complete, but its summary failed: RuntimeError: no such luck\n"
        )
        assert len(os.listdir(tmp_path / "out")) == 2

    def test_a_signal_during_the_commit_waits(self, pairs, tmp_path, monkeypatch):
        from dpbeam.io.output import OutputTarget

        commit = OutputTarget.commit

        def interrupted(self, ledger):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(os.getpid(), number)
            return commit(self, ledger)

        monkeypatch.setattr(OutputTarget, "commit", interrupted)
        assert main(job(pairs, tmp_path, "--quiet")) == 0
        assert len(os.listdir(tmp_path / "out")) == 2

    def test_hangup_stops_a_command_unless_it_is_ignored(self, capsys):
        def body():
            os.kill(os.getpid(), signal.SIGHUP)
            return 0

        assert run_command("job", body) == 1
        assert capsys.readouterr().err == "dpbeam job: error: interrupted\n"
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        try:
            assert run_command("job", body) == 0
        finally:
            signal.signal(signal.SIGHUP, before)


class TestWarnings:
    def warnings(self, capsys, *arguments) -> list[str]:
        assert main(list(arguments)) == 0
        return [
            line.split(": warning: ")[1] for line in capsys.readouterr().err.splitlines() if "warning" in line
        ]

    def test_large_epsilon(self, pairs, tmp_path, capsys):
        dry = job(pairs, tmp_path, "--dry_run", "--quiet")
        [told] = self.warnings(capsys, *dry, "--epsilon=10.5")
        assert told.startswith("--epsilon=10.5 protects nobody: ") and "e^10.5" in told
        assert self.warnings(capsys, *dry, "--epsilon=10") == []
        assert len(self.warnings(capsys, "plan", "--epsilon=11", "--delta=1e-5", "--json")) == 1

    def test_delta_against_the_number_of_users(self, pairs, tmp_path, capsys):
        dry = job(pairs, tmp_path, "--dry_run", "--quiet")
        [told] = self.warnings(capsys, *dry, "--delta=1.1e-3", "--users_at_least=1000")
        assert told.startswith("--delta=0.0011 is above 1/1000: ") and "at most 0.0001" in told
        assert self.warnings(capsys, *dry, "--delta=1e-3", "--users_at_least=1000") == []

    def test_a_large_delta_where_nobody_says_how_many_users_there_are(self, pairs, tmp_path, capsys):
        dry = [word for word in job(pairs, tmp_path, "--dry_run", "--quiet") if "users_at" not in word]
        for command in (dry, ["plan", "--epsilon=1", "--quiet"], ["plan", "--k=3", "--epsilon=1", "--quiet"]):
            [told] = self.warnings(capsys, *command, "--delta=1.1e-4")
            assert told.startswith("--delta=0.00011 is large for more than 909 users: ")
            assert self.warnings(capsys, *command, "--delta=1e-4") == []
            assert self.warnings(capsys, *command, "--delta=1.1e-4", "--users_at_least=909") == []

    @pytest.mark.parametrize(
        ("words", "default"),
        [
            ((), "300, the default of gsu"),
            (("--method=basic",), "100, the default of basic"),
            (("--family=hitting-set", "--k=3", "--selector=basic"), "100, the default of basic"),
            (("--nights=3",), "300, the default of a series"),
        ],
    )
    def test_a_d0_far_from_the_default(self, words, default, capsys):
        plan = ["plan", "--epsilon=1", "--delta=1e-5", "--quiet", *words]
        [told] = self.warnings(capsys, *plan, "--max_items_per_user=2")
        assert told.startswith(f"--max_items_per_user=2 is far from {default}: ")
        assert self.warnings(capsys, *plan, "--max_items_per_user=10") == self.warnings(capsys, *plan) == []

    def test_a_d0_far_from_the_default_of_a_run(self, pairs, tmp_path, capsys):
        """Beside the warning of a fixed key, which is there under --quiet too."""
        few = job(pairs, tmp_path, "--quiet", "--max_items_per_user=2")
        far = "--max_items_per_user=2 is far from 300, the default of gsu: "
        [told] = self.warnings(capsys, *few, "--dry_run")
        assert told.startswith(far)
        [told, key] = sorted(self.warnings(capsys, *few, "--insecure_test_key=00"))
        assert told.startswith(far)
        assert key == "NOT PRIVATE: --insecure_test_key fixes the key of this run; never release its output"


class TestSummary:
    def unreviewed(self, ledger: Path) -> list[str]:
        """The methods whose proofs nobody has reviewed, as the ledger names them."""
        note = json.loads(ledger.read_text())["guarantee_note"]
        return re.findall(r"The proof of (\S+) is not peer-reviewed\.", note)

    def test_says_what_came_out_and_what_it_cost(self, pairs, tmp_path, capsys):
        assert main(job(pairs, tmp_path)) == 0
        lines = capsys.readouterr().out.splitlines()
        prefix = tmp_path / "out" / "x"
        released = pq.read_table(f"{prefix}-00000-of-00001.parquet").num_rows
        assert lines[0] == f"{released} items released: {prefix}-00000-of-00001.parquet"
        assert lines[3] == "budget spent: epsilon 2, delta 0.001 (method gsu, 8 rounds, gaussian accounting)"
        assert lines[4].startswith("no method was named: --items_per_user, ")
        assert lines[5].startswith(f"ledger: {prefix}.ledger.json (")
        assert lines[6].startswith("elapsed: ") and lines[6].endswith(" s") and len(lines) == 7
        assert self.unreviewed(Path(f"{prefix}.ledger.json")) == ["gsu"]  # which nothing else says

    def test_what_decided_is_that_of_the_plan(self, pairs, tmp_path, capsys):
        """Also of the selection of a domain, at its share of the budget; where there is none nothing is said."""
        budget, flags = ["--epsilon=2", "--delta=1e-3"], ("--method=basic", "--max_items_per_user=10")
        assert main(["plan", *budget, *flags, "--json"]) == 0
        one, ten = json.loads(capsys.readouterr().out)["users_needed"]
        assert main(job(pairs, tmp_path, *flags)) == 0
        told = capsys.readouterr().out
        assert told.splitlines()[1:3] == [
            "method basic: of each user at most 10 items count",
            f"users for an even chance of release: {one['users_0.5']} with 1 item each, {ten['users_0.5']} with 10",
        ]
        assert "no method was named" not in told and self.unreviewed(tmp_path / "out" / "x.ledger.json") == []
        chosen = ["top-k", "--k=3", f"--input={pairs}", f"--output={tmp_path / 'top'}", *budget]
        assert main([*chosen, "--selector=basic"]) == 0
        assert "method basic: of each user at most 100 items count" in capsys.readouterr().out
        assert self.unreviewed(tmp_path / "top.ledger.json") == ["gauss-rank"]
        assert main([*chosen, "--mechanism=limited-domain", "--overwrite"]) == 0
        assert "items count" not in capsys.readouterr().out

    def test_rules_that_drop_are_said_and_no_number(self, pairs, tmp_path, capsys):
        flags = ["--on_null=drop", "--on_bad_row=skip", "--min_users=3", "--items_per_user=8"]
        assert main(job(pairs, tmp_path, *flags)) == 0
        told = capsys.readouterr().out
        assert (
            "dropped by rule: rows without a user or item (--on_null=drop); rows that cannot be read "
            "(--on_bad_row=skip); items of fewer than 3 users (--min_users)\n"
        ) in told
        assert "no method was named" not in told

    def test_of_top_k(self, listed, tmp_path, capsys):
        flags = [*listed, "--k=3", f"--output={tmp_path / 'x'}"]
        assert main(["top-k", *flags, *BUDGET]) == 0
        out = capsys.readouterr().out
        assert "budget spent: epsilon 2, delta 0.001 (choice by gauss-rank; gaussian composition)" in out

    @pytest.mark.usefixtures("beams_runner")
    @pytest.mark.parametrize(
        "method,passes",
        [(["gsu", "--set=rounds=2"], "round {} of 2, weights"), (["mad2r"], "pass {} of 4, weights")],
    )
    def test_stages_off_a_terminal_are_lines(self, method, passes, pairs, tmp_path, capsys):
        assert main(job(pairs, tmp_path, "--num_shards=2", "--method", *method)) == 0
        lines = [line.removeprefix("dpbeam select: ") for line in capsys.readouterr().err.splitlines()]
        assert lines[0] == "reading" and lines[-1] == "writing" and len(lines) == len(set(lines))
        assert lines[1] == f"items of each user; {passes.format(1)}" and passes.format(2) in lines

    @pytest.mark.usefixtures("beams_runner")
    def test_rounds_in_one_step_are_one_line(self, pairs, tmp_path, capsys, monkeypatch):
        """Also where pairs take several blocks: this runner has the memory for all of them."""
        monkeypatch.setattr("dpbeam.selection.sizes.PAIRS_PER_BLOCK", 10)
        assert main(job(pairs, tmp_path)) == 0
        lines = [line.removeprefix("dpbeam select: ") for line in capsys.readouterr().err.splitlines()]
        assert lines == ["reading", "items of each user", "all rounds", "writing"]

    def test_quiet_says_nothing(self, pairs, tmp_path, capsys):
        assert main(job(pairs, tmp_path, "--quiet", "--dry_run")) == 0
        assert capsys.readouterr() == ("", "")

    def test_names_of_stages(self):
        progress = Progress("x", enabled=True, passes=8)
        described = progress.describe("(ref_AppliedPTransform_Rounds-Trips-Trip3WeightPerUser-Weigh_33)")
        assert described == "round 3 of 8, weights"
        assert progress.describe("(WriteReleased/Flatten/Read)") is None


class TestResultFile:
    def test_holds_public_values(self, pairs, tmp_path, capsys):
        result = tmp_path / "result.json"
        assert main(job(pairs, tmp_path, "--quiet", f"--result_file={result}")) == 0
        assert capsys.readouterr() == ("", "")
        outcome = json.loads(result.read_text())
        prefix = str(tmp_path / "out" / "x")
        ledger = json.loads(Path(outcome["ledger"]).read_text())
        assert outcome == {
            "form": 1,
            "software": f"dpbeam {__version__}",
            "command": "select",
            "status": "released",
            "exit_code": 0,
            "meaning": ExitCode.DONE.meaning,
            **dict.fromkeys(("error", "dataset", "release_id", "charge", "budget", "others")),
            "outputs": [f"{prefix}-00000-of-00001.parquet"],
            "ledger": f"{prefix}.ledger.json",
            "items_released": pq.read_table(outcome["outputs"][0]).num_rows,
            "others": None,
            "private": True,
            **{name: ledger[name] for name in ("method", "accounting", "epsilon", "delta", "parameters")},
        }

    def test_a_fixed_key_is_not_private(self, listed, tmp_path):
        result = tmp_path / "result.json"
        flags = [*listed, "--k=3", f"--output={tmp_path / 'x'}"]
        flags += ["--insecure_test_key=00", f"--result_file={result}", "--quiet"]
        assert main(["top-k", *flags, *BUDGET]) == 0
        outcome = json.loads(result.read_text())
        assert (outcome["private"], outcome["items_released"], outcome["command"]) == (False, 3, "top-k")

    def test_not_written_is_a_warning(self, pairs, tmp_path, capsys, monkeypatch):
        def full(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("dpbeam.io.new_files.NewFile._put", full)
        result = tmp_path / "result.json"
        assert main(job(pairs, tmp_path, "--quiet", f"--result_file={result}")) == 0
        assert capsys.readouterr().err == (
            f"dpbeam select: warning: --result_file: cannot write '{result}': No space left on device\n"
        )


@pytest.fixture
def listed(pairs, tmp_path) -> list[str]:
    """Pairs, and items of them that are public."""
    (tmp_path / "domain.txt").write_text("".join(f"i{n}\n" for n in range(1, 11)))
    return ["--input", pairs, *COLUMNS, f"--domain={tmp_path / 'domain.txt'}"]


class TestDeltaZero:
    @pytest.mark.parametrize(
        "mechanism,counts", [("pnf-peel", []), ("joint", ["--noisy_counts"]), ("fast-joint", [])]
    )
    def test_where_every_stage_is_pure(self, mechanism, counts, listed, tmp_path):
        flags = [*listed, f"--mechanism={mechanism}", "--k=3", *counts]
        assert (
            main(["top-k", *flags, "--epsilon=2", "--delta=0", f"--output={tmp_path / 'x'}", "--quiet"]) == 0
        )
        spent = Ledger.from_json((tmp_path / "x.ledger.json").read_text()).verify()
        assert spent.delta == 0 and 1.9 < spent.epsilon <= 2

    @pytest.mark.parametrize("flags", [["--mechanism=cdp-peel"], ["--mechanism=joint", "--delta=-1"]])
    def test_elsewhere(self, flags, listed, tmp_path, capsys):
        arguments = [*listed, "--k=3", "--epsilon=2", "--delta=0", f"--output={tmp_path / 'x'}"]
        assert main(["top-k", *arguments, *flags]) == 2
        assert "--delta must lie strictly between 0 and 1" in capsys.readouterr().err

    @pytest.mark.parametrize("mechanism", ["joint", "limited-domain"])
    def test_without_a_public_domain(self, mechanism, pairs, tmp_path, capsys):
        flags = [
            "--k=3",
            f"--mechanism={mechanism}",
            "--epsilon=2",
            "--delta=0",
            f"--output={tmp_path / 'x'}",
        ]
        assert main(["top-k", "--input", pairs, *COLUMNS, *flags]) == 2
        assert "--delta must lie strictly between 0 and 1" in capsys.readouterr().err


class TestPlans:
    def test_of_a_jobs_file(self, tmp_path, capsys):
        for name in ("select.yaml", "select_text.yaml"):
            assert main(["plan", f"--config={ROOT / 'configs' / name}", "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["delta"] == 1e-8
        assert main(["plan", f"--config={ROOT / 'configs' / 'top_k.yaml'}", "--json", "--k=20"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["job"], report["k"], report["selection"]["method"]) == ("top-k", 20, "gsu")
        assert report["noisy_count_deviation"] > 0 and report["composition"] == "zcdp"

    def test_what_does_not_belong(self, tmp_path, capsys):
        path = tmp_path / "job.yaml"
        path.write_text("k: 3\nmethod: basic\n")
        for flags, message in (
            ([f"--config={path}"], "--method does not apply to top-k; use --selector"),
            (["--mechanism=joint"], "--mechanism is of top-k: give --k too, or drop it"),
            (["--public_domain"], "--public_domain is of top-k: give --k too, or drop it"),
            (["--family=select", "--k=3"], "--k is of top-k: drop it"),
            (["--family=top-k"], "--k is required"),
            (["--family=hitting-set"], "--k is required"),
            (["--family=hitting-set", "--k=3", "--noisy_counts"], "--noisy_counts is of top-k: drop it"),
            (["--family=hitting-set", "--k=3", "--mechanism=joint"], "--mechanism is of top-k: drop it"),
            (["--family=hitting-set", "--k=3", "--method=basic"], "--method does not apply to hitting-set"),
            (["--family=hitting-set", "--k=3", "--alpha=0.2"], "--alpha is of pack"),
            (
                ["--family=hitting-set", "--k=3", "--public_domain", "--selector=basic"],
                "--selector belongs to a selection stage, and --public_domain leaves none",
            ),
            (
                ["--family=hits", "--k=3"],
                "--family: expected select, top-k, pack, hitting-set, count, series, got 'hits'",
            ),
            (["--input=x"], "unknown flag --input"),
        ):
            assert main(["plan", "--epsilon=1", "--delta=1e-5", *flags]) == 2
            assert message in capsys.readouterr().err

    def test_of_a_selection_with_noisy_counts(self, tmp_path, capsys):
        """They take their share of the budget, so thresholds are higher."""
        thresholds = []
        for more in ([], ["--noisy_counts"], ["--noisy_counts", "--noisy_count_share=0.5"]):
            assert main([*PLAN, *more, "--json"]) == 0
            thresholds.append(json.loads(capsys.readouterr().out)["rounds"][0]["threshold"])
        assert thresholds == sorted(set(thresholds))
        assert main([*PLAN, "--noisy_count_share=0.5"]) == 2
        assert "--noisy_count_share needs --noisy_counts" in capsys.readouterr().err

    def test_of_a_hitting_set(self, capsys):
        """What `hitting-set --dry_run` shows, also of the job's file; without --family a k means top-k."""
        file = f"--config={ROOT / 'configs' / 'hitting_set.yaml'}"
        assert main(["plan", file, "--family=hitting-set", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        options = hitting_set.make_parser().parse([file])[0]
        assert report == json.loads(json.dumps(HittingSetConfig.report(hitting_set.COMMAND.plan(options))))
        assert main(["plan", file, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["job"] == "top-k"
        flags = ["--family=hitting-set", "--epsilon=1", "--delta=1e-5", "--k=50"]
        assert main(["plan", *flags, "--selector=basic", "--selector_share=0.5"]) == 0
        told = capsys.readouterr().out
        assert "under first-hit composition (used)" in told and "loses to noise" in told
        assert main(["plan", *flags, "--public_domain", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["selection"] is None and report["rate"] == 0.6

    def test_errors_to_expect_fall_with_the_counts(self, capsys):
        assert main(["plan", "--epsilon=1", "--delta=1e-6", "--k=10", "--public_domain", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["expected_errors"]
        detected = [row["found"] for row in rows]
        ranks = [row["rank_error"] for row in rows]
        assert detected == sorted(detected) and detected[0] < 1 and detected[-1] == 1
        assert ranks == sorted(ranks, reverse=True) and ranks[-1] < 0.1 < ranks[0]

    def test_help_of_top_k_lists_what_it_accepts(self, capsys):
        assert main(["top-k", "--help"]) == 0
        out = capsys.readouterr().out
        for name in ("--method ", "--public_items", "--noisy_weights", "--num_output_shards"):
            assert name not in out


class TestCommands:
    @pytest.mark.parametrize("typed,meant", [("selct", "select"), ("topk", "top-k"), ("verfy", "verify")])
    def test_did_you_mean(self, typed, meant, capsys):
        assert main([typed]) == 2
        assert capsys.readouterr().err == f"dpbeam: error: unknown command '{typed}'; did you mean {meant}?\n"
        assert main(["frobnicate"]) == 2
        assert "; one of select, top-k, " in capsys.readouterr().err

    @pytest.mark.parametrize("command", COMMANDS)
    def test_every_command_has_the_same_common_flags(self, command, capsys):
        assert main([command, "--version"]) == 0
        assert capsys.readouterr().out.startswith("dpbeam ")
        assert main([command, "--help_all"]) == 0
        out, err = capsys.readouterr()
        words = (f"dpbeam {command}", "--quiet", "--verbose", "--config", "--version")
        assert err == "" and all(word in out for word in words)

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            (
                "first\n\tat a.B.c(D.java:1)\nCaused by: x.Y: no way\n"
                "\tat java.base/a.B.<init>(D.java:1)\n\t... 6 more\n]",
                "Y: no way",
            ),
            ("a job\nmet ... this (at noon)\n", "met ... this (at noon)"),
            ("]", "no message"),
        ],
    )
    def test_the_cause_of_an_engines_trace(self, text, told, capsys, monkeypatch):
        def broken(*_, **__):
            raise RuntimeError(text)

        monkeypatch.setattr(SelectionConfig, "plan", broken)
        assert main(PLAN) == 1
        assert capsys.readouterr().err.splitlines()[-1].endswith(f"{told} (--verbose shows the whole trace)")

    def test_verbose_from_a_file(self, tmp_path, capsys, monkeypatch):
        def broken(*_, **__):
            raise RuntimeError("deep inside")

        monkeypatch.setattr(SelectionConfig, "plan", broken)
        path = tmp_path / "a.yaml"
        path.write_text("verbose: true\n")
        assert main(PLAN) == 1
        assert "Traceback" not in capsys.readouterr().err
        assert main([*PLAN, f"--config={path}"]) == 1
        assert "Traceback" in capsys.readouterr().err

    def test_completion_in_bash(self, tmp_path, capsys):
        assert main(["completion", "bash"]) == 0
        script = tmp_path / "dpbeam.bash"
        script.write_text(capsys.readouterr().out)
        for words, expected in (
            ("dpbeam sel", "select"),
            ("dpbeam select --eps", "--epsilon"),
            ("dpbeam cl", "clean"),
        ):
            last = words.split()[-1]
            line = (
                f"source {script}; COMP_WORDS=({words}); COMP_CWORD=$(({len(words.split())} - 1)); "
                f'_shtab_dpbeam dpbeam {last} x; echo "${{COMPREPLY[@]}}"'
            )
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
            assert done.stdout.split() == [expected], done.stderr

    def test_completion_in_zsh(self, capsys):
        assert main(["completion", "zsh"]) == 0
        out = capsys.readouterr().out
        assert (
            out.startswith("#compdef dpbeam\n") and "--max_items_per_user" in out and "--no_quiet" not in out
        )

    def test_completion_of_nothing_known(self, capsys):
        assert main(["completion", "fish"]) == 2
        assert (
            capsys.readouterr().err == "dpbeam completion: error: give the shell: bash or zsh, got 'fish'\n"
        )
