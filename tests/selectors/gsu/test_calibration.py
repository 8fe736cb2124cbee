"""Calibration of GSU against its definition in high precision and by simulation."""

import dataclasses
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from dpbeam.accounting.accountant import account
from dpbeam.accounting.events import ComposedEvent, InconsistentEventError
from dpbeam.accounting.gaussian import compose_sigmas, gaussian_delta, gaussian_sigma
from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.threshold import item_allowance
from dpbeam.selectors.gsu.calibration import calibrate_gsu, split_delta
from dpbeam.selectors.gsu.presets import GSU_PRESETS, geometric_fractions, spending


def preset_arguments(name, **changes):
    preset = GSU_PRESETS[name]
    values = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "fractions": preset.fractions,
        "spending": preset.spending,
        "delta_gauss_share": preset.delta_gauss_share,
        "max_items": preset.max_items,
        "c0": preset.c0,
        "eta": preset.eta,
    }
    return {**values, **changes}


def calibrate_preset(name, **changes):
    return calibrate_gsu(**preset_arguments(name, **changes))


class Definition:
    """The walk of one item from the definition alone (fractions, eta, sigma), in 50 digits."""

    def __init__(self, calibration, eta):
        with mp.workdps(50):
            f = [mp.mpf(value) for value in calibration.fractions]
            mids = [sum(f[:r], mp.mpf(0)) + f[r] / 2 for r in range(len(f))]
            raw = [mp.exp(mp.mpf(eta) * mid) for mid in mids]
            norm = mp.sqrt(sum(a * a * share for a, share in zip(raw, f)))
            self.a = [a / norm for a in raw]
            self.G = [sum(a * s for a, s in zip(self.a[: k + 1], f)) for k in range(len(f))]
            self.V = [sum(a * a * s for a, s in zip(self.a[: k + 1], f)) for k in range(len(f))]
            self.sigma = mp.mpf(calibration.sigma)
            self.thresholds = calibration.thresholds

    def crossing(self, weight):
        """Union bound over the checkpoints at this drift."""
        with mp.workdps(50):
            return sum(
                mp.erfc((mp.mpf(rho) - weight * G) / (self.sigma * mp.sqrt(2 * V))) / 2
                for rho, G, V in zip(self.thresholds, self.G, self.V)
                if math.isfinite(rho)
            )


def allowance(delta_threshold, degree):
    with mp.workdps(50):
        return -mp.expm1(mp.log1p(-mp.mpf(delta_threshold)) / degree)


CASES = {
    **{name: (name, {}) for name in GSU_PRESETS},
    "tiny delta": ("gsu16", {"epsilon": 10.0, "delta": 1e-15, "max_items": 500, "c0": 0.5}),
    "small epsilon": ("gsu8", {"epsilon": 0.05, "delta": 1e-9, "c0": 0.01}),
    "D0 100": ("gsu8", {"max_items": 100, "c0": 0.5}),
    "one item": ("gsu4", {"max_items": 1, "c0": 1.0}),
    "large delta": ("gsu4", {"delta": 0.5, "delta_gauss_share": 0.1, "max_items": 40}),
    "one round": ("gsu2", {"fractions": (1.0,), "spending": (1.0,)}),
    "last test only": ("gsu4", {"spending": (0.0, 0.0, 0.0, 1.0)}),
    "falling": ("gsu4", {"eta": -3.0, "fractions": (0.7, 0.1, 0.1, 0.1)}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_degree_stays_within_its_allowance(case):
    name, changes = CASES[case]
    given = preset_arguments(name, **changes)
    got = calibrate_gsu(**given)
    walk = Definition(got, given["eta"])
    for degree in {1, *range(7, got.max_items, 14), got.max_items}:
        cap = mp.mpf(got.caps[degree])
        allowed = allowance(got.delta_threshold, degree)
        assert 0 < cap <= 1
        assert walk.crossing(cap) <= allowed
        if cap < 1 and degree % 7 == 0:  # and no larger weight would do
            assert walk.crossing(cap * (1 + mp.mpf(10) ** -6)) > allowed * (1 - mp.mpf(10) ** -8)
    assert got.caps[got.max_items] == pytest.approx(got.c0, rel=1e-7)
    assert math.isnan(got.caps[0])
    assert np.all(np.diff(got.caps[1:]) <= 0)


@pytest.mark.parametrize("case", CASES)
def test_coefficients_follow_the_definition(case):
    name, changes = CASES[case]
    given = preset_arguments(name, **changes)
    got = calibrate_gsu(**given)
    walk = Definition(got, given["eta"])
    for values, exact in ((got.a, walk.a), (got.G, walk.G), (got.V, walk.V)):
        assert values == pytest.approx([float(x) for x in exact], rel=1e-13)
    assert got.V[-1] == 1.0
    assert sum(map(Fraction, got.fractions.tolist())) <= 1


@pytest.mark.parametrize("case", CASES)
def test_gaussian_part(case):
    name, changes = CASES[case]
    given = preset_arguments(name, **changes)
    got, epsilon = calibrate_gsu(**given), given["epsilon"]
    gauss, threshold = split_delta(given["delta"], given["delta_gauss_share"])
    assert threshold == got.delta_threshold and Fraction(gauss) + Fraction(threshold) <= Fraction(
        given["delta"]
    )
    assert got.sigma == gaussian_sigma(epsilon, gauss)
    assert compose_sigmas(got.round_sigmas.tolist()) >= got.sigma
    assert gaussian_delta(epsilon, compose_sigmas(got.round_sigmas.tolist())) <= gauss
    assert got.round_sigmas == pytest.approx(got.sigma / np.sqrt(got.fractions), rel=1e-12)


def test_fractions_that_exceed_one_by_less_than_a_float_are_taken_back():
    f = (0.01, 0.06, 0.93)
    assert math.fsum(f) == 1.0 and sum(map(Fraction, f)) > 1  # the case occurs
    got = calibrate_preset("gsu4", fractions=f, spending=spending(3, 0.9))
    assert sum(map(Fraction, got.fractions.tolist())) <= 1
    assert got.fractions == pytest.approx(f, rel=1e-15)


def test_checkpoint_without_a_share_tests_nothing():
    got = calibrate_preset("gsu4", spending=(0.0, 0.0, 0.0, 1.0))
    assert np.all(np.isinf(got.thresholds[:3])) and math.isfinite(got.thresholds[3])
    assert got.event().parts[-1].thresholds[:3] == (None, None, None)
    assert account(got.event(), 1.0).delta <= 1e-5


def test_one_round_is_the_one_shot_threshold():
    """R = 1: rho = c0 + sigma z_D0, nothing lost but the slack of 1e-9."""
    got = calibrate_preset("gsu2", fractions=(1.0,), spending=(1.0,))
    want = got.c0 + got.sigma * stats.norm.isf(item_allowance(got.delta_threshold, got.max_items))
    assert want <= got.thresholds[0] <= want + 1e-8


def simulate(got, degree, weight, runs, rng, scale=None):
    """How many of `runs` users with `degree` novel items at this drift see one of them released."""
    crossed = np.zeros((runs, degree), dtype=bool)
    z = np.zeros((runs, degree))
    sigmas = got.round_sigmas if scale is None else scale
    for r in range(len(got.fractions)):
        z += got.a[r] * got.fractions[r] * (weight + sigmas[r] * rng.standard_normal((runs, degree)))
        crossed |= z >= got.thresholds[r]
    return np.count_nonzero(crossed.any(axis=1))


@pytest.mark.parametrize("name", ["gsu2", "gsu16"])
def test_novel_items_cross_within_their_allowance(name):
    """40,000 users with novel items only, delta_threshold 0.05, full drift cap(d), degrees 3 and 12.

    False alarm below 1e-7 per assertion (exact binomial). Power: the weight of a smaller degree, noise
    of sigma sqrt(f) for sigma/sqrt(f), and thresholds from a delta that is too large are all seen.
    """
    runs, delta_t, rng = 40_000, 0.05, np.random.default_rng(int(name[3:]))
    got = calibrate_preset(name, epsilon=4.0, delta=0.1, delta_gauss_share=0.5, max_items=12, c0=0.3)
    assert got.delta_threshold == pytest.approx(delta_t)
    high = stats.binom.isf(1e-7, runs, delta_t)
    for degree in (3, 12):
        count = simulate(got, degree, got.caps[degree], runs, rng)
        assert 0.7 * delta_t * runs < count <= high
    assert simulate(got, 12, got.caps[3], runs, rng) > high  # the cap of a smaller, "current" degree
    assert simulate(got, 12, got.caps[12], runs, rng, got.round_sigmas * 1.05) > high
    loose = calibrate_preset(name, epsilon=4.0, delta=0.2, delta_gauss_share=0.5, max_items=12, c0=0.3)
    got = dataclasses.replace(got, thresholds=loose.thresholds * got.sigma / loose.sigma)
    assert simulate(got, 12, got.caps[12], runs, rng) > high


def test_ends_of_the_range():
    wide = calibrate_preset("gsu16", epsilon=10.0, delta=1e-15, max_items=5000, c0=0.2)
    walk = Definition(wide, GSU_PRESETS["gsu16"].eta)
    for degree in (1, 2, 10, 100, 1000, 4999, 5000):
        assert walk.crossing(mp.mpf(wide.caps[degree])) <= allowance(wide.delta_threshold, degree)
    many = calibrate_gsu(0.05, 1e-15, (1 / 64,) * 64, spending(64, 0.5), 0.7, 50, 0.3, 1.0)
    walk = Definition(many, 1.0)
    for degree in (1, 10, 50):
        assert walk.crossing(mp.mpf(many.caps[degree])) <= allowance(many.delta_threshold, degree)


@pytest.mark.parametrize("name", sorted(GSU_PRESETS))
def test_ledger_accepts_the_calibration_and_refuses_a_lower_threshold(name):
    got = calibrate_preset(name)
    ledger = Ledger(method="gsu", epsilon=1.0, delta=1e-5, accounting="gaussian", events=got.event())
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert ledger.verify().delta == pytest.approx(1e-5, rel=1e-9)
    *noises, tests = got.event().parts
    lower = dataclasses.replace(tests, thresholds=tuple(rho - 1e-3 for rho in tests.thresholds))
    with pytest.raises(InconsistentEventError):
        account(ComposedEvent("gaussian", (*noises, lower)), 1.0)


def test_presets_of_the_specification():
    assert [GSU_PRESETS[name].rounds for name in ("gsu2", "gsu4", "gsu8", "gsu16")] == [2, 4, 8, 16]
    assert [GSU_PRESETS[name].fractions[0] for name in ("gsu2", "gsu4", "gsu8", "gsu16")] == pytest.approx(
        [0.25, 0.10, 0.04, 0.03], rel=1e-12
    )
    assert [GSU_PRESETS[name].c0 for name in ("gsu2", "gsu4", "gsu8", "gsu16")] == [0.15, 0.18, 0.26, 0.23]
    assert [GSU_PRESETS[name].max_items for name in ("gsu2", "gsu4", "gsu8", "gsu16")] == [300, 300, 300, 400]
    assert GSU_PRESETS["gsu8"].spending == pytest.approx((0.29 / 7,) * 7 + (0.71,))


@pytest.mark.parametrize(
    ("rounds", "first"), [(2, 0.25), (4, 0.1), (16, 0.03), (64, 1e-4), (4, 0.5), (64, 0.5)]
)
def test_geometric_fractions(rounds, first):
    f = geometric_fractions(rounds, first)
    ratios = np.divide(f[1:], f[:-1])
    assert f[0] == pytest.approx(first, rel=1e-12)
    assert math.fsum(f) == pytest.approx(1.0, rel=1e-14)
    assert ratios == pytest.approx(ratios[0], rel=1e-9)
    assert geometric_fractions(1, 0.3) == (1.0,)


def test_spending():
    assert spending(4, 0.7) == pytest.approx((0.1, 0.1, 0.1, 0.7))
    assert spending(1, 0.7) == (1.0,)
    assert spending(3, 1.0) == (0.0, 0.0, 1.0)


def test_arrays_are_float64_and_read_only():
    got = calibrate_preset("gsu8")
    for name in ("round_sigmas", "fractions", "a", "G", "V", "thresholds", "caps"):
        array = getattr(got, name)
        assert array.dtype == np.float64
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


def test_calibration_is_deterministic():
    first, second = calibrate_preset("gsu16"), calibrate_preset("gsu16")
    assert first.thresholds.tobytes() == second.thresholds.tobytes()
    assert first.caps.tobytes() == second.caps.tobytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": 0.9, "delta_gauss_share": 0.1}, r"delta_threshold must lie in \(0, 1/2\)"),
        ({"delta_gauss_share": 1.0}, "delta_gauss_share must lie strictly"),
        ({"delta_gauss_share": 0.0}, "delta_gauss_share must lie strictly"),
        ({"fractions": (0.3, 0.3)}, "fractions must sum to 1"),
        ({"fractions": (1.2, -0.2)}, "fractions must be finite and positive"),
        ({"fractions": ()}, "rounds must be an integer from 1 to 64"),
        ({"fractions": (1 / 65,) * 65}, "rounds must be an integer from 1 to 64"),
        ({"spending": (1.0,)}, "spending must have one share per round, got 1 for 2 rounds"),
        ({"spending": (0.5, 0.6)}, "spending shares must not be negative and must sum to 1"),
        ({"spending": (1.5, -0.5)}, "spending shares must not be negative and must sum to 1"),
        ({"spending": (math.nan, 1.0)}, "spending shares must not be negative and must sum to 1"),
        ({"spending": (1.0, 0.0)}, "spending must leave a share for the last round"),
        ({"fractions": (1.0,), "spending": (0.9,)}, "spending shares must not be negative and must sum to 1"),
        ({"c0": 0.0}, "c0 must be finite and positive"),
        ({"c0": 1.01}, r"c0 must lie in \(0, 1\]"),
        ({"eta": math.nan}, "eta must lie in"),
        ({"max_items": 0}, "max_items must be an integer from 1"),
        ({"max_items": 2.5}, "max_items must be an integer from 1"),
        ({"epsilon": 0.0}, "epsilon must be finite and positive"),
        ({"delta": 1.0}, "delta must lie strictly"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        calibrate_preset("gsu2", **changes)


def test_bad_helpers():
    with pytest.raises(ValueError, match="rounds must be an integer"):
        spending(0, 0.5)
    with pytest.raises(ValueError, match="fin must lie in"):
        spending(4, 0.0)
    with pytest.raises(ValueError, match="first must lie strictly"):
        geometric_fractions(4, 1.0)
