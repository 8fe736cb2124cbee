"""From ledgers and typed limits to amounts of an account."""

from __future__ import annotations

from dpbeam.accounting.across import zcdp_cost
from dpbeam.accounting.events import UnknownEventError
from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.zcdp import zcdp_rho
from dpbeam.budget.account import Charge, Limit
from dpbeam.budget.amounts import exact, room
from dpbeam.budget.periods import ALWAYS, PERIODS, Days
from dpbeam.errors import BudgetError, SettingError


def make_limit(
    composition: str, epsilon: float, delta: float, *, period: str = "", days: Days = ALWAYS
) -> Limit:
    """A limit with the amounts that are compared.

    Raises:
      InputError: naming the flag of the first wrong value.
    """
    if not 0 < epsilon < float("inf"):
        raise SettingError(f"--epsilon must be a finite number above 0, got {epsilon}")
    if not 0 <= delta < 1:
        raise SettingError(f"--delta must be at least 0 and below 1, got {delta}")
    if period and period not in PERIODS:
        raise SettingError(f"--period must be one of {', '.join(PERIODS)}, got '{period}'")
    amounts = {"epsilon": exact(epsilon), "delta": exact(delta)}
    if composition == "zcdp":
        if delta == 0:
            raise SettingError("--delta must be above 0 in an account of zcdp composition")
        # Both totals are fixed here, for good: the filter is valid for no moving target.
        amounts = {"rho": exact(room(zcdp_rho(epsilon, delta / 2))), "delta": exact(delta) / 2}
    return Limit(epsilon, delta, amounts, period=period, days=days)


def charge_of(ledger: Ledger, composition: str, *, days: Days | None = None) -> Charge:
    """What a run with this ledger costs an account.

    Raises:
      InputError: its events do not compose as the account does.
    """
    rho = outside = None
    if composition == "zcdp":
        try:
            rho, outside = zcdp_cost(ledger.events, ledger.epsilon)
        except UnknownEventError:
            raise BudgetError(
                f"--dataset: the account composes by zCDP, and the events of method {ledger.method} have none"
            ) from None
    return Charge(ledger.epsilon, ledger.delta, rho, outside, ledger.neighbouring_relation, days=days)
