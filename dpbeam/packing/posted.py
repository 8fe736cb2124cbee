"""What packing publishes: the prices and weights of the rounds that count, and the factors of the resources.

It is (epsilon, delta)-differentially private. With it, anybody can compute what an agent of any row gets: an agent what
it gets itself, which is why allocations may be shown to their own agents.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpbeam.errors import DataError
from dpbeam.kernels.columns import Columns
from dpbeam.packing.batches import check_numbers
from dpbeam.packing.config import Market, PackingPlan, Resource
from dpbeam.packing.market import WHOLE, Rows, demand_units, value_units
from dpbeam.packing.program import FACTORS, ROUND_PRICES, ROUND_WEIGHTS, ROUNDS

METADATA_KEY = b"dpbeam packing"
_PREFIX = "price:"


@dataclass(frozen=True)
class Posted:
    """Prices of the rounds that count.

    Attributes:
      market: its public numbers.
      price_bits: a price of one unit is 2^-price_bits, of a demand scaled to the scarcest resource.
      rounds: (rounds,) int64, which rounds they are; weights: (rounds,) int64, units of 2^-40.
      prices: (rounds, m) int64 units.
      factors: (m,) int64 units of 2^-40.
    """

    market: Market
    price_bits: int
    rounds: np.ndarray
    weights: np.ndarray
    prices: np.ndarray
    factors: np.ndarray

    @classmethod
    def of(cls, plan: PackingPlan, broadcast: Columns) -> Posted:
        """From the last broadcast of a run."""
        prices = np.asarray(broadcast[ROUND_PRICES]).reshape(-1, plan.size)
        return cls(
            plan.market,
            plan.price_bits,
            np.asarray(broadcast[ROUNDS]),
            np.asarray(broadcast[ROUND_WEIGHTS]),
            prices,
            np.asarray(broadcast[FACTORS]),
        )

    def allocate(self, values: Any, demands: Any) -> np.ndarray:
        """What agents with these rows get as fractions: (n,) float64 of (n,) values and (n, m) demands.

        Raises:
          InputError: a number is out of its public bounds.
        """
        values, demands = np.asarray(values, np.float64), np.asarray(demands, np.float64)
        market = self.market
        names = [resource.name for resource in market.resources]
        check_numbers(values, demands, market, "value", names)
        units = demand_units(demands, market.demand_factors, market.limits)
        rows = Rows(value_units(values, 1.0 / market.max_value), units, self.price_bits)
        return rows.allocate(self.prices, self.weights, self.factors)

    def average(self) -> dict[str, float]:
        """Mean price of a unit of each resource, in the units of values and demands."""
        mean = (self.weights @ self.prices.astype(np.float64)) / float(self.weights.sum())
        scaled = mean * 2.0**-self.price_bits * self.market.demand_factors * self.market.max_value
        return {r.name: float(price) for r, price in zip(self.market.resources, scaled)}

    def to_table(self) -> pa.Table:
        """Table (round, weight, price:NAME...).

        A price is that of a demand times the resource's `demand_factors` in the metadata, for values of at most one:
        numbers that float64 holds exactly, so that `from_table` restores all of it.
        """
        market = self.market
        exact = self.prices * 2.0**-self.price_bits  # 31 bits: exact
        columns: dict[str, Any] = {"round": self.rounds, "weight": self.weights / WHOLE}
        for j, resource in enumerate(market.resources):
            columns[_PREFIX + resource.name] = exact[:, j]
        about = {
            "market": market.to_dict(),
            "price_bits": self.price_bits,
            "demand_factors": market.demand_factors.tolist(),
            "factors": (self.factors / WHOLE).tolist(),
        }
        return pa.table(columns).replace_schema_metadata({METADATA_KEY: json.dumps(about).encode()})

    @classmethod
    def from_table(cls, table: pa.Table) -> Posted:
        """Inverse of `to_table`.

        Raises:
          InputError: it is no table of prices.
        """
        text = (table.schema.metadata or {}).get(METADATA_KEY)
        if text is None:
            raise DataError("this is no table of prices of dpbeam: it lacks the metadata")
        about = json.loads(text)
        market = about["market"]
        resources = tuple(Resource(**resource) for resource in market["resources"])
        posted_market = Market(resources, market["num_agents"], market["max_value"])
        names = [_PREFIX + resource.name for resource in resources]
        exact = np.column_stack([table[name].to_numpy() for name in names])
        return cls(
            posted_market,
            about["price_bits"],
            table["round"].to_numpy(),
            np.rint(table["weight"].to_numpy() * WHOLE).astype(np.int64),
            np.rint(exact * 2.0 ** about["price_bits"]).astype(np.int64),
            np.rint(np.array(about["factors"]) * WHOLE).astype(np.int64),
        )
