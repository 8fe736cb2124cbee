"""The audit of the vote beyond what every selector gets; planted faults are in `dpbeam_lab.audit.methods.vote`."""

from types import SimpleNamespace

import pytest

from dpbeam.accounting.geometric import CountNoise
from dpbeam.engine.program import Keys
from dpbeam.selectors.vote.program import VoteProgram
from dpbeam_lab.audit.audit import Subject, audit, markdown
from dpbeam_lab.audit.neighbours import Neighbours, all_novel

ALPHA = 1e-6  # probability that one audit refutes a correct program
EPSILON, DELTA, MAX_ITEMS = 1.0, 0.05, 8


def plan(quota: int = 3) -> SimpleNamespace:
    program = VoteProgram(noise=CountNoise(EPSILON, DELTA), quota=quota, trips=6, max_items=MAX_ITEMS)
    config = SimpleNamespace(epsilon=EPSILON, delta=DELTA, max_items_per_user=MAX_ITEMS, min_users=None)
    return SimpleNamespace(program=program, config=config)


def cases() -> tuple[Neighbours, ...]:
    """Novel items; items on the way up, at the threshold and at the end of the law; votes that displace each other."""
    chain = tuple((i, i + 1) for i in range(5) for _ in range(3))
    return (
        all_novel(1),
        all_novel(8),
        *(Neighbours(f"item of {n} users", ((0,),) * n, (0,)) for n in (1, 2, 3, 5, 7)),
        Neighbours("a chain of full items", chain, (0, 1)),
        Neighbours("half novel", ((0, 1), (0, 2), (1, 2), (0,)), (0, 1, 7, 8)),
        Neighbours("at the quota", ((0, 1), (0, 1), (0, 1)), (0, 1, 2)),
        Neighbours("heavy user beyond D0", tuple((i, (i + 1) % 12) for i in range(12)), tuple(range(24))),
    )


def test_the_claim_is_kept():
    result = audit(plan(), trials=2_000, cases=cases(), alpha=ALPHA)
    assert result.passed, markdown([("vote", result)])


@pytest.mark.parametrize("case", [all_novel(8), Neighbours("item of 3 users", ((0,),) * 3, (0,))])
def test_the_claim_is_tight(case):
    """One way or the other a count that moves by one costs delta to the last unit; five standard errors of 3 %."""
    worst = audit(plan(), trials=20_000, cases=(case,)).worst("transcript")
    assert 0.85 < worst.estimate / worst.claimed < 1.15


def test_noise_of_a_larger_budget_is_refuted():
    class Quiet(Keys):
        def noise(self, spec, fp, place="noise", **below):
            return super().noise(CountNoise(2 * spec.epsilon, spec.delta, spec.round), fp, place, **below)

    result = audit(plan(), trials=1_000, cases=(all_novel(1),), subject=Subject(plan().program, keys=Quiet))
    assert [f.case for f in result.findings if f.violated and f.kind == "noise"] == [
        "noise of items in round 1 is not as stated"
    ]
