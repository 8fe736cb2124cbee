"""Noise under a filter: scales, the event, and what a hub may draw."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.accounting.accountant import account
from dpbeam.accounting.events import ComposedEvent, GaussianFilterEvent, event_from_dict, event_to_dict
from dpbeam.accounting.gaussian import gaussian_delta, gaussian_sigma
from dpbeam.accounting.noise import FilteredNoise, NoiseMismatchError, NoiseSpec, check_same_noise
from dpbeam.accounting.zcdp import BudgetExceededError
from dpbeam.engine.program import Keys
from tests.support.running import key

FP = np.array([[1, 0], [2, 0]], np.uint64)
NONE = np.zeros(len(FP), np.int64)


@settings(max_examples=80)
@given(
    st.floats(1e-3, 1e6),
    st.floats(1e-3, 1e3),
    st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=20),
)
def test_shares_that_add_up_to_one_never_cost_more_than_the_filter(sigma, sensitivity, wanted):
    """In exact arithmetic: sum (sensitivity / scale)^2 <= 1 / sigma^2."""
    noise = FilteredNoise(sigma, sensitivity)
    total, cost = Fraction(0), Fraction(0)
    for share in wanted:
        if total + Fraction(share) > 1:
            continue
        total += Fraction(share)
        cost += (Fraction(sensitivity) / Fraction(noise.scale_of(share))) ** 2
    assert cost <= 1 / Fraction(sigma) ** 2
    assert cost >= total * (1 - Fraction(1, 10**12)) / Fraction(sigma) ** 2


@pytest.mark.parametrize("share", [0.0, -0.1, 1.0000001, float("nan")])
def test_a_share_is_above_zero_and_at_most_one(share):
    with pytest.raises(ValueError, match="share must lie in"):
        FilteredNoise(1.0, 1.0).scale_of(share)


def test_the_event_costs_what_one_gaussian_mechanism_costs():
    sigma = gaussian_sigma(1.0, 1e-6)
    event = ComposedEvent("gaussian", (GaussianFilterEvent(sigma, 3.5),), epsilon=1.0)
    guarantee = account(event)
    assert guarantee.delta <= 1e-6 and guarantee.delta == pytest.approx(gaussian_delta(1.0, sigma), rel=1e-9)
    assert (
        account(ComposedEvent("gaussian", (GaussianFilterEvent(0.99 * sigma, 3.5),), epsilon=1.0)).delta
        > 1e-6
    )
    assert GaussianFilterEvent(sigma, 3.5).zcdp_rho() == pytest.approx(0.5 / sigma**2)


def test_the_event_is_written_and_read():
    event = GaussianFilterEvent(4.2, 3.0, "demand")
    assert event_from_dict(event_to_dict(event)) == event
    assert event.noise == FilteredNoise(4.2, 3.0)


def test_other_noise_than_stated_is_refused():
    stated = [FilteredNoise(4.0, 3.0)]
    check_same_noise(stated, [FilteredNoise(4.0, 3.0)])
    for other in (FilteredNoise(3.9, 3.0), FilteredNoise(4.0, 2.9), NoiseSpec("gaussian", 4.0)):
        with pytest.raises(NoiseMismatchError):
            check_same_noise(stated, [other])


def draw(spent=(), trip=3):
    return Keys(key("filter")).hub(FilteredNoise(2.0, 3.0), trip, spent)


def test_a_draw_is_noise_of_the_share_s_scale():
    noise = draw().noisy_within(0.25, NONE, FP)
    spec = NoiseSpec("gaussian", FilteredNoise(2.0, 3.0).scale_of(0.25), 4)
    assert (noise == Keys(key("filter")).noise(spec, FP, "hub")).all()
    assert spec.scale == pytest.approx(12.0)


def test_trips_draw_apart():
    assert (draw(trip=1).noisy_within(0.25, NONE, FP) != draw(trip=2).noisy_within(0.25, NONE, FP)).all()


def test_what_would_overrun_the_filter_is_not_drawn():
    hub_draw = draw(spent=(0.5, 0.25))
    with pytest.raises(BudgetExceededError):
        hub_draw.noisy_within(0.2500001, NONE, FP)
    assert hub_draw.spent == (0.5, 0.25)
    hub_draw.noisy_within(0.25, NONE, FP)
    assert hub_draw.spent == (0.5, 0.25, 0.25)


def test_a_trip_draws_once():
    hub_draw = draw()
    hub_draw.noisy_within(0.1, NONE, FP)
    with pytest.raises(ValueError, match="this trip has drawn"):
        hub_draw.noisy_within(0.1, NONE, FP)


def test_a_filter_and_a_scale_are_not_mixed_up():
    with pytest.raises(ValueError, match="no hub noise of a scale"):
        draw().noisy(NONE, FP)
    with pytest.raises(ValueError, match="no noise under a filter"):
        Keys(key("filter")).hub(NoiseSpec("gaussian", 2.0)).noisy_within(0.1, NONE, FP)
