"""The non-private evaluation: figures by hand on small data, against slow formulas on random data."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest

from dpbeam.accounting.limits import release_probability_limit
from dpbeam.engine.in_process import run_in_process
from dpbeam.errors import InputError
from dpbeam.randomness import RunKey
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam_lab.evaluation.bounds import Masses, Wgm, fit_zipf, theorem_3_3, theorem_3_6
from dpbeam_lab.evaluation.indexed import index_pairs, mask_of
from dpbeam_lab.evaluation.quality import (
    evaluate_release,
    missing_mass,
    physical_limit,
    share_of_users,
    wgm_bounds,
)

PAIRS = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "x"), ("c", "z"), ("d", "x"), ("d", "y")]


def batches(pairs=PAIRS, size: int = 3, kind: pa.DataType | None = None):
    kind = kind or pa.string()
    for start in range(0, len(pairs), size):
        part = pairs[start : start + size]
        yield tuple(pa.array([p[side] for p in part], kind) for side in (0, 1))


def test_index_counts_distinct_pairs():
    indexed = index_pairs(batches())
    assert indexed.items.to_pylist() == ["x", "y", "z"]
    assert indexed.holders.tolist() == [3, 2, 1]
    assert indexed.sets.degrees.tolist() == [2, 1, 1, 2]
    assert indexed.num_items == 3


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_index_is_the_same_for_any_batches(kind, size):
    indexed = index_pairs(batches(size=size, kind=kind))
    assert indexed.holders.tolist() == [3, 2, 1]


def test_evaluation_by_hand():
    result = evaluate_release(batches(), pa.array(["x", "nobody's"]), epsilon=1.0, delta=1e-5)
    assert result["not_private"] is True
    assert (result["users"], result["items"], result["entries"]) == (4, 3, 6)
    assert result["released"] == {
        "items": 1,
        "not_in_data": 1,
        "share_of_items": pytest.approx(1 / 3),
        "share_of_users_that_keep_an_item": 0.75,
        "share_of_entries": 0.5,
    }
    assert result["missing_mass"] == {
        "p0": 2,
        "p1": pytest.approx(0.5),
        "p2": pytest.approx(math.sqrt(4 + 1) / 6),
        "pinf": pytest.approx(2 / 6),
    }
    assert json.loads(json.dumps(result)) == result


def test_everything_and_nothing_released():
    holders = np.array([3, 2, 1])
    assert missing_mass(holders, np.ones(3, bool)) == {"p0": 0, "p1": 0.0, "p2": 0.0, "pinf": 0.0}
    assert missing_mass(holders, np.zeros(3, bool))["p1"] == pytest.approx(1.0)
    indexed = index_pairs(batches())
    assert share_of_users(indexed, np.zeros(3, bool)) == 0.0
    assert share_of_users(indexed, np.ones(3, bool)) == 1.0
    assert share_of_users(indexed, np.array([False, False, True])) == 0.25


def test_limit_sums_the_probabilities_of_every_item():
    rng = np.random.default_rng(0)
    holders = rng.integers(1, 40, 500)
    mask = rng.random(500) < 0.3
    limit = physical_limit(holders, mask, 1.0, 1e-5)
    assert limit["half_limit_users"] == pytest.approx(11.36, abs=0.005)
    assert limit["expected_items_at_most"] == pytest.approx(
        sum(release_probability_limit(int(n), 1.0, 1e-5) for n in holders)
    )
    assert limit["items_above_half_limit"] == int((holders >= 12).sum())
    assert limit["released_above_half_limit"] == int(((holders >= 12) & mask).sum())
    assert limit["released_below_half_limit"] == int(((holders < 12) & mask).sum())


def zipf_data(users: int = 3_000, items: int = 200):
    """Item of rank r is held by about users / r^1.5 of the users."""
    rng = np.random.default_rng(3)
    pairs = []
    for rank in range(1, items + 1):
        for user in rng.choice(users, max(1, int(users / rank**1.5)), replace=False):
            pairs.append((f"u{user}", f"i{rank}"))
    return pairs


def test_bounds_are_those_of_their_module():
    indexed = index_pairs(batches(zipf_data(), 10_000))
    bounds = wgm_bounds(indexed, 1.0, 1e-5, 10)
    masses, wgm = Masses(indexed.holders, int(indexed.sets.degrees.max())), Wgm.of(1.0, 1e-5, 10)
    law = fit_zipf(masses, bounds["zipf_exponent"])
    assert bounds["zipf_factor"] == law.factor
    assert 1.2 < law.exponent < 2.2
    assert bounds["mm_inf"] == theorem_3_6(masses, wgm, 0.05)
    assert bounds["mm_1_zipf"] == theorem_3_3(masses, wgm, law, 0.05)
    assert bounds["mm_1_at_least"] < bounds["mm_1"] <= bounds["mm_1_zipf"]


def test_bounds_hold_for_runs_of_basic():
    """The bound fails with probability 0.05 at most; three fixed keys, and it is loose on such data."""
    pairs = zipf_data()
    plan = make_plan(SelectionConfig(1.0, 1e-5, "basic", max_items_per_user=10))
    for seed in range(3):
        items = run_in_process(plan.program, batches(pairs, 10_000), RunKey.insecure_fixed(str(seed))).items
        result = evaluate_release(
            batches(pairs, 10_000),
            items.cast(pa.binary()).cast(pa.string()),
            epsilon=1.0,
            delta=1e-5,
            max_items=10,
        )
        assert 0 < result["missing_mass"]["pinf"] <= result["wgm_bounds"]["mm_inf"]
        bounds = result["wgm_bounds"]
        assert bounds["mm_1_at_least"] < result["missing_mass"]["p1"] <= bounds["mm_1"]
        assert result["released"]["not_in_data"] == 0
        assert result["limit"]["released_share_of_limit"] < 1


def test_clear_errors():
    with pytest.raises(InputError, match="the input holds no"):
        evaluate_release([], pa.array(["x"]), epsilon=1.0, delta=1e-5)
    with pytest.raises(InputError, match="must not be null"):
        index_pairs([(pa.array(["a", None]), pa.array(["x", "y"]))])
    with pytest.raises(InputError, match="released items are of type string, those of the input int64"):
        mask_of(index_pairs([(pa.array([1, 2]), pa.array([5, 6]))]), pa.array(["five"]))
