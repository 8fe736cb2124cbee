"""What cannot be held or never ends is refused at once."""

import pytest

from dpbeam.cli import main
from dpbeam_lab import room
from lab.tests.experiment_files import experiment

BUDGET = ["--epsilon=2", "--delta=1e-3"]


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
    "dataset, kind",
    [
        ("synth(users=10**12, items=5)", "select"),
        ("uniform(users=10**12, items=50, items_per_user=5)", "select"),
        ("synth_market(agents=10**12, resources=5)", "pack"),
    ],
)
@pytest.mark.parametrize("more", [["--dry_run"], ["--output=e"]])
def test_of_experiments(dataset, kind, more, place, capsys):
    (place / "e.py").write_text(experiment(datasets=f"{{'big': {dataset}}}", methods=f"[Run({kind!r})]"))
    assert main(["evaluate", "run", "e.py", *more]) == 2
    assert "e.py: datasets.big: needs about" in capsys.readouterr().err
    assert [path.name for path in place.iterdir()] == ["e.py"]
