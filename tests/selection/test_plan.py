"""Plans: noise and thresholds against an independent recomputation, ledgers, budgets, golden numbers."""

import copy
import functools
import math
from dataclasses import replace
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from scipy import optimize, special, stats

from dpbeam.accounting.accountant import OverspentError
from dpbeam.accounting.events import GaussianEvent, ThresholdEvent
from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.noise import NOISE_KINDS, NoiseMismatchError, NoiseSpec, NotStatedError, StatedNoise
from dpbeam.engine.planned import LARGEST_DRAW, check_plan
from dpbeam.engine.program import Keys, Program
from dpbeam.errors import InputError
from dpbeam.kernels.grid import UNITS
from dpbeam.randomness import LAWS, RunKey
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selectors.gsu.program import GsuProgram
from dpbeam.selectors.mad.program import Mad2rProgram, MadProgram
from dpbeam.selectors.multi_round import POOL
from dpbeam.selectors.registry import selectors
from dpbeam.selectors.uniform.program import UniformProgram
from dpbeam.selectors.vote.program import VoteProgram
from tests.support.running import recast

BUDGETS = [(1.0, 1e-5), (0.1, 1e-10), (4.0, 1e-3), (0.5, 1e-15)]


def plan(epsilon=1.0, delta=1e-5, **options) -> SelectionPlan:
    return make_plan(SelectionConfig(epsilon, delta, **options))


def balle_wang(epsilon: float, delta: float) -> float:
    """Root of Phi(1/(2s) - eps s) - exp(eps) Phi(-1/(2s) - eps s) = delta, by the textbook form in logarithms."""

    def excess(sigma: float) -> float:
        first = special.log_ndtr(0.5 / sigma - epsilon * sigma)
        second = epsilon + special.log_ndtr(-0.5 / sigma - epsilon * sigma)
        return first + math.log(-math.expm1(second - first)) - math.log(delta)

    high = 0.1
    while excess(high) > 0:
        high *= 2
    return optimize.brentq(excess, high / 4, high, xtol=1e-14, rtol=1e-13)


def threshold(sigma: float, delta: float, max_items: int, b: float = 1.0) -> float:
    values = [
        b / math.sqrt(t) + sigma * stats.norm.isf(-math.expm1(math.log1p(-delta) / t))
        for t in range(1, max_items + 1)
    ]
    return max(values)


def expected_rounds(config: SelectionConfig) -> list[tuple[float, float]]:
    """(sigma, rho) of every round, written from the definitions of the two accountings."""
    settings = config.settings.set_values()
    shares = settings.get("budget_split", (1.0,))
    factors = (1.0, settings["max_bias"]) if "max_bias" in settings else (1.0,) * len(shares)
    rounds = []
    for share, b in zip(shares, factors):
        if settings.get("accounting") == "basic":
            sigma, delta = (
                balle_wang(config.epsilon * share, config.delta * share / 2),
                config.delta * share / 2,
            )
        else:
            sigma = balle_wang(config.epsilon, config.delta / 2) / math.sqrt(share)
            delta = config.delta / 2 * share
        rounds.append((sigma, threshold(sigma, delta, config.max_items_per_user, b)))
    return rounds


WEIGHTED = [
    {"method": "basic"},
    {"method": "basic", "max_items_per_user": 1},
    {"method": "mad"},
    {"method": "dp-sips"},
    {"method": "dp-sips", "accounting": "basic", "budget_split": (0.05, 0.15, 0.8)},
    {"method": "dp-sips", "preset": "published"},
    {"method": "mad2r"},
    {"method": "mad2r", "preset": "published"},
    {"method": "mad2r", "max_bias": 8.0, "max_items_per_user": 60},
]


@pytest.mark.parametrize("options", WEIGHTED)
def test_noise_and_thresholds_equal_an_independent_recomputation(options):
    """Rounded in the safe direction: never below the recomputed value but for the oracle's own error."""
    for epsilon, delta in BUDGETS:
        made = plan(epsilon, delta, **options)
        expected = expected_rounds(made.config)
        assert len(made.rounds) == len(expected)
        for number, (row, (sigma, rho)) in enumerate(zip(made.rounds, expected), start=1):
            assert row.number == number
            assert sigma * (1 - 1e-11) <= row.sigma <= sigma * (1 + 1e-9)
            assert rho * (1 - 1e-11) <= row.threshold <= rho * (1 + 1e-9)
            assert (row.statistic_sigma, row.weight_factor) == (row.sigma, 1.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.5, 1e-7), (4.0, 1e-3)])
def test_sigma_agrees_with_dp_accounting(epsilon, delta):
    one = plan(epsilon, delta, method="basic").rounds[0].sigma
    assert one == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, delta / 2), rel=1e-6)
    for method in ("dp-sips", "mad2r"):
        sigmas = [r.sigma for r in plan(epsilon, delta, method=method).rounds]
        composed = sum(Fraction(s) ** -2 for s in sigmas)
        assert composed <= Fraction(one) ** -2
        assert float(composed) == pytest.approx(one**-2, rel=1e-12)
        assert dp_accounting.get_epsilon_gaussian(float(composed) ** -0.5, delta / 2) <= epsilon * (1 + 1e-6)
    sigmas = [r.sigma for r in plan(epsilon, delta, method="gsu").rounds]
    composed = float(sum(Fraction(s) ** -2 for s in sigmas)) ** -0.5
    assert composed == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, 0.7 * delta), rel=1e-6)


@pytest.mark.parametrize(
    "options", [*WEIGHTED, {"method": "gsu"}, {"method": "gsu", "gsu_fractions": (1.0,)}]
)
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_events_verify_and_never_exceed_the_budget(options, epsilon, delta):
    made = plan(epsilon, delta, **options)

    def ledger(epsilon, delta):
        return Ledger("select", epsilon, delta, made.accounting, made.event)

    spent = ledger(epsilon, delta).verify()
    assert epsilon * 0.99 < spent.epsilon <= epsilon * (1 + 1e-12)
    assert delta * 0.99 < spent.delta <= delta * (1 + 1e-12)
    with pytest.raises(OverspentError):
        ledger(epsilon, delta * 0.98).verify()
    with pytest.raises(OverspentError):
        ledger(epsilon * 0.98, delta).verify()
    assert ledger(epsilon, delta).to_json() == ledger(epsilon, delta).to_json()


def test_parts_of_a_basic_split_never_add_up_to_more_than_the_whole():
    for options in ({"method": "mad2r", "accounting": "basic"}, {"method": "dp-sips", "accounting": "basic"}):
        for epsilon, delta in BUDGETS:
            made = plan(epsilon, delta, **options)
            parts = made.event.parts
            assert sum(Fraction(p.epsilon) for p in parts) <= Fraction(epsilon)
            deltas = [Fraction(r.delta_threshold) for r in made.rounds]
            assert 2 * sum(deltas) <= Fraction(delta)


def test_thresholds_use_the_share_of_their_round():
    """Not delta, not delta / 2: a share of a tenth moves the threshold by more than the tolerance above."""
    made = plan(method="mad2r")
    for row, share in zip(made.rounds, (0.3, 0.7)):
        assert row.delta_threshold == pytest.approx(share * 5e-6, rel=1e-12)
        assert row.threshold > 1.01 * threshold(row.sigma, 1e-5, 100)


def test_events_record_what_the_program_does():
    for options in WEIGHTED:
        made = plan(**options)
        flat = [leaf for e in made.event.parts for leaf in getattr(e, "parts", (e,))]
        gaussians = [e for e in flat if isinstance(e, GaussianEvent)]
        thresholds = [e for e in flat if isinstance(e, ThresholdEvent)]
        assert [e.sigma for e in gaussians] == [r.sigma for r in made.rounds]
        assert [e.threshold for e in thresholds] == [r.threshold for r in made.rounds]
        assert {e.max_items for e in thresholds} == {made.config.max_items_per_user}


@pytest.mark.parametrize("method", ["dp-sips", "mad2r"])
def test_gaussian_accounting_needs_less_noise_than_basic(method):
    gaussian, basic = (
        plan(method=method, accounting=a, budget_split=(0.1, 0.9)) for a in ("gaussian", "basic")
    )
    for better, worse in zip(gaussian.rounds[:1], basic.rounds[:1]):
        assert better.sigma < 0.4 * worse.sigma
        assert better.threshold < 0.4 * worse.threshold


def test_group_sequential_numbers_follow_the_definition():
    made = plan(method="gsu", rounds=4)
    program, c = made.program, made.config.settings
    f = np.array(program.fractions)
    middle = np.cumsum(f) - f / 2
    a = np.exp(c.gsu_growth * middle)
    a /= math.sqrt((a * a * f).sum())
    assert program.coefficients == pytest.approx(a.tolist(), rel=1e-12)
    assert program.drifts == pytest.approx(np.cumsum(a * f).tolist(), rel=1e-12)
    assert program.variances == pytest.approx(np.cumsum(a * a * f).tolist(), rel=1e-12)
    sigma = balle_wang(1.0, 0.7e-5)
    assert program.sigma == pytest.approx(sigma, rel=1e-9)
    assert program.round_sigmas == pytest.approx((sigma / np.sqrt(f)).tolist(), rel=1e-9)
    # Thresholds: crossing probability of a novel item at drift c0 is its allowance at D0, caps likewise at d.
    deviations = program.sigma * np.sqrt(program.variances)

    def crossing(cap):
        drift = cap * np.array(program.drifts)
        return stats.norm.sf((np.array(program.thresholds) - drift) / deviations).sum()

    for d in (1, 2, 10, 100, 300):
        allowance = -math.expm1(math.log1p(-0.3e-5) / d)
        cap = float(program.caps[d])
        assert crossing(cap) <= allowance
        assert cap == 1.0 or crossing(cap) > allowance * (1 - 1e-6)
    assert program.caps[300] == pytest.approx(c.gsu_cap, rel=1e-6)
    assert program.caps[301:].size == 0
    for row, k in zip(made.rounds, range(4)):
        assert (row.sigma, row.threshold) == (program.round_sigmas[k], program.thresholds[k])
        assert row.statistic_sigma == pytest.approx(deviations[k], rel=1e-12)
        assert row.weight_factor == program.drifts[k]
        assert row.delta_threshold is None


def test_programs_carry_the_numbers_of_their_plan():
    sips = plan(method="dp-sips").program
    assert isinstance(sips, UniformProgram)
    assert (sips.trips, sips.cap, sips.max_items, sips.resample) == (3, POOL, 100, True)
    assert plan(method="dp-sips", resample=False).program.cap == 100
    basic = plan(method="basic", max_items_per_user=7).program
    assert (basic.trips, basic.cap, basic.resample) == (1, 7, False)
    mad = plan(method="mad", adaptive_excess=1.5)
    assert isinstance(mad.program, MadProgram)
    row = mad.rounds[0]
    tau = row.threshold + 1.5 * row.sigma
    assert mad.program.round.tables.tau_units == math.ceil(tau * 2**30)
    both = plan(method="mad2r")
    assert isinstance(both.program, Mad2rProgram)
    assert (both.program.first.tables.min_degree, both.program.second.tables.min_degree) == (1, 4)
    for part, row in zip((both.program.first, both.program.second), both.rounds):
        assert (part.sigma, part.threshold) == (row.sigma, row.threshold)
        assert part.tables.tau_units == math.ceil((row.threshold + 2 * row.sigma) * 2**30)
    gsu = plan(method="gsu", gsu_score=False).program
    assert isinstance(gsu, GsuProgram)
    assert (gsu.score, gsu.cap, gsu.trips) == (None, 300, 8)


def recalibrated(made: SelectionPlan, program) -> SelectionPlan:
    """The plan anew, with another program in its calibration."""
    return SelectionPlan(made.config, replace(made.calibration, program=program))


def with_cap(program, degree: int, factor: float):
    """A gsu whose users of `degree` items may put a little more on one."""
    program = copy.copy(program)
    program.caps = program.caps.copy()
    program.caps[degree] *= factor
    return program


class Votes(VoteProgram):
    """Does not say that one count moves by one."""

    def touches(self, trip):
        return Program.touches(self, trip)


class TestTouches:
    """What a program lets a user give is held against what its events count."""

    def test_a_threshold_for_one_item_and_a_program_of_a_hundred(self):
        """P(novel item released) would be 33 times too large; nothing else differs but D0."""
        one, hundred = (plan(method="basic", max_items_per_user=n) for n in (1, 100))
        program = copy.copy(hundred.program)
        program.thresholds = one.program.thresholds
        with pytest.raises(
            NoiseMismatchError,
            match=r"^in round 1 the program lets a user add up to 1 to each of 100 items, which an event of type "
            r"ThresholdEvent does not count$",
        ):
            recalibrated(one, program)
        fewer = copy.copy(plan(method="basic", max_items_per_user=99).program)
        fewer.thresholds = hundred.program.thresholds
        recalibrated(hundred, fewer)  # safe

    @pytest.mark.parametrize("method", [m for m in selectors() if m not in ("laplace", "vote")])
    def test_no_method_takes_more_items_than_it_is_calibrated_for(self, method):
        few, many = (plan(method=method, max_items_per_user=n) for n in (5, 10))
        stated = copy.copy(few.program)
        stated.touches = many.program.touches
        with pytest.raises(NoiseMismatchError, match=r"which an event of type \w+ does not count"):
            recalibrated(few, stated)

    def test_coins_hold_for_the_weights_of_every_number_of_items(self):
        made = plan(method="bits", max_items_per_user=200, budget_split=(1.0,))
        (event,) = made.event.parts
        assert len(event.moves) > 2
        program = copy.copy(made.program)
        program.moves = (tuple((n, event.curve.grid) for n, _ in event.moves),)
        with pytest.raises(NoiseMismatchError, match=f"add up to 1 to each of {event.moves[1][0]} items"):
            recalibrated(made, program)

    @pytest.mark.parametrize("degree", [1, 2, 37, 150, 299, 300])
    def test_the_caps_of_every_degree_are_held_against_the_event(self, degree):
        made = plan(method="gsu")
        recalibrated(made, with_cap(made.program, degree, 0.9))
        event = "Cumulative" if made.program.caps[degree] < 1 else "Gaussian"  # more than 1 is nobody's
        with pytest.raises(
            NoiseMismatchError, match=f"to each of {degree} items, which an event of type {event}"
        ):
            recalibrated(made, with_cap(made.program, degree, 1.001))

    def test_what_a_program_does_not_say_is_all_that_it_keeps(self):
        """Count noise holds for one count of one item."""
        made = plan(method="vote")
        program = recast(made.program, Votes)
        with pytest.raises(
            NoiseMismatchError, match="to each of 100 items, which an event of type CountEvent"
        ):
            recalibrated(made, program)

    def test_an_event_that_does_not_say_it_is_refused(self, monkeypatch):
        made = plan(method="basic")
        monkeypatch.setattr(GaussianEvent, "noisy_rounds", (1,))
        monkeypatch.setattr(NoiseSpec, "admits", StatedNoise.admits)
        with pytest.raises(NotStatedError, match="'gaussian' does not say for how many items of a user"):
            recalibrated(made, made.program)


def _with_threshold(program: Program, at: int, factor: float):
    """The program with one of its thresholds multiplied."""
    program = copy.copy(program)
    thresholds = list(program.thresholds)
    thresholds[at] *= factor
    program.thresholds = tuple(thresholds)
    return program


class TestTests:
    """What a program compares with thresholds, and the thresholds, are held against the events that pay for them."""

    @pytest.mark.parametrize("method", ["basic", "dp-sips", "laplace", "gsu"])
    def test_a_lower_threshold_of_one_round_is_refused(self, method):
        made = plan(method=method)
        for changed in [at for at, rho in enumerate(made.program.thresholds) if rho < math.inf]:
            lower, higher = (_with_threshold(made.program, changed, factor) for factor in (1 - 1e-12, 1.01))
            with pytest.raises(NoiseMismatchError, match=f"^in round {changed + 1} the events state Release"):
                recalibrated(made, lower)
            recalibrated(made, higher)  # safe

    @pytest.mark.parametrize("method", ["mad", "mad2r"])
    def test_a_lower_threshold_of_mad_is_refused(self, method):
        made = plan(method=method)
        names = ["round"] if method == "mad" else ["first", "second"]
        for name in names:
            program = copy.copy(made.program)
            part = getattr(program, name)
            setattr(program, name, replace(part, threshold=part.threshold * (1 - 1e-12)))
            with pytest.raises(NoiseMismatchError, match="the program tests ReleaseTest"):
                recalibrated(made, program)

    def test_another_coefficient_is_refused(self):
        made = plan(method="gsu")
        program = copy.copy(made.program)
        program.coefficients = (made.program.coefficients[0] * 1.001, *made.program.coefficients[1:])
        with pytest.raises(NoiseMismatchError, match=r"^in round 1 the events state"):
            recalibrated(made, program)

    def test_a_test_where_none_is_paid_for_is_refused(self):
        made = plan(method="gsu", gsu_final_spending=1.0)
        assert made.program.thresholds[0] == math.inf
        program = copy.copy(made.program)
        program.thresholds = (1e9, *made.program.thresholds[1:])
        with pytest.raises(NoiseMismatchError, match=r"threshold=None.*threshold=1000000000\.0"):
            recalibrated(made, program)

    @pytest.mark.parametrize("method", ["basic", "gsu"])
    def test_what_a_program_does_not_say_is_refused(self, method):
        made = plan(method=method)
        program = copy.copy(made.program)
        program.release_test = functools.partial(Program.release_test, program)
        with pytest.raises(NoiseMismatchError, match="the program tests None"):
            recalibrated(made, program)

    def test_a_test_after_a_round_that_is_not_there_is_refused(self):
        made = plan(method="basic")
        more = replace(made.event.parts[1], round=2)
        with pytest.raises(NoiseMismatchError, match="a test after round 2, where the program has no noise"):
            check_plan(made.program, replace(made.event, parts=(*made.event.parts, more)), 1.0, 1e-5, "this")


# Golden numbers: roots of Balle and Wang's equation and the closed form of the thresholds, computed with 40 digits.
GOLDEN = {
    ("basic", None): [(3.88414080460436124, 20.7897438550826249)],
    ("mad", None): [(3.88414080460436124, 20.7897438550826249)],
    ("dp-sips", "published"): [
        (37.8671640366584309, 217.106448513525855),
        (4.30391894220576543, 23.1080489073083718),
    ],
    ("mad2r", "published"): [
        (37.8671640366584309, 217.106448513525855),
        (4.30391894220576543, 23.2080489073083718),
    ],
    ("mad2r", None): [(7.09143845069358142, 39.3967564552542463), (4.64243621234624346, 25.2281663061243918)],
}


@pytest.mark.parametrize(("key", "expected"), GOLDEN.items())
def test_golden_numbers(key, expected):
    """Not below the exact value, and above it by less than 1e-11."""
    method, preset = key
    made = plan(method=method, preset=preset)
    assert len(made.rounds) == len(expected)
    for row, (sigma, rho) in zip(made.rounds, expected):
        assert sigma <= row.sigma <= sigma * (1 + 1e-11)
        assert rho <= row.threshold <= rho * (1 + 1e-11)


@pytest.mark.parametrize("epsilon", [0.01, 20.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-15, 1e-5, 0.1])
def test_the_adaptive_threshold_is_at_least_one_at_every_budget(epsilon, delta):
    """A precondition of MAD's proof: the threshold of a single item is at least 1 as long as delta / 2 < 1/2."""
    for method in ("mad", "mad2r"):
        made = plan(
            epsilon, delta, method=method, max_items_per_user=4, max_adaptive_degree=4, adaptive_excess=0.0
        )
        rounds = [made.program.round] if method == "mad" else [made.program.first, made.program.second]
        assert all(part.tables.tau_units >= 1 << 30 for part in rounds)


@pytest.mark.parametrize("method", selectors())
def test_noise_beyond_the_fixed_point_range_is_refused(method):
    with pytest.raises(
        InputError,
        match=r"^--epsilon \(1e-09\) and --delta \(1e-12\) need noise (of standard deviation|over) \d\.?\d*e\+\d\d"
        r"( counts)?, more than the (fixed-point weights hold|1048576 of a table); raise one of them$",
    ):
        plan(1e-9, 1e-12, method=method)


@pytest.mark.parametrize("kind", NOISE_KINDS)
def test_noise_at_the_end_of_the_range_does_not_wrap(kind):
    """Draws at the largest allowed scale, on top of 2^32 users, are ordinary 64-bit integers below the stated bound."""
    spec = NoiseSpec(kind, LARGEST_DRAW / NOISE_KINDS[kind].largest)
    fp = np.arange(200_000, dtype=np.uint64).reshape(-1, 2)
    drawn = Keys(RunKey.insecure_fixed("range")).noise(spec, fp)
    assert np.abs(drawn).max() > 3 * spec.scale * UNITS
    ends = LAWS[kind](spec.drawn_scale(UNITS)).draw(
        lambda use, rows: np.full((1, 2), 2**64 - 1, np.uint64), 1
    )
    assert max(np.abs(drawn).max(), abs(int(ends[0]))) <= spec.largest * UNITS <= 2**62
    assert ((drawn + (1 << 62)) - (1 << 62) == drawn).all()


@pytest.mark.parametrize("scale", [2.0**-20, 0.02, 1.0, 3.884140804604361, 1e5])
def test_drawn_gaussian_noise_is_no_smaller_than_what_is_stated(scale):
    """Its variance pays for the step from integers to real numbers, and for no more than rounding needs."""
    drawn = Fraction(NoiseSpec("gaussian", scale).drawn_scale(UNITS))
    stated = Fraction(scale) * UNITS
    assert stated**2 + Fraction(39, 8) <= drawn**2
    assert drawn**2 <= max((stated**2 + Fraction(39, 8)) * (1 + Fraction(1, 2**50)), 64)
    assert NoiseSpec("laplace", scale).drawn_scale(UNITS) == scale * UNITS
