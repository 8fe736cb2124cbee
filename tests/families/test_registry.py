"""What every family says of itself, and that nobody else keeps a list of families."""

import ast
import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import dpbeam
from dpbeam.cli import COMMANDS, main
from dpbeam.cli.plan import planned
from dpbeam.families.base import Table
from dpbeam.families.registry import families, family_of
from dpbeam.review.families import calibrated_anew
from tests.support.instances import popular_table

ROOT = Path(__file__).resolve().parents[2]
BUDGET = ["--epsilon=1", "--delta=1e-5"]
#: Family -> what `dpbeam plan` needs beside the budget.
PLANNED = {
    "select": ["--noisy_counts"],
    "top-k": ["--k=3"],
    "hitting-set": ["--k=3", "--family=hitting-set"],
    "count": ["--family=count"],
    "pack": ["--family=pack", "--supplies=supplies.yaml", "--num_agents=400"],
    "series": ["--nights=4"],
}


@pytest.fixture
def report(tmp_path, monkeypatch, capsys):
    """The report of `dpbeam plan` for a family."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "supplies.yaml").write_text("r: 100\n")

    def get(name: str) -> dict:
        assert main(["plan", *BUDGET, *PLANNED[name], "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return get


def test_each_has_a_command():
    for name, family in families().items():
        assert family.name == name and COMMANDS[name][1] == family.summary
        command = importlib.import_module(COMMANDS[name][0])
        assert command.make_parser() and callable(command.main) and command.COMMAND.family.name == name
    assert set(planned()) == set(families()) == set(PLANNED)


def test_no_two_write_the_same_ledgers():
    methods = [family.writes for family in families().values() if family.writes]
    assert (
        len(methods) == len(set(methods)) == len(families()) - 1
    )  # ledgers of selections name their selector
    assert family_of("mad2r").name == "select" and family_of("top-k").name == "top-k"
    assert family_of("of another version") is None


@pytest.mark.parametrize("name", PLANNED)
def test_a_plan_is_shown_whole(name, report):
    parts = list(families()[name].shown(report(name)))
    assert any(isinstance(part, str) and part for part in parts)
    for table in (part for part in parts if isinstance(part, Table)):
        assert table.rows and all(len(row) == len(table.columns) for row in table.rows)
        assert all(isinstance(cell, str) for row in table.rows for cell in row)


def _agents() -> pa.Table:
    return pa.table({"agent": [f"a{n}" for n in range(100)], "value": [0.5] * 100, "r": [0.5] * 100})


#: Family -> a ledger of it, from data in memory.
LEDGERS = {
    "select": lambda: dpbeam.select(popular_table(300), **SPENT, noisy_counts=True).ledger,
    "top-k": lambda: dpbeam.top_k(popular_table(300), k=3, **SPENT).ledger,
    "hitting-set": lambda: dpbeam.hitting_set(popular_table(300), k=3, **SPENT).ledger,
    "count": lambda: dpbeam.count(popular_table(300), domain=["i1", "i2"], **SPENT).ledger,
    "pack": lambda: dpbeam.pack(_agents(), supplies={"r": 50}, allow_small_supply=True, **SPENT).ledger,
    "series": lambda: dpbeam.Series(nights=3, **SPENT).ledger,
}
SPENT = {"epsilon": 2.0, "delta": 1e-4}


@pytest.mark.parametrize("name", families())
def test_a_ledger_leads_back_to_its_plan(name):
    ledger = LEDGERS[name]()
    assert family_of(ledger.method).name == name
    assert calibrated_anew(ledger).same
    for other in (replace(ledger, epsilon=1.0), replace(ledger, parameters={})):
        assert not calibrated_anew(other).same
    assert calibrated_anew(replace(ledger, method="of another version")) is None


def test_flags_of_others_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "supplies.yaml").write_text("r: 100\n")
    for name, flag, reason in (
        ("pack", "--method=mad", "--method does not apply to pack"),
        ("series", "--set=rounds=2", "--set does not apply to series"),
        ("top-k", "--degrees=1", "--degrees is of select: drop it"),
        ("top-k", "--nights=3", "--nights is of series: "),
        ("select", "--alpha=.1", "--alpha is of pack: give --family=pack too, or drop it"),
    ):
        assert main(["plan", *BUDGET, f"--family={name}", *PLANNED[name], flag]) == 2
        assert f"dpbeam plan: error: {reason}" in capsys.readouterr().err


def test_they_load_quickly():
    """`dpbeam --help` and wrong flags answer before anything heavy is there."""
    code = (
        "import sys; from dpbeam.families.registry import families; families(); "
        "print(sorted({'numpy', 'scipy', 'pyarrow', 'apache_beam'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_nobody_else_lists_them():
    """Two names of families in one module are a list; the public face has one, and audits and experiments theirs."""
    names = {*families(), *(family.writes for family in families().values() if family.writes)}
    for path in (ROOT / "dpbeam").rglob("*.py"):
        if sum(name in (text := path.read_text()) for name in names) < 2:
            continue
        constants = [n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)]
        own = {family_of(name).name if family_of(name) else name for name in names & {*map(str, constants)}}
        where = str(path.relative_to(ROOT / "dpbeam"))
        assert len(own) < 2 or where == "__init__.py" or where.startswith("lab/"), (where, own)
