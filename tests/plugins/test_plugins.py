"""A distribution that adds a selector with an event of its own, and a format: by entry points alone."""

import contextlib
import json
import math
from pathlib import Path

import pytest

from dpbeam import plugins
from dpbeam.accounting.ledger import Ledger
from dpbeam.cli import main
from dpbeam.errors import InputError
from dpbeam.families.registry import families
from dpbeam.io import formats
from dpbeam.selectors import registry
from tests.plugins.faults import ENTRIES, PACKAGE
from tests.support.plugins import installed, put

BUDGET = ["--epsilon=2", "--delta=1e-3"]


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs the package with these entry points, and forgets it afterwards."""
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:

        def install(entries: str = ENTRIES, name: str = "geometric") -> None:
            put(tmp_path / name, PACKAGE, entries, name=name)
            stack.enter_context(installed(tmp_path / name, PACKAGE.name))

        install.gone = stack.close
        yield install


@pytest.fixture
def ledger(install, tmp_path) -> Path:
    install()
    rows = [f"u{user}|{item}" for user in range(60) for item in ("a", "b" if user % 2 else "c", f"own{user}")]
    (tmp_path / "pairs.bars").write_text("\n".join(["user|item", *rows]) + "\n")
    argv = ["--input=pairs.bars", "--method=geometric", "--max_items_per_user=3", *BUDGET, "--output=out/x"]
    assert main(["select", *argv, "--output_format=text", "--quiet"]) == 0
    return tmp_path / "out" / "x.ledger.json"


def test_all_commands_know_what_it_wrote(ledger, capsys):
    released = (ledger.parent / "x-00000-of-00001.txt").read_text().split()
    assert sorted(released) == ["a", "b", "c"]
    assert main(["verify", "--contents", str(ledger)]) == 0
    assert main(["report", str(ledger)]) == 0
    assert main(["export", str(ledger), "--output=event.json"]) == 0
    assert json.loads(Path("event.json").read_text())["declared"]["epsilon"] == 2
    assert main(["methods", "geometric"]) == 0
    assert "geometric" in capsys.readouterr().out


def test_where_it_is_not_installed_its_ledger_is_not_guessed_at(ledger, install, capsys):
    install.gone()
    assert main(["verify", str(ledger)]) == 2
    assert (
        "unknown event 'SplitCoinEvent': is the package that wrote it installed?" in capsys.readouterr().err
    )


def test_a_ledger_that_claims_less_is_refused(ledger):
    values = json.loads(ledger.read_text())
    values["events"]["parts"][0]["max_items"] = 4
    with pytest.raises(ValueError, match="epsilon"):
        Ledger.from_json(json.dumps(values))


def test_its_law_is_the_recursion_of_the_paper(install):
    from dpbeam.selection.config import SelectionConfig
    from dpbeam.selection.plan import make_plan

    install()
    plan = make_plan(SelectionConfig(1.0, 1e-5, "geometric", max_items_per_user=3))
    a, b, p = 1 / 3, 1e-5 / 3, 0.0
    for users in range(200):
        # The upper half is the lower one's mirror image, which may be a step of the recursion behind.
        near = {"rel": 1e-9} if p < 0.5 else {"abs": 1e-6}
        assert plan.keep_probability(users, 3) == pytest.approx(p, **near)
        p = min(1.0, math.exp(a) * p + b, 1 - math.exp(-a) * (1 - p - b))


@pytest.mark.parametrize(
    ("entries", "look", "message"),
    [
        (
            f"[{plugins.FORMATS}]\ncsv = {PACKAGE.name}.bars:Bars\n",
            formats.names,
            "adds 'csv', which is there already",
        ),
        (
            f"[{plugins.FORMATS}]\nbars = {PACKAGE.name}.bars:Nothing\n",
            lambda: formats.find("bars"),
            "cannot load",
        ),
        (f"[{plugins.SELECTORS}]\nx = {PACKAGE.name}.absent:X\n", registry.selectors, "cannot load"),
        (
            f"[{plugins.SELECTORS}]\nx = dpbeam.selectors.mad:Mad\n",
            registry.selectors,
            "is named 'mad' already",
        ),
        (f"[{plugins.KINDS}]\nselect = dpbeam.selection.config:SelectionConfig\n", families, "adds 'select'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(entries, look, message, install):
    install(entries)
    with pytest.raises(InputError, match=message):
        look()


def test_two_distributions_of_one_name_are_refused(install):
    install(name="one")
    install(ENTRIES.replace(".bars:Bars", ".bars:Other"), name="two")
    with pytest.raises(InputError, match=r"adds 'bars', which is there already; uninstall one"):
        formats.names()


def test_an_event_replaces_no_other():
    from dpbeam.accounting.events import GaussianEvent, event

    with pytest.raises(TypeError, match="named GaussianEvent already"):
        event(type("GaussianEvent", (GaussianEvent,), {}))
