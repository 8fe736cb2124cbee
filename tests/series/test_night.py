"""Nights: equal to a slow reference, to gsu where all data come at once, and the same for every order of the input."""

import numpy as np
import pytest

from dpbeam.engine.in_process import run_in_process
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selectors.gsu.program import GsuProgram
from dpbeam.series.saved import FULL
from dpbeam.series.schedule import Schedule
from tests.series.reference import Reference
from tests.series.streams import arrays, keys_of, plan_of, random_nights, released, run_nights
from tests.support.instances import random_pairs

# Late rounds spend most, one night has three rounds, users are cut.
UNEVEN = Schedule((1, 2, 2, 2, 3, 4), (0.1, 0.1, 0.1, 0.1, 0.2, 0.4), (0.1, 0.1, 0.1, 0.1, 0.1, 0.5))


CUT = {"preset": None, "schedule": UNEVEN, "max_items_per_user": 5}
SAVED = {**CUT, "saved_norm": 2.5, "rise": 2.0, "cap": 0.8}


@pytest.mark.parametrize(
    ("seed", "settings"), [(0, {}), (1, {"preset": "early"}), (2, CUT), (0, SAVED), (1, SAVED)]
)
def test_nights_equal_the_reference(seed, settings):
    plan, keys = plan_of(**settings), keys_of(seed)
    nights = random_nights(seed)
    erased = {1: ["user 3", "user 4"], 2: ["user 5"]}
    if seed % 2:  # a night on which nothing comes
        nights[1] = []
    slow = Reference(plan, keys)
    for number, pairs in enumerate(nights, start=1):
        slow.run(pairs)
        for user in erased.get(number, ()):
            slow.erase(user)
    state = run_nights(plan, nights, keys, erased)
    assert released(state) == slow.released
    assert len(slow.released) > 2
    open_items = [item.decode() for item in state.items.to_pylist()]
    assert set(open_items) == slow.z.keys() - slow.released.keys()
    for name in ("z", "y", "a"):
        expected = [getattr(slow, name)[item] for item in open_items]
        assert state.accumulators[name] == pytest.approx(expected, abs=1e-6)
    if plan.config.saved_norm is not None:
        left = sorted(state.energy / FULL)
        assert left == pytest.approx(sorted(slow.energy.values()), abs=1e-6) and left[0] < 0.5


def test_the_order_of_the_input_and_repeated_rows_change_nothing():
    plan, nights = plan_of(max_items_per_user=4), random_nights(1)
    rng = np.random.default_rng(0)
    shuffled = [[pairs[i] for i in rng.permutation(len(pairs))] + pairs[:7] for pairs in nights]
    one, other = (run_nights(plan, n, keys_of(1)) for n in (nights, shuffled))
    for name, values in one.to_columns().items():
        assert np.array_equal(np.asarray(values), np.asarray(other.to_columns()[name])), name


def test_one_night_of_one_round_equals_gsu():
    schedule = Schedule((1,), (1.0,), (1.0,))
    settings = {"cap": 1.0, "rank_power": 0.0, "rise": 0.0, "max_items_per_user": 6}
    plan = plan_of(1, 1.0, 1e-3, preset=None, schedule=schedule, **settings)
    gsu = make_plan(
        SelectionConfig(
            1.0,
            1e-3,
            "gsu",
            max_items_per_user=6,
            gsu_fractions=(1.0,),
            gsu_final_spending=1.0,
            gsu_cap=1.0,
            gsu_growth=0.0,
            gsu_delta_share=0.7,
        )
    )
    assert plan.calibration.thresholds == pytest.approx(gsu.program.thresholds, rel=1e-3)
    pairs = random_pairs(1, users=400)
    here = run_nights(plan, [pairs], keys_of(1)).released.to_pylist()
    there = run_in_process(gsu.program, [arrays(pairs)], keys_of(1)._run_key).items.to_pylist()
    assert len(here) > 3 and sorted(here) == sorted(there)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("max_items", [3, 40])
def test_all_data_on_the_first_night_equals_gsu(seed, max_items):
    """Nights without data run their rounds: together they are the rounds of one gsu."""
    settings = {"cap": 1.0, "rank_power": 0.0, "growth": 0.0, "aims": ((None, 0.0, 1.0),)}
    plan = plan_of(4, preset=None, schedule=UNEVEN, max_items_per_user=max_items, **settings)
    c = plan.calibration
    gsu = GsuProgram(
        sigma=c.sigma,
        fractions=c.fractions,
        round_sigmas=c.round_sigmas,
        coefficients=c.a,
        drifts=c.G,
        variances=c.V,
        thresholds=c.thresholds,
        caps=c.caps,
        max_items=max_items,
        score=plan.config.score,
    )
    pairs = random_pairs(seed, users=60)
    state = run_nights(plan, [pairs, [], [], []], keys_of(seed))
    there = run_in_process(gsu, [arrays(pairs)], keys_of(seed)._run_key)
    assert sorted(state.released.to_pylist()) == sorted(there.items.to_pylist())
    assert len(set(released(state).values())) > 1  # not all on the first night


def test_nothing_on_any_night_releases_nothing_and_runs_all_rounds():
    state = run_nights(plan_of(), [[], [], [], []], keys_of(1))
    assert (state.night, len(state.released), state.rounds) == (
        4,
        0,
        plan_of().config.resolved_schedule.rounds,
    )


def test_no_night_after_the_last():
    with pytest.raises(ValueError, match="all nights of the series are made"):
        run_nights(plan_of(2), [[], [], []], keys_of(1))
