"""Reading agents: an id, a value and demands per row, from Parquet, CSV, TSV or JSON lines.

Demands are one column per resource, or one column of lists. Numbers are held against their public bounds here, where
file and row can be named; what is wrong is said, its value never. Files are matched, split into units and decompressed
as for pairs (`dpbeam.io.sources`).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import apache_beam as beam
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from apache_beam.pvalue import PCollection

from dpbeam.errors import InputError
from dpbeam.io import delimited
from dpbeam.io.files import InputFile, match_distinct, open_input
from dpbeam.io.lines import Chunk, chunks
from dpbeam.io.parquet import complaint, first_byte
from dpbeam.io.paths import absolute, compression_of, infer_format, local_path
from dpbeam.io.readers import Piece
from dpbeam.io.rows import Counts, is_list
from dpbeam.io.sources import InputSummary, check_magic, notes_on, plan_units
from dpbeam.io.spec import InputSpec
from dpbeam.io.spool import Spool
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import INT, KINDS, STRING, Kinds
from dpbeam.packing.batches import agent_batch
from dpbeam.packing.config import Market

_ROWS = 1 << 18  # at once
FORMATS = ("parquet", "jsonl", "csv", "tsv")


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
        """A checked spec.

        Raises:
          InputError: naming the flag.
        """
        paths = tuple(local_path(pattern, "--agents") for pattern in patterns)
        if not paths:
            raise InputError("--agents: no file or pattern given")
        found = format or infer_format(paths)
        if found not in FORMATS:
            raise InputError(f"--input_format: agents are read from {', '.join(FORMATS)}, got '{found}'")
        if listed and found in ("csv", "tsv"):
            raise InputError(f"--demand_column: {found} has no lists; give one column for each resource")
        columns = [agent_column, value_column, *demand_columns]
        if len(set(columns)) < len(columns) or "" in columns:
            raise InputError("--agent_column, --value_column and --demand_column must name different columns")
        if agent_type is not None and agent_type not in KINDS:
            raise InputError(f"--agent_type: expected one of {', '.join(KINDS)}, got '{agent_type}'")
        return cls(
            patterns=paths,
            format=found,
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
        """Of the value and the demands, as text: numbers are parsed here."""
        return (STRING,) * len(self.item_columns)

    def agent_kind(self, found: str | None) -> str:
        """The kind of the agents, from a schema or the flag, never from a value."""
        if self.item_types is not None:
            return self.item_types[0]
        return found or STRING


def preflight_agents(spec: AgentSpec, *, temp_location: str | None = None) -> InputSummary:
    """Match the patterns, look at every file's columns, and count the rows.

    Raises:
      InputError: no files, a file that is not of the format, a missing column, or one of a wrong type.
    """
    spool = Spool(temp_location or tempfile.gettempdir())
    try:
        files, again = match_distinct(spool.replace(spec.patterns, spec.format), "--agents")
        kinds: set[str] = set()
        rows = 0
        for file in files:
            compression_of(file.path, spec.format)
            kind, count = _look_at(file, spec)
            rows += count
            if kind is not None:
                kinds.add(kind)
    except BaseException:
        spool.remove()
        raise
    if len(kinds) > 1:
        spool.remove()
        raise InputError(f"--agent_column: files hold agents of different types: {', '.join(sorted(kinds))}")
    kind = spec.agent_kind(next(iter(kinds), None))
    size = sum(file.size for file in files)
    return InputSummary(tuple(files), size, rows, None, False, Kinds(kind, (kind,)), notes_on(again), spool)


def _look_at(file: InputFile, spec: AgentSpec) -> tuple[str | None, int]:
    """The kind of a file's agents where the schema declares it, and the number of its rows, blank ones included."""
    if spec.format == "parquet":
        with open_input(file.path) as opened:
            source = _Parquet(file.path, opened, spec)
            return source.kind, source.rows
    if not file.size and spec.format != "jsonl":
        raise delimited.no_header(file.path, spec.format)
    check_magic(file.path, spec.format)
    if spec.format != "jsonl":
        delimited.read_header(file.path, spec)
    lines = 0
    with open_input(file.path) as opened:
        for chunk in chunks(file.path, opened, spec.format, 0, 1 << 62):
            lines += len(chunk.bounds()) - 1
    return None, max(0, lines - (spec.format != "jsonl"))


@dataclass
class _Raw:
    """Some rows: agents as an Arrow column, value and demands as numbers, and how to name row and column."""

    agents: pa.Array
    numbers: list[np.ndarray]  # each (n,) float64; NaN for what is missing
    path: str
    first: int
    where: Any


class _Parquet:
    """An opened Parquet file of agents."""

    def __init__(self, path: str, file: BinaryIO, spec: AgentSpec):
        self._path, self._spec = path, spec
        try:
            self._file = pq.ParquetFile(file)
            self._schema = self._file.schema_arrow
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{path}: {complaint(file, error)}") from None
        self._source = file
        self.rows = self._file.metadata.num_rows
        agents, *numbers = spec.columns
        self.kind = canonical.kind_of(self._type(agents), f"{path}: column '{agents}'")
        for place, name in enumerate(numbers):
            self._check_numbers(name, listed=spec.listed and place > 0)

    def _type(self, name: str) -> pa.DataType:
        found = self._schema.get_all_field_indices(name)
        if len(found) != 1:
            raise self._spec.no_column(self._path, name, self._schema.names)
        return self._schema.field(found[0]).type

    def _check_numbers(self, name: str, *, listed: bool) -> None:
        found = self._type(name)
        if listed:
            if not is_list(found):
                raise InputError(
                    f"{self._path}: column '{name}' has type {found}, expected a list of numbers"
                )
            found = found.value_type
        if not (pa.types.is_floating(found) or pa.types.is_integer(found) or pa.types.is_decimal(found)):
            raise InputError(f"{self._path}: column '{name}' has type {found}, expected numbers")

    def read(self, start: int, end: int, width: int) -> Iterator[_Raw]:
        metadata, first = self._file.metadata, 0
        for group in range(metadata.num_row_groups):
            size = metadata.row_group(group).num_rows
            if size and start <= first_byte(metadata.row_group(group)) < end:
                yield from self._group(group, first, width)
            first += size

    def _group(self, group: int, first: int, width: int) -> Iterator[_Raw]:
        try:
            batches = self._file.iter_batches(
                _ROWS, row_groups=[group], columns=list(self._spec.columns), use_threads=False
            )
            for batch in batches:
                yield self._raw(batch, first, width)
                first += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self._path}: {complaint(self._source, error)}") from None

    def _raw(self, batch: pa.RecordBatch, first: int, width: int) -> _Raw:
        agents, value, *demands = (batch.column(name) for name in self._spec.columns)

        def where(row: int) -> str:
            return f"{self._path}: row {first + row + 1}"

        numbers = [_floats(value)]
        if self._spec.listed:
            numbers += _unlist(demands[0], width, where, self._spec.columns[-1])
        else:
            numbers += [_floats(column) for column in demands]
        return _Raw(agents, numbers, self._path, first, where)


def _floats(column: pa.Array) -> np.ndarray:
    """(n,) float64, NaN for nulls."""
    return pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def _unlist(lists: pa.Array, width: int, where: Any, name: str) -> list[np.ndarray]:
    """The columns of a column of lists, each of `width` numbers."""
    lengths = pc.fill_null(pc.list_value_length(lists), -1).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(lengths != width)
    if len(bad):
        raise InputError(
            f"{where(int(bad[0]))}: column '{name}' does not hold a list of {width} numbers, one for each resource"
        )
    flat = _floats(pc.list_flatten(lists)).reshape(-1, width)
    return list(flat.T)


def _delimited(piece: Piece, file: BinaryIO, spec: AgentSpec) -> Iterator[_Raw]:
    for rows in delimited.read(piece.path, file, piece.start, piece.end, spec, Counts()):
        numbers = [_parsed(column, rows.where, name) for column, name in zip(rows.items, spec.item_columns)]
        yield _Raw(rows.user, numbers, piece.path, 0, rows.where)


def _parsed(column: pa.Array, where: Any, name: str) -> np.ndarray:
    """Numbers from text, NaN for what is empty."""
    text = pc.utf8_trim_whitespace(column)
    text = pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
    try:
        return _floats(pc.cast(text, pa.float64()))
    except pa.ArrowInvalid:
        row = next(i for i, cell in enumerate(text.to_pylist()) if cell is not None and not _is_number(cell))
        raise InputError(f"{where(row)}: column '{name}' holds no number") from None


def _is_number(text: str) -> bool:
    try:
        pc.cast(pa.array([text]), pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _json_lines(piece: Piece, file: BinaryIO, spec: AgentSpec, kind: str, width: int) -> Iterator[_Raw]:
    for chunk in chunks(piece.path, file, "jsonl", piece.start, piece.end):
        yield from _json_chunk(chunk, spec, kind, width)


def _json_chunk(chunk: Chunk, spec: AgentSpec, kind: str, width: int) -> Iterator[_Raw]:
    agents: list[Any] = []
    rows: list[list[float]] = []
    numbers: list[int] = []
    base: list[int] = []

    def where(row: int) -> str:
        return f"{chunk.path}:{_base(chunk, base) + numbers[row]}"

    for number, line in enumerate(chunk.data.split(b"\n")):
        if not line or line.isspace():
            continue
        numbers.append(number)
        agent, values = _json_row(line, spec, kind, width, lambda: where(len(numbers) - 1))
        agents.append(agent)
        rows.append(values)
    if agents:
        column = pa.array(agents, pa.int64() if kind == INT else pa.large_string())
        yield _Raw(column, list(np.array(rows, np.float64).T), chunk.path, 0, where)


def _base(chunk: Chunk, kept: list[int]) -> int:
    if not kept:
        kept.append(chunk.line_number(0))
    return kept[0]


def _json_row(line: bytes, spec: AgentSpec, kind: str, width: int, where: Any) -> tuple[Any, list[float]]:
    try:
        row = orjson.loads(line)
    except ValueError:
        raise InputError(f"{where()}: not a JSON value") from None
    if type(row) is not dict:
        raise InputError(f"{where()}: not a JSON object")
    agent = row.get(spec.user_column)
    wanted, what = (int, "an integer") if kind == INT else (str, "a string")
    if agent is not None and (type(agent) is not wanted or not _in_range(agent)):
        raise InputError(f"{where()}: column '{spec.user_column}' does not hold {what} (--agent_type)")
    value, *demands = (row.get(name) for name in spec.item_columns)
    if spec.listed:
        listed = demands[0]
        demands = listed if type(listed) is list else []
        if len(demands) != width:
            name = spec.item_columns[1]
            raise InputError(
                f"{where()}: column '{name}' does not hold a list of {width} numbers, one for each resource"
            )
    names = [spec.item_columns[0], *(spec.item_columns[1:] * (width if spec.listed else 1))]
    return agent, [_json_number(cell, name, where) for name, cell in zip(names, [value, *demands])]


def _in_range(agent: str | int) -> bool:
    return type(agent) is not int or -(2**63) <= agent < 2**63


def _json_number(cell: Any, name: str, where: Any) -> float:
    if cell is None:
        return math.nan
    if type(cell) not in (int, float):
        raise InputError(f"{where()}: column '{name}' holds no number")
    return float(cell)


def read_agents(
    unit: tuple[tuple[str, int, int], ...], spec: AgentSpec, kinds: Kinds, market: Market
) -> Iterator[pa.RecordBatch]:
    """The agents of a unit of work: record batches (agent: canonical bytes, value, demands: fixed-size list).

    Raises:
      InputError: naming file, row and column, never a value.
    """
    for piece in (Piece(*part) for part in unit):
        with open_input(piece.path) as file:
            raws: Iterator[_Raw]
            if spec.format == "parquet":
                source = _Parquet(piece.path, file, spec)
                raws = source.read(piece.start, piece.end, market.size)
            elif spec.format == "jsonl":
                raws = _json_lines(piece, file, spec, kinds.user or STRING, market.size)
            else:
                raws = _delimited(piece, file, spec)
            for raw in raws:
                if len(raw.agents):
                    yield _checked(raw, spec, kinds, market)


def _checked(raw: _Raw, spec: AgentSpec, kinds: Kinds, market: Market) -> pa.RecordBatch:
    name = spec.user_column or ""
    agents, kind = canonical.encode(_typed(raw, spec, kinds), f"{raw.path}: column '{name}'")
    agents = canonical.plain(agents)
    empty = pc.fill_null(pc.equal(pc.binary_length(agents), 0), True)
    if kind == STRING and len(bad := canonical.invalid_utf8(agents)):
        raise InputError(f"{raw.where(int(bad[0]))}: column '{name}' is not valid UTF-8")
    rows = np.flatnonzero(empty.to_numpy(zero_copy_only=False))
    if len(rows):
        raise InputError(f"{raw.where(int(rows[0]))}: column '{name}' is empty: every row needs its agent")
    value_name, *demand_names = spec.item_columns
    if spec.listed:
        demand_names = demand_names * market.size
    bounds = [market.max_value, *(resource.max_demand for resource in market.resources)]
    for column, bound, label in zip(raw.numbers, bounds, [value_name, *demand_names]):
        outside = ~((column >= 0) & (column <= bound))  # also where it is NaN
        if outside.any():
            raise InputError(
                f"{raw.where(int(outside.argmax()))}: column '{label}' holds no number in [0, {bound:g}]"
            )
    return agent_batch(agents, raw.numbers[0], np.column_stack(raw.numbers[1:]), kinds.metadata())


def _typed(raw: _Raw, spec: AgentSpec, kinds: Kinds) -> pa.Array:
    """The agents as the kind that they are to be; text of CSV is parsed where integers are declared."""
    if spec.format in ("csv", "tsv") and kinds.user == INT:
        values, bad = canonical.parse_int64(raw.agents.cast(pa.large_binary()))
        if len(bad):
            raise InputError(f"{raw.where(int(bad[0]))}: column '{spec.user_column}' holds no 64-bit integer")
        return values
    return raw.agents


class _Read(beam.DoFn):
    """Unit of work -> record batches of agents."""

    def __init__(self, spec: AgentSpec, kinds: Kinds, market: Market):
        self._spec, self._kinds, self._market = spec, kinds, market

    def process(self, unit: tuple[tuple[str, int, int], ...]) -> Iterator[pa.RecordBatch]:
        yield from read_agents(unit, self._spec, self._kinds, self._market)


class ReadAgents(beam.PTransform):
    """Read agents: PBegin -> PCollection[pa.RecordBatch(agent: canonical bytes, value, demands)]."""

    def __init__(self, spec: AgentSpec, summary: InputSummary, market: Market):
        super().__init__()
        self._fn = _Read(spec, summary.kinds, market)
        units = plan_units(summary.files, spec)
        units = sorted(units, key=lambda unit: unit.pieces[0].start)
        self._units = [tuple((absolute(p.path), p.start, p.end) for p in unit.pieces) for unit in units]

    def expand(self, begin: beam.pvalue.PBegin) -> PCollection:
        return (
            begin
            | "WorkUnits" >> beam.Create(self._units)
            | "SpreadUnits" >> beam.Reshuffle()
            | "ReadUnits" >> beam.ParDo(self._fn).with_output_types(pa.RecordBatch)
        )
