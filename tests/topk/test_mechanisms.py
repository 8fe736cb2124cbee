"""Calibrated mechanisms: what they cost by the accountant, what they pass on, shorter answers."""

import functools
import math

import numpy as np
import pytest

from dpbeam.accounting.accountant import account
from dpbeam.accounting.bounded_range import choices_delta
from dpbeam.accounting.events import (
    ComposedEvent,
    GaussianEvent,
    LimitedDomainEvent,
    PeelingEvent,
    PureEvent,
    UnknownEventError,
    ZCDPEvent,
)
from dpbeam.accounting.peeling import peeling_epsilon0
from dpbeam.accounting.zcdp import zcdp_delta
from dpbeam.randomness import RunKey
from dpbeam.topk.fast_joint import fast_joint
from dpbeam.topk.gauss_rank import GaussRank
from dpbeam.topk.joint import joint
from dpbeam.topk.limited_domain import limited_domain
from dpbeam.topk.mechanisms import (
    MECHANISMS,
    CdpPeel,
    FastJoint,
    Joint,
    LimitedDomain,
    PnfPeel,
    choice_range,
)
from dpbeam.topk.peeling import cdp_peel, pnf_peel

KEY = RunKey.insecure_fixed("mechanisms")


@pytest.mark.parametrize("k", [1, 10, 1000])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-5), (1.0, 1e-12), (5.0, 1e-5)])
def test_peeling_costs_its_budget(k, epsilon, delta):
    for published in (False, True):
        mechanism = CdpPeel.calibrate(k, epsilon, delta, published)
        pure = k * mechanism.epsilon0 <= epsilon
        spent = account(ComposedEvent("zcdp", mechanism.events, epsilon=epsilon))
        assert spent.delta <= delta
        if not published and not pure:
            assert spent.delta > 0.99 * delta  # nothing is left over
    assert choice_range(epsilon, delta, k) >= choice_range(epsilon, delta, k, True)
    assert choice_range(epsilon, delta, k, True) == peeling_epsilon0(epsilon, delta, k)


def test_numeric_conversion_gains():
    """The figures of the docstring."""
    assert choice_range(1, 1e-6, 100) / choice_range(1, 1e-6, 100, True) == pytest.approx(1.265, abs=0.005)
    assert choice_range(0.1, 1e-6, 100) / choice_range(0.1, 1e-6, 100, True) == pytest.approx(
        1.447, abs=0.005
    )
    assert choice_range(1, 0.0, 100) == pytest.approx(0.01)


@pytest.mark.parametrize("cls", [PnfPeel, Joint, FastJoint])
@pytest.mark.parametrize("k", [1, 3, 7, 1000])
def test_pure_mechanisms_cost_epsilon(cls, k):
    mechanism = cls.calibrate(k, 0.7)
    (event,) = mechanism.events
    assert type(event) is (PureEvent if cls is PnfPeel else PeelingEvent) and mechanism.pure
    spent = account(ComposedEvent("basic", (event,)))
    assert 0.7 * (1 - 1e-11) <= spent.epsilon <= 0.7 and spent.delta == 0


@pytest.mark.parametrize("cls", [Joint, FastJoint])
def test_a_joint_choice_is_one_of_bounded_range(cls):
    """Beside a Gaussian stage it costs less than epsilon^2/8 of zCDP, and epsilon^2/8 beside zCDP alone."""
    (event,) = cls.calibrate(50, 0.7).events
    composed = ComposedEvent("zcdp", (event, ZCDPEvent(1 / 50)), epsilon=1.0)
    assert account(composed).delta == pytest.approx(zcdp_delta(0.7**2 / 8 + 1 / 50, 1.0), rel=1e-9)
    exact = account(ComposedEvent("zcdp", (event, GaussianEvent(5.0)), epsilon=1.0)).delta
    assert exact == choices_delta(1.0, 0.7, 1, 5.0) < 0.2 * account(composed).delta


def test_limited_domain_halves_delta():
    mechanism = LimitedDomain.calibrate(10, 1.0, 1e-5, kbar=50, max_items_per_user=100)
    assert mechanism.epsilon0 == choice_range(1.0, 5e-6, 10)
    assert mechanism.gap == pytest.approx(1 + math.log(50 / 5e-6) / mechanism.epsilon0)
    assert mechanism.events == (
        LimitedDomainEvent(mechanism.epsilon0, 10, mechanism.gap, 5e-6, 50, label="limited-domain"),
    )
    peeling = PeelingEvent(mechanism.epsilon0, 10)
    assert account(ComposedEvent("zcdp", (peeling,), epsilon=1.0)).delta + mechanism.stop_delta <= 1e-5
    assert 0.99e-5 < account(ComposedEvent("zcdp", mechanism.events, epsilon=1.0)).delta <= 1e-5


@pytest.mark.parametrize(("k", "pure"), [(1, True), (2, True), (5, False), (50, False)])
def test_few_choices_of_limited_domain_are_pure(k, pure):
    """Then the mark gets all of delta; the mark is the lower of the two."""
    mechanism = LimitedDomain.calibrate(k, 1.0, 1e-5, kbar=10 * k)
    assert mechanism.stop_delta == (1e-5 if pure else 5e-6)
    assert (mechanism.epsilon0 * k <= 1.0) == pure
    halves = 1 + math.log(10 * k / 5e-6) / choice_range(1.0, 5e-6, k)
    whole = 1 + math.log(10 * k / 1e-5) / (1.0 / k)
    assert mechanism.gap == pytest.approx(min(halves, whole), rel=1e-9)
    spent = account(ComposedEvent("zcdp", mechanism.events, epsilon=1.0)).delta
    assert spent == 1e-5 if pure else 1e-5 * (1 - 1e-3) <= spent <= 1e-5


def test_accountant_refuses_what_it_does_not_know():
    """An event without a rule of its own must fail closed."""
    (event,) = LimitedDomain.calibrate(10, 1.0, 1e-5, kbar=50).events

    class Other(type(event)):
        pass

    with pytest.raises(UnknownEventError):
        account(ComposedEvent("zcdp", (Other(1.0, 1, 20.0, 1e-5, 1),), epsilon=1.0))


@functools.cache
def all_mechanisms(k):
    return [
        (CdpPeel.calibrate(k, 1.0, 1e-6), lambda m, h, fp: cdp_peel(h, fp, m.k, m.epsilon0, KEY, "stage 3")),
        (
            PnfPeel.calibrate(k, 1.0),
            lambda m, h, fp: pnf_peel(h, fp, m.k, m.k * m.round_epsilon, KEY, "stage 3"),
        ),
        (Joint.calibrate(k, 1.0), lambda m, h, fp: joint(h, fp, m.k, 1.0, KEY, "stage 3")),
        (
            FastJoint.calibrate(k, 1.0, beta=0.1),
            lambda m, h, fp: fast_joint(h, fp, m.k, 1.0, KEY, "stage 3", 0.1),
        ),
        (
            GaussRank.calibrate(k, 4.0),
            lambda m, h, fp: cdp_peel(h, fp, m.k, m.epsilon0, KEY, "stage 3/gauss-rank"),
        ),
        (
            LimitedDomain.calibrate(k, 1.0, 1e-6, kbar=2 * k),
            lambda m, h, fp: limited_domain(h, fp, m.k, m.epsilon0, m.gap, KEY, 2 * k, "stage 3"),
        ),
    ]


def test_every_mechanism_runs_as_calibrated(tools):
    counts = (2000 / np.arange(1, 301) ** 0.7).astype(np.int64)
    fp = tools.fingerprints_of(300)
    pairs = all_mechanisms(12)
    assert {mechanism.name for mechanism, _ in pairs} == set(MECHANISMS)
    for mechanism, direct in pairs:
        got = mechanism.select(counts, fp, KEY, "stage 3")
        np.testing.assert_array_equal(got, direct(mechanism, counts, fp))
        assert MECHANISMS[mechanism.name] is type(mechanism)
        assert len(got) == 12 or mechanism.name == "limited-domain"


def test_short_domains(tools):
    """at_most(d) keeps the noise and gives d items; select itself refuses (but for limited domain)."""
    counts, fp = np.array([30, 20, 10]), tools.fingerprints_of(3)
    for mechanism, _ in all_mechanisms(12):
        shorter = mechanism.at_most(3)
        assert shorter.k == 3 and mechanism.at_most(40) == mechanism
        for name in ("epsilon", "epsilon0", "round_epsilon", "gap"):
            assert getattr(shorter, name, None) == getattr(mechanism, name, None)
        if mechanism.name != "limited-domain":
            assert sorted(shorter.select(counts, fp, KEY).tolist()) == [0, 1, 2]
            with pytest.raises(ValueError, match="k must not exceed the number of items"):
                mechanism.select(counts, fp, KEY)
        with pytest.raises(ValueError, match="k must be an integer of at least 1"):
            mechanism.at_most(0)


@pytest.mark.parametrize("name", ["cdp-peel", "fast-joint", "gauss-rank", "joint", "pnf-peel"])
@pytest.mark.parametrize("k", [1, 25, 120])
def test_order_of_items_does_not_matter(tools, name, k):
    """Ties everywhere; also k = d."""
    rng = np.random.default_rng(9)
    counts, fp = rng.integers(0, 6, 120), tools.fingerprints_of(120)
    order = rng.permutation(120)
    mechanism = next(m for m, _ in all_mechanisms(k) if m.name == name)
    straight = mechanism.select(counts, fp, KEY)
    np.testing.assert_array_equal(straight, order[mechanism.select(counts[order], fp[order], KEY)])
    assert len(set(straight.tolist())) == k


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CdpPeel.calibrate(0, 1, 1e-6), "must be an integer of at least 1"),
        (lambda: CdpPeel.calibrate(3, 0, 1e-6), "epsilon must be finite and positive"),
        (lambda: CdpPeel.calibrate(3, 1, 1.0), r"delta must lie in"),
        (lambda: PnfPeel.calibrate(3, math.nan), "epsilon must be finite and positive"),
        (lambda: FastJoint.calibrate(3, 1.0, beta=1.5), r"beta must lie in \(0, 1\)"),
        (lambda: LimitedDomain.calibrate(3, 1.0, 1e-6, kbar=2), "kbar must be at least k"),
        (lambda: LimitedDomain.calibrate(3, 1.0, 1e-6), "needs kbar or max_items_per_user"),
        (lambda: LimitedDomain.calibrate(3, 1.0, 0.0, kbar=3), "delta must"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
