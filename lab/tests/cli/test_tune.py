"""`dpbeam tune`: from a model or from data to a --config file that `dpbeam select` takes."""

import json

import pyarrow.parquet as pq
import pytest
import yaml

from dpbeam.cli import main, select
from dpbeam.selection.config import SelectionConfig
from dpbeam.selectors.registry import selectors
from dpbeam_lab.evaluation.tuning import choices
from dpbeam_lab.synth import write_synthetic
from tests.support.commands import run

BUDGET = ["--epsilon=1", "--delta=1e-4"]
MODEL = [*BUDGET, "--users=1500", "--mean_items_per_user=6"]
SHORT = ["--repetitions=1", "--method=gsu", "--method=laplace", "--max_items_per_user=20"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    prefix = str(tmp_path_factory.mktemp("tune") / "pairs")
    [path] = write_synthetic(prefix, users=400, items=300, mean_items_per_user=10)
    return path


def tune(capsys, *arguments):
    return run(capsys, "tune", *arguments)


def columns(path):
    return [f"--input={path}", "--user_column=user", "--item_column=item"]


def test_a_model_gives_a_file_that_select_takes_as_it_is(tmp_path, pairs, capsys):
    job = tmp_path / "job.yaml"
    code, out, err = tune(capsys, *MODEL, *SHORT, f"--output={job}")
    assert (code, err) == (0, "")
    assert "no data were read" in out and "NOT PRIVATE" not in out and "pick" in out
    text = job.read_text()
    assert "# from a model; no data were read\n" in text
    flags = yaml.safe_load(text)
    assert (flags["epsilon"], flags["delta"], flags["max_items_per_user"]) == (1, 1e-4, 20)
    released = tmp_path / "out"
    assert main(["select", f"--config={job}", *columns(pairs), f"--output={released}", "--quiet"]) == 0
    ledger = json.loads((tmp_path / "out.ledger.json").read_text())
    assert ledger["method"] == flags["method"] == "gsu"
    assert ledger["parameters"]["rounds"] == flags["settings"]["rounds"]
    assert pq.read_table(f"{released}-00000-of-00001.parquet").num_rows > 0


def test_choices_come_back_from_their_files(tmp_path):
    job = tmp_path / "job.yaml"
    candidates = choices(1.0, 1e-5, tried={"max_items_per_user": (8, 16)})
    for choice in candidates[::3]:
        job.write_text(yaml.safe_dump(choice.flags(1.0, 1e-5)))
        options, _ = select.make_parser().parse([f"--config={job}"])
        assert select.COMMAND.plan(options).config == choice.plan.config, choice.title
    assert {choice.method for choice in candidates[::3]} == set(selectors())


def test_data_are_not_private_and_say_so_everywhere(tmp_path, pairs, capsys):
    job, plot = tmp_path / "job.yaml", tmp_path / "plot.svg"
    arguments = [*BUDGET, *columns(pairs), *SHORT, f"--output={job}", f"--plot={plot}"]
    code, out, err = tune(capsys, *arguments)
    assert (code, err) == (0, "")
    for text in (out, job.read_text(), plot.read_text()):
        assert "NOT PRIVATE: chosen by looking at data" in text
    assert "users_read=400" in out
    assert "laplace" in plot.read_text() and "the pick: gsu" in plot.read_text()
    code, out, err = tune(capsys, *arguments[:-2], "--json", "--users=1200")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["not_private"] is True
    assert (report["source"]["users"], report["source"]["users_read"]) == (1200, 400)


def test_json_has_every_choice(pairs, capsys):
    code, out, _ = tune(capsys, *MODEL, *SHORT, "--json", "--aim=pairs")
    report = json.loads(out)
    assert code == 0 and report["not_private"] is False
    assert report["source"]["users"] == 1500 and report["source"]["item_exponent"] == 1
    assert [row["mean"] for row in report["choices"]] == sorted(
        (r["pairs"] for r in report["choices"]), reverse=True
    )
    assert {row["choice"] for row in report["choices"]} == {
        "laplace",
        *(f"gsu rounds={r}" for r in (2, 4, 8, 16)),
    }
    pick = report["pick"]
    assert pick["mean"] >= 0.98 * report["best"]["mean"] and pick["trips"] <= report["best"]["trips"]
    assert SelectionConfig(**report["flags"]).method == pick["choice"].split()[0]


def test_a_model_says_how_far_it_may_be_off(tmp_path, pairs, capsys):
    """In JSON, on the terminal and in the file; data say nothing of it."""
    job = tmp_path / "job.yaml"
    near = [
        *BUDGET,
        "--users=1500",
        "--mean_items_per_user=4",
        "--repetitions=1",
        "--method=gsu",
        "--method=vote",
        "--max_items_per_user=20",
    ]
    _, out, _ = tune(capsys, *near, "--json")
    report = json.loads(out)
    error, pick = report["model_error"], report["pick"]
    low, high = error["promise_over_truth"]
    assert error["items"] == pytest.approx([pick["items"] / high, pick["items"] / low])
    methods = {row["choice"].split()[0]: row["mean"] for row in reversed(report["choices"])}
    other = ({"gsu", "vote"} - {pick["choice"].split()[0]}).pop()
    share = methods[other] / pick["mean"]
    assert error["near"] == ({other: pytest.approx(share)} if share >= 1 / error["ratio_of_methods"] else {})
    assert error["near"], "an example where both are near is wanted here"
    _, out, _ = tune(capsys, *near, f"--output={job}")
    for text in (out, job.read_text()):
        assert f"so the pick may release {error['items'][0]:,.0f} to {error['items'][1]:,.0f} items" in text
        assert f"near are {other} (" in text and "--rare_items_per_user or public data tell more" in text
    _, out, _ = tune(capsys, *near, "--rare_items_per_user=2.8")
    assert "rare_items_per_user=2.8" in out and "; public data tell more" in out
    _, out, _ = tune(capsys, *BUDGET, *columns(pairs), *SHORT, "--as_model", "--json")
    assert json.loads(out)["model_error"]["promise_over_truth"] == [0.7, 1.2]
    _, out, _ = tune(capsys, *BUDGET, *columns(pairs), *SHORT, "--json")
    assert "model_error" not in json.loads(out)


def test_a_model_may_be_fitted_to_data(pairs, capsys):
    code, out, _ = tune(capsys, *BUDGET, *columns(pairs), *SHORT, "--as_model", "--users=5000", "--json")
    report = json.loads(out)
    assert code == 0 and report["not_private"] is True
    assert report["source"]["of"] == "model" and report["source"]["users"] == 5000
    assert report["source"]["mean_items_per_user"] == pytest.approx(9, abs=1)


@pytest.mark.parametrize(
    "arguments,message",
    [
        (BUDGET, "--input, or --users and --mean_items_per_user of a model, is required"),
        (["--epsilon=1"], "--delta is required"),
        ([*MODEL, "--as_model"], "--as_model needs --input, to which the model is fitted"),
        (
            [*MODEL, "--input=x.parquet"],
            "--mean_items_per_user is of the model, which --input replaces: drop one",
        ),
        ([*MODEL, "--method=none"], "--method must be one of basic, "),
        ([*MODEL, "--aim=profit"], "--aim must be items or pairs, got 'profit'"),
        ([*MODEL, "--jobs=0"], "--jobs must be an integer from 1 to 1e+06, got 0"),
        ([*MODEL, "--repetitions=0"], "--repetitions must be an integer from 1 to 1000, got 0"),
        ([*MODEL, "--tolerance=2"], "--tolerance must be a number from 0 to 0.5, got 2.0"),
        ([*MODEL, "--time_limit=-1"], "--time_limit must be a number from 0.001 to 1e+09, got -1.0"),
        (
            [*MODEL, "--rare_items_per_user=1", "--item_exponent=1"],
            "--rare_items_per_user gives the exponent of items: drop it, or --item_exponent",
        ),
        ([*MODEL, "--rare_items_per_user=99"], "--rare_items_per_user: such a model's users hold "),
        ([*MODEL, "--item_exponent=9"], "--item_exponent: must be from 0 to 5, got 9.0"),
        (
            [*MODEL, "--output=/dev/null/pick.yaml"],
            "--output: cannot write '/dev/null/pick.yaml': '/dev/null' is no folder that can be written",
        ),
        (
            [*MODEL, "--plot=figure.pdf"],
            "--plot: expected a name that ends in .svg or .png, got 'figure.pdf'",
        ),
        (
            [*MODEL, "--max_items_per_user=2", "--method=mad"],
            "--max_items_per_user must be at least 4 for --method=mad",
        ),
    ],
)
def test_wrong_use_is_one_line_before_anything_runs(arguments, message, capsys):
    code, out, err = tune(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"dpbeam tune: error: {message}") and len(err.splitlines()) == 1


def test_two_files_are_two(tmp_path, capsys, monkeypatch):
    """The plot would replace the pick."""
    monkeypatch.chdir(tmp_path)
    for name in ("x.svg", f"{tmp_path}/x.svg"):
        code, out, err = tune(capsys, *MODEL, "--output=x.svg", f"--plot={name}")
        assert (code, out, err) == (2, "", "dpbeam tune: error: --plot: name another file than --output\n")


def test_a_file_is_not_replaced_unasked(tmp_path, capsys):
    job = tmp_path / "job.yaml"
    job.write_text("epsilon: 3\n")
    code, _, err = tune(capsys, *MODEL, *SHORT, f"--output={job}")
    assert code == 2 and f"--output: '{job}' exists; pass --overwrite to replace it" in err
    assert job.read_text() == "epsilon: 3\n"
    assert tune(capsys, *MODEL, *SHORT, f"--output={job}", "--overwrite", "--quiet")[0] == 0
    assert yaml.safe_load(job.read_text())["epsilon"] == 1


def test_little_time_is_said(capsys, tmp_path):
    """A whole method that did not run is named: in the table, on stderr, in the file and in JSON."""
    job, late = tmp_path / "job.yaml", "choices were not run for lack of time, nothing at all of "
    short = [*MODEL, "--method=gsu", "--method=basic", "--time_limit=0.001", f"--output={job}"]
    code, out, err = tune(capsys, *short)
    assert code == 0 and late in out and err.count(late) == 1 and f"# 29 of 30 {late}" in job.read_text()
    code, out, _ = tune(capsys, *short, "--overwrite", "--json")
    printed = json.loads(out)
    assert printed["methods_not_run"] in (["gsu"], ["basic"]) and printed["not_run"] == 29
