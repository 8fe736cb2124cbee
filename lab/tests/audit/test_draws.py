"""What every program of every family draws, hub included, has the law that its ledger states."""

import numpy as np
import pytest
from scipy import stats

from dpbeam.accounting.noise import NOISE_KINDS, NoiseSpec
from dpbeam.engine import in_process
from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.in_process import run_trips
from dpbeam.engine.program import Draw, Keys
from dpbeam.families.registry import families
from dpbeam.kernels.grid import UNITS
from dpbeam.randomness import RunKey
from dpbeam.selectors.registry import selectors, variants
from dpbeam_lab.audit.draws import ITEMS, Drawn, smallest_seen, uniform_p
from dpbeam_lab.audit.faults import quiet
from dpbeam_lab.audit.programs import programs
from tests.support.variants import of_own_code

ALPHA = 1e-6  # a sound program fails one test with this probability
PROGRAMS = programs()
LOUDER = ("select, basic", "select, laplace", "select, bits", "counts, laplace", "top-k, gauss-rank")


@pytest.fixture(scope="module")
def running():
    made = {}

    def of(name):
        if name not in made:
            made[name] = PROGRAMS[name]()
        return made[name]

    return of


def least(drawn: Drawn) -> float:
    p_values = drawn.p_values()
    return min(p_values.values()) * len(p_values)


def test_every_selector_and_every_family_is_there():
    assert set(LOUDER) <= set(PROGRAMS)
    assert {f"select, {name}" for name in variants()} <= set(PROGRAMS)
    counted = {name.split(", ")[1] for name in PROGRAMS if name.startswith("counts, ")}
    assert len(counted) == len(selectors())
    # What hitting sets and series draw has tests of its own: test_choices.py, and tests/series/test_law.py of dpbeam.
    drawn = {name.split(",")[0] for name in PROGRAMS} | {"hitting-set", "series"}
    assert drawn - {"counts"} == set(families()), (
        "lab/dpbeam_lab/audit/programs.py lacks a kind, or has one too many"
    )


# Counts draw in one way beside every selection: of those with Gaussian noise and several rounds gsu stands for all.
@pytest.mark.parametrize(
    "name",
    [
        name
        for name in of_own_code(PROGRAMS)
        if name not in ("counts, dp-sips", "counts, mad", "counts, mad2r")
    ],
)
def test_draws_are_as_stated_and_a_scale_that_is_off_shows(name, running):
    """Noise x 0.7 of items and of the hub, every round for itself; x 1.3 of one program for each law and place."""
    made = running(name)
    assert made.drawn(made.runs).fault(ALPHA, made.stated) == ""
    for factor in (0.7, 1.3) if name in LOUDER else (0.7,):
        drawn = made.drawn(made.runs, keys=quiet(factor))
        wrong = {place for place, p in drawn.p_values().items() if p < ALPHA / len(drawn.samples)}
        assert wrong == set(drawn.samples)


def halved(sound):
    """A step that adds half of the noise of a sound one; the exact numbers are its last argument but one."""
    return lambda *args: args[-2] + (sound(*args) - args[-2]) // 2


@pytest.mark.parametrize("name", ["counts, basic", "count", "top-k, gauss-rank", "pack"])
def test_a_hub_that_halves_its_noise_shows(name, running, monkeypatch):
    """The fault lies above `Keys.noise`, which is sound."""
    for method in ("noisy", "noisy_within"):
        monkeypatch.setattr(Draw, method, halved(getattr(Draw, method)))
    made = running(name)
    drawn = made.drawn(made.runs)
    assert drawn.fault(ALPHA, made.stated).startswith("noise of hub in round ")
    assert all(p > ALPHA for place, p in drawn.p_values().items() if place[0] == ITEMS)


@pytest.mark.parametrize(
    "name", ["select, basic", "select, gsu8", "select, mad2r", "select, vote", "counts, basic"]
)
def test_noise_that_shrinks_after_the_draw_shows(name, running, monkeypatch):
    """The fault lies in the engine's own step from exact to noisy sums."""

    def halved(program, trip, shard, keys):
        exact, spec = program.exact(trip, shard), program.noise(trip)
        noise = keys.noise(spec, shard.fp, fraction=exact.fraction, fraction_bits=exact.fraction_bits) // 2
        return program.observe(trip, shard, spec.shown(exact.units + noise, UNITS), exact.present)

    monkeypatch.setattr(in_process, "add_noise", halved)
    made = running(name)
    assert made.drawn(made.runs).fault(ALPHA, made.stated).startswith("noise of items in round ")


def test_the_stated_laws_are_those_of_an_independent_library(running):
    laws = {"gaussian": lambda b: stats.norm(scale=b), "laplace": lambda b: stats.laplace(scale=b)}
    assert set(laws) == set(NOISE_KINDS)
    x = np.linspace(-4, 4, 41)
    for kind, law in laws.items():
        np.testing.assert_allclose(NoiseSpec(kind, 1.7).tail(x), law(1.7).sf(x), rtol=1e-12)


def test_noise_that_is_stated_and_never_drawn_is_a_fault(running):
    made = running("counts, basic")
    drawn = made.drawn(1)
    assert drawn.fault(ALPHA, made.stated) == ""
    more = [*made.stated, NoiseSpec("gaussian", 1.0, 9)]
    assert drawn.fault(ALPHA, more) == "noise of round 9 is never drawn"


def test_uniform_p_is_a_p_value_and_sees_a_scale():
    """Below x with probability at most x: 2,000 p-values at x = 0.05, false alarm 1e-9."""
    rng = np.random.default_rng(3)
    low = sum(uniform_p(rng.random(60)) < 0.05 for _ in range(2_000))
    assert low <= stats.binom.isf(1e-9, 2_000, 0.05)
    for factor in (0.7, 1.3):
        assert uniform_p(stats.norm.sf(factor * rng.standard_normal(400))) < 1e-6
    assert uniform_p(np.zeros(0)) == 1.0


def test_smallest_seen():
    assert smallest_seen({3.0: True, 2.0: True, 1.5: True, 1.25: False, 1.1: True}) == 1.5
    assert smallest_seen({2.0: False, 1.5: True}) is None


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_trip_draws_under_the_key_of_another(name, running, monkeypatch):
    """Labels of noise, of items and of the hub. (A sample may serve the trips of one round.)"""
    made, used, derive = running(name), {}, RunKey.derive

    class Counted(Forwarding):
        trip = 0

        def weigh(self, trip, block, reply, keys):
            self.trip = trip
            return super().weigh(trip, block, reply, keys)

    program = Counted(made.program)

    def watched(key, label):
        if label.startswith(("noise/", "hub/")):
            used.setdefault(label, set()).add(program.trip)
        return derive(key, label)

    keys = Keys(RunKey.insecure_fixed(name))
    blocks = made.blocks(keys)
    monkeypatch.setattr(RunKey, "derive", watched)
    run_trips(program, blocks, keys)
    assert len(used) >= len(made.stated)
    assert {label: trips for label, trips in used.items() if len(trips) > 1} == {}
