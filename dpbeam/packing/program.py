"""Private dual multiplicative weights as a loop of the hub: prices out, total demand in, noise under a filter.

Source: Huang and Zhu, "Scalable and Jointly Differentially Private Packing", Algorithm 1; docs/explanation/packing.md
says what differs from it, and why. Blocks hold agents and answer with their total demand at the prices of the round;
the hub adds noise, moves the prices, and at last says which rounds count and how far allocations are scaled down. An
agent's allocation is a function of that broadcast and its own row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpbeam.accounting.noise import NoiseMismatchError
from dpbeam.engine.planned import check_plan
from dpbeam.engine.program import Decided, Draw, Keys, Program
from dpbeam.errors import DataError, param
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.grid import UNIT_BITS, UNITS
from dpbeam.kernels.pairs import Block
from dpbeam.packing.market import GRID_BITS, WHOLE, Rows, allocation_batch, sensitivity_of
from dpbeam.packing.prices import prices_of, step

if TYPE_CHECKING:
    from dpbeam.packing.config import PackingPlan

PRICES, ROUND_PRICES, ROUND_WEIGHTS, ROUNDS, FACTORS = (
    "prices",
    "round_prices",
    "round_weights",
    "rounds",
    "factors",
)
_WHOLE_COIN = 1 << 53


class PackingProgram(Program):
    """Packing of a plan.

    Broadcast of every round: the prices of the next one. Of the last: the prices and weights of the rounds that count,
    and the factors of the resources.

    Raises:
      NoiseMismatchError: the plan's noise is for a smaller sensitivity than the market's.
      and as `check_plan`.
    """

    norm, cap, weight_grid, output = "l2", 1, 1.0, "blocks"
    may_end = True

    def __init__(self, plan: PackingPlan):
        self.plan = plan
        self.trips = plan.rounds_limit
        self.reply_columns = {}
        config, market = plan.config, plan.market
        if plan.noise.sensitivity < sensitivity_of(market.limits, config.max_resources_per_agent):
            raise NoiseMismatchError("the noise does not protect the demand of one agent")
        check_plan(self, plan.event, config.epsilon, config.delta, "an allocation")
        self._largest, self._bits = plan.largest_price, plan.price_bits
        self._target = math.floor(plan.target * UNITS)
        self._supply = math.floor(market.supply * UNITS)
        self._first = np.zeros(market.size, np.int64)
        rest = WHOLE - plan.start_units * config.start_rounds
        # Rounds at the full step after the start: ln(m + 1) / alpha^2 of them use up the rest.
        self._full = rest * Fraction(config.alpha) ** 2 / Fraction(math.log(market.size + 1))
        self._least = -(-rest // config.max_rounds)

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return ()

    def noise(self, trip: int) -> None:
        return None

    def hub_noise(self, trip: int) -> Any:
        return self.plan.noise

    def meets(self, trip: int) -> str:
        return "blocks"

    def done(self, trip: int, broadcast: Columns) -> bool:
        return FACTORS in broadcast

    def weigh(self, trip: int, block: Block, reply: Any, keys: Keys) -> tuple[dict[str, np.ndarray], None]:
        return {}, None

    def summarise(self, trip: int, part: Any, keys: Keys) -> Columns:
        """The total demand of a block at the prices of this round; on the first trip also its agents."""
        prices = part.broadcast[PRICES] if trip else self._prices(self._first)
        rows = Rows.of(part, self._bits)
        summary: Columns = {"demand": rows.total_demand(prices)}
        return summary if trip else {**summary, "agents": np.array([len(rows)], np.int64)}

    def decide(self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw) -> Decided:
        """One round: noisy demand, then all the rest of it by post-processing."""
        if trip == 0:
            self._check_agents(summaries)
            state = self._empty()
        share = self._share_of(trip, state)
        demand = np.zeros(self.plan.size, np.int64)
        for summary in summaries:
            demand += summary["demand"]
        noisy = draw.noisy_within(share / WHOLE, demand << (UNIT_BITS - GRID_BITS), self._places())
        counts = int(state["taken"][0]) >= self.plan.settled_units
        theta = step(state["theta"], self._target - noisy, self._step_size(trip, noisy))
        after: Columns = {
            "theta": theta,
            "noisy": noisy,
            "taken": state["taken"] + share,
        }
        prices = self._prices(state["theta"])
        for name, values in (
            (ROUND_PRICES, prices),
            (ROUND_WEIGHTS, [share]),
            (ROUNDS, [trip + 1]),
            ("round_noisy", noisy),
        ):
            more = np.array(values, np.int64) if counts else np.empty(0, np.int64)
            after[name] = np.concatenate([state[name], more])
        if int(after["taken"][0]) < WHOLE:
            return after, {PRICES: self._prices(theta)}
        return after, self._final(after)

    def finish_block(self, block: Block) -> pa.RecordBatch:
        said = block.broadcast
        prices = said[ROUND_PRICES].reshape(-1, self.plan.size)
        shares = Rows.of(block, self._bits).allocate(prices, said[ROUND_WEIGHTS], said[FACTORS])
        if self.plan.config.integral:
            # The lower half of a keyed fingerprint decides nothing else: blocks and their order follow the upper one.
            coins = (block.user_fp[:, 1] >> np.uint64(11)).astype(np.float64)
            shares = (coins < np.floor(shares * _WHOLE_COIN)).astype(np.float64)
        return allocation_batch(block, shares)

    def _check_agents(self, summaries: Sequence[Columns]) -> None:
        agents = sum(int(summary["agents"][0]) for summary in summaries)
        if agents > self.plan.market.num_agents:
            raise DataError(
                f"{param('num_agents')}={self.plan.market.num_agents}: the input holds more agents, {agents}"
            )

    def _empty(self) -> Columns:
        none = np.empty(0, np.int64)
        return {
            "theta": self._first,
            "noisy": none,
            "taken": np.zeros(1, np.int64),
            ROUND_PRICES: none,
            ROUND_WEIGHTS: none,
            ROUNDS: none,
            "round_noisy": none,
        }

    def _places(self) -> np.ndarray:
        """Resources as fingerprints, for the noise: public, and different from each other."""
        places = np.zeros((self.plan.size, 2), np.uint64)
        places[:, 0] = np.arange(self.plan.size)
        return places

    def _prices(self, theta: np.ndarray) -> np.ndarray:
        return prices_of(theta, self._largest, self._bits)

    def _over(self, noisy: np.ndarray) -> int:
        """max(b, largest noisy gradient), which is at most n but for the noise; units."""
        gradient = self._target - noisy
        most = min(int(np.abs(gradient).max()), self.plan.market.num_agents * UNITS)
        return max(self._supply, most)

    def _share_of(self, trip: int, state: Columns) -> int:
        """What this round takes of the filter: of its predicted step, hence known before its noise is drawn.

        Both where averaging begins and where the filter ends a round takes just what is left.
        """
        plan, taken = self.plan, int(state["taken"][0])
        if trip < plan.config.start_rounds:
            return plan.start_units
        over = self._over(state["noisy"]) if trip else max(self._supply, plan.market.num_agents * UNITS)
        predicted = max(math.floor(self._full * Fraction(self._supply, over)), self._least)
        left = (plan.settled_units if taken < plan.settled_units else WHOLE) - taken
        return left if 2 * left < 3 * predicted else predicted

    def _step_size(self, trip: int, noisy: np.ndarray) -> Fraction:
        """eta per unit: alpha over the noisy gradient; during the start it falls from 1 to alpha."""
        config = self.plan.config
        size = config.alpha
        if trip < config.start_rounds:
            size = config.alpha ** ((trip + 1) / config.start_rounds)
        return Fraction(size) / self._over(noisy)

    def _final(self, state: Columns) -> Columns:
        """What every agent needs to know."""
        plan = self.plan
        weights = [int(w) for w in state[ROUND_WEIGHTS]]
        noisy = state["round_noisy"].reshape(len(weights), plan.size)
        usable, margin = Fraction(plan.usable), Fraction(plan.overuse_margin)
        factors = []
        for j in range(plan.size):
            total = sum(w * int(d) for w, d in zip(weights, noisy[:, j]))
            use = max(Fraction(total, sum(weights) * UNITS), Fraction(0)) + margin
            factors.append(min(WHOLE, math.floor(usable / use * WHOLE)))
        return {
            ROUND_PRICES: state[ROUND_PRICES],
            ROUND_WEIGHTS: state[ROUND_WEIGHTS],
            ROUNDS: state[ROUNDS],
            FACTORS: np.array(factors, np.int64),
        }
