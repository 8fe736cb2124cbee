"""The law of small series, enumerated, against what nights release and against the theorem.

One item, whose users hold nothing else: what each gives to it in every round follows from the definition alone, so Z is
a Gaussian walk with known drift, and the probability that the item goes out on a night is a normal integral in two
dimensions.
"""

import itertools

import numpy as np
import pytest
from scipy import stats

from dpbeam.series.schedule import Schedule
from tests.series.streams import keys_of, plan_of, released, run_nights
from tests.series.test_guarantee import CALM

DEVIATIONS = 5.2  # two-sided 2e-7, twelve comparisons
TWO = Schedule((1, 2), (0.4, 0.6), (0.3, 0.7))


def two_nights(saved=None, **more):
    settings = {"max_items_per_user": 1, "cap": 1.0 if saved is None else 2.0, "score": CALM, **more}
    return plan_of(2, 1.0, 0.05, preset=None, schedule=TWO, saved_norm=saved, **settings)


def gives(plan, comes, *, again=False):
    """What a user that comes on a night gives to its one item on each, by the rule as it is stated.

    Args:
      again: planted fault: the second night begins with all that the first one has spent.
    """
    bonus, fractions, cap = plan.config.saved_norm, plan.calibration.fractions, plan.calibration.caps[1]
    if bonus is None:
        return np.array([1.0 if comes == 1 else 0.0, 1.0])
    left, given = 1.0, np.zeros(2)
    for night in range(comes, 3):
        left = 1.0 if again else left
        rest = sum(fractions[night - 1 :])
        room = min(4.0, left / fractions[night - 1], left / rest * (1 + bonus / (1 + night - comes)))
        given[night - 1] = min(cap, np.sqrt(room))
        left = max(0.0, left - fractions[night - 1] * given[night - 1] ** 2)
    return given


def law(plan, first, second, *, spread=1.0, more=(0.0, 0.0), comes=None):
    """(never, night 1, night 2) for so many users that bring the item on the first and on the second night, and what
    one more adds who comes on a night.
    """
    c = plan.calibration
    sums = first * gives(plan, 1) + second * gives(plan, 2) + more
    mean = np.cumsum(c.a * c.fractions * sums)
    deviation = spread * c.sigma * np.sqrt(c.V)
    early, late = stats.norm.sf(c.thresholds, mean, deviation)
    if not first + second and comes is None:
        return np.array([1.0, 0.0, 0.0])
    if not first and comes != 1:  # nobody held it on the first night, so it was not tested
        return np.array([1 - late, 0.0, late])
    correlation = deviation[0] / deviation[1]
    below = (mean - c.thresholds) / deviation
    both = stats.multivariate_normal.cdf(below, cov=[[1, correlation], [correlation, 1]])
    return np.array([1 - early - late + both, early, late - both])


def seen(plan, first, second, copies):
    counts = [[(f"{c} u{u}", f"item {c}") for u in range(a, b) for c in range(copies)] for a, b in
              ((0, first), (first, first + second))]  # fmt: skip
    nights = np.array(list(released(run_nights(plan, counts, keys_of(7))).values()), np.int64)
    return np.array([copies - len(nights), (nights == 1).sum(), (nights == 2).sum()]) / copies


def far(one, other, copies):
    """Whether shares of so many copies differ from a law by more than chance does."""
    return np.abs(one - other) > DEVIATIONS * np.sqrt(other * (1 - other) / copies) + 1e-9


@pytest.mark.parametrize("saved", [None, 0.0, 2.5])
@pytest.mark.parametrize(("first", "second"), [(3, 2), (0, 5), (6, 0), (4, 4)])
def test_items_go_out_as_the_law_says(first, second, saved):
    plan, copies = two_nights(saved), 3000
    expected = law(plan, first, second)
    assert not far(seen(plan, first, second, copies), expected, copies).any()
    if first == 3:  # noise of another scale would be seen, and so would the rule without saving
        assert far(law(plan, first, second, spread=1.3), expected, copies).any()
        if saved is not None:
            one_each = np.array([1.0, 1.0])
            differs = one_each * (first, first + second) - first * gives(plan, 1) - second * gives(plan, 2)
            assert far(law(plan, first, second, more=differs, comes=1), expected, copies).any()


def worst_of_neighbours(plan, **fault):
    """The largest P(E) - exp(epsilon) Q(E): every outcome, every small number of others, v on either night."""
    worst, gain = 0.0, np.exp(plan.config.epsilon)
    for first, second in itertools.product(range(13), repeat=2):
        without = law(plan, first, second)
        for comes in (1, 2):
            with_v = law(plan, first, second, more=gives(plan, comes, **fault), comes=comes)
            for p, q in ((with_v, without), (without, with_v)):
                worst = max(worst, float(np.maximum(p - gain * q, 0).sum()))
    return worst


@pytest.mark.parametrize("saved", [None, 0.0, 1.0, 2.5])
def test_neighbouring_streams_keep_the_one_shot_guarantee(saved):
    """Within (epsilon, delta), and not far within."""
    plan = two_nights(saved)
    assert 0.5 * plan.config.delta < worst_of_neighbours(plan) <= plan.config.delta


def test_energy_that_comes_back_each_night_breaks_it():
    plan = two_nights(1.0, delta_share=0.95)
    assert worst_of_neighbours(plan) <= plan.config.delta < worst_of_neighbours(plan, again=True)
