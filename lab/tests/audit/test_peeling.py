"""The audit of hitting sets: selection and peeling on neighbouring inputs, many keys, what comes out."""

import numpy as np
import pytest

from dpbeam.hitting.program import HittingSetProgram
from dpbeam_lab.audit.confidence import event_excess
from tests.hitting.test_program import domain_of, plan_of

TRIALS, ALPHA = 250, 1e-6
EPSILON, DELTA = 1.0, 0.05
ITEMS = [f"item {n}" for n in range(12)]


class WholeWeight(HittingSetProgram):
    """Fault: a user counts with its whole weight, here of thirty items, of which one lies in the domain."""

    def summarise(self, trip, part, keys):
        summary = super().summarise(trip, part, keys)
        if self.is_first(trip):
            return summary
        return {**summary, "change": summary["change"].astype(np.int64) * 30}


class StopsEarly(HittingSetProgram):
    """Fault: what comes out ends where nobody is left."""

    def decide(self, trip, state, summaries, draw):
        state, broadcast = super().decide(trip, state, summaries, draw)
        if not np.any(state["counts"]) and len(state["chosen"]):
            state = {**state, "chosen": state["chosen"][:1]}
        return state, broadcast


def released(program, pairs, trials, tools):
    """(trials, items and rounds) bool: which item came first, and how many came."""
    indicators = np.zeros((trials, len(ITEMS) + 3), bool)
    for n in range(trials):
        items = tools.run_program(program, pairs, f"audit {n}")
        if items:
            indicators[n, ITEMS.index(items[0])] = True
        indicators[n, len(ITEMS) : len(ITEMS) + len(items)] = True
    return indicators


def refuted(program, others, newcomer, tools):
    """Whether a divergence above the claim is shown, with ALPHA of error."""
    pairs = [(f"u{n}", item) for n, held in enumerate(others) for item in held]
    laws = [
        released(program, rows, TRIALS, tools) for rows in (pairs, pairs + [("new", i) for i in newcomer])
    ]
    bounds = [event_excess(p, q, EPSILON, ALPHA)[1] for p, q in (laws, laws[::-1])]
    return max(bounds) > DELTA


def test_the_audit_passes_the_product_with_a_selection(tools):
    """A user tips one item of the domain, and holds others that its choice moves."""
    plan = plan_of(k=2, epsilon=EPSILON, delta=DELTA)
    threshold = int(plan.selection.rounds[-1].threshold)
    others = [("item 0",)] * threshold + [("item 1",)] * (2 * threshold)
    assert not refuted(HittingSetProgram(plan, gather=True), others, ("item 0", "item 1", "item 2"), tools)


@pytest.mark.parametrize("fault, seen", [(HittingSetProgram, False), (WholeWeight, True), (StopsEarly, True)])
def test_the_audit_of_the_peeling_sees_planted_faults(fault, seen, tools):
    plan = plan_of(k=3, epsilon=EPSILON, delta=DELTA, public=True)
    program = fault(plan, domain_of(*ITEMS), gather=fault is HittingSetProgram)
    assert refuted(program, [], ("item 0",), tools) == seen
