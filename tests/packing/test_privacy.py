"""What the prices tell about one agent: replay of every round, and the loss of privacy against its exact law."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbeam.engine.program import Draw, Keys
from dpbeam.packing.market import Rows, demand_units, value_units
from dpbeam.packing.program import PRICES, PackingProgram
from tests.support.markets import market, packed, plan, random_rows
from tests.support.running import key

ONE = 1 << 30


def rows_of(made, values, demands):
    units = demand_units(demands, made.market.demand_factors, made.market.limits)
    return Rows(value_units(values, 1.0 / made.market.max_value), units, made.price_bits)


def transcript(made, rows, name):
    """(prices, exact demand, noisy demand, share) of every round of a run."""
    program, keys = PackingProgram(made), Keys(key(name))
    state, said, spent, rounds = {}, None, (), []
    for trip in range(program.trips):
        prices = program._prices(program._first) if said is None else said[PRICES]
        exact = rows.total_demand(prices)
        summary = {"demand": exact, "agents": np.array([len(rows)])}
        draw = keys.hub(program.hub_noise(trip), trip, spent)
        state, said = program.decide(trip, state, [summary], draw)
        spent = draw.spent
        rounds.append((prices, exact / 2**22, state["noisy"] / ONE, spent[-1]))
        if program.done(trip, said):
            return rounds
    raise AssertionError


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 1]))
def test_replay_one_agent_moves_the_demand_by_less_than_the_noise_is_made_for(seed, most):
    """Both neighbours at the posted prices of one: the loss of the whole transcript stays within that of the filter."""
    rng = np.random.default_rng(seed)
    values, demands = random_rows(60, 3, seed)
    if most is not None:
        demands *= np.eye(3)[rng.integers(0, 3, 60)]
    made = plan(market([6, 9, 30], 60), epsilon=20.0, alpha=0.5, start_rounds=5, max_resources_per_agent=most)
    rounds = transcript(made, rows_of(made, values, demands), str(seed))
    values[7], demands[7] = rng.choice([0, 1]), np.eye(3)[rng.integers(3)] if most else rng.choice([0, 1], 3)
    other = rows_of(made, values, demands)
    cost = 0.0
    for prices, exact, _, share in rounds:
        moved = np.linalg.norm(other.total_demand(prices) / 2**22 - exact)
        assert moved <= made.noise.sensitivity
        cost += (moved / made.noise.scale_of(share)) ** 2
    assert cost <= 1 / made.noise.sigma**2


class Always:
    """Two agents who want one unit each at any price; without one of them every sum is one less: the worst case."""

    def __len__(self):
        return 2

    def total_demand(self, prices):
        return np.array([2 << 22])


WORST = {"epsilon": 2.0, "delta": 1e-3, "alpha": 0.6, "start_rounds": 2}


def losses(made, trials):
    """Privacy loss of transcripts where one agent moves every sum by all that the sensitivity allows."""
    each = []
    for trial in range(trials):
        loss = 0.0
        for _, exact, noisy, share in transcript(made, Always(), f"loss {trial}"):
            scale = made.noise.scale_of(share)
            loss += ((noisy - (exact - 1)) ** 2 - (noisy - exact) ** 2).item() / (2 * scale**2)
        each.append(loss)
    return np.array(each)


def test_the_loss_has_the_law_of_one_gaussian_mechanism():
    """Adaptive shares or not: N(mu^2/2, mu^2), the law that the accountant assumes.

    False alarm 1e-6 by construction of the test; noise smaller or larger by a factor 1.5 is seen.
    """
    made = plan(market([3], 40), **WORST)
    mu = 1 / made.noise.sigma
    losses_seen = losses(made, 300)
    assert stats.kstest((losses_seen - mu**2 / 2) / mu, "norm").pvalue > 1e-6
    for wrong in (mu * 1.5, mu / 1.5):
        assert stats.kstest((losses_seen - wrong**2 / 2) / wrong, "norm").pvalue < 1e-6
    # The hockey-stick divergence at epsilon: at most delta, and near it.
    excess = np.maximum(0.0, 1 - np.exp(made.config.epsilon - losses_seen))
    assert excess.mean() <= 1e-3 + 5 * excess.std() / math.sqrt(len(losses_seen)) + 1e-3


def test_rounds_that_look_at_noise_take_different_shares():
    """The test above is one of adaptive shares: they differ between runs."""
    made = plan(market([3], 40), **WORST)
    shares = {tuple(share for *_, share in transcript(made, Always(), f"loss {n}")) for n in range(5)}
    assert len(shares) > 1


@pytest.mark.parametrize("blind", [1, 3])
def test_state_that_is_not_public_stays_at_the_hub(blind):
    """What is broadcast is a function of what is noisy: equal noisy sums, equal words, whoever demanded."""
    made = plan(market([30, 30], 100), alpha=0.5, start_rounds=2)
    said = []
    for part in (0, blind):
        program = PackingProgram(made)

        class Draw:
            def noisy_within(self, share, exact, fp):
                return np.array([5, 7], np.int64) * ONE

        summary = {"demand": np.array([part, part]) << 22, "agents": np.array([100])}
        said.append(program.decide(0, {}, [summary], Draw())[1][PRICES])
    assert (said[0] == said[1]).all()


def test_no_round_draws_the_noise_of_another(monkeypatch):
    """More rounds of one share than a job has trips: equal scales, so noise that repeats itself is equal."""
    made = plan(market([30, 30, 30], 100), alpha=0.2, start_rounds=80)
    values, demands = random_rows(50, 3, 0)
    drawn, sound = [], Draw.noisy_within

    def watched(draw, share, exact, fp):
        noisy = sound(draw, share, exact, fp)
        drawn.append((share, tuple((noisy - exact).tolist())))
        return noisy

    monkeypatch.setattr(Draw, "noisy_within", watched)
    packed(made, values, demands)
    assert len(drawn) > 100 and len({share for share, _ in drawn[:80]}) == 1
    assert len({noise for _, noise in drawn}) == len(drawn)
