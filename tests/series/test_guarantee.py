"""The two parts of the theorem of docs/explanation/series.md on copies of hard streams, and faults that break them.

Copies share no user and no item, so one series runs thousands of them under one key: each is a draw. Copies of v's
world and of the world without v are separate runs. A fault counts as refuted where the claim would give what was seen
with probability below 1e-6; the product is held to the same statistic.
"""

import numpy as np
import pyarrow as pa
import pytest

from dpbeam.selectors.gsu.presets import ScoreConstants
from dpbeam.series.schedule import Schedule
from dpbeam.series.state import SeriesState
from tests.series import faulty
from tests.series.streams import arrays, keys_of, plan_of

DEVIATIONS = 5.0  # one-sided 3e-7
NIGHTS = 4
LAST = Schedule((1, 2, 3, 4), (0.25,) * 4, (1e-9, 1e-9, 1e-9, 1 - 3e-9))
EVEN = Schedule((1, 2, 3, 4), (0.25,) * 4, (0.25,) * 4)
KEEN = ScoreConstants(a=0.6, a1=0.0, k1=0.3, kk=0.0, b=-0.57, k2=2.4, g=1.1)  # gives up early
CALM = ScoreConstants(a=50.0, a1=0.0, k1=50.0, kk=0.0, b=50.0, k2=50.0, g=1.0)  # all count alike


def run(build, plan, stream, copies, seed=0):
    """Night that released each item of each copy (0: none). `stream`: per night (pairs, erased), of numbers."""
    keys, state, program = keys_of(seed), SeriesState.empty(), build.program(plan)
    for pairs, erased in stream:
        rows = [(f"{c} u{u}", f"{c} i{i}") for u, i in pairs for c in range(copies)]
        state = build.run(program, state, *arrays(rows), keys)
        gone = pa.array([f"{c} u{u}".encode() for u in erased for c in range(copies)], pa.large_binary())
        state = build.erase(state, gone, keys)
    out: dict[int, np.ndarray] = {}
    for item, night in zip(state.released.to_pylist(), state.released_night):
        copy, number = item.decode().split(" i")
        out.setdefault(int(number), np.zeros(copies, np.int64))[int(copy)] = night
    return out


def novel_rate(build, plan, stream, copies):
    """Share of copies in which an item of v's that nobody else holds came out."""
    nights_of = run(build, plan, stream, copies)
    return np.mean(np.any([nights > 0 for nights in nights_of.values()], axis=0)) if nights_of else 0.0


def novel_plan(**settings):
    chosen = {"delta_share": 0.05, "max_items_per_user": 4, "rank_power": 0.0, "cap": 0.3, **settings}
    return plan_of(NIGHTS, 2.0, 0.05, preset=None, **chosen)


def each_night(count, *, erased=()):
    return [([(0, count * n + i) for i in range(count)], erased) for n in range(NIGHTS)]


NOVEL = {
    "four new items every night": (each_night(4), {"schedule": EVEN}),
    "one new item every night": (each_night(1), {"schedule": EVEN}),
    "all on the first night": (each_night(4)[:1] + [([], ())] * 3, {"schedule": EVEN}),
    "all on the last night": ([([], ())] * 3 + each_night(4)[:1], {"schedule": EVEN}),
    "four new items every night, erased each time": (each_night(4, erased=(0,)), {"schedule": EVEN}),
    "many at once, one test": (
        [([(0, i) for i in range(32)], ()), *[([], ())] * 3],
        {"schedule": LAST, "cap": 0.1, "max_items_per_user": 32, "rise": 0.0, "score": KEEN},
    ),
}
ALL_NIGHTS, ERASED, AT_ONCE = [name for name in NOVEL if "four" in name or "many" in name]


def bound(share, copies):
    return DEVIATIONS * np.sqrt(share * (1 - share) / copies)


SAVED = {"saved_norm": 2.5, "rise": 2.0}


@pytest.mark.parametrize(
    ("name", "rule"),
    [*((name, {}) for name in NOVEL), *((name, SAVED) for name in (ALL_NIGHTS, ERASED, AT_ONCE))],
)
def test_novel_items_come_out_with_probability_delta_t(name, rule):
    stream, settings = NOVEL[name]
    plan, copies = novel_plan(**{**rule, **settings}), 3000
    rate, claim = novel_rate(faulty.Honest(), plan, stream, copies), plan.calibration.delta_threshold
    assert rate <= claim + bound(claim, copies)
    if not rule and name in (ALL_NIGHTS, ERASED, AT_ONCE):
        assert rate > 0.5 * claim  # the bound is used: a fault would show


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (faulty.SetResetEachNight, ALL_NIGHTS),
        (faulty.OrderByEventDate, ALL_NIGHTS),
        (faulty.FreshRanksOnReturn, ERASED),
        (faulty.CapByPresentDegree, AT_ONCE),
    ],
)
def test_faults_that_let_novel_items_out_are_refuted(fault, name):
    stream, settings = NOVEL[name]
    plan, copies = novel_plan(**settings), 4000
    rate = novel_rate(fault(), plan, stream, copies)
    assert rate - bound(rate, copies) > plan.config.delta  # not of the lemma alone: of the whole claim


def excess(build, plan, without, added, event, copies=2000):
    """Largest P(event) - e^eps Q(event) - delta over both directions, less its error at `DEVIATIONS`."""
    worlds = [without, [(pairs + more, erased) for (pairs, erased), more in zip(without, added)]]
    rates = []
    for seed, stream in enumerate(worlds):
        nights_of = run(build, plan, stream, copies, seed)
        rates.append(np.mean(event(nights_of.get(0, np.zeros(copies, np.int64)))))
    gain, best = np.exp(plan.config.epsilon), -1.0
    for p, q in (rates, rates[::-1]):
        error = bound(max(p, 1 / copies), copies) + gain * bound(max(q, 1 / copies), copies)
        best = max(best, p - gain * q - plan.config.delta - error)
    return best


# Item 0 is held by others than v (user 0) at some time; v brings it on the night that the second list says.
WORLDS = {
    "others bring it last": ([([], ())] * 3 + [([(u, 0) for u in range(1, 31)], ())], [[(0, 0)], [], [], []]),
    "others are erased": (
        [([(u, 0) for u in range(1, 7)], ()), ([], tuple(range(1, 7))), *[([], ())] * 2],
        [[(0, 0)], [], [], []],
    ),
    "nights without data": ([([(u, 0) for u in range(1, 6)], ()), *[([], ())] * 3], [[], [(0, 1)], [], []]),
}
FAULTS = [
    (faulty.EarlierNoiseLeftOut, "others bring it last", lambda night: night > 0),
    (faulty.CandidatesOnlyWhileHeld, "others are erased", lambda night: night > 2),
    (faulty.EmptyRoundSkipped, "nights without data", lambda night: night == 2),
]


def worlds_plan(name):
    # All rounds count alike but for the last, which has little noise of its own.
    tests = (0.01, 0.01, 0.01, 0.97) if name == "others are erased" else (0.1, 0.3, 0.3, 0.3)
    last = Schedule((1, 2, 3, 4), (0.3, 0.3, 0.3, 0.1), tests)
    return plan_of(
        NIGHTS,
        1.0,
        0.05,
        preset=None,
        schedule=last,
        delta_share=0.5,
        max_items_per_user=1,
        cap=1.0,
        rise=0.0,
        score=CALM,
    )


def saving_plan():
    """Which the exact law of one item says to be near the claim, and far from it where energy comes back."""
    rising = Schedule((1, 2, 3, 4), (0.1, 0.2, 0.3, 0.4), (0.01, 0.01, 0.01, 0.97))
    settings = {"delta_share": 0.95, "max_items_per_user": 4, "cap": 2.0, "rise": 0.0, "rank_power": 0.0}
    return plan_of(NIGHTS, 1.0, 0.05, preset=None, schedule=rising, score=CALM, saved_norm=1.0, **settings)


@pytest.mark.parametrize(
    ("fault", "others", "erased"),
    [(faulty.EnergyResetEachNight, 3, ()), (faulty.EnergyForgottenOnErasure, 4, (0,))],
)
def test_energy_that_comes_back_is_refuted(fault, others, erased):
    """Others hold item 0 from the first night on; v brings it too, and may be erased after each night and come back."""
    without = [([(u, 0) for u in range(1, 1 + others)], erased), *[([], erased)] * 3]
    added = [[(0, 0)]] * NIGHTS
    copies, event = 6000, lambda night: night > 0
    assert excess(faulty.Honest(), saving_plan(), without, added, event, copies) <= 0
    assert excess(fault(), saving_plan(), without, added, event, copies) > 0


@pytest.mark.parametrize(("fault", "name", "event"), FAULTS)
def test_faults_that_tell_of_others_are_refuted(fault, name, event):
    without, added = WORLDS[name]
    assert excess(faulty.Honest(), worlds_plan(name), without, added, event) <= 0
    assert excess(fault(), worlds_plan(name), without, added, event) > 0
