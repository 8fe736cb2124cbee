"""Every statement of a ledger is seen to fail when it is false, by its name."""

import json
from dataclasses import replace

import pytest

from dpbeam.accounting.events import EVENT_TYPES, ComposedEvent, Event
from dpbeam.accounting.ledger import KEY_FIXED_TEST
from dpbeam.review.verification import check_ledger, not_proved
from dpbeam.selectors.registry import selectors
from dpbeam.topk.config import TopKConfig, plan_topk
from tests.support.releases import ledger_of


def statements(values) -> dict[str, bool | None]:
    text = values if isinstance(values, str) else json.dumps(values)
    return {statement.name: statement.holds for statement in check_ledger(text)[1]}


@pytest.mark.parametrize("method", selectors())
def test_honest_ledgers_hold(method):
    found = statements(ledger_of(method).to_json())
    assert set(found) >= {"guarantee", "noise", "key", "settings"} and all(found.values())
    assert ("thresholds" in found) == ("Threshold" in ledger_of(method).to_json())


def events_of(values, name):
    """All events of a class in a ledger's values."""
    found, waiting = [], [values["events"]]
    while waiting:
        event = waiting.pop()
        waiting += event.get("parts", [])
        found += [event] * (event["event"] == name)
    return found


def declared(values, name, factor):
    values[name] *= factor


def lower(values, event, field, factor):
    for found in events_of(values, event):
        found[field] *= factor


@pytest.mark.parametrize(
    "method,change,failing",
    [
        ("basic", lambda v: declared(v, "epsilon", 0.99), "guarantee"),
        ("gsu", lambda v: declared(v, "delta", 0.999), "guarantee"),
        ("laplace", lambda v: lower(v, "LaplaceEvent", "scale", 0.999), "guarantee"),
        ("vote", lambda v: lower(v, "CountEvent", "epsilon", 1.001), "guarantee"),
        ("mad2r", lambda v: lower(v, "GaussianEvent", "sigma", 0.999), "guarantee"),
        ("mad2r", lambda v: lower(v, "ThresholdEvent", "threshold", 0.999), "thresholds"),
        ("dp-sips", lambda v: lower(v, "ThresholdEvent", "delta", 0.9), "thresholds"),
        ("gsu", lambda v: lower(v, "CumulativeThresholdEvent", "delta", 0.9), "thresholds"),
        ("basic", lambda v: v.update(key_source=KEY_FIXED_TEST), "key"),
        ("basic", lambda v: v["events"].update(kind="basic", epsilon=None), "composition"),
        ("basic", lambda v: v["events"]["parts"].pop(0), "thresholds"),
    ],
)
def test_what_is_false_fails_by_name(method, change, failing):
    values = json.loads(ledger_of(method).to_json())
    change(values)
    assert [name for name, holds in statements(values).items() if holds is False] == [failing]


def test_a_gap_that_cannot_be():
    plan = plan_topk(TopKConfig(1.0, 1e-6, 5, mechanism="limited-domain"))
    values = json.loads(replace(ledger_of(), method="top-k", events=plan.event, parameters={}).to_json())
    lower(values, "LimitedDomainEvent", "gap", 0.9)
    ledger, found = check_ledger(json.dumps(values))
    assert ledger is None and [(s.name, s.holds) for s in found] == [("thresholds", False)]


def test_the_account_of_a_run_is_no_setting():
    ledger = ledger_of()
    charged = {**ledger.parameters, "account": {"dataset": "logs", "entry": 3}}
    assert statements(replace(ledger, parameters=charged).to_json())["settings"] is True


def test_other_settings_are_no_lie_but_are_not_reproduced():
    ledger = ledger_of()
    ledger.parameters["max_items_per_user"] = 99
    found = statements(ledger.to_json())
    assert found["settings"] is None and found["guarantee"] and found["thresholds"]


@pytest.mark.parametrize("change", [{"method": "unheard-of"}, {"parameters": {"nonsense": 1}}])
def test_settings_that_are_not_known(change):
    assert statements(replace(ledger_of(), **change).to_json())["settings"] is None


def test_an_event_of_a_family_to_come():
    """Whatever is registered is accounted for, and nothing else."""

    class Other(Event):
        pass

    assert "Other" not in EVENT_TYPES
    values = json.loads(ledger_of().to_json())
    values["events"]["parts"].append({"event": "Other"})
    with pytest.raises(ValueError, match="unknown event 'Other'"):
        check_ledger(json.dumps(values))


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"format": "dpbeam ledger"}', "\x00"])
def test_what_is_no_ledger(text):
    with pytest.raises(ValueError):
        check_ledger(text)


def test_what_is_not_proved():
    ledger = ledger_of()
    assert len(not_proved(ledger, contents=False)) == len(not_proved(ledger, contents=True)) + 1
    assert any("public" in text for text in not_proved(replace(ledger, public_items=True), contents=True))
    assert type(ledger.events) is ComposedEvent
