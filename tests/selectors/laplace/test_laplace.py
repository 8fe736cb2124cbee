"""Weighted Laplace: noise, threshold, ledger and plan against their definitions."""

import json
import math

import pytest

from dpbeam.accounting.accountant import account
from dpbeam.accounting.events import (
    ComposedEvent,
    GaussianEvent,
    InconsistentEventError,
    LaplaceEvent,
    ThresholdEvent,
    event_from_dict,
    event_to_dict,
)
from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.noise import NoiseMismatchError
from dpbeam.accounting.zcdp import zcdp_delta
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selection.report import plan_report
from dpbeam.selectors.base import Calibration


def plan(epsilon=1.0, delta=1e-5, max_items=100):
    return make_plan(SelectionConfig(epsilon, delta, "laplace", max_items_per_user=max_items))


@pytest.mark.parametrize("max_items", [1, 3, 100])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-10), (8.0, 1e-3)])
def test_noise_and_threshold_follow_the_definition(epsilon, delta, max_items):
    row = plan(epsilon, delta, max_items).rounds[0]
    rho = max(
        1 / t - math.log(2 * -math.expm1(math.log1p(-delta) / t)) / epsilon for t in range(1, max_items + 1)
    )
    assert 1 / epsilon <= row.noise.scale <= 1 / epsilon * (1 + 1e-14)
    assert rho <= row.threshold <= rho * (1 + 1e-11)


def test_the_ledger_states_laplace_noise_and_costs_the_budget():
    made = plan()
    spent = account(made.event)
    assert (spent.epsilon, spent.delta) == (pytest.approx(1.0, rel=1e-14), 1e-5)
    assert spent.epsilon <= 1.0
    text = Ledger("laplace", 1.0, 1e-5, made.accounting, made.event).to_json()
    noise = json.loads(text)["events"]["parts"][0]
    assert noise["event"] == "LaplaceEvent" and made.accounting == "pure"
    assert Ledger.from_json(text).events == made.event


def test_the_plan_knows_that_weights_fall_like_one_over_d():
    """With 100 items per user an item needs 1,544 users for an even chance; with weights of 1/sqrt(d), 155."""
    (row,) = [r for r in plan_report(plan(), [100])["users_needed"] if r["items_per_user"] == 100]
    assert row["weight"] == 0.01
    assert 1540 <= row["users_0.5"] <= 1548


def test_a_threshold_for_gaussian_weights_is_refused_beside_laplace_noise():
    event = plan().event
    noise, threshold = event.parts
    wrong = ThresholdEvent(threshold.threshold, threshold.delta, 1.0, 100, label="laplace")
    with pytest.raises(InconsistentEventError, match="another norm"):
        account(ComposedEvent("pure", (noise, wrong)))
    low = ThresholdEvent(threshold.threshold * 0.999, threshold.delta, 1.0, 100, novel_power=1.0)
    with pytest.raises(InconsistentEventError, match="is below the"):
        account(ComposedEvent("pure", (noise, low)))


def test_fields_of_later_versions_are_written_only_where_they_say_something():
    _, threshold = plan().event.parts
    assert event_to_dict(threshold)["novel_power"] == 1.0
    old = event_to_dict(ThresholdEvent(20.0, 1e-6, 1.0, 100))
    assert "novel_power" not in old
    assert event_from_dict(old).novel_power == 0.5


def test_composition_with_other_mechanisms():
    """Pure epsilons add beside others; in zCDP a pure part costs epsilon^2 / 2."""
    noise = LaplaceEvent(2.0)
    assert account(ComposedEvent("basic", (noise, LaplaceEvent(4.0)))).epsilon == pytest.approx(0.75)
    both = ComposedEvent("zcdp", (ComposedEvent("pure", (noise,)), GaussianEvent(10.0)), epsilon=1.0)
    assert account(both).delta == pytest.approx(zcdp_delta(0.125 + 0.005, 1.0), rel=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda e: LaplaceEvent(e.scale * 1.1, label="laplace"),
            "the ledger states laplace noise of scale 1.1",
        ),
        (lambda e: GaussianEvent(e.scale, label="laplace"), "the ledger states gaussian noise"),
        (lambda e: LaplaceEvent(e.scale, round=2, label="laplace"), "in round 2, the program draws"),
    ],
)
def test_a_plan_that_states_other_noise_is_refused(change, message):
    made = plan()
    noise, threshold = made.event.parts
    lying = Calibration(
        made.program, made.rounds, ComposedEvent("pure", (change(noise), threshold), label="laplace")
    )
    with pytest.raises(NoiseMismatchError, match=message):
        SelectionPlan(made.config, lying)


def test_a_plan_that_leaves_noise_out_is_refused():
    made = plan()
    lying = Calibration(made.program, made.rounds, ComposedEvent("pure", (made.event.parts[1],)))
    with pytest.raises(NoiseMismatchError, match="states 0 noisy rounds, the program draws 1"):
        SelectionPlan(made.config, lying)


def test_a_program_that_bounds_another_norm_is_refused():
    made = plan()
    made.program.norm = "l2"
    with pytest.raises(NoiseMismatchError, match="protects sums of bounded l1 norm, the program bounds l2"):
        SelectionPlan(made.config, made.calibration)
