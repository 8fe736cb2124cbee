"""The law of user peeling on small instances, exactly: sequences of choices, and what one user changes in them.

The real kernels run along every path of choices; the probability of a choice is its softmax. No sampling is
involved but in the first test, which holds the sampler against the enumerated law.
"""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpbeam.hitting.cover import Cover, next_item, peel
from dpbeam.hitting.program import noisy_choice
from dpbeam.randomness import RunKey
from tests.support.instances import csr

SETS = [{0, 1}, {0, 1}, {1, 2}, {0}, {3}, {3}, {2, 3, 4}, {0, 2, 4}]
ITEMS = 5
FP = np.random.default_rng(0).integers(0, 2**64, (ITEMS, 2), dtype=np.uint64)


def by_definition(sets, size, k, epsilon0):
    """{sequence: product of softmax of the users left that hold an item}, from Python sets."""
    law = {}
    for chosen in itertools.permutations(range(size), min(k, size)):
        probability = 1.0
        for j, item in enumerate(chosen):
            left = [held for held in sets if not held & set(chosen[:j])]
            logs = {x: epsilon0 * sum(x in held for held in left) for x in range(size) if x not in chosen[:j]}
            probability *= math.exp(logs[item]) / sum(map(math.exp, logs.values()))
        law[chosen] = probability
    return law


@pytest.mark.parametrize("k", [1, 3, 5, 7])
def test_the_kernels_follow_the_definition(k, tools):
    expected = by_definition(SETS, ITEMS, k, 0.7)
    law = tools.law(SETS, ITEMS, k, 0.7)
    assert law.keys() == expected.keys()
    assert all(law[s] == pytest.approx(p, rel=1e-12) for s, p in expected.items())
    assert sum(law.values()) == pytest.approx(1)


def test_the_draws_have_this_law(tools):
    """Chi-square over 700 keys, false alarm 1e-7; a range that is off by two thirds is seen."""
    observed = dict.fromkeys(tools.law(SETS, ITEMS, 2, 1.0), 0)
    for n in range(700):
        cover = Cover.restricted(csr(SETS), np.arange(ITEMS))
        choose = noisy_choice(1.0, FP, RunKey.insecure_fixed(f"law {n}"))
        observed[tuple(peel([cover], cover.counts(ITEMS), 2, choose))] += 1

    def p_value(range_of_choices):
        expected = tools.law(SETS, ITEMS, 2, range_of_choices)
        often = [s for s, p in expected.items() if p * 700 >= 10]
        got = [observed[s] for s in often]
        want = [expected[s] * 700 for s in often]
        return stats.chisquare([*got, 700 - sum(got)], [*want, 700 - sum(want)]).pvalue

    assert p_value(1.0) > 1e-7 and p_value(1 / 0.6) < 1e-7 and p_value(1 / 1.7) < 1e-7


def test_rounds_draw_afresh():
    """The noise of an item in one round tells nothing of its noise in the next."""
    same = 0
    for n in range(200):
        choose = noisy_choice(1e-6, FP, RunKey.insecure_fixed(f"fresh {n}"))
        same += choose(1, np.zeros(ITEMS, int), np.arange(ITEMS)) == choose(
            2, np.zeros(ITEMS, int), np.arange(ITEMS)
        )
    assert 8 < same < 80  # 40 in the mean, 5.7 and 7.1 deviations: 1e-8


# What one user changes, against the two claims of `dpbeam.accounting.first_hit`, written down again.

EPSILON0 = 0.6
EPSILONS = [-0.4, 0.0, 0.2, 0.5, 0.6, 0.8, 1.2, 2.0]
NEIGHBOURS = [
    ("holds everything", SETS[:3], {0, 1, 2, 3, 4}),
    ("holds one item that nobody holds", SETS[:3], {4}),
    ("holds the favourite", SETS, {0}),
    ("nobody else", [], {0, 1}),
]


def removed(epsilon):
    """V: of the law without the user against that with it."""
    if epsilon < -EPSILON0:
        return -math.expm1(epsilon)
    return (1 - math.exp(-EPSILON0)) * math.exp(-(epsilon + EPSILON0) / math.expm1(EPSILON0))


def added(epsilon):
    """U: of the law with the user against that without it."""
    return 1 - math.exp(epsilon) + math.exp(epsilon) * removed(-epsilon) if epsilon < EPSILON0 else 0.0


def excess(without, with_user, tools):
    """By how much the divergences of two laws exceed the claims, at most."""
    return max(
        max(
            tools.divergence(without, with_user, epsilon) - removed(epsilon),
            tools.divergence(with_user, without, epsilon) - added(epsilon),
        )
        for epsilon in EPSILONS
    )


@pytest.mark.parametrize("name, others, newcomer", NEIGHBOURS, ids=[case[0] for case in NEIGHBOURS])
def test_one_user_changes_no_more_than_is_claimed(name, others, newcomer, tools):
    without, with_user = (tools.law(sets, ITEMS, 3, EPSILON0) for sets in (others, [*others, newcomer]))
    assert excess(without, with_user, tools) <= 1e-12
    # Any number of choices gains from a user what one does.
    assert max(with_user[s] / without[s] for s in without) <= math.exp(EPSILON0) * (1 + 1e-12)


def whole_weight(covers, counts, k, choose):
    """Fault: a user counts on after it was hit; every item of its set moves by one in every round."""
    chosen = []
    while len(chosen) < min(k, len(counts)):
        chosen.append(next_item(choose, counts, chosen))
    return chosen


def stops_when_nobody_is_left(covers, counts, k, choose):
    """Fault: the number of items tells whether somebody is left."""
    chosen = []
    while len(chosen) < min(k, len(counts)) and counts.any():
        chosen.append(next_item(choose, counts, chosen))
        for cover in covers:
            cover.take(chosen[-1], counts)
    return chosen


@pytest.mark.parametrize("peeling", [whole_weight, stops_when_nobody_is_left])
def test_a_planted_fault_exceeds_the_claim(peeling, tools):
    laws = [tools.law(sets, ITEMS, 3, EPSILON0, peeling) for sets in ([{2}], [{2}, {0, 1}])]
    assert excess(*laws, tools) > 0.01


def test_replacing_a_user_is_outside_of_the_claim(tools):
    """One user more and one less: the range of a choice doubles."""
    laws = [tools.law([*SETS[:2], {item}], ITEMS, 1, EPSILON0) for item in (3, 4)]
    assert excess(*laws, tools) > 0.005
    ratios = [laws[1][s] / laws[0][s] for s in laws[0]]
    assert max(ratios) / min(ratios) == pytest.approx(math.exp(2 * EPSILON0), rel=1e-9)


def test_a_range_that_is_a_tenth_too_large_exceeds_the_claim(tools):
    """One choice of 60 items."""
    laws = [tools.law(sets, 60, 1, 1.1 * EPSILON0) for sets in ([], [{0}])]
    assert excess(*laws, tools) > 5e-4
