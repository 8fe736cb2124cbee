"""Limited domain: its distribution in closed form, its privacy by enumeration of neighbours, the edges."""

import itertools
import math

import numpy as np
import pytest

from dpbeam.randomness import RunKey
from dpbeam.topk.limited_domain import limited_domain, max_changed, stop_gap
from dpbeam.topk.mechanisms import LimitedDomain

KEY = RunKey.insecure_fixed("limited")
STOP = -1


def exact_distribution(counts, kbar, k, epsilon0, gap):
    """{outcome: probability}: peeling over the kbar first items and the stop mark; ties by index."""
    order = sorted((x for x in range(len(counts)) if counts[x] > 0), key=lambda x: (-counts[x], x))
    kbar = len(order) if kbar is None else kbar
    beyond = counts[order[kbar]] if kbar < len(order) else 0
    scores = {x: counts[x] for x in order[:kbar]} | {STOP: beyond + gap}
    law = {}

    def go(outcome, probability):
        if len(outcome) == k:
            law[outcome] = law.get(outcome, 0.0) + probability
            return
        left = {x: math.exp(epsilon0 * (s - beyond - gap)) for x, s in scores.items() if x not in outcome}
        total = sum(left.values())
        for x, weight in left.items():
            if x == STOP:
                law[outcome] = law.get(outcome, 0.0) + probability * weight / total
            else:
                go((*outcome, x), probability * weight / total)

    go((), 1.0)
    return law


def hockey_stick(p, q, epsilon):
    """The smallest delta with P <= exp(epsilon) Q + delta."""
    return sum(max(0.0, p[o] - math.exp(epsilon) * q.get(o, 0.0)) for o in p)


@pytest.mark.parametrize("kbar", [3, None])
def test_samples_follow_the_closed_form(tools, kbar):
    """3,000 keys, false alarm 1e-7; a gap shorter by 1 or noise times 0.8, 1.25 fails."""
    counts, fp = np.array([9, 6, 3, 2, 0]), np.zeros((5, 2), np.uint64)
    fp[:, 0] = np.arange(5)
    got = tools.count_outcomes(lambda key: limited_domain(counts, fp, 2, 0.5, 3.0, key, kbar), 3000)

    def p_value(epsilon0, gap):
        return tools.chi_square_p(got, exact_distribution(counts, kbar, 2, epsilon0, gap))

    assert p_value(0.5, 3.0) > 1e-7
    assert p_value(0.5, 2.0) < 1e-7
    assert p_value(0.5 / 0.8, 3.0) < 1e-7 and p_value(0.5 / 1.25, 3.0) < 1e-7


@pytest.mark.parametrize("failure", [0.3, 0.01])
def test_a_whole_answer_at_the_distance_needed(failure):
    """By the closed form of all answers; at the mark itself the answer is often short."""
    mechanism = LimitedDomain(3, 0.5, 1e-3, 4, None)

    def whole(distance):
        counts = [20 + distance, 20 + distance, 20 + distance, 20, 20]
        law = exact_distribution(counts, 4, 3, mechanism.epsilon0, mechanism.gap)
        return sum(chance for answer, chance in law.items() if len(answer) == 3 and STOP not in answer)

    assert whole(mechanism.distance(failure)) > 1 - failure
    assert whole(mechanism.gap) < 0.5 < whole(mechanism.distance(0.5))


def worst_delta(kbar, d0, gap, k, epsilon0, items=4, largest=3):
    """Largest hockey-stick at k epsilon0 over all small histograms and all users of at most d0 items."""
    users = [u for u in itertools.product((0, 1), repeat=items) if 0 < sum(u) <= (d0 or items)]
    distributions, worst = {}, 0.0
    for h in itertools.product(range(largest + 2), repeat=items):
        distributions[h] = exact_distribution(h, kbar, k, epsilon0, gap)
    for h in itertools.product(range(largest + 1), repeat=items):
        for user in users:
            more = tuple(a + b for a, b in zip(h, user))
            p, q = distributions[h], distributions[more]
            worst = max(worst, hockey_stick(p, q, k * epsilon0), hockey_stick(q, p, k * epsilon0))
    return worst


@pytest.mark.parametrize(("kbar", "d0"), [(1, None), (2, None), (2, 1), (3, 2), (None, 2), (None, 1)])
def test_every_small_neighbour_stays_within_delta(kbar, d0):
    """k rounds charged as k epsilon0 (delta' = 0): what is left is the stop mark, at most delta_stop."""
    k, epsilon0, delta = min(2, kbar or 2), 0.8, 0.02
    gap = stop_gap(epsilon0, delta, max_changed(kbar, d0))
    assert 0 < worst_delta(kbar, d0, gap, k, epsilon0, items=4, largest=2) <= delta


def test_the_neighbour_test_has_power():
    """Without the 1 of the gap, or with ln(1/delta) for ln(t/delta), the guarantee breaks."""
    k, epsilon0, delta = 2, 0.8, 0.02
    gap = stop_gap(epsilon0, delta, 2)
    assert worst_delta(None, 2, gap - 1, k, epsilon0, largest=1) > delta
    assert worst_delta(None, 4, stop_gap(epsilon0, delta, 1), k, epsilon0, largest=1) > delta


def test_gap():
    assert stop_gap(0.5, 1e-5, 100) == pytest.approx(1 + math.log(1e7) / 0.5)
    assert stop_gap(0.5, 1e-5, 100) >= 1 + math.log(1e7) / 0.5
    assert max_changed(10, None) == 10 and max_changed(None, 7) == 7 and max_changed(10, 7) == 7
    with pytest.raises(ValueError, match="needs kbar or max_items_per_user"):
        max_changed(None, None)


def test_ties_at_the_border_go_by_fingerprint_and_not_by_place(tools):
    """Which of equal counts belong to the kbar must not depend on the input order."""
    rng, n = np.random.default_rng(0), 200
    counts, fp = rng.integers(50, 55, n), tools.fingerprints_of(n)
    order = rng.permutation(n)
    returned = 0
    for i in range(10):
        key = RunKey.insecure_fixed(f"ties {i}")
        straight = limited_domain(counts, fp, 5, 1.0, 0.1, key, 20)
        shuffled = limited_domain(counts[order], fp[order], 5, 1.0, 0.1, key, 20)
        np.testing.assert_array_equal(straight, order[shuffled])
        returned += len(straight)
    assert returned > 10


@pytest.mark.parametrize("counts", [[], [0, 0], [1], [1, 1, 1]])
@pytest.mark.parametrize("kbar", [5, None])
def test_small_domains_give_short_answers(tools, counts, kbar):
    """Fewer than k or kbar items: no index error, nothing that nobody holds, nothing near the mark."""
    answer = limited_domain(
        np.array(counts, np.int64), tools.fingerprints_of(len(counts)), 5, 2.0, 40.0, KEY, kbar
    )
    assert answer.tolist() == [] and answer.dtype == np.int64


def test_items_that_nobody_holds_are_never_returned(tools):
    counts = np.array([0, 900, 0, 800])
    for i in range(50):
        key = RunKey.insecure_fixed(f"zero {i}")
        assert limited_domain(counts, tools.fingerprints_of(4), 4, 0.001, 1.0, key, None).tolist() in (
            [], [1], [3], [1, 3], [3, 1],
        )  # fmt: skip


def test_clear_winners_are_found_in_order(tools):
    counts = np.array([500, 1000, 2, 750, 1])
    assert limited_domain(counts, tools.fingerprints_of(5), 3, 1.0, 20.0, KEY, 3).tolist() == [1, 3, 0]
    assert limited_domain(counts, tools.fingerprints_of(5), 2, 1.0, 20.0, KEY, 3).tolist() == [1, 3]
    assert limited_domain(counts, tools.fingerprints_of(5), 3, 1.0, 600.0, KEY, 3).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kbar": 2}, "kbar must be at least k, got kbar = 2 and k = 3"),
        ({"epsilon0": 0.0}, "epsilon0 must be finite and positive"),
        ({"gap": math.inf}, "gap must be finite and positive"),
        ({"k": 0}, "k must be an integer of at least 1"),
    ],
)
def test_refused(tools, arguments, message):
    settings = {"k": 3, "epsilon0": 1.0, "gap": 5.0, "key": KEY, "kbar": 3} | arguments
    with pytest.raises(ValueError, match=message):
        limited_domain(np.array([4, 3, 2, 1]), tools.fingerprints_of(4), **settings)
