"""The integers of saved norm against exact arithmetic of Python's, and what pays for them against the accountant."""

import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from dpbeam.accounting.accountant import account
from dpbeam.accounting.events import (
    ComposedEvent,
    GaussianEvent,
    InconsistentEventError,
    RankedThresholdEvent,
    SavedNormEvent,
    event_from_dict,
    event_to_dict,
)
from dpbeam.accounting.gaussian import gaussian_delta, split_sigma
from dpbeam.accounting.noise import NoiseMismatchError, NoiseSpec, SavedNoise
from dpbeam.errors import InputError
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import NORM_UNITS, UNITS
from dpbeam.randomness import RunKey
from dpbeam.series.config import SeriesPlan, plan_series
from dpbeam.series.family import SeriesConfig
from dpbeam.series.program import energy_of
from dpbeam.series.saved import FULL, UNKNOWN, Saving, charge
from dpbeam.series.state import SeriesState
from dpbeam.series.window import SeriesWindow
from tests.series.streams import arrays, keys_of, plan_of, random_nights, run_night, run_nights

EDGES = [0, 1, 2, UNITS - 1, UNITS, UNITS + 1, FULL - 1, FULL, 2 * FULL + 12345, 4 * FULL - 1, 4 * FULL]


def test_a_charge_is_rounded_up_exactly():
    rng = np.random.default_rng(1)
    squares = np.array([*EDGES, *rng.integers(0, 4 * FULL, 500, dtype=np.int64)])
    for share in [*(edge for edge in EDGES if edge <= FULL), *rng.integers(0, FULL, 50).tolist()]:
        assert charge(squares, share).tolist() == [-(-share * int(s) // FULL) for s in squares]


def rows_of(rng, users):
    degrees = rng.integers(1, 9, users)
    return Csr(np.append(0, np.cumsum(degrees)), np.arange(degrees.sum(), dtype=np.int32))


@pytest.mark.parametrize("bonus", [0.0, 1.0, 2.5])
def test_a_user_never_gives_more_than_one_over_all_rounds(bonus):
    """Whatever scores and caps are; and in the end some have nothing left."""
    rng, users = np.random.default_rng(7), 400
    fractions = np.array([0.01, 0.3, 0.002, 0.2, 0.088, 0.4])
    saving = Saving(fractions.tolist(), (1, 1, 2, 3, 3, 3), bonus)
    energy, first = np.full(users, FULL), rng.integers(1, 3, users)
    spent, norms = [Fraction(0)] * users, []
    for trip, night in enumerate(saving.nights):
        rows = rows_of(rng, users)
        here = np.minimum(first, night)
        room = saving.room(trip, energy, here)
        score = rng.uniform(1e-3, 1, len(rows.links)) ** rng.integers(1, 4)
        bar = rng.choice([1e-9, 0.15, 0.7, 2.0], len(rows.links))
        units, left = saving.spend(trip, rows, score, bar, energy, here)
        assert (units >= 0).all() and (units <= bar * UNITS).all() and (left >= 0).all()
        for user in range(users):
            squares = sum(int(u) ** 2 for u in units[rows.offsets[user] : rows.offsets[user + 1]])
            share = Fraction(saving.fractions[trip])
            spent[user] += share * squares / NORM_UNITS
            assert int(energy[user] - left[user]) == math.ceil(
                math.ceil(share * FULL) * Fraction(squares, FULL)
            )
            rest = sum(map(Fraction, saving.fractions[trip:]))
            e = Fraction(int(energy[user]), FULL)
            stated = min(4, e / share, e / rest * (1 + Fraction(bonus) / (1 + night - int(here[user]))))
            assert squares / NORM_UNITS <= stated and room[user] == pytest.approx(float(stated), rel=1e-9)
            norms.append(squares / NORM_UNITS)
        energy = left
    assert max(spent) <= 1 and max(spent) > 0.999 and max(norms) > 2.4


def test_a_weight_is_lowered_until_it_is_paid():
    saving = Saving([0.5, 0.5], (1, 2), 1.0)
    rows, one = Csr(np.array([0, 1]), np.zeros(1, np.int32)), np.ones(1)
    energy = np.array([FULL // 1000 + 7])
    exact = saving.room(1, energy, one)
    saving.room = lambda trip, energy, first: exact * (1 + 1e-8)  # more than is left
    _, left = saving.spend(1, rows, one, 2 * one, energy, one)
    assert 0 <= left[0] < 1e-6 * energy[0]
    saving.room = lambda trip, energy, first: np.full(1, 4.0)  # far more
    _, left = saving.spend(1, rows, one, 2 * one, energy, one)
    assert left[0] >= 0


def test_a_round_made_twice_takes_as_much_once():
    """An engine may weigh a block again: neither the block nor the program remembers it."""
    plan, keys = plan_of(), keys_of(1)
    state = run_night(plan.program, SeriesState.empty(), *arrays(random_nights(1)[0]), keys)
    block, trip = state.block(), plan.program.schedule.of_night(2)[0]
    reply = {"score": state.accumulators["score"]}
    before = energy_of(block).copy()
    one, other = (plan.program.weigh(trip, block, reply, keys) for _ in range(2))
    assert np.array_equal(one[0]["weight"], other[0]["weight"]) and one[0]["weight"].any()
    assert np.array_equal(one[1]["energy"], other[1]["energy"]) and np.array_equal(energy_of(block), before)


def test_an_energy_that_is_not_known_is_never_full():
    """As in the states of version 1, which a window that saves norm cannot take over."""
    plan, keys = plan_of(), keys_of(1)
    state = run_nights(plan, random_nights(1)[:2], keys)
    old = {name: values for name, values in state.to_columns().items() if name not in ("energy", "first")}
    taken = SeriesState.from_columns(old)
    assert (taken.energy == UNKNOWN).all() and len(taken.energy)
    with pytest.raises(InputError, match="does not say what its users have left"):
        run_night(plan.program, taken, *arrays(random_nights(1)[2]), keys)
    early = plan_of(preset="early")
    assert run_night(early.program, taken, *arrays(random_nights(1)[2]), keys).night == 3  # saves nothing


def test_erasure_keeps_what_was_spent_and_when_a_user_came():
    plan, keys = plan_of(), keys_of(2)
    state = run_nights(plan, random_nights(2)[:2], keys)
    users, _ = arrays([(f"user {u}", "") for u in range(60)])
    gone = state.without(users, keys.pairs)
    assert not len(gone.links) and gone.energy.min() < FULL
    assert np.array_equal(gone.energy, state.energy) and np.array_equal(gone.first, state.first)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_every_round_pays_for_its_share_exactly(epsilon, delta):
    short = 0
    for nights in (1, 4, 12, 30):
        plan = plan_series(SeriesConfig(epsilon, delta, nights))
        event, *_ = plan.event.parts
        whole = Fraction(event.sigma) ** 2
        for sigma, share in zip(event.sigmas, event.shares):
            assert Fraction(sigma) ** 2 * Fraction(share) >= whole
            assert sigma**2 * share == pytest.approx(event.sigma**2, rel=1e-14)
        for taken, share in zip(plan.program.saving.shares, event.shares):
            assert 0 <= Fraction(taken, FULL) - Fraction(share) < Fraction(1, FULL)
        split = split_sigma(event.sigma, event.shares)
        short += sum(Fraction(s) ** 2 * Fraction(f) < whole for s, f in zip(split, event.shares))
    assert short  # noise that is right in sum alone would not do


def event_of(plan=None):
    return (plan or plan_of(3)).event.parts[0]


def test_all_rounds_cost_one_gaussian_mechanism():
    event = event_of()
    alone = ComposedEvent("gaussian", (event,), epsilon=1.0)
    assert account(alone).delta == pytest.approx(gaussian_delta(1.0, event.sigma))
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event
    assert (
        [n.round for n in event.noises()] == list(range(1, len(event.sigmas) + 1)) == list(event.noisy_rounds)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: {"sigmas": (math.nextafter(e.sigmas[0], 0) * (1 - 1e-15), *e.sigmas[1:])}, "does not pay"),
        (lambda e: {"sigma": e.sigma * (1 + 1e-15)}, "does not pay"),
        (lambda e: {"shares": (*e.shares[:-1], e.shares[-1] * (1 - 1e-15))}, "does not pay"),
        (lambda e: {"shares": e.shares[1:]}, "one value per round"),
        (lambda e: {"largest": 0.0}, "largest"),
    ],
)
def test_an_event_that_states_too_much_is_refused(change, message):
    event = event_of()
    with pytest.raises((ValueError, InconsistentEventError), match=message):
        dataclasses.replace(event, **change(event))


def test_caps_are_held_to_what_the_noise_of_the_rounds_admits():
    saved, tests = plan_series(SeriesConfig(1.0, 1e-5, 3)).event.parts
    noises = {noise.round: noise for noise in saved.noises()}
    assert 1 < tests.caps[0] <= saved.largest == 2
    tests.check(noises)
    plain = {r: NoiseSpec("gaussian", noise.scale, r) for r, noise in noises.items()}
    smaller = {
        r: SavedNoise("gaussian", noise.scale, r, tests.caps[0] * 0.999) for r, noise in noises.items()
    }
    for wrong in (plain, smaller, {**noises, 2: plain[2]}):
        with pytest.raises(InconsistentEventError, match=r"above what .* admits"):
            tests.check(wrong)
    sigmas = [GaussianEvent(sigma, round=r) for r, sigma in enumerate(saved.sigmas, start=1)]
    assert account(ComposedEvent("gaussian", (saved, tests), epsilon=1.0)).delta <= 1e-5
    with pytest.raises(InconsistentEventError, match="admits"):  # costs as much, and is false
        account(ComposedEvent("gaussian", (*sigmas, tests), epsilon=1.0))
    assert isinstance(tests, RankedThresholdEvent)


def test_a_plan_is_held_to_its_event(monkeypatch):
    plan = plan_of(3)
    c = plan.calibration
    for wrong, message in (
        (dataclasses.replace(c, largest=3.0), "program draws"),
        (dataclasses.replace(c, largest=None), "program draws"),
    ):
        with pytest.raises(NoiseMismatchError, match=message):
            SeriesPlan(plan.config, wrong)
    init = Saving.__init__

    def less(self, *arguments):
        init(self, *arguments)
        self.shares = (self.shares[0] - 1, *self.shares[1:])

    monkeypatch.setattr(Saving, "__init__", less)
    with pytest.raises(NoiseMismatchError, match="takes less"):
        SeriesPlan(plan.config, c)


def test_a_preset_is_stated_whole():
    config = SeriesConfig(1.0, 1e-5, 30)
    stated = config.stated()
    assert (config.preset, stated["saved_norm"], stated["rise"], stated["aims"][0]) == (
        "balanced",
        1.0,
        2.0,
        [1.1, 0.0, 1.0],
    )
    assert SeriesConfig.of_parameters(1.0, 1e-5, json.loads(json.dumps(stated))) == config
    with pytest.raises(ValueError, match="not stated"):
        SeriesConfig.of_parameters(1.0, 1e-5, {**stated, "saved_norm": None})
    old = SeriesConfig(1.0, 1e-5, 30, "early").stated()
    assert "saved_norm" not in old and (old["rise"], old["aims"][0]) == (1.0, [1.2, 0.0, 1.0])
    assert {type(e) for e in plan_series(SeriesConfig(1.0, 1e-5, 30, "early")).event.parts} == {
        GaussianEvent,
        RankedThresholdEvent,
    }
    assert type(event_of()) is SavedNormEvent


def test_a_window_of_the_old_rule_is_not_continued_under_the_new_one(tmp_path):
    """Who has given norm 1 in every round so far would begin with a full energy."""
    folder = tmp_path / "f"
    window = SeriesWindow.open(
        SeriesConfig(4.0, 0.1, 3, "early"), RunKey.insecure_fixed("a"), folder=str(folder)
    )
    window.run(1, *arrays(random_nights(1)[0]), b"")
    settings = json.loads((folder / "series.json").read_text())
    assert "saved_norm" not in settings["parameters"]
    settings["parameters"] = SeriesConfig(4.0, 0.1, 3).stated()
    (folder / "series.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match="opened with another calibration"):
        SeriesWindow.load(str(folder)).run(2, *arrays(random_nights(1)[1]), b"")
