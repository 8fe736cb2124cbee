"""Small markets, and packing in exact arithmetic, written from the definition."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
from scipy.optimize import linprog

from dpbeam.in_memory.pack import run_in_memory
from dpbeam.kernels.canonical import Kinds
from dpbeam.packing.batches import agent_batch
from dpbeam.packing.config import Market, PackingPlan, Resource, make_plan
from dpbeam.packing.family import PackingConfig
from dpbeam.packing.posted import Posted
from tests.support.running import key

GRID = 1 << 22


def market(supplies, agents: int, **more) -> Market:
    resources = tuple(Resource(f"r{j}", float(b)) for j, b in enumerate(supplies))
    return Market(resources, agents, **more)


def random_rows(agents: int, resources: int, seed: int, filled: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Values and demands, a share of the latter zero."""
    rng = np.random.default_rng(seed)
    demands = rng.random((agents, resources)) * (rng.random((agents, resources)) < filled)
    return rng.random(agents), demands


def plan(size: Market, epsilon=1.0, delta=1e-6, **settings) -> PackingPlan:
    settings.setdefault("allow_small_supply", True)
    return make_plan(PackingConfig(epsilon, delta, **settings), size)


def batch_of(values, demands) -> pa.RecordBatch:
    agents = pa.array([f"agent {i}".encode() for i in range(len(values))], pa.large_binary())
    return agent_batch(agents, values, demands, Kinds("string", ("string",)).metadata())


def packed(made: PackingPlan, values, demands, name="pack", **more) -> tuple[np.ndarray, Posted]:
    """Allocations in the order of the rows, and prices."""
    table, prices = run_in_memory(made, batch_of(values, demands), key(name), **more)
    return table["allocation"].to_numpy(), prices


def optimum(values, demands, supplies) -> float:
    """Of the linear program, by HiGHS."""
    solution = linprog(-values, A_ub=demands.T, b_ub=supplies, bounds=(0, 1), method="highs")
    assert solution.status == 0
    return -solution.fun


def slow_share(value: float, demand, posted: Posted) -> Fraction:
    """What one agent gets, in fractions, from what is public and its own row."""
    made = posted.market
    relative = [Fraction(r.supply) / Fraction(r.max_demand) for r in made.resources]
    scaled = []
    for a, b, resource in zip(demand, relative, made.resources):
        exact = Fraction(float(a)) / Fraction(resource.max_demand) * (min(relative) / b)
        scaled.append(Fraction(-((-exact * GRID) // 1), GRID))
    worth = Fraction((Fraction(float(value)) / Fraction(made.max_value) * GRID) // 1, GRID)
    won = Fraction(0)
    for prices, weight in zip(posted.prices, posted.weights):
        cost = sum(a * int(p) for a, p in zip(scaled, prices)) / Fraction(2**posted.price_bits)
        won += int(weight) if worth >= cost else 0
    factors = [Fraction(int(f), 2**40) for f, a in zip(posted.factors, scaled) if a > 0]
    return won / int(posted.weights.sum()) * min([Fraction(1), *factors])
