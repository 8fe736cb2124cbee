"""Packing on Beam: agents to blocks, and `Packing`, the public PTransform."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection
from typing_extensions import Unpack

from dpbeam.accounting.arguments import instance, truth
from dpbeam.accounting.ledger import Ledger
from dpbeam.engine.beam import coders as _coders  # noqa: F401  (registers the coders)
from dpbeam.engine.beam.blocks import BuildsBlocks, TakesBatches
from dpbeam.engine.beam.graph import RunProgram
from dpbeam.engine.beam.messages import receive, send
from dpbeam.engine.beam.run import bind_settings
from dpbeam.engine.beam.run_folder import in_run
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.engine.beam.trip_files import last_broadcast
from dpbeam.errors import InputError
from dpbeam.kernels.canonical import Kinds, decode
from dpbeam.kernels.pairs import Block
from dpbeam.packing.batches import ALLOCATION, agent_messages, batch_of_tuples, canonical_agents
from dpbeam.packing.config import Market, PackingConfig, PackingPlan, make_plan
from dpbeam.packing.market import build_agents
from dpbeam.packing.posted import Posted
from dpbeam.packing.program import PackingProgram
from dpbeam.packing.report import packing_ledger
from dpbeam.selection.pipeline_run import PipelineRun, RunArguments
from dpbeam.selection.transforms import check_batch_input, no_mapping, to_batches

# Agents times (resources + 1): a block of 32 MB, which a worker reads again for every round.
CELLS_PER_BLOCK = 8_000_000
# Above it one worker does not hold all blocks: 1.3 GB of demands and ids.
CELLS_IN_ONE_STEP = 200_000_000


class Allocated(NamedTuple):
    """What one agent gets: a share of its bundle in [0, 1]. For this agent's eyes only."""

    agent: Any
    allocation: float

    def __contains__(self, value: object) -> bool:
        return no_mapping(self, value)


@dataclass(frozen=True)
class PackingSizes:
    """How many blocks there are, and whether one worker holds them all; allocations depend on neither."""

    num_blocks: int
    one_step: bool


def packing_sizes(market: Market, num_blocks: int | None = None) -> PackingSizes:
    """Sizes for a market.

    Args:
      num_blocks: the caller's choice; the engine then runs every round, however few the agents are.
    """
    cells = market.num_agents * (market.size + 1)
    if num_blocks is not None:
        return PackingSizes(num_blocks, one_step=False)
    return PackingSizes(max(1, -(-cells // CELLS_PER_BLOCK)), one_step=cells <= CELLS_IN_ONE_STEP)


class _Partition(TakesBatches):
    """Record batch of agents -> (block, message)."""

    def __init__(self, store: RunStore, plan: PackingPlan, num_blocks: int):
        super().__init__(store)
        self._market, self._num_blocks = plan.market, num_blocks
        self._max_resources = plan.config.max_resources_per_agent

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
        self.took(batch)
        if batch.num_rows:
            key = self._keys.pairs.user
            parts = agent_messages(batch, self._market, self._max_resources, key, self._num_blocks)
            yield from send(self._store, parts)


class _Build(BuildsBlocks):
    """(block, messages) -> (block, Block)."""

    def __init__(self, store: RunStore, column: str):
        super().__init__(store)
        self._column = column

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, Block]]:
        number, messages = element
        block = build_agents(number, list(receive(self._store, messages)), self._column)
        self.built(number, len(block.user_fp), block)  # every agent is one row
        yield number, block


class AgentBlocks(beam.PTransform):
    """Agents grouped into blocks: PCollection[pa.RecordBatch] -> PCollection[(int, Block)], one shuffle.

    Memory per worker: one block.

    Args:
      column: name of the agents' column in messages.
    """

    def __init__(self, store: RunStore, plan: PackingPlan, sizes: PackingSizes, column: str = "agent"):
        super().__init__()
        self._store, self._num_blocks = store, sizes.num_blocks
        self._partition = _Partition(store, plan, sizes.num_blocks)
        self._build = _Build(store, column)

    def expand(self, batches: PCollection) -> PCollection:
        bind_settings(self._store, "sizes", self._num_blocks)
        return (
            batches
            | "PartitionAgents" >> in_run(self._partition).with_output_types(tuple[int, bytes])
            | "GroupByBlock" >> beam.GroupByKey()
            | "BuildBlocks" >> in_run(self._build).with_output_types(tuple[int, Block])
        )


def _allocated(batch: pa.RecordBatch) -> list[Allocated]:
    """The rows of a record batch (agent: canonical bytes, allocation)."""
    agents = decode(batch.column("agent"), Kinds.of(batch.schema).item)[0].to_pylist()
    return list(map(Allocated, agents, batch.column(ALLOCATION).to_pylist()))


class Packing(beam.PTransform):
    """Allocates scarce resources among agents under (epsilon, delta)-joint differential privacy.

    Takes a bounded PCollection of (agent, value, demands) tuples, or of `pyarrow.RecordBatch` with these columns
    (much faster), every agent in one row, and returns a PCollection of `Allocated`:

        market = Market((Resource("beds", 120), Resource("nurses", 300)), num_agents=10_000)
        with RunFolder(temp_location) as run, beam.Pipeline(options=options) as pipeline:
            allocated = pipeline | beam.Create(agents) | Packing(config, market, run=run)

    Guarantee: privacy unit one agent, neighbours differ in the row of one agent, docs/explanation/packing.md. **What
    is returned is not private as a whole**: each element may be shown to its own agent alone. Public are the prices
    (`posted_prices`), which are (epsilon, delta)-differentially private.

    Memory of one worker: 4 bytes per demand and the agents' ids, of all agents; above CELLS_IN_ONE_STEP
    the command runs the rounds as a chain of jobs (`dpbeam.engine.beam.driver`).

    Args:
      market: what is publicly known.
      as_batches: return record batches (agent: canonical bytes, allocation) with the kinds in their metadata.
      run: as in `SelectPartitions`.

    Raises:
      InputError: settings are out of range, the supply is too small, or the market is too large for one worker.
      ValueError: the input is unbounded or windowed.
    """

    def __init__(
        self,
        config: PackingConfig,
        market: Market,
        *,
        as_batches: bool = False,
        **run: Unpack[RunArguments],
    ):
        super().__init__()
        self.plan = make_plan(instance("config", config, PackingConfig), instance("market", market, Market))
        truth("as_batches", as_batches)
        self.plan.check_supply()
        self._run, self._as_batches = PipelineRun(**run), as_batches
        self._sizes = packing_sizes(market)
        if not self._sizes.one_step:
            raise InputError(
                f"num_agents={market.num_agents}: too many for one worker, which runs all rounds here; use dpbeam pack"
            )

    def expand(self, pcoll: PCollection) -> PCollection:
        check_batch_input(pcoll)
        run = self._run.begin(pcoll, self.ledger, "pack")
        market = self.plan.market
        agents = to_batches(
            pcoll, partial(canonical_agents, market=market), partial(batch_of_tuples, market=market)
        )
        allocated = (
            agents
            | "AgentBlocks" >> AgentBlocks(run.store, self.plan, self._sizes)
            | "Rounds" >> RunProgram(run.store, PackingProgram(self.plan), one_step=True)
        )
        allocated = run.end(allocated)
        if not self._as_batches:
            allocated = allocated | "ToAllocated" >> beam.FlatMap(_allocated).with_output_types(Allocated)
        return run.labelled(allocated)

    @property
    def ledger(self) -> Ledger:
        """What the run costs, for `Ledger.verify` and `dpbeam.export_event`; `Ledger.to_json` is for a file."""
        return packing_ledger(
            self.plan, fixed_key=self._run.fixed_key, input_parameters={"agent_column": "agent"}
        )


def posted_prices(plan: PackingPlan, run: RunFolder) -> Posted:
    """The prices of a run that has come to its end, before its folder is removed."""
    program = PackingProgram(plan)
    return Posted.of(plan, last_broadcast(program, run.store, program.trips))
