"""Writing allocations: one row per agent, sharded and sorted as released items are."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection

from dpbeam.errors import InputError
from dpbeam.io.sinks import OutputColumns, WriteReleased
from dpbeam.kernels.canonical import Kinds
from dpbeam.packing.batches import AGENT, ALLOCATION
from dpbeam.packing.report import ROW_NOTE


def _as_items(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = pa.schema(
        [("item", pa.large_binary()), (ALLOCATION, pa.float64())], metadata=batch.schema.metadata
    )
    return pa.RecordBatch.from_arrays([batch.column(AGENT), batch.column(ALLOCATION)], schema=schema)


class WriteAllocations(beam.PTransform):
    """Write (agent, allocation) to the staging folder: PCollection[pa.RecordBatch] -> PCollection[str], the paths.

    Where an agent's row lies says nothing: shards and their order follow the agents' ids.

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
            raise InputError(f"--agent_column: '{ALLOCATION}' is a column of the output; rename yours")
        columns = OutputColumns(
            (column,), kinds.item, noisy_weight=True, weight_name=ALLOCATION, note=ROW_NOTE
        )
        self._write = WriteReleased(folder, columns, format, num_output_shards)

    def expand(self, allocated: PCollection) -> PCollection:
        items = allocated | "AsItems" >> beam.Map(_as_items).with_output_types(pa.RecordBatch)
        return items | "Write" >> self._write
