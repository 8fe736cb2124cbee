"""CDP-Peel and PNF-Peel against their product forms; determinism; bounds of the noise."""

import itertools
import math

import numpy as np
import pytest

from dpbeam.randomness import RunKey, gumbel, prf_bits
from dpbeam.topk.draws import GUMBEL_MAX, GUMBEL_MIN
from dpbeam.topk.peeling import LARGEST_EXPONENTIAL_MAX, cdp_peel, pnf_peel, pnf_ranks

KEY = RunKey.insecure_fixed("peel")


def peel_distribution(counts, k, choose):
    """Product of k choices without replacement; choose(counts, left) -> {item: probability}."""
    law = {}
    for s in itertools.permutations(range(len(counts)), k):
        probability, left = 1.0, set(range(len(counts)))
        for x in s:
            probability *= choose(counts, left)[x]
            left.remove(x)
        law[s] = probability
    return law


def exponential_mechanism(epsilon0):
    def choose(counts, left):
        total = sum(math.exp(epsilon0 * counts[x]) for x in left)
        return {x: math.exp(epsilon0 * counts[x]) / total for x in left}

    return choose


def permute_and_flip(epsilon0):
    """By its definition: a random order, each item accepted with exp(epsilon0 (count - largest))."""

    def choose(counts, left):
        top = max(counts[x] for x in left)
        accept = {x: math.exp(epsilon0 * (counts[x] - top)) for x in left}
        chances, orders = dict.fromkeys(left, 0.0), list(itertools.permutations(left))
        for order in orders:
            passed = 1.0
            for x in order:
                chances[x] += passed * accept[x] / len(orders)
                passed *= 1 - accept[x]
        return chances

    return choose


COUNTS = np.array([2, 7, 2, 5])


def test_cdp_peel_is_a_product_of_exponential_mechanisms(tools):
    """3,000 keys over 24 sequences, false alarm 1e-7; a scale times 0.8 or 1.25 fails."""
    fp = tools.fingerprints_of(4)
    got = tools.count_outcomes(lambda key: cdp_peel(COUNTS, fp, 3, 0.5, key), 3000)

    def p_value(epsilon0):
        return tools.chi_square_p(got, peel_distribution(COUNTS, 3, exponential_mechanism(epsilon0)))

    assert p_value(0.5) > 1e-7
    assert p_value(0.5 / 0.8) < 1e-7 and p_value(0.5 / 1.25) < 1e-7


def test_pnf_peel_is_permute_and_flip_in_rounds(tools):
    """2,500 keys over 24 sequences at 0.5 per round, false alarm 1e-7.

    A scale times 0.8 or 1.25 fails, and so does the exponential mechanism in its place.
    """
    fp = tools.fingerprints_of(4)
    got = tools.count_outcomes(lambda key: pnf_peel(COUNTS, fp, 3, 1.5, key), 2500)

    def p_value(choose):
        return tools.chi_square_p(got, peel_distribution(COUNTS, 3, choose))

    assert p_value(permute_and_flip(0.5)) > 1e-7
    assert p_value(permute_and_flip(0.5 / 0.8)) < 1e-7 and p_value(permute_and_flip(0.5 / 1.25)) < 1e-7
    assert p_value(exponential_mechanism(0.5)) < 1e-7


def test_permute_and_flip_round_is_private():
    """One user more: the odds of a round, in the form the code is compared to, move by <= epsilon."""
    rng, epsilon0, worst = np.random.default_rng(2), 0.7, 0.0
    for _ in range(60):
        h = rng.integers(0, 5, 4)
        a = permute_and_flip(epsilon0)(h, {0, 1, 2, 3})
        b = permute_and_flip(epsilon0)(h + rng.integers(0, 2, 4), {0, 1, 2, 3})
        worst = max(worst, *(abs(math.log(a[x] / b[x])) for x in a))
    assert 0.5 * epsilon0 < worst <= epsilon0 + 1e-12


@pytest.mark.parametrize("mechanism", [cdp_peel, pnf_peel])
class TestEveryPeel:
    def test_answer_does_not_depend_on_the_order_of_items(self, tools, mechanism):
        rng, n = np.random.default_rng(4), 500
        counts, fp = rng.integers(0, 20, n), tools.fingerprints_of(n)
        order = rng.permutation(n)
        straight = mechanism(counts, fp, 40, 0.3, KEY)
        shuffled = mechanism(counts[order], fp[order], 40, 0.3, KEY)
        np.testing.assert_array_equal(straight, order[shuffled])
        np.testing.assert_array_equal(straight, mechanism(counts, fp, 40, 0.3, KEY))
        assert not np.array_equal(straight, mechanism(counts, fp, 40, 0.3, KEY, label="other"))

    @pytest.mark.parametrize("counts", [[0, 0, 0], [4, 4, 4], [2**52, 3, 0], [5]])
    def test_all_items(self, tools, mechanism, counts):
        """k = d: every item, once."""
        n = len(counts)
        answer = mechanism(np.array(counts), tools.fingerprints_of(n), n, 1.0, KEY)
        assert sorted(answer.tolist()) == list(range(n)) and answer.dtype == np.int64

    def test_large_budgets_find_the_truth(self, tools, mechanism):
        counts = np.array([10, 50, 20, 40, 30])
        assert mechanism(counts, tools.fingerprints_of(5), 4, 400.0, KEY).tolist() == [1, 3, 4, 2]

    @pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
    def test_bad_epsilon(self, tools, mechanism, epsilon):
        with pytest.raises(ValueError, match="must be finite and positive"):
            mechanism(np.array([1, 2]), tools.fingerprints_of(2), 1, epsilon, KEY)

    def test_more_than_there_are(self, tools, mechanism):
        with pytest.raises(ValueError, match="k must not exceed the number of items, got k = 3 and 2 items"):
            mechanism(np.array([1, 2]), tools.fingerprints_of(2), 3, 1.0, KEY)


def test_items_left_without_noise_could_not_win(tools):
    """Bit by bit the answer of one noisy vector over all items."""
    n, k, epsilon0 = 5000, 30, 0.5
    counts = (3000 / np.arange(1, n + 1)).astype(np.int64)
    fp = tools.fingerprints_of(n)
    for i in range(20):
        key = RunKey.insecure_fixed(f"far {i}")
        noisy = counts + gumbel(prf_bits(key.derive("top-k/cdp-peel/use 0"), fp)) / epsilon0
        np.testing.assert_array_equal(cdp_peel(counts, fp, k, epsilon0, key), np.argsort(-noisy)[:k])


def test_bounds_of_the_variates():
    """The extreme bits: all zeros and all ones, in both halves of the range."""
    ends = np.array([[0, 0], [2**64 - 1, 2**64 - 1], [2**63 - 1, 2**64 - 1], [2**63, 0]], np.uint64)
    values = gumbel(ends)
    assert values.min() > GUMBEL_MIN and values.max() < GUMBEL_MAX
    assert values.max() > GUMBEL_MAX - 0.2 and values.min() < GUMBEL_MIN + 0.1
    smallest = math.exp(-values.max())  # of an exponential
    assert -math.log(-math.expm1(-smallest / 2**62)) < LARGEST_EXPONENTIAL_MAX


def test_pnf_uses_every_member_of_a_class_once(tools):
    ranks = pnf_ranks(np.array([9, 4, 0]), np.array([2, 3, 1]), 6, 1.0, KEY, "classes")
    assert sorted(ranks.tolist()) == [0, 1, 2, 3, 4, 5]


def test_far_items_change_nothing_in_pnf(tools):
    """A million items far below the k-th count are never chosen, and cost no rounds."""
    counts = np.zeros(1_000_000, np.int64)
    counts[:50] = 10**6 + np.arange(50)
    answer = pnf_peel(counts, tools.fingerprints_of(len(counts)), 50, 50.0, KEY)
    assert sorted(answer.tolist()) == list(range(50))
