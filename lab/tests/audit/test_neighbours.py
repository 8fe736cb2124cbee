"""Neighbouring inputs in many copies, and runs that write down or take over a transcript."""

import numpy as np
import pytest

from dpbeam.accounting.noise import LINF
from dpbeam.engine.in_process import run_blocks
from dpbeam.engine.program import Keys
from dpbeam.kernels.grid import UNITS
from dpbeam.randomness import RunKey
from dpbeam.selectors.registry import variants
from dpbeam_lab.audit.faults import plan_of, short_identity
from dpbeam_lab.audit.methods import study
from dpbeam_lab.audit.neighbours import Neighbours, all_novel, build, names_of, numbers_of
from dpbeam_lab.audit.transcript import run_observed
from dpbeam_lab.audit.worst_cases import worst_cases

VARIANTS = variants()

CASE = Neighbours("example", ((0, 1), (1,)), (1, 2, 3))


def keys(text: str = "neighbours") -> Keys:
    return Keys(RunKey.insecure_fixed(text))


def test_names_and_numbers_are_inverse():
    numbers = np.array([0, 1, 255, 256, 2**32, 2**40 + 7], np.int64)
    names = names_of(numbers)
    assert len(set(names.to_pylist())) == 6
    assert (numbers_of(names) == numbers).all()
    assert (numbers_of(names[2:5]) == numbers[2:5]).all()
    assert len(numbers_of(names_of(numbers[:0]))) == 0


def test_copies_share_nothing():
    users, items = CASE.pairs(3, with_newcomer=True)
    assert CASE.num_items == 4
    rows = set(zip(users.tolist(), items.tolist()))
    assert len(rows) == 3 * 6
    by_copy = [{u for u, i in rows if i // 4 == c} for c in range(3)]
    assert all(len(group) == 3 for group in by_copy)
    assert len(set.union(*by_copy)) == 9


def test_newcomer_is_the_namesake_of_the_first_user_alone():
    """Under 32 bits of identity the newcomer of a copy merges with the first user of that copy and nobody else."""
    users, items = CASE.pairs(4, with_newcomer=True)
    merged = short_identity(users)
    assert len(np.unique(merged)) == 8
    first = CASE.pairs(4, with_newcomer=False)[0]
    assert set(merged.tolist()) == set(first.tolist())
    assert (merged[items % 4 == 3] % 2 == 0).all()


def test_build_without_others_is_empty():
    case = all_novel(3)
    assert build(case, 5, keys(), 8, with_newcomer=False) == []
    (block,) = build(case, 5, keys(), 8, with_newcomer=True)
    assert (block.degrees == 3).all()
    assert block.num_items == 15


@pytest.mark.parametrize("name", VARIANTS)
def test_worst_cases_are_valid(name):
    plan = plan_of(**VARIANTS[name])
    cases = worst_cases(plan)
    assert len({c.name for c in cases}) == len(cases)
    for case in cases:
        assert len(set(case.newcomer)) == len(case.newcomer)
        assert all(len(set(items)) == len(items) for items in case.others)
    assert {len(c.newcomer) for c in cases} >= {1, 8, 24}
    assert {c.name for c in cases} >= {c.name for c in study(plan.selector.name).hard_cases(plan)}


@pytest.mark.parametrize("name", VARIANTS)
def test_dictated_run_has_the_same_transcript_and_only_the_newcomer_differs(name):
    """The sums of the two runs differ by a vector of norm at most one in every copy and round."""
    plan = plan_of(**VARIANTS[name])
    copies, case = 200, Neighbours("mixed", ((0, 1), (0,), (1, 2)), (0, 1, 3, 4))
    size = copies * case.num_items
    run_keys = keys(name)
    without, there = (build(case, copies, run_keys, plan.program.cap, with_newcomer=w) for w in (False, True))
    real = run_observed(plan.program, without, run_keys, size)
    other = run_observed(plan.program, there, run_keys, size, real)
    assert real.noisy_trips() == other.noisy_trips()
    assert len(real.noisy_trips()) == len(plan.rounds)
    moved = np.zeros((copies, case.num_items))
    for number in real.noisy_trips():
        assert (real.noisy[number] == other.noisy[number]).all()
        difference = (other.sums[number] - real.column("sums", number)).reshape(copies, -1) / UNITS
        same = ~(real.released[number] ^ other.released[number]).reshape(copies, -1).any(axis=1)
        moves = (
            np.abs(difference[same]) if plan.program.norm == LINF else np.square(difference[same]).sum(axis=1)
        )
        assert (moves <= 1 + 1e-6).all()
        moved += np.abs(difference)
    assert (moved.sum(axis=1) > 0).mean() > 0.5


def test_real_run_is_not_disturbed_by_being_observed():
    plan = plan_of("gsu", rounds=4)
    case = Neighbours("crowd", ((0, 1),) * 12, (0, 2))
    blocks = build(case, 50, keys(), plan.program.cap, with_newcomer=True)
    expected = set(numbers_of(run_blocks(plan.program, blocks, keys()).items).tolist())
    seen = run_observed(plan.program, blocks, keys(), 150)
    assert set(np.flatnonzero(seen.released[3]).tolist()) == expected
    assert 20 < len(expected) < 150
