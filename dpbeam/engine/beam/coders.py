"""Coders of the objects that pass between stages.

Stages that run fused pass these objects by reference. Where a runner does put a boundary between them, they
cross it as columns (`dpbeam.kernels.columns`) or Arrow IPC, never as pickles.
"""

from __future__ import annotations

import pyarrow as pa
from apache_beam import coders

from dpbeam.kernels.canonical import one_level
from dpbeam.kernels.columns import Columns, decode, encode
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard


class BlockCoder(coders.Coder):
    """A user block with its items."""

    def encode(self, value: Block) -> bytes:
        return encode(value.to_columns(with_items=True))

    def decode(self, encoded: bytes) -> Block:
        return Block.from_columns(decode(encoded))

    def estimate_size(self, value: Block) -> int:
        return _size(value.to_columns(with_items=True))

    def is_deterministic(self) -> bool:
        return False

    def to_type_hint(self):
        return Block


class ShardCoder(coders.Coder):
    """An item shard with sums and state."""

    def encode(self, value: Shard) -> bytes:
        return encode(value.to_columns())

    def decode(self, encoded: bytes) -> Shard:
        return Shard.from_columns(decode(encoded))

    def estimate_size(self, value: Shard) -> int:
        return _size(value.to_columns())

    def is_deterministic(self) -> bool:
        return False

    def to_type_hint(self):
        return Shard


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

    def is_deterministic(self) -> bool:
        return False

    def to_type_hint(self):
        return pa.RecordBatch


def _size(columns: Columns) -> int:
    """Bytes of the arrays. Beam samples element sizes; its default encodes the whole element to measure it."""
    return sum(values.nbytes for values in columns.values())


def register() -> None:
    """Make Beam use these coders for elements typed with the three classes."""
    coders.registry.register_coder(Block, BlockCoder)
    coders.registry.register_coder(Shard, ShardCoder)
    coders.registry.register_coder(pa.RecordBatch, RecordBatchCoder)


register()
