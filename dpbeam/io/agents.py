"""Agents in, allocations out: an id, a value and demands per row, from every format with columns (`dpbeam.io.formats`).

Demands are one column per resource, or one column of lists. Numbers are held against their public bounds here, where
file and row can be named; what is wrong is said, its value never. Files are matched, split into units and decompressed
as for pairs (`dpbeam.io.sources`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import PCollection

from dpbeam.engine.beam.receipts import mark_batch, plan_reading
from dpbeam.engine.beam.store import RunStore
from dpbeam.errors import DataError, SettingError
from dpbeam.io.files import check_names, match_distinct
from dpbeam.io.formats import find, formats, infer_format
from dpbeam.io.formats.base import Piece
from dpbeam.io.paths import local_path
from dpbeam.io.readers import PlainUnit, WorkUnit
from dpbeam.io.rows import Counts, Rows, mixed_types
from dpbeam.io.sinks import OutputColumns, WriteReleased
from dpbeam.io.sources import InputSummary, UnitDoFn, deal_units, notes_on
from dpbeam.io.spec import InputSpec
from dpbeam.io.spool import Spool
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import ID_KINDS, INT, STRING, Kinds, kind_of_type
from dpbeam.packing.batches import (
    AGENT,
    agent_batch,
    check_agents,
    check_numbers,
    floats,
    list_matrix,
)
from dpbeam.packing.config import Market
from dpbeam.packing.family import ALLOCATION, ROW_NOTE, PackingConfig

_ROWS = 1 << 18  # at once


@dataclass(frozen=True)
class AgentSpec(InputSpec):
    """Where agents are read from; made by `AgentSpec.of`.

    Attributes:
      listed: the demands are one column of lists.
    """

    listed: bool = False

    @classmethod
    def of(
        cls,
        patterns: Sequence[str],
        *,
        agent_column: str,
        value_column: str,
        demand_columns: Sequence[str],
        listed: bool = False,
        format: str | None = None,
        agent_type: str | None = None,
    ) -> AgentSpec:
        """A checked spec. Raises InputError."""
        paths = tuple(local_path(pattern, "--agents") for pattern in patterns)
        if not paths:
            raise SettingError("--agents: no file or pattern given")
        input_format = format or infer_format(paths, "--agents")
        known = [format.name for format in formats() if format.has_columns and not format.is_table]
        if input_format not in known:
            raise SettingError(
                f"--input_format: agents are read from {', '.join(known)}, got '{input_format}'"
            )
        if listed and not find(input_format).has_lists:
            raise SettingError(
                f"--demand_column: {input_format} has no lists; give one column for each resource"
            )
        columns = [agent_column, value_column, *demand_columns]
        if len(set(columns)) < len(columns) or "" in columns:
            raise SettingError(
                "--agent_column, --value_column and --demand_column must name different columns"
            )
        if agent_type is not None and agent_type not in ID_KINDS:
            raise SettingError(f"--agent_type: expected one of {', '.join(ID_KINDS)}, got '{agent_type}'")
        return cls(
            patterns=paths,
            format=input_format,
            user_column=agent_column,
            item_columns=(value_column, *demand_columns),
            item_types=None if agent_type is None else (agent_type,),
            listed=listed,
        )

    def flag_of(self, column: str) -> str:
        if column == self.user_column:
            return "--agent_column"
        return "--value_column" if column == self.item_columns[0] else "--demand_column"

    @property
    def declared_types(self) -> tuple[str, ...]:
        """Of the value and the demands, where they are text: numbers are parsed here."""
        return (STRING,) * len(self.item_columns)

    @property
    def numbers(self) -> tuple[str, ...]:
        return self.item_columns

    @property
    def lists(self) -> tuple[str, ...]:
        return self.item_columns[1:] if self.listed else ()

    @property
    def fix_row(self) -> str:
        return "fix the line"

    def agent_type(self, declared: str | None) -> str:
        """The type of the agents, from a schema or the flag, never from a value."""
        flag = None if self.item_types is None else self.item_types[0]
        if declared is not None and flag in (None, kind_of_type(declared)):
            return declared
        return flag or STRING


def preflight_agents(spec: AgentSpec, *, temp_location: str | None = None) -> InputSummary:
    """Match the patterns, look at every file's columns, and count the rows.

    Raises:
      InputError: no files, a file that is not of the format, a missing column, or one of a wrong type.
    """
    form = spec.file_format
    form.check_installed()
    with Spool(temp_location) as spool:
        files, again = match_distinct(spool.replace(spec.patterns, spec.format), "--agents")
        check_names(files, "--agents")
        declared: tuple[str, str] | None = None  # the type of the agents, and the file that says so
        rows = 0
        for file in files:
            form.check_file(file.path, file.size)
            form.check_head(file.path, formats())
            rows += form.count_rows(file.path, spec)
            held = form.look(Piece(file.path, 0, file.size), spec).user if form.declares_types else None
            if held is not None:
                declared = declared or (held, file.path)
                if held != declared[0]:
                    raise mixed_types(file.path, spec.user_column or "", held, *declared)
    agents = spec.agent_type(None if declared is None else declared[0])
    size = sum(file.size for file in files)
    return InputSummary(
        tuple(files), size, rows, None, False, Kinds.of_types(agents, (agents,)), notes_on(again), spool=spool
    )


def any_agent(spec: AgentSpec, summary: InputSummary) -> bool:
    """Whether an input has a row: blank lines are none. Raises InputError for bad input before it."""
    pieces = (Piece(file.path, 0, file.size) for file in summary.files)
    read = (spec.file_format.read_pieces([piece], spec, summary.kinds, Counts()) for piece in pieces)
    return any(len(rows) for rows in itertools.chain.from_iterable(read))


def read_agents(
    unit: PlainUnit, spec: AgentSpec, kinds: Kinds, market: Market, counts: Counts
) -> Iterator[pa.RecordBatch]:
    """The agents of a unit of work: record batches (agent: canonical bytes, value, demands: fixed-size list).

    Raises:
      InputError: naming file, row and column, never a value.
    """
    pieces = WorkUnit.of(unit).pieces
    for rows in spec.file_format.read_pieces(pieces, spec, kinds, counts):
        for start in range(0, len(rows), _ROWS):
            yield _checked(_part(rows, start), spec, kinds, market)


def _part(rows: Rows, start: int) -> Rows:
    agents: Any = rows.user
    return Rows(
        agents.slice(start, _ROWS),
        [column.slice(start, _ROWS) for column in rows.items],
        lambda row: rows.where(start + row),
        path=rows.path,
    )


def _checked(rows: Rows, spec: AgentSpec, kinds: Kinds, market: Market) -> pa.RecordBatch:
    name = spec.user_column or ""
    agents, kind = canonical.encode(_typed(rows, name, kinds), f"{rows.path}: column '{name}'")
    agents = check_agents(canonical.plain(agents), kind, name, rows.where)
    value_name, *names = spec.item_columns
    value = _numbers(rows, 0, value_name)
    if spec.listed:
        demands = list_matrix(rows.items[1], market.size, names[0], rows.where)
        names *= market.size
    else:
        demands = np.column_stack([_numbers(rows, place, name) for place, name in enumerate(names, 1)])
    check_numbers(value, demands, market, value_name, names, rows.where)
    return agent_batch(agents, value, demands, kinds.metadata())


def _typed(rows: Rows, name: str, kinds: Kinds) -> pa.Array:
    """The agents as the kind that they are to be; text is parsed where integers are declared."""
    agents: Any = rows.user
    if kinds.user == INT and pa.types.is_large_string(agents.type):
        values, bad = canonical.parse_int64(agents.fill_null("").cast(pa.large_binary()))
        if len(bad):
            raise DataError(f"{rows.where(int(bad[0]))}: column '{name}' holds no 64-bit integer")
        return values
    return agents


def _numbers(rows: Rows, place: int, name: str) -> np.ndarray:
    """(n,) float64 of a column of numbers, or of text that holds them; NaN for what is missing."""
    column = rows.items[place]
    if not pa.types.is_large_string(column.type):
        return floats(column, name)
    try:
        text = pc.utf8_trim_whitespace(column)
        text = pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
        return floats(pc.cast(text, pa.float64()), name)
    except pa.ArrowInvalid:
        if len(odd := canonical.invalid_utf8(column.cast(pa.large_binary()))):
            row = int(odd[0])
        else:
            cells = enumerate(text.to_pylist())
            row = next(i for i, cell in cells if cell is not None and not _is_number(cell))
        raise DataError(f"{rows.where(row)}: column '{name}' holds no number") from None


def _is_number(text: str) -> bool:
    try:
        pc.cast(pa.array([text]), pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


class _ReadAgents(UnitDoFn):
    """Unit of work -> record batches of its agents."""

    def __init__(self, store: RunStore, spec: AgentSpec, kinds: Kinds, market: Market):
        super().__init__(store)
        self._spec, self._kinds, self._market = spec, kinds, market

    def process(self, unit: PlainUnit) -> Iterator[pa.RecordBatch]:
        number, place, counts = unit[0], 0, Counts()
        for batch in read_agents(unit, self._spec, self._kinds, self._market, counts):
            yield mark_batch(batch, number, place)
            place += 1
        self.leave_receipts(number, place, counts)


class ReadAgents(beam.PTransform):
    """Read agents: PBegin -> PCollection[pa.RecordBatch(agent: canonical bytes, value, demands)].

    Args:
      store: of the run, where receipts of what was read are left.
    """

    def __init__(self, spec: AgentSpec, summary: InputSummary, market: Market, store: RunStore):
        super().__init__()
        self._store = store
        self._read = beam.ParDo(_ReadAgents(store, spec, summary.kinds, market))
        self._units = deal_units(summary.files, spec)

    def expand(self, begin: beam.pvalue.PBegin) -> PCollection:
        plan_reading(self._store, [number for number, _ in self._units])
        return (
            begin
            | "WorkUnits" >> beam.Create(self._units)
            | "SpreadUnits" >> beam.Reshuffle()
            | "ReadUnits" >> self._read.with_output_types(pa.RecordBatch)
        )


def _as_items(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = pa.schema(
        [("item", pa.large_binary()), (ALLOCATION, pa.float64())], metadata=batch.schema.metadata
    )
    return pa.RecordBatch.from_arrays([batch.column(AGENT), batch.column(ALLOCATION)], schema=schema)


class WriteAllocations(beam.PTransform):
    """Write (agent, allocation) to the staging folder: PCollection[pa.RecordBatch] -> PCollection[str], the paths.

    A row per agent, sharded and sorted as released items are: where it lies follows from the ids alone.

    Args:
      column: name of the agents' column.
      folder, format, num_output_shards: as in `WriteReleased`.

    Raises:
      InputError: the column has the name of the allocation.
    """

    def __init__(
        self, folder: str, column: str, kinds: Kinds, format: str, num_output_shards: int | None = None
    ):
        super().__init__()
        if column == ALLOCATION:
            raise SettingError(f"--agent_column: '{ALLOCATION}' is a column of the output; rename yours")
        columns = OutputColumns((column,), kinds.item, PackingConfig.added, ROW_NOTE)
        self._write = WriteReleased(folder, columns, format, num_output_shards)

    def expand(self, allocated: PCollection) -> PCollection:
        items = allocated | "AsItems" >> beam.Map(_as_items).with_output_types(pa.RecordBatch)
        return items | "Write" >> self._write
