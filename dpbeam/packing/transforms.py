"""Packing on Beam: agents to blocks, and `Packing`, the public PTransform."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.typehints import typehints
from typing_extensions import Unpack

from dpbeam.accounting.arguments import instance, text, truth
from dpbeam.accounting.ledger import Ledger
from dpbeam.engine.beam import coders as _coders  # noqa: F401  (registers the coders)
from dpbeam.engine.beam.blocks import BuildsBlocks, TakesBatches
from dpbeam.engine.beam.graph import RunProgram
from dpbeam.engine.beam.messages import receive, send
from dpbeam.engine.beam.run import bind_settings
from dpbeam.engine.beam.run_folder import in_run
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.engine.beam.trip_files import last_broadcast
from dpbeam.errors import DataError, SettingError, naming_arguments, param
from dpbeam.kernels.canonical import STRING, from_values
from dpbeam.kernels.pairs import Block
from dpbeam.packing.batches import (
    AGENT,
    DEMANDS,
    VALUE,
    agent_messages,
    canonical_agents,
    check_resources,
    demand_matrix,
)
from dpbeam.packing.config import Market, PackingPlan, make_plan, resources_of
from dpbeam.packing.family import ALLOCATION, PackingConfig
from dpbeam.packing.market import build_agents
from dpbeam.packing.posted import Posted
from dpbeam.packing.program import PackingProgram
from dpbeam.rows.elements import (
    Field,
    PairFields,
    Places,
    check_batch_input,
    is_row,
    kind_of_hint,
    plain_values,
    to_batches,
)
from dpbeam.rows.released import ReleasedFields
from dpbeam.selection.pipeline_run import PipelineRun, RunArguments
from dpbeam.selection.transforms import asked_for

# Agents times (resources + 1): a block of 32 MB, which a worker reads again for every round.
CELLS_PER_BLOCK = 8_000_000
# Above it one worker does not hold all blocks: 1.3 GB of demands and ids.
CELLS_IN_ONE_STEP = 200_000_000


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


@dataclass(frozen=True)
class AgentFields:
    """Where agents, their values and their demands lie in an element.

    Attributes:
      agent, value: of these; demand: one for each resource, or one of lists.
      kind: of the agents; None: whatever comes.
    """

    agent: Field
    value: Field
    demand: tuple[Field, ...]
    plan: PackingPlan
    kind: str | None = None

    @property
    def names(self) -> list[str]:
        """Of the fields, for messages; functions have none."""
        fields = ((self.agent, AGENT), (self.value, VALUE), *((field, DEMANDS) for field in self.demand))
        return [field if isinstance(field, str) else otherwise for field, otherwise in fields]

    def _places(self, *, tuples: bool = False) -> Places:
        demand = (DEMANDS,) if tuples else self.demand
        fields = (self.agent, self.value, *demand)
        labels = (*self.names[:2], *((DEMANDS,) if tuples else self.names[2:]))
        return Places(fields, labels, "(agent, value, demands)")

    def typed(self, hint: Any, agent_type: Any) -> AgentFields:
        """With the kind of the agents, of the input's type, or else of `agent_type`, or else strings.

        Raises:
          InputError: elements of this type hold no agents, or the types disagree.
        """
        tuples = isinstance(hint, typehints.TupleConstraint | typehints.TupleSequenceConstraint)
        hinted = kind_of_hint(self._places(tuples=tuples).hinted(hint, 0), self.names[0])
        (declared,) = PairFields.of(self.agent, "item", agent_type, "error").kinds
        if None not in (hinted, declared) and hinted != declared:
            raise SettingError(
                f"agent_type says {declared}, and the input's type that '{self.names[0]}' is {hinted}"
            )
        return replace(self, kind=hinted or declared or STRING)

    def of_batch(self, batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
        """The agents of a record batch or table. Raises InputError as `canonical_agents`."""
        columns = self._places().columns(batch)
        agents, values, *demands = (
            column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns
        )
        return self._checked(agents, values, demands, self.names)

    def of_rows(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """The agents of rows, dictionaries or tuples. Raises InputError as `canonical_agents`."""
        places = self._places(tuples=isinstance(rows[0], tuple | list) and not is_row(rows[0]))
        agents, values, *demands = places.read(rows)
        agent, value, *of_demands = places.labels
        lists = len(demands) == 1 and isinstance(demands[0][0], Sequence | np.ndarray)
        kind = pa.list_(pa.float64()) if lists else pa.float64()
        return self._checked(
            from_values(plain_values(agents), agent),
            _numbers(values, value, pa.float64()),
            [_numbers(column, name, kind) for column, name in zip(demands, of_demands)],
            places.labels,
        )

    def _checked(self, agents: Any, values: Any, demands: list[Any], names: Sequence[str]) -> pa.RecordBatch:
        batch = canonical_agents(agents, values, demands, self.plan.market, names, self.kind)
        check_resources(demand_matrix(batch), self.plan.config.max_resources_per_agent)
        return batch


def _numbers(values: list[Any], name: str, kind: pa.DataType) -> pa.Array:
    """A column of numbers or lists of them. Raises InputError."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
        raise DataError(f"column '{name}' holds something else than numbers") from None


class Packing(beam.PTransform):
    """Allocates scarce resources among agents under (epsilon, delta)-joint differential privacy.

        allocated = agents | dpbeam.Packing(
            epsilon=1, delta=1e-6, supplies={"beds": 120, "nurses": 300}, num_agents=10_000, agent="patient"
        )

    Takes a bounded PCollection of rows with a schema, dictionaries, (agent, value, [demands]) tuples,
    `pyarrow.RecordBatch` or `pyarrow.Table` (much faster), every agent in one row. Returns rows with a schema: the
    agent under its own name and of its own type, and `allocation`, a share of its bundle in [0, 1].

    Guarantee: privacy unit one agent, neighbours differ in the row of one agent, docs/explanation/packing.md. **What
    is returned is not private as a whole**: each row may be shown to its own agent alone. Public are the prices
    (`posted_prices`), which are (epsilon, delta)-differentially private.

    Memory of one worker: 4 bytes per demand and the agents' ids, of all agents; above CELLS_IN_ONE_STEP
    the command runs the rounds as a chain of jobs (`dpbeam.engine.beam.driver`).

    Args:
      config, market: all settings and all that is publicly known in two objects, in place of those that follow.
      epsilon, delta, alpha, failure_probability, integral, start_rounds, start_share: see `PackingConfig`.
      settle_share, max_rounds, margin, max_resources_per_agent, allow_small_supply: see `PackingConfig`.
      supplies, max_value: see `dpbeam.pack`; num_agents: how many agents there publicly are, at most.
      agent, value: names of fields or columns, by dots where they are nested, or functions of an element.
      demand: of a field for each resource, by default those with their names, or of one of lists.
      agent_type: as `item_type` of `SelectPartitions`.
      as_batches, run: see `SelectPartitions`.

    Raises:
      InputError: settings are out of range, the supply is too small, or the market is too large for one worker; on
        `expand`, elements of the input's type hold no agents.
      ValueError: the input is unbounded or windowed.
    """

    def __init__(
        self,
        config: PackingConfig | None = None,
        market: Market | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        alpha: float | None = None,
        failure_probability: float | None = None,
        integral: bool = False,
        start_rounds: int | None = None,
        start_share: float | None = None,
        settle_share: float | None = None,
        max_rounds: int | None = None,
        margin: bool = True,
        max_resources_per_agent: int | None = None,
        allow_small_supply: bool = False,
        supplies: Mapping[str, Any] | Sequence[Any] | None = None,
        num_agents: int | None = None,
        max_value: float = 1.0,
        agent: Field = AGENT,
        value: Field = VALUE,
        demand: Field | Sequence[str] | None = None,
        agent_type: Any = None,
        as_batches: bool = False,
        **run: Unpack[RunArguments],
    ):
        super().__init__()
        with naming_arguments():
            chosen = asked_for(
                PackingConfig,
                PackingConfig,
                config,
                epsilon=epsilon,
                delta=delta,
                alpha=alpha,
                failure_probability=failure_probability,
                integral=integral,
                start_rounds=start_rounds,
                start_share=start_share,
                settle_share=settle_share,
                max_rounds=max_rounds,
                max_resources_per_agent=max_resources_per_agent,
                allow_small_supply=allow_small_supply,
            )
            if not truth("margin", margin):
                chosen = replace(chosen, margin=False)
            known = _market(market, supplies, num_agents, max_value)
            self.plan = make_plan(chosen, known)
            self.plan.check_supply()
            self._as_batches, self._run = truth("as_batches", as_batches), PipelineRun(**run)
            names = tuple(resource.name for resource in known.resources)
            demands: tuple[Field, ...] = names
            if isinstance(demand, str) or callable(demand):
                demands = (demand,)
            elif demand is not None:
                demands = tuple(instance("demand", demand, list, tuple))
            self._fields = AgentFields(agent, value, demands, self.plan)
            for one in (agent, value, *demands):
                if not callable(one):
                    text("agent, value and demand", one)
            if len(demands) != 1 and (len(demands) != len(names) or set(demands) != set(names)):
                raise SettingError(
                    f"demand names one field of lists, or {', '.join(names)}, as supplies does"
                )
            if len(demands) > 1:
                self._fields = replace(self._fields, demand=names)
            self._agent_type = agent_type
            PairFields.of(agent, "item", agent_type, "error")
            self._output(self._fields)
            self._sizes = packing_sizes(known)
            if not self._sizes.one_step:
                raise SettingError(
                    f"num_agents={known.num_agents}: too many for one worker, which runs all rounds here; use dpbeam "
                    "pack"
                )

    @staticmethod
    def _output(fields: AgentFields) -> ReleasedFields:
        name = fields.names[0].rpartition(".")[2]
        allocation = pa.field(ALLOCATION, pa.float64(), nullable=False)
        return ReleasedFields(AGENT, (name,), (fields.kind,), (allocation,))

    def expand(self, pcoll: PCollection) -> PCollection:
        check_batch_input(pcoll)
        with naming_arguments():
            fields = self._fields.typed(pcoll.element_type, self._agent_type)
        run = self._run.begin(pcoll, self.ledger, "pack")
        program = PackingProgram(self.plan)
        allocated = (
            to_batches(pcoll, fields.of_batch, fields.of_rows)
            | "AgentBlocks" >> AgentBlocks(run.store, self.plan, self._sizes, fields.names[0])
            | "Rounds" >> RunProgram(run.store, program, one_step=True)
        )
        return run.labelled(self._output(fields).of(run.end(allocated, program), as_batches=self._as_batches))

    @property
    def ledger(self) -> Ledger:
        """What the run costs, for `Ledger.verify` and `dpbeam.export_event`; `Ledger.to_json` is for a file."""
        agent, value, *demands = self._fields.names
        about = {"agent_column": agent, "value_column": value, "demand_columns": demands}
        return PackingConfig.ledger(self.plan, fixed_key=self._run.fixed_key, input_parameters=about)

    def display_data(self) -> dict[str, Any]:
        return {"epsilon": self.plan.config.epsilon, "delta": self.plan.config.delta}


def _market(market: Market | None, supplies: Any, num_agents: int | None, max_value: float) -> Market:
    """What is publicly known. Raises InputError."""
    if market is not None:
        if supplies is not None or num_agents is not None:
            raise SettingError(
                "market says supplies, num_agents and max_value; give them there, or no market"
            )
        known: Market = instance("market", market, Market)
        return known
    if supplies is None or num_agents is None:
        raise SettingError(f"{param('supplies')} and {param('num_agents')} are required")
    return Market(resources_of(supplies), num_agents, max_value)


def posted_prices(plan: PackingPlan, run: RunFolder) -> Posted:
    """The prices of a run that has come to its end, before its folder is removed."""
    program = PackingProgram(plan)
    return Posted.of(plan, last_broadcast(program, run.store, program.trips))
