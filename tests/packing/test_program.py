"""The rounds: against a slow transcription, for any blocks, within the filter, and what agents get."""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbeam.engine.program import Keys
from dpbeam.packing.market import WHOLE
from dpbeam.packing.program import FACTORS, PRICES, PackingProgram
from tests.support.markets import market, optimum, packed, plan, random_rows, slow_share
from tests.support.running import key

QUICK = {"alpha": 0.3, "start_rounds": 8}
ONE = 1 << 30


class Scripted:
    """A hub's draws that return what a test wants, as the engine counts them."""

    def __init__(self, noise):
        self._noise, self.shares = noise, []

    def noisy_within(self, share, exact, fp):
        self.shares.append(Fraction(share))
        assert sum(self.shares) <= 1
        return exact + np.array(self._noise(len(self.shares)), np.int64)


def rounds(program, demand_at, draw):
    """Runs the hub alone; demand_at: prices -> (m,) int64 units of 2^-22."""
    state, prices, transcript = {}, None, []
    for trip in range(program.trips):
        block_prices = prices if trip else program._prices(program._first)
        summary = {"demand": np.array(demand_at(block_prices), np.int64), "agents": np.array([1])}
        state, said = program.decide(trip, state, [summary], draw)
        transcript.append((block_prices, state["noisy"]))
        if program.done(trip, said):
            return transcript, said
        prices = said[PRICES]
    raise AssertionError("the filter was not used up")


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 1.0), st.integers(1, 4), st.integers(0, 9))
def test_the_filter_is_used_up_and_never_overspent_whatever_the_gradients(seed, alpha, resources, start):
    rng = np.random.default_rng(seed)
    made = plan(market([20] * resources, 2_000), alpha=alpha, start_rounds=start, max_rounds=60)
    scale = 10 ** rng.uniform(-2, 6)
    draw = Scripted(lambda _: (rng.normal(size=resources) * scale * ONE).clip(-(2**60), 2**60))
    transcript, said = rounds(PackingProgram(made), lambda _: rng.integers(0, 2_000 << 22, resources), draw)
    assert sum(draw.shares) == 1
    assert min(draw.shares) * WHOLE >= made.smallest_share
    assert len(transcript) <= made.rounds_limit
    assert int(said["round_weights"].sum()) == made.averaged_units
    assert [Fraction(int(w), WHOLE) for w in said["round_weights"]] == draw.shares[
        -len(said["round_weights"]) :
    ]


def slow_rounds(made, values, demands, noise):
    """The loop in floating point, from docs/explanation/packing.md: noisy demands of every round, prices, factors."""
    config, n, m = made.config, made.market.num_agents, made.size
    b, target = float(made.market.supply), made.target
    theta, taken, noisy, posted = np.zeros(m), 0.0, None, []
    rest = 1 - made.start_units * config.start_rounds / WHOLE
    settled, use, weight = made.settled_units / WHOLE, np.zeros(m), 0.0
    while taken < 1 - 1e-12:
        t = len(posted)
        prices = 2 * n / b * np.exp(theta) / (np.exp(theta).sum() + 1)
        demand = demands.T @ (values >= demands @ prices)
        if t < config.start_rounds:
            share, size = made.start_units / WHOLE, config.alpha ** ((t + 1) / config.start_rounds)
        else:
            over = max(b, n if noisy is None else min(n, np.abs(target - noisy).max()))
            size = config.alpha
            share = max(rest * config.alpha**2 / math.log(m + 1) * b / over, rest / config.max_rounds)
            left = (settled if taken < settled - 1e-12 else 1.0) - taken
            share = left if left < 1.5 * share else share
        noisy = demand + noise(t + 1, share)
        if taken >= settled - 1e-12:
            use, weight = use + share * noisy, weight + share
        theta = theta - size / max(b, min(n, np.abs(target - noisy).max())) * (target - noisy)
        taken += share
        posted.append((prices, noisy))
    factors = np.minimum(1, made.usable / (np.maximum(use / weight, 0) + made.overuse_margin))
    return posted, factors


@pytest.mark.parametrize("start,margin", [(0, True), (8, True), (8, False)])
def test_a_run_is_that_of_the_slow_transcription(start, margin):
    """Rows and prices on coarse grids, so that floating point decides every comparison as integers do."""
    values, demands = (np.round(x * 64) / 64 for x in random_rows(400, 3, 1))
    made = plan(market([40, 60, 50], 400), epsilon=30, alpha=0.3, start_rounds=start, margin=margin)
    scaled = demands * [1, 40 / 60, 40 / 50]
    draws = Keys(key("slow"))

    def noise(number, share):
        fp = np.zeros((3, 2), np.uint64)
        fp[:, 0] = range(3)
        return draws.hub(made.noise, number - 1).noisy_within(share, np.zeros(3, np.int64), fp) / ONE

    def of_units(number):
        return noise(number, float(scripted.shares[-1])) * ONE

    scripted = Scripted(of_units)
    program = PackingProgram(made)
    from dpbeam.packing.market import Rows, demand_units, value_units

    rows = Rows(
        value_units(values, 1.0),
        demand_units(demands, made.market.demand_factors, made.market.limits),
        made.price_bits,
    )
    transcript, said = rounds(program, rows.total_demand, scripted)
    expected, factors = slow_rounds(made, values, scaled, noise)
    assert len(transcript) == len(expected) > 12
    for (prices, noisy), (slow_prices, slow_noisy) in zip(transcript, expected):
        assert prices * 2.0**-made.price_bits == pytest.approx(slow_prices, abs=1e-6)
        assert noisy / ONE == pytest.approx(slow_noisy, abs=1e-3)
    assert said[FACTORS] / WHOLE == pytest.approx(factors, abs=1e-6)
    assert margin or factors.min() < 0.99
    # Agents are given what they wanted at the prices whose noisy demand was averaged.
    averaged = [transcript[number - 1][0] for number in said["rounds"]]
    assert (said["round_prices"].reshape(-1, 3) == averaged).all()
    assert said["rounds"].tolist() == list(range(said["rounds"][0], len(transcript) + 1))


@cache
def standard():
    values, demands = random_rows(1_500, 3, 2)
    made = plan(market([150, 300, 225], 1_500), epsilon=4.0, **QUICK)
    return made, values, demands, *packed(made, values, demands)


@pytest.mark.parametrize("blocks", [2, 7])
def test_blocks_and_order_change_nothing(blocks):
    made, values, demands, shares, posted = standard()
    allocation, prices = packed(made, values, demands, num_blocks=blocks)
    assert (allocation == shares).all() and (prices.prices == posted.prices).all()


def test_an_allocation_is_a_function_of_the_posted_prices_and_the_own_row():
    """Agent by agent, from nothing but what is published and that agent's row."""
    _made, values, demands, shares, posted = standard()
    again = type(posted).from_table(posted.to_table())
    for i in range(0, 1_500, 30):
        assert shares[i] == pytest.approx(float(slow_share(values[i], demands[i], again)), abs=1e-12)
        assert again.allocate(values[[i]], demands[[i]]) == shares[i]
    assert {0.0, 1.0} < set(np.round(shares[::30], 12)) or 0 < shares.mean() < 1


def test_supply_is_kept_and_value_is_near_the_optimum():
    made, values, demands, shares, _ = standard()
    supplies = [r.supply for r in made.market.resources]
    assert (demands.T @ shares <= supplies).all()
    assert values @ shares >= 0.93 * optimum(values, demands, supplies)
    assert made.market.limits.tolist()[0] == 1 << 22


def test_value_grows_with_supply_towards_the_optimum():
    values, demands = random_rows(4_000, 3, 3)
    ratios = []
    for share in (0.03, 0.1, 0.3):
        b = 4_000 * share
        made = plan(market([b] * 3, 4_000), **QUICK)
        shares, _ = packed(made, values, demands)
        ratios.append(values @ shares / optimum(values, demands, [b] * 3))
        # At most the margin, alpha and the noise are lost.
        assert ratios[-1] >= 1 - 2 * made.overuse_margin / b - 0.05
    assert ratios == sorted(ratios) and ratios[-1] > 0.97


def test_value_grows_with_epsilon():
    values, demands = random_rows(2_000, 3, 4)
    values_packed = []
    for epsilon in (0.3, 1.0, 4.0):
        made = plan(market([200] * 3, 2_000), epsilon=epsilon, **QUICK)
        values_packed.append(np.mean([values @ packed(made, values, demands, f"{k}")[0] for k in range(3)]))
    assert values_packed == sorted(values_packed)


def test_overuse_is_as_rare_as_beta_says():
    """At beta = 0.4 and one resource overuse happens: as often as allowed, and not more.

    False alarm: 60 runs with probability at most 0.4; more than 45 are seen with probability below 1e-7.
    """
    values, demands = random_rows(400, 1, 5, filled=1.0)
    made = plan(market([60], 400), failure_probability=0.4, alpha=0.9, start_rounds=4)
    over = sum((demands.T @ packed(made, values, demands, f"{k}")[0])[0] > 60 for k in range(60))
    assert stats.binom.sf(45, 60, 0.4) < 1e-7
    assert 1 <= over <= 45
    strict = plan(market([60], 400), failure_probability=1e-3, alpha=0.9, start_rounds=4)
    # False alarm: four overuses of 30 at 1e-3 have probability 3e-8.
    assert sum((demands.T @ packed(strict, values, demands, f"{k}")[0])[0] > 60 for k in range(30)) <= 3


def test_whole_bundles():
    values, demands = random_rows(3_000, 2, 6)
    made = plan(market([600, 600], 3_000), epsilon=4.0, integral=True, **QUICK)
    shares, posted = packed(made, values, demands)
    assert set(shares) == {0.0, 1.0}
    assert (demands.T @ shares <= 600).all()
    fractions = posted.allocate(values, demands)
    assert (shares[fractions == 0] == 0).all()
    # Independent coins: the sum lies within 6 deviations of its mean (1e-9).
    spread = math.sqrt((fractions * (1 - fractions)).sum())
    assert abs(shares.sum() - fractions.sum()) <= 6 * spread


def test_agents_who_demand_nothing_of_what_is_scarce_get_all():
    values, demands = random_rows(1_000, 2, 7)
    demands[:10] = 0
    made = plan(market([100, 200], 1_000), epsilon=4.0, **QUICK)
    shares, _ = packed(made, values, demands)
    assert (shares[:10] == 1).all()


def test_public_bounds_scale_the_market():
    """The same market in other units gets the same prices, on grids of powers of two."""
    values, demands = random_rows(800, 2, 8)
    made = plan(market([80, 120], 800), epsilon=4.0, **QUICK)
    shares, _ = packed(made, values, demands)
    from dpbeam.packing.config import Market, Resource

    other = Market((Resource("r0", 80 * 8.0, 8.0), Resource("r1", 120 / 4, 0.25)), 800, max_value=16.0)
    allocation, _ = packed(plan(other, epsilon=4.0, **QUICK), values * 16, demands * [8, 0.25])
    assert (allocation == shares).all()


def test_more_agents_than_said_are_refused():
    values, demands = random_rows(101, 1, 9)
    made = plan(market([60], 100), **QUICK)
    with pytest.raises(Exception, match="--num_agents=100: the input holds more agents, 101"):
        packed(made, values, demands)
    packed(plan(market([60], 300), **QUICK), values, demands)
