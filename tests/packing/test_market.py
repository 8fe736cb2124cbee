"""Exact arithmetic on agents: best responses, total demand, allocations, blocks."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.errors import InputError
from dpbeam.packing.market import Rows, build_agents, demand_units, partition_agents, value_units

KEY = bytes(32)
BITS = 20


def random_market(seed, agents=300, resources=4):
    rng = np.random.default_rng(seed)
    values = value_units(rng.random(agents), 1.0)
    demands = demand_units(
        rng.random((agents, resources)) * (rng.random((agents, resources)) < 0.6), np.ones(resources)
    )
    prices = rng.integers(0, 1 << 21, resources)
    return Rows(values, demands, BITS), prices


def slow_wants(rows: Rows, prices) -> list[bool]:
    return [
        int(v) << BITS >= sum(int(a) * int(p) for a, p in zip(row, prices))
        for v, row in zip(rows.values, rows.demands)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_total_demand_is_exact(seed):
    rows, prices = random_market(seed)
    wants = slow_wants(rows, prices)
    assert 0 < sum(wants) < len(rows)
    expected = [sum(int(a) for a, w in zip(column, wants) if w) for column in rows.demands.T]
    assert rows.total_demand(prices).tolist() == expected


def test_a_tie_is_won_and_one_unit_more_is_lost():
    rows = Rows(np.float32([1 << 21]), np.float32([[1 << 22, 1 << 22]]), BITS)
    price = np.array([1 << 18, 1 << 18])
    assert rows.total_demand(price).tolist() == [1 << 22, 1 << 22]
    assert rows.total_demand(price + np.array([0, 1])).tolist() == [0, 0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 299))
def test_sums_do_not_depend_on_where_agents_are(seed, cut):
    rows, prices = random_market(seed)
    order = np.random.default_rng(seed).permutation(len(rows))
    parts = [Rows(rows.values[p], rows.demands[p], BITS) for p in (order[:cut], order[cut:])]
    assert (sum(part.total_demand(prices) for part in parts) == rows.total_demand(prices)).all()


def test_allocations_are_the_weighted_share_of_rounds_times_the_smallest_factor():
    rows, _ = random_market(5, agents=40)
    rng = np.random.default_rng(6)
    prices = rng.integers(0, 1 << 21, (300, 4))  # more rounds than are multiplied at once
    weights = rng.integers(1, (1 << 40) // 300, 300)
    factors = np.array([1 << 40, 1 << 39, 3 << 38, 1 << 40])
    got = rows.allocate(prices, weights, factors)
    won = np.array([slow_wants(rows, price) for price in prices]).T
    for i in range(len(rows)):
        share = Fraction(sum(int(w) for w, x in zip(weights, won[i]) if x), int(weights.sum()))
        used = [Fraction(int(f), 1 << 40) for f, a in zip(factors, rows.demands[i]) if a > 0]
        assert got[i] == pytest.approx(float(share * min([Fraction(1), *used])), abs=1e-15)


def test_an_agent_without_demands_gets_all():
    rows = Rows(np.float32([0, 5]), np.zeros((2, 3), np.float32), BITS)
    fractions = rows.allocate(np.full((2, 3), 1 << 28), np.array([1, 2]), np.array([1, 1, 1]))
    assert fractions.tolist() == [1.0, 1.0]


def test_demands_are_rounded_up_and_values_down():
    third = np.array([1 / 3])
    assert demand_units(third[:, None], np.ones(1))[0, 0] == (1 << 22) // 3 + 1
    assert value_units(third, 1.0)[0] == (1 << 22) // 3
    assert demand_units(np.array([[1e-30, 0.0, 1.0]]), np.ones(3)).tolist() == [[1, 0, 1 << 22]]


@pytest.mark.parametrize("bad", [-1e-9, 1.001, np.nan, np.inf])
def test_numbers_off_the_grid_are_refused(bad):
    with pytest.raises(ValueError, match="must lie in"):
        demand_units(np.array([[bad]]), np.ones(1))
    with pytest.raises(ValueError, match="must lie in"):
        value_units(np.array([bad]), 1.0)


def split(agents, blocks=3):
    count = len(agents)
    values, demands = np.arange(count, dtype=np.float32), np.ones((count, 2), np.float32)
    names = pa.array(agents, pa.large_binary())
    return list(partition_agents(names, values, demands, KEY, blocks))


def test_blocks_hold_every_agent_once_in_the_order_of_fingerprints():
    names = [b"%d" % i for i in range(100)]
    parts = split(names)
    blocks = [build_agents(number, [message]) for number, message in parts]
    assert sorted(b for block in blocks for b in block.items.to_pylist()) == sorted(names)
    whole = build_agents(0, [message for _, message in parts])
    joined = [b for block in blocks for b in block.items.to_pylist()]
    assert joined == whole.items.to_pylist()
    assert [b"%d" % int(v) for v in whole.user_values["value"]] == joined


@pytest.mark.parametrize("blocks", [1, 3])
def test_two_rows_of_an_agent_meet_and_are_refused(blocks):
    first, second = split([b"a", b"b"], blocks), split([b"c", b"a"], blocks)
    messages: dict = {}
    for number, message in first + second:
        messages.setdefault(number, []).append(message)
    with pytest.raises(InputError, match=r"^column 'id' holds an agent twice; every agent is one row$"):
        for number, parts in messages.items():
            build_agents(number, parts, "id")
