"""The accountant: right sums, and refusal of all that it does not know or cannot check."""

import math
from dataclasses import dataclass

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from dpbeam.accounting.accountant import account
from dpbeam.accounting.bounded_range import choices_delta
from dpbeam.accounting.events import (
    COMPOSITION_KINDS,
    LARGEST_CAPS,
    ComposedEvent,
    CorrelatedGaussianEvent,
    CumulativeThresholdEvent,
    Event,
    GaussianEvent,
    InconsistentEventError,
    LimitedDomainEvent,
    PeelingEvent,
    PureEvent,
    ThresholdEvent,
    UnknownEventError,
    ZCDPEvent,
    event,
    event_from_dict,
    event_to_dict,
)
from dpbeam.accounting.gaussian import gaussian_delta, gaussian_sigma, split_sigma
from dpbeam.accounting.peeling import peeling_epsilon0
from dpbeam.accounting.threshold import novel_threshold
from dpbeam.accounting.zcdp import zcdp_delta, zcdp_rho

D0 = 100


def test_a_field_that_nobody_checks_is_refused_where_its_event_is_defined():
    @dataclass(frozen=True)
    class TiltedEvent(Event):
        sigma: float
        tilt: float
        label: str = ""

    with pytest.raises(TypeError, match="TiltedEvent must check tilt, and say so in CHECKED"):
        event(TiltedEvent)
    with pytest.raises(UnknownEventError):
        event_from_dict({"event": "TiltedEvent", "sigma": 1.0, "tilt": 0.0, "label": ""})


def threshold_event(sigma, delta, b=1.0, round=1):
    rho = novel_threshold(sigma, delta, D0, lambda t: b / np.sqrt(t))
    return ThresholdEvent(rho, delta, b, D0, round)


def gaussian_rounds(epsilon, delta, shares):
    """Rounds with Gaussian accounting: delta/2 for the noise, delta/2 split among the thresholds."""
    sigmas = split_sigma(gaussian_sigma(epsilon, delta / 2), shares)
    parts = []
    for index, sigma in enumerate(sigmas, start=1):
        parts += [
            GaussianEvent(sigma, round=index),
            threshold_event(sigma, delta / 2 / len(shares), round=index),
        ]
    return ComposedEvent("gaussian", tuple(parts))


@pytest.mark.parametrize("delta", [1e-2, 1e-10, 1e-30])
@pytest.mark.parametrize("shares", [[1.0], [0.3, 0.7], [0.1, 0.2, 0.3, 0.4]])
def test_gaussian_composition_spends_exactly_the_budget(delta, shares):
    for epsilon in (1e-4, 0.1, 1.0, 100.0):
        got = account(gaussian_rounds(epsilon, delta, shares), epsilon)
        assert got.epsilon == epsilon
        assert delta * (1 - 1e-10) <= got.delta <= delta


def test_gaussian_composition_against_dp_accounting():
    event = ComposedEvent("gaussian", (GaussianEvent(5.0), GaussianEvent(8.0, sensitivity=2.0, round=2)))
    equivalent = 1 / math.sqrt(1 / 25 + 1 / 16)
    epsilon = dp_accounting.get_epsilon_gaussian(equivalent, 1e-6)
    assert account(event, epsilon).delta == pytest.approx(1e-6, rel=1e-4)


def test_basic_composition_adds():
    first = ComposedEvent("gaussian", gaussian_rounds(0.1, 1e-6, [1.0]).parts, epsilon=0.1)
    second = ComposedEvent("gaussian", gaussian_rounds(0.9, 9e-6, [1.0]).parts, epsilon=0.9)
    got = account(ComposedEvent("basic", (first, second, PureEvent(0.5), PeelingEvent(0.01, 20))))
    assert got.epsilon == pytest.approx(0.1 + 0.9 + 0.5 + 0.2, rel=1e-15)
    assert got.delta == pytest.approx(1e-5, rel=1e-9)


def test_basic_inside_basic():
    inner = ComposedEvent("basic", (PureEvent(0.25), PureEvent(0.25)))
    assert account(ComposedEvent("basic", (inner, PureEvent(1.0)))).epsilon == 1.5


@pytest.mark.parametrize("kind", COMPOSITION_KINDS)
def test_a_part_of_a_basic_composition_has_an_epsilon_or_sums_those_of_its_parts(kind):
    part = ComposedEvent(kind, (PureEvent(0.25),))
    sums = kind in ("basic", "pure")
    assert part.takes_epsilon is not sums and part.lacks_epsilon is not sums
    assert part.at(2.0) == (part if sums else ComposedEvent(kind, (PureEvent(0.25),), 2.0))
    assert not part.at(2.0).lacks_epsilon and part.at(2.0).at(3.0) == part.at(2.0)


def test_zcdp_composition():
    parts = (GaussianEvent(10.0), PeelingEvent(0.2, 3), PureEvent(0.1), ZCDPEvent(0.004))
    rho = 0.005 + 3 * 0.005 + 0.005 + 0.004
    got = account(ComposedEvent("zcdp", parts), 1.0)
    assert got.delta == pytest.approx(zcdp_delta(rho, 1.0), rel=1e-9)
    assert got.delta >= zcdp_delta(rho, 1.0) * (1 - 1e-12)


def test_zcdp_composition_against_dp_accounting():
    accountant = dp_accounting.rdp.RdpAccountant(orders=[1 + step / 20 for step in range(1, 2000)])
    accountant.compose(dp_accounting.ZCDpEvent(rho=0.03))
    accountant.compose(dp_accounting.GaussianDpEvent(6.0))
    epsilon = accountant.get_epsilon(1e-5)
    event = ComposedEvent("zcdp", (ZCDPEvent(0.03), GaussianEvent(6.0)))
    assert account(event, epsilon).delta == pytest.approx(1e-5, rel=1e-3)


def test_zcdp_takes_the_better_bound():
    gaussian_only = ComposedEvent("zcdp", (GaussianEvent(5.0),))
    assert account(gaussian_only, 0.5).delta == pytest.approx(gaussian_delta(0.5, 5.0), rel=1e-11)
    assert account(ComposedEvent("zcdp", (PeelingEvent(0.1, 10),)), 1.0).delta == 0.0
    assert account(ComposedEvent("zcdp", (PeelingEvent(0.1, 10),)), 0.99).delta > 0


def test_selection_and_peeling_in_one_zcdp_composition():
    """A selector's thresholds add their deltas; its noise and the peeling share one rho."""
    rho = zcdp_rho(1.0, 5e-6)
    sigma = 1 / math.sqrt(rho)
    selection = ComposedEvent("gaussian", (GaussianEvent(sigma), threshold_event(sigma, 5e-6)))
    peel = PeelingEvent(math.sqrt(8 * rho / 2 / 50) * (1 - 1e-12), 50)
    got = account(ComposedEvent("zcdp", (selection, peel)), 1.0)
    assert got.delta == pytest.approx(choices_delta(1.0, peel.epsilon0, 50, sigma) + 5e-6, rel=1e-12)
    plain = ZCDPEvent(peel.zcdp_rho())
    assert account(ComposedEvent("zcdp", (selection, plain)), 1.0).delta == pytest.approx(1e-5, rel=1e-8)


@pytest.mark.parametrize("rounds", [1, 10, 200])
def test_peeling_calibration_passes(rounds):
    event = PeelingEvent(peeling_epsilon0(0.5, 1e-6, rounds), rounds)
    assert account(ComposedEvent("zcdp", (event,)), 0.5).delta <= 1e-6


def test_threshold_from_the_whole_delta_is_caught():
    """The slip of one published pseudocode: round r's threshold from delta in place of its share."""
    sigma = gaussian_sigma(1.0, 5e-6)
    slip = novel_threshold(sigma, 1e-5, D0, lambda t: 1 / np.sqrt(t))
    event = ComposedEvent("gaussian", (GaussianEvent(sigma), ThresholdEvent(slip, 5e-6, 1.0, D0)))
    with pytest.raises(InconsistentEventError, match=r"below the .* that its noise and delta require"):
        account(event, 1.0)


@pytest.mark.parametrize(
    "parts",
    [
        (GaussianEvent(4.0), ThresholdEvent(20.0, 1e-6, 1.0, D0)),  # too low
        (GaussianEvent(4.0), ThresholdEvent(90.0, 1e-6, 1.0, D0, round=2)),  # its round has no noise
        (ThresholdEvent(90.0, 1e-6, 1.0, D0),),
        (GaussianEvent(4.0), GaussianEvent(5.0), ThresholdEvent(90.0, 1e-6, 1.0, D0)),  # which noise?
        (ComposedEvent("gaussian", (GaussianEvent(4.0),)), ThresholdEvent(90.0, 1e-6, 1.0, D0)),
    ],
)
def test_unsupported_thresholds(parts):
    with pytest.raises(InconsistentEventError):
        account(ComposedEvent("gaussian", parts), 1.0)


def test_thresholds_of_biased_weights():
    sigma = 4.0
    good = threshold_event(sigma, 1e-6, b=2.0)
    account(ComposedEvent("gaussian", (GaussianEvent(sigma), good)), 1.0)
    low = ThresholdEvent(threshold_event(sigma, 1e-6, b=1.0).threshold, 1e-6, 2.0, D0)
    with pytest.raises(InconsistentEventError):
        account(ComposedEvent("gaussian", (GaussianEvent(sigma), low)), 1.0)


def cumulative(thresholds, cap=0.5):
    """Two rounds of f = (.25, .75) and a = 1 at sigma 4."""
    noises = [GaussianEvent(s, round=r) for r, s in enumerate(split_sigma(4.0, [0.25, 0.75]), start=1)]
    tests = CumulativeThresholdEvent(thresholds, (0.25, 0.75), 1e-3, cap, D0)
    return ComposedEvent("gaussian", (*noises, tests))


def test_cumulative_thresholds():
    # Allowance per item 1.0005e-5; half of it at each checkpoint is z = 4.4171, two-sided quantile tables.
    first, last = 0.125 + 4.0 * 0.5 * 4.4175, 0.5 + 4.0 * 4.4175
    got = account(cumulative((first, last)), 1.0)
    assert got.delta == pytest.approx(gaussian_delta(1.0, 4.0) + 1e-3, rel=1e-12)
    account(cumulative((None, last)), 1.0)
    for thresholds, cap in [((first - 0.1, last), 0.5), ((first, last - 0.1), 0.5), ((first, last), 0.7)]:
        with pytest.raises(InconsistentEventError, match="let a novel item pass"):
            account(cumulative(thresholds, cap), 1.0)
    lacking = ComposedEvent("gaussian", cumulative((first, last)).parts[1:])
    with pytest.raises(InconsistentEventError, match="lack the noise of a round"):
        account(lacking, 1.0)


def test_the_rule_of_the_caps_is_part_of_the_event():
    """It is not written where it is what all ledgers mean, and another rule is not believed."""
    (*_, tests) = cumulative((None, 17.6)).parts
    plain = event_to_dict(tests)
    assert "caps" not in plain and event_from_dict({**plain, "caps": LARGEST_CAPS}) == tests
    with pytest.raises(ValueError, match="caps must be 'largest admitted'"):
        event_from_dict({**plain, "caps": "one"})


def test_caps_are_the_largest_at_every_degree():
    """Recomputed by hand: the drift c (.25 + .75) and one checkpoint of deviation sigma, at d items."""
    event = cumulative((None, 17.6))
    tests, noises = event.parts[-1], {noise.round: noise for noise in event.noises()}
    sigma = math.sqrt((0.25 * noises[1].scale) ** 2 + (0.75 * noises[2].scale) ** 2)
    degrees = np.arange(1, D0 + 1)
    allowed = -np.expm1(np.log1p(-1e-3) / degrees)
    largest = np.minimum(1.0, 17.6 + sigma * stats.norm.ppf(allowed))
    assert largest[0] == 1.0 and largest[-1] < 0.6
    assert tests.admits(degrees, largest * (1 - 1e-9), noises).all()
    assert not tests.admits(degrees, largest * (1 + 1e-9), noises).any()
    assert not tests.admits(np.array([D0 + 1]), np.array([1e-3]), noises).any()


def gap_of(epsilon0, delta, changed):
    return 1 + math.log(changed / delta) / epsilon0


@pytest.mark.parametrize("rounds", [1, 7, 200])
def test_limited_domain_costs_its_peeling_and_its_delta(rounds):
    """The delta of the stop mark is added whole, once, whatever the epsilon and the number of rounds."""
    event = LimitedDomainEvent(0.2, rounds, gap_of(0.2, 3e-7, 40), 3e-7, 40)
    for epsilon in (0.1, 1.0, 30.0):
        got = account(ComposedEvent("zcdp", (event,), epsilon=epsilon))
        assert got.epsilon == epsilon
        assert got.delta == pytest.approx(choices_delta(epsilon, 0.2, rounds) + 3e-7, rel=1e-12)


def test_limited_domain_keeps_its_delta_beside_pure_epsilon():
    """Its peeling alone would fit epsilon at delta = 0; the mark's delta is charged in every composition."""
    event = LimitedDomainEvent(0.1, 5, gap_of(0.1, 1e-6, 3), 1e-6, 3)
    assert account(ComposedEvent("zcdp", (PeelingEvent(0.1, 5),), epsilon=0.5)).delta == 0
    assert account(ComposedEvent("zcdp", (event,), epsilon=0.5)).delta == 1e-6
    assert account(ComposedEvent("zcdp", (event,), epsilon=0.4)).delta > 1e-6
    for kind in ("basic", "pure"):
        spent = account(ComposedEvent(kind, (event,)))
        assert (spent.epsilon, spent.delta) == (0.5, 1e-6)


def test_limited_domain_beside_other_mechanisms():
    event = LimitedDomainEvent(0.1, 5, gap_of(0.1, 1e-6, 3), 1e-6, 3)
    got = account(ComposedEvent("zcdp", (event, GaussianEvent(20.0)), epsilon=1.0))
    assert got.delta == pytest.approx(zcdp_delta(5 * 0.01 / 8 + 1 / 800, 1.0) + 1e-6, rel=1e-9)
    staged = ComposedEvent("zcdp", (event,), epsilon=0.25)
    both = account(ComposedEvent("basic", (staged, PureEvent(0.5))))
    assert (both.epsilon, both.delta) == (0.75, account(staged).delta)


@pytest.mark.parametrize("short", [1e-6, 0.5, 1.0])
def test_a_gap_too_small_for_its_delta_is_refused(short):
    """Below 1 + ln(t/delta)/epsilon0, for example without the 1, or for one changed place out of forty."""
    needed = gap_of(0.2, 1e-6, 40)
    assert LimitedDomainEvent(0.2, 3, needed, 1e-6, 40).gap == needed
    with pytest.raises(InconsistentEventError, match=r"gap is .*, its delta needs"):
        LimitedDomainEvent(0.2, 3, needed - short, 1e-6, 40)
    with pytest.raises(InconsistentEventError):
        LimitedDomainEvent(0.2, 3, gap_of(0.2, 1e-6, 39), 1e-6, 40)


@dataclass(frozen=True)
class LaplaceEvent:
    scale: float = 1.0


class CheaperGaussianEvent(GaussianEvent):
    """A subclass could mean anything."""


@pytest.mark.parametrize("kind", ["basic", "gaussian", "zcdp"])
@pytest.mark.parametrize("stranger", [LaplaceEvent(), CheaperGaussianEvent(4.0), None, "GaussianEvent", 1.0])
def test_unknown_events_are_refused(kind, stranger):
    known = PureEvent(1.0) if kind == "basic" else GaussianEvent(4.0)
    with pytest.raises(UnknownEventError):
        account(ComposedEvent(kind, (known, stranger)), 1.0)
    with pytest.raises(UnknownEventError):
        account(stranger, 1.0)


@pytest.mark.parametrize(
    "event",
    [
        ComposedEvent("gaussian", (PureEvent(1.0),)),
        ComposedEvent("gaussian", (PeelingEvent(0.1, 3),)),
        ComposedEvent("gaussian", (ZCDPEvent(0.1),)),
        ComposedEvent("gaussian", (ComposedEvent("zcdp", (GaussianEvent(4.0),)),)),
        ComposedEvent("gaussian", (ComposedEvent("gaussian", (GaussianEvent(4.0),), epsilon=1.0),)),
        ComposedEvent("zcdp", (ComposedEvent("basic", (PureEvent(1.0),)),)),
        ComposedEvent("basic", (GaussianEvent(4.0),)),
        ComposedEvent("basic", (ZCDPEvent(0.1),)),
        ComposedEvent("basic", (ThresholdEvent(90.0, 1e-6, 1.0, D0),)),
        ComposedEvent("basic", (ComposedEvent("gaussian", (GaussianEvent(4.0),)),)),
    ],
)
def test_known_events_in_the_wrong_place_are_refused(event):
    with pytest.raises(UnknownEventError):
        account(event, 1.0)


def test_epsilon_of_the_root():
    event = ComposedEvent("gaussian", (GaussianEvent(4.0),))
    with pytest.raises(ValueError, match="needs an epsilon at which its delta is taken"):
        account(event)
    stated = ComposedEvent("gaussian", (GaussianEvent(4.0),), epsilon=0.5)
    assert account(stated, 2.0).epsilon == 0.5


@pytest.mark.parametrize(
    "make",
    [
        lambda: GaussianEvent(0.0),
        lambda: GaussianEvent(math.nan),
        lambda: GaussianEvent(1.0, sensitivity=0.0),
        lambda: GaussianEvent(1.0, round=0),
        lambda: ThresholdEvent(math.inf, 1e-6, 1.0, D0),
        lambda: ThresholdEvent(1.0, 0.0, 1.0, D0),
        lambda: ThresholdEvent(1.0, 1e-6, 1.0, 0),
        lambda: CumulativeThresholdEvent((1.0,), (1.0, 2.0), 1e-6, 0.5, D0),
        lambda: CumulativeThresholdEvent((math.nan,), (1.0,), 1e-6, 0.5, D0),
        lambda: CumulativeThresholdEvent((), (), 1e-6, 0.5, D0),
        lambda: PeelingEvent(0.1, 0),
        lambda: LimitedDomainEvent(0.0, 3, 1e3, 1e-6, 5),
        lambda: LimitedDomainEvent(0.1, 0, 1e3, 1e-6, 5),
        lambda: LimitedDomainEvent(0.1, 3, math.inf, 1e-6, 5),
        lambda: LimitedDomainEvent(0.1, 3, 1e3, 0.0, 5),
        lambda: LimitedDomainEvent(0.1, 3, 1e3, 1e-6, 0),
        lambda: PureEvent(-1.0),
        lambda: ZCDPEvent(math.inf),
        lambda: ComposedEvent("basic", ()),
        lambda: ComposedEvent("advanced", (PureEvent(1.0),)),
        lambda: ComposedEvent("basic", (PureEvent(1.0),), epsilon=1.0),
        lambda: ComposedEvent("zcdp", (PureEvent(1.0),), epsilon=math.nan),
    ],
)
def test_bad_events(make):
    with pytest.raises(ValueError):
        make()


def test_correlated_gaussian_is_two_gaussian_mechanisms():
    """Half of each of k counts, and half of a number of users: mu^2 = k/(4 sigma^2) + 1/(4 shared_sigma^2)."""
    event = CorrelatedGaussianEvent(3.0, 2.0, 9)
    two = (GaussianEvent(3.0, 1.5), GaussianEvent(2.0, 0.5, round=2))
    apart = ComposedEvent("gaussian", two, epsilon=0.7)
    together = ComposedEvent("gaussian", (event,), epsilon=0.7)
    assert account(together).delta == pytest.approx(account(apart).delta, rel=1e-9)
    assert event.gaussian_sigma() <= (9 / 36 + 1 / 16) ** -0.5 and event.noise is None
    assert event.zcdp_rho() == pytest.approx((9 / 36 + 1 / 16) / 2) and event.pure_epsilon() is None
    for bad in ((0.0, 1.0, 2), (1.0, math.inf, 2), (1.0, 1.0, 0)):
        with pytest.raises(ValueError):
            CorrelatedGaussianEvent(*bad)


def test_round_trip_through_plain_values():
    event = ComposedEvent(
        "zcdp",
        (
            ComposedEvent("gaussian", (GaussianEvent(np.float64(4.0), label="r1"),)),
            CumulativeThresholdEvent((None, 1.5), (0.25, 0.75), 1e-3, 0.5, np.int64(7)),
            PeelingEvent(0.1, 3),
            LimitedDomainEvent(0.1, 3, np.float64(200.0), 1e-6, np.int64(4)),
            CorrelatedGaussianEvent(3.0, np.float64(2.0), np.int64(4)),
            PureEvent(0.2),
            ZCDPEvent(0.3),
        ),
        epsilon=1.0,
        label="job",
    )
    plain = event_to_dict(event)
    assert event_from_dict(plain) == event
    assert type(plain["parts"][0]["parts"][0]["sigma"]) is float
    assert type(plain["parts"][1]["max_items"]) is int


@pytest.mark.parametrize(
    "values",
    [
        {"event": "LaplaceEvent", "scale": 1.0},
        {"epsilon": 1.0},
        {"event": "PureEvent", "epsilon": 1.0},
        {"event": "PureEvent", "epsilon": 1.0, "label": "", "discount": 0.5},
        "PureEvent",
    ],
)
def test_unknown_plain_values_are_refused(values):
    with pytest.raises(UnknownEventError):
        event_from_dict(values)
    with pytest.raises(UnknownEventError):
        event_to_dict(LaplaceEvent())
