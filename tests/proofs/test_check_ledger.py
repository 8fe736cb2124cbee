"""proofs/check_ledger, which shares no code with dpbeam: every kind of ledger holds, and a changed one does not."""

import ast
import copy
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

import dpbeam
from dpbeam.selectors.gsu.presets import GSU_PRESETS
from dpbeam.selectors.registry import selectors
from dpbeam.series.schedule import PRESETS
from dpbeam.topk.mechanisms import MECHANISMS
from tests.families.contracts import LEDGERS
from tests.support.instances import popular_table

ROOT = Path(__file__).resolve().parents[2]
CHECKER = ROOT / "proofs" / "check_ledger"
STORED = [
    *sorted((ROOT / "tests" / "accounting" / "ledgers").glob("*.ledger.json")),
    *sorted((ROOT / "tests" / "review" / "version-1.0.0").glob("*.ledger.json")),
]
pytest.importorskip("flint", reason="python-flint, of the extra `test`, is not installed")


@pytest.fixture(scope="module")
def checker() -> Any:
    loader = SourceFileLoader("check_ledger", str(CHECKER))
    spec = importlib.util.spec_from_loader("check_ledger", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_it_shares_nothing_with_dpbeam():
    tree = ast.parse(CHECKER.read_text())
    named = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert set(named) == {
        *("collections.abc", "flint", "fractions", "functools", "itertools", "json", "math", "sys", "typing")
    }


def numbers(tree: Any, place: tuple = ()) -> Iterator[tuple[tuple, float]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from numbers(value, (*place, key))
    elif isinstance(tree, list):
        for key, value in enumerate(tree):
            yield from numbers(value, (*place, key))
    elif isinstance(tree, int | float) and not isinstance(tree, bool) and place[-1] != "round":
        yield place, tree


def changed(values: dict, place: tuple, value: float) -> dict:
    values = copy.deepcopy(values)
    inner: Any = values
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return values


def holds(checker: Any, values: dict) -> bool:
    try:
        checker.check(values)
    except (checker.DoesNotHold, checker.Unreadable):
        return False
    return True


def selected(**settings: Any) -> dict:
    return json.loads(
        dpbeam.select(popular_table(300), **{"epsilon": 1, "delta": 1e-5, **settings}).ledger.to_json()
    )


@pytest.mark.parametrize("method", [name for name in selectors() if name != "bits"])
def test_every_method_holds(checker, method):
    for noisy_counts in (False, True):
        assert checker.check(selected(method=method, noisy_counts=noisy_counts))


@pytest.mark.parametrize("preset", GSU_PRESETS)
def test_every_preset_of_gsu_holds(checker, preset):
    assert checker.check(selected(method="gsu", rounds=int(preset.removeprefix("gsu"))))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_of_a_series_holds(checker, preset):
    series = dpbeam.Series(nights=5, epsilon=1, delta=1e-8, preset=preset)
    assert checker.check(json.loads(series.ledger.to_json()))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_of_top_k_holds(checker, mechanism):
    ledger = dpbeam.top_k(popular_table(300), k=2, mechanism=mechanism, epsilon=1, delta=1e-5).ledger
    assert checker.check(json.loads(ledger.to_json()))


def small_coins() -> dict:
    return selected(method="bits", max_items_per_user=3, budget_split=[1], bits_full_items=1)


def test_coins_hold(checker):
    assert checker.check(small_coins())


BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}
SELECTED: dict[str, Any] = {"selector": "basic", "selector_share": 0.6}
DOMAIN = [f"i{item}" for item in range(60)]
#: Budgeted by zCDP alone: by today's bounds they cost less than two thirds of their delta.
ROOMY = ("top-k", "top-k-counts", "top-k-limited")
#: Ledgers that hold, of every kind of event, each number of which is changed.
CHANGED = {
    **{path.name.split(".")[0]: path for path in STORED if path.name.split(".")[0] not in ROOMY},
    "vote": lambda: selected(method="vote"),
    "laplace": lambda: selected(method="laplace"),
    "count": lambda: json.loads(LEDGERS["count"]().to_json()),
    "pack": lambda: json.loads(LEDGERS["pack"]().to_json()),
    "top-k": lambda: json.loads(
        dpbeam.top_k(popular_table(300), k=2, noisy_counts=True, **SELECTED, **BUDGET).ledger.to_json()
    ),
    "hitting-set": lambda: json.loads(
        dpbeam.hitting_set(popular_table(300), k=2, **SELECTED, **BUDGET).ledger.to_json()
    ),
    "saved norm": lambda: json.loads(
        dpbeam.Series(nights=1, max_items_per_user=20, **BUDGET).ledger.to_json()
    ),
    "first hit": lambda: json.loads(
        dpbeam.hitting_set(popular_table(300), k=50, domain=DOMAIN, **BUDGET).ledger.to_json()
    ),
}


@pytest.mark.parametrize("family", sorted(LEDGERS.keys() - CHANGED.keys()))
def test_ledgers_of_every_family_hold(checker, family):
    assert checker.check(json.loads(LEDGERS[family]().to_json()))


@pytest.mark.parametrize("name", CHANGED)
def test_every_number_that_matters_is_looked_at(checker, name):
    """Half of what is declared does not hold; of each number of the events, a tenth or one more or less does not."""
    made = CHANGED[name]
    values = made() if callable(made) else json.loads(made.read_text())
    assert holds(checker, values)
    for declared in ("epsilon", "delta"):
        assert not values[declared] or not holds(checker, {**values, declared: values[declared] / 2})
    seen = 0
    for place, value in numbers(values["events"], ("events",)):
        if ("caps" in place and place[-1] > 2) or value == 0:
            continue
        if place[-1] == "rounds" and values["events"]["kind"] == "first-hit":
            continue  # choices up to the first hit cost the same, whatever their number
        if place[-1] == "largest":
            continue  # no cap is above it: the next test
        if values["method"] == "packing" and place[-1] == "sensitivity":
            continue  # what supplies and bounds let an agent change: `dpbeam verify` recomputes it
        changes = (value + 1, value - 1) if isinstance(value, int) else (value * 1.1, value * 0.9)
        assert not all(holds(checker, changed(values, place, change)) for change in changes), place
        seen += 1
    assert seen


def test_caps_above_what_the_noise_admits_do_not_hold(checker):
    values = json.loads(dpbeam.Series(nights=1, **BUDGET).ledger.to_json())
    for largest, fine in ((values["events"]["parts"][1]["caps"][0], True), (1.0, False)):
        assert holds(checker, changed(values, ("events", "parts", 0, "largest"), largest)) == fine


@pytest.mark.parametrize("name", ROOMY)
def test_ledgers_with_room_hold_but_not_at_a_quarter(checker, name):
    [path] = [path for path in STORED if path.name.startswith(name + ".")]
    values = json.loads(path.read_text())
    assert holds(checker, values)
    for declared in ("epsilon", "delta"):
        assert not holds(checker, {**values, declared: values[declared] / 4})


def test_a_changed_coin_does_not_hold(checker):
    values = small_coins()
    assert holds(checker, values)
    event = values["events"]["parts"][0]
    n, p = event["knots"][0]
    event["knots"][0] = [n, p * 8]
    assert not holds(checker, values)
    values = small_coins()
    values["events"]["parts"][0]["moves"][-1][0] += 1
    assert not holds(checker, values)
    values = small_coins()
    values["events"]["parts"][0]["outside"] *= 2
    assert not holds(checker, values)


def test_what_is_not_private_does_not_hold(checker):
    values = {**selected(method="basic"), "key_source": "NOT PRIVATE: fixed test key"}
    assert not holds(checker, values)


def test_the_command_says_which(tmp_path):
    good, bad, other = STORED[0], tmp_path / "bad.ledger.json", tmp_path / "other.json"
    values = json.loads(good.read_text())
    bad.write_text(
        json.dumps({**values, "epsilon": 0.9, "events": changed(values["events"], ("epsilon",), 0.9)})
    )
    other.write_text("[]")
    ran = subprocess.run([sys.executable, CHECKER, good, bad], capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and f"{good}: holds\n" in ran.stdout
    assert f"{bad}: DOES NOT HOLD\n  it costs delta " in ran.stdout
    assert subprocess.run([sys.executable, CHECKER, other], capture_output=True, check=False).returncode == 2
