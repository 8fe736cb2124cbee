"""The law of small series, enumerated, against what nights release and against the theorem.

One item, whose users hold nothing else: each gives it exactly 1 in every round, so Z is a Gaussian walk with known
drift, and the probability that the item goes out on a night is a normal integral in two dimensions.
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


def two_nights():
    return plan_of(2, 1.0, 0.05, preset=None, schedule=TWO, max_items_per_user=1, cap=1.0, score=CALM)


def law(calibration, first, second, *, spread=1.0):
    """(never, night 1, night 2) for so many users that bring the item on the first and on the second night."""
    c = calibration
    step = c.a * c.fractions
    mean = np.array([step[0] * first, step[0] * first + step[1] * (first + second)])
    deviation = spread * c.sigma * np.sqrt(c.V)
    early, late = stats.norm.sf(c.thresholds, mean, deviation)
    if not first + second:
        return np.array([1.0, 0.0, 0.0])
    if not first:  # nobody held it on the first night, so it was not tested
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


@pytest.mark.parametrize(("first", "second"), [(3, 2), (0, 5), (6, 0), (4, 4)])
def test_items_go_out_as_the_law_says(first, second):
    plan, copies = two_nights(), 3000
    expected, counted = law(plan.calibration, first, second), seen(plan, first, second, copies)
    assert np.all(
        np.abs(counted - expected) <= DEVIATIONS * np.sqrt(expected * (1 - expected) / copies) + 1e-9
    )
    wrong = law(plan.calibration, first, second, spread=1.3)
    if first == 3:  # noise of another scale would be seen
        assert np.any(np.abs(wrong - expected) > DEVIATIONS * np.sqrt(expected * (1 - expected) / copies))


def test_neighbouring_streams_keep_the_one_shot_guarantee():
    """Every outcome, every small number of others, v on either night: within (epsilon, delta), and not far within."""
    plan, worst = two_nights(), 0.0
    gain = np.exp(plan.config.epsilon)
    for first, second in itertools.product(range(13), repeat=2):
        without = law(plan.calibration, first, second)
        for with_v in (law(plan.calibration, first + 1, second), law(plan.calibration, first, second + 1)):
            for p, q in ((with_v, without), (without, with_v)):
                worst = max(worst, float(np.maximum(p - gain * q, 0).sum()))
    assert 0.5 * plan.config.delta < worst <= plan.config.delta
