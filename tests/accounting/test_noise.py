"""A new kind of noise that says little is refused wherever more is needed: nothing is assumed of it."""

import dataclasses
import inspect

import numpy as np
import pytest

from dpbeam.accounting.accountant import account
from dpbeam.accounting.events import (
    ComposedEvent,
    CumulativeThresholdEvent,
    Event,
    InconsistentEventError,
    PureEvent,
    ThresholdEvent,
    UnknownEventError,
    noise_event,
)
from dpbeam.accounting.geometric import CountNoise
from dpbeam.accounting.noise import (
    L2,
    LINF,
    NOISE_KINDS,
    FilteredNoise,
    Kind,
    NoiseMismatchError,
    NoiseSpec,
    NotStatedError,
    StatedNoise,
)
from dpbeam.accounting.threshold import NovelWeight, novel_threshold
from dpbeam.engine.in_process import run_in_process
from dpbeam.engine.program import Exact, Keys
from dpbeam.kernels.grid import UNITS
from dpbeam.selectors.uniform.program import UniformProgram
from tests.support.instances import batches
from tests.support.running import key

FP = np.arange(8, dtype=np.uint64).reshape(-1, 2)
# What has a safe answer: not Gaussian, and no filter.
_SAFE = {"gaussian_sigma": None, "filtered": False}


@dataclasses.dataclass(frozen=True)
class Mute(StatedNoise):
    """Says nothing but its name and its round."""

    round: int = 1
    kind = "mute"


ASKED = sorted(name for name in dir(StatedNoise) if not name.startswith("_"))


@pytest.mark.parametrize("name", ASKED)
def test_what_noise_does_not_say_is_refused_by_name(name):
    noise, asked = Mute(), inspect.getattr_static(StatedNoise, name)
    if name in _SAFE:
        assert getattr(noise, name) == _SAFE[name]
        return
    with pytest.raises(NotStatedError, match="noise of kind 'mute' does not say"):
        answer = getattr(noise, name)
        answer(*[1] * (len(inspect.signature(asked).parameters) - 1))


@pytest.mark.parametrize(
    "noise", [NoiseSpec("gaussian", 1.0), CountNoise(1.0, 1e-5), FilteredNoise(1.0, 1.0)]
)
def test_all_kinds_have_one_type(noise):
    assert isinstance(noise, StatedNoise)
    assert (noise.round, noise.bits, noise.filtered) == (1, False, isinstance(noise, FilteredNoise))


@pytest.fixture
def uniform(monkeypatch):
    """Uniform noise on [-1, 1], for contributions bounded in l_inf, as a row of the table of kinds and nothing more."""
    row = Kind(LINF, 0.6, 1.0, lambda x: np.clip((1 - x) / 2, 0, 1), lambda p: 1 - 2 * p)
    monkeypatch.setitem(NOISE_KINDS, "uniform", row)
    return NoiseSpec("uniform", 2.0)


class TestNewRow:
    """Each was open before: a bare KeyError, a scale that is taken for exact, a novel weight of 1/sqrt(t)."""

    def test_no_event_is_made_up(self, uniform):
        with pytest.raises(
            UnknownEventError, match="no event says what uniform noise of scale 2 in round 1 costs"
        ):
            noise_event(uniform)

    def test_no_law_is_made_up(self, uniform, monkeypatch):
        monkeypatch.setitem(
            NOISE_KINDS, "uniform", dataclasses.replace(NOISE_KINDS["uniform"], equivalent=lambda s: s)
        )
        with pytest.raises(NotStatedError, match="no exact law is known for noise of kind 'uniform'"):
            Keys(key("uniform")).noise(uniform, FP)

    def test_its_scale_is_not_taken_for_exact(self, uniform):
        with pytest.raises(NotStatedError, match="does not say which integer noise stands for it"):
            uniform.drawn_scale(UNITS)
        with pytest.raises(NotStatedError, match="does not say which integer noise stands for it"):
            Keys(key("uniform")).noise(uniform, FP)

    def test_what_it_lets_a_user_put_on_novel_items_is_not_made_up(self, uniform):
        """1/sqrt(t) would be .1 for a hundred items, of which each can have 1."""
        with pytest.raises(NotStatedError, match="what a user can put on items that nobody else holds"):
            NovelWeight.of(uniform)

        @dataclasses.dataclass(frozen=True)
        class UniformEvent(PureEvent):
            noise = uniform

        novel = NovelWeight(1.0, 0.5)
        threshold = ThresholdEvent(novel_threshold(uniform, 1e-3, 100, novel), 1e-3, 1.0, 100)
        with pytest.raises(
            InconsistentEventError, match="what a user can put on items that nobody else holds"
        ):
            threshold.check({1: UniformEvent(1.0).noise})

    def test_it_is_not_taken_for_gaussian(self, uniform):
        event = CumulativeThresholdEvent((9.0,), (1.0,), 1e-3, 1.0, 4)
        with pytest.raises(InconsistentEventError, match="need Gaussian noise"):
            event.check({1: uniform})

    def test_an_event_without_a_cost_composes_nowhere(self, uniform):
        class Unregistered(Event):
            noise = uniform

        with pytest.raises(
            UnknownEventError, match="a zcdp composition cannot hold an event of type Unregistered"
        ):
            account(ComposedEvent("zcdp", (Unregistered(),)), 1.0)


class Shares(UniformProgram):
    """One round of count noise on whatever `_sums` say."""

    def __init__(self, sums: Exact):
        super().__init__(noises=[NoiseSpec("laplace", 1.0)], thresholds=[1.0], max_items=2)
        self._noises, self._sums = (CountNoise(1.0, 1e-3),), sums

    def exact(self, trip, shard):
        return self._sums


@pytest.mark.parametrize(
    ("sums", "refused"),
    [
        (Exact(np.array([UNITS])), False),
        (Exact(np.array([UNITS]), np.array([0]), 4), False),
        (Exact(np.array([UNITS // 2])), True),
        (Exact(np.array([UNITS]), np.array([3]), 4), True),
    ],
)
def test_count_noise_protects_whole_counts_alone(sums, refused):
    """One user that moves two items by half a count each moves l1 by 1, and is not what the law is proved for."""
    pairs = batches([("u", "a"), ("v", "a")])
    if not refused:
        run_in_process(Shares(sums), pairs, key("counts"))
        return
    with pytest.raises(NoiseMismatchError, match="protects multiples of 1/1 alone"):
        run_in_process(Shares(sums), pairs, key("counts"))


def test_kinds_know_their_norm():
    assert NOISE_KINDS["gaussian"].norm == L2
    assert NoiseSpec("laplace", 1.0).novel_power == 1.0
