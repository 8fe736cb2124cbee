"""Thresholds and caps against their definition, and against simulated walks."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

from dpbeam.accounting.accountant import OverspentError
from dpbeam.accounting.events import (
    InconsistentEventError,
    RankedThresholdEvent,
    event_from_dict,
    event_to_dict,
)
from dpbeam.accounting.ledger import Ledger
from dpbeam.errors import InputError
from dpbeam.series.config import plan_series, series_ledger
from dpbeam.series.family import SeriesConfig
from dpbeam.series.schedule import PRESETS, Schedule, preset_schedule
from tests.series.streams import plan_of


def crossing(c, cap):
    """Sum over rounds of the tail of the walk at this drift, by another library."""
    return sum(
        stats.norm.sf(rho, loc=cap * g, scale=c.sigma * np.sqrt(v))
        for rho, g, v in zip(c.thresholds, c.G, c.V)
    )


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("nights", [1, 7, 30])
def test_all_ranks_together_cross_with_the_share_of_delta(preset, nights):
    c = plan_series(SeriesConfig(1.0, 1e-5, nights, preset)).calibration
    total = np.sum(crossing(c, c.caps[1:]))
    assert 0.999 * c.delta_threshold < total <= c.delta_threshold
    assert c.caps[-1] == pytest.approx(0.15, abs=1e-6) and np.all(np.diff(c.caps[1:]) <= 0)
    saves = PRESETS[preset].saved_norm is not None
    assert c.caps[1] == 1 if not saves else 1 < c.caps[1] <= 2
    assert np.sum(c.a**2 * c.fractions) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("nights", range(1, 65))
def test_schedules_of_every_length(preset, nights):
    schedule = preset_schedule(preset, nights)
    assert schedule.last_night == nights and schedule.rounds <= 64
    assert sum(schedule.fractions) == pytest.approx(1) and sum(schedule.spending) == pytest.approx(1)


def test_the_presets_of_a_month_have_the_rounds_that_were_tuned():
    rounds = {name: preset_schedule(name, 30).rounds for name in PRESETS}
    many, few = ("steady", "balanced", "early", "early-flat"), ("toward-end", "last-night", "late")
    assert rounds == {**dict.fromkeys(many, 54), **dict.fromkeys(few, 46)}
    for name in many:
        schedule = preset_schedule(name, 30)
        assert [len(schedule.of_night(n)) for n in (1, 2, 3, 4, 6, 7, 29, 30)] == [6, 4, 3, 2, 2, 1, 1, 12]


@pytest.mark.parametrize(
    "change",
    [
        lambda e: {"caps": (1.0, *e.caps[:-1])},
        lambda e: {"thresholds": tuple(0.99 * t for t in e.thresholds)},
        lambda e: {"delta": 0.9 * e.delta},
        lambda e: {"coefficients": tuple(1.1 * c for c in e.coefficients)},
    ],
)
def test_an_event_that_states_too_much_is_refused(change):
    event = plan_of(3).event
    noises = {noise.round: noise for noise in event.noises()}
    tests = event.parts[-1]
    tests.check(noises)
    with pytest.raises(InconsistentEventError, match="ranked thresholds"):
        dataclasses.replace(tests, **change(tests)).check(noises)
    with pytest.raises(InconsistentEventError, match="lack the noise"):
        tests.check({r: n for r, n in noises.items() if r > 1})


@pytest.mark.parametrize("caps", [(), (0.5, 0.6), (0.5, 0.0)])
def test_caps_that_are_none_are_refused(caps):
    with pytest.raises(ValueError, match="caps"):
        RankedThresholdEvent((1.0,), (1.0,), 0.1, caps)


def test_events_survive_their_file():
    event = plan_of(3).event.parts[-1]
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event


def test_the_ledger_recomputes_the_window():
    plan = plan_series(SeriesConfig(1.0, 1e-5, 30))
    text = series_ledger(plan, series_id="ab", fixed_key=False, night=30).to_json()
    ledger = Ledger.from_json(text)
    assert 0.99e-5 < ledger.verify().delta <= 1e-5
    assert ledger.parameters["rounds"] == [43, 54]
    with pytest.raises(OverspentError):
        dataclasses.replace(ledger, delta=0.9e-5).verify()
    config = SeriesConfig.of_parameters(ledger.epsilon, ledger.delta, ledger.parameters)
    assert config == plan.config


def test_a_schedule_of_ones_own_survives_the_ledger():
    schedule = Schedule((1, 2, 2), (0.2, 0.3, 0.5), (0.1, 0.2, 0.7))
    plan = plan_of(2, preset=None, schedule=schedule)
    ledger = series_ledger(plan, series_id="ab", fixed_key=False)
    values = json.loads(json.dumps(ledger.parameters))
    assert SeriesConfig.of_parameters(ledger.epsilon, ledger.delta, values) == plan.config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nights": 0}, "--nights must be an integer from 1 to 64"),
        ({"nights": 65}, "--nights must be an integer from 1 to 64"),
        ({"nights": 2.5}, "--nights"),
        (
            {"preset": "middle"},
            "--preset must be one of steady, balanced, toward-end, last-night, early, early-flat, late, got",
        ),
        ({"preset": None}, "--preset"),
        ({"max_items_per_user": 10_001}, "--max_items_per_user"),
        ({"first_night": "3.11.2026"}, "--first_night must be a day"),
        ({"first_night": "2026-02-30"}, "--first_night must be a day"),
        ({"cap": 2.5}, "cap must be above 0 and at most 2"),
        ({"cap": 1.5, "preset": "early"}, "cap must be above 0 and at most 1"),
        ({"saved_norm": -1.0}, "saved_norm"),
        ({"aims": ((0.5, 0.0, 1.0),)}, "aims"),
        ({"preset": None, "schedule": Schedule((1,), (1.0,), (1.0,))}, "--nights"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        SeriesConfig(**{"epsilon": 1.0, "delta": 1e-5, "nights": 3, **settings})


def test_nights_have_names():
    days = SeriesConfig(1.0, 1e-5, 3, first_night="2026-02-27")
    assert [days.name_of(n) for n in (1, 2, 3)] == ["2026-02-27", "2026-02-28", "2026-03-01"]
    assert days.number_of("2026-03-01") == 3
    with pytest.raises(InputError, match="2026-02-27 to 2026-03-01"):
        days.number_of("2026-03-02")
    with pytest.raises(InputError, match="from 1 to 3"):
        SeriesConfig(1.0, 1e-5, 3).number_of("2026-03-02")
    with pytest.raises(InputError, match="1 to 3"):
        SeriesConfig(1.0, 1e-5, 3).number_of("4")
