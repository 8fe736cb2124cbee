"""The stream of choices: deterministic, separated by label, of the right distribution."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbeam.randomness import RunKey, gumbel, prf_bits
from dpbeam.topk.draws import Draws, draw_sequence, draw_untaken

KEY = RunKey.insecure_fixed("draws")


def test_a_stream_is_a_function_of_key_and_label():
    def first(key, label):
        draws = Draws(key, label)
        return [draws.below(1000) for _ in range(600)], draws.choice(np.zeros(50)), draws.accept(-0.7)

    assert first(KEY, "a") == first(KEY, "a")
    assert first(KEY, "a") != first(KEY, "b")
    assert first(KEY, "a") != first(RunKey.insecure_fixed("other"), "a")


def test_blocks_never_repeat_within_a_stream():
    draws = Draws(KEY, "a")
    bits = np.concatenate([draws.bits(1000), draws.bits(1), draws.bits(1000)])
    assert len(np.unique(bits, axis=0)) == 2001


def test_another_version_gives_the_same_stream():
    """A retry may run in a newer version: block n is always that of the pair (n, 0)."""
    draws = Draws(KEY, "a")
    numbered = np.array([[n, 0] for n in range(5)], np.uint64)
    bits = np.concatenate([draws.bits(2), draws.bits(3)])
    np.testing.assert_array_equal(bits, prf_bits(KEY.derive("a"), numbered))


def test_choice_follows_its_weights():
    """20,000 choices among 4, false alarm 1e-7; weights off by 15 % fail."""
    draws, weights, n = Draws(KEY, "choice"), np.array([0.1, 0.0, 0.4, 0.5]), 20_000
    with np.errstate(divide="ignore"):
        logs = np.log(weights) + 700.0
    counts = np.bincount([draws.choice(logs) for _ in range(n)], minlength=4)
    assert counts[1] == 0
    live = weights > 0
    assert stats.chisquare(counts[live], n * weights[live]).pvalue > 1e-7
    wrong = np.where(live, weights * [1, 1, 0.85, 1], 0)[live]
    assert stats.chisquare(counts[live], n * wrong / wrong.sum()).pvalue < 1e-7


def test_choice_reaches_over_chunks():
    """The second chunk holds 3/4 of the weight: 20 choices miss it with probability 2e-12."""
    logs = np.full(600_000, -np.inf)
    logs[::2] = -1e5
    logs[524_288:] += 3
    draws = Draws(KEY, "chunks")
    assert max(draws.choice(logs) for _ in range(20)) > 524_288


def test_choice_is_the_largest_noisy_weight():
    """Weights too small to win get no variate; the others get the blocks of the stream in order."""
    logs = np.array([3.0, -100.0, 1.0, -np.inf, -90.9, 2.0])
    for i in range(50):
        noisy = logs[[0, 2, 4, 5]] + gumbel(Draws(KEY, f"{i}").bits(4))
        assert Draws(KEY, f"{i}").choice(logs) == [0, 2, 4, 5][int(np.argmax(noisy))]


@pytest.mark.parametrize(
    ("logs", "message"),
    [([-np.inf], "exclude every index"), ([np.nan, 0.0], "NaN"), ([np.inf, 0.0], "NaN or")],
)
def test_choice_refuses(logs, message):
    with pytest.raises(ValueError, match=message):
        Draws(KEY, "a").choice(np.array(logs))


def test_below_is_uniform():
    """30,000 integers below 7, false alarm 1e-7; huge ranges stay in range."""
    draws = Draws(KEY, "below")
    counts = np.bincount([draws.below(7) for _ in range(30_000)], minlength=7)
    assert len(counts) == 7 and stats.chisquare(counts).pvalue > 1e-7
    large = [draws.below(2**60) for _ in range(100)]
    assert min(large) >= 0 and max(large) < 2**60 and max(large) > 2**59
    assert draws.below(1) == 0
    with pytest.raises(ValueError, match="n must be at least 1"):
        draws.below(0)


def test_accept_has_its_probability():
    """10,000 trials, 5.5 standard deviations: false alarm below 1e-7."""
    draws, n = Draws(KEY, "accept"), 10_000
    share = np.mean([draws.accept(math.log(0.3)) for _ in range(n)])
    assert abs(share - 0.3) < 5.5 * math.sqrt(0.21 / n)
    assert draws.accept(0.0) and not draws.accept(-1e9)


def test_sequences_are_uniform_among_those_allowed(tools):
    """All orders of draws: position j uniform over the free ranks of its range."""
    low, high = np.array([0, 2, 0, 0]), np.array([2, 4, 5, 5])
    law = tools.enumerate_outcomes(lambda draws: draw_sequence(low, high, draws))
    assert len(law) == 2 * 2 * 3 * 2
    for s, probability in law.items():
        assert len(set(s)) == 4
        assert all(low[j] <= x < high[j] for j, x in enumerate(s))
        assert probability == pytest.approx(1 / 24)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.sets(st.integers(0, 20)), st.integers(0, 20), st.integers(1, 21))
def test_the_free_ranks_of_a_range_in_order(taken, low, width):
    high = min(low + width, 21)
    free = [rank for rank in range(low, high) if rank not in taken]

    class Fixed:
        def __init__(self, at):
            self.at = at

        def below(self, n):
            assert n == len(free)
            return self.at

    for at, rank in enumerate(free):
        listed = sorted(taken)
        assert draw_untaken(listed, low, high, Fixed(at)) == rank
        assert listed == sorted({*taken, rank})
