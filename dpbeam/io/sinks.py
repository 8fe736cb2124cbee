"""Writing released items and rankings: one shard to one file, and the Beam transforms that make the shards.

What is written is a function of the released items alone. The number of shards follows from the *released* count
(or is given), an item's shard from a public hash of the item, and items are sorted by bytes within a shard; so
neither order, nor file layout, nor file count carries anything about the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms import combiners

from dpbeam.engine.beam import owner
from dpbeam.errors import RunnerError, SettingError
from dpbeam.families.base import OutputColumn
from dpbeam.io.files import write_atomically
from dpbeam.io.new_files import OUTPUT_FORMATS
from dpbeam.io.output_formats import shard_name, write_columns
from dpbeam.io.spec import InputSpec
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import Kinds
from dpbeam.kernels.columns import decode, encode, rows_within
from dpbeam.kernels.pairs import range_bucket
from dpbeam.randomness import fingerprints
from dpbeam.selection.columns import ARROW_TYPES, released_columns
from dpbeam.selection.config import WEIGHT
from dpbeam.storage import FileSystems
from dpbeam.storage.files import Put

ITEMS_PER_SHARD = 5_000_000
BYTES_PER_SHARD = 256_000_000  # of items as written: a worker sorts a shard in memory
MAX_SHARDS = 99_999

_BYTES_PER_MESSAGE = 1_000_000  # engines hold many messages at once
# A public constant: the shard of an item needs a stable spread, not a secret.
_PUBLIC_KEY = bytes(32)


@dataclass(frozen=True)
class OutputColumns:
    """Columns of the output.

    Attributes:
      names, kinds: of the item columns.
      added: what stands beside them, as the kind of release declares it.
      note: what a reader of a Parquet file should know, in its metadata.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    added: tuple[OutputColumn, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if len(self.names) != len(self.kinds):
            raise ValueError(f"names and kinds differ in length: {len(self.names)} and {len(self.kinds)}")
        self.check_free(self.added)

    def check_free(self, added: Iterable[OutputColumn]) -> None:
        """Refuse an item column that has the name of a column of the output. Raises InputError."""
        for column in added:
            if column.name in self.names:
                raise SettingError(f"--item_column: '{column.name}' is a column of the output; rename yours")

    @classmethod
    def of(cls, spec: InputSpec, kinds: Kinds) -> OutputColumns:
        """The output columns of an input: `item`, or the composite's own names."""
        return cls(spec.item_names, kinds.item)

    @property
    def added_names(self) -> list[str]:
        """Names of the columns beside the items."""
        return [column.name for column in self.added]

    def schema(self) -> pa.Schema:
        """Schema of a written Parquet file."""
        types = {
            canonical.STRING: pa.large_string(),
            canonical.INT: pa.int64(),
            canonical.BYTES: pa.large_binary(),
        }
        fields = [pa.field(name, types[kind], nullable=False) for name, kind in zip(self.names, self.kinds)]
        ranked = [column.before for column in self.added]
        # Null for listed items, which have no noisy weight; a ranking has none.
        added = [pa.field(one.name, ARROW_TYPES[one.type], nullable=not any(ranked)) for one in self.added]
        before = sum(ranked)
        fields = [*added[:before], *fields, *added[before:]]
        return pa.schema(fields, metadata={b"dpbeam": self.note.encode()} if self.note else None)


def num_output_shards(released: tuple[int, int] | None, requested: int | None = None) -> int:
    """Number of output files: as requested, else one per 5,000,000 items or 256 MB of them, at least one.

    Args:
      released: number of items, and bytes of their canonical form; None: no runner but one that loses it has none.

    Raises:
      RunnerError: None.
    """
    _check_requested(requested)
    if released is None:
        raise RunnerError("the runner lost the number of rows of the output")
    if requested is not None:
        return requested
    items, size = released
    wanted = max(-(-items // ITEMS_PER_SHARD), -(-size // BYTES_PER_SHARD))
    return min(MAX_SHARDS, max(1, wanted))


def _check_requested(requested: int | None) -> None:
    if requested is not None and not 1 <= requested <= MAX_SHARDS:
        raise ValueError(f"num_output_shards must be in 1..{MAX_SHARDS}, got {requested}")


def output_shard(items: pa.Array, num_shards: int) -> np.ndarray:
    """(n,) int64 output shard of each item: a public, stable hash of its canonical bytes."""
    return range_bucket(fingerprints(_PUBLIC_KEY, items), num_shards)


def write_shard(
    file: BinaryIO,
    items: pa.Array,
    numbers: Mapping[str, np.ndarray],
    columns: OutputColumns,
    format: str,
) -> None:
    """Write one shard, sorted by item bytes; no items make a valid empty file.

    Args:
      items: (n,) large_binary canonical bytes, distinct.
      numbers: (n,) float64 by the names of `columns.added`, NaN for items without one.
      format: a key of OUTPUT_FORMATS.

    Raises:
      ValueError: items repeat, or numbers do not fit the columns.
    """
    if list(numbers) != columns.added_names:
        raise ValueError(f"numbers are {list(numbers)}, the columns {columns.added_names}")
    arrays = released_columns(items, numbers, columns.kinds, columns.added)
    write_columns(file, arrays, columns.schema(), format)


def _check_declared(batch: pa.RecordBatch, columns: OutputColumns) -> None:
    """Refuse a released column that the output does not declare. Raises ValueError.

    Every program may show its noisy weights; the output leaves them out where nobody asked for them.
    """
    undeclared = set(batch.schema.names) - {"item", WEIGHT, *columns.added_names}
    if undeclared:
        raise ValueError(
            f"the output declares no column '{min(undeclared)}', which is released: add it to `Release.added` of its "
            "kind"
        )


def _route(
    batch: pa.RecordBatch, released: tuple[int, int] | None, columns: OutputColumns, requested: int | None
) -> Iterator[tuple[int, bytes]]:
    """RecordBatch -> (output shard, encoded items)."""
    num_shards = num_output_shards(released, requested)
    items = canonical.plain(batch.column("item")).cast(pa.large_binary())
    _check_declared(batch, columns)
    numbers = {name: batch.column(name).to_numpy() for name in columns.added_names}
    shard = output_shard(items, num_shards)
    order = np.argsort(shard, kind="stable")
    bounds = np.searchsorted(shard[order], np.arange(num_shards + 1))
    step = rows_within(_BYTES_PER_MESSAGE, items)
    for number in np.flatnonzero(np.diff(bounds)):
        rows = order[bounds[number] : bounds[number + 1]]
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            message = {"item": items.take(pa.array(part))}
            message.update({name: values[part] for name, values in numbers.items()})
            yield int(number), encode(message)


def _write(
    element: tuple[int, Iterable[bytes]],
    released: tuple[int, int] | None,
    folder: str,
    columns: OutputColumns,
    format: str,
    requested: int | None,
) -> str:
    """(output shard, encoded items) -> path of the staged file."""
    shard, messages = element
    parts = [decode(message) for message in messages if message]
    items = pa.concat_arrays([p["item"] for p in parts]) if parts else pa.array([], pa.large_binary())
    numbers = {
        name: np.concatenate([p[name] for p in parts]) if parts else np.empty(0)
        for name in columns.added_names
    }
    num_shards = num_output_shards(released, requested)
    return stage(
        folder, shard, num_shards, format, lambda file: write_shard(file, items, numbers, columns, format)
    )


def stage(folder: str, shard: int, num_shards: int, format: str, write: Callable[[BinaryIO], None]) -> str:
    """Write a shard into a staging folder; returns its path.

    Raises:
      OSError: the folder is gone, as after the end of the run: a late worker must not bring it back.
    """
    path = FileSystems.join(folder, f"shard-{shard_name(shard, num_shards, format)}")
    write_atomically(path, write, Put(make_folder=False, beside=owner.FILE))
    return path


def _released(batch: pa.RecordBatch) -> tuple[int, int]:
    return batch.num_rows, canonical.plain(batch.column("item")).nbytes


def _every_shard(released: tuple[int, int], requested: int | None) -> list[tuple[int, bytes]]:
    return [(shard, b"") for shard in range(num_output_shards(released, requested))]


class WriteReleased(beam.PTransform):
    """Write released items as shards in a staging folder; `OutputTarget.commit` makes them the output.

    Input: RecordBatch[item: large_binary canonical bytes (distinct), `OutputColumns.added`: float64].
    Output: paths of the staged files, one per shard. A worker needs memory for one shard.

    Args:
      folder: the staging folder (`OutputTarget.staging`), which all workers share.
      columns: names and kinds of the output columns.
      format: a key of OUTPUT_FORMATS.
      num_output_shards: number of files, or None: from the number and the size of the released items.
    """

    def __init__(
        self,
        folder: str,
        columns: OutputColumns,
        format: str = "parquet",
        num_output_shards: int | None = None,
    ):
        super().__init__()
        _check_requested(num_output_shards)
        if format not in OUTPUT_FORMATS:
            raise ValueError(f"format must be one of {', '.join(OUTPUT_FORMATS)}, got {format!r}")
        self._folder = folder
        self._columns = columns
        self._format = format
        self._requested = num_output_shards

    def expand(self, batches: PCollection[pa.RecordBatch]) -> PCollection[str]:
        released = (
            batches
            | "CountReleased" >> beam.Map(_released).with_output_types(tuple[int, int])
            | "SumReleased" >> beam.CombineGlobally(combiners.TupleCombineFn(sum, sum))
        )
        count = beam.pvalue.AsSingleton(released, default_value=None)
        route = beam.FlatMap(_route, count, self._columns, self._requested).with_output_types(
            tuple[int, bytes]
        )
        messages = batches | "RouteToShards" >> route
        # (output shard, b""): shards without items are files too
        shards = released | "EveryShard" >> beam.FlatMap(_every_shard, self._requested).with_output_types(
            tuple[int, bytes]
        )
        write = beam.Map(_write, count, self._folder, self._columns, self._format, self._requested)
        return (
            (messages, shards)
            | beam.Flatten()
            | "GroupByShard" >> beam.GroupByKey()
            | "WriteShard" >> write.with_output_types(str)
        )

    def display_data(self) -> dict[str, object]:
        return {"format": self._format, "num_output_shards": self._requested or "from released count"}


def _write_ranked(
    element: tuple[int, Iterable[bytes]], folder: str, columns: OutputColumns, format: str
) -> str:
    parts = [decode(data) for data in element[1] if data]
    items = pa.array(parts[0]["item"] if parts else [], pa.large_binary())
    values = dict(zip(columns.names, canonical.decode(items, columns.kinds)))
    for column in columns.added:
        values[column.name] = pa.array(parts[0][column.name] if parts else [], ARROW_TYPES[column.type])
    schema = columns.schema()
    arrays = [values[name] for name in schema.names]
    return stage(folder, 0, 1, format, lambda file: write_columns(file, arrays, schema, format))


def _encode_ranked(batch: pa.RecordBatch, columns: OutputColumns) -> tuple[int, bytes]:
    _check_declared(batch, columns)
    numbers = {name: batch.column(name).to_numpy() for name in columns.added_names}
    return 0, encode({"item": batch.column("item"), **numbers})


class WriteRanked(beam.PTransform):
    """Write one ranking in rank order, or an empty one, to the staging folder.

    Input: a RecordBatch[item, `OutputColumns.added`], or none. Output: the path of the staged file.

    Args:
      folder, columns, format: as in `WriteReleased`.
    """

    def __init__(self, folder: str, columns: OutputColumns, format: str):
        super().__init__()
        self._encode = beam.Map(_encode_ranked, columns).with_output_types(tuple[int, bytes])
        self._write = beam.Map(_write_ranked, folder, columns, format).with_output_types(str)

    def expand(self, ranking: PCollection) -> PCollection:
        empty = ranking.pipeline | "NoRanking" >> beam.Create([(0, b"")]).with_output_types(tuple[int, bytes])
        encoded = ranking | "Encode" >> self._encode
        return (encoded, empty) | beam.Flatten() | "OneFile" >> beam.GroupByKey() | "WriteFile" >> self._write
