"""Coders of the objects that pass between stages.

Stages that run fused pass these objects by reference. Where a runner does put a boundary between them, they
cross it as columns (`dpbeam.kernels.columns`) or Arrow IPC, never as pickles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from apache_beam import coders
from apache_beam.coders.typecoders import registry

from dpbeam.kernels.canonical import one_level
from dpbeam.kernels.columns import decode, encode
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard


def _parts(values: Mapping[str, Any]) -> Iterator[Any]:
    for value in values.values():
        if isinstance(value, Mapping):
            yield from _parts(value)
        else:
            yield value


class _ColumnsCoder(coders.Coder):
    """An object that columns make, and that makes columns.

    Attributes:
      kind: its class.
    """

    kind: type[Block] | type[Shard]

    def encode(self, value: Any) -> bytes:
        return encode(value.to_columns())

    def decode(self, encoded: bytes) -> Any:
        return self.kind.from_columns(decode(encoded))

    def estimate_size(self, value: Any) -> int:
        """Bytes of what is there. Beam samples element sizes; its default encodes the whole element to measure it."""
        return sum(getattr(part, "nbytes", 0) for part in _parts(vars(value)))

    def to_type_hint(self) -> type:
        return self.kind


class BlockCoder(_ColumnsCoder):
    """A user block with its items."""

    kind = Block


class ShardCoder(_ColumnsCoder):
    """An item shard with sums and state."""

    kind = Shard


class RecordBatchCoder(coders.Coder):
    """An Arrow record batch as an IPC stream; a slice is written without its parent's buffers.

    Nested dictionaries become one: Arrow writes them so that it cannot read them.
    """

    def encode(self, value: pa.RecordBatch) -> bytes:
        columns = [one_level(column) for column in value.columns]
        if any(one.type != column.type for one, column in zip(columns, value.columns)):
            names = value.schema.names
            value = pa.RecordBatch.from_arrays(columns, names, metadata=value.schema.metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        return sink.getvalue().to_pybytes()

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        with pa.ipc.open_stream(pa.py_buffer(encoded)) as reader:
            return reader.read_next_batch()

    def estimate_size(self, value: pa.RecordBatch) -> int:
        return value.nbytes

    def to_type_hint(self) -> type:
        """What Beam takes the elements for."""
        return pa.RecordBatch


# Beam uses them for elements that are typed with the three classes.
registry.register_coder(Block, BlockCoder)
registry.register_coder(Shard, ShardCoder)
registry.register_coder(pa.RecordBatch, RecordBatchCoder)
