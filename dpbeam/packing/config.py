"""Settings of packing, and the plan that follows from them and the public numbers of a market. No data.

The calibration and its proof: docs/explanation/packing.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from dpbeam.accounting.arguments import check_fields, instance, number, text
from dpbeam.accounting.budget import calibrates
from dpbeam.accounting.events import ComposedEvent, GaussianFilterEvent
from dpbeam.accounting.gaussian import gaussian_sigma
from dpbeam.accounting.noise import NOISE_KINDS, FilteredNoise
from dpbeam.errors import SettingError, param, template_of
from dpbeam.kernels.grid import UNITS
from dpbeam.packing.market import GRID_BITS, MAX_AGENTS, MAX_RESOURCES, WHOLE, sensitivity_of
from dpbeam.packing.prices import price_bits
from dpbeam.packing.program import PackingProgram

if TYPE_CHECKING:
    from dpbeam.packing.family import PackingConfig

#: The whole filter, in the unit of shares and of averaging weights.
# Noise on the grid is within 33 grid steps of 2^-30 of real Gaussian noise (docs/explanation/noise.md, Proposition 4).
_GRID_SLACK = 2.0**-24
_SMALLEST = 1e-100  # of a number of a market: quotients of two stay within floating point
_LARGEST_DRAW = NOISE_KINDS["gaussian"].largest  # deviations


@dataclass(frozen=True)
class Resource:
    """What is publicly known of a resource.

    Attributes:
      name: of its column, or of its place in the list column.
      supply: how much there is, in the unit of the demands.
      max_demand: no agent demands more of it.
    """

    name: str
    supply: float
    max_demand: float = 1.0

    def __post_init__(self) -> None:
        for name in ("supply", "max_demand"):
            if isinstance(getattr(self, name), Real):
                object.__setattr__(self, name, number(name, getattr(self, name)))


@dataclass(frozen=True)
class Market:
    """The public numbers of a market.

    Attributes:
      resources: in the order of the columns.
      num_agents: how many agents there are, or at most are.
      max_value: no bundle is worth more to its agent.

    Raises: InputError on a number out of range.
    """

    resources: tuple[Resource, ...]
    num_agents: int
    max_value: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        instance("supplies", self.resources, tuple, list)
        for resource in self.resources:
            instance("supplies", resource, Resource)
            text("supplies", resource.name)
        if not 1 <= self.num_agents <= MAX_AGENTS:
            raise SettingError(f"{param('num_agents')} must be from 1 to {MAX_AGENTS}, got {self.num_agents}")
        if not 1 <= len(self.resources) <= MAX_RESOURCES:
            raise SettingError(
                f"{param('supplies')}: 1 to {MAX_RESOURCES} resources are packed, got {len(self.resources)}"
            )
        names = [resource.name for resource in self.resources]
        if len(set(names)) < len(names):
            raise SettingError(f"{param('supplies')}: a resource is named twice")
        if not _positive(self.max_value):
            raise SettingError(f"{param('max_value')} must be positive, got {self.max_value}")
        for resource in self.resources:
            if not _positive(resource.supply):
                raise SettingError(
                    f"{param('supplies')}: the supply of '{resource.name}' must be a positive number, got "
                    f"{resource.supply}"
                )
            if not _positive(resource.max_demand):
                raise SettingError(
                    f"{param('supplies')}: max_demand of '{resource.name}' must be a positive number, "
                    f"got {resource.max_demand}"
                )

    @property
    def size(self) -> int:
        """m, the number of resources."""
        return len(self.resources)

    @property
    def _relative(self) -> list[Fraction]:
        """Supplies where no demand is above one."""
        return [Fraction(r.supply) / Fraction(r.max_demand) for r in self.resources]

    @property
    def supply(self) -> Fraction:
        """b: the supply of every resource, once demands of the more plentiful ones are scaled down."""
        return min(self._relative)

    @property
    def limits(self) -> np.ndarray:
        """(m,) int64: the largest demand of each resource after scaling, units of 2^-22."""
        least = self.supply
        scaled = [math.ceil(least / b * (1 << GRID_BITS)) for b in self._relative]
        return np.array(scaled, np.int64)

    @property
    def demand_factors(self) -> np.ndarray:
        """(m,) float64: what a demand is multiplied by."""
        least = self.supply
        factors = [float(least / b / Fraction(r.max_demand)) for b, r in zip(self._relative, self.resources)]
        return np.array(factors)

    def to_dict(self) -> dict[str, Any]:
        """For the ledger."""
        return {
            "num_agents": self.num_agents,
            "max_value": float(self.max_value),
            "resources": [
                {"name": r.name, "supply": float(r.supply), "max_demand": float(r.max_demand)}
                for r in self.resources
            ],
        }


def _positive(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and _SMALLEST <= value <= 1 / _SMALLEST


@dataclass(frozen=True)
class PackingPlan:
    """Settings and market with everything that follows from them.

    Guarantee: privacy unit one agent, neighbours differ in the row of one agent. The prices of all rounds are
    (epsilon, delta)-DP, so allocations are (epsilon, delta)-jointly DP (Hsu et al. 2014, billboard lemma).

    Attributes:
      noise: the filter that all noise of the hub passes.

    Raises: see `PackingProgram`.
    """

    config: PackingConfig
    market: Market
    noise: FilteredNoise

    def __post_init__(self) -> None:
        PackingProgram(self)

    @property
    def event(self) -> ComposedEvent:
        """The events of the ledger."""
        label = "noisy demand at the prices of every round"
        return ComposedEvent(
            "gaussian",
            (GaussianFilterEvent(self.noise.sigma, self.noise.sensitivity, label),),
            epsilon=self.config.epsilon,
        )

    @property
    def composition(self) -> str:
        """How the events are composed, for the ledger's readers."""
        return self.event.kind

    @property
    def size(self) -> int:
        """How many resources there are."""
        return self.market.size

    @property
    def start_units(self) -> int:
        """What each round of the start takes of the filter."""
        rounds = self.config.start_rounds
        return int(self.config.start_share * WHOLE) // rounds if rounds else 0

    @property
    def settled_units(self) -> int:
        """What is taken when averaging begins."""
        start = self.start_units * self.config.start_rounds
        return start + int(self.config.settle_share * (WHOLE - start))

    @property
    def averaged_units(self) -> int:
        """What the averaged rounds take together, however many they are: their weights add up to it."""
        return WHOLE - self.settled_units

    @property
    def smallest_share(self) -> int:
        """No round takes less of the filter: what is left beside a round is at least half of the least."""
        rest = WHOLE - self.start_units * self.config.start_rounds
        settling = self.settled_units - (WHOLE - rest)
        least = min(rest // self.config.max_rounds // 2, settling, self.averaged_units)
        return min(least, self.start_units) if self.config.start_rounds else least

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in the averaged demand.

        Rounds weigh what they take of the filter, so that the variances share_t^2 (noise.scale^2 / share_t) of the
        weighted noise add up to a constant; a sum of normal variates with predictable scales and a constant sum of
        variances is normal.
        """
        return self.noise.scale / math.sqrt(self.averaged_units / WHOLE)

    @property
    def overuse_margin(self) -> float:
        """z: with probability 1 - beta the exact average is at most z above the noisy one, for all resources."""
        beta = self.config.failure_probability * (0.5 if self.config.integral else 1.0)
        return float(-special.ndtri(beta / self.size)) * self.deviation * (1 + 1e-9) + _GRID_SLACK

    @property
    def usable(self) -> float:
        """The supply that fractions may use; of whole bundles, less what independent rounding may add.

        A sum of independent demands in [0, 1] of mean mu stays below (1 + g) mu but for exp(-g^2 mu / (2 + g)).
        """
        supply = float(self.market.supply) * (1 - 1e-12)
        if not self.config.integral:
            return supply
        needed = math.log(2 * self.size / self.config.failure_probability)
        low, high = 0.0, supply  # of the mean
        for _ in range(200):
            mean = (low + high) / 2
            gap = supply / mean - 1 if mean else math.inf
            if gap * gap * mean >= needed * (2 + gap):
                low = mean
            else:
                high = mean
        return low

    @property
    def target(self) -> float:
        """The use of every resource that prices aim at."""
        margin = self.overuse_margin if self.config.margin else 0.0
        return max(self.usable - margin, self.usable / 2)

    @property
    def supply_needed(self) -> float:
        """The supply b that alpha needs: the noise may then cost a share of alpha of it."""
        return self.overuse_margin / self.config.alpha

    @property
    def largest_price(self) -> Fraction:
        """p_max = 2 n / b."""
        return largest_price(self.market)

    @property
    def price_bits(self) -> int:
        """Binary places of a price."""
        return price_bits(self.largest_price)

    @property
    def rounds_limit(self) -> int:
        """No run has more rounds."""
        return self.config.start_rounds + self.config.max_rounds + 2

    @property
    def typical_rounds(self) -> int:
        """Rounds where no resource is demanded more than twice over; independent of the number of agents."""
        per_round = self.config.alpha**2 / math.log(self.size + 1)
        return self.config.start_rounds + min(self.config.max_rounds, math.ceil(1 / per_round))

    def check_supply(self) -> None:
        """Refuse a supply that cannot serve.

        Raises:
          InputError: with what would suffice.
        """
        supply, config = float(self.market.supply), self.config
        enough = supply >= self.supply_needed
        # What fractions may use falls behind the supply by a rounding error, what whole bundles may by much.
        serves = self.overuse_margin < self.usable
        if (enough and not config.integral) or (serves and (enough or config.allow_small_supply)):
            return
        scarcest = min(self.market.resources, key=lambda r: Fraction(r.supply) / Fraction(r.max_demand))
        if enough:
            raise SettingError(
                f"{param('supplies')}: {scarcest.supply:g} of '{scarcest.name}' are too few for {param('integral')}: "
                f"rounding to whole bundles and noise may take all of them; take more, or a larger {param('epsilon')}"
            )
        remedies = [f"a supply of {self.supply_needed * scarcest.max_demand:.4g}"]
        alpha = self.overuse_margin / supply
        if alpha <= 1:
            remedies.append(f"{param('alpha')}={math.ceil(alpha * 1000) / 1000:g}")
        epsilon = self._epsilon_needed()
        if epsilon is not None:
            remedies.append(f"{param('epsilon')}={math.ceil(epsilon * 100) / 100:g}")
        also = f", or go on with {param('allow_small_supply')}" if self.overuse_margin < self.usable else ""
        raise SettingError(
            f"{param('supplies')}: {scarcest.supply:g} of '{scarcest.name}' are too few for "
            f"{param('epsilon')}={config.epsilon:g} and {param('alpha')}={config.alpha:g} with "
            f"{self.size} resources: take {' or '.join(remedies)}{also}"
        )

    def _epsilon_needed(self) -> float | None:
        """The least epsilon up to 100 for which the supply suffices."""

        def suffices(epsilon: float) -> bool:
            plan = make_plan(replace(self.config, epsilon=epsilon), self.market)
            return float(plan.market.supply) >= plan.supply_needed

        low, high = self.config.epsilon, 100.0
        if not suffices(high):
            return None
        for _ in range(40):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if suffices(middle) else (middle, high)
        return high

    def public_parameters(self) -> dict[str, Any]:
        """What follows from settings and market, for the ledger and the report."""
        return {
            **self.market.to_dict(),
            "noise_sigma": self.noise.sigma,
            "sensitivity": self.noise.sensitivity,
            "overuse_margin": self.overuse_margin,
            "target_use": self.target,
            "supply": float(self.market.supply),
            "supply_needed": self.supply_needed,
            "typical_rounds": self.typical_rounds,
            "rounds_limit": self.rounds_limit,
        }


def largest_price(market: Market) -> Fraction:
    """p_max = 2 n / b."""
    return Fraction(2 * market.num_agents) / market.supply


@calibrates
def make_plan(config: PackingConfig, market: Market) -> PackingPlan:
    """Calibrate; `PackingPlan.check_supply` says whether the market can be served.

    Raises:
      InputError: prices or noise would leave the fixed point: far too small a supply or budget.
    """
    sigma = gaussian_sigma(config.epsilon, config.delta)
    noise = FilteredNoise(sigma, sensitivity_of(market.limits, config.max_resources_per_agent))
    try:
        price_bits(largest_price(market))
    except ValueError as error:
        raise SettingError(
            f"{param('supplies')}: too small for {market.num_agents} agents: {template_of(error)}"
        ) from None
    plan = PackingPlan(config, market, noise)
    largest = _LARGEST_DRAW * noise.scale_of(plan.smallest_share / WHOLE) + market.num_agents
    if not largest * UNITS < 1 << 62:
        raise SettingError(
            f"{param('epsilon')}={config.epsilon:g} and {param('delta')}={config.delta:g} with "
            f"{market.size} resources: no noise of that size can be computed with"
        )
    return plan


def resources_of(supplies: Mapping[str, Any] | Sequence[Any]) -> tuple[Resource, ...]:
    """Resources from a mapping of names, or a list, of supplies: numbers, or mappings of supply and max_demand.

    Raises:
      InputError: an entry is neither.
    """
    instance("supplies", supplies, Mapping, list, tuple)
    items = supplies.items() if isinstance(supplies, Mapping) else enumerate(supplies)
    resources = []
    for name, entry in items:
        values = dict(entry) if isinstance(entry, Mapping) else {"supply": entry}
        if set(values) - {"supply", "max_demand"} or "supply" not in values:
            raise SettingError(
                f"{param('supplies')}: '{name}' must be a number, or a mapping with supply and max_demand"
            )
        if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values.values()):
            raise SettingError(f"{param('supplies')}: the supply and max_demand of '{name}' must be numbers")
        resources.append(Resource(str(name), **values))
    return tuple(resources)
