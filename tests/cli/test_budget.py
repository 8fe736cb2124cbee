"""`dpbeam budget`: its verbs, what they print, and what they refuse."""

import json
import os

import pytest

from dpbeam.cli import main
from dpbeam.cli.budget import VERBS
from tests.budget.test_store import TestHistory as Ledgers
from tests.budget.test_store import opened, reserve


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def budget(verb: str, *more: str, dataset: str = "logs") -> int:
    return main(["budget", verb, "--budget=b.db", *([f"--dataset={dataset}"] if dataset else []), *more])


def create(*more: str) -> None:
    assert budget("create", "--epsilon=1", "--delta=1e-6", *more) == 0


def shown(capsys, *more: str) -> dict:
    capsys.readouterr()
    assert budget("show", "--json", *more) == 0
    return json.loads(capsys.readouterr().out)


def test_an_account_is_opened_and_shown(capsys):
    create()
    assert capsys.readouterr().out.endswith("/b.db: epsilon 1, delta 1e-06\n")
    left = {"epsilon": 1.0, "delta": 1e-6}
    nothing = {"epsilon": 0.0, "delta": 0.0}
    budgets = [{"cohort": "", "days": "", "limit": left, "spent": nothing, "reserved": nothing, "left": left}]
    described = {"dataset": "logs", "composition": "basic", "limits": ["epsilon 1, delta 1e-06"]}
    assert shown(capsys) == {**described, "budgets": budgets, "open": []}
    assert budget("show", dataset="") == 0
    out = capsys.readouterr().out
    assert "logs" in out and "limit: epsilon 1, delta 1e-06" in out


def test_limits_are_data(capsys):
    create("--period=month", "--starts=2026-01-01")
    assert budget("limit", "--epsilon=2", "--delta=1e-6", "--ends=2026-12-31") == 0
    answer = shown(capsys, "--budget_period=2026-05-05")
    assert answer["limits"] == [
        "epsilon 1, delta 1e-06 for every month of the data from 2026-01-01",
        "epsilon 2, delta 1e-06 to 2026-12-31",
    ]
    assert [(row["cohort"], row["days"]) for row in answer["budgets"]] == [
        ("", "0001-01-01:2026-12-31"),
    ]


def test_open_releases_are_shown(capsys):
    reserve(opened("b.db"), "night")
    (only,) = shown(capsys)["open"]
    assert (
        only["release_id"] == "night"
        and only["state"] == "reserved"
        and "process 1 on here" in only["holder"]
    )
    assert budget("show") == 0
    out = capsys.readouterr().out
    assert "reserved: release 'night', process 1 on here" in out and "0.1" in out


def test_history_composes(capsys):
    store = opened("b.db", epsilon=10.0, delta=1e-4)
    for n in range(8):
        reserve(store, f"r{n}", 1.0, 1e-12, Ledgers().ledger())
    assert budget("history", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert [entry["kind"] for entry in answer["entries"]] == ["create", "limit", *["reserve"] * 8]
    together = answer["together"]
    assert together["releases"] == 8 and together["basic"] == {"epsilon": 8.0, "delta": 8e-12}
    assert (
        together["private"]
        and 0 < together["tightest"]["epsilon"] < 2
        and together["tightest"]["delta"] == 1e-4
    )
    assert budget("history") == 0
    out = capsys.readouterr().out
    assert (
        "8 releases count; sums: epsilon 8, delta 8e-12" in out
        and "the tightest that their noise allows" in out
    )
    assert "ann" in out and "reserve epsilon 1" in out


@pytest.mark.parametrize(
    "argv, message",
    [
        ([], "give a verb: one of create, limit, show, history, resolve"),
        (["sho"], "unknown verb 'sho'; did you mean show?"),
        (["show"], "--budget is required"),
        (["create", "--budget=b.db"], "--dataset is required"),
        (["create", "--budget=b.db", "--dataset=x"], "--epsilon is required"),
        (
            ["create", "--budget=b.db", "--dataset=x", "--epsilon=1", "--delta=2"],
            "--delta must be at least 0",
        ),
        (["show", "--budget=b.db", "--epsilon=1"], "--epsilon does not apply to budget show"),
        (["show", "--budget=b.db"], "--budget: there is no budget store '"),
        (["resolve", "--budget=b.db", "--dataset=x"], "--budget: there is no budget store '"),
    ],
)
def test_wrong_usage(argv, message, capsys):
    assert main(["budget", *argv]) == 2
    assert f"dpbeam budget: error: {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, message",
    [
        (["--composition=rdp"], "--composition must be one of basic, zcdp, got 'rdp'"),
        (["--period=moon"], "--period must be one of day, week, month, quarter, year, got 'moon'"),
        (["--starts=2026-02-02", "--ends=2026-02-01"], "--ends: 2026-02-01 is before --starts=2026-02-02"),
        (["--starts=tomorrow"], "--starts: expected a day such as 2026-01-31, got 'tomorrow'"),
        (["--cohort=x"], "unknown flag --cohort"),
        (["--dataset="], "--dataset must be 1 to 200 printable characters"),
    ],
)
def test_wrong_accounts_leave_none(more, message, capsys):
    assert budget("create", "--epsilon=1", "--delta=1e-6", *more) == 2
    assert f"dpbeam budget: error: {message}" in capsys.readouterr().err
    assert os.listdir() == []


def test_an_account_is_opened_once(capsys):
    create()
    assert budget("create", "--epsilon=2", "--delta=1e-6") == 2
    assert "there is an account of dataset 'logs' already" in capsys.readouterr().err
    assert budget("limit", "--epsilon=2", "--delta=1e-6", dataset="other") == 2
    assert "there is no account of dataset 'other'" in capsys.readouterr().err


def test_every_verb_is_described(capsys):
    assert main(["budget", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert all(verb in out and text in out for verb, (_, text) in VERBS.items())
