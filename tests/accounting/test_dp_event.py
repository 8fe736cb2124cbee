"""Ledgers as events of dp_accounting: what its accountants find bounds what a run costs, and is close to it.

The truth is from outside: the closed forms of Gaussian noise (Balle and Wang 2018, Theorem 8) and of the composition
of epsilon-DP mechanisms (Kairouz, Oh and Viswanath 2015, Theorem 3.3).
"""

import collections
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import dp_accounting
import mpmath
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

import dpbeam
from dpbeam.accounting.accountant import OverspentError
from dpbeam.accounting.dp_event import PLD, RDP, ExportedEvent, export_event
from dpbeam.accounting.events import (
    ComposedEvent,
    FirstHitEvent,
    GaussianEvent,
    LaplaceEvent,
    PeelingEvent,
    PureEvent,
    ThresholdEvent,
    ZCDPEvent,
    leaves,
)
from dpbeam.accounting.ledger import KEY_FIXED_TEST, Ledger
from dpbeam.accounting.noise import NoiseSpec
from dpbeam.accounting.threshold import NovelWeight, novel_threshold
from dpbeam.errors import InputError
from dpbeam.hitting.config import plan_hitting_set
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selectors.registry import selectors

OLD = sorted((Path(__file__).parent / "ledgers").glob("*.ledger.json"))
ACCOUNTANTS = {PLD: PLDAccountant, RDP: RdpAccountant}


def ledger_of(event: ComposedEvent, epsilon: float = 1.0, delta: float = 0.5) -> Ledger:
    return Ledger("basic", epsilon, delta, event.kind, event)


def exported_delta(exported: ExportedEvent, epsilon: float) -> float:
    """delta at epsilon, by the accountant that the export names."""
    accountant = ACCOUNTANTS[exported.accountant]()
    accountant.compose(exported.build())
    return accountant.get_delta(epsilon) + exported.delta


def gaussian_delta(sigmas, epsilon: float) -> float:
    with mpmath.workdps(40):
        mu = mpmath.sqrt(sum(mpmath.mpf(sigma) ** -2 for sigma in sigmas))
        upper = mpmath.ncdf(mu / 2 - epsilon / mu)
        return float(upper - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu))


def pure_delta(epsilons, epsilon: float) -> float:
    """All sums of losses +-e of randomized responses, (e^loss - e^epsilon)^+ under the other law."""
    total, count = mpmath.mpf(0), len(epsilons)
    for signs in range(2**count):
        loss = sum(e if signs >> i & 1 else -e for i, e in enumerate(epsilons))
        chance = mpmath.mpf(1)
        for i, e in enumerate(epsilons):
            chance *= mpmath.exp(e if signs >> i & 1 else 0) / (1 + mpmath.exp(e))
        total += chance * max(0, 1 - mpmath.exp(epsilon - loss))
    return float(total)


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.name.split(".")[0])
def test_old_ledgers(path):
    """Gaussian noise is exact, and what is stated as zCDP no cheaper than the ledger's own composition."""
    ledger = Ledger.from_json(path.read_text())
    exported = export_event(ledger)
    delta, mechanisms = (
        exported_delta(exported, ledger.epsilon),
        [e for e in leaves(ledger.events) if not e.is_threshold],
    )
    sigmas = [event.gaussian_sigma() for event in mechanisms]
    if None not in sigmas:
        truth = gaussian_delta(sigmas, ledger.epsilon)
        truth += math.fsum(event.outside_delta() for event in leaves(ledger.events))
        assert truth * (1 - 1e-9) <= delta <= truth * (1 + 1e-5)
    if exported.accountant == RDP:
        assert ledger.verify().delta <= delta
        accountant = RdpAccountant()
        accountant.compose(exported.build())
        assert accountant.get_epsilon(ledger.delta - exported.delta) < ledger.epsilon * 1.001
    assert ("top-k" in path.name and "pnf" not in path.name) == (exported.accountant == RDP)


@pytest.mark.parametrize("method", selectors())
def test_every_method(method):
    """No dearer than its ledger, but for what the accountant rounds up."""
    ledger = ledger_of(make_plan(SelectionConfig(1.0, 1e-5, method, max_items_per_user=8)).event, 1.0, 1e-5)
    delta = exported_delta(export_event(ledger), ledger.epsilon)
    assert delta == pytest.approx(ledger.verify().delta, rel=1e-5)


def test_few_choices_cost_more_as_zcdp():
    """As docs/how-to/hand_over.md says."""
    event = plan_hitting_set(HittingSetConfig(2.0, 1e-4, 3)).event
    exported = export_event(ledger_of(event, 2.0, 1e-4))
    accountant = RdpAccountant()
    accountant.compose(exported.build())
    assert exported.accountant == RDP
    assert accountant.get_epsilon(1e-4 - exported.delta) == pytest.approx(2.42, abs=0.005)


@given(
    sigmas=st.lists(st.floats(0.8, 50.0), min_size=1, max_size=4),
    sensitivity=st.floats(0.1, 10.0),
    delta=st.floats(1e-12, 1e-3),
    epsilon=st.floats(0.1, 4.0),
)
@settings(max_examples=5)
def test_gaussian_noise_and_a_threshold(sigmas, sensitivity, delta, epsilon):
    noises = [GaussianEvent(s * sensitivity, sensitivity, r) for r, s in enumerate(sigmas, 1)]
    noise = NoiseSpec("gaussian", sigmas[0] * sensitivity, 1)
    threshold = novel_threshold(noise, delta, 10, NovelWeight(1.0, 0.5))
    event = ComposedEvent("gaussian", (*noises, ThresholdEvent(threshold, delta, 1.0, 10)))
    exported = export_event(ledger_of(event, epsilon, 0.999))
    assert exported.accountant == PLD and exported.delta == delta
    assert f"delta {delta!r} is in no event" in exported.notes[0]
    truth = gaussian_delta(sigmas, epsilon) + delta
    assert truth * (1 - 1e-9) - 1e-14 <= exported_delta(exported, epsilon) <= truth * 1.001 + 1e-12


@given(
    epsilons=st.lists(st.floats(0.05, 1.5), min_size=1, max_size=5),
    at=st.floats(0.0, 1.0),
)
@settings(max_examples=8, deadline=None)
def test_whatever_is_epsilon_dp(epsilons, at):
    parts = (LaplaceEvent(2 / epsilons[0], 2.0), *map(PureEvent, epsilons[1:]))
    exported = export_event(ledger_of(ComposedEvent("pure", parts), 10.0))
    epsilon = at * sum(epsilons)
    truth = pure_delta(epsilons, epsilon)
    # Losses are rounded up to the accountant's grid of 1e-4.
    assert truth - 1e-9 <= exported_delta(exported, epsilon) <= truth + 1e-4 * (1 + len(epsilons))


def test_one_of_them_costs_no_delta():
    exported = export_event(ledger_of(ComposedEvent("pure", (PureEvent(1.0),)), 1.0, 0.0))
    assert exported_delta(exported, 1.0) < 1e-12 and exported_delta(exported, 0.9) > 0.01
    assert exported.notes == () and exported.delta == 0


def test_what_is_zcdp_alone():
    """The Gaussian mechanism of the same rho has the same Renyi curve, so the accountant finds the same."""
    parts = (ZCDPEvent(0.02), GaussianEvent(5.0), PureEvent(0.2))
    exported = export_event(ledger_of(ComposedEvent("zcdp", parts), 2.0))
    assert exported.accountant == RDP and "dearer" in exported.notes[0]
    assert "ZCDPEvent" in exported.notes[0] and "Gaussian" not in exported.notes[0]
    accountant = RdpAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent((2 * (0.02 + 0.02 + 0.02)) ** -0.5))
    assert exported_delta(exported, 2.0) == pytest.approx(accountant.get_delta(2.0), rel=1e-6)


def test_choices_up_to_the_first_hit_stand_as_a_whole():
    event = ComposedEvent("first-hit", (FirstHitEvent(0.5, 90), GaussianEvent(8.0)))
    exported = export_event(ledger_of(event, 1.5))
    spent = ledger_of(event, 1.5).verify()
    assert 0 < spent.delta == exported.delta and "FirstHitEvent, GaussianEvent" in exported.notes[0]
    assert exported_delta(exported, 1.5) == pytest.approx(spent.delta, rel=1e-9)
    assert exported_delta(exported, 1.4) > spent.delta + 0.01


def test_parts_of_a_sum_compose():
    """Every part of a basic composition counts, those with an epsilon of their own too."""
    parts = tuple(ComposedEvent("gaussian", (GaussianEvent(sigma),), 0.5) for sigma in (6.0, 9.0))
    exported = export_event(ledger_of(ComposedEvent("basic", (*parts, PureEvent(0.3))), 1.3))
    names = [part["class_name"] for part in exported.event["events"]]
    assert names == ["GaussianDpEvent", "GaussianDpEvent", "DiscreteLaplaceDpEvent"]
    assert exported_delta(exported, 1.3) >= gaussian_delta((6.0, 9.0), 1.3)


def test_equal_rounds_are_one_event_repeated():
    noises = tuple(GaussianEvent(20.0, round=r) for r in range(1, 9))
    exported = export_event(ledger_of(ComposedEvent("gaussian", noises)))
    assert exported.event["class_name"] == "SelfComposedDpEvent" and exported.event["count"] == 8


def named(values):
    """As `from_named_tuple` takes events."""
    if isinstance(values, list):
        return [named(value) for value in values]
    if not isinstance(values, dict):
        return values
    return collections.namedtuple("Event", values)(**{key: named(value) for key, value in values.items()})


@pytest.mark.parametrize("path", OLD[3:9:5], ids=lambda path: path.name.split(".")[0])
def test_it_is_read_without_dpbeam(path):
    exported = export_event(Ledger.from_json(path.read_text()))
    values = json.loads(json.dumps(exported.to_dict(), allow_nan=False))
    assert dp_accounting.DpEvent.from_named_tuple(named(values["event"])) == exported.build()
    assert values["delta"] == exported.delta and values["notes"] == list(exported.notes)


def test_a_fixed_key_protects_nothing():
    ledger = replace(Ledger.from_json(OLD[0].read_text()), key_source=KEY_FIXED_TEST)
    exported = export_event(ledger)
    assert (
        exported.build() == dp_accounting.NonPrivateDpEvent() and "nothing is protected" in exported.notes[0]
    )
    assert exported_delta(exported, 100.0) == 1


def test_what_does_not_verify_is_refused():
    event = ComposedEvent("pure", (PeelingEvent(0.5, 3),))
    with pytest.raises(OverspentError):
        export_event(ledger_of(event, 1.0))


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    exported = dpbeam.export_event(Ledger.from_json(OLD[0].read_text()))
    with pytest.raises(InputError, match="needs the package dp-accounting"):
        exported.build()
