"""Ledgers of packing: settings, bounds and sensitivity are recomputed, and what is false fails by its name."""

import json

import pytest

from dpbeam.packing.config import Market, Resource, make_plan
from dpbeam.packing.family import PackingConfig
from dpbeam.review.facts import keeping
from dpbeam.review.verification import check_ledger

MARKET = Market(
    (Resource("beds", 120.0), Resource("hours", 4_000.0, 8.0), Resource("rooms", 90.0)), 2_000, 3.0
)
INPUT = {"agent_column": "agent", "value_column": "value", "demand_columns": ["beds", "hours", "rooms"]}


def values_of(**settings) -> dict:
    plan = make_plan(PackingConfig(1.0, 1e-6, **settings), MARKET)
    return json.loads(PackingConfig.ledger(plan, fixed_key=False, input_parameters=INPUT).to_json())


def statements(values) -> dict[str, bool | None]:
    return {statement.name: statement.holds for statement in check_ledger(json.dumps(values))[1]}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_resources_per_agent": 1, "integral": True},
        {"alpha": 0.25, "start_rounds": 0, "margin": False},
    ],
)
def test_an_honest_ledger_is_calibrated_anew(settings):
    values = values_of(**settings)
    verdicts = statements(values)
    assert verdicts.pop("other settings") is None
    assert verdicts == dict.fromkeys(("guarantee", "noise", "sensitivity", "key", "settings"), True)
    ledger, _ = check_ledger(json.dumps(values))
    assert keeping(ledger) is None


@pytest.mark.parametrize("name", ["sensitivity", "sigma"])
def test_less_noise_than_the_bounds_need_fails(name):
    """The accountant knows no supplies: it would take any sensitivity."""
    values = values_of()
    (event,) = values["events"]["parts"]
    event[name] *= 1 - 1e-6
    verdicts = statements(values)
    failing = {"sensitivity": "sensitivity", "sigma": "guarantee"}[name]
    assert [name for name, holds in verdicts.items() if holds is False] == [failing]
    assert verdicts["settings"] is None


def test_more_noise_is_no_lie():
    values = values_of()
    values["events"]["parts"][0]["sensitivity"] *= 1.5
    verdicts = statements(values)
    assert verdicts["sensitivity"] is True and verdicts["guarantee"] is True and verdicts["settings"] is None


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v["resources"][1].update(supply=1_000.0),  # the same scarcest resource, and more to change
        lambda v: v.update(max_resources_per_agent=1),
        lambda v: v.update(overuse_margin=v["overuse_margin"] / 2),
        lambda v: v.update(target_use=v["target_use"] * 1.01),
        lambda v: v.update(num_agents=0),
        lambda v: v.pop("rounds_limit"),
        lambda v: v.pop("resources"),
        lambda v: v.update(resources=[{"name": "beds"}]),
        lambda v: v.update(resources=[]),
    ],
)
def test_what_is_stated_beside_the_events_follows_from_the_settings(change):
    values = values_of()
    change(values["parameters"])
    verdicts = statements(values)
    assert verdicts["guarantee"] is True and verdicts["settings"] is None


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.pop("resources"),
        lambda v: v.update(max_resources_per_agent=-1),
        lambda v: v["resources"][0].update(supply=-1.0),
    ],
)
def test_a_market_that_cannot_be(change):
    values = values_of()
    change(values["parameters"])
    text = {s.name: (s.holds, s.text) for s in check_ledger(json.dumps(values))[1]}["sensitivity"]
    assert text == (None, "the ledger does not say what one agent can demand")


def test_wider_bounds_than_the_noise_covers_fail():
    values = values_of()
    values["parameters"]["resources"][1]["supply"] = 1_000.0
    assert statements(values)["sensitivity"] is False
