"""Users and their sets as numbers: data, a sample scaled up to more users, or a model without any data.

The model. n users; the size of a set is 1 + Poisson(L), L log-normal with mean m - 1 and standard deviation `spread` of
its logarithm. Items follow a power law q with exponent s over so many items that one user holds the last. A user of
size d draws items from q, so often that d of them differ on average. Users are independent, so no two items occur
together more often than their popularity makes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from scipy.optimize import brentq, minimize_scalar

from dpbeam.errors import SettingError
from dpbeam.kernels.canonical import encode_int64
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.pairs import offsets_of
from dpbeam_lab.evaluation.data import PairData
from dpbeam_lab.evaluation.indexed import IndexedSets
from dpbeam_lab.power_law import power_law_ranks

#: Of set sizes where nothing is known, about that of eight public datasets (lab/docs/how-to/tune.md).
DEFAULT_SPREAD = 1.2
#: An item that fewer users hold is rare, of `Model.of_rare_items`.
RARE_USERS = 100
_MOST_ITEMS = 50_000_000
_MOST_PAIRS = 500_000_000
_HOLDERS = (10, 20, 50, 100, 200)
_EXPONENTS = (0.3, 2.5)
_SIZES = 20_000  # users whose sizes stand for all in sums
_BINS = 2_000  # of ranks, likewise
_LARGEST_DISCOUNT = 0.95
_LONGEST_TAIL = 30.0  # an item that a sample lacks has at most so many users there on average
_GRID = 64  # sizes for which the number of draws is solved; linear in between, in logarithms
_MOST_DRAWS = 50.0  # per item of a set: a user who can hardly find d different items holds fewer


@dataclass(frozen=True)
class ModelError:
    """How far models of one kind were off on public sets (lab/docs/how-to/tune.md).

    Attributes:
      promise: what the model promised of the method that it picks, over what the data gave: the least and the most.
      near: the largest factor, either way, between the model's ratio of two methods and that of the data, where
        that is not above 1.5.
    """

    promise: tuple[float, float]
    near: float


#: Of models whose exponent is a guess, follows from the rare items of a user, or is fitted to data with the spread.
GUESSED = ModelError((0.55, 1.9), 1.45)
FROM_RARE_ITEMS = ModelError((0.55, 1.35), 1.25)
FITTED = ModelError((0.7, 1.2), 1.3)


@dataclass(frozen=True)
class Population:
    """Distinct (user, item) pairs.

    Attributes:
      sets: users as rows, numbers of items ascending.
      num_items: item numbers run from 0 to num_items - 1.
    """

    sets: Csr
    num_items: int

    @property
    def users(self) -> int:
        return len(self.sets.offsets) - 1

    @property
    def pairs(self) -> int:
        return len(self.sets.links)

    @cached_property
    def holders(self) -> np.ndarray:
        """(items,) int64, the users that hold each item."""
        return np.bincount(self.sets.links, minlength=self.num_items).astype(np.int64)

    def data(self) -> PairData:
        """The same for methods and measures, users and items by number."""
        users, items = (encode_int64(pa.array(np.arange(n))) for n in (self.users, self.num_items))
        return PairData(IndexedSets(self.sets, items, users))

    def scaled(self, users: int, rng: np.random.Generator) -> Population:
        """As many users as asked for, of whom these are a sample.

        More: these users, then copies of them. Copies hold what the users hold, less a part of what is rare in the
        sample, in place of which they hold items that the sample lacks: an item with c of the n users has
        c + (users - n)/n (c - alpha) on average (Good and Turing's discount, for a power law as Pitman and Yor's),
        alpha the share of items with one user. Fewer: a random part of them.
        """
        if users <= self.users:
            rows = np.zeros(self.users, bool)
            rows[rng.choice(self.users, users, replace=False)] = True
            return Population(self.sets.select_rows(rows)[0], self.num_items)
        whole, rest = divmod(users, self.users)
        rows = np.tile(np.arange(self.users), whole)
        rows = np.concatenate([rows, rng.choice(self.users, rest, replace=False)])
        degrees = self.sets.degrees[rows]
        offsets = np.concatenate([[0], np.cumsum(degrees)])
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], degrees)
        links = self.sets.links[np.repeat(self.sets.offsets[:-1][rows], degrees) + place].astype(np.int64)
        held = self.holders
        alpha = min(float((held == 1).sum() / max((held > 0).sum(), 1)), _LARGEST_DISCOUNT)
        copied = slice(self.pairs, None)
        other = np.zeros(len(links), bool)
        other[copied] = rng.random(len(links) - self.pairs) * held[links[copied]] < alpha
        unseen = _unseen(int(other.sum()), alpha, self.users / users, rng)
        links[other] = self.num_items + unseen
        num_items = self.num_items + int(unseen.max(initial=-1)) + 1
        user = np.repeat(np.arange(users, dtype=np.uint64), degrees)
        return _distinct(user, links, users, num_items)


def _unseen(pairs: int, alpha: float, share: float, rng: np.random.Generator) -> np.ndarray:
    """(pairs,) numbers from 0 of items that a sample of this share of all users lacks, in random order.

    An item of h users is missing with chance (1 - share)^h; items of h users are as many as h^-(1 + alpha).
    """
    users = np.arange(1.0, 1.0 + math.ceil(_LONGEST_TAIL / share))
    law = users ** -(1.0 + alpha) * (1.0 - share) ** users
    law /= law.sum()
    enough = 10 + int(1.5 * pairs / float(law @ users))
    sizes = rng.choice(users.astype(np.int64), enough, p=law)
    while sizes.sum() < pairs:
        sizes = np.concatenate([sizes, rng.choice(users.astype(np.int64), enough, p=law)])
    return rng.permutation(np.repeat(np.arange(len(sizes)), sizes)[:pairs])


def _distinct(user: np.ndarray, item: np.ndarray, users: int, num_items: int) -> Population:
    """A population of pairs in any order, which may repeat."""
    pairs = np.unique((user << np.uint64(32)) | item.astype(np.uint64))
    links = (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return Population(Csr(offsets_of(pairs >> np.uint64(32), users), links), num_items)


@dataclass(frozen=True)
class Model:
    """A population of which only these numbers are known.

    Attributes:
      users: how many there are.
      mean_items_per_user: pairs divided by users, at least 1.
      item_exponent: s, share of rank r ~ r^-s.
      set_size_spread: standard deviation of the logarithm of set sizes, about.
      items: how many there are; None: so many that one user holds the last.
    """

    users: int
    mean_items_per_user: float
    item_exponent: float
    set_size_spread: float = DEFAULT_SPREAD
    items: int | None = None

    def __post_init__(self) -> None:
        for flag, value, low, high in (
            ("users", self.users, 1, 1e9),
            ("mean_items_per_user", self.mean_items_per_user, 1.0, 1e6),
            ("item_exponent", self.item_exponent, 0.0, 5.0),
            ("set_size_spread", self.set_size_spread, 0.0, 5.0),
            ("items", 1 if self.items is None else self.items, 1, _MOST_ITEMS),
        ):
            if not low <= value <= high:
                raise SettingError(f"--{flag}: must be from {low:g} to {high:g}, got {value}")
        if self.users * self.mean_items_per_user > _MOST_PAIRS:
            raise SettingError(
                f"--users times --mean_items_per_user: at most {_MOST_PAIRS:,} pairs are simulated, got "
                f"{self.users * self.mean_items_per_user:,.0f}"
            )

    def with_users(self, users: int) -> Model:
        """The same of another number of users."""
        return replace(self, users=users)

    def public_parameters(self) -> dict[str, float]:
        """Every number, those that follow from the others included."""
        return {**asdict(self), "items": self.num_items}

    @cached_property
    def num_items(self) -> int:
        """Given, or where the expected number of users of the last item is 1."""
        if self.items is not None:
            return self.items
        pairs, s = self.users * self.mean_items_per_user, self.item_exponent

        def last(log_n: float) -> float:
            n = np.exp(log_n)
            return float(np.log(pairs) - s * log_n - np.log(_harmonic(n, s)))

        if last(np.log(_MOST_ITEMS)) > 0:
            return _MOST_ITEMS
        return max(1, round(float(np.exp(brentq(last, 0.0, np.log(_MOST_ITEMS))))))

    def draw(self, rng: np.random.Generator) -> Population:
        """A population of this model."""
        draws = self._draws(rng)
        user = np.repeat(np.arange(self.users, dtype=np.uint64), draws)
        rank = power_law_ranks(rng.random(len(user)), self.num_items, self.item_exponent)
        return _distinct(user, rank, self.users, self.num_items)

    @classmethod
    def fit(cls, population: Population, *, spread: float | None = None) -> Model:
        """The model of data. NOT PRIVATE.

        The exponent is the one whose numbers of items with at least 10, 20, 50, 100 and 200 users are nearest to those
        of the data in logarithms: those decide what is released, not the few on top or the many below. The spread
        is the one whose set sizes have the geometric mean of the data's.

        Args:
          spread: of set sizes, instead of the data's.
        """
        mean = population.pairs / population.users
        if spread is None:
            spread = _fitted_spread(population.users, mean, population.sets.degrees)
        known = {t: int((population.holders >= t).sum()) for t in _HOLDERS}
        known = {t: count for t, count in known.items() if count}

        def off(exponent: float) -> float:
            expected = cls(population.users, mean, exponent, spread).items_held(list(known))
            return sum(
                count**0.5 * math.log(max(model, 0.5) / count) ** 2
                for model, count in zip(expected, known.values())
            )

        if not known:
            return cls(population.users, mean, 1.0, spread)
        best = minimize_scalar(off, bounds=_EXPONENTS, method="bounded", options={"xatol": 0.005})
        return cls(population.users, mean, round(float(best.x), 2), round(spread, 2))

    @classmethod
    def of_rare_items(
        cls,
        users: int,
        mean_items_per_user: float,
        rare_items_per_user: float,
        set_size_spread: float = DEFAULT_SPREAD,
        items: int | None = None,
    ) -> Model:
        """The model whose users hold so many items on average that fewer than `RARE_USERS` hold.

        Raises:
          InputError: no exponent gives as many, or a number is out of range.
        """

        def model(exponent: float) -> Model:
            return cls(users, mean_items_per_user, exponent, set_size_spread, items)

        def off(exponent: float) -> float:
            return model(exponent).rare_items_per_user() - rare_items_per_user

        most, least = (off(exponent) for exponent in _EXPONENTS)
        if not least <= 0 <= most or least == most:
            raise SettingError(
                f"--rare_items_per_user: such a model's users hold {least + rare_items_per_user:.3g} to "
                f"{most + rare_items_per_user:.3g} items of fewer than {RARE_USERS} users, got {rare_items_per_user:g}"
            )
        return model(round(float(brentq(off, *_EXPONENTS, xtol=0.002)), 3))

    def rare_items_per_user(self) -> float:
        """How many items of a user are expected to have fewer than `RARE_USERS` users, on average."""
        law, held = self._expected_holders()
        return float(law.count @ np.where(held < RARE_USERS, held, 0.0)) / self.users

    def items_held(self, users: Sequence[int]) -> list[float]:
        """How many items are expected to have at least so many users, for each of the numbers of users."""
        law, held = self._expected_holders()
        return [float(np.interp(-t, -held, law.last)) if held[0] >= t else 0.0 for t in users]

    def _expected_holders(self) -> tuple[_RankBins, np.ndarray]:
        """Bins of ranks, and the expected users of an item of each."""
        law = _RankBins.of(self.num_items, self.item_exponent)
        sizes = self._sizes(np.random.default_rng(0), _SIZES)
        few, times = np.unique(np.minimum(sizes, self.num_items), return_counts=True)
        draws = law.draws_for(few)
        each = np.exp(np.outer(law.log_missed, draws)) @ times
        return law, self.users * (1.0 - each / times.sum())

    def _sizes(self, rng: np.random.Generator, users: int) -> np.ndarray:
        more, spread = self.mean_items_per_user - 1.0, self.set_size_spread
        factor = np.exp(spread * rng.standard_normal(users) - spread**2 / 2)
        return 1 + rng.poisson(np.minimum(more * factor, 0.5 * self.num_items))

    def _draws(self, rng: np.random.Generator) -> np.ndarray:
        """How often each user draws: a set of k draws has as many different items as wanted, on average."""
        sizes = self._sizes(rng, self.users)
        exact = _RankBins.of(self.num_items, self.item_exponent).draws_for(sizes)
        return (exact + rng.random(len(exact))).astype(np.int64)


@dataclass(frozen=True)
class _RankBins:
    """Ranks 1..n in bins that are short where ranks are popular.

    Attributes:
      last: last rank of each bin.
      count: ranks in it.
      log_missed: logarithm of the chance that a draw is not a given rank of the bin, on average.
    """

    last: np.ndarray
    count: np.ndarray
    log_missed: np.ndarray

    @classmethod
    def of(cls, items: int, exponent: float) -> _RankBins:
        edge = np.unique(np.geomspace(1, items + 1, _BINS).astype(np.int64))
        if len(edge) < 2:
            edge = np.array([1, 2])
        count = np.diff(edge)
        chance = np.diff(_cumulated(edge.astype(np.float64), items, exponent)) / count
        return cls(edge[1:] - 1, count, np.log1p(-np.minimum(chance, 1.0 - 1e-12)))

    def draws_for(self, sizes: np.ndarray) -> np.ndarray:
        """(n,) number of draws, at least 1, of which so many are different on average."""
        tried = np.geomspace(1.0, max(_MOST_DRAWS * float(sizes.max()), 2.0), _GRID)
        distinct = -np.expm1(np.outer(tried, self.log_missed)) @ self.count
        return np.exp(np.interp(np.log(sizes), np.log(distinct), np.log(tried)))


def _fitted_spread(users: int, mean: float, degrees: np.ndarray) -> float:
    """The spread of the model whose sizes have the geometric mean of the data's: the more unequal, the smaller."""
    wanted = float(np.log(degrees).mean())

    def off(spread: float) -> float:
        sizes = Model(users, mean, 1.0, spread, items=_MOST_ITEMS)._sizes(np.random.default_rng(0), _SIZES)
        return wanted - float(np.log(sizes).mean())

    low, high = 0.0, 3.0
    if off(low) >= 0 or off(high) <= 0:
        return low if off(low) >= 0 else high
    return float(brentq(off, low, high, xtol=0.01))


def _cumulated(x: np.ndarray, n: int, s: float) -> np.ndarray:
    """Distribution function of the bounded continuous power law on [1, n + 1)."""
    if abs(s - 1.0) < 1e-9:
        return np.log(x) / np.log(n + 1.0)
    return (x ** (1.0 - s) - 1.0) / ((n + 1.0) ** (1.0 - s) - 1.0)


def _harmonic(n: float, s: float) -> float:
    """The integral of x^-s from 1 to n + 1: what a rank's x^-s is divided by."""
    return float(np.log(n + 1)) if abs(s - 1) < 1e-9 else float(((n + 1) ** (1 - s) - 1) / (1 - s))
