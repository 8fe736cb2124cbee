"""What cannot be held or never ends is refused at once."""

import json

import pytest

from dpbeam import room
from dpbeam.cli import main
from tests.cli.test_no_end_no_row import BUDGET


def test_evaluation_of_a_ledger_that_never_ends(place, capsys):
    argv = ["evaluate", "--input=a.csv", "--released=x", "--ledger=/dev/zero"]
    assert main(argv) == 2 and "--ledger" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv,message",
    [
        (
            ["synth", "--users=1000000000000", "--items=5", "--output=s"],
            "--users: needs about 20 TB in '",
        ),
        (
            ["synth", "--users=5", "--items=5", "--mean_items_per_user=1e300", "--output=s"],
            "--mean_items_per_user",
        ),
        (
            ["synth", "--users=5", "--items=5", "--shards=1000000000", "--output=s"],
            "--shards: must be from 1 to",
        ),
        (["synth", "--users=5", "--items=5", "--seed=-1", "--output=s"], "--seed: must be from 0"),
        (
            ["synth", "--users=5", "--items=5", "--item_bytes=1000000000", "--output=s"],
            "--item_bytes: must be",
        ),
        (["synth", "--agents=1000000000000", "--resources=9", "--output=s"], "--agents: needs about"),
        (
            ["synth", "--agents=9", "--resources=1000000000000", "--output=s"],
            "--resources: must be from 1 to",
        ),
        (["tune", *BUDGET, "--users=10000000", "--mean_items_per_user=19"], "--users: needs about"),
    ],
)
def test_of_commands(argv, message, place, capsys, monkeypatch):
    monkeypatch.setattr(room, "available_memory", lambda: 10**9)
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert f"error: {message}" in err and err.count("\n") == 1
    assert sorted(path.name for path in place.iterdir()) == []


@pytest.mark.parametrize(
    "dataset",
    [
        {"synth": {"users": 10**12, "items": 5}},
        {"uniform": {"users": 10**12, "items": 50, "items_per_user": 5}},
        {"synth": {"agents": 10**12, "resources": 5}},
    ],
)
@pytest.mark.parametrize("more", [["--dry_run"], ["--output=e"]])
def test_of_experiments(dataset, more, place, capsys):
    run = "pack" if "agents" in json.dumps(dataset) else "select"
    about = {
        "datasets": {"big": dataset},
        "budgets": {"epsilon": 1, "delta": 1e-5},
        "methods": [{"run": run}],
    }
    (place / "e.yaml").write_text(json.dumps(about))
    assert main(["evaluate", "run", "e.yaml", *more]) == 2
    assert "e.yaml: datasets.big: needs about" in capsys.readouterr().err
    assert sorted(path.name for path in place.iterdir()) == ["e.yaml"]
