"""Algorithms as messages between user blocks and item shards.

A `Program` says what a block sends (`weigh`), what noise a round gets (`noise`), what a shard does with the noisy
sums (`observe`, `threshold`) and what it sends back (`reply`). It holds public numbers only and knows nothing of where
blocks and shards live: the in-process driver and the Beam engine run the same program.

Where parts must decide something together, their summaries meet at a *hub* after a trip (`meets`, `summarise`): it
decides, keeps state of its own, and broadcasts what all parts may know on the next trip (`decide`). A program may use
blocks and hub without shards: a trip without `sum_names` sends nothing to shards.

A program never draws noise. It states it (`StatedNoise`), and `add_noise` or the hub's `Draw` draws it, here and
nowhere else; and before that what the noise is added to is committed to (`dpbeam.engine.binding`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dpbeam.accounting.noise import NotStatedError, StatedNoise
from dpbeam.accounting.threshold import ReleaseTest
from dpbeam.accounting.zcdp import ZCDPFilter
from dpbeam.engine.binding import OTHER_DATA, Bind, digest_of
from dpbeam.errors import StoreError
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.pairs import Block, PairKeys
from dpbeam.kernels.shards import Linked, Shard
from dpbeam.randomness import LAWS, KeyedBits, RunKey, fingerprints, prf_bits

ItemNoise = StatedNoise | None
HubNoise = StatedNoise | None
#: What blocks hear from shards: values by name, (items,) each.
Reply = Mapping[str, np.ndarray]
#: What blocks send, sums by name, (items,) int64 each; and their state for later trips, None for none.
Weighed = tuple[dict[str, np.ndarray], Columns | None]
#: The new state of the hub, and its broadcast.
Decided = tuple[Columns, Columns]


class Touches(NamedTuple):
    """What one user gives to items on a trip at most: with at most items[i] of them, weight[i] to each.

    Attributes:
      items: (m,) int64, increasing; no user touches more than the last.
      weight: (m,) float64.
    """

    items: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, *pairs: tuple[int, float]) -> Touches:
        """From pairs (items, weight)."""
        items, weight = zip(*pairs)
        return cls(np.array(items, np.int64), np.array(weight, np.float64))


class _Words:
    """What stated noise draws from: keyed words of one label, for each fingerprint."""

    def __init__(self, run_key: RunKey, label: str, fp: np.ndarray):
        self._run_key, self._label, self._fp = run_key, label, fp

    def bits(self) -> np.ndarray:
        return prf_bits(self._run_key.derive(self._label), self._fp)

    def exact(self, kind: str, scale: float, fraction: np.ndarray | None, fraction_bits: int) -> np.ndarray:
        if kind not in LAWS:
            raise NotStatedError(f"no exact law is known for noise of kind {kind!r}")
        law = LAWS[kind](scale, fraction_bits)
        return law.draw(KeyedBits(self._run_key, self._label, self._fp), len(self._fp), fraction)


class Keys:
    """The derived keys of a run; one label per use, so that no two uses share randomness.

    Args:
      bind: keeps what noise was added to, where a run may be tried again; None where the key serves one run in memory.
    """

    def __init__(self, run_key: RunKey, bind: Bind | None = None):
        self._run_key, self._bind = run_key, bind
        self.pairs = PairKeys(
            user=run_key.derive("identity/user"),
            item=run_key.derive("identity/item"),
            sample=run_key.derive("sample"),
        )

    def bind(self, place: str, parts: Iterable[Columns]) -> None:
        """Commit to what the noise of a place is about to be added to: a shard or the hub, on a trip.

        Raises:
          InputError: noise was drawn there for something else; nothing is drawn.
        """
        if self._bind is None:
            return
        if not self._bind(place, digest_of(self._run_key.derive("binding"), parts)):
            raise StoreError(OTHER_DATA)

    def hub(self, spec: HubNoise, trip: int = 0, spent: Sequence[float] = (), chooses: bool = False) -> Draw:
        """What a hub may draw on this trip, with this noise.

        Args:
          spent: the shares of the filter that earlier trips took, where the noise is filtered.
          chooses: see `Program`.
        """
        return Draw(self, self._run_key if chooses else None, spec, trip, spent)

    def fingerprints(self, items: pa.Array) -> np.ndarray:
        """Of canonical bytes of items, (n, 2) uint64."""
        return fingerprints(self.pairs.item, items)

    def sample(self, round_number: int) -> bytes:
        """Key of the sampling order of a round that samples afresh."""
        return self._run_key.derive(f"sample/round {round_number}")

    def users(self) -> bytes:
        """Key of the coins that say which users take part."""
        return self._run_key.derive("users")

    def noise(
        self,
        spec: StatedNoise,
        fp: np.ndarray,
        place: str = "noise",
        *,
        fraction: np.ndarray | None = None,
        fraction_bits: int = 0,
    ) -> np.ndarray:
        """The noise of a round for each item fingerprint, exact integers (docs/explanation/noise.md).

        Args:
          fraction, fraction_bits: what the sums hold below the grid, as in `Exact`; the noise is then as fine, and
            both together are rounded down.

        Returns:
          (items,) int64 in units of 2^-30.

        Raises:
          NotStatedError: the noise does not say how it is drawn.
        """
        words = _Words(self._run_key, f"{place}/round {spec.round}", fp)
        return spec.draw(words, UNITS, fraction, fraction_bits)


class Draw:
    """What a hub may draw on one trip.

    Args:
      run_key: None where the program does not say that its hub chooses.
    """

    def __init__(
        self, keys: Keys, run_key: RunKey | None, spec: HubNoise, trip: int = 0, spent: Sequence[float] = ()
    ):
        self._keys, self._spec, self._trip = keys, spec, trip
        self._spent = list(spent)
        self._before = len(self._spent)
        self._run_key = run_key
        self.fingerprints = keys.fingerprints

    @property
    def run_key(self) -> RunKey:
        """For mechanisms whose randomness is more than noise on numbers; they use labels of their own.

        Raises:
          ValueError: the program does not say that its hub chooses.
        """
        if self._run_key is None:
            raise ValueError("the program does not say that its hub chooses, and gets no key")
        return self._run_key

    @property
    def spent(self) -> tuple[float, ...]:
        """Shares of the filter that were taken, on this trip and before."""
        return tuple(self._spent)

    def noisy(self, exact: np.ndarray, fp: np.ndarray) -> np.ndarray:
        """Exact numbers with the stated noise of this trip.

        Args:
          exact: (n,) int64 in units of 2^-30; fp: (n, 2) uint64 fingerprints of what they are numbers of.

        Raises:
          ValueError: the program states none, or states noise under a filter.
        """
        if self._spec is None or self._spec.filtered:
            raise ValueError("the program states no hub noise of a scale of its own for this trip")
        return exact + self._keys.noise(self._spec, fp, "hub")

    def noisy_within(self, share: float, exact: np.ndarray, fp: np.ndarray) -> np.ndarray:
        """Exact numbers with noise that takes a share of the filter; at most once a trip.

        Args:
          share: a function of what is public, in (0, 1].
          exact: (n,) int64 in units of 2^-30; fp: (n, 2) uint64 fingerprints.

        Raises:
          BudgetExceededError: the filter has no such share left; nothing is drawn.
          ValueError: the program states no noise under a filter, or this trip has drawn.
        """
        if self._spec is None or not self._spec.filtered:
            raise ValueError("the program states no noise under a filter for this trip")
        if len(self._spent) > self._before:
            raise ValueError("this trip has drawn: it would draw the same noise again")
        whole = ZCDPFilter(1.0)
        for before in self._spent:
            whole.spend(before)
        whole.spend(share)
        self._spent.append(float(share))
        return exact + self._keys.noise(self._spec.share(share, self._trip), fp, "hub")


@dataclass(frozen=True)
class Exact:
    """Exact sums of a round: (items,) int64 in units of 2^-30, and what lies below the grid.

    Attributes:
      units: whole units.
      fraction: (items,) int64 in [0, 2^fraction_bits), in units of 2^-(30 + fraction_bits); None for nothing.
    """

    units: np.ndarray
    fraction: np.ndarray | None = None
    fraction_bits: int = 0

    @property
    def present(self) -> np.ndarray:
        """(items,) bool: somebody gave weight to the item."""
        positive = self.units > 0
        return positive if self.fraction is None else positive | (self.fraction > 0)


@dataclass(frozen=True)
class ReplyColumn:
    """One column of values that shards send back: its type, and the value that is not worth sending.

    With `per_link` every block gets values of its own, (links,) in the order of the shard's slots, and `reply` finds
    in `shard.per_link` what each block sent. Blocks are then ranges of the order of user fingerprints, so that a
    program can treat users in that order, whatever the number of blocks.
    """

    dtype: type
    default: int
    per_link: bool = False


class Program(ABC):
    """One algorithm. Its methods are called for several blocks, or shards, at once: none may change it.

    Attributes:
      trips: how many times blocks send to shards.
      norm: "l1", "l2" or "linf", in which what one user adds to the sums of a round is at most 1, given what the rounds
        before it released or made noisy; with "linf" to as many items as the round's event says, and with `SavedNoise`
        as much as the event of all its rounds says.
      cap: distinct items kept per user when blocks are built.
      weight_grid: spacing of the noisy weights that `released` returns, a public power of two.
      reply_columns: trip -> {name: ReplyColumn} that shards return after that trip; absent: nothing returns.
      output: who gives the result after the last trip: "shards" (`released`), "hub" (`hub_output`) or "blocks"
        (`finish_block`).
      may_end: whether the hub may end the run before the last trip (`done`); blocks then meet it on every trip and give
        the result.
      released_names: names of the numbers that `released` gives for each item.
      chooses: whether the hub draws what is no noise on numbers, such as a choice among items. It then has the run's
        key, and needs a test of its own.
    """

    output: str = "shards"
    may_end: bool = False
    chooses: bool = False
    released_names: tuple[str, ...] = ("noisy_weight",)

    trips: int
    norm: str
    cap: int
    weight_grid: float
    reply_columns: Mapping[int, Mapping[str, ReplyColumn]]

    @abstractmethod
    def sum_names(self, trip: int) -> tuple[str, ...]:
        """Names of the integer columns that blocks send on this trip."""

    @abstractmethod
    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        """What a block adds to each of its items: {name: (items,) int64}, and state for later trips (None: nothing)."""

    def block_state_trip(self, trip: int) -> int | None:
        """The earlier trip whose block state this trip needs, or for `trips` who comes after the last; None: none."""
        return None

    def reads_block(self, trip: int) -> bool:
        """Whether this trip looks at the block as it was built; where not, it has number, state and broadcast alone.

        A program whose later trips need little of a block keeps that in the block's state, and the engine leaves the
        block itself unread. Nothing may be sent to shards then.
        """
        return True

    @abstractmethod
    def noise(self, trip: int) -> ItemNoise:
        """The noise of the round that ends with this trip; None where none is added."""

    def norm_on(self, trip: int) -> str:
        """The norm of what one user adds to the sums of this trip: `norm`, unless some trips differ."""
        return self.norm

    def touches(self, trip: int) -> Touches:
        """What one user gives to items on this trip at most; what its presence moves of others' left out.

        A plan holds it against the events of the trip's round, and the replay test the program to it. Unless a
        program says less: a weight of 1 to every item that is kept of a user.
        """
        return Touches.of((self.cap, 1.0))

    def release_test(self, trip: int) -> ReleaseTest | None:
        """What decides on this trip which items are released, as its events state it; None: no sum of noisy weights.

        A plan holds it against the events of the trip's round.
        """
        return None

    def noises(self) -> list[StatedNoise]:
        """The noise of all rounds, in their order: that of items, and that of the hub; a filter stands once."""
        noises: list[StatedNoise] = []
        for trip in range(self.trips):
            for spec in (self.noise(trip), self.hub_noise(trip)):
                if spec is not None and not (spec.filtered and spec in noises):
                    noises.append(spec)
        return noises

    def meets(self, trip: int) -> str | None:
        """Whose summaries meet at the hub after this trip: "blocks", "shards", or None for nobody's.

        Shards meet after their threshold and before they reply. A trip on which blocks meet reaches no shard: it has no
        sums, noise of items or replies, and it is not the first one of a program that reaches shards later.
        """
        return None

    def summarise(self, trip: int, part: Block | Shard, keys: Keys) -> Columns:
        """What a part tells the hub: few bytes, whatever the size of the part; exact and private."""
        raise NotImplementedError

    def hub_noise(self, trip: int) -> HubNoise:
        """The noise that the hub draws on this trip; None where it draws none.

        `FilteredNoise` is one filter for all trips that state it: the engine keeps what was taken from it, and refuses
        what would overrun it.
        """
        return None

    def done(self, trip: int, broadcast: Columns) -> bool:
        """Whether the run ends with this broadcast, which is public; asked only where `may_end`."""
        return False

    def decide(self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw) -> Decided:
        """The hub's new state, and what it broadcasts.

        Args:
          state: of the trip before, empty at first; never leaves the hub.
          summaries: in the order of the parts' numbers.
          draw: the stated noise.

        The broadcast reaches every block and shard on the next trip as `broadcast`; it must be public, that is, a
        function of what is noisy or released.
        """
        raise NotImplementedError

    def hub_output(self, state: Columns) -> pa.RecordBatch | None:
        """The result, from the hub's last state."""
        raise NotImplementedError

    def finish_block(self, block: Block) -> pa.RecordBatch | None:
        """A block's part of the result, after the last broadcast."""
        raise NotImplementedError

    def exact(self, trip: int, shard: Shard) -> Exact:
        """The sums that the noise of this trip is added to; only called where `noise` is not None."""
        return Exact(shard.sums["weight"])

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        """The shard after the noisy sums are known, which its state keeps; only called where `noise` is not None.

        Args:
          noisy: (items,) int64 units, exact sums plus noise; all that a program may learn from this trip's sums.
            Where the noise protects bits alone: 1 or 0, whether the noisy sum reaches the threshold.
          present: (items,) bool, whether somebody gave weight to the item in this trip.
        """
        return with_state(shard, noisy=noisy, present=present)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        """The shard with released items marked; only called where `noise` is not None."""
        raise NotImplementedError

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        """State to remember, and the values of every item for the blocks that hold it."""
        raise NotImplementedError

    def released(self, shard: Shard) -> tuple[np.ndarray, np.ndarray]:
        """After the last trip: (items,) bool released, and (items,) float64 noisy weight in the releasing round.

        Where `released_names` are several, (items, names) float64.

        Noisy weights are rounded to a public grid far coarser than floating point, so that low-order bits carry
        nothing (Mironov 2012).
        """
        weight = shard.state["weight"] / UNITS
        return shard.state["released"], np.rint(weight / self.weight_grid) * self.weight_grid


def check_trips(program: Program) -> None:
    """Refuse a program that does not say all that is asked, or whose blocks would not hear from a trip: they take part
    in the next one only when they do. Nor may it run in one process alone, where blocks and shards share more than the
    engine hands over.

    Raises:
      ValueError: naming what is missing, or the trip.
    """
    _check_attributes(program)
    for trip in range(program.trips - 1):
        if program.meets(trip) != "blocks" and trip not in program.reply_columns:
            raise ValueError(f"nothing returns to the blocks after trip {trip}: reply, or let blocks meet")
    if program.may_end and (
        program.output != "blocks" or any(program.meets(trip) != "blocks" for trip in range(program.trips))
    ):
        raise ValueError("in a run that may end early blocks meet the hub on every trip and give the result")
    ends = program.meets(program.trips - 1)
    if (program.output == "hub" and ends is None) or (program.output == "shards" and ends == "blocks"):
        raise ValueError(f"the last trip does not reach its {program.output}, who would give the result")
    _check_reach(program)


def _check_reach(program: Program) -> None:
    """Blocks send either to the hub or to the shards, and the shards learn of their items on the first trip."""
    name = type(program).__name__
    for trip in range(program.trips):
        sums, noise = program.sum_names(trip), program.noise(trip)
        if noise is not None and not sums:
            raise ValueError(f"trip {trip} of {name} has noise, and no sums that it could be added to")
        if program.meets(trip) == "blocks":
            if sums or trip in program.reply_columns:
                raise ValueError(
                    f"trip {trip} of {name}, where blocks meet, reaches no shard: it has sums or replies"
                )
        elif not program.reads_block(trip):
            raise ValueError(f"trip {trip} of {name} reaches the shards of blocks that it does not read")
        elif program.meets(0) == "blocks":
            raise ValueError(
                f"trip {trip} of {name} reaches shards, which learn of their items on trip 0 alone"
            )


def _check_attributes(program: Program) -> None:
    whole, name = (int, np.integer), type(program).__name__
    kinds: dict[str, type | tuple[type, ...]] = {
        "trips": whole,
        "norm": str,
        "cap": whole,
        "weight_grid": (*whole, float),
        "reply_columns": Mapping,
    }
    for attribute, kind in kinds.items():
        value = getattr(program, attribute, None)
        if not isinstance(value, kind):
            raise ValueError(f"{name} does not say its {attribute}: {value!r}")
    if min(program.trips, program.cap) < 1 or not program.weight_grid > 0:
        raise ValueError(f"trips, cap and weight_grid of {name} must be positive")


def replies_by_link(program: Program, trip: int | None = None) -> bool:
    """Whether blocks receive different values about an item after this trip (None: after any)."""
    columns = program.reply_columns
    trips = columns if trip is None else [trip]
    return any(column.per_link for t in trips for column in columns.get(t, {}).values())


def reply_to(shard: Linked, position: int, values: np.ndarray, column: ReplyColumn) -> np.ndarray:
    """The part of a reply's values for the links of the block at `position` in block_ids."""
    if column.per_link:
        return values[shard.slot_offsets[position] : shard.slot_offsets[position + 1]]
    return values.take(shard.links_of(position))


def add_noise(program: Program, trip: int, shard: Shard, keys: Keys) -> Shard:
    """The shard after its noisy round: exact sums, the noise that the program states, what it makes of both.

    Raises:
      NoiseMismatchError: the noise does not protect such sums.
    """
    exact, spec = program.exact(trip, shard), program.noise(trip)
    assert spec is not None
    spec.check_sums(UNITS, exact.units, exact.fraction)
    below = {} if exact.fraction is None else {"fraction": exact.fraction}
    keys.bind(f"shard-{shard.id}-trip-{trip}", [{"fp": shard.fp, "units": exact.units, **below}])
    noise = keys.noise(spec, shard.fp, fraction=exact.fraction, fraction_bits=exact.fraction_bits)
    return program.observe(trip, shard, spec.shown(exact.units + noise, UNITS), exact.present)


def decide_at_hub(
    program: Program,
    trip: int,
    state: Columns,
    summaries: Sequence[Columns],
    keys: Keys,
    spent: Sequence[float] = (),
) -> tuple[Columns, Columns, tuple[float, ...]]:
    """The hub's new state, its broadcast, and the shares that were taken from its filter.

    Args:
      summaries: in the order of the parts' numbers.
      spent: shares that earlier trips took.
    """
    keys.bind(f"hub-trip-{trip}", [state, {"spent": np.array(spent, np.float64)}, *summaries])
    draw = keys.hub(program.hub_noise(trip), trip, spent, program.chooses)
    state, broadcast = program.decide(trip, state, summaries, draw)
    return state, broadcast, draw.spent


def with_state(shard: Shard, **arrays: np.ndarray) -> Shard:
    """A copy of the shard whose state has these arrays replaced or added."""
    return replace(shard, state={**shard.state, **arrays})


def mark_released(shard: Shard, noisy_units: np.ndarray, crossed: np.ndarray) -> Shard:
    """Release the items that crossed a threshold now and remember their noisy weight; earlier ones stay."""
    before = shard.state.get("released")
    if before is None:
        before = np.zeros(len(shard), bool)
        kept = np.zeros(len(shard), np.int64)
    else:
        kept = shard.state["weight"]
    new = crossed & ~before
    return with_state(shard, released=before | new, weight=np.where(new, noisy_units, kept))
