"""The physical limit against its recursion in 60 digits."""

import mpmath as mp
import numpy as np
import pytest

from dpbeam.accounting.limits import half_limit_users, release_probability_limit, users_needed_limit


def recursion(epsilon, delta, users):
    """p_0..p_users from the definition."""
    with mp.workdps(60):
        grow, delta = mp.exp(mp.mpf(epsilon)), mp.mpf(delta)
        p = [mp.mpf(0)]
        for _ in range(users):
            p.append(min(mp.mpf(1), grow * p[-1] + delta, 1 - (1 - p[-1] - delta) / grow))
        return p


@pytest.mark.parametrize("delta", [0.9, 0.3, 1e-2, 1e-5, 1e-30])
def test_closed_form_is_the_recursion(delta):
    for epsilon in (1e-4, 0.05, 0.5, 1.0, 3.0, 20.0, 100.0, 650.0, 1000.0):
        want = recursion(epsilon, delta, 300)
        got = release_probability_limit(np.arange(301), epsilon, delta)
        for p, q in zip(got, want):
            assert abs(p - q) <= 1e-12 * max(min(q, 1 - q), mp.mpf(10) ** -3 * q)


def test_huge_numbers_of_users():
    p = release_probability_limit(np.array([0, 10**9, 10**18]), 1e-3, 1e-12)
    assert p.tolist() == [0.0, 1.0, 1.0]
    assert release_probability_limit(1, 1.0, 1e-7) == pytest.approx(1e-7, rel=1e-14)


def test_monotone_in_users():
    p = release_probability_limit(np.arange(200), 0.3, 1e-8)
    assert np.all(np.diff(p) >= 0) and p[-1] == 1.0


def test_half_limit_of_the_specification():
    assert half_limit_users(1.0, 1e-5) == pytest.approx(11.36, abs=0.005)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-12])
def test_half_limit_is_where_the_limit_passes_one_half(epsilon, delta):
    below = int(np.floor(half_limit_users(epsilon, delta)))
    assert release_probability_limit(below, epsilon, delta) <= 0.5
    assert users_needed_limit(0.5, epsilon, delta) in (below, below + 1)


def test_half_limit_without_overflow():
    with mp.workdps(60):
        for epsilon, delta in [(29.9, 1e-3), (30.1, 0.4), (1000.0, 1e-30), (1e-6, 1e-300)]:
            e = mp.mpf(epsilon)
            want = mp.log1p(mp.expm1(e) / (2 * mp.mpf(delta))) / e
            assert abs(half_limit_users(epsilon, delta) / want - 1) < 1e-12


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 5.0])
@pytest.mark.parametrize("probability", [0.05, 0.5, 0.95, 1.0])
def test_users_needed_is_the_smallest(epsilon, probability):
    needed = users_needed_limit(probability, epsilon, 1e-6)
    p = recursion(epsilon, 1e-6, needed)
    assert p[needed] >= probability > p[needed - 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: release_probability_limit(-1, 1, 1e-5), "n_users must hold whole numbers"),
        (lambda: release_probability_limit([0.5], 1, 1e-5), "n_users must hold whole numbers"),
        (lambda: release_probability_limit(np.nan, 1, 1e-5), "n_users must hold whole numbers"),
        (lambda: release_probability_limit(1, 0, 1e-5), "epsilon must be finite and positive"),
        (lambda: release_probability_limit(1, 1, 0), "delta must lie strictly"),
        (lambda: half_limit_users(1, 1), "delta must lie strictly"),
        (lambda: users_needed_limit(0, 1, 1e-5), "probability must lie in"),
        (lambda: users_needed_limit(1.1, 1, 1e-5), "probability must lie in"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
