"""zCDP conversions against high precision and dp-accounting; the filter against exact sums."""

import functools
import math
import operator
from fractions import Fraction

import dp_accounting
import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.accounting.zcdp import BudgetExceededError, ZCDPFilter, zcdp_delta, zcdp_rho

GRID = [(epsilon, delta) for epsilon in (1e-4, 0.1, 1.0, 10.0, 100.0) for delta in (0.1, 1e-5, 1e-30)]


def exact_log_delta(rho, epsilon):
    """ln of Proposition 12 of Canonne, Kamath and Steinke 2020, minimised by scans of growing finesse."""
    with mp.workdps(50):
        rho, epsilon = mp.mpf(rho), mp.mpf(epsilon)

        def at(alpha_minus_1):
            alpha = 1 + alpha_minus_1
            bound = alpha_minus_1 * (alpha * rho - epsilon) - mp.log(alpha_minus_1)
            return bound + alpha * mp.log(1 - 1 / alpha)

        centre, width = mp.mpf(5), mp.mpf(20)
        for _ in range(12):
            points = [centre + width * k / 20 for k in range(-20, 21)]
            centre = min(points, key=lambda u: at(mp.exp(u)))
            width /= 5
        return at(mp.exp(centre))


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_rho_is_the_largest_that_is_safe(epsilon, delta):
    rho = zcdp_rho(epsilon, delta)
    log_target = mp.log(mp.mpf(delta))
    assert exact_log_delta(rho, epsilon) <= log_target
    assert exact_log_delta(rho * (1 + 1e-7), epsilon) > log_target
    assert zcdp_delta(rho, epsilon) <= delta
    assert zcdp_delta(rho, epsilon) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("rho", [1e-10, 1e-4, 0.03, 1.0, 50.0])
@pytest.mark.parametrize("closed_form", [0.3, 1e-5, 1e-30])
def test_delta_is_safe_tight_and_never_worse_than_the_closed_form(rho, closed_form):
    epsilon = rho + 2 * math.sqrt(rho * math.log(1 / closed_form))
    delta = zcdp_delta(rho, epsilon)
    assert delta <= closed_form * (1 + 1e-9)
    assert mp.log(mp.mpf(delta * (1 - 1e-7))) <= exact_log_delta(rho, epsilon) <= mp.log(mp.mpf(delta))


def test_conversion_gains_on_the_closed_form():
    assert zcdp_delta(0.03, 0.9 * (0.03 + 2 * math.sqrt(0.03 * math.log(1e5)))) < 1e-5


def test_agrees_with_dp_accounting():
    orders = [1 + step / 20 for step in range(1, 2000)]
    for rho in (0.003, 0.03, 0.5):
        accountant = dp_accounting.rdp.RdpAccountant(orders=orders)
        accountant.compose(dp_accounting.ZCDpEvent(rho=rho))
        oracle = accountant.get_epsilon(1e-5)
        assert zcdp_delta(rho, oracle) <= 1e-5 <= zcdp_delta(rho, oracle * (1 - 1e-4))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.floats(-10, 2).map(lambda e: 10.0**e), st.floats(-3, 2).map(lambda e: 10.0**e))
def test_delta_is_monotone(rho, epsilon):
    delta = zcdp_delta(rho, epsilon)
    assert 0 <= delta <= 1
    assert zcdp_delta(rho, epsilon * 1.01) <= delta * (1 + 1e-9)
    assert zcdp_delta(rho * 1.01, epsilon) >= delta * (1 - 1e-9)


def test_extremes():
    assert zcdp_delta(1e-300, 1.0) == 0.0
    assert zcdp_delta(1e6, 1.0) == 1.0
    assert zcdp_delta(1e-12, 0.0) < 0.5
    assert 0 < zcdp_rho(1e-4, 1e-300) < 1e-11


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: zcdp_delta(0, 1), "rho must be finite and positive"),
        (lambda: zcdp_delta(1, math.nan), "epsilon must be finite and not negative"),
        (lambda: zcdp_rho(1, 0), "delta must lie strictly"),
        (lambda: zcdp_rho(0, 1e-5), "epsilon must be finite and positive"),
        (lambda: ZCDPFilter(math.inf), "rho_total must be finite and positive"),
        (lambda: ZCDPFilter(1.0).spend(0.0), "rho must be finite and positive"),
        (lambda: ZCDPFilter(1.0).spend(-1.0), "rho must be finite and positive"),
        (lambda: ZCDPFilter(1.0).spend(math.nan), "rho must be finite and positive"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_filter_stops_at_the_exact_total():
    """0.1 ten times is more than 1 exactly (0.1 is stored above 1/10), less than 1 in float addition."""
    assert functools.reduce(operator.add, [0.1] * 10) < 1.0  # sum() rounds less often from Python 3.12 on
    assert sum([Fraction(0.1)] * 10) > 1
    budget = ZCDPFilter(1.0)
    for _ in range(9):
        budget.spend(0.1)
    with pytest.raises(
        BudgetExceededError, match=r"spending rho 0\.1 would overrun the budget: 0\.1 is left"
    ):
        budget.spend(0.1)
    budget.spend(budget.remaining)
    assert budget.remaining <= 1e-16


def test_refused_spend_changes_nothing():
    budget = ZCDPFilter(0.5)
    budget.spend(0.25)
    with pytest.raises(BudgetExceededError):
        budget.spend(math.nextafter(0.25, 1))
    assert budget.remaining == 0.25
    budget.spend(0.25)
    assert budget.remaining == 0.0
    with pytest.raises(BudgetExceededError):
        budget.spend(5e-324)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(1e-3, 10), st.lists(st.floats(1e-6, 1), max_size=40))
def test_filter_never_overruns(total, spends):
    budget, accepted = ZCDPFilter(total), Fraction(0)
    for rho in spends:
        fits = accepted + Fraction(rho) <= Fraction(total)
        if fits:
            budget.spend(rho)
            accepted += Fraction(rho)
        else:
            with pytest.raises(BudgetExceededError):
                budget.spend(rho)
        assert Fraction(budget.remaining) <= Fraction(total) - accepted <= Fraction(total)
    if budget.remaining > 0:
        budget.spend(budget.remaining)
