"""Exact noisy maxima: every comparison as in real arithmetic, and the laws of the choices."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbeam.randomness import exponential, gumbel
from dpbeam.randomness.discrete import choices, gumbel_peel, largest_of_groups
from dpbeam.randomness.discrete.choices import GUMBEL_SPREAD, _errors
from tests.support.exact import ChosenBits, item_bits
from tests.support.statistics import FALSE_ALARM

LAST = 2**128 - 1


def number(bits, item: int, words: int = 3) -> mpmath.mpf:
    """u of an item from its first words, at the middle of the interval that is left."""
    digits = 0
    for use in range(words):
        (high, low), *_ = bits(use, np.array([item])).tolist()
        digits = digits << 128 | high << 64 | low
    return (digits + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** (128 * words)


def gumbel_key(bits, item: int, score, epsilon: float) -> mpmath.mpf:
    score = Fraction(score)
    lead = mpmath.mpf(epsilon) * score.numerator / score.denominator
    return lead - mpmath.log(-mpmath.log(number(bits, item)))


def slow_peel(counts, epsilon, bits, k, stop=None) -> list[int]:
    """The definition with 150 digits."""
    with mpmath.workdps(150):
        scores = [*counts.tolist(), *([] if stop is None else [stop])]
        keys = [gumbel_key(bits, i, score, epsilon) for i, score in enumerate(scores)]
        order = sorted(range(len(keys)), key=lambda i: -keys[i])
    if stop is not None and len(counts) in order[: k + 1]:
        return order[: order.index(len(counts))]
    return order[:k]


@pytest.mark.parametrize("epsilon", [1e-9, 0.01, 0.3, 1.7, 40.0])
@pytest.mark.parametrize("stop", [None, Fraction(190), 203.25])
def test_peeling_is_the_order_of_the_exact_keys(epsilon, stop):
    rng = np.random.default_rng(3)
    counts = np.sort(rng.integers(0, 220, 60))
    bits = item_bits(61)
    for k in (1, 5, 60):
        order = gumbel_peel(counts, epsilon, bits, k, stop)
        assert order.dtype == np.int64
        assert order.tolist() == slow_peel(counts, epsilon, bits, k, stop)


def rival(word: int, gap: int, epsilon: float) -> int:
    """The word whose Gumbel variate is that of `word` plus gap times epsilon, to the last of 128 digits."""
    with mpmath.workdps(100):
        u = (word + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 128
        return int(
            mpmath.floor(mpmath.power(u, mpmath.exp(-mpmath.mpf(epsilon) * gap)) * mpmath.mpf(2) ** 128)
        )


@pytest.mark.parametrize("epsilon", [0.125, 0.7])
@pytest.mark.parametrize("gap", [1, 7])
@pytest.mark.parametrize("step", [-1, 0, 1])
def test_keys_closer_than_any_float_are_ordered_right(epsilon, gap, step):
    """Item 0 leads by `gap` counts, item 1 by as much noise but for `step` 2^-128: then the second word decides."""
    rng = np.random.default_rng([gap, step + 1])
    orders, wrong = set(), 0
    for _ in range(12):
        word = int.from_bytes(rng.bytes(16), "little")
        bits = ChosenBits(3, {0: {0: word, 1: rival(word, gap, epsilon) + step, 2: 1}})
        counts = np.array([50 + gap, 50, 0])
        chosen = gumbel_peel(counts, epsilon, bits, 2).tolist()
        assert (1, [0]) in bits.asked or step  # a tie within one step asks for more digits
        assert chosen == slow_peel(counts, epsilon, bits, 2)
        orders.add(tuple(chosen))
        keys = epsilon * counts + gumbel(bits(0, np.arange(3)))
        wrong += chosen != np.argsort(-keys, kind="stable")[:2].tolist()
    assert orders == {(0, 1), (1, 0)} if step == 0 else len(orders) == 1
    assert wrong or step == -1  # floats alone have some of these orders wrong


def test_equal_counts_and_equal_words_read_on():
    """Items that share two words are ordered by the third; items equal in all words by their place."""
    same = {use: {0: 5 << 100, 1: 5 << 100} for use in range(2)}
    for third in ({0: 7, 1: 8}, {0: 8, 1: 7}):
        bits = ChosenBits(2, {**same, 2: third})
        assert gumbel_peel(np.array([4, 4]), 0.5, bits, 2).tolist() == ([1, 0] if third[1] == 8 else [0, 1])
    constant = ChosenBits(3, {use: dict.fromkeys(range(3), 99) for use in range(8)})
    assert gumbel_peel(np.array([4, 4, 4]), 0.5, constant, 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("word", [0, 1, 2**64 - 1, 2**64, LAST - 2**64, LAST - 1, LAST])
def test_words_at_both_ends(word):
    """The outermost intervals count as 2^-128 and 1 - 2^-128; the order is that of the definition."""
    others = [0, 1, 3, 2**63, 2**64, 2**127, LAST - 2**64, LAST - 3, LAST - 1, LAST]
    for other in others:
        if other == word:
            continue
        bits = ChosenBits(2, {0: {0: word, 1: other}})
        chosen = gumbel_peel(np.array([3, 3]), 1.0, bits, 2).tolist()
        assert chosen == ([0, 1] if word > other else [1, 0])


extreme_words = st.one_of(
    st.integers(0, LAST),
    st.integers(0, 127).map(lambda e: 1 << e),
    st.integers(0, 127).map(lambda e: LAST - (1 << e)),
    st.sampled_from([0, LAST]),
)


@given(extreme_words, st.integers(-(2**50), 2**50), st.floats(1e-9, 50), st.integers(1, 10**9))
@settings(max_examples=100)
def test_floats_stay_within_their_error(word, lead, epsilon, members):
    """Gumbel keys and keys of groups, against 120 digits at both ends of the interval of u."""
    bits = np.array([[word >> 64, word & (2**64 - 1)]], np.uint64)
    leads = np.array([epsilon * float(lead)])
    largest = -np.log(-np.expm1(-exponential(bits) / members))
    with mpmath.workdps(120):
        for steps in (max(word, 1), min(word + 1, LAST)):
            u = mpmath.mpf(steps) / mpmath.mpf(2) ** 128
            exact = mpmath.mpf(epsilon) * lead
            for noise, true in (
                (gumbel(bits), -mpmath.log(-mpmath.log(u))),
                (largest, -mpmath.log(1 - mpmath.exp(mpmath.log(u) / members))),
            ):
                error = abs(mpmath.mpf(float((leads + noise)[0])) - exact - true)
                assert error <= _errors(bits, leads, noise)[0]
                assert abs(true) < GUMBEL_SPREAD + math.log(members)


@pytest.mark.parametrize("epsilon", [1e-6, 0.02, 0.5, 3.0])
@pytest.mark.parametrize("kind", ["all equal", "few values", "power law", "one far"])
def test_the_sieve_leaves_every_choice_as_it_is(monkeypatch, epsilon, kind):
    """With and without: bit by bit, for several k, a stop mark, and words at both ends."""
    rng, n = np.random.default_rng(7), 3000
    counts = {
        "all equal": np.full(n, 11),
        "few values": rng.integers(0, 4, n),
        "power law": (4000 / np.arange(1, n + 1) ** 0.9).astype(np.int64),
        "one far": np.where(np.arange(n) == 5, 40, rng.integers(0, 30, n)),
    }[kind]
    ends = dict(
        zip(range(0, n, 300), [0, 1, LAST, LAST - 1, 1 << 64, LAST - (1 << 64), 1 << 127, 3, LAST - 5, 0])
    )
    looked_at = []
    monkeypatch.setattr(
        choices, "_errors", lambda words, *more: looked_at.append(len(words)) or _errors(words, *more)
    )
    for bits in (item_bits(n + 1), ChosenBits(n + 1, {0: ends})):
        for k in (1, 7, 100, n // 8):
            for stop in (None, Fraction(int(counts.max())) + 1):
                orders = []
                for start in (0, 10**9):
                    monkeypatch.setattr(choices, "_SIEVE_FROM", start)
                    orders.append(gumbel_peel(counts, epsilon, bits, k, stop).tolist())
                assert orders[0] == orders[1]
    if kind == "power law" and epsilon == 0.02:  # and it does leave out most
        monkeypatch.setattr(choices, "_SIEVE_FROM", 0)
        gumbel_peel(counts, epsilon, item_bits(n), 5)
        assert looked_at[-1] < 100


@given(
    st.integers(0, 2**32 - 1),
    st.floats(-8, 1).map(lambda x: 10.0**x),
    st.integers(1, 12),
    st.integers(1, 200),
)
@settings(max_examples=20, deadline=None, derandomize=True)
def test_the_sieve_on_random_histograms(seed, epsilon, k, spread):
    counts = np.random.default_rng(seed).integers(0, spread, 160)
    bits = item_bits(160, seed=str(seed))
    kept = choices._contenders(counts, np.arange(160), epsilon, bits, k)
    assert set(slow_peel(counts, epsilon, bits, k)) <= set(kept.tolist())


@pytest.mark.parametrize("epsilon", [1e-3, 0.7])
@pytest.mark.parametrize("word", [1 << 100, 1 << 127, LAST - (1 << 90), LAST - (1 << 70)])
def test_the_sieve_keeps_who_wins_by_a_hair(epsilon, word):
    """Item 10 is one count behind the best of the largest and wins by the last digits; all others have none."""
    words = dict.fromkeys(range(20), 1) | {0: word, 10: rival(word, 1, epsilon) + 2}
    counts = np.where(np.arange(20) < 4, 51, 50)
    bits = ChosenBits(20, {0: words})
    assert 10 in choices._contenders(counts, np.arange(20), epsilon, bits, 1)
    assert gumbel_peel(counts, epsilon, bits, 1).tolist() == [10]
    low = ChosenBits(
        20, {0: dict.fromkeys(range(4), 0) | {10: 2}}
    )  # hardly any noise is as small as the floor's
    assert len(choices._contenders(np.full(20, 9), np.arange(20), epsilon, low, 1)) == 20


def test_the_spread_bounds_the_noise():
    """No item more than 94 / epsilon0 behind the k-th is looked at, and none of those could win."""
    ends = gumbel(np.array([[0, 0], [2**64 - 1, 2**64 - 1]], np.uint64))
    assert ends[1] - ends[0] < GUMBEL_SPREAD + 0.8
    with mpmath.workdps(60):
        low, high = (-mpmath.log(-mpmath.log(u)) for u in (mpmath.mpf(2) ** -128, 1 - mpmath.mpf(2) ** -128))
        assert high - low < GUMBEL_SPREAD
    bits = ChosenBits(3, {0: {0: 0, 1: 0, 2: LAST}})
    assert gumbel_peel(np.array([200, 150, 107]), 1.0, bits, 2).tolist() == [2, 0]
    far = ChosenBits(3, {0: {0: 0, 1: 0, 2: LAST}})
    assert gumbel_peel(np.array([200, 150, 40]), 1.0, far, 2).tolist() == [0, 1]
    assert 2 not in {i for _, rows in far.asked for i in rows}


def test_an_answer_does_not_depend_on_the_order_of_items():
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 40, 3000)
    bits = item_bits(3000)
    chosen = gumbel_peel(counts, 0.2, bits, 50)
    order = rng.permutation(3000)
    again = gumbel_peel(counts[order], 0.2, lambda use, rows: bits(use, order[rows]), 50)
    assert (order[again] == chosen).all()


def ordered_pairs(counts, epsilon) -> dict[tuple[int, int], float]:
    """Law of two rounds of the exponential mechanism without replacement."""
    weight = np.exp(epsilon * (np.array(counts) - max(counts)))
    law = {}
    for i, j in itertools.permutations(range(len(counts)), 2):
        law[i, j] = weight[i] / weight.sum() * weight[j] / (weight.sum() - weight[i])
    return law


def law_p(outcomes: list, law: dict) -> float:
    counts = [outcomes.count(outcome) for outcome in law]
    return float(stats.chisquare(counts, np.array(list(law.values())) * len(outcomes)).pvalue)


def test_two_rounds_have_the_law_of_the_exponential_mechanism():
    """12 outcomes on 8,000 runs; false alarm below 1e-9. Epsilon x 0.7 and x 1.3 fail."""
    counts, epsilon, runs = np.array([5, 4, 4, 1]), 0.9, 8000
    bits = item_bits(4 * runs)
    pairs = []
    for r in range(runs):
        chosen = gumbel_peel(counts, epsilon, lambda use, rows, r=r: bits(use, 4 * r + np.asarray(rows)), 2)
        pairs.append(tuple(chosen.tolist()))
    assert law_p(pairs, ordered_pairs(counts, epsilon)) > FALSE_ALARM
    for scale in (0.7, 1.3):
        assert law_p(pairs, ordered_pairs(counts, scale * epsilon)) < FALSE_ALARM


def permute_and_flip(counts, epsilon) -> np.ndarray:
    """The law of permute-and-flip by enumeration of all orders."""
    accept = np.exp(epsilon * (np.array(counts) - max(counts)))
    law = np.zeros(len(counts))
    orders = list(itertools.permutations(range(len(counts))))
    for order in orders:
        left = 1.0
        for i in order:
            law[i] += left * accept[i] / len(orders)
            left *= 1 - accept[i]
    return law


def test_a_round_by_groups_has_the_law_of_permute_and_flip():
    """Groups {9}, {7, 7, 7}, {6, 6}, and an empty one; false alarm below 1e-9. Epsilon x 0.7 and x 1.3 fail."""
    values, members, epsilon, runs = np.array([9, 8, 7, 6]), np.array([1, 0, 3, 2]), 0.6, 10_000
    bits = item_bits(4 * runs)
    winners = [
        largest_of_groups(values, members, epsilon, bits, np.arange(4 * r, 4 * r + 4)) for r in range(runs)
    ]
    assert 1 not in winners

    def p_value(scale: float) -> float:
        each = permute_and_flip([9, 7, 7, 7, 6, 6], scale * epsilon)
        return law_p(winners, {0: each[0], 2: each[1:4].sum(), 3: each[4:].sum()})

    assert p_value(1) > FALSE_ALARM
    assert p_value(0.7) < FALSE_ALARM
    assert p_value(1.3) < FALSE_ALARM


@pytest.mark.parametrize("step", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize(("members", "gap"), [(1, 2), (3, 4), (1000, 28)])
def test_groups_closer_than_any_float_are_decided_right(step, members, gap):
    """Group 1 is built to tie with group 0 up to `step` 2^-128; 150 digits decide."""
    rng = np.random.default_rng([members, step + 2])
    asked = 0
    for _ in range(10):
        word = int.from_bytes(rng.bytes(16), "little") | 1 << 127
        with mpmath.workdps(150):
            u = (word + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 128
            lead = -mpmath.log(1 - u) + mpmath.mpf(0.25) * gap
            other = mpmath.power(1 - mpmath.exp(-lead), members)
            twin = int(mpmath.floor(other * mpmath.mpf(2) ** 128)) + step
            bits = ChosenBits(2, {0: {0: word, 1: twin}})
            keys = [
                mpmath.mpf(0.25) * gap - mpmath.log(1 - number(bits, 0)),
                -mpmath.log(1 - mpmath.power(number(bits, 1), mpmath.mpf(1) / members)),
            ]
            bits.asked.clear()
        winner = largest_of_groups(np.array([1 + gap, 1]), np.array([1, members]), 0.25, bits, np.arange(2))
        assert winner == int(keys[1] > keys[0])
        asked += (1, [0]) in bits.asked
    assert asked == 10 or step


def test_arguments_out_of_range_are_refused():
    bits, counts = item_bits(4), np.array([1, 2, 3])
    for k in (0, 4):
        with pytest.raises(ValueError, match="k must lie between 1 and the number of items, 3, got"):
            gumbel_peel(counts, 1.0, bits, k)
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="epsilon0 must be finite and positive, got"):
            gumbel_peel(counts, epsilon, bits, 1)
        with pytest.raises(ValueError, match="epsilon must be finite and positive, got"):
            largest_of_groups(counts, np.ones(3, np.int64), epsilon, bits, np.arange(3))
    with pytest.raises(ValueError, match="every group is empty"):
        largest_of_groups(counts, np.zeros(3, np.int64), 1.0, bits, np.arange(3))
