"""The `dpbeam` command itself, and the subcommands that need no job: plan, check."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dpbeam import __version__
from dpbeam.accounting.limits import users_needed_limit
from dpbeam.cli import COMMANDS
from dpbeam.selectors.registry import advised, selectors
from tests.support.commands import run


class TestDispatch:
    def test_version_and_help(self, capsys):
        assert run(capsys, "--version") == (0, f"dpbeam {__version__}\n", "")
        code, out, _ = run(capsys, "--help")
        assert code == 0 and all(name in out for name in COMMANDS)

    def test_help_answers_without_starting_beam(self):
        plan = ["plan", "--epsilon=0", "--delta=1e-5"]
        budget = ["budget", "show", "--budget=sqlite:///no.db", "--dataset=d"]
        words = f"main({plan}); main({budget}); print('apache_beam' in sys.modules)"
        code = f"import sys; from dpbeam.cli import main; {words}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.strip() == "False", done.stderr


class TestPlan:
    def test_json(self, capsys):
        code, out, err = run(
            capsys, "plan", "--epsilon=1", "--delta=1e-5", "--method=basic", "--json", "--degrees=1,4"
        )
        assert (code, err) == (0, "")
        report = json.loads(out)
        [row] = report["rounds"]
        assert row["sigma"] == pytest.approx(3.8841, abs=1e-4)
        # max over t <= 100 of 1/sqrt(t) + sigma z_t, from an independent normal quantile
        assert row["threshold"] == pytest.approx(20.7897, abs=1e-3)
        one, four = report["users_needed"]
        assert (one["items_per_user"], four["weight"]) == (1, 0.5)
        assert one["users_0.5"] == 21 and four["users_0.5"] == 42
        limit = report["limit_of_any_algorithm"]
        assert limit["users_0.5"] == users_needed_limit(0.5, 1.0, 1e-5) == 12
        for name, least in limit.items():
            assert least <= one[name]

    def test_plot(self, tmp_path, capsys):
        flags = ["--epsilon=1", "--delta=1e-5", f"--plot={tmp_path / 'x.svg'}"]
        assert run(capsys, "plan", *flags, "--items_per_user=12")[0] == 0
        assert b"gsu, epsilon 1, delta 1e-05, D0 120" in (tmp_path / "x.svg").read_bytes()
        for more, said in (
            ([], f"--plot: '{tmp_path / 'x.svg'}' exists; pass --overwrite to replace it, or another name"),
            (
                [f"--plot={tmp_path / 'x.gif'}"],
                f"--plot: expected a name that ends in .svg or .png, got '{tmp_path / 'x.gif'}'",
            ),
            (["--k=3", f"--plot={tmp_path / 'y.svg'}"], "--plot does not apply to top-k"),
        ):
            assert run(capsys, "plan", *flags, *more) == (2, "", f"dpbeam plan: error: {said}\n")

    def test_plan_says_what_a_floor_costs(self, capsys):
        flags = ["--epsilon=1", "--delta=1e-5", "--method=basic", "--min_users=5"]
        code, out, _ = run(capsys, "plan", *flags, "--degrees=1,4")
        assert code == 0 and "min_users=5" in out
        assert out.endswith(
            "floor: no item of fewer than 5 users; 4 is taken off every weight before noise. "
            "More users for 50 %: 4 where users hold 1, 8 where users hold 4\n"
        )
        assert "floor" not in run(capsys, "plan", *flags[:3])[1]

    @pytest.mark.parametrize("method", selectors())
    def test_table(self, method, capsys):
        budget = ["--epsilon=1", "--delta=1e-8", "--max_items_per_user=8"]
        code, out, err = run(capsys, "plan", *budget, f"--method={method}")
        assert (code, err) == (0, "")
        assert "limit of any algorithm" in out and method in out

    def test_typical_users_choose_the_method(self, capsys):
        def plan(*flags):
            code, out, err = run(capsys, "plan", "--epsilon=1", "--delta=1e-5", "--json", *flags)
            assert (code, err) == (0, "")
            return json.loads(out)

        few, many = plan("--items_per_user=1.5"), plan("--items_per_user=21")
        sparse, dense = (advised(average)[0].name for average in (1.5, 21))
        assert few["method"] == few["recommended"]["method"] == sparse
        assert many["method"] == dense
        assert many["parameters"]["max_items_per_user"] == many["recommended"]["max_items_per_user"] == 210
        assert len(many["rounds"]) == 16
        planned = plan(
            "--items_per_user=21", f"--method={dense}", "--set=rounds=2", "--max_items_per_user=40"
        )
        assert len(planned["rounds"]) == 2 and planned["parameters"]["max_items_per_user"] == 40
        other = plan("--items_per_user=1.5", "--method=basic")
        assert other["method"] == "basic" and other["recommended"]["method"] == sparse
        assert "recommended" not in plan()

    def test_typical_users_choose_the_method_of_a_run(self, tmp_path, capsys):
        """As of a plan, and the run says so; a method that is named stays."""
        path = tmp_path / "pairs.csv"
        path.write_text("user,item\n" + "".join(f"{n},a\n" for n in range(90)))
        job = ["select", f"--input={path}", f"--output={tmp_path / 'x'}", "--epsilon=1", "--delta=1e-5"]
        code, out, _ = run(capsys, *job, "--items_per_user=1.5")
        ledger = json.loads((tmp_path / "x.ledger.json").read_text())
        assert (code, ledger["method"]) == (0, "vote") and out.startswith("recommended: --method=vote (")
        assert "method vote: " in out and "items_per_user" not in ledger["parameters"]
        code, out, _ = run(capsys, *job, "--items_per_user=1.5", "--method=basic", "--overwrite")
        assert code == 0 and out.startswith("recommended: --method=vote (") and "method basic: " in out
        assert json.loads((tmp_path / "x.ledger.json").read_text())["method"] == "basic"
        code, _, err = run(capsys, *job, "--rare_items_of_holder=1.5", "--overwrite")
        assert code == 2 and "--rare_items_of_holder needs --items_per_user" in err

    def test_the_recommendation_is_one_line_of_flags_and_a_reason(self, capsys):
        _, out, _ = run(capsys, "plan", "--epsilon=1", "--delta=1e-5", "--items_per_user=2")
        assert "recommended: --method=vote (one whole vote per user" in out
        code, _, err = run(capsys, "plan", "--epsilon=1", "--delta=1e-5", "--items_per_user=0.2")
        assert (code, len(err.splitlines())) == (2, 1)
        assert "--items_per_user must be a number from 1 to 1e+09, got 0.2" in err
        code, _, err = run(capsys, "plan", "--epsilon=1", "--delta=1e-5", "--items_per_user=2", "--k=5")
        assert (code, err) == (
            2,
            "dpbeam plan: error: --items_per_user recommends a method of select: drop it, or --k\n",
        )

    def test_rare_items_decide_where_a_mean_does_not(self, capsys):
        flags = ["plan", "--epsilon=1", "--delta=1e-5", "--items_per_user=5"]
        _, out, _ = run(capsys, *flags)
        assert "recommended: --method=gsu" in out and "unsure up to 15" in " ".join(out.split())
        _, out, _ = run(capsys, *flags, "--rare_items_of_holder=1.2")
        assert "recommended: --method=vote" in out and "unsure" not in out
        code, _, err = run(capsys, *flags[:3], "--rare_items_of_holder=1")
        assert (code, err) == (
            2,
            "dpbeam plan: error: --rare_items_of_holder needs --items_per_user\n",
        )

    def test_bad_degrees(self, capsys):
        assert run(capsys, "plan", "--epsilon=1", "--delta=1e-5", "--degrees=0")[0] == 2


class TestCheck:
    def test_local_runner_is_ready(self, tmp_path, capsys):
        code, out, err = run(capsys, "check", f"--output={tmp_path / 'x'}")
        assert (code, err) == (0, "") and out.rstrip().endswith("ready")

    def test_cluster_that_does_not_answer(self, capsys):
        code, out, _ = run(capsys, "check", "--runner=FlinkRunner", "--flink_master=localhost:1")
        assert code == 1 and "Flink cluster" in out

    def test_the_folder_of_a_series(self, tmp_path, capsys):
        code, out, _ = run(capsys, "check", f"--folder={tmp_path / 'f'}")
        assert code == 0 and "--folder" in out
        (tmp_path / "file").touch()
        code, out, _ = run(capsys, "check", f"--folder={tmp_path / 'file' / 'f'}")
        assert code == 1 and "correct --folder" in out

    def test_a_pattern_without_a_folder(self, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "a.csv").touch()
        code, out, _ = run(capsys, "check", "--input=*.csv")
        assert code == 0 and "1 files" in out

    def test_brackets_are_shown(self, tmp_path, capsys, monkeypatch):
        """In fixes such as dpbeam[gcs] and in names, which are no markup of the table."""
        find = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: find(name) if "pyspark" not in name else None
        )
        code, out, _ = run(capsys, "check", "--runner=PySparkRunner", "--input", str(tmp_path / "[red]x.csv"))
        assert code == 1 and "dpbeam[pyspark]" in out and "[red]x.csv" in "".join(out.split())

    def test_a_flag_that_beam_refuses_is_one_line(self, capsys):
        code, out, err = run(capsys, "check", "--runner=DataflowRunner", "--transform_name_mapping={bad")
        assert (code, out) == (2, "") and err.startswith("dpbeam check: error: --transform_name_mapping: ")
        assert err.count("\n") == 1


def test_the_console_script_is_the_command():
    script = Path(sys.executable).parent / "dpbeam"
    done = subprocess.run([str(script), "--version"], capture_output=True, text=True)
    assert done.stdout == f"dpbeam {__version__}\n"
