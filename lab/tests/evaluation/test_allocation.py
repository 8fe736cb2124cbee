"""The full-knowledge allocation: between what exists and what nothing passes, on instances that can be searched."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dpbeam.kernels.csr import Csr
from dpbeam.selectors.gsu.calibration import calibrate_gsu
from dpbeam.selectors.gsu.presets import GSU_PRESETS
from dpbeam_lab.evaluation.allocation import ReleaseCurve, _Problem, allocate, gaussian_family, sampled
from dpbeam_lab.evaluation.indexed import index_pairs
from tests.support.datasets import entries
from tests.support.instances import csr


def gaussian_curve(rho: float, sigma: float) -> ReleaseCurve:
    return ReleaseCurve.tabulate(
        lambda w: norm.cdf((w - rho) / sigma), end=rho + 8.5 * sigma, step=sigma / 64
    )


@st.composite
def instances(draw):
    """Users' sets over at most 6 items, caps by degree, a curve."""
    items = draw(st.integers(1, 6))
    users = draw(st.lists(st.sets(st.integers(0, items - 1), min_size=1), min_size=1, max_size=8))
    caps = np.array([math.nan, *(draw(st.floats(0.1, 1)) for _ in range(items))])
    curve = gaussian_curve(draw(st.floats(0.2, 4)), draw(st.floats(0.1, 2)))
    return csr(users), items, caps, curve


def random_weights(rng: np.random.Generator, sets: Csr, caps: np.ndarray, num_items: int) -> np.ndarray:
    """Item weights of one admissible allocation."""
    aim = rng.random(num_items) ** rng.integers(0, 6)
    raw = aim[sets.links] * rng.random(len(sets.links)) ** rng.integers(0, 3) + 1e-12
    raw /= np.sqrt(sets.per_pair(sets.row_sums(raw * raw)))
    return np.bincount(sets.links, np.minimum(raw, sets.per_pair(caps[sets.degrees])), num_items)


class TestCurve:
    @given(st.floats(0.1, 20), st.floats(0.1, 5), st.integers(0, 2**32))
    @settings(max_examples=60, deadline=None)
    def test_majorant_is_concave_and_above(self, rho, sigma, seed):
        curve = gaussian_curve(rho, sigma)
        above = curve.majorant()
        assert (np.diff(above.chance, 2) <= 1e-12).all()
        weight = np.random.default_rng(seed).random(1000) * (rho + 10 * sigma)
        assert (above.at(weight) >= norm.cdf((weight - rho) / sigma) - 1e-12).all()

    def test_majorant_is_the_least(self):
        """Compared with the best chord above every point: max over a <= w <= b of the line through two points."""
        curve = ReleaseCurve.tabulate(lambda w: norm.cdf(w - 4), end=10, step=0.25)
        above = np.append(curve.chance[1:], curve.chance[-1])
        size = len(above)
        for point in range(size):
            chords = [
                above[a] + (above[b] - above[a]) * (point - a) / (b - a)
                for a in range(point + 1)
                for b in range(max(point, a + 1), size)
            ]
            assert curve.majorant().chance[point] == pytest.approx(max(chords), abs=1e-12)

    def test_slope_and_end(self):
        curve = ReleaseCurve(0.5, np.array([0.0, 0.25, 1.0]))
        assert curve.slope(np.array([0.0, 0.4, 0.5, 0.9, 1.0, 7.0])).tolist() == [0.5, 0.5, 1.5, 1.5, 0, 0]
        assert curve.at(np.array([0.25, 0.75, 9.0])).tolist() == [0.125, 0.625, 1.0]

    def test_smoothing_is_the_mean_under_normal_noise(self):
        smooth = gaussian_curve(10, 1).smoothed(2.0)
        weight = np.linspace(4, 16, 50)
        assert smooth.at(weight) == pytest.approx(norm.cdf((weight - 10) / math.hypot(1, 2)), abs=2e-3)


class TestBothSides:
    @given(instances(), st.integers(0, 2**32))
    @settings(max_examples=40, deadline=None)
    def test_nothing_passes_the_bound(self, instance, seed):
        sets, items, caps, curve = instance
        best = allocate(sets, items, curve, caps, steps=10)
        held = np.unique(sets.links)
        assert 0 <= best.at_least <= best.at_most <= len(held)
        rng = np.random.default_rng(seed)
        for _ in range(30):
            weight = random_weights(rng, sets, caps, items)
            assert curve.at(weight[held]).sum() <= best.at_most + 1e-9

    @given(instances(), st.integers(0, 2**32), st.integers(1, 4))
    @settings(max_examples=40, deadline=None)
    def test_value_and_gap_bound_the_concave_problem_after_any_number_of_steps(self, instance, seed, steps):
        sets, items, caps, curve = instance
        held = np.bincount(sets.links, minlength=items) > 0
        problem, concave = _Problem(sets, caps[sets.degrees], held), curve.majorant()
        bound = problem.bound(curve, steps)
        rng = np.random.default_rng(seed)
        for _ in range(30):
            assert problem.value(concave, random_weights(rng, sets, caps, items)) <= bound + 1e-9

    @given(instances(), st.integers(0, 2**32))
    @settings(max_examples=40, deadline=None)
    def test_aim_has_the_largest_inner_product(self, instance, seed):
        sets, items, caps, _ = instance
        rng = np.random.default_rng(seed)
        score = rng.random(items) * (rng.random(items) < 0.8)
        aimed = _Problem(sets, caps[sets.degrees], np.ones(items, bool)).aim(score)
        for _ in range(30):
            assert score @ random_weights(rng, sets, caps, items) <= score @ aimed * (1 + 1e-6) + 1e-9

    @pytest.mark.parametrize("users", [({0, 1}, {1, 2}, {0, 2}), ({0, 1}, {0, 1}, {0, 2})])
    @pytest.mark.parametrize("rho,sigma", [(1.5, 0.3), (1.0, 0.5), (2.4, 0.2)])
    @pytest.mark.parametrize("cap", [0.8, 1.0])
    def test_exhaustive_search(self, users, rho, sigma, cap):
        """Three users of two items each: all their directions on a grid."""
        sets, caps, curve = csr(users), np.array([math.nan, 1.0, cap, 0.6]), gaussian_curve(rho, sigma)
        angles = np.linspace(math.acos(cap), math.asin(cap), 61)
        pair = np.stack([np.cos(angles), np.sin(angles)])
        weights = [np.zeros((61, 61, 61)) for _ in range(3)]
        for items, choice in zip(users, np.ix_(range(61), range(61), range(61))):
            for item, given_to in zip(sorted(items), pair):
                weights[item] = weights[item] + given_to[choice]
        best, concave = (float(sum(map(c.at, weights)).max()) for c in (curve, curve.majorant()))
        result = allocate(sets, 3, curve, caps)
        assert 0.98 * best <= result.at_least <= best * 1.001
        assert result.at_most >= best
        problem = _Problem(sets, caps[sets.degrees], np.ones(3, bool))
        bounds = [problem.bound(curve, steps) for steps in (1, 2, 3, 60)]
        assert min(bounds) >= concave - 1e-9
        assert bounds[-1] <= concave * 1.005

    def test_items_with_the_same_holders_do_not_rise_together(self):
        """25 users of the same two items: one of them can be released, both cannot."""
        sets, caps, curve = csr([{0, 1}] * 25), np.ones(3), gaussian_curve(21, 3.8)
        angles = np.linspace(0, math.pi / 2, 91)
        best = max(float(curve.at(25 * np.array([math.cos(a), math.sin(a)])).sum()) for a in angles)
        together = 2 * norm.cdf((25 / math.sqrt(2) - 21) / 3.8)
        result = allocate(sets, 2, curve, caps)
        assert result.at_least > 0.98 * best > 1.5 * together
        assert result.at_most >= best

    def test_one_item_by_hand(self):
        """Users of one item give their cap: the chance is that of the sum of caps."""
        caps, curve = np.array([math.nan, 0.7]), gaussian_curve(20, 4)
        result = allocate(csr([{0}] * 30), 1, curve, caps)
        assert result.at_least == pytest.approx(norm.cdf((30 * 0.7 - 20) / 4), abs=1e-4)
        assert result.at_most >= result.at_least


class TestGaussianFamily:
    def test_calibration_is_that_of_one_round(self):
        preset = GSU_PRESETS["gsu16"]
        for users, max_items in ((22, 100), (26, 400)):
            once = calibrate_gsu(
                1.0, 1e-5, (1.0,), (1.0,), preset.delta_gauss_share, max_items, preset.c0, 0.0
            )
            result = gaussian_family(csr([{0}] * users), 1, 1.0, 1e-5, max_items=max_items)
            chance = norm.cdf((users * once.caps[1] - once.thresholds[0]) / once.sigma)
            assert result.at_least == pytest.approx(chance, abs=1e-4)
            assert result.at_most >= chance

    @pytest.mark.parametrize("epsilon,delta", [(0.05, 1e-12), (1.0, 1e-5), (10.0, 1e-3)])
    def test_budgets(self, epsilon, delta):
        rng = np.random.default_rng(1)
        sets = csr([{int(i) for i in rng.zipf(1.3, 8) % 200} for _ in range(300)])
        result = gaussian_family(sets, 200, epsilon, delta, max_items=5)
        assert 0 < result.at_least <= result.at_most <= 200

    def test_sample_keeps_at_most_d0_items(self):
        sets = csr([range(40), range(3), {7}])
        cut = sampled(sets, 5)
        assert cut.degrees.tolist() == [5, 3, 1]
        assert set(cut.links[:5]) < set(range(40)) and list(cut.links[5:]) == [0, 1, 2, 7]
        assert (sampled(sets, 5).links == cut.links).all()
        assert sampled(sets, 40) is sets

    def test_sample_is_uniform(self):
        """2,000 users of 10 items keep 2: each item 400 times, deviation 18; 6 deviations, 2e-8 false alarms."""
        cut = sampled(csr([range(10)] * 2000), 2)
        assert np.abs(np.bincount(cut.links) - 400).max() < 108

    def test_published_figure(self):
        """408 items on steam-200k at D0 400, by another program of the same idea."""
        indexed = index_pairs(entries("steam-200k"))
        result = gaussian_family(indexed.sets, indexed.num_items, 1.0, 1e-5, max_items=400)
        assert result.at_least == pytest.approx(408, rel=0.015)
        assert 550 < result.at_most < 650
