"""Every program of every family on small made-up data, to be run under many keys: audits of what is drawn.

Selections walk the registry, so that a new selector is there by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpbeam.counting.config import plan_count
from dpbeam.counting.family import CountConfig
from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.in_process import run_trips
from dpbeam.engine.program import Draw, Keys, Program
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard
from dpbeam.packing.batches import agent_batch, agent_messages
from dpbeam.packing.config import Market, Resource, make_plan
from dpbeam.packing.family import PackingConfig
from dpbeam.packing.market import GRID_BITS, build_agents
from dpbeam.packing.program import PackingProgram
from dpbeam.randomness import RunKey
from dpbeam.selection.config import SelectionConfig
from dpbeam.selectors.registry import DEFAULT_METHOD, defaults, variants
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.program import topk_program
from dpbeam_lab.audit.draws import Drawn, Watched
from dpbeam_lab.audit.faults import DELTA, EPSILON, plan_of
from dpbeam_lab.audit.neighbours import Neighbours, build, names_of, numbered_domain

Build = Callable[[Any], Program]
_LEVELS = Neighbours("levels", tuple((i,) for i in range(90) for _ in range(i // 3)), (0,))
_POPULAR = Neighbours("items that all hold", (tuple(range(6)),) * 60, tuple(range(6)))
_MOVES = 5  # keys under which what a user moves is measured
_BIT_RUNS = 30  # a coin tells less of its scale than a number
_RESOURCES, _AGENTS = 8, 40


@dataclass(frozen=True)
class Running:
    """A program and what it runs on.

    Attributes:
      program: as it is planned; stated: the noise that its plan's events pay for.
      blocks: keys of a run -> its blocks.
      runs: keys after which a scale that is off by 0.3 shows in every draw, at a p-value of 1e-6.
      move: from what runs to the largest norm by which one user moves what the last noise is added to, as a share of
        what that noise is made for; None where rankings tell.
    """

    program: Program
    stated: Sequence[Any]
    blocks: Callable[[Keys], list[Block]]
    runs: int
    move: Callable[[Program], float] | None = None

    def drawn(self, runs: int, *, keys: type[Keys] = Keys, build: Build | None = None) -> Drawn:
        """What runs under so many keys draw.

        Args:
          keys, build: for planted faults, what is drawn by, and what becomes of the program.
        """
        draws = Drawn()
        for number in range(runs):
            mine = keys(RunKey.insecure_fixed(f"drawn {number}"))
            program = self.program if build is None else build(self.program)
            run_trips(Watched(program, draws), self.blocks(mine), mine)
        return draws


def programs() -> dict[str, Callable[[], Running]]:
    """All of them by name, made when they are called."""
    by_name: dict[str, Callable[[], Running]] = {}
    for name, settings in variants().items():
        by_name[f"select, {name}"] = partial(_selection, settings, 3, 4)
    for name, settings in defaults().items():
        by_name[f"counts, {name}"] = partial(_selection, {**settings, "noisy_counts": True}, 30, 1)
    by_name["top-k, gauss-rank"] = partial(_ranking, None)
    by_name[f"top-k, gauss-rank after {DEFAULT_METHOD}"] = partial(_ranking, DEFAULT_METHOD)
    by_name["count"] = _counting
    by_name["count, beside a selection"] = _counting_beside
    by_name["pack"] = _packing
    return by_name


def _built(case: Neighbours, copies: int, cap: int) -> Callable[[Keys], list[Block]]:
    return lambda keys: build(case, copies, keys, cap, with_newcomer=True)


def _selection(settings: dict[str, Any], runs: int, copies: int) -> Running:
    plan = plan_of(**settings)
    noises: list[Any] = plan.program.noises()
    if any(spec.bits for spec in noises):
        runs, copies = _BIT_RUNS, 4
    move = None if plan.counts is None else _move_of_counts
    return Running(plan.program, plan.event.noises(), _built(_LEVELS, copies, plan.program.cap), runs, move)


class _Noted(Forwarding):
    """Keeps the last exact sums, the demand of the first round, and what the hub said."""

    def __init__(self, inner: Program):
        super().__init__(inner)
        self.sums = self.demand = np.zeros(0, np.int64)
        self.broadcasts: list[Columns] = []

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        self.sums = self.exact(trip, shard).units
        return super().observe(trip, shard, noisy, present)

    def decide(
        self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw
    ) -> tuple[Columns, Columns]:
        if "demand" in summaries[0] and not trip:
            self.demand = np.sum([summary["demand"] for summary in summaries], axis=0)
        state, broadcast = super().decide(trip, state, summaries, draw)
        self.broadcasts.append(broadcast)
        return state, broadcast


def _move_of_counts(program: Program) -> float:
    """By a user of items that are surely released, where the histogram with and without it leads to one clip."""
    largest = 0.0
    for number in range(_MOVES):
        keys, sides = Keys(RunKey.insecure_fixed(f"move {number}")), []
        for there in (False, True):
            noted = _Noted(program)
            run_trips(noted, build(_POPULAR, 1, keys, program.cap, with_newcomer=there), keys)
            sides.append(noted)
        if sides[0].broadcasts[-1]["way"] == sides[1].broadcasts[-1]["way"]:
            moved = (sides[1].sums - sides[0].sums) / UNITS
            largest = max(largest, float(np.linalg.norm(moved)))
    return largest


def _ranking(method: str | None) -> Running:
    selection = None if method is None else SelectionConfig(EPSILON, DELTA, method)
    plan = plan_topk(TopKConfig(EPSILON, DELTA, 5, selection=selection, public_domain=method is None))
    program = topk_program(plan, None if method else numbered_domain(_LEVELS.num_items))
    return Running(program, plan.event.noises(), _built(_LEVELS, 1, program.cap), 40)


def _counting() -> Running:
    plan = plan_count(CountConfig(EPSILON, DELTA))
    program = plan.program(numbered_domain(_LEVELS.num_items))
    return Running(program, plan.event.noises(), _built(_LEVELS, 1, program.cap), 40)


def _counting_beside() -> Running:
    """A list, and users who hold nothing of list and release, beside a selection."""
    plan = plan_of(method="basic", noisy_counts=True, others=True)
    program = plan.program_beside(numbered_domain(_LEVELS.num_items // 2))
    return Running(program, plan.event.noises(), _built(_LEVELS, 1, program.cap), 40)


def _packing() -> Running:
    market = Market(tuple(Resource(f"r{j}", 2.0 * _AGENTS) for j in range(_RESOURCES)), _AGENTS)
    plan = make_plan(PackingConfig(EPSILON, DELTA, alpha=0.3, allow_small_supply=True), market)
    rng = np.random.default_rng(0)
    values, demands = rng.random(_AGENTS), rng.random((_AGENTS, _RESOURCES))

    def blocks(keys: Keys, first: float | None = None) -> list[Block]:
        """The first agent's row is replaced where `first` says by what."""
        if first is not None:
            values[0], demands[0] = first, first
        rows = agent_batch(names_of(np.arange(_AGENTS)), values, demands, {})
        messages = [part for _, part in agent_messages(rows, market, None, keys.pairs.user, 1)]
        return [build_agents(0, messages)]

    def move(program: Program) -> float:
        """By an agent that demands nothing, or all of everything; the first prices of so large a supply add up to 1."""
        sides = []
        for first in (0.0, 1.0):
            noted, keys = _Noted(program), Keys(RunKey.insecure_fixed("move"))
            run_trips(noted, blocks(keys, first), keys)
            sides.append(noted.demand / (1 << GRID_BITS))
        return float(np.linalg.norm(sides[1] - sides[0])) / (math.sqrt(_RESOURCES) * (1 + 1e-12))

    return Running(PackingProgram(plan), plan.event.noises(), blocks, 1, move)
