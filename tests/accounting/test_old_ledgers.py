"""Ledgers that versions 0.1.0 and 1.0.0 wrote: read and verified as they are, for ever, and written back unchanged."""

import json
from pathlib import Path

import pytest

from dpbeam.accounting.accountant import OverspentError
from dpbeam.accounting.ledger import Ledger
from dpbeam.cli import main
from dpbeam.review import verification

LEDGERS = sorted((Path(__file__).parent / "ledgers").glob("*.ledger.json"))
#: One for each method of `select`, each mechanism of `top-k`, and each other kind of release that 1.0.0 had.
LEDGERS_1_0_0 = sorted((Path(__file__).parent / "ledgers-1.0.0").glob("*.ledger.json"))


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: path.name.split(".")[0])
def test_an_old_ledger_verifies(path):
    text = path.read_text()
    ledger = Ledger.from_json(text)
    spent = ledger.verify()
    assert spent.epsilon <= ledger.epsilon * (1 + 1e-12) and spent.delta <= ledger.delta * (1 + 1e-12)
    # Choices of bounded range, charged by zCDP then, are composed exactly now: cheaper, never dearer.
    assert spent.delta > (0.1 if "epsilon0" in text else 0.9) * ledger.delta
    assert ledger.to_json() == text


@pytest.mark.parametrize("path", LEDGERS_1_0_0, ids=lambda path: path.name.split(".")[0])
def test_a_ledger_of_1_0_0_verifies(path, capsys, monkeypatch):
    """Its settings too, calibrated anew; but for bits, which has another curve now."""
    monkeypatch.setattr(verification, "stated_alone", lambda _: ())  # many more calibrations: tests/review
    assert main(["verify", str(path), "--ledger_alone", "--json"]) == 0
    statements = json.loads(capsys.readouterr().out)[0]["statements"]
    holds = {one["name"]: one["holds"] for one in statements if one["holds"] is not None}
    assert set(holds.values()) == {True} and {"guarantee", "key"} <= set(holds)
    assert ("settings" in holds) == (json.loads(path.read_text())["method"] != "bits")
    assert Ledger.from_json(path.read_text()).to_json() == path.read_text()


@pytest.mark.parametrize("path", LEDGERS + LEDGERS_1_0_0, ids=lambda path: path.name.split(".")[0])
def test_an_old_ledger_that_declares_less_is_refused(path):
    values = json.loads(path.read_text())
    values["delta"] *= 0.5
    values["epsilon"] *= 0.5
    with pytest.raises(OverspentError):
        Ledger.from_json(json.dumps(values))


def test_there_are_ledgers_of_every_kind():
    assert len(LEDGERS) == 12 and len(LEDGERS_1_0_0) == 23
