"""Every statement of a ledger is seen to fail when it is false, by its name."""

import json
import math
from dataclasses import replace

import pytest

from dpbeam.accounting.events import EVENT_TYPES, ComposedEvent, Event, event_to_dict
from dpbeam.accounting.ledger import KEY_FIXED_TEST, Ledger
from dpbeam.accounting.versions import MODIFIED
from dpbeam.review import verification
from dpbeam.review.families import _alike as alike
from dpbeam.review.families import calibrated_anew
from dpbeam.review.verification import Statement, check_ledger, not_proved
from dpbeam.selection.config import SelectionConfig
from dpbeam.selectors.registry import selectors
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from tests.support.releases import ledger_of


def statements(values) -> dict[str, bool | None]:
    text = values if isinstance(values, str) else json.dumps(values)
    return {statement.name: statement.holds for statement in check_ledger(text)[1]}


#: Each setting is tried by another calibration: that of bits is short for one round of few items.
SMALL = {"bits": {"max_items_per_user": 20, "budget_split": [1]}}


def small_ledger(method, **settings):
    return ledger_of(method, settings={**SMALL.get(method, {}), **settings})


@pytest.mark.parametrize("method", selectors())
def test_honest_ledgers_hold(method):
    ledger = small_ledger(method).to_json()
    verdicts = statements(ledger)
    assert verdicts.pop("other settings") is None
    assert set(verdicts) >= {"guarantee", "noise", "key", "settings"} and all(verdicts.values())
    assert ("thresholds" in verdicts) == ("Threshold" in ledger)


def moved(value, factor):
    """The same events, every number with a fraction times `factor`."""
    if isinstance(value, dict):
        return {name: moved(part, factor) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(part, factor) for part in value)
    return value * factor if isinstance(value, float) else value


@pytest.mark.parametrize("method", selectors())
def test_another_processor_may_round_otherwise(method):
    """numpy's exponentials differ in their last bits between processors, and many are in a calibration."""
    events = event_to_dict(small_ledger(method).events)
    assert alike(events, moved(events, 1 + 1e-14)) and not alike(events, moved(events, 1 + 1e-6))


def test_a_curve_that_another_processor_rounds_is_calibrated_the_same():
    values = json.loads(small_ledger("bits").to_json())
    for curve in events_of(values, "WeightedBernoulliEvent"):
        curve["knots"] = [[n, p if p == 0.5 else math.nextafter(p, 0)] for n, p in curve["knots"]]
    again = calibrated_anew(Ledger.from_json(json.dumps(values)))
    assert again is not None and again.same


def by_name(ledger) -> dict[str, Statement]:
    return {statement.name: statement for statement in check_ledger(ledger.to_json())[1]}


def stated_in(ledger) -> set[str]:
    """The settings that nothing depends on, as `verify` names them."""
    statement = by_name(ledger)["other settings"]
    assert statement.verdict == "stated" and statement.holds is None
    return set(statement.text.partition(": ")[2].partition(";")[0].split(", "))


def floored(method, min_users=7):
    return small_ledger(method, min_users=min_users)


@pytest.mark.parametrize("method", selectors())
def test_a_floor_on_users_is_stated(method):
    """Whatever number stands in the ledger: no event depends on it, and nobody could tell."""
    ledger = floored(method)
    for users in (7, 9):
        ledger.parameters["min_users"] = users
        verdicts = by_name(ledger)
        assert (verdicts["floor"].verdict, verdicts["floor"].holds) == ("stated", None) and verdicts[
            "settings"
        ].holds
        assert verdicts["floor"].text == (
            f"no item of fewer than {users} users is released, but public ones: stated, as no event depends on it; "
            f"then {users - 1}, the most that {users - 1} give, is taken off every weight before noise"
        )
    assert "min_users" in stated_in(ledger)
    assert "floor" not in statements(small_ledger(method).to_json())


def test_a_floor_that_an_event_depends_on_is_recomputed(monkeypatch):
    monkeypatch.setattr(verification, "stated_alone", lambda _: ())
    verdicts = by_name(floored("basic"))
    assert verdicts["floor"].holds and verdicts["floor"].text.endswith(
        "is taken off every weight before noise, recomputed"
    )
    assert verdicts["settings"].text == "calibrated anew, they give the noise and thresholds of the ledger"
    assert "other settings" not in verdicts


@pytest.mark.parametrize("method", selectors())
def test_what_no_statement_depends_on_is_stated(method):
    """By other changes than those that `verify` tries: whatever leaves all as it was is no more than stated."""
    ledger = floored(method)
    stated, before = stated_in(ledger), statements(ledger.to_json())
    numbers = {n: v for n, v in ledger.parameters.items() if isinstance(v, bool | int | float)}
    assert "min_users" in stated and numbers.keys() >= {"min_users", "noisy_weights", "max_items_per_user"}
    for name, value in numbers.items():
        other = (
            not value if isinstance(value, bool) else value + 3 if isinstance(value, int) else value * 1.03
        )
        changed = replace(ledger, parameters={**ledger.parameters, name: other})
        again = calibrated_anew(changed)
        assert again is not None and again.same == (name in stated), name
        assert before["settings"] and (again.same or statements(changed.to_json())["settings"] is None)


@pytest.mark.parametrize(
    ("method", "stated", "recomputed"),
    [
        ("dp-sips", {"resample"}, {"accounting", "budget_split", "max_items_per_user"}),
        ("gsu", {"gsu_score", "gsu_score_constants"}, {"rounds", "gsu_fractions", "gsu_cap"}),
        ("mad2r", {"lower_confidence", "min_bias"}, {"accounting", "max_bias"}),
        ("vote", {"max_items_per_user", "vote_quota"}, set()),
    ],
)
def test_choices_and_lists(method, stated, recomputed):
    names = stated_in(ledger_of(method))
    assert names >= {"noisy_weights", "output", *stated} and not names & recomputed


def test_a_preset_is_a_name():
    stated = stated_in(ledger_of("mad2r", settings={"preset": "published"}))
    assert "preset" in stated and "accounting" not in stated


@pytest.mark.parametrize("stated", [0, "many", 1.5])
def test_a_floor_that_cannot_be_is_not_confirmed(stated):
    ledger = ledger_of()
    ledger.parameters["min_users"] = stated
    assert statements(ledger.to_json())["floor"] is None


def test_the_floor_of_a_domain():
    selection = SelectionConfig(1.0, 1e-6, "basic", min_users=4)
    plan = plan_topk(TopKConfig(1.0, 1e-6, 5, selection=selection))
    ledger = TopKConfig.ledger(plan, input_parameters=None, fixed_key=False, privacy_unit="one user")
    floor = by_name(ledger)["floor"]
    assert floor.verdict == "stated" and floor.text.startswith("no item of fewer than 4 users")
    assert {"selection.min_users", "selection.noisy_weights"} <= stated_in(ledger)
    assert "selection.max_items_per_user" not in stated_in(ledger)


def events_of(values, name):
    """All events of a class in a ledger's values."""
    events, waiting = [], [values["events"]]
    while waiting:
        event = waiting.pop()
        waiting += event.get("parts", [])
        events += [event] * (event["event"] == name)
    return events


def declared(values, name, factor):
    values[name] *= factor


def lower(values, event, field, factor):
    for events in events_of(values, event):
        events[field] *= factor


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
    ledger, verdicts = check_ledger(json.dumps(values))
    assert ledger is None and [(s.name, s.holds) for s in verdicts] == [("thresholds", False)]


def test_the_account_of_a_run_is_no_setting():
    ledger = ledger_of()
    charged = {**ledger.parameters, "account": {"dataset": "logs", "entry": 3}}
    assert statements(replace(ledger, parameters=charged).to_json())["settings"] is True


def test_other_settings_are_no_lie_but_are_not_reproduced():
    ledger = ledger_of()
    ledger.parameters["max_items_per_user"] = 99
    verdicts = statements(ledger.to_json())
    assert verdicts["settings"] is None and verdicts["guarantee"] and verdicts["thresholds"]


@pytest.mark.parametrize("change", [{"method": "unheard-of"}, {"parameters": {"nonsense": 1}}])
def test_settings_that_are_not_known(change):
    assert statements(replace(ledger_of(), **change).to_json())["settings"] is None


class TestOwnRevision:
    """What the very revision wrote that verifies, it would write again."""

    @pytest.fixture
    def ledger(self, revision):
        return ledger_of(code_revision=revision)

    @pytest.mark.parametrize(
        "parameters",
        [
            {"max_items_per_user": 99},  # less noise would do
            {"max_items_per_user": 101},
            {"max_items_per_user": "many"},
            {"nonsense": 1},
        ],
    )
    def test_settings_that_do_not_give_its_events_fail(self, ledger, parameters):
        assert statements(ledger.to_json())["settings"] is True
        ledger.parameters.update(parameters)
        verdicts = statements(ledger.to_json())
        assert [name for name, holds in verdicts.items() if holds is False] == ["settings"]

    @pytest.mark.parametrize("name", ["dpbeam", "numpy", "scipy"])
    def test_others_may_calibrate_otherwise(self, ledger, name):
        ledger.parameters["max_items_per_user"] = 99
        ledger.versions[name] = "0.0.1"
        assert statements(ledger.to_json())["settings"] is None

    def test_changed_files_are_another_revision(self, ledger, monkeypatch):
        ledger.parameters["max_items_per_user"] = 99
        changed = ledger.code_revision + MODIFIED
        monkeypatch.setattr(verification, "code_revision", lambda: changed)
        assert statements(replace(ledger, code_revision=changed).to_json())["settings"] is None

    def test_a_kind_that_is_not_known_is_not_judged(self, ledger):
        assert statements(replace(ledger, method="unheard-of").to_json())["settings"] is None


def top_k_values(**settings) -> dict:
    """A ledger of top-k as the command writes it."""
    plan = plan_topk(TopKConfig(1.0, settings.pop("delta", 1e-6), 5, **settings))
    ledger = TopKConfig.ledger(plan, input_parameters=None, fixed_key=False, privacy_unit="one user")
    return json.loads(ledger.to_json())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"noisy_counts": True},
        {"public_domain": True, "mechanism": "pnf-peel", "delta": 0.0, "noisy_counts": True},
        {"mechanism": "fast-joint", "beta": 1e-3},
        {"mechanism": "limited-domain"},
        {"mechanism": "limited-domain", "kbar": 0},
        {"mechanism": "limited-domain", "kbar": 0, "max_items_per_user": 7},
    ],
)
def test_settings_of_top_k_give_its_events(settings):
    """Whatever is set stands in the ledger: an honest one would fail otherwise."""
    assert statements(top_k_values(**settings))["settings"] is True


@pytest.mark.parametrize("method", ["mad2r", "laplace"])
def test_settings_of_noisy_counts_give_its_events(method):
    ledger = ledger_of(method, settings={"noisy_counts": True})
    assert statements(ledger.to_json())["settings"] is True
    ledger.parameters["noisy_count_sd_per_sqrt_item"] *= 1.01
    assert statements(ledger.to_json())["settings"] is None


def test_moves_of_coins_that_do_not_cover_their_items():
    moves = events_of(values_of("bits"), "WeightedBernoulliEvent")[0]["moves"]
    for change in ({"grid": 64}, {"moves": moves[1:]}, {"moves": [moves[0], moves[0]]}):
        values = values_of("bits")
        events_of(values, "WeightedBernoulliEvent")[0].update(change)
        ledger, verdicts = check_ledger(json.dumps(values))
        assert ledger is None and [(s.name, s.holds) for s in verdicts] == [("thresholds", False)]
        assert "moves must say" in verdicts[0].text


def values_of(method: str) -> dict:
    return json.loads(small_ledger(method).to_json())


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
