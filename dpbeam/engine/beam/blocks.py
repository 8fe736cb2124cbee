"""From record batches to blocks of users: SubsamplePerUser."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from dpbeam.engine.beam import coders as _coders  # noqa: F401  (registers the coders)
from dpbeam.engine.beam.messages import (
    FILE_PREFIX,
    PAIRS_GONE,
    PAIRS_PREFIX,
    PairsGoneError,
    receive,
    send,
)
from dpbeam.engine.beam.receipts import BATCHES, BLOCKS, ROWS, mark_of
from dpbeam.engine.beam.run import RunDoFn, bind_settings
from dpbeam.engine.beam.run_folder import in_run
from dpbeam.engine.beam.store import RunStore
from dpbeam.engine.beam.trip_files import built_block
from dpbeam.kernels.canonical import METADATA_KEY
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.kept import KeptItems
from dpbeam.kernels.pairs import (
    TABLE_ROWS,
    Block,
    are_rare_in_messages,
    as_dictionary,
    build_block,
    build_complete_block,
    entries_of_rows,
    join_dictionaries,
    pack_pairs,
    pairs_in,
    partition_again,
    partition_pairs,
    rows_in,
    unpack_pairs,
)
from dpbeam.kernels.users import UserRows

# Rows partitioned at once: large enough to amortise a vectorised step over all blocks, small enough that a
# worker's buffers stay near 200 MB. Every batch names a user once: larger ones carry fewer fingerprints.
PARTITION_ROWS = 2_000_000
KEPT_ROWS = 1_000_000  # where messages stay in memory: nothing is sent, and less leaves the cache
PARTITION_BYTES = 128_000_000  # long items
_DISTINCT = 8  # rows for each entry of their dictionaries, at least, where the dictionaries are unified
# Blocks that a batch is split into directly. With more, its messages would be too small to go through files, and from
# 4,000 on their number would cost more CPU than a second shuffle: groups of blocks first, then blocks.
FANOUT = 300
# Groups, at least: the tasks of the second split. A batch's messages to so many are still about 50 kB.
GROUPS = 500


class TakesBatches(RunDoFn):
    """A DoFn that takes record batches as they were read."""

    def took(self, batch: pa.RecordBatch) -> None:
        """Leave a receipt of a batch that `dpbeam.io` has read."""
        number = mark_of(batch)
        if number is not None:
            self.receipt(BATCHES, number, batch.num_rows)


class BuildsBlocks(RunDoFn):
    """A DoFn that makes blocks."""

    def built(self, number: int, rows: int | None, block: Block | None) -> None:
        """Leave receipts of a block.

        Args:
          rows: from which it was built; None: from the block as it is stored.
          block: None: there is nothing in it.
        """
        if rows is not None:
            self.receipt(ROWS, number, rows)
        if block is not None:
            self.receipt(BLOCKS, block.id, 1)


class _PartitionPairs(TakesBatches):
    """Record batches (user, item) -> (block, message); small batches are partitioned together.

    With groups of blocks: (group, message). Where a pair goes depends on its user's fingerprint alone: an engine that
    runs this step again, with batches in another order or cut otherwise, after a part of its output was consumed,
    would else lose pairs.
    """

    def __init__(self, store: RunStore, num_blocks: int, cap: int, group: int, prefix: str = FILE_PREFIX):
        super().__init__(store)
        self._num_blocks = num_blocks
        self._cap = cap
        self._group = group
        self._prefix = prefix
        self._kinds = b""
        self._begin()

    def start_bundle(self) -> None:
        super().start_bundle()
        self._begin()

    def _begin(self) -> None:
        self._users: list[UserRows] = []
        self._items = _Items(kept=self._kept is not None)
        self._rows = self._bytes = 0

    @property
    def _kept(self) -> KeptItems | None:
        """Where items stay while numbers are sent; None: they are sent."""
        return self._store.kept_items if self._group == 1 else None

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
        self.took(batch)
        if not batch.num_rows:
            return
        items, kinds = batch.column("item"), (batch.schema.metadata or {}).get(METADATA_KEY, b"")
        if self._rows and kinds != self._kinds:
            yield from self._flush()
        self._kinds = kinds
        # Fingerprints instead of the names: what is held is smaller, and nothing is copied to be joined.
        users = UserRows.of(batch.column("user"), self._keys.pairs.user)
        self._users.append(users)
        self._items.add(items)
        self._rows += batch.num_rows
        self._bytes += users.fp.nbytes + items.nbytes
        most = PARTITION_ROWS if self._kept is None else KEPT_ROWS
        if self._rows >= most or self._bytes >= PARTITION_BYTES:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for element in self._flush():
            yield WindowedValue(element, window.max_timestamp(), (window,))
        super().finish_bundle()

    def _flush(self) -> Iterator[tuple[int, bytes]]:
        if not self._rows:
            return
        users = UserRows.concat(self._users)
        alone = self._kept is None and users.mostly_single
        items = self._items.joined(math.ceil(self._num_blocks / self._group) if alone else 0)
        self._begin()
        keys, sizes = self._keys.pairs, (self._num_blocks, self._cap)
        parts = partition_pairs(users, items, keys, *sizes, self._kinds, group=self._group, kept=self._kept)
        yield from send(self._store, parts, self._prefix, pack_pairs)


class _PartitionAgain(RunDoFn):
    """(group of blocks, messages) -> (block, message)."""

    def __init__(self, store: RunStore, num_blocks: int, cap: int, group: int, prefix: str):
        super().__init__(store)
        self._num_blocks = num_blocks
        self._cap = cap
        self._group = group
        self._prefix = prefix

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
        number, messages = element
        try:
            yield from self._split(messages)
        except PairsGoneError:
            blocks = range(number * self._group, min((number + 1) * self._group, self._num_blocks))
            yield from ((block, PAIRS_GONE) for block in blocks)

    def _split(self, messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        held: list[Columns] = []
        rows = size = 0
        for message in receive(self._store, messages, unpack_pairs):
            held.append(message)
            rows += pairs_in(message)
            size += message["dictionary"].nbytes
            if rows >= PARTITION_ROWS or size >= PARTITION_BYTES:
                yield from self._flush(held)
                held, rows, size = [], 0, 0
        yield from self._flush(held)

    def _flush(self, messages: list[Columns]) -> Iterator[tuple[int, bytes]]:
        parts = partition_again(messages, self._keys.pairs, self._num_blocks, self._cap)
        yield from send(self._store, parts, self._prefix, pack_pairs)


class _Items:
    """The items of some batches, as dictionaries: of plain batches one for TABLE_ROWS rows.

    Args:
      kept: entries stay in this process.
    """

    def __init__(self, *, kept: bool = False) -> None:
        self._kept = kept
        self._parts: list[pa.DictionaryArray] = []
        self._plain: list[pa.Array] = []

    def add(self, items: pa.Array) -> None:
        """The items of one more batch, plain or a dictionary."""
        if pa.types.is_dictionary(items.type):
            self._fold()
            self._parts.append(items)
        else:
            self._plain.append(items)

    def joined(self, messages: int = 0) -> pa.DictionaryArray:
        """One column of all batches, in their order.

        Args:
          messages: users have a row each and go to so many; plain items that are rare in each of these have an entry
            for each row. 0: each value has one.
        """
        if messages and not self._parts and are_rare_in_messages(self._plain[0], messages):
            return entries_of_rows(pa.concat_arrays(self._plain))
        self._fold()
        if _DISTINCT * sum(len(part.dictionary) for part in self._parts) < sum(map(len, self._parts)):
            return pa.chunked_array(self._parts).unify_dictionaries().combine_chunks()
        # To unify costs 0.2 us an entry, more than it saves where most entries are of one part alone.
        return join_dictionaries(self._parts)

    def _fold(self) -> None:
        if self._plain:
            plain = pa.concat_arrays(self._plain)
            pieces = (plain.slice(start, TABLE_ROWS) for start in range(0, len(plain), TABLE_ROWS))
            self._parts += [as_dictionary(piece, kept=self._kept) for piece in pieces]
            self._plain = []


class _BuildBlocks(BuildsBlocks):
    """(block, messages) -> (block, Block): distinct pairs and each user's sample.

    Messages that can be read decide, so that other data meet other sums, not a block of before.
    """

    def __init__(self, store: RunStore, num_shards: int, cap: int):
        super().__init__(store)
        self._num_shards = num_shards
        self._cap = cap

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, Block]]:
        number, messages = element
        rows = None
        try:
            parts = list(receive(self._store, messages, unpack_pairs))
            rows = sum(map(rows_in, parts))
            block = build_block(number, parts, self._keys.pairs, self._num_shards, self._cap)
        except PairsGoneError:
            block = built_block(self._store, number, self._keys)
        self.built(number, rows, block)
        if block is not None:
            yield number, block


class _NameUsers(beam.DoFn):
    """(block, record batch of whole users) -> record batch (user, item), users named by block and ordinal."""

    def process(self, element: tuple[int, pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, batch = element
        names = np.empty((batch.num_rows, 2), "<u8")
        names[:, 0] = np.uint64(number)
        names[:, 1] = batch.column("user").to_numpy()
        width = names.shape[1] * names.itemsize
        offsets = np.arange(0, names.nbytes + 1, width, dtype=np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(names)]
        users = pa.Array.from_buffers(pa.large_binary(), batch.num_rows, buffers)
        items = batch.column("item")
        schema = pa.schema([("user", users.type), ("item", items.type)], metadata=batch.schema.metadata)
        yield pa.RecordBatch.from_arrays([users, items], schema=schema)


class _BuildCompleteBlocks(TakesBatches, BuildsBlocks):
    """(block, record batch of whole users) -> (block, Block)."""

    def __init__(self, store: RunStore, num_shards: int, cap: int):
        super().__init__(store)
        self._num_shards = num_shards
        self._cap = cap

    def process(self, element: tuple[int, pa.RecordBatch]) -> Iterator[tuple[int, Block]]:
        number, batch = element
        kinds = (batch.schema.metadata or {}).get(METADATA_KEY, b"")
        users = batch.column("user").to_numpy()
        items = batch.column("item")
        block = build_complete_block(
            number, users, items, self._keys.pairs, self._num_shards, self._cap, kinds
        )
        self.took(batch)
        self.built(number, batch.num_rows, block)
        if block is not None:
            yield number, block


class PartitionByUser(beam.PTransform):
    """Pairs on their way to the blocks of their users: PCollection[pa.RecordBatch(user, item)] ->
    PCollection[(int, bytes)], one shuffle where there are more than FANOUT blocks, none otherwise.

    Args:
      cap: items of a user that are needed at most.
      stored: who receives the pairs takes a stored block where they are gone: they may go once all blocks are stored.
    """

    def __init__(self, store: RunStore, num_blocks: int, cap: int, *, stored: bool = False):
        super().__init__()
        self._store, self._num_blocks, self._cap = store, num_blocks, cap
        self._prefix = PAIRS_PREFIX if stored else FILE_PREFIX

    def expand(self, pcoll: PCollection) -> PCollection:
        group = 1
        if self._num_blocks > FANOUT:
            group = math.ceil(self._num_blocks / max(GROUPS, math.isqrt(self._num_blocks)))
        sizes = self._store, self._num_blocks, self._cap, group, self._prefix
        partition = _PartitionPairs(*sizes)
        parts = pcoll | "PartitionByUser" >> in_run(partition).with_output_types(tuple[int, bytes])
        if self._num_blocks > FANOUT:
            again = _PartitionAgain(*sizes)
            parts = (
                parts
                | "GroupByBlocks" >> beam.GroupByKey()
                | "PartitionAgain" >> in_run(again).with_output_types(tuple[int, bytes])
            )
        return parts


class SubsamplePerUser(beam.PTransform):
    """Bounds every user to a uniform sample of its distinct items and groups users into blocks.

    PCollection[pa.RecordBatch(user, item)] -> PCollection[(int, Block)], one shuffle by user, two where there are more
    than FANOUT blocks. With `complete=True` the input is PCollection[(block id, pa.RecordBatch)] whose users are
    whole already, and nothing is shuffled; unless blocks must be `ranges` of the order of user fingerprints
    (`replies_by_link`), which such blocks are not: one user more would move the others between them.

    Memory per worker: one block, about 150 bytes per pair of the block.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        num_blocks: int,
        num_shards: int,
        cap: int,
        complete: bool = False,
        ranges: bool = False,
    ):
        super().__init__()
        self._store = store
        self._num_blocks, self._num_shards, self._cap = num_blocks, num_shards, cap
        self._complete, self._ranges = complete, ranges

    def expand(self, pcoll: PCollection) -> PCollection:
        bind_settings(self._store, "sizes", sorted(self.display_data().items()))
        if self._complete and self._ranges:
            name = _NameUsers()  # type: ignore[no-untyped-call]
            pcoll = pcoll | "NameUsers" >> beam.ParDo(name).with_output_types(pa.RecordBatch)
        elif self._complete:
            whole = _BuildCompleteBlocks(self._store, self._num_shards, self._cap)
            return pcoll | "BuildBlocks" >> in_run(whole).with_output_types(tuple[int, Block])
        # In place, so that its steps keep their names.
        parts = PartitionByUser(self._store, self._num_blocks, self._cap, stored=True).expand(pcoll)
        build = _BuildBlocks(self._store, self._num_shards, self._cap)
        return (
            parts
            | "GroupByUser" >> beam.GroupByKey()
            | "SamplePerUser" >> in_run(build).with_output_types(tuple[int, Block])
        )

    def display_data(self) -> dict[str, Any]:
        return {"num_blocks": self._num_blocks, "num_shards": self._num_shards, "cap": self._cap}
