"""The top-k mechanisms as calibrated objects: a budget goes in, ledger events and a selection come out.

A mechanism is calibrated before it sees data, so its events are a function of the settings alone, and it
cannot run without a budget. `select` wants at least k items; where the domain has fewer (its size is public
after a selection stage), `at_most(d)` gives the same mechanism for the shorter answer: the ledger keeps the
events of the full k, which cover it.

All guarantees are for add/remove of one user. Replacing a user costs 2 epsilon and (1 + e^epsilon) delta.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from dpbeam.accounting.accountant import largest_choice_range
from dpbeam.accounting.events import Event, LimitedDomainEvent, PeelingEvent, PureEvent
from dpbeam.accounting.gaussian import check_delta, check_positive
from dpbeam.accounting.peeling import peeling_epsilon0
from dpbeam.counts.histogram import check_k
from dpbeam.randomness import RunKey
from dpbeam.topk.fast_joint import DEFAULT_BETA, fast_joint
from dpbeam.topk.gauss_rank import GaussRank
from dpbeam.topk.joint import joint
from dpbeam.topk.limited_domain import limited_domain, max_changed, stop_gap
from dpbeam.topk.peeling import cdp_peel, pnf_peel

_DOWN = 1 - 1e-12
MechanismT = TypeVar("MechanismT", bound="_Shortens")


class Mechanism(Protocol):
    """What every mechanism offers.

    `name` is its name on the command line; `pure` says that it spends no delta; `events` is a tuple for the
    ledger; `k` the length of the answer; `budget` the number that grows with what it may spend: the range of a choice,
    epsilon of all choices, mu of gauss-rank.
    """

    name: ClassVar[str]
    pure: ClassVar[bool]

    @property
    def k(self) -> int:
        """The length of the answer."""

    @property
    def events(self) -> tuple[Event, ...]:
        """What the ledger records."""

    @property
    def budget(self) -> float:
        """What grows with what it may spend."""

    def at_most(self, d: int) -> Mechanism:
        """The same mechanism for min(k, d) items; ValueError if d < 1."""

    def select(
        self, counts: np.ndarray, fingerprint: np.ndarray, key: RunKey, label: str = "top-k"
    ) -> np.ndarray:
        """Positions of the chosen items in rank order, at most k.

        Args:
          counts: (items,) int64 exact numbers of users; fingerprint: (items, 2) uint64.
          label: of the noise that is drawn.
        """


@dataclass(frozen=True)
class _Shortens:
    """k checked, and the mechanism for fewer items."""

    k: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_k(self.k))

    def at_most(self: MechanismT, d: int) -> MechanismT:
        """The same mechanism, noise included, for min(k, d) items; ValueError if d < 1."""
        return replace(self, k=min(self.k, check_k(d)))


@dataclass(frozen=True)
class CdpPeel(_Shortens):
    """`cdp_peel` with range epsilon0 per choice."""

    k: int
    epsilon0: float
    name: ClassVar[str] = "cdp-peel"
    pure: ClassVar[bool] = False

    @classmethod
    def calibrate(cls, k: int, epsilon: float, delta: float, published: bool = False) -> CdpPeel:
        """The largest epsilon0 for which k choices are (epsilon, delta)-DP; see `choice_range`."""
        return cls(k, choice_range(epsilon, delta, k, published))

    @property
    def budget(self) -> float:
        """epsilon0 of a choice."""
        return self.epsilon0

    def with_budget(self, budget: float) -> CdpPeel:
        """The same at another epsilon0."""
        return replace(self, epsilon0=budget)

    @property
    def events(self) -> tuple[PeelingEvent]:
        """k choices of bounded range epsilon0."""
        return (PeelingEvent(self.epsilon0, self.k, label=self.name),)

    def select(
        self, counts: np.ndarray, fingerprint: np.ndarray, key: RunKey, label: str = "top-k"
    ) -> np.ndarray:
        """(k,) positions in rank order: see `cdp_peel`."""
        return cdp_peel(counts, fingerprint, self.k, self.epsilon0, key, label)


@dataclass(frozen=True)
class PnfPeel(_Shortens):
    """`pnf_peel` at `round_epsilon` per choice."""

    k: int
    round_epsilon: float
    name: ClassVar[str] = "pnf-peel"
    pure: ClassVar[bool] = True

    @classmethod
    def calibrate(cls, k: int, epsilon: float, delta: float = 0.0) -> PnfPeel:
        """Rounds of epsilon / k; leaves delta unspent."""
        return cls(k, check_positive("epsilon", epsilon) / check_k(k) * _DOWN)

    @property
    def budget(self) -> float:
        """epsilon of all rounds."""
        return self.k * self.round_epsilon

    def with_budget(self, budget: float) -> PnfPeel:
        """The same at another epsilon of all rounds."""
        return replace(self, round_epsilon=budget / self.k)

    @property
    def events(self) -> tuple[PureEvent]:
        """One pure event of all rounds."""
        return (PureEvent(self.budget, label=self.name),)

    def select(
        self, counts: np.ndarray, fingerprint: np.ndarray, key: RunKey, label: str = "top-k"
    ) -> np.ndarray:
        """(k,) positions in rank order: see `pnf_peel`."""
        return pnf_peel(counts, fingerprint, self.k, self.budget, key, label)


@dataclass(frozen=True)
class Joint(_Shortens):
    """`joint` at epsilon."""

    k: int
    epsilon: float
    name: ClassVar[str] = "joint"
    pure: ClassVar[bool] = True

    @classmethod
    def calibrate(cls, k: int, epsilon: float, delta: float = 0.0) -> Joint:
        """One choice with all of epsilon; leaves delta unspent."""
        return cls(k, check_positive("epsilon", epsilon))

    @property
    def budget(self) -> float:
        """epsilon of the choice."""
        return self.epsilon

    def with_budget(self, budget: float) -> Joint:
        """The same at another epsilon."""
        return replace(self, epsilon=budget)

    @property
    def events(self) -> tuple[PeelingEvent]:
        """One choice of bounded range epsilon: pure epsilon-DP, and epsilon^2/8-zCDP beside other stages.

        The loss moves by at most 1 either way, so no weight moves by more than a factor exp(epsilon/2).
        """
        return (PeelingEvent(self.epsilon, 1, label=self.name),)

    def select(
        self, counts: np.ndarray, fingerprint: np.ndarray, key: RunKey, label: str = "top-k"
    ) -> np.ndarray:
        """(k,) positions in rank order: see `joint`."""
        return joint(counts, fingerprint, self.k, self.epsilon, key, label)


@dataclass(frozen=True)
class FastJoint(Joint):
    """`fast_joint` at epsilon, pruned with failure probability beta; costs what `Joint` costs."""

    beta: float = DEFAULT_BETA
    name: ClassVar[str] = "fast-joint"

    @classmethod
    def calibrate(cls, k: int, epsilon: float, delta: float = 0.0, beta: float = DEFAULT_BETA) -> FastJoint:
        """One choice with all of epsilon; leaves delta unspent. Raises ValueError unless 0 < beta < 1."""
        if not 0 < beta < 1:
            raise ValueError(f"beta must lie in (0, 1), got {beta}")
        return cls(k, check_positive("epsilon", epsilon), float(beta))

    def select(
        self, counts: np.ndarray, fingerprint: np.ndarray, key: RunKey, label: str = "top-k"
    ) -> np.ndarray:
        """(k,) positions in rank order: see `fast_joint`."""
        return fast_joint(counts, fingerprint, self.k, self.epsilon, key, label, self.beta)


@dataclass(frozen=True)
class LimitedDomain(_Shortens):
    """`limited_domain` among the kbar largest counts (None: all); D0 = max_items_per_user (None: any)."""

    k: int
    epsilon0: float
    stop_delta: float
    kbar: int | None
    max_items_per_user: int | None
    name: ClassVar[str] = "limited-domain"
    pure: ClassVar[bool] = False

    @classmethod
    def calibrate(
        cls,
        k: int,
        epsilon: float,
        delta: float,
        kbar: int | None = None,
        max_items_per_user: int | None = None,
        published: bool = False,
    ) -> LimitedDomain:
        """(epsilon, delta)-DP in all: half of delta for the stop mark, half for the k choices.

        Where few choices hardly gain by a delta they are pure, and all of it is the mark's: what makes the mark lower.

        Raises: ValueError if neither kbar nor max_items_per_user is given, kbar < k, or a budget is out of
        range.
        """
        half = check_delta(delta) / 2
        if kbar is not None and check_k(kbar) < check_k(k):
            raise ValueError(f"kbar must be at least k, got kbar = {kbar} and k = {k}")
        changed = max_changed(kbar, max_items_per_user)
        budgets = [(choice_range(epsilon, half, k, published), half)]
        if not published:
            budgets.append((choice_range(epsilon, 0.0, k), 2 * half))
        epsilon0, stop_delta = min(budgets, key=lambda budget: stop_gap(budget[0], budget[1], changed))
        return cls(k, epsilon0, stop_delta, kbar, max_items_per_user)

    @property
    def budget(self) -> float:
        """epsilon0 of a choice."""
        return self.epsilon0

    @property
    def events(self) -> tuple[LimitedDomainEvent]:
        """The choices and the stop mark as one event."""
        changed = max_changed(self.kbar, self.max_items_per_user)
        return (
            LimitedDomainEvent(self.epsilon0, self.k, self.gap, self.stop_delta, changed, label=self.name),
        )

    @property
    def gap(self) -> float:
        """Distance of the stop mark above the (kbar+1)-th count."""
        return stop_gap(self.epsilon0, self.stop_delta, max_changed(self.kbar, self.max_items_per_user))

    def distance(self, failure: float = 0.01) -> float:
        """How many users the k-th count must be above the (kbar+1)-th for an answer of k items, but for this chance.

        An item at a distance x/epsilon0 above the stop mark falls below it with chance 1/(1 + e^x), since the
        difference of two Gumbel variates is logistic; x = ln(k/failure) leaves failure/k to each of k items.
        """
        return self.gap + math.log(self.k / failure) / self.epsilon0

    def select(
        self, counts: np.ndarray, fingerprint: np.ndarray, key: RunKey, label: str = "top-k"
    ) -> np.ndarray:
        """(q,) positions in rank order, q <= k: see `limited_domain`."""
        return limited_domain(counts, fingerprint, self.k, self.epsilon0, self.gap, key, self.kbar, label)


MECHANISMS = {cls.name: cls for cls in (CdpPeel, PnfPeel, Joint, FastJoint, GaussRank, LimitedDomain)}
#: Those that are calibrated to a budget of their own; gauss-rank is to the noise that other stages leave.
OF_BUDGET = {cls.name: cls for cls in (CdpPeel, PnfPeel, Joint, FastJoint, LimitedDomain)}


@functools.lru_cache(maxsize=256)
def choice_range(epsilon: float, delta: float, k: int, published: bool = False) -> float:
    """Bounded range epsilon0 of one of k choices that together are (epsilon, delta)-DP, rounded down.

    The exact composition of adaptive choices of bounded range (`dpbeam.accounting.bounded_range`), or epsilon/k where
    that is more. Against the closed formula of the papers, which `published` asks for, this gives 27 % more range at
    epsilon = 1, delta = 1e-6, k = 100, and 45 % at epsilon = 0.1.

    Raises: ValueError unless epsilon > 0, 0 <= delta < 1 and k >= 1.
    """
    closed = peeling_epsilon0(epsilon, delta, k)
    if published or delta == 0:
        return closed
    return max(closed, largest_choice_range((), k, epsilon, delta))
