"""Faults of how programs are used, rather than of a program: each is refuted by its effect, and the product is not.

Each is planted where the product has its guard, and measured by what anybody could see.
"""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dpbeam.counts.gathered import public_domain
from dpbeam.engine.beam import blocks as block_stages
from dpbeam.engine.beam import messages
from dpbeam.engine.beam.store import RunFolder
from dpbeam.engine.in_process import build_blocks, output_batches, run_in_process, run_trips
from dpbeam.engine.program import Keys
from dpbeam.kernels.grid import UNITS
from dpbeam.randomness import RunKey
from dpbeam.randomness.discrete import gaussian, laplace
from dpbeam.randomness.discrete.tables import AliasTable
from dpbeam.selectors.registry import selectors
from dpbeam.topk import program as topk_program
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.program import TopKProgram, choose_from
from dpbeam_lab.audit.confidence import proportion_bounds
from dpbeam_lab.audit.faults import plan_of
from dpbeam_lab.audit.likelihood import Likelihood
from dpbeam_lab.audit.neighbours import Neighbours, names_of, numbers_of
from tests.support.instances import batches

LEVEL = 1e-6


def excess(hits_p: int, hits_q: int, trials: int, epsilon: float) -> float:
    """Lower bound on P(E) - e^eps Q(E), false with probability at most 1e-6."""
    low = proportion_bounds(hits_p, trials, LEVEL / 2)[0]
    return low - math.exp(epsilon) * proportion_bounds(hits_q, trials, LEVEL / 2)[1]


# One key, two runs.


def noisy_weights(
    plan, case: Neighbours, key: RunKey, *, with_newcomer: bool, copies: int
) -> dict[int, float]:
    """Released item number -> noisy weight, of one run over all copies."""
    users, items = case.pairs(copies, with_newcomer=with_newcomer)
    released = run_in_process(plan.program, [(names_of(users), names_of(items))], key)
    return dict(zip(numbers_of(released.items).tolist(), released.noisy_weight.tolist()))


@pytest.mark.parametrize("method", [name for name, s in selectors().items() if s.shows_weights])
@pytest.mark.parametrize("one_key", [True, False])
def test_two_runs_under_one_key_are_refuted(method, one_key):
    """An attacker subtracts the noisy weights of a run without the newcomer from those of a later one.

    Claimed of both runs together: (2 eps, 2 delta). E: the two weights of an item differ. Under one key E is certain
    with the newcomer, and impossible where neither run has it.
    """
    plan, copies = plan_of(method), 2_000
    case = Neighbours("popular", ((0,),) * 60, (0,))
    keys = [RunKey.insecure_fixed(f"two runs {0 if one_key else i}") for i in range(2)]
    first = noisy_weights(plan, case, keys[0], with_newcomer=False, copies=copies)
    hits = {}
    for there in (True, False):
        second = noisy_weights(plan, case, keys[1], with_newcomer=there, copies=copies)
        moved = np.array([second[item] - first[item] for item in first.keys() & second.keys()])
        assert len(moved) > 0.99 * copies
        hits[there] = int(np.count_nonzero(moved))
    violated = excess(hits[True], hits[False], len(moved), 2 * plan.config.epsilon) > 2 * plan.config.delta
    assert violated == one_key


# A public domain that nobody kept to.


def chosen_secret(domain_kept: bool, monkeypatch, runs: int = 80) -> tuple[int, int]:
    """How often a user's own item is chosen, with and without that user."""
    if not domain_kept:
        monkeypatch.setattr(
            topk_program, "choose_from", lambda plan, parts, domain, key: choose_from(plan, parts, None, key)
        )
    settings = TopKConfig(1.0, 0.05, 5, mechanism="cdp-peel", public_domain=True)
    names = pa.array([b"item 0", b"item 1"], pa.large_binary())
    program = TopKProgram(plan_topk(settings), public_domain(names))
    others = [(f"user {u}", f"item {u % 2}") for u in range(20)]
    hits = []
    for pairs in ([*others, ("one more", "secret")], others):
        times = 0
        for number in range(runs):
            keys = Keys(RunKey.insecure_fixed(f"domain {number}"))
            blocks = list(build_blocks(batches(pairs), keys, program.cap, num_blocks=1, num_shards=1))
            [ranking] = output_batches(program, run_trips(program, blocks, keys))
            times += b"secret" in ranking.column("item").to_pylist()
        hits.append(times)
    return hits[0], hits[1]


@pytest.mark.parametrize("domain_kept", [True, False])
def test_a_public_domain_that_is_not_kept_is_refuted(domain_kept, monkeypatch):
    hits = chosen_secret(domain_kept, monkeypatch)
    assert (excess(*hits, 80, 1.0) > 0.05) == (not domain_kept)


# Blocks by batch.


def pairs_that_arrive(tmp_path, num_blocks: int, num_groups: int) -> tuple[Counter, Counter]:
    """User rows that went in, and those that reach a group when an engine mixes two attempts at the first step.

    Group by group the engine has consumed the output of one attempt; the other met the batches in another order.
    """
    rng = np.random.default_rng(3)
    users = pa.array([f"user {u}" for u in rng.integers(0, 500, 6_000)], pa.large_string())
    items = pa.array([f"item {i}" for i in range(6_000)], pa.large_string())
    schema = pa.schema([("user", pa.large_string()), ("item", pa.large_string())])
    cut = [
        pa.RecordBatch.from_arrays([users.slice(s, 1_000), items.slice(s, 1_000)], schema=schema)
        for s in range(0, 6_000, 1_000)
    ]
    arrived: Counter = Counter()
    with RunFolder(str(tmp_path), RunKey.insecure_fixed("mixed attempts")) as run:
        for attempt, order in enumerate((cut, cut[::-1])):
            stage = block_stages._PartitionPairs(run.store, num_blocks, 100, num_blocks // num_groups)
            stage.setup()
            stage.start_bundle()
            elements = [element for batch in order for element in stage.process(batch)]
            elements += [element.value for element in stage.finish_bundle()]
            for group, message in elements:
                if group % 2 == attempt:
                    for columns in messages.receive(run.store, [message]):
                        arrived.update(columns["dictionary"].to_pylist())
    return Counter(name.encode() for name in items.to_pylist()), arrived


@pytest.mark.parametrize("by_batch", [False, True])
def test_blocks_by_batch_are_refuted(by_batch, tmp_path, monkeypatch):
    """Above 300 blocks: an engine that runs a step again after a part of its output was consumed loses no pair."""
    monkeypatch.setattr(block_stages, "PARTITION_ROWS", 1_000)
    if by_batch:
        true, sent = block_stages.partition_pairs, iter(range(1_000_000))

        def by_turns(*arguments, **options):
            turn = next(sent)
            return [((group + turn) % 8, columns) for group, columns in true(*arguments, **options)]

        monkeypatch.setattr(block_stages, "partition_pairs", by_turns)
    expected, arrived = pairs_that_arrive(tmp_path, 400, 8)
    assert (arrived != expected) == by_batch


# Tables of the exact noise.


def one_step_up(table: AliasTable) -> AliasTable:
    return AliasTable(table.column_bits, table.first, table.rest, table.values + np.int32(1))


def plant_step(method: str, level: int, monkeypatch) -> None:
    """Shift the table of one lattice, the finest being level 0."""
    spec = plan_of(method).rounds[0].noise
    scale = Fraction(spec.drawn_scale(UNITS))
    if spec.kind == "gaussian":
        variance, true = gaussian.gaussian_parts(scale)[level].variance, gaussian.part_table
        monkeypatch.setattr(
            gaussian, "part_table", lambda v: one_step_up(true(v)) if v == variance else true(v)
        )
        return
    tables = list(laplace.group_tables(scale))
    tables[level] = one_step_up(tables[level])
    monkeypatch.setattr(laplace, "group_tables", lambda _: tuple(tables))


@pytest.mark.parametrize("method", ["basic", "laplace"])
@pytest.mark.parametrize("level", [None, -1])
def test_the_coarsest_table_off_by_one_step_is_refuted(method, level, monkeypatch):
    """By measurement, as the audit measures noise; at `level` None nothing is planted.

    One step of the coarsest lattice is a fiftieth of a standard deviation. Finer ones are below what draws can show:
    tests/randomness/test_discrete_gaussian.py sees them in exact convolutions.
    """
    if level is not None:
        plant_step(method, level, monkeypatch)
    keys = Keys(RunKey.insecure_fixed("tables"))
    measured = Likelihood.measure(plan_of(method).program, keys, LEVEL, samples=500_000)
    assert bool(measured.fault) == (level is not None), measured.fault
