"""Reading input on Beam: look at the files in the launcher, plan work units, read them in the workers.

`preflight` runs before the job starts: it matches the patterns, opens a bounded number of files, and settles the kind
of every column, so that most mistakes are reported in a second and not by a failing worker. What only a worker
can find (a bad row in the middle) it reports with the same one-line InputError.

Units are planned from paths and sizes alone: a hundred thousand files are not opened to plan them.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import apache_beam as beam
import pyarrow as pa

from dpbeam.engine.beam.receipts import READ, STATED, UNITS, ReceiptDoFn, mark_batch, plan_reading
from dpbeam.engine.beam.store import RunStore
from dpbeam.errors import DataError, SettingError
from dpbeam.io.compressions import compression_of
from dpbeam.io.files import check_names, match_distinct
from dpbeam.io.formats import formats
from dpbeam.io.formats.base import InputFile, Piece
from dpbeam.io.partitions import with_partitions
from dpbeam.io.patterns import left_out
from dpbeam.io.readers import TARGET_PAIRS, PlainUnit, WorkUnit, read_complete, read_scattered
from dpbeam.io.rows import Counts, mixed_types
from dpbeam.io.spec import InputSpec
from dpbeam.io.spool import Spool
from dpbeam.kernels.canonical import INT, STRING, Kinds, kind_of_type
from dpbeam.selection.sizes import TEXT_PER_BLOCK, items_within

MIN_SPLIT_BYTES = 8 << 20
MAX_SPLIT_BYTES = 64 << 20

_FILES_PER_UNIT = 1_000
_FILES_TO_OPEN = 32
ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class InputSummary:
    """What preflight has found.

    Attributes:
      files: the files to read, by path.
      bytes: their total size.
      rows_estimate: from what the files looked at say; None where they do not say it.
      item_bytes: mean bytes of an item, likewise; None also for text to tokenise.
      complete_users: whether rows, lines or files are whole users by declaration.
      kinds: kinds of the user and item columns.
      notes: what the person who runs the job should know about the files, a line each; public.
      spec: what is read, with all that a table leaves open; None: as it was asked for.
      spool: the copies of pipes, to be removed when the run ends; None where there are none.
    """

    files: tuple[InputFile, ...]
    bytes: int
    rows_estimate: int | None
    item_bytes: float | None
    complete_users: bool
    kinds: Kinds
    notes: tuple[str, ...] = ()
    spec: InputSpec | None = None
    spool: Spool | None = field(default=None, repr=False, compare=False)

    def release(self) -> None:
        """Remove the copies of pipes; what was read from them cannot be read again."""
        if self.spool is not None:
            self.spool.remove()


def preflight(spec: InputSpec, flag: str = "--input", *, temp_location: str | None = None) -> InputSummary:
    """Match the patterns and check what can be checked early; see the module's docstring.

    Args:
      temp_location: where stdin and pipes are copied, a folder that every worker can reach; None: this machine's.

    Raises:
      InputError: a pattern without files, a file that is not of the format, a missing or wrongly typed column,
        or files whose columns have different kinds.
    """
    spec.validate()
    spec.file_format.check_installed()
    with Spool(temp_location) as spool:
        spec, files, notes = _find_files(spec, flag, spool)
        look = _look_at(files, spec)
    size = sum(file.size for file in files)
    rows = round(look.rows * (size / look.bytes)) if look.bytes else None
    item_bytes = look.item_bytes / look.items if look.items else None
    return InputSummary(
        tuple(files), size, rows, item_bytes, spec.complete_users, look.kinds(), notes, spec, spool
    )


def _find_files(
    spec: InputSpec, flag: str, spool: Spool
) -> tuple[InputSpec, list[InputFile], tuple[str, ...]]:
    """The spec as it is read, the files, and what to say of them."""
    if spec.file_format.is_table:
        spec, files = spec.file_format.find_files(spec, flag)
        files = with_partitions(files, spec.columns, spec.partitions, of_table=True)
        return spec, files, (f"input: version {spec.table_version} of the table, {len(files)} files",)
    files, again = match_distinct(spool.replace(spec.patterns, spec.format), flag)
    check_names(files, flag)
    hidden = sum(map(left_out, spec.patterns))
    notes = (
        [f"input: {hidden} files whose names begin with a dot or an underscore are left out"]
        if hidden
        else []
    )
    return spec, with_partitions(files, spec.columns, spec.partitions), (*notes, *notes_on(again))


def notes_on(again: list[tuple[str, str]]) -> tuple[str, ...]:
    """A line for the user on files that have several names, (further name, the one that is read)."""
    if not again:
        return ()
    (name, first), more = again[0], len(again) - 1
    rest = f"; {more} more files have several names, and each is read once" if more else ""
    return (f"input: '{name}' and '{first}' are one file, which is read once{rest}",)


def _look_at(files: Sequence[InputFile], spec: InputSpec) -> _Looks:
    for file in files:
        spec.file_format.check_file(file.path, file.size)
    look = _Looks(spec)
    first, rest = spread(files)
    for file in first:
        look.at(file)
    for file in rest:
        if look.settled:
            break
        look.at(file)
    look.check()
    return look


def spread(files: Sequence[ValueT]) -> tuple[list[ValueT], list[ValueT]]:
    """A few files, or parts of one, evenly spread, the first and last among them; and all others."""
    if len(files) <= _FILES_TO_OPEN:
        return list(files), []
    chosen = {round(i * (len(files) - 1) / (_FILES_TO_OPEN - 1)) for i in range(_FILES_TO_OPEN)}
    return [files[i] for i in sorted(chosen)], [file for i, file in enumerate(files) if i not in chosen]


class _Looks:
    """Opens files in the launcher and gathers the types of their columns."""

    def __init__(self, spec: InputSpec):
        self._spec = spec
        self._format = spec.file_format
        self._types: dict[str, tuple[str, str]] = {}  # with the file that says so
        self._flags = dict(zip(spec.item_columns, spec.item_types or ()))
        self._values: dict[str, set[str]] = {}
        self.rows = 0
        self.bytes = 0
        self.items = 0
        self.item_bytes = 0

    @property
    def settled(self) -> bool:
        spec = self._spec
        if self._format.declares_types:
            return all(name in self._types or name in self._flags for name in spec.columns)
        return spec.user_column is None or spec.user_column in self._types

    def kinds(self) -> Kinds:
        spec = self._spec
        user = None if spec.complete_users else self._type(spec.user_column or "")
        if self._format.declares_types:
            return Kinds.of_types(user, tuple(map(self._type, spec.item_columns)))
        return Kinds(user, spec.declared_types)

    def _type(self, column: str) -> str:
        """As the files declare it, else as the flag does."""
        return self._types[column][0] if column in self._types else self._flags.get(column, STRING)

    def check(self) -> None:
        """Refuse integers that nobody has declared: a reader that skips bad rows would skip all."""
        for column, kinds in self._values.items():
            if kinds == {INT} and self._spec.item_types is None:
                raise SettingError(
                    f"--item_type is required: column '{column}' holds integers; pass --item_type=int (items of "
                    "JSON lines are strings by default)"
                )

    def at(self, file: InputFile) -> None:
        if not file.size:
            return
        self._format.check_head(file.path, formats())
        look = self._format.look(Piece(file.path, 0, file.size, file.constants), self._spec)
        if self._format.declares_types:
            self._check_declared(file.path, look.items)
        self._merge(
            file.path, [*zip(self._spec.item_columns, look.items), (self._spec.user_column, look.user)]
        )
        for column, kinds in look.values.items():
            self._values.setdefault(column, set()).update(kinds)
        if look.rows is not None:
            self.rows += look.rows
            self.bytes += file.size
            self.items += look.items_seen
            self.item_bytes += look.item_bytes

    def _check_declared(self, path: str, items: Sequence[str | None]) -> None:
        """The type of the output is what every file declares, or the flag: never what one of them happens to hold."""
        for column, held in zip(self._spec.item_columns, items):
            flag, kind = self._flags.get(column), None if held is None else kind_of_type(held)
            if kind is None and flag is None:
                raise SettingError(
                    f"--item_type is required: {path}: column '{column}' has type null; say string, int or bytes"
                )
            if flag is not None and kind not in (None, flag):
                raise DataError(f"--item_type={flag}: {path}: column '{column}' holds {kind} values")

    def _merge(self, path: str, types: Iterable[tuple[str | None, str | None]]) -> None:
        for column, held in types:
            if column is not None and held is not None:
                wanted, other = self._types.setdefault(column, (held, path))
                if held != wanted:
                    raise mixed_types(path, column, held, wanted, other)


def plan_units(
    files: Sequence[InputFile], spec: InputSpec, desired_split_bytes: int | None = None
) -> list[WorkUnit]:
    """Cut large files into ranges and pack small ones together, by about `desired_split_bytes` per unit.

    Args:
      desired_split_bytes: None chooses between 8 and 64 MB, for about 64 units if the input is large enough.
    """
    if desired_split_bytes is None:
        total = sum(file.size for file in files)
        desired_split_bytes = min(MAX_SPLIT_BYTES, max(MIN_SPLIT_BYTES, total // 64))
    if desired_split_bytes < 1:
        raise ValueError(f"desired_split_bytes must be at least 1, got {desired_split_bytes}")
    units: list[tuple[Piece, ...]] = []
    pieces: list[Piece] = []
    packed = 0
    for file in files:
        if not file.size and not spec.file_format.declares_types:
            continue
        splits = spec.file_format.splits(spec) and compression_of(file.path) is None
        parts = max(1, round(file.size / desired_split_bytes)) if splits else 1
        if parts > 1:
            bounds = [file.size * i // parts for i in range(parts + 1)]
            units += [(Piece(file.path, a, b, file.constants),) for a, b in itertools.pairwise(bounds)]
            continue
        if pieces and (packed + file.size > desired_split_bytes or len(pieces) == _FILES_PER_UNIT):
            units.append(tuple(pieces))
            pieces, packed = [], 0
        pieces.append(Piece(file.path, 0, file.size, file.constants))
        packed += file.size
    if pieces:
        units.append(tuple(pieces))
    return [WorkUnit(pieces, number) for number, pieces in enumerate(units)]


def deal_units(
    files: Sequence[InputFile], spec: InputSpec, desired_split_bytes: int | None = None
) -> list[PlainUnit]:
    """The units in the order in which workers are to have them.

    First ranges of all files, then second ones: engines deal units out in turn, and where a file is a single row group
    of two ranges, every other unit is empty. In the files' order one of two workers would read everything.
    """
    units = plan_units(files, spec, desired_split_bytes)
    return [unit.plain() for unit in sorted(units, key=lambda unit: unit.pieces[0].start)]


class UnitDoFn(ReceiptDoFn):
    """A DoFn that reads units of work."""

    def leave_receipts(self, unit: int, batches: int, counts: Counts) -> None:
        """Say what was read of a unit: its batches, its rows, and those that its files have by their own account."""
        self.receipt(UNITS, unit, batches)
        self.receipt(READ, unit, counts.read)
        if counts.stated is not None:
            self.receipt(STATED, unit, counts.stated)


class _Read(UnitDoFn):
    """WorkUnit -> record batches or blocks; on the tag `counts`, (what, how many) of dropped rows and items."""

    def __init__(
        self,
        store: RunStore | None,
        spec: InputSpec,
        kinds: Kinds,
        target_pairs: int,
        with_counts: bool,
        source: str,
    ):
        super().__init__(store)
        self._source = source
        self._spec = spec
        self._kinds = kinds
        self._target_pairs = target_pairs
        self._with_counts = with_counts

    def process(self, unit: PlainUnit) -> Iterator:
        counts = Counts()
        work, place = WorkUnit.of(unit), 0
        if self._spec.complete_users:
            for block, batch in read_complete(work, self._spec, self._kinds, counts, self._target_pairs):
                yield block, mark_batch(batch, work.number, place)
                place += 1
        else:
            for batch in read_scattered(work, self._spec, self._kinds, counts):
                yield mark_batch(batch, work.number, place)
                place += 1
        self.leave_receipts(work.number, place, counts)
        if self._with_counts:
            for name, count in sorted(counts.items()):
                yield beam.pvalue.TaggedOutput("counts", (name, int(count)))
        _units_read.setdefault(self._source, set()).add(unit)


#: Input -> its work units that this process has read; the launcher's own, where it is the worker. Never stored or sent.
_units_read: dict[str, set[PlainUnit]] = {}


def _target_pairs(item_bytes: float | None) -> int:
    return max(1, min(TARGET_PAIRS, int(items_within(TEXT_PER_BLOCK, item_bytes))))


class ReadInput(beam.PTransform):
    """Read the (user, item) pairs of an input.

    Output: PCollection of RecordBatch[user: large_binary, item] (scattered), or, where `spec.complete_users`, of
    (block id, RecordBatch[user: int64 ordinal, item]); see `dpbeam.io.readers`. With `with_counts`, a pair of
    that and a PCollection of (name, number) of dropped rows and items: exact functions of the private data.

    A pipeline has one of it: blocks of complete users are numbered in each anew.

    Workers need memory for about one unit's batch: some 10^6 pairs, one Parquet row group, or one document.

    Args:
      spec: what to read.
      summary: of `preflight`; None runs it now.
      target_pairs: pairs per block of complete users, or None: a million, fewer where items are long.
      desired_split_bytes: bytes per work unit, or None: from the size of the input.
      with_counts: also return the counts of what was dropped.
      store: of the run, where receipts of what was read are left; None: none are.
    """

    def __init__(
        self,
        spec: InputSpec,
        *,
        summary: InputSummary | None = None,
        target_pairs: int | None = None,
        desired_split_bytes: int | None = None,
        with_counts: bool = False,
        store: RunStore | None = None,
    ):
        super().__init__()
        if target_pairs is not None and target_pairs < 1:
            raise ValueError(f"target_pairs must be at least 1, got {target_pairs}")
        self.summary = summary if summary is not None else preflight(spec)
        self.spec = spec = self.summary.spec or spec
        self._target_pairs = target_pairs or _target_pairs(self.summary.item_bytes)
        self._with_counts, self._store = with_counts, store
        self._units = deal_units(self.summary.files, spec, desired_split_bytes)
        self._source = uuid.uuid4().hex

    def share_read(self) -> float | None:
        """Share of the input's bytes that this process has read, from 0 to 1; None where none of it was."""
        read = _units_read.get(self._source)
        total = sum(map(_bytes_of, self._units))
        return sum(map(_bytes_of, tuple(read))) / total if read and total else None

    def expand(self, begin: beam.pvalue.PBegin) -> Any:
        if self._store is not None:
            plan_reading(self._store, [number for number, _ in self._units])
        kinds, with_counts = self.summary.kinds, self._with_counts
        read = beam.ParDo(_Read(self._store, self.spec, kinds, self._target_pairs, with_counts, self._source))
        element = tuple[int, pa.RecordBatch] if self.spec.complete_users else pa.RecordBatch
        read = read.with_output_types(element)
        units = begin | "WorkUnits" >> beam.Create(self._units) | "SpreadUnits" >> beam.Reshuffle()
        if not self._with_counts:
            return units | "ReadUnits" >> read
        outputs = units | "ReadUnits" >> read.with_outputs("counts", main="pairs")
        counts = outputs.counts | "CountsType" >> beam.Map(_same).with_output_types(tuple[str, int])
        return outputs.pairs, counts

    def display_data(self) -> dict[str, object]:
        return {
            "input": ", ".join(self.spec.patterns),
            "format": self.spec.format,
            "work_units": len(self._units),
        }


def _bytes_of(unit: PlainUnit) -> int:
    return sum(end - start for _, start, end, _ in unit[1])


def _same(element: tuple[str, int]) -> tuple[str, int]:
    return element
