"""Settings, calibration, and the supply that they need."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbeam.accounting.accountant import account
from dpbeam.accounting.gaussian import gaussian_sigma
from dpbeam.errors import InputError
from dpbeam.packing.config import Market, Resource, make_plan, resources_of
from dpbeam.packing.family import PackingConfig
from dpbeam.packing.market import WHOLE, demand_units
from dpbeam.packing.program import PackingProgram
from tests.support.markets import market, plan


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 1, 2]))
def test_no_two_rows_differ_by_more_than_the_sensitivity(seed, most):
    rng = np.random.default_rng(seed)
    made = market(rng.random(5) * 100 + 1, 1_000)
    made = replace(
        made, resources=tuple(replace(r, max_demand=float(rng.random() + 0.1)) for r in made.resources)
    )
    rows = rng.choice([0.0, 1.0, 0.5], (2, 5)) * [r.max_demand for r in made.resources]
    if most is not None:
        for row in rows:
            row[rng.permutation(5)[most:]] = 0
    units = demand_units(rows, made.demand_factors, made.limits) / 2**22
    noise = plan(made, max_resources_per_agent=most).noise
    # Either row may take nothing.
    for difference in (units[0] - units[1], units[0], units[1]):
        assert np.linalg.norm(difference) <= noise.sensitivity


def test_the_sensitivity_is_reached():
    made = market([100, 100, 100, 100], 1_000)
    assert plan(made).noise.sensitivity == pytest.approx(2, rel=1e-12)
    assert plan(made, max_resources_per_agent=1).noise.sensitivity == pytest.approx(math.sqrt(2), rel=1e-12)
    assert plan(market([100, 400], 1_000)).noise.sensitivity == pytest.approx(math.hypot(1, 0.25), rel=1e-12)


def test_the_events_cost_the_budget():
    made = plan(market([100], 1_000), epsilon=0.7, delta=1e-7)
    guarantee = account(made.event)
    assert guarantee.epsilon == 0.7 and 0.999e-7 < guarantee.delta <= 1e-7
    assert made.noise.sigma == gaussian_sigma(0.7, 1e-7)


def test_the_ledger_states_the_noise_and_the_neighbours():
    made = plan(market([100], 1_000))
    ledger = PackingConfig.ledger(made, fixed_key=False, input_parameters={})
    ledger.verify()
    assert ledger.neighbouring_relation == "replace the row of one agent"
    assert ledger.events.noises() == PackingProgram(made).noises() == [made.noise]


@pytest.mark.parametrize("integral", [False, True])
def test_the_margin_is_the_tail_of_the_averaged_noise(integral):
    made = plan(market([1_000, 1_000, 1_000], 10_000), failure_probability=0.01, integral=integral)
    share = made.averaged_units / WHOLE
    assert share == pytest.approx(0.9 * 0.9, rel=1e-9)
    deviation = made.noise.sigma * math.sqrt(3) / math.sqrt(share)
    beta = 0.005 if integral else 0.01
    assert made.overuse_margin == pytest.approx(stats.norm.isf(beta / 3) * deviation, rel=1e-6)


def test_whole_bundles_leave_room_for_their_rounding():
    made = plan(market([1_000, 1_000], 10_000), failure_probability=0.01, integral=True)
    mean, bound = made.usable, math.log(2 * 2 / 0.01)
    gap = 1_000 / mean - 1
    assert gap**2 * mean / (2 + gap) == pytest.approx(bound, rel=1e-6)
    assert plan(market([1_000, 1_000], 10_000)).usable == pytest.approx(1_000, rel=1e-9)


def test_the_start_and_the_averaged_rounds_share_the_filter():
    made = plan(market([500], 10_000), start_rounds=7, start_share=0.2, settle_share=0.5)
    assert made.start_units * 7 <= 0.2 * WHOLE < (made.start_units + 1) * 7
    assert made.averaged_units + made.settled_units == WHOLE
    assert plan(market([500], 10_000), start_rounds=0).settled_units == int(0.1 * WHOLE)


def test_too_small_a_supply_is_refused_with_what_would_do():
    config = PackingConfig(1.0, 1e-6)
    enough = make_plan(config, market([300, 900], 10_000))
    with pytest.raises(InputError, match=r"^--supplies: 1 of 'r0' are too few") as error:
        make_plan(config, market([1, 900], 10_000)).check_supply()
    assert "allow_small_supply" not in str(error.value)
    with pytest.raises(InputError) as error:
        make_plan(config, market([100, 900], 10_000)).check_supply()
    text = str(error.value)
    assert "'r0'" in text and "or go on with --allow_small_supply" in text
    needed = float(text.split("a supply of ")[1].split(" ")[0])
    alpha = float(text.split("--alpha=")[2].split(" ")[0].rstrip(","))
    epsilon = float(text.split("--epsilon=")[2].split(" ")[0].rstrip(","))
    make_plan(config, market([needed * 1.001, 900 * needed / 100], 10_000)).check_supply()
    for corrected in (replace(config, alpha=alpha), replace(config, epsilon=epsilon)):
        make_plan(corrected, market([100, 900], 10_000)).check_supply()
    make_plan(replace(config, allow_small_supply=True), market([100, 900], 10_000)).check_supply()
    assert enough.supply_needed == pytest.approx(enough.overuse_margin / 0.1)


def test_whole_bundles_of_which_rounding_leaves_none_are_refused():
    config = PackingConfig(10.0, 1e-6, alpha=0.5, integral=True)
    few = make_plan(config, market([5], 10_000))
    assert few.supply_needed < 5 and few.usable == 0
    for chosen in (config, replace(config, allow_small_supply=True)):
        with pytest.raises(InputError, match=r"^--supplies: 5 of 'r0' are too few for --integral"):
            make_plan(chosen, market([5], 10_000)).check_supply()
    make_plan(replace(config, integral=False), market([5], 10_000)).check_supply()
    make_plan(config, market([60], 10_000)).check_supply()


def test_noise_that_no_integer_holds_is_refused():
    large = market([1e6] * 1_000, 2**30)
    with pytest.raises(InputError, match="no noise of that size can be computed with"):
        plan(large, epsilon=1e-5, delta=1e-12, start_rounds=1_000, start_share=0.001)
    plan(large, epsilon=0.01, delta=1e-12)


def test_rounds_do_not_grow_with_the_agents():
    small, large = (plan(market([n / 10] * 4, n)) for n in (10_000, 10_000_000))
    assert small.typical_rounds == large.typical_rounds and small.rounds_limit == large.rounds_limit


@pytest.mark.parametrize(
    "field,value",
    [
        ("alpha", 0.0),
        ("alpha", math.nan),
        ("failure_probability", 0.0),
        ("start_share", 0.0),
    ],
)
def test_settings_out_of_range_are_refused(field, value):
    with pytest.raises(InputError, match=f"^--{field} must be"):
        PackingConfig(1.0, 1e-6, **{field: value})


@pytest.mark.parametrize(
    "resources,agents,message",
    [
        ((), 10, "1 to 1000 resources are packed, got 0"),
        ((Resource("a", 1.0), Resource("a", 2.0)), 10, "a resource is named twice"),
        ((Resource("a", 0.0),), 10, "the supply of 'a' must be a positive number, got 0"),
        ((Resource("a", -3.0),), 10, "the supply of 'a' must be a positive number"),
        ((Resource("a", math.nan),), 10, "the supply of 'a' must be a positive number"),
        ((Resource("a", 1.0, 0.0),), 10, "max_demand of 'a' must be a positive number"),
        ((Resource("a", 1.0),), 0, "--num_agents must be from 1"),
    ],
)
def test_markets_that_make_no_sense_are_refused(resources, agents, message):
    with pytest.raises(InputError, match=message):
        Market(resources, agents)
    with pytest.raises(InputError, match="--max_value must be positive"):
        Market((Resource("a", 1.0),), 10, max_value=-1.0)


def test_supplies_are_numbers_or_say_their_largest_demand():
    assert resources_of({"a": 3, "b": {"supply": 4, "max_demand": 2}}) == (
        Resource("a", 3),
        Resource("b", 4, 2),
    )
    assert resources_of([3, 4]) == (Resource("0", 3), Resource("1", 4))
    for bad in ({"a": "3"}, {"a": None}, {"a": {"supplies": 3}}, {"a": {"supply": True}}, {"a": [3]}):
        with pytest.raises(InputError, match=r"^--supplies: .*'a'"):
            resources_of(bad)
