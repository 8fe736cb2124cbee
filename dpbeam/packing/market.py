"""Agents as integers: rows on public grids, exact sums, and what an agent takes at given prices.

Everything here is exact. Demands are multiples of 2^-22, rounded up, so that what is feasible for them is feasible for
the agents; values are multiples of 2^-22, rounded down; prices are multiples of a power of two. A bundle's cost and
the sum of a million demands are then integers below 2^53, which float64 holds exactly: matrix products give the same
numbers in any order, on any machine, for any division of the agents into blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpbeam.errors import DataError
from dpbeam.kernels.canonical import METADATA_KEY
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import Block, argsort_fingerprints, common_kinds, kinds_column, range_bucket
from dpbeam.randomness import fingerprints

GRID_BITS = 22  # a float32 holds multiples of 2^-22 in [0, 1]
#: Prices sum to at most 2^31 units, so that a bundle costs at most 2^53 of the product's.
PRICE_BITS = 31
WHOLE = 1 << 40  # what the weights of rounds add up to at most, in multiples of 2^-40
MAX_AGENTS = 1 << 31  # of demand one each: a sum below 2^53
MAX_RESOURCES = 1_000
VALUE, DEMAND = "value", "demand"

_ONE = 1 << GRID_BITS
_CELLS = 1 << 17  # of demands at work: a megabyte, which stays in the cache
_ROUNDS = 256  # at once, in `allocate`


def sensitivity_of(limits: np.ndarray, max_resources: int | None) -> float:
    """l2-sensitivity of the total demand when the row of one agent is replaced, rounded up.

    Both rows lie in the box of the limits, so their difference is at most its diagonal; with at most K resources
    each, the difference has at most 2 K entries.

    Args:
      limits: (m,) int64, the largest demand of each resource, units of 2^-22.
      max_resources: K; None: all.
    """
    largest = sorted(map(int, limits), reverse=True)
    if max_resources is not None:
        largest = largest[: 2 * max_resources]
    square = sum(limit * limit for limit in largest)
    return math.nextafter(math.sqrt(square), math.inf) / (1 << GRID_BITS)


def demand_units(demands: np.ndarray, factors: np.ndarray, limits: np.ndarray | None = None) -> np.ndarray:
    """Demands of (n, m), each column times its public factor, rounded up to the grid: (n, m) float32 of integers.

    Args:
      limits: (m,) units that a column does not exceed; factors are rounded, these are not. None: one.

    Raises:
      ValueError: a product outside of [0, 1].
    """
    scaled = np.ceil(_inside("demands", demands * factors) * (1 << GRID_BITS))
    return np.minimum(scaled, _ONE if limits is None else limits).astype(np.float32)


def value_units(values: np.ndarray, factor: float) -> np.ndarray:
    """Values times a public factor, rounded down to the grid: (n,) float32 of integers.

    Raises:
      ValueError: a product outside of [0, 1].
    """
    scaled = np.floor(_inside("values", values * factor) * (1 << GRID_BITS))
    return np.minimum(scaled, _ONE).astype(np.float32)


def _inside(what: str, scaled: np.ndarray) -> np.ndarray:
    if not ((scaled >= 0) & (scaled <= 1 + 1e-12)).all():  # also false for NaN
        raise ValueError(f"{what} must lie in [0, 1]")
    return scaled


@dataclass(frozen=True)
class Rows:
    """Some agents.

    Attributes:
      values: (n,) float32, units of 2^-22.
      demands: (n, m) float32, units of 2^-22.
      price_bits: a price of one unit is 2^-price_bits.
    """

    values: np.ndarray
    demands: np.ndarray
    price_bits: int

    @classmethod
    def of(cls, block: Block, price_bits: int) -> Rows:
        """Rows of a block's agents, at prices of this many binary places."""
        values = np.asarray(block.user_values[VALUE])
        demands = np.asarray(block.user_values[DEMAND]).reshape(len(values), -1)
        return cls(values, demands, price_bits)

    def __len__(self) -> int:
        return len(self.values)

    def _parts(self, cells: int = _CELLS) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Slices with values in units of cost, and demands, as float64."""
        step = max(256, cells // max(self.demands.shape[1], 1))
        for start in range(0, len(self), step):
            part = slice(start, start + step)
            values = np.ldexp(self.values[part].astype(np.float64), self.price_bits)
            yield part, values, self.demands[part].astype(np.float64)

    def total_demand(self, prices: np.ndarray) -> np.ndarray:
        """What the agents want at these prices: (m,) int64, units of 2^-22.

        An agent wants its bundle where its value is at least what the bundle costs (Huang and Zhu, Algorithm 1).

        Args:
          prices: (m,) int64 units, of sum at most 2^31.
        """
        price = prices.astype(np.float64)
        total = np.zeros(self.demands.shape[1], np.int64)
        for _, values, demands in self._parts():
            wants = values >= demands @ price
            total += (wants.astype(np.float64) @ demands).astype(np.int64)
        return total

    def allocate(self, prices: np.ndarray, weights: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """The share of its bundle that each agent gets, from what is public and its own row alone.

        The weighted share of the rounds in which it wants its bundle, times the smallest factor among the resources
        that it demands.

        Args:
          prices: (rounds, m) int64; weights: (rounds,) int64, units of 2^-40, of sum at most one.
          factors: (m,) int64 in units of 2^-40, at most one.

        Returns:
          (n,) float64.
        """
        shares = np.zeros(len(self))
        price = np.ascontiguousarray(prices.T.astype(np.float64))
        weight = weights.astype(np.float64)
        factor = factors / float(WHOLE)
        whole = float(weights.sum())
        for part, values, demands in self._parts(max(256, _CELLS * 8 // _ROUNDS) * self.demands.shape[1]):
            got = np.zeros(len(values))
            for start in range(0, len(weight), _ROUNDS):
                wants = values[:, None] >= demands @ price[:, start : start + _ROUNDS]
                got += wants.astype(np.float64) @ weight[start : start + _ROUNDS]
            limit = np.where(demands > 0, factor, 1.0).min(axis=1, initial=1.0)
            shares[part] = got / whole * limit if whole else 0.0
        return shares


def partition_agents(
    agents: pa.Array, values: np.ndarray, demands: np.ndarray, key: bytes, num_blocks: int, kinds: bytes = b""
) -> Iterator[tuple[int, Columns]]:
    """Split agents by block, ready for a shuffle: (block, columns).

    A block is a range of keyed fingerprints of agents, so that two rows of one agent meet wherever they come from.

    Args:
      agents: (n,) canonical bytes, no nulls; values: (n,) and demands: (n, m), float32 units.
    """
    fp = fingerprints(key, agents)
    block = range_bucket(fp, num_blocks)
    order = np.argsort(block, kind="stable")
    bounds = np.searchsorted(block[order], np.arange(num_blocks + 1))
    for number in np.flatnonzero(np.diff(bounds)):
        rows = order[bounds[number] : bounds[number + 1]]
        yield (
            int(number),
            {
                "fp": fp[rows],
                "agents": agents.take(pa.array(rows)),
                VALUE: values[rows],
                DEMAND: demands[rows].reshape(-1),
                "kinds": kinds_column(kinds),
            },
        )


def build_agents(number: int, messages: Sequence[Columns], column: str = "agent") -> Block:
    """The block of the agents that `partition_agents` sent, in the order of their fingerprints.

    Args:
      column: name of the agents' column, for the message.

    Raises:
      InputError: an agent occurs twice.
    """
    fp = np.concatenate([message["fp"] for message in messages])
    order = argsort_fingerprints(fp)
    fp = fp[order]
    if (fp[1:] == fp[:-1]).all(axis=1).any():
        raise DataError(f"column '{column}' holds an agent twice; every agent is one row")
    agents = pa.concat_arrays([message["agents"] for message in messages])
    values = np.concatenate([message[VALUE] for message in messages])
    demands = np.concatenate([message[DEMAND] for message in messages]).reshape(len(values), -1)
    return Block(
        id=number,
        offsets=np.zeros(1, np.int64),
        links=np.empty(0, np.int32),
        shard_offsets=np.zeros(1, np.int64),
        identity=np.empty((0, 2), np.uint64),
        user_fp=fp,
        items=agents.take(pa.array(order)),
        kinds=common_kinds(messages),
        user_values={VALUE: values[order], DEMAND: demands[order].reshape(-1)},
    )


def allocation_batch(block: Block, shares: np.ndarray) -> pa.RecordBatch:
    """The agents of a block and what each gets: record batch (agent: canonical bytes, allocation)."""
    schema = pa.schema(
        [("agent", pa.large_binary()), ("allocation", pa.float64())], metadata={METADATA_KEY: block.kinds}
    )
    agents = pa.array([], pa.large_binary()) if block.items is None else block.items.cast(pa.large_binary())
    return pa.RecordBatch.from_arrays([agents, pa.array(shares)], schema=schema)
