"""Writing a ranking: one file, in rank order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import apache_beam as beam
import pyarrow as pa

from dpbeam.errors import InputError
from dpbeam.io.files import write_atomically
from dpbeam.io.output_formats import shard_name, write_columns
from dpbeam.io.sinks import OutputColumns
from dpbeam.kernels import canonical
from dpbeam.kernels.columns import decode, encode
from dpbeam.storage import FileSystems


def _write(
    element: tuple[int, Iterable[bytes]], folder: str, columns: OutputColumns, format: str, noisy_counts: bool
) -> str:
    parts = [decode(data) for data in element[1] if data]
    rank = pa.array(parts[0]["rank"], pa.int64()) if parts else pa.array([], pa.int64())
    items = parts[0]["item"].cast(pa.large_binary()) if parts else pa.array([], pa.large_binary())
    arrays = [rank, *canonical.decode(items, columns.kinds)]
    schema = replace(columns, noisy_weight=False).schema()
    schema = schema.insert(0, pa.field("rank", pa.int64(), nullable=False))
    if noisy_counts:
        arrays.append(pa.array(parts[0]["noisy_count"] if parts else [], pa.int64()))
        schema = schema.append(pa.field("noisy_count", pa.int64(), nullable=False))
    path = FileSystems.join(folder, f"shard-{shard_name(0, 1, format)}")
    write_atomically(path, lambda file: write_columns(file, arrays, schema, format))
    return path


def _encoded(batch: pa.RecordBatch) -> tuple[int, bytes]:
    columns = {name: batch.column(name) for name in batch.schema.names}
    if "noisy_count" in columns and columns["noisy_count"].null_count:
        del columns["noisy_count"]
    return 0, encode({n: c if n == "item" else c.to_numpy() for n, c in columns.items()})


class WriteRanked(beam.PTransform):
    """Write one ranking (record batch of rank, item and perhaps noisy_count), or an empty one, to the staging folder.

    Args:
      folder, columns, format: as in `WriteReleased`.
      noisy_counts: whether the column noisy_count is written.

    Raises:
      InputError: an item column has the name of a column of the ranking.
    """

    def __init__(self, folder: str, columns: OutputColumns, format: str, *, noisy_counts: bool):
        super().__init__()
        for name in ("rank", "noisy_count"):
            if name in columns.names:
                raise InputError(f"--item_column: '{name}' is a column of the ranking; rename yours")
        self._write = beam.Map(_write, folder, columns, format, noisy_counts).with_output_types(str)

    def expand(self, ranking):
        empty = ranking.pipeline | "NoRanking" >> beam.Create([(0, b"")]).with_output_types(tuple[int, bytes])
        encoded = ranking | "Encode" >> beam.Map(_encoded).with_output_types(tuple[int, bytes])
        return (encoded, empty) | beam.Flatten() | "OneFile" >> beam.GroupByKey() | "WriteFile" >> self._write
