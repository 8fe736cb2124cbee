"""Water filling and scores of the group-sequential union."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.counts.counted import CountedProgram
from dpbeam.engine.in_process import run_trips
from dpbeam.engine.program import Keys
from dpbeam.kernels.grid import NORM_UNITS, UNITS
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selectors.gsu.kernels import (
    RELEASED,
    SCORE_ONE,
    Checkpoint,
    OpenRows,
    fill_weights,
    first_weights,
    item_weights,
    score_units,
)
from dpbeam.selectors.gsu.presets import GSU_PRESETS, ScoreConstants
from tests.selectors.gsu import reference
from tests.support.instances import csr, random_pairs, whole_block
from tests.support.running import key, names, release

score_values = st.one_of(st.just(1.0), st.integers(66, SCORE_ONE).map(lambda k: k / SCORE_ONE))


@pytest.mark.parametrize("k1,kk", [(0.8, 590.0), (0.8, -590.0), (1e-129, 0.0), (1e129, 0.0), (1e-60, 300.0)])
def test_scores_at_the_ends_of_what_settings_allow_are_numbers(k1, kk):
    constants = (1.0, -0.5, k1, kk, -0.5, 2.4, 1.1)
    plan = make_plan(SelectionConfig(1.0, 1e-5, "gsu", gsu_score_constants=constants, max_items_per_user=8))
    pairs = [(f"user {u}", f"item {i}") for i in range(40) for u in range(3 * i)]
    assert names(release(plan.program, pairs, key("ends"))) <= {f"item {i}" for i in range(40)}


def check_row(units: list[int], score: list[float], cap: float) -> None:
    assert sum(u * u for u in units) <= NORM_UNITS
    assert max(units) <= math.floor(cap * UNITS)
    assert min(units) >= 0
    expected = reference.fill(dict(enumerate(score)), cap)
    for i, u in enumerate(units):
        assert abs(u / UNITS - expected[i]) <= 3 / UNITS + 1e-9, (i, score, cap)


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(st.lists(score_values, min_size=1, max_size=15), st.floats(1e-3, 1.0)),
        min_size=1,
        max_size=5,
    )
)
def test_filling_equals_bisection(users):
    rows = csr([range(len(score)) for score, _ in users])
    units = fill_weights(
        rows, np.array([s for u, _ in users for s in u]), np.array([cap for _, cap in users])
    )
    assert units.dtype == np.int64
    for (score, cap), a, b in zip(users, rows.offsets[:-1], rows.offsets[1:]):
        check_row([int(u) for u in units[a:b]], score, cap)


def test_filling_of_many_random_users():
    rng = np.random.default_rng(4)
    lengths = rng.integers(1, 100, 120)
    caps = rng.choice([1.0, 0.7, 0.26, 0.15, 0.05], 120)
    scores = [np.maximum(rng.random(d) ** rng.choice([0.1, 1, 8]), 1e-3) for d in lengths]
    rows = csr([range(d) for d in lengths])
    units = fill_weights(rows, np.concatenate(scores), caps)
    whole = 0
    for score, cap, a, b in zip(scores, caps, rows.offsets[:-1], rows.offsets[1:]):
        row = [int(u) for u in units[a:b]]
        check_row(row, score.tolist(), cap)
        whole += sum(u * u for u in row) >= NORM_UNITS * (1 - 1e-6)
    assert whole > 40  # the unit of weight is spent wherever the caps allow


def test_empty_users_and_no_users():
    rows = csr([[], [0, 1], []])
    assert len(fill_weights(rows, np.ones(2), np.array([1.0, 1.0, 1.0]))) == 2
    assert len(fill_weights(csr([[], []]), np.zeros(0), np.ones(2))) == 0


def test_a_user_is_filled_alone():
    rng = np.random.default_rng(8)
    scores = [rng.random(d) + 1e-3 for d in rng.integers(1, 70, 60)]
    caps = rng.random(60) * 0.5 + 0.05
    together = fill_weights(csr([range(len(s)) for s in scores]), np.concatenate(scores), caps)
    alone = [fill_weights(csr([range(len(s))]), s, np.array([c])) for s, c in zip(scores, caps)]
    assert np.array_equal(together, np.concatenate(alone))


@given(st.lists(st.sets(st.integers(0, 9), max_size=9), min_size=1, max_size=12), st.floats(1e-3, 1.0))
def test_first_weights_are_those_of_full_scores(sets, cap):
    rows = csr(sets)
    caps = np.append(math.nan, cap / np.arange(1.0, 10.0) ** 0.3)
    units = fill_weights(rows, np.ones(len(rows.links)), caps[rows.degrees])
    expected = np.zeros(10, np.int64)
    np.add.at(expected, rows.links, units)
    assert first_weights(rows, caps, 10).tolist() == expected.tolist()


@settings(max_examples=30)
@given(st.data(), st.lists(st.sets(st.integers(0, 9), max_size=9), min_size=1, max_size=12))
def test_released_items_leave_for_good_and_change_nothing(data, sets):
    rows, caps = csr(sets), np.append(math.nan, 0.9 / np.arange(1.0, 10.0) ** 0.4)
    some, left = st.sampled_from([0, 66, 9_999, SCORE_ONE]), OpenRows.of(rows, caps)
    for released in itertools.accumulate(data.draw(st.lists(st.sets(st.integers(0, 9)))), set.union):
        scores = data.draw(st.lists(some, min_size=10, max_size=10))
        score = np.where(np.isin(np.arange(10), list(released)), RELEASED, scores).astype(np.uint16)
        before = len(left.rows.links)
        left = left.without_released(score)
        kept = score.take(rows.links) > RELEASED
        pairs = rows.restrict(kept)
        alone = fill_weights(pairs, score.take(pairs.links) * (1.0 / SCORE_ONE), caps[rows.degrees])
        expected = np.zeros(10, np.int64)
        np.add.at(expected, pairs.links, alone)
        assert item_weights(left, score, 10).tolist() == expected.tolist()
        assert 2 * np.isin(left.rows.links, list(released)).sum() <= before


def test_another_run_on_the_same_block_begins_with_all_of_it():
    program, keys = make_plan(SelectionConfig(1.0, 1e-5, "gsu", max_items_per_user=8)).program, Keys(key())
    block, fresh = (whole_block(random_pairs(1), keys, 8) for _ in range(2))
    out, full = ({"score": np.full(block.num_items, value, np.uint16)} for value in (RELEASED, SCORE_ONE))
    for trip, reply in ((0, {}), (1, out), (0, {})):
        program.weigh(trip, block, reply, keys)
    again, first = (program.weigh(1, part, full, keys)[0]["weight"] for part in (block, fresh))
    assert again.tolist() == first.tolist()
    assert first.any()


def test_a_run_on_a_view_of_the_block_does_not_begin_with_what_another_run_left():
    """A program around gsu hands over copies, on the first trip too."""
    pairs = [(f"user {u}", f"item {i}") for i in range(6) for u in range(40 + 60 * i)]
    program, keys = make_plan(SelectionConfig(1.0, 1e-5, "gsu", max_items_per_user=8)).program, Keys(key())
    used, fresh = (whole_block(pairs, keys, 8) for _ in range(2))
    assert run_trips(program, [used], keys).shards[0].state["released"].any()
    again, alone = (
        run_trips(CountedProgram(program), [block], keys).shards[0].state for block in (used, fresh)
    )
    for name in ("z", "released", "weight"):
        assert again[name].tolist() == alone[name].tolist(), name


def test_scores_and_caps_that_are_no_numbers_are_refused():
    rows = csr([[0, 1], [0]])
    for score, caps in (([0.5, math.nan, 1.0], [1.0, 1.0]), ([0.5, 0.5, 1.0], [math.nan, 1.0])):
        with pytest.raises(ValueError, match=r"weights must be numbers in \[0, 1\]"):
            fill_weights(rows, np.array(score), np.array(caps))


AT = Checkpoint(drift=0.4, variance=0.3, final_drift=1.1, final_threshold=5.0, sigma=3.0)


@pytest.mark.parametrize("preset", GSU_PRESETS)
def test_scores_equal_the_definition(preset):
    constants = GSU_PRESETS[preset].score
    rng = np.random.default_rng(3)
    z, y, a = rng.normal(3, 4, 500), rng.normal(2, 4, 500), rng.random(500) * 0.5 + 1e-3
    units = score_units(z, y, a, AT, constants)
    assert units.dtype == np.uint16
    for got, *state in zip(units.tolist(), z, y, a):
        want = reference.gsu_score(
            *state,
            k=0,
            G=(AT.drift, AT.final_drift),
            V=(AT.variance, 1.0),
            rho=AT.final_threshold,
            sigma=AT.sigma,
            constants=constants,
        )
        assert got == 0 if want < 1e-3 - 1e-9 else abs(got - want * SCORE_ONE) <= 0.5 + 1e-6
    assert np.count_nonzero(units) > 0


@settings(max_examples=60)
@given(
    st.floats(-1e9, 1e9),
    st.floats(-1e9, 1e9),
    st.floats(1e-12, 1e3),
    st.floats(0, 1),
    st.sampled_from(sorted(GSU_PRESETS)),
)
def test_scores_of_extreme_states_are_fractions(z, y, a, variance, preset):
    at = Checkpoint(drift=variance, variance=variance, final_drift=1.0, final_threshold=5.0, sigma=2.0)
    with np.errstate(all="ignore"):
        try:
            unit = score_units(np.array([z]), np.array([y]), np.array([a]), at, GSU_PRESETS[preset].score)
        except ValueError:
            assert variance == 1.0  # nothing is left to decide: 0/0
            return
    assert 0 <= int(unit[0]) <= SCORE_ONE
    assert unit[0] == 0 or unit[0] >= 65


def test_a_score_looks_at_its_own_item_only():
    rng = np.random.default_rng(1)
    z, y, a = rng.normal(3, 4, 50), rng.normal(2, 4, 50), rng.random(50) + 0.1
    constants = GSU_PRESETS["gsu8"].score
    together = score_units(z, y, a, AT, constants)
    for i in range(50):
        assert score_units(z[i : i + 1], y[i : i + 1], a[i : i + 1], AT, constants)[0] == together[i]
    huge = score_units(np.append(z, 1e6), np.append(y, 1e6), np.append(a, 1.0), AT, constants)
    assert np.array_equal(huge[:-1], together)


@pytest.mark.parametrize("name", ["z", "y"])
def test_a_score_that_is_not_a_number_raises(name):
    state = {"z": np.zeros(3), "y": np.zeros(3), "a": np.ones(3)}
    state[name][1] = math.nan
    with pytest.raises(ValueError, match="a score is not a number: the score constants are out of range"):
        score_units(**state, at=AT, constants=ScoreConstants(1.0, 0.0, 0.7, 0.0, -0.5, 2.4, 1.1))
