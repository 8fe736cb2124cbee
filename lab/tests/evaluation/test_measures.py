"""Measures against figures by hand and slow counting."""

import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import linprog

from dpbeam.accounting.limits import release_probability_limit
from dpbeam.packing.config import Market, Resource, make_plan
from dpbeam.packing.family import PackingConfig
from dpbeam_lab.evaluation.data import HistogramData, MarketData, PairData, Repetition, open_data
from dpbeam_lab.evaluation.indexed import index_pairs
from dpbeam_lab.evaluation.measures import Case, measure
from dpbeam_lab.evaluation.methods import HITTING_SET, PACKING, SELECTION, TOP_K, Outcome
from dpbeam_lab.evaluation.registry import measures, measures_of

# x: 3 users, y: 2, z: 1; user e holds z alone
PAIRS = [("a", "x"), ("a", "y"), ("b", "x"), ("c", "x"), ("c", "y"), ("e", "z")]


def pair_data(pairs=PAIRS) -> PairData:
    columns = tuple(pa.array([p[side].encode() for p in pairs], pa.large_binary()) for side in (0, 1))
    return PairData(index_pairs([columns]))


def case(items, data=None, **settings) -> Case:
    data = data or pair_data()
    positions = data.positions(pa.array([i.encode() for i in items], pa.large_binary()))
    outcome = Outcome(positions[positions >= 0], int((positions < 0).sum()))
    return Case(data, outcome, 1.0, 1e-3, settings)


def values(case: Case, kind: str) -> dict:
    """Measures of the module itself; those of others are tested with them."""
    own = [m for m in measures_of(kind) if m.compute.__module__ == Case.__module__]
    return {m.name: m.compute(case) for m in own}


def test_a_selection_by_hand():
    numbers = values(case(["y", "nobody's"]), SELECTION)
    limits = {b: float(release_probability_limit(b, 1.0, 1e-3)) for b in (1, 2, 3)}
    assert numbers == {
        "released": 1,
        "outside": 1,
        "missing_mass_0": 2,
        "missing_mass_1": pytest.approx(4 / 6),
        "missing_mass_inf": pytest.approx(3 / 6),
        "share_of_users": pytest.approx(2 / 4),
        "share_of_entries": pytest.approx(2 / 6),
        "limit": pytest.approx(sum(limits.values())),
        "items_by_frequency": {(1, 1): 1, (2, 2): 1, (3, 4): 1},
        "released_by_frequency": {(1, 1): 0, (2, 2): 1, (3, 4): 0},
        "keep_rate": {(1, 1): 0, (2, 2): 1, (3, 4): 0},
        "keep_limit": {(1, 1): limits[1], (2, 2): limits[2], (3, 4): pytest.approx(limits[3])},
        "users_by_rank": {(1, 1): 3, (2, 2): 2, (3, 3): 1},
        "users_by_set_size": {(1, 1): 0.5, (2, 2): 1},
    }


def test_bins_by_rank_and_by_set_size_end_where_the_data_end():
    """Item i of 6 is held by users i..8, so that user u holds items 0..u, at most 6."""
    numbers = values(
        case([], pair_data([(f"{u}", f"{i}") for u in range(9) for i in range(min(u + 1, 6))])), SELECTION
    )
    assert numbers["users_by_rank"] == {(1, 1): 9, (2, 2): 8, (3, 4): 6, (5, 6): 4}
    assert numbers["users_by_set_size"] == {(1, 1): 1 / 9, (2, 2): 2 / 9, (3, 4): 4 / 9, (5, 6): 1}
    alone = values(case([], pair_data([("u", "i")])), SELECTION)
    assert alone["users_by_rank"] == {(1, 1): 1} and alone["users_by_set_size"] == {(1, 1): 1}


def test_a_ranking_by_hand():
    numbers = values(case(["y", "x"], k=3), TOP_K)
    # true counts 3, 2, 1; the answer has 2, 3 and ends
    assert (numbers["topk_missing_mass"], numbers["topk_l1"], numbers["topk_linf"]) == (
        pytest.approx(1 / 6),
        3,
        1,
    )
    assert values(case([], k=2), TOP_K)["topk_missing_mass"] == pytest.approx(5 / 6)
    assert values(case(["x", "y", "z"], k=99), TOP_K)["topk_l1"] == 0


def test_a_hitting_set_by_hand():
    assert values(case(["y"], k=1), HITTING_SET)["users_missed"] == 2
    assert values(case(["x", "z"], k=2), HITTING_SET)["users_missed"] == 0
    assert values(case([], k=2), HITTING_SET)["users_missed"] == 4


def test_bins_of_frequency_against_counting():
    rng = np.random.default_rng(3)
    data = pair_data(
        [(f"u{u}", f"i{i}") for u, i in zip(rng.integers(0, 400, 3000), rng.geometric(0.02, 3000))]
    )
    kept = [item.decode() for item in data.items.to_pylist() if rng.random() < 0.4]
    numbers = values(case(kept, data), SELECTION)
    users = dict(zip((i.decode() for i in data.items.to_pylist()), data.holders.tolist()))
    assert max(users.values()) > 33
    for (low, high), count in numbers["items_by_frequency"].items():
        assert low == (1 if high == 1 else high // 2 + 1)
        inside = [name for name, held in users.items() if low <= held <= high]
        assert count == len(inside) > 0
        assert numbers["released_by_frequency"][low, high] == len(set(inside) & set(kept))
        assert numbers["keep_rate"][low, high] == pytest.approx(len(set(inside) & set(kept)) / len(inside))
        limit = np.mean([release_probability_limit(users[name], 1.0, 1e-3) for name in inside])
        assert numbers["keep_limit"][low, high] == pytest.approx(limit)
    assert sum(numbers["items_by_frequency"].values()) == len(users)
    assert sum(numbers["released_by_frequency"].values()) == numbers["released"] == len(kept)


def test_packing_by_hand():
    market = MarketData(np.array([1.0, 0.5, 0.25]), np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), 1.0)
    outcome = Outcome(allocation=np.array([1.0, 1.0, 0.0]), facts={"rounds": 9})
    numbers = values(Case(market, outcome, 1.0, 1e-6, {"alpha": 0.2}), PACKING)
    resources = (Resource("r0", 1.0), Resource("r1", 1.0))
    plan = make_plan(PackingConfig(1.0, 1e-6, 0.2, allow_small_supply=True), Market(resources, 3))
    best = -linprog(-market.values, A_ub=market.demands.T, b_ub=[1, 1], bounds=(0, 1)).fun
    assert best == pytest.approx(1.25)
    assert numbers == {
        "welfare": pytest.approx(1.5 / 1.25),
        "use": 2.0,
        "feasible_welfare": pytest.approx(1.5 / 1.25 / 2),
        "rounds": 9,
        "supply_needed": pytest.approx(float(plan.supply_needed)),
    }
    assert plan.supply_needed > 1


def test_every_measure_says_what_it_is():
    assert len(measures()) > 15
    for name, described in measures().items():
        assert name == described.name and described.unit and described.kinds
        assert "\n" not in described.meaning and len(described.meaning) > 20
    with pytest.raises(ValueError, match="a measure is named 'released' already"):

        @measure("items", "again", SELECTION)
        def released(case):
            return 0.0


def test_data_come_back_from_files(tmp_path):
    market = MarketData(np.array([0.5]), np.array([[0.1, 0.2]]), 3.0)
    histogram = HistogramData(pa.array([b"a", b""], pa.large_binary()), np.array([3, 1]))
    pairs = pair_data()
    for data in (market, histogram, pairs):
        folder = tmp_path / data.kind
        folder.mkdir()
        data.save(str(folder))
        again = open_data(data.kind, str(folder))
        assert type(again) is type(data) and again.facts() == data.facts()
        if data is not market:
            assert again.items.equals(data.items) and again.holders.tolist() == data.holders.tolist()
    again = open_data("pairs", str(tmp_path / "pairs"))
    ours, theirs = (
        {(u, i) for batch in loaded.batches() for u, i in zip(*(column.to_pylist() for column in batch))}
        for loaded in (pairs, again)
    )
    assert ours == theirs == {(user.encode(), item.encode()) for user, item in PAIRS}


def test_blocks_are_fresh_to_every_caller():
    data = pair_data()
    (block,) = data.blocks(Repetition(1, 0), 10)
    block.state["left"] = np.zeros(1)
    block.broadcast["left"] = np.zeros(1)
    (again,) = data.blocks(Repetition(1, 0), 10)
    assert not again.state and not again.broadcast and again.links is block.links
    (other,) = data.blocks(Repetition(1, 1), 10)
    assert (other.item_fp != block.item_fp).any()
    assert data.preparing > 0
