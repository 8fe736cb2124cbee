"""Agents as record batches: what readers and callers hand over, before it becomes units and blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.errors import DataError, param
from dpbeam.kernels.canonical import (
    METADATA_KEY,
    STRING,
    Kinds,
    encode,
    invalid_utf8,
    is_list,
    plain,
    type_of,
)
from dpbeam.kernels.columns import Columns
from dpbeam.packing.config import Market
from dpbeam.packing.market import demand_units, partition_agents, value_units

AGENT, VALUE, DEMANDS = "agent", "value", "demands"


def agent_batch(
    agents: pa.Array, values: np.ndarray, demands: np.ndarray, metadata: dict[bytes, bytes]
) -> pa.RecordBatch:
    """Record batch (agent, value, demands: fixed-size list) of (n,) canonical bytes, (n,) and (n, m) float64."""
    flat = pa.array(np.ascontiguousarray(demands, np.float64).reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(flat, demands.shape[1])
    schema = pa.schema(
        [(AGENT, agents.type), (VALUE, pa.float64()), (DEMANDS, lists.type)], metadata=metadata
    )
    return pa.RecordBatch.from_arrays([agents, pa.array(values, pa.float64()), lists], schema=schema)


def canonical_agents(
    agents: pa.Array,
    values: pa.Array,
    demands: Sequence[pa.Array],
    market: Market,
    names: Sequence[str],
    wanted: str | None = None,
) -> pa.RecordBatch:
    """Columns of a caller as `agent_batch` makes them, checked.

    Args:
      demands: a column for each resource, or one of lists.
      names: of the columns, that of the agents first.
      wanted: the kind of the agents, where it is known.

    Raises:
      InputError: a column is of another type, or a number is out of its public bounds.
    """
    agent, value, *of_demands = names
    ids, kind = encode(agents, f"column '{agent}'")
    if wanted is not None and kind not in (None, wanted):
        raise DataError(f"'{agent}' holds {kind} values, and is taken for {wanted}: say agent_type='{kind}'")
    ids = check_agents(plain(ids), kind, agent)
    if len(demands) == 1 and is_list(demands[0].type):
        matrix = list_matrix(demands[0], market.size, of_demands[0])
        of_demands *= market.size
    else:
        matrix = np.column_stack([floats(column, name) for column, name in zip(demands, of_demands)])
    numbers = floats(values, value)
    check_numbers(numbers, matrix, market, value, of_demands)
    held = type_of(agents.type, f"column '{agent}'") or STRING
    return agent_batch(ids, numbers, matrix, Kinds.of_types(held, (held,)).metadata())


#: Names a row of a file in a message; None where rows have no names.
Where = Callable[[int], str] | None


def check_agents(agents: pa.Array, kind: str | None, name: str, where: Where = None) -> pa.Array:
    """Agents' canonical bytes, if all are there.

    Raises:
      InputError: one is null, empty, or no UTF-8.
    """
    if kind == STRING and len(bad := invalid_utf8(agents)):
        text = "is not valid UTF-8" if where else "holds a string that is not valid UTF-8"
        raise DataError(f"{_at(where, bad[0])}column '{name}' {text}")
    empty = pc.fill_null(pc.equal(pc.binary_length(agents), 0), True).to_numpy(zero_copy_only=False)
    if empty.any():
        text = "is empty" if where else "is empty in a row"
        raise DataError(f"{_at(where, empty.argmax())}column '{name}' {text}: every row needs its agent")
    return agents


def _at(where: Where, row: int) -> str:
    """How a message about a row begins."""
    return f"{where(int(row))}: " if where else ""


def check_numbers(
    values: np.ndarray,
    demands: np.ndarray,
    market: Market,
    value: str,
    names: Sequence[str],
    where: Where = None,
) -> None:
    """Hold values and demands against their public bounds.

    Raises:
      InputError: one is outside, or no number; the message names the column.
    """
    bounds = [market.max_value, *(resource.max_demand for resource in market.resources)]
    for column, bound, name in zip([values, *demands.T], bounds, [value, *names]):
        outside = ~((column >= 0) & (column <= bound))  # also where it is NaN
        if outside.any():
            raise DataError(
                f"{_at(where, outside.argmax())}column '{name}' holds no number in [0, {bound:g}]"
            )


def floats(column: pa.Array, name: str) -> np.ndarray:
    """(n,) float64 of a column of numbers, NaN for nulls.

    Raises:
      InputError: it holds something else.
    """
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        raise DataError(f"column '{name}' has type {kind}, expected numbers")
    return pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def list_matrix(lists: pa.Array, width: int, name: str, where: Where = None) -> np.ndarray:
    """(n, m) float64 of a column of lists.

    Raises:
      InputError: it holds something else, or lists of another length.
    """
    if not is_list(lists.type):
        raise DataError(f"column '{name}' has type {lists.type}, expected a list of numbers")
    odd = pc.fill_null(pc.not_equal(pc.list_value_length(lists), width), True).to_numpy(zero_copy_only=False)
    if odd.any():
        text = "does not hold a list" if where else "must hold lists"
        raise DataError(
            f"{_at(where, odd.argmax())}column '{name}' {text} of {width} numbers, one for each resource"
        )
    return floats(pc.list_flatten(lists), name).reshape(-1, width)


def demand_matrix(batch: pa.RecordBatch) -> np.ndarray:
    """(n, m) float64 of a batch of `agent_batch`."""
    lists = batch.column(DEMANDS)
    return pc.list_flatten(lists).to_numpy().reshape(-1, lists.type.list_size)


def check_resources(demands: np.ndarray, most: int | None) -> None:
    """Raises InputError where an agent demands more than `most` resources; None: any number."""
    if most is not None and (np.count_nonzero(demands, axis=1) > most).any():
        raise DataError(
            f"{param('max_resources_per_agent')}={most}: an agent demands more resources than that"
        )


def agent_messages(
    batch: pa.RecordBatch, plan_market: Market, max_resources: int | None, key: bytes, num_blocks: int
) -> Iterator[tuple[int, Columns]]:
    """The agents of a batch of `agent_batch`, split by block: (block, message).

    Raises:
      InputError: an agent demands more than `max_resources` resources.
    """
    demands = demand_matrix(batch)
    check_resources(demands, max_resources)
    units = demand_units(demands, plan_market.demand_factors, plan_market.limits)
    values = value_units(batch.column(VALUE).to_numpy(), 1.0 / plan_market.max_value)
    kinds = (batch.schema.metadata or {}).get(METADATA_KEY, b"")
    yield from partition_agents(batch.column(AGENT), values, units, key, num_blocks, kinds)
