"""The definition of (epsilon, delta) on small inputs of bits: faulty tables break it; runs follow the output law."""

from collections import Counter, defaultdict

import pytest

from dpbeam.engine.in_process import run_blocks
from dpbeam.engine.program import Keys
from dpbeam_lab.audit.methods.bits import FAULTS
from dpbeam_lab.audit.neighbours import Neighbours, build, numbers_of
from tests.selectors.bits.test_bits import DELTA, EPSILON, delta_between, output_law, plan, tables_of
from tests.support.running import key
from tests.support.statistics import FALSE_ALARM, binomial_p


@pytest.mark.parametrize("fault", FAULTS[:3], ids=lambda fault: fault.name)
def test_faulty_tables_break_the_claim_by_definition(fault):
    chosen = plan(**{**fault.settings, "budget_split": (1.0,), "max_items_per_user": 2})
    broken = fault.build(chosen.calibration, fault.case)
    worst = [
        max(
            delta_between(
                ((frozenset({0}),) * n + (frozenset({1}),) * n),
                frozenset({0, 1}),
                tables_of(p),
                p.moves,
                EPSILON,
            )
            for n in range(16)
        )
        for p in (chosen.program, broken)
    ]
    assert worst[0] <= DELTA < worst[1]


def test_runs_follow_the_output_law():
    """Copies of a small input in one run; every released set as often as the law says. False alarm 1e-9 each."""
    sets = (
        frozenset({0, 1}),
        frozenset({0}),
        frozenset({0, 1, 2}),
        frozenset({1}),
        frozenset({0}),
        frozenset({1}),
    )
    chosen = plan(max_items_per_user=2, budget_split=(0.3, 0.7))
    law = output_law(sets, tables_of(chosen.program), chosen.program.moves)
    copies, case = 30_000, Neighbours("small", tuple(map(tuple, map(sorted, sets))), (0,))
    keys = Keys(key("law"))
    blocks = build(case, copies, keys, chosen.program.cap, with_newcomer=False)
    released_by_copy = defaultdict(set)
    for number in numbers_of(run_blocks(chosen.program, blocks, keys).items).tolist():
        released_by_copy[number // case.num_items].add(number % case.num_items)
    hits = Counter(frozenset(released_by_copy.get(copy, ())) for copy in range(copies))
    assert hits.keys() <= law.keys()
    for released, probability in law.items():
        assert binomial_p(hits[released], copies, probability) > FALSE_ALARM, released
    assert sum(0.02 < p < 0.98 for p in law.values()) >= 3
