"""Data of an experiment in memory, as every method and measure sees them. NOT PRIVATE.

A dataset is indexed once and kept as flat files, which all worker processes map: they share its pages. Blocks of users
depend on the key, so each process builds its own and keeps the last, for the methods that go on with the same key.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.engine.in_process import build_blocks
from dpbeam.engine.program import Keys
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.pairs import Block
from dpbeam.packing.config import Market, Resource
from dpbeam.randomness import RunKey
from dpbeam.selection.sizes import choose_sizes
from dpbeam_lab.evaluation.indexed import IndexedSets
from dpbeam_lab.evaluation.packing import optimum

PAIRS, HISTOGRAM, MARKET = "pairs", "histogram", "market"
#: Kind of data -> the kinds that methods may take it for: pairs have a histogram too.
PROVIDED = {PAIRS: (PAIRS, HISTOGRAM), HISTOGRAM: (HISTOGRAM,), MARKET: (MARKET,)}
_ROWS_PER_BATCH = 1_000_000
_SETS_OF_BLOCKS = 2


@dataclass(frozen=True)
class Repetition:
    """One of the runs whose results are averaged: its key and generators follow from two numbers.

    Attributes:
      seed: of the experiment.
      number: from 0.
    """

    seed: int
    number: int

    @property
    def key(self) -> RunKey:
        """The test key `evaluate SEED NUMBER`, the same for every method: one sample of every user's items."""
        return RunKey.insecure_fixed(f"evaluate {self.seed} {self.number}")

    def rng(self) -> np.random.Generator:
        """For methods that draw from an ordinary generator."""
        return np.random.default_rng([self.seed, self.number])


@dataclass
class PairData:
    """Distinct (user, item) pairs.

    Attributes:
      indexed: pairs as integers; users and items as canonical bytes.
      preparing: CPU seconds spent on blocks so far, which are no method's.
    """

    indexed: IndexedSets
    preparing: float = 0.0
    _blocks: dict[tuple, list[Block]] = field(default_factory=dict)

    kind: ClassVar[str] = PAIRS

    @property
    def holders(self) -> np.ndarray:
        """(items,) int64 users that hold each item."""
        return self.indexed.holders

    @property
    def items(self) -> pa.Array:
        """(items,) canonical bytes."""
        return self.indexed.items

    @property
    def size(self) -> int:
        """Number of pairs."""
        return len(self.indexed.sets.links)

    def facts(self) -> dict[str, float]:
        """What tables say of the data; every user of pairs holds an item."""
        return {
            "users": len(self.indexed.sets.offsets) - 1,
            "items": self.indexed.num_items,
            "entries": self.size,
        }

    def batches(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """(users, items) arrays of all pairs, as `run_in_process` takes them."""
        sets = self.indexed.sets
        for start in range(0, self.size, _ROWS_PER_BATCH):
            rows = np.arange(start, min(start + _ROWS_PER_BATCH, self.size))
            user = np.searchsorted(sets.offsets, rows, side="right") - 1
            item = pa.array(np.asarray(sets.links[rows]), pa.int32())
            yield (
                self.indexed.users.take(pa.array(user)),
                pa.DictionaryArray.from_arrays(item, self.indexed.items),
            )

    def blocks(self, repetition: Repetition, cap: int) -> list[Block]:
        """Blocks of all pairs under the key of a repetition, at most `cap` items of a user; fresh to every caller."""
        wanted = (repetition, cap)
        if wanted not in self._blocks:
            start = time.process_time()
            sizes = choose_sizes(self.size)
            built = build_blocks(
                self.batches(),
                Keys(repetition.key),
                cap,
                num_blocks=sizes.num_blocks,
                num_shards=sizes.num_shards,
            )
            while len(self._blocks) >= _SETS_OF_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[wanted] = list(built)
            self.preparing += time.process_time() - start
        return [replace(block, state={}, broadcast={}) for block in self._blocks[wanted]]

    def positions(self, items: pa.Array) -> np.ndarray:
        """(n,) int64 positions of canonical items among those of the data, -1 for what nobody holds."""
        places = pc.index_in(items.cast(pa.large_binary()), value_set=self.indexed.items)
        return places.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)

    def save(self, folder: str) -> None:
        """Write as files that `open_data` maps."""
        np.save(os.path.join(folder, "offsets.npy"), self.indexed.sets.offsets)
        np.save(os.path.join(folder, "links.npy"), self.indexed.sets.links.astype(np.int32))
        _write_array(self.indexed.users, folder, "users")
        _write_array(self.indexed.items, folder, "items")

    @classmethod
    def open(cls, folder: str) -> PairData:
        """What `save` wrote, mapped."""
        offsets, links = (
            np.load(os.path.join(folder, f"{name}.npy"), mmap_mode="r") for name in ("offsets", "links")
        )
        users, items = (_mapped_array(folder, name) for name in ("users", "items"))
        return cls(IndexedSets(Csr(np.asarray(offsets), np.asarray(links)), items, users))


@dataclass
class MarketData:
    """Agents of a market, numbered in order.

    Attributes:
      values: (n,) and demands: (n, m), in [0, 1].
      supply: of every resource.
      preparing: CPU seconds that are no method's.
      notes: what was computed of the market and serves several runs.
    """

    values: np.ndarray
    demands: np.ndarray
    supply: float
    preparing: float = 0.0
    notes: dict[Any, Any] = field(default_factory=dict)

    kind: ClassVar[str] = MARKET

    @property
    def size(self) -> int:
        """Number of demands."""
        return self.demands.size

    def facts(self) -> dict[str, float]:
        """What tables say of the data."""
        agents, resources = self.demands.shape
        return {"agents": agents, "resources": resources, "supply_share": self.supply / agents}

    def described(self) -> Market:
        """The public numbers of the market, of resources r0, r1, ..."""
        resources = tuple(Resource(f"r{j}", self.supply) for j in range(self.demands.shape[1]))
        return Market(resources, len(self.values))

    def optimum(self) -> float:
        """The welfare of the linear program, solved once."""
        if "optimum" not in self.notes:
            start = time.process_time()
            self.notes["optimum"] = optimum(self.values, self.demands, self.supply)
            self.preparing += time.process_time() - start
        return self.notes["optimum"]

    def save(self, folder: str) -> None:
        """Write as files that `open_data` maps."""
        for name in ("values", "demands"):
            np.save(os.path.join(folder, f"{name}.npy"), getattr(self, name))
        np.save(os.path.join(folder, "supply.npy"), np.float64(self.supply))

    @classmethod
    def open(cls, folder: str) -> MarketData:
        """What `save` wrote, mapped."""
        values, demands = (
            np.load(os.path.join(folder, f"{name}.npy"), mmap_mode="r") for name in ("values", "demands")
        )
        return cls(
            np.asarray(values), np.asarray(demands), float(np.load(os.path.join(folder, "supply.npy")))
        )


@dataclass
class HistogramData:
    """Items, and how many users hold each; who holds what is not known.

    Attributes:
      items: (items,) canonical bytes.
      holders: (items,) int64.
      preparing: CPU seconds that are no method's.
    """

    items: pa.Array
    holders: np.ndarray
    preparing: float = 0.0

    kind: ClassVar[str] = HISTOGRAM

    @property
    def size(self) -> int:
        """Number of items."""
        return len(self.items)

    def facts(self) -> dict[str, float]:
        """What tables say of the data."""
        return {"items": self.size, "entries": int(self.holders.sum())}

    def save(self, folder: str) -> None:
        """Write as files that `open_data` maps."""
        np.save(os.path.join(folder, "holders.npy"), self.holders)
        _write_array(self.items, folder, "items")

    @classmethod
    def open(cls, folder: str) -> HistogramData:
        """What `save` wrote, mapped."""
        holders = np.load(os.path.join(folder, "holders.npy"), mmap_mode="r")
        return cls(_mapped_array(folder, "items"), np.asarray(holders))


Data = PairData | HistogramData | MarketData
_TYPES: dict[str, type[PairData] | type[HistogramData] | type[MarketData]] = {
    PAIRS: PairData,
    HISTOGRAM: HistogramData,
    MARKET: MarketData,
}


def open_data(kind: str, folder: str) -> Data:
    """Data that were saved in a folder."""
    return _TYPES[kind].open(folder)


def _write_array(array: pa.Array, folder: str, name: str) -> None:
    batch = pa.record_batch([array.cast(pa.large_binary())], names=[name])
    with pa.ipc.new_file(os.path.join(folder, f"{name}.arrow"), batch.schema) as writer:
        writer.write_batch(batch)


def _mapped_array(folder: str, name: str) -> pa.Array:
    return pa.ipc.open_file(pa.memory_map(os.path.join(folder, f"{name}.arrow"))).get_batch(0).column(0)
