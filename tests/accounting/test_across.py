"""Composition across runs against direct accounting and dp-accounting."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

from dpbeam.accounting.across import noise_of, tightest, zcdp_cost
from dpbeam.accounting.events import (
    ComposedEvent,
    GaussianEvent,
    InconsistentEventError,
    LaplaceEvent,
    LimitedDomainEvent,
    PureEvent,
    ThresholdEvent,
)
from dpbeam.accounting.gaussian import gaussian_delta
from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.zcdp import zcdp_delta

LEDGERS = sorted((Path(__file__).parent / "ledgers").glob("*.ledger.json"))


def run(path: Path) -> tuple[ComposedEvent, float]:
    ledger = Ledger.from_json(path.read_text())
    return ledger.events, ledger.epsilon


def gaussian(sigma: float) -> tuple[ComposedEvent, float]:
    return ComposedEvent("gaussian", (GaussianEvent(sigma),)), 1.0


def test_gaussian_runs_compose_exactly():
    runs = [gaussian(5.0)] * 16
    epsilon = tightest(runs, 1e-6).epsilon
    assert gaussian_delta(epsilon, 5.0 / 4) == pytest.approx(1e-6, rel=1e-4)
    oracle = PLDAccountant(value_discretization_interval=1e-3)
    oracle.compose(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(5.0), 16))
    assert epsilon == pytest.approx(oracle.get_epsilon(1e-6), rel=5e-3)


def test_pure_runs():
    runs = [(ComposedEvent("pure", (LaplaceEvent(2.0),)), 0.5)] * 4
    assert tightest(runs, 1e-9) is None  # rounded up, four times 1/2 is above 2: the sums say it better
    few = tightest([(event, 0.51) for event, _ in runs], 1e-9)
    assert 2.0 <= few.epsilon <= 2.0 + 1e-8
    many = tightest(runs * 100, 1e-6)
    rho = 400 * LaplaceEvent(2.0).zcdp_rho()
    assert zcdp_delta(rho, many.epsilon) <= 1e-6 < zcdp_delta(rho, many.epsilon * 0.999)


def simple_events(values: dict) -> list[dict]:
    """Of a ledger's JSON, by hand."""
    if "parts" not in values:
        return [values]
    return [leaf for part in values["parts"] for leaf in simple_events(part)]


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: path.name.split(".")[0])
def test_every_ledger_composes_with_itself(path):
    """Its cost is that of its noise, read from the file; thirty runs cost less than thirty times one, and no less."""
    events, epsilon = run(path)
    values = json.loads(path.read_text())
    leaves = simple_events(values["events"])
    rho, outside = zcdp_cost(events, epsilon)
    # Gumbel noise of range e: e^2/8 a choice (Cesar and Rogers 2021); truncated geometric noise is pure.
    rhos = {
        "GaussianEvent": lambda leaf: (leaf["sensitivity"] / leaf["sigma"]) ** 2 / 2,
        "PeelingEvent": lambda leaf: leaf["rounds"] * leaf["epsilon0"] ** 2 / 8,
        "LimitedDomainEvent": lambda leaf: leaf["rounds"] * leaf["epsilon0"] ** 2 / 8,
        "PureEvent": lambda leaf: leaf["epsilon"] ** 2 / 2,
    }
    by_hand = math.fsum(rhos[leaf["event"]](leaf) for leaf in leaves if leaf["event"] in rhos)
    assert by_hand <= rho <= by_hand * 1.01
    assert outside == pytest.approx(math.fsum(leaf.get("delta", 0.0) for leaf in leaves), rel=1e-12)
    runs = [(events, epsilon)] * 30
    guarantee = tightest(runs, 30 * values["delta"])
    assert epsilon < guarantee.epsilon < 30 * epsilon
    noise = noise_of(runs)
    assert (
        noise.delta(guarantee.epsilon) <= 30 * values["delta"] < noise.delta(guarantee.epsilon * (1 - 1e-6))
    )


def test_different_runs_compose():
    runs = [run(path) for path in LEDGERS]
    guarantee = tightest(runs, 1e-3)
    assert guarantee.epsilon < sum(epsilon for _, epsilon in runs)
    parts = noise_of(runs)
    assert parts.delta(guarantee.epsilon) <= 1e-3


def test_no_epsilon_makes_up_for_thresholds():
    events, epsilon = run(LEDGERS[0])
    assert tightest([(events, epsilon)] * 10, zcdp_cost(events, epsilon)[1] * 9) is None


def test_outside_deltas_add():
    event = LimitedDomainEvent(0.1, 5, 1 + math.log(10 / 1e-7) / 0.1, 1e-7, 10)
    rho, outside = zcdp_cost(ComposedEvent("zcdp", (event,)), 1.0)
    assert outside == pytest.approx(1e-7) and outside >= 1e-7
    assert rho >= event.zcdp_rho()
    assert zcdp_cost(ComposedEvent("basic", (PureEvent(0.5),)), 0.5) == (pytest.approx(0.125), 0.0)


def test_thresholds_are_checked_before_they_are_left_out():
    events, epsilon = run(LEDGERS[0])
    parts = tuple(
        replace(part, threshold=part.threshold / 2) if type(part) is ThresholdEvent else part
        for group in events.parts
        for part in (group.parts if type(group) is ComposedEvent else [group])
    )
    assert any(type(part) is ThresholdEvent for part in parts)
    with pytest.raises(InconsistentEventError, match="below"):
        tightest([(ComposedEvent("gaussian", parts), epsilon)], 0.1)
