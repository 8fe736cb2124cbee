"""The ledger: fails closed, deterministic bytes, exact round trip."""

import dataclasses
import json
import math

import numpy as np
import pytest

from dpbeam.accounting.accountant import OverspentError
from dpbeam.accounting.events import (
    ComposedEvent,
    GaussianEvent,
    InconsistentEventError,
    PureEvent,
    ThresholdEvent,
    UnknownEventError,
)
from dpbeam.accounting.gaussian import gaussian_sigma
from dpbeam.accounting.ledger import (
    ADD_REMOVE_ONE_USER,
    KEY_FIXED_TEST,
    KEY_FROM_OS,
    Ledger,
)
from dpbeam.accounting.threshold import novel_threshold


def basic_events(epsilon=1.0, delta=1e-5, max_items=100):
    sigma = gaussian_sigma(epsilon, delta / 2)
    rho = novel_threshold(sigma, delta / 2, max_items, lambda t: 1 / np.sqrt(t))
    return ComposedEvent("gaussian", (GaussianEvent(sigma), ThresholdEvent(rho, delta / 2, 1.0, max_items)))


HIGH = ThresholdEvent(90.0, 5e-6, 1.0, 100)


def make(**changes):
    values = {
        "method": "basic",
        "epsilon": 1.0,
        "delta": 1e-5,
        "accounting": "gaussian",
        "events": basic_events(),
        "parameters": {"max_items_per_user": 100, "budget_split": (1.0,), "resample": False, "note": None},
        "versions": {"dpbeam": "0.1.0", "apache-beam": "2.70"},
        "code_revision": "abc",
    }
    return Ledger(**{**values, **changes})


def test_verify_returns_the_guarantee():
    spent = make().verify()
    assert spent.epsilon == 1.0
    assert 1e-5 * (1 - 1e-10) <= spent.delta <= 1e-5


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.999},
        {"delta": 9.9e-6},
        {"delta": 0.0},
        {"events": basic_events(epsilon=1.001)},
        {"events": basic_events(delta=1.001e-5)},
        {"events": ComposedEvent("basic", (PureEvent(0.6), PureEvent(0.5)))},
        {"events": ComposedEvent("gaussian", (GaussianEvent(gaussian_sigma(1.0, 1e-5) * 0.999),))},
        # sigma from the whole delta, thresholds from half of it
        {"events": ComposedEvent("gaussian", (GaussianEvent(gaussian_sigma(1.0, 1e-5)), HIGH))},
        {"events": ComposedEvent("gaussian", (GaussianEvent(9.0),), epsilon=2.0)},
    ],
)
def test_overspent_ledger_is_neither_verified_nor_written(changes):
    ledger = make(**changes)
    with pytest.raises(OverspentError, match="the budget is"):
        ledger.verify()
    with pytest.raises(OverspentError):
        ledger.to_json()


def test_tolerance_is_for_rounding_only():
    spend = ComposedEvent("basic", (PureEvent(1.0),))
    make(epsilon=1.0, events=spend).verify()
    with pytest.raises(OverspentError):
        make(epsilon=1 - 2e-12, events=spend).verify()


def test_unknown_event_is_not_written():
    @dataclasses.dataclass(frozen=True)
    class FreeEvent:
        label: str = ""

    for kind in ("basic", "gaussian", "zcdp"):
        with pytest.raises(UnknownEventError):
            make(events=ComposedEvent(kind, (FreeEvent(),))).to_json()
    with pytest.raises(UnknownEventError, match="events must be a ComposedEvent, got list"):
        make(events=[])


def test_low_threshold_is_not_written():
    events = ComposedEvent("gaussian", (GaussianEvent(9.0), ThresholdEvent(10.0, 1e-6, 1.0, 100)))
    with pytest.raises(InconsistentEventError):
        make(events=events).to_json()


def test_identical_runs_write_identical_bytes():
    first = make().to_json()
    reordered = make(
        parameters={"note": None, "resample": False, "budget_split": [1.0], "max_items_per_user": 100},
        versions={"apache-beam": "2.70", "dpbeam": "0.1.0"},
    )
    assert reordered.to_json().encode() == first.encode()
    assert make(parameters={"max_items_per_user": 101}).to_json() != first


def test_json_content():
    values = json.loads(make().to_json())
    assert values["privacy_unit"] == "one user"
    assert values["neighbouring_relation"] == ADD_REMOVE_ONE_USER
    assert values["key_source"] == KEY_FROM_OS
    assert "computational" in values["guarantee_note"]
    assert values["events"]["parts"][0]["sigma"] == gaussian_sigma(1.0, 5e-6)
    assert not {"time", "date", "host", "user", "path", "seed", "key"} & set(values)


def test_fixed_key_is_marked():
    ledger = make(key_source=KEY_FIXED_TEST)
    assert not ledger.private and make().private
    assert "NOT PRIVATE" in ledger.to_json()


def test_round_trip():
    ledger = make(public_items=True, parameters={"text": "café", "nested": {"x": [1, 2.5, None]}})
    text = ledger.to_json()
    assert Ledger.from_json(text) == ledger
    assert Ledger.from_json(text).to_json() == text


def tampered(change):
    values = json.loads(make().to_json())
    change(values)
    return json.dumps(values)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda v: v.update(epsilon=0.5), OverspentError),
        (lambda v: v["events"]["parts"][0].update(sigma=1.0), OverspentError),
        (lambda v: v["events"]["parts"][1].update(threshold=1.0), InconsistentEventError),
        (lambda v: v["events"]["parts"][0].update(event="FreeEvent"), UnknownEventError),
        (lambda v: v["events"]["parts"][0].update(discount=2), UnknownEventError),
        (lambda v: v.update(extra=1), ValueError),
        (lambda v: v.pop("delta"), ValueError),
        (lambda v: v.update(format_version=2), ValueError),
        (lambda v: v.update(format="other"), ValueError),
    ],
)
def test_reading_fails_closed(change, error):
    with pytest.raises(error):
        Ledger.from_json(tampered(change))
    Ledger.from_json(tampered(lambda v: None))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"x": math.nan}, r"parameters\.x must be finite"),
        ({"x": [1.0, math.inf]}, r"parameters\.x\[1\] must be finite"),
        ({"x": np.float64(1.0)}, r"parameters\.x is of type float64"),
        ({"x": {"y": np.int64(3)}}, r"parameters\.x\.y is of type int64"),
        ({"x": {1, 2}}, r"parameters\.x is of type set"),
        ({"x": b"bytes"}, r"parameters\.x is of type bytes"),
        ({"x": object()}, r"parameters\.x is of type object"),
        ({1: "x"}, "parameters must have strings as keys"),
        ([("x", 1)], "parameters must be a dictionary"),
    ],
)
def test_parameters_that_json_cannot_hold(parameters, message):
    with pytest.raises(ValueError, match=message):
        make(parameters=parameters)


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"delta": 1.0},
        {"delta": -1e-9},
        {"delta": math.nan},
        {"neighbouring_relation": "none"},
        {"key_source": "0123abcd"},
        {"public_items": 1},
        {"method": 3},
        {"versions": {"numpy": math.nan}},
    ],
)
def test_bad_ledgers(changes):
    with pytest.raises(ValueError):
        make(**changes)
