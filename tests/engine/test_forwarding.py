"""Programs around programs: nothing of `Program` is forgotten, and a hub inside is really met, or refused by name."""

import numpy as np
import pytest

from dpbeam.accounting.noise import NoiseSpec
from dpbeam.counts.counted import COUNT, CountedProgram, candidates
from dpbeam.counts.selection import CountingSelection, CountNoises
from dpbeam.engine.extended import Extended
from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.in_process import build_blocks, run_trips
from dpbeam.engine.program import Keys, Program, check_trips
from dpbeam.kernels.pairs import Block
from dpbeam.selectors.uniform.program import UniformProgram
from dpbeam.series.night_program import NightProgram
from dpbeam.series.program import SeriesProgram
from dpbeam.testing.replay import Watched
from tests.support.hub_programs import Applause, GreedyCover
from tests.support.instances import batches, random_pairs
from tests.support.running import key, names, release

_DERIVED = {"noises"}  # of `noise` and `hub_noise`, whoever overrides them


def public_names(kind: type) -> set[str]:
    annotated = {name for base in kind.__mro__ for name in getattr(base, "__annotations__", {})}
    return {name for name in annotated | set(dir(kind)) if not name.startswith("_")}


class _Recorder:
    """Answers every call with its own name and arguments."""

    def __getattr__(self, name):
        return ("attribute", name) if name in Program.__annotations__ else lambda *a: (name, a)


@pytest.mark.parametrize("name", sorted(public_names(Program) - _DERIVED))
def test_whatever_a_program_has_is_forwarded(name):
    """A method or attribute that `Program` learns later fails here until it is forwarded."""
    assert name in vars(Forwarding), f"Forwarding does not forward {name}"
    program = Forwarding(_Recorder())
    if name in Program.__annotations__:
        assert getattr(program, name) == ("attribute", name)
        return
    count = getattr(Program, name).__code__.co_argcount - 1
    arguments = tuple(object() for _ in range(count))
    assert getattr(program, name)(*arguments) == (name, arguments)


def wrappers() -> set[type]:
    kinds, open_ = set(), [Program]
    while open_:
        for kind in open_.pop().__subclasses__():
            kinds.add(kind)
            open_.append(kind)
    return kinds


def holders(modules: str) -> set[type]:
    """Classes of modules of this prefix that take a program for their constructor."""
    kinds = [kind for kind in wrappers() if kind.__module__.startswith(modules)]
    return {
        kind
        for kind in kinds
        if "__init__" in vars(kind)
        and any("Program" in str(hint) for hint in kind.__init__.__annotations__.values())
    }


def test_whoever_holds_a_program_forwards():
    """A class of the package that takes a program for its constructor derives from `Forwarding`, but for a night."""
    kinds = holders("dpbeam.")
    assert {CountedProgram, CountingSelection, Extended} <= kinds
    assert {kind for kind in kinds if not issubclass(kind, Forwarding)} == {NightProgram}


def said(kind: type[Program]) -> set[str]:
    """What of `Program` a class says otherwise."""
    own = kind.__mro__[: kind.__mro__.index(Program)]
    return {name for base in own for name in vars(base) if name in vars(Program) and not name.startswith("_")}


def test_a_night_says_all_that_its_series_says():
    """Its trips are not those of the program that it holds, so it cannot forward what it does not know."""
    assert said(SeriesProgram) <= said(NightProgram)


class HubSelection(UniformProgram):
    """Two rounds; after the first, shards meet, and users with an even total of released items, or of users,
    weigh half in the second round.
    """

    def meets(self, trip):
        return "shards" if trip == 0 else None

    def summarise(self, trip, part, keys):
        if isinstance(part, Block):
            assert part.offsets[-1] <= self.cap * (len(part.offsets) - 1)  # the sample, not the full set
            return {"count": np.array([part.offsets[-1]])}
        return {"count": np.array([np.count_nonzero(part.state["released"])])}

    def decide(self, trip, state, summaries, draw):
        return {}, {"count": np.array([sum(int(s["count"][0]) for s in summaries)])}

    def weigh(self, trip, block, reply, keys):
        sums, state = super().weigh(trip, block, reply, keys)
        halves = trip > 0 and int(block.broadcast["count"][0]) % 2 == 0
        return {"weight": sums["weight"] >> halves}, state


class BlocksMeet(HubSelection):
    """The same rounds, and a trip between them on which blocks meet."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.trips = 3

    def sum_names(self, trip):
        return () if trip == 1 else super().sum_names(trip)

    def noise(self, trip):
        return None if trip == 1 else super().noise(trip // 2)

    def meets(self, trip):
        return "blocks" if trip == 1 else None

    def block_state_trip(self, trip):
        return 1 if trip == 2 else None

    def weigh(self, trip, block, reply, keys):
        if trip == 1:
            return {}, {"released": reply["released"]}
        return super().weigh(trip // 2, block, block.state if trip else reply, keys)

    def threshold(self, trip, shard):
        return super().threshold(trip // 2, shard)


def selection(kind=HubSelection, thresholds=(7.0, 1.0)):
    noises = [NoiseSpec("gaussian", 0.5, number) for number in (1, 2)]
    return kind(noises=noises, thresholds=thresholds, max_items=5)


PAIRS = random_pairs(2, users=150)


@pytest.mark.parametrize("kind", [HubSelection, BlocksMeet])
@pytest.mark.parametrize("wrapper", [CountedProgram, Watched, Forwarding])
def test_a_hub_inside_is_met(kind, wrapper):
    """A wrapped selection releases what it releases alone, which depends on what its hub said."""
    alone = release(selection(kind), PAIRS, key("hub"))
    released = release(wrapper(selection(kind)), PAIRS, key("hub"), num_blocks=3, num_shards=2)
    assert names(released) == names(alone)
    deaf = type("Deaf", (kind,), {"decide": lambda *_: ({}, {"count": np.array([flipped(kind)])})})
    assert names(release(selection(deaf), PAIRS, key("hub"))) != names(alone)


def flipped(kind) -> int:
    """A count of the other parity than the hub's."""
    blocks = list(build_blocks(batches(PAIRS), Keys(key("hub")), 5, num_blocks=1, num_shards=1))
    return int(run_trips(selection(kind), blocks, Keys(key("hub"))).broadcast["count"][0]) + 1


def test_a_counted_selection_with_a_hub_counts_on():
    """Counts of full sets, and two rounds more after the selection's own."""
    program = CountingSelection(selection(), CountNoises.calibrate(0.01, 3))
    check_trips(program)
    assert [program.meets(trip) for trip in range(program.trips)] == ["shards", "shards", "blocks", None]
    released = release(program, PAIRS, key("hub"), num_blocks=2, num_shards=3)
    assert names(released) == names(release(selection(), PAIRS, key("hub")))
    counted = CountedProgram(selection())
    keys = Keys(key("hub"))
    done = run_trips(
        counted, list(build_blocks(batches(PAIRS), keys, counted.cap, num_blocks=2, num_shards=2)), keys
    )
    exact: dict[str, int] = {}
    for shard in done.shards:
        exact.update(zip(shard.items.to_pylist(), candidates(counted, shard)[1].tolist()))
    assert exact == {item.encode(): len({u for u, i in PAIRS if i == item}) for _, item in PAIRS}
    noisy = dict(zip(released.items.to_pylist(), released.noisy_weight[:, 0]))
    assert all(abs(noisy[item] - exact[item]) <= 2 for item in noisy)  # deviations of a tenth
    assert COUNT in done.shards[0].state


class LastMeets(HubSelection):
    def meets(self, trip):
        return "shards"


class Untold(UniformProgram):
    """Its first trip reaches nobody's state."""

    def noise(self, trip):
        return super().noise(trip) if trip else None

    def meets(self, trip):
        return "blocks" if trip == 0 else None

    @property
    def reply_columns(self):
        return {}

    @reply_columns.setter
    def reply_columns(self, value):
        pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CountedProgram(GreedyCover(2, 1.0)), "GreedyCover ends with its hub"),
        (lambda: CountedProgram(Applause()), "Applause ends with its blocks"),
        (lambda: CountedProgram(selection(Untold)), "shards of Untold keep nothing of its first trip"),
        (lambda: Extended(GreedyCover(2, 1.0)), "GreedyCover ends with its hub"),
        (lambda: Extended(selection(LastMeets)), "parts of LastMeets meet after its last trip"),
        (
            lambda: CountingSelection(selection(LastMeets), CountNoises.calibrate(0.01, 3)),
            "parts of LastMeets meet after its last trip",
        ),
    ],
)
def test_what_cannot_be_wrapped_is_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()
