"""The canonical Lipschitz mechanism against enumeration of all subsets, whose losses come from the definition."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import chisquare

from dpbeam.errors import InputError
from dpbeam_lab.evaluation.canonical_lipschitz import draw_subset, largest_exponential, subset_classes
from dpbeam_lab.evaluation.data import HistogramData, Repetition
from dpbeam_lab.evaluation.registry import methods

COUNTS = [9, 7, 7, 4, 3, 0]


def users_to_add(counts, subset) -> int:
    """How many users, each with all of the subset, until it is a top-k."""
    for users in itertools.count():
        raised = [count + users * (item in subset) for item, count in enumerate(counts)]
        if min(raised[i] for i in subset) >= max(
            (raised[j] for j in range(len(counts)) if j not in subset), default=0
        ):
            return users
    raise AssertionError


def all_losses(counts, k) -> dict[tuple[int, ...], int]:
    return {s: users_to_add(counts, s) for s in itertools.combinations(range(len(counts)), k)}


def law(losses: dict, epsilon: float, exponential: bool) -> dict[tuple[int, ...], float]:
    """Chances of all subsets: by the weights of the exponential mechanism, or by integrals over the largest noise."""
    if not exponential:
        total = sum(math.exp(-epsilon * loss / 2) for loss in losses.values())
        return {s: math.exp(-epsilon * loss / 2) / total for s, loss in losses.items()}
    scale = 2 / epsilon

    def below(z: float, loss: int) -> float:
        return max(0.0, -math.expm1(-(z + loss) / scale))

    def wins(subset) -> float:
        own = losses[subset]
        others = [loss for s, loss in losses.items() if s != subset]

        def density(z: float) -> float:
            return math.exp(-(z + own) / scale) / scale * math.prod(below(z, loss) for loss in others)

        # Somebody has loss 0, so that the largest noise - loss is above 0.
        return quad(density, 0, 60 * scale, limit=400, epsabs=1e-11)[0]

    return {s: wins(s) for s in losses}


@pytest.mark.parametrize("k", [1, 2, 3, 5, 6])
def test_classes_are_all_subsets_with_their_losses(k):
    a, t, losses, logs = subset_classes(np.array(COUNTS), k)
    by_loss: dict[int, float] = {}
    for loss, log in zip(losses.tolist(), logs.tolist()):
        by_loss[loss] = by_loss.get(loss, 0) + math.exp(log)
    exact = all_losses(COUNTS, k)
    assert {loss: round(n) for loss, n in by_loss.items()} == {
        loss: sum(other == loss for other in exact.values()) for loss in set(exact.values())
    }
    assert len(a) == len(t) == 1 + k * (len(COUNTS) - k)


@pytest.mark.parametrize("exponential", [True, False])
@pytest.mark.parametrize(("k", "epsilon"), [(1, 0.5), (2, 0.7), (3, 1.5)])
def test_law_by_enumeration(k, epsilon, exponential):
    """False alarms: 1e-7 for each of six cases. Of noise 1.3 times as wide the same draws are refuted."""
    draws, rng = 5_000, np.random.default_rng(17)
    exact = law(all_losses(COUNTS, k), epsilon, exponential)
    assert sum(exact.values()) == pytest.approx(1, abs=1e-7)
    seen = dict.fromkeys(exact, 0)
    for _ in range(draws):
        seen[tuple(draw_subset(np.array(COUNTS), k, epsilon, rng, exponential).tolist())] += 1
    observed = np.array(list(seen.values()))

    def p_value(chances: dict) -> float:
        expected = draws * np.array(list(chances.values())) / sum(chances.values())
        many = expected >= 5
        pooled = [np.append(x[many], x[~many].sum()) for x in (observed, expected)]
        return chisquare(*(x[pooled[1] > 0] for x in pooled)).pvalue

    assert p_value(exact) > 1e-7
    assert p_value(law(all_losses(COUNTS, k), epsilon / 1.3, exponential)) < 1e-7


@given(
    st.lists(st.integers(0, 6), min_size=2, max_size=5),
    st.data(),
    st.sampled_from([0.3, 1.0, 2.5]),
)
def test_neighbours(counts, data, epsilon):
    """One user moves the loss by at most 1, and both laws, exactly, by a factor of at most e^epsilon."""
    k = data.draw(st.integers(1, len(counts)))
    user = data.draw(st.lists(st.integers(0, 1), min_size=len(counts), max_size=len(counts)))
    before = all_losses(counts, k)
    after = all_losses([count + held for count, held in zip(counts, user)], k)
    assert all(abs(before[s] - after[s]) <= 1 for s in before)
    for exponential in (True, False):
        p, q = law(before, epsilon, exponential), law(after, epsilon, exponential)
        assert all(abs(math.log(p[s] / q[s])) <= epsilon + 1e-6 for s in p)


def test_the_largest_of_many_exponentials():
    """Its quantiles: P(max <= x) = (1 - e^-x)^m; of m beyond doubles it is ln m and a Gumbel variate."""
    rng = np.random.default_rng(3)
    for m in (1, 2, 50):
        values = largest_exponential(np.full(40_000, math.log(m)), rng)
        for share in (0.1, 0.5, 0.9):
            x = -math.log(-math.expm1(math.log(share) / m))
            # Six standard deviations of a share of 40,000: a false alarm has a chance of 2e-9, nine times.
            assert abs(np.mean(values <= x) - share) < 6 * math.sqrt(share * (1 - share) / 40_000)
    huge = largest_exponential(np.full(40_000, 5_000.0), rng) - 5_000
    assert abs(np.mean(huge <= 0) - math.exp(-1)) < 6 * 0.5 / 200
    assert np.isfinite(huge).all()


def test_as_a_method():
    rng = np.random.default_rng(1)
    counts = rng.permutation(np.arange(0, 4_000, 40))
    data = HistogramData(pa.array([f"{i}".encode() for i in range(100)], pa.large_binary()), counts)
    method = methods()["top-k-subset"]
    for noise in ("exponential", "gumbel"):
        outcome = method.prepare(5.0, 0.0, {"k": 10, "noise": noise})(data, Repetition(1, 1))
        assert sorted(counts[outcome.items]) == sorted(counts)[-10:]
    assert len(method.prepare(1.0, 0.0, {"k": 500})(data, Repetition(1, 1)).items) == 100
    with pytest.raises(InputError, match="noise must be one of exponential, gumbel, got 'laplace'"):
        method.prepare(1.0, 0.0, {"k": 10, "noise": "laplace"})
    with pytest.raises(InputError, match="classes"):
        subset_classes(np.zeros(1_000_000, np.int64), 1_000)
