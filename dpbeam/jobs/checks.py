"""What can be said of flags before numpy, scipy or Beam are imported: refusals at once, and warnings.

A budget that protects nobody is legal, so it is a warning: one line on stderr, also under --quiet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from dpbeam.accounting.budget import MAX_DELTA, Budget, computable, doubts
from dpbeam.errors import SettingError
from dpbeam.jobs.console import warn
from dpbeam.jobs.options import BudgetOptions, JobOptions


def check_budget(options: BudgetOptions, *, zero_delta: bool = False) -> None:
    """Refuse a wrong --epsilon, --delta or --users_at_least.

    Args:
      zero_delta: whether the job has a pure variant, so that delta may be 0.

    Raises:
      InputError: naming the flag.
    """
    delta = options.delta
    Budget(options.epsilon, MAX_DELTA if zero_delta and delta == 0 else delta)
    users = options.users_at_least
    if users is not None and users < 1:
        raise SettingError(f"--users_at_least must be at least 1, got {users}")


def within_arithmetic(options: BudgetOptions) -> contextlib.AbstractContextManager[None]:
    """As `computable`, of the budget among the flags."""
    return computable(options.epsilon, options.delta)


def check_test_key(options: JobOptions) -> None:
    """Refuse an --insecure_test_key that is no key.

    Raises:
      InputError: empty, or no hexadecimal digits.
    """
    text = options.insecure_test_key
    if text is None:
        return
    try:
        valid = len(bytes.fromhex(text)) > 0
    except ValueError:
        valid = False
    if not valid:
        raise SettingError(f"--insecure_test_key must be hexadecimal digits, got '{text}'")


def warn_of_budget(options: BudgetOptions, more: Iterable[str] = (), users: int | None = None) -> None:
    """Say what a budget is worth where it is worth little.

    Args:
      more: what else is in doubt, each line from the name of its flag on.
      users: how many there publicly are, where no flag says it.
    """
    known = options.users_at_least if users is None else users
    for doubt in (*doubts(options.epsilon, options.delta, known), *more):
        warn(f"--{doubt}")


def released_nothing(report: dict[str, Any]) -> str:
    """How many users an item would have needed, from the plan alone, and what else it may be.

    Args:
      report: of `dpbeam.selection.report.plan_report`.
    """
    row = report["users_needed"][0]
    return (
        f"0 items released: no item of what was read has passed; at this budget an item needs about "
        f"{row['users_0.5']} users ({row['items_per_user']} item each) to be released in half of all runs, and no "
        f"algorithm gets by with fewer than {report['limit_of_any_algorithm']['users_0.5']}; where items have more "
        "users, other columns were read than was meant, or rows were dropped"
    )
