"""`dpbeam.pack`: packing on data in memory, in this process, without Beam.

The same plan, program, kernels and ledger as on Beam: for one key the allocations are those of `dpbeam pack`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.accounting import arguments
from dpbeam.accounting.ledger import Ledger
from dpbeam.engine.in_process import output_batches, run_trips
from dpbeam.engine.program import Keys
from dpbeam.errors import DataError, SettingError, naming_arguments
from dpbeam.in_memory.frames import frame_columns
from dpbeam.in_memory.select import run_key, several_names, warn_of_budget
from dpbeam.in_memory.shown import ReleasedTable
from dpbeam.kernels.canonical import STRING, Kinds, decode, encode, plain
from dpbeam.kernels.columns import Columns
from dpbeam.packing.batches import (
    AGENT,
    agent_batch,
    agent_messages,
    check_agents,
    check_numbers,
    list_matrix,
)
from dpbeam.packing.config import Market, PackingPlan, make_plan, resources_of
from dpbeam.packing.family import ALLOCATION, ROW_NOTE, PackingConfig
from dpbeam.packing.market import build_agents
from dpbeam.packing.posted import Posted
from dpbeam.packing.program import PackingProgram
from dpbeam.randomness import RunKey

_ROWS_AT_ONCE = 1_000_000


@dataclass(frozen=True, repr=False)
class Packed(ReleasedTable):
    """What was allocated and what it cost.

    Attributes:
      table: columns `agent` and `allocation`, in the order of the input. NOT FOR PUBLICATION: a row may be shown to its
        own agent alone.
      prices: what is public, and explains every allocation.
      ledger: the ledger of the run, verified.
    """

    table: pa.Table
    prices: Posted
    ledger: Ledger

    rows = "agents"
    note = "NOT FOR PUBLICATION: a row may be shown to its own agent alone"


def pack(
    data: Any,
    *,
    epsilon: float,
    delta: float,
    supplies: Mapping[str, Any] | Sequence[Any],
    agent: str = "agent",
    value: str = "value",
    demand: str | Sequence[str] | None = None,
    num_agents: int | None = None,
    max_value: float = 1.0,
    alpha: float = 0.1,
    failure_probability: float = 1e-3,
    integral: bool = False,
    start_rounds: int = 30,
    start_share: float = 0.1,
    settle_share: float = 0.1,
    max_rounds: int = 1_000,
    margin: bool = True,
    max_resources_per_agent: int | None = None,
    allow_small_supply: bool = False,
    insecure_test_key: str | None = None,
) -> Packed:
    """Allocates scarce resources among agents, under (epsilon, delta)-joint differential privacy.

        result = dpbeam.pack(frame, supplies={"beds": 120, "nurses": 300}, epsilon=1, delta=1e-6)
        result.table, result.prices.average(), result.ledger

    Guarantee: privacy unit one agent, neighbours differ in the row of one agent; see docs/explanation/packing.md. A
    row of the result may be shown to its own agent alone; `prices` and `ledger` are public.

    Args:
      data: a frame of pandas or polars, a pyarrow table, or a mapping of columns; one row per agent.
      epsilon, delta: the budget of this call.
      supplies: resource -> supply, or -> {"supply": ..., "max_demand": ...}; a list for demands in one column.
      agent, value: names of columns.
      demand: names of the demand columns, by default those of the resources; or the name of one column of lists or
        of a two-dimensional array.
      num_agents: how many agents there publicly are, by default the rows.
      max_value: public bound of the values.
      alpha, failure_probability, integral, start_rounds, start_share, settle_share: see `PackingConfig`.
      max_rounds, margin, max_resources_per_agent, allow_small_supply: see `PackingConfig`.
      insecure_test_key: a fixed key for tests; the result is then NOT PRIVATE.

    Raises:
      InputError: settings are out of range, the supply is too small, or a column is missing or holds something else
        than agrees with the public bounds.
    """
    key = run_key(insecure_test_key)
    with naming_arguments():
        resources = resources_of(supplies)
    with naming_arguments():
        agents, values, demands, columns = _columns(data, agent, value, demand, [r.name for r in resources])
        config = PackingConfig(
            epsilon,
            delta,
            alpha,
            failure_probability,
            integral,
            start_rounds,
            start_share,
            settle_share,
            max_rounds,
            margin,
            max_resources_per_agent,
            allow_small_supply,
        )
        plan = _plan(config, resources, num_agents, len(agents), max_value)
    warn_of_budget(epsilon, delta, users=plan.market.num_agents)
    ids, kind = encode(agents, f"column '{agent}'")
    ids = check_agents(plain(ids), kind, agent)
    names = columns if len(columns) == plan.size else [columns[0]] * plan.size
    check_numbers(values, demands, plan.market, value, names)
    about = {"agent_column": agent, "value_column": value, "demand_columns": list(columns)}
    ledger = PackingConfig.ledger(plan, fixed_key=key.insecure, input_parameters=about)
    kinds = Kinds(kind or STRING, (kind or STRING,))
    batch = agent_batch(ids, values, demands, kinds.metadata())
    with naming_arguments():
        table, prices = run_in_memory(plan, batch, key, agent)
    return Packed(table, prices, ledger)


def run_in_memory(
    plan: PackingPlan, batch: pa.RecordBatch, key: RunKey, column: str = AGENT, *, num_blocks: int = 1
) -> tuple[pa.Table, Posted]:
    """Allocations, in the order of the batch, and prices, of agents that `agent_batch` made.

    Raises:
      InputError: an agent occurs twice, or demands more resources than are said to be the most.
      ValueError: the key has served a run.
    """
    key.spend()
    keys, program = Keys(key), PackingProgram(plan)
    messages: dict[int, list[Columns]] = {}
    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
        part = batch.slice(start, _ROWS_AT_ONCE)
        most = plan.config.max_resources_per_agent
        for number, message in agent_messages(part, plan.market, most, keys.pairs.user, num_blocks):
            messages.setdefault(number, []).append(message)
    blocks = [build_agents(number, messages.pop(number), column) for number in sorted(messages)]
    finished = run_trips(program, blocks, keys)
    del blocks
    got = list(output_batches(program, finished))
    agents = batch.column(AGENT)
    returned = pa.concat_arrays([part.column(AGENT) for part in got])
    shares = np.concatenate([part.column(ALLOCATION).to_numpy() for part in got])
    # Both hold the same agents once: sorted alike, rows meet.
    ours, theirs = (pc.array_sort_indices(side).to_numpy() for side in (agents, returned))
    ordered = np.empty(len(shares))
    ordered[ours] = shares[theirs]
    decoded = decode(agents.cast(pa.large_binary()), Kinds.of(batch.schema).item)[0]
    table = pa.table({AGENT: decoded, ALLOCATION: ordered}).replace_schema_metadata({"dpbeam": ROW_NOTE})
    return table, Posted.of(plan, finished.broadcast)


def _plan(
    config: PackingConfig, resources: Any, num_agents: int | None, rows: int, max_value: float
) -> PackingPlan:
    if not rows:
        raise DataError("there are no agents")
    plan = make_plan(config, Market(resources, rows if num_agents is None else num_agents, max_value))
    plan.check_supply()
    return plan


def _columns(
    data: Any, agent: str, value: str, demand: str | Sequence[str] | None, names: Sequence[str]
) -> tuple[Any, np.ndarray, np.ndarray, list[str]]:
    """Agents, values, demands of (n, m), and the names of the demand columns, in the order of the resources."""
    for argument, name in (("agent", agent), ("value", value)):
        arguments.text(argument, name)
    demand = list(names) if demand is None else demand
    listed = isinstance(demand, str) and [demand] != list(names)
    columns = list(several_names("demand", demand))
    if not listed:
        if sorted(columns) != sorted(names):
            raise SettingError(
                f"demand names {', '.join(columns)}, supplies {', '.join(names)}: they must be the same"
            )
        columns = list(names)
    if len({agent, value, *columns}) < 2 + len(columns):
        raise SettingError("agent, value and demand must name different columns")
    agents = frame_columns(data, [agent])[0].values
    numbers = [_numbers(_cell(data, name), name) for name in (value, *columns) if name == value or not listed]
    if listed:
        demands = _listed(_cell(data, columns[0]), columns[0], len(names))
    else:
        demands = np.column_stack(numbers[1:])
    if not len(agents) == len(numbers[0]) == len(demands):
        raise DataError("the columns differ in length")
    return agents, numbers[0], demands, columns


def _cell(data: Any, name: str) -> Any:
    try:
        return data[name]
    except (KeyError, IndexError, TypeError, ValueError, pa.ArrowException):
        raise DataError(f"data has no column '{name}'") from None
    except Exception as error:  # of polars and others, who have errors of their own
        raise DataError(f"data has no column '{name}': {type(error).__name__}") from None


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise DataError(f"column '{name}' holds something else than numbers") from None
    if numbers.ndim != 1:
        raise DataError(f"column '{name}' has {numbers.ndim} dimensions, not one")
    return numbers


def _listed(values: Any, name: str, width: int) -> np.ndarray:
    if isinstance(values, np.ndarray) and values.ndim == 2:
        try:
            numbers = values.astype(np.float64)
        except (TypeError, ValueError):
            raise DataError(f"column '{name}' holds something else than lists of numbers") from None
        if numbers.shape[1] != width:
            raise DataError(f"column '{name}' must hold {width} numbers, one for each resource")
        return numbers
    array = values
    if not isinstance(array, pa.Array | pa.ChunkedArray):
        try:
            array = pa.array(list(values), pa.list_(pa.float64()))
        except (pa.ArrowException, TypeError, ValueError):
            raise DataError(f"column '{name}' holds something else than lists of numbers") from None
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return list_matrix(array, width, name)
