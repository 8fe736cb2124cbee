"""Tools of the hitting-set tests: small instances, the exact law of user peeling, programs on lists of pairs."""

import math

import numpy as np
import pytest

from dpbeam.engine.in_process import build_blocks, output_batches, run_trips
from dpbeam.engine.program import Keys
from dpbeam.hitting.cover import Cover, peel
from dpbeam.kernels.csr import Csr
from dpbeam.randomness import RunKey
from tests.support.instances import batches, csr


def hits(sets, items) -> int:
    """Users that hold one of the items, from Python sets."""
    return sum(bool(set(held) & set(items)) for held in sets)


def law(sets, size, k, epsilon0, peeling=peel):
    """{sequence of items: probability} of user peeling, by its definition run along every path of choices.

    Args:
      sets: one iterable of items 0..size - 1 per user.
      peeling: `peel`, or one with a fault.
    """
    outcomes: dict[tuple, float] = {}
    _follow(sets, size, k, epsilon0, peeling, (), 1.0, outcomes)
    return outcomes


class _Asked(Exception):
    """A path ends where a choice is to be made that it does not hold."""


def _follow(sets, size, k, epsilon0, peeling, path, weight, outcomes):
    asked = {}

    def choose(number, counts, positions):
        if number <= len(path):
            return int(np.flatnonzero(positions == path[number - 1])[0])
        asked["odds"] = dict(zip(positions.tolist(), softmax(epsilon0 * counts)))
        raise _Asked

    rows = Csr(csr(sets).offsets, csr(sets).links)
    cover = Cover.restricted(rows, np.arange(size))
    try:
        chosen = tuple(peeling([cover], cover.counts(size), k, choose))
        outcomes[chosen] = outcomes.get(chosen, 0.0) + weight
    except _Asked:
        for item, chance in asked["odds"].items():
            _follow(sets, size, k, epsilon0, peeling, (*path, item), weight * chance, outcomes)


def softmax(logs):
    weights = np.exp(logs - np.max(logs))
    return weights / weights.sum()


def divergence(first, second, epsilon):
    """sup over events of P(E) - e^epsilon Q(E) of two laws."""
    outcomes = {*first, *second}
    return sum(max(first.get(o, 0.0) - math.exp(epsilon) * second.get(o, 0.0), 0.0) for o in outcomes)


def run_program(program, pairs, key="hitting set", num_blocks=1, num_shards=1):
    """Chosen items, in process."""
    keys = Keys(RunKey.insecure_fixed(str(key)))
    blocks = build_blocks(batches(pairs), keys, program.cap, num_blocks=num_blocks, num_shards=num_shards)
    finished = run_trips(program, list(blocks), keys)
    rows = [row for batch in output_batches(program, finished) for row in batch.to_pylist()]
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["item"].decode() for row in rows]


@pytest.fixture(scope="session")
def tools():
    """The functions of this file, which tests cannot import."""

    class Tools:
        pass

    for function in (hits, law, divergence, run_program):
        setattr(Tools, function.__name__, staticmethod(function))
    return Tools
