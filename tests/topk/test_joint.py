"""Joint and FastJoint: the whole distribution by enumeration, group sizes by counting, privacy."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.randomness import RunKey
from dpbeam.topk.fast_joint import (
    candidate_ranges,
    fast_joint,
    fast_joint_ranks,
    log_group_sizes,
    log_sequences,
    prefix_sizes,
    pruning_loss,
    segment_edges,
    segment_log_masses,
)
from dpbeam.topk.joint import MAX_ENTRIES, joint, joint_groups, joint_ranks
from dpbeam.topk.sums import running_sums

HISTOGRAMS = [
    ([5, 3, 3, 1, 0], 3),  # ties
    ([4, 4, 4, 4], 2),  # all equal
    ([0, 0, 0, 0], 3),  # nobody holds anything
    ([7, 2, 0, 0, 0, 0], 2),
    ([3, 3, 2, 2, 1], 2),
    ([9, 6, 1], 3),  # k = d
    ([6, 5, 5, 2, 0], 1),  # k = 1
    ([2], 1),
    ([30, 8, 7, 1, 0], 2),  # a gap
    ([2, 1, 1, 0, 0], 4),
]


def fast_ranks(descending, k, epsilon, tau, draws, width=6.0):
    ascending = np.sort(np.array(descending, np.int64))
    near = ascending[ascending > descending[k - 1] - tau]
    return fast_joint_ranks(near, len(descending), k, epsilon, tau, draws, width)


def assert_same(outcomes, wanted):
    assert set(outcomes) == {s for s in wanted if wanted[s] > 0}
    for outcome, probability in outcomes.items():
        assert probability == pytest.approx(wanted[outcome], rel=1e-9)


@pytest.mark.parametrize(("descending", "k"), HISTOGRAMS)
@pytest.mark.parametrize("epsilon", [0.7])
class TestWholeDistribution:
    """Every sequence has its probability exactly, by following every branch of the code."""

    def test_joint(self, tools, descending, k, epsilon):
        h = np.array(descending, np.int64)
        law = tools.enumerate_outcomes(lambda draws: joint_ranks(h, k, epsilon, draws))
        assert_same(law, tools.joint_distribution(descending, k, epsilon))

    def test_fast_joint_without_pruning_is_joint(self, tools, descending, k, epsilon):
        law = tools.enumerate_outcomes(lambda draws: fast_ranks(descending, k, epsilon, 1000, draws))
        assert_same(law, tools.joint_distribution(descending, k, epsilon))

    @pytest.mark.parametrize(("tau", "width"), [(1, 6.0), (3, 0.1), (3, 1.0)])
    def test_pruned(self, tools, descending, k, epsilon, tau, width):
        """Width 0.1 is the published algorithm, one loss per segment; the others reject."""
        law = tools.enumerate_outcomes(lambda draws: fast_ranks(descending, k, epsilon, tau, draws, width))
        assert_same(law, tools.joint_distribution(descending, k, epsilon, tau))


def test_the_comparison_has_power(tools):
    """A budget off by 2 % changes a probability by far more than the tolerance."""
    law = tools.enumerate_outcomes(lambda draws: fast_ranks([5, 3, 3, 1, 0], 3, 0.5 * 1.02, 4, draws))
    with pytest.raises(AssertionError):
        assert_same(law, tools.joint_distribution([5, 3, 3, 1, 0], 3, 0.5, 4))


small_histograms = st.lists(st.integers(0, 9), min_size=2, max_size=6).map(
    lambda counts: sorted(counts, reverse=True)
)


@settings(max_examples=60)
@given(small_histograms, st.data())
def test_group_sizes_against_counting(descending, data):
    """ln |S_{(a,b],i}|: loss in (a, b], i the first position of loss > a; (r-1, r] is published S_{r,i}."""
    d = len(descending)
    k = data.draw(st.integers(1, min(d, 4)))
    tau = data.draw(st.integers(1, 12))
    a = data.draw(st.integers(-1, tau - 1))
    b = tau if a == tau - 1 else data.draw(st.integers(a + 1, tau - 1))
    counted = np.zeros(k)
    for s in itertools.permutations(range(d), k):
        losses = [min(descending[j] - descending[x], tau) for j, x in enumerate(s)]
        if a < max(losses) <= b:
            counted[next(j for j, loss in enumerate(losses) if loss > a)] += 1
    ascending = np.array(descending[::-1], np.int64)
    near, tops = ascending[ascending > descending[k - 1] - tau], np.array(descending[:k], np.int64)
    low, high = prefix_sizes(near, d, tops, np.array([a, b]), tau)
    np.testing.assert_allclose(np.exp(log_group_sizes(low, high)), counted, rtol=1e-9)


@settings(max_examples=50)
@given(small_histograms, st.data())
def test_joint_groups_against_counting(descending, data):
    """Every sequence belongs to one pair (i, j): its largest difference, ties to the larger i."""
    d = len(descending)
    k = data.draw(st.integers(1, min(d, 4)))
    h = np.array(descending, np.int64)
    order, losses, logs = joint_groups(h, k)
    place = {(k - 1 - int(o) // d, int(o) % d): n for n, o in enumerate(order)}
    counted = np.zeros(k * d)
    for s in itertools.permutations(range(d), k):
        counted[max(place[i, x] for i, x in enumerate(s))] += 1
    np.testing.assert_allclose(np.exp(logs), counted, rtol=1e-9)
    for (i, j), n in place.items():
        assert losses[n] == h[i] - h[j]


def test_zero_loss_is_counted_from_the_strictly_larger_items():
    """C_{-1,j} counts h > h_(j): counts 5 5 3 have 2 sequences (of 2 items) without loss, not 0 or 4."""
    near, tops = np.array([3, 5, 5]), np.array([5, 5])
    low, high = prefix_sizes(near, 3, tops, np.array([-1, 0]), 100)
    assert low.tolist() == [0, 0] and high.tolist() == [2, 2]
    assert np.exp(log_group_sizes(low, high)).tolist() == pytest.approx([2, 0])


@settings(max_examples=60)
@given(st.integers(0, 50), st.integers(1, 60), st.integers(1, 9))
def test_segments_cover_every_loss_once(largest, tau, width):
    edges = segment_edges(largest, tau, width)
    assert edges[0] == -1 and edges[-1] == tau and edges[-2] == tau - 1
    steps = np.diff(edges)
    assert np.all(steps > 0)
    assert np.all(steps[: np.searchsorted(edges, min(largest, tau - 1))] <= width)


def exact_logs(descending, k, places):
    """ln of the number of sequences of some groups of `joint_groups`, each summed exactly from its own factors."""
    d = len(descending)
    differences = (descending[k - 1 :: -1][:k, None] - descending[None, :]).ravel()
    rows = k - 1 - np.argsort(differences, kind="stable") // d
    logs = []
    for place in places:
        factors = np.bincount(rows[: place + 1], minlength=k) - np.arange(k)
        others = np.delete(factors, rows[place])
        logs.append(math.fsum(map(math.log, others)) if (others > 0).all() else -math.inf)
    return np.array(logs)


@pytest.mark.parametrize(("k", "d", "bound"), [(100, 3000, 4e-13), (1000, 1500, 2.5e-12)])
def test_joint_weighs_groups_to_the_last_place(k, d, bound):
    """The figures of docs/explanation/topk.md; plain sums over k d terms are off by 1e-10 and 3e-9."""
    noise = np.random.default_rng(1).integers(0, 50, d)
    descending = np.sort((1e6 / np.arange(1, d + 1) ** 0.8).astype(np.int64) + noise)[::-1]
    logs = joint_groups(descending, k)[2]
    places = np.linspace(np.flatnonzero(np.isfinite(logs))[0] + 1, k * d - 1, 20).astype(int)
    expected = exact_logs(descending, k, places)
    finite = np.isfinite(expected)
    assert finite.sum() > 10 and (np.isfinite(logs[places]) == finite).all()
    assert np.abs(logs[places] - expected)[finite].max() < bound


@pytest.mark.parametrize(("k", "bound"), [(100, 4e-13), (1000, 4e-12), (100_000, 4e-10)])
def test_fast_joint_weighs_groups_to_the_last_place(k, bound):
    """Plain sums are off by 2e-11 at k = 1,000 and by 2e-8 at 100,000."""
    rng = np.random.default_rng(2)
    low = np.sort(rng.integers(k, 10**7, k))
    high, taken = low + rng.integers(1, 50, k), np.arange(k)
    logs = log_group_sizes(low[None], high[None])[0]
    before, after, own = (np.log(n).tolist() for n in (low - taken, high - taken, high - low))
    for i in (0, 1, k // 3, k - 2, k - 1):
        assert abs(logs[i] - math.fsum([*before[:i], own[i], *after[i + 1 :]])) < bound


@settings(max_examples=60)
@given(st.lists(st.floats(-1e6, 1e6) | st.just(-math.inf), max_size=40))
def test_running_sums(values):
    sums = running_sums(np.array([values, values], np.float64))
    expected = [
        math.fsum(values[: n + 1]) if math.isfinite(sum(values[: n + 1])) else -math.inf
        for n in range(len(values))
    ]
    assert sums.shape == (2, len(values)) and np.array_equal(sums[0], sums[1])
    largest = sum(abs(v) for v in values if math.isfinite(v))
    np.testing.assert_allclose(sums[0], expected, rtol=4e-16, atol=4e-16 * largest)


def test_masses_sum_to_all_sequences():
    """At epsilon -> 0 the masses of the segments count every sequence once, in chunks as well."""
    rng = np.random.default_rng(3)
    counts = np.sort(rng.integers(0, 5000, 3000))
    k, tau = 700, 4000
    near, tops = counts[counts > counts[-k] - tau], counts[: -k - 1 : -1]
    edges = segment_edges(int(tops[0] - near[0]), tau, 2)
    logs = segment_log_masses(near, len(counts), tops, edges, tau, 1e-300)
    assert len(edges) * k > 1 << 20  # more than one chunk
    assert np.logaddexp.reduce(logs) == pytest.approx(log_sequences(3000, k), rel=1e-12)


def test_pruning_loss():
    assert log_sequences(5, 2) == pytest.approx(math.log(20))
    assert pruning_loss(5, 2, 0.5, 2.0**-10) == math.ceil(4 * math.log(20 * 1024))
    assert pruning_loss(5, 2, 1e-300, 0.5) == 2**62
    for beta in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"beta must lie in \(0, 1\)"):
            pruning_loss(5, 2, 0.5, beta)


def test_pruning_keeps_its_failure_probability(tools):
    """Pr[loss >= tau] <= beta, exactly, where the pruned group is largest: one item far above many."""
    descending, k, epsilon, beta = [60, 0, 0, 0, 0, 0], 2, 1.0, 0.25
    tau = pruning_loss(6, k, epsilon, beta)
    assert tau < 60
    law = tools.enumerate_outcomes(lambda draws: fast_ranks(descending, k, epsilon, tau, draws))
    lost = sum(
        p for s, p in law.items() if max(descending[j] - descending[x] for j, x in enumerate(s)) >= tau
    )
    assert 0 < lost <= beta


def test_privacy_of_neighbours(tools):
    """Over random neighbours: no probability moves by more than exp(epsilon), and some by much."""
    rng, epsilon, worst = np.random.default_rng(5), 1.5, 0.0
    for _ in range(20):
        h = rng.integers(0, 6, 5)
        bigger = h + rng.integers(0, 2, 5)
        laws = []
        for counts in (h, bigger):
            order = np.argsort(-counts, kind="stable")
            ranks = tools.enumerate_outcomes(
                lambda draws, c=counts[order]: fast_ranks(c, 2, epsilon, 3, draws)
            )
            laws.append({tuple(order[list(s)]): p for s, p in ranks.items()})
        logs = [math.log(laws[0][s] / laws[1][s]) for s in laws[0]]
        assert max(logs) - min(logs) <= epsilon + 1e-9  # bounded range, hence epsilon^2/8-zCDP
        worst = max(worst, max(logs), -min(logs))
    assert worst <= epsilon + 1e-9
    assert worst > 0.6 * epsilon


@pytest.mark.parametrize("mechanism", [joint, fast_joint])
def test_samples_end_to_end(tools, mechanism):
    """1,200 keys, chi-square over 12 sequences, false alarm 1e-7; epsilon times 0.65 or 1.5 fails."""
    counts = np.array([2, 9, 0, 6])
    fp = tools.fingerprints_of(4)
    got = tools.count_outcomes(lambda key: mechanism(counts, fp, 2, 0.6, key), 1200)
    order = np.argsort(-counts)

    def p_value(epsilon):
        wanted = tools.joint_distribution(counts[order], 2, epsilon)
        return tools.chi_square_p(got, {tuple(order[list(s)]): p for s, p in wanted.items()})

    assert p_value(0.6) > 1e-7
    assert p_value(0.6 * 0.65) < 1e-7 and p_value(0.6 * 1.5) < 1e-7


def test_ranges_of_candidates():
    low, high = np.array([1, 2, 4]), np.array([3, 5, 6])
    first, end = candidate_ranges(low, high, 1)
    assert first.tolist() == [0, 2, 0] and end.tolist() == [1, 5, 6]


@pytest.mark.parametrize(("k", "epsilon"), [(1, 0.01), (1000, 1.0)])
def test_large_histograms(tools, epsilon, k):
    """200,000 items: distinct positions, and a loss below tau (beta 2^-10: no alarm for these fixed keys)."""
    d = 200_000
    counts = (3e6 / np.arange(1, d + 1) ** 0.9).astype(np.int64)
    positions = fast_joint(counts, tools.fingerprints_of(d), k, epsilon, RunKey.insecure_fixed("large"))
    assert len(np.unique(positions)) == k and positions.min() >= 0 and positions.max() < d
    loss = np.max(counts[:k] - counts[positions])  # counts are decreasing
    assert loss < pruning_loss(d, k, epsilon, 2.0**-10)


def test_huge_counts_and_tiny_epsilon(tools):
    counts = np.array([2**52, 2**52 - 1, 7, 0])
    fp = tools.fingerprints_of(4)
    key = RunKey.insecure_fixed("huge")
    assert sorted(fast_joint(counts, fp, 2, 1.0, key).tolist()) == [0, 1]
    assert len(set(fast_joint(counts, fp, 3, 1e-9, key).tolist())) == 3
    assert sorted(joint(counts, fp, 2, 1.0, key).tolist()) == [0, 1]


def test_joint_refuses_a_table_that_does_not_fit(tools):
    d = MAX_ENTRIES // 100 + 1
    with pytest.raises(ValueError, match="joint keeps a table of k x items entries: 100 x 1000001"):
        joint(np.zeros(d, np.int64), np.zeros((d, 2), np.uint64), 100, 1.0, RunKey.insecure_fixed("a"))


@pytest.mark.parametrize("mechanism", [joint, fast_joint])
@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_bad_epsilon(tools, mechanism, epsilon):
    with pytest.raises(ValueError, match="epsilon must be finite and positive"):
        mechanism(np.array([3, 1]), tools.fingerprints_of(2), 1, epsilon, RunKey.insecure_fixed("a"))
