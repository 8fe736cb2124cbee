"""Which account a run is charged to: its flags, checked before the account is opened."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpbeam.errors import SettingError, SetupError
from dpbeam.jobs.console import warn
from dpbeam.jobs.options import AccountOptions, JobOptions
from dpbeam.jobs.uncharged import Uncharged

if TYPE_CHECKING:  # the one imports SQLAlchemy, the other Beam, which `dpbeam budget` does without
    from dpbeam.budget.store import BudgetStore
    from dpbeam.io.output import OutputTarget

_NEEDED = {
    "dataset": "whose account is charged",
    "release_id": "a name of this release that a retry repeats, so that it is paid once",
}


def open_charge(command: str, options: AccountOptions, target: OutputTarget) -> Uncharged:
    """The account that the flags name, looked at before anything else of the run.

    Raises:
      InputError: flags that do not go together, no such account, or a release id that stands for something else.
      BudgetStoreError: the store cannot be reached.
      NothingToDo: the release is out already.
    """
    if "budget" not in options.said:
        for name in AccountOptions.names()[len(JobOptions.names()) :]:
            if options.said.get(name):
                raise SettingError(f"--{name} is of an account of budget: give --budget too, or drop it")
        return Uncharged()
    for name, why in _NEEDED.items():
        if name not in options.said:
            raise SettingError(f"--budget needs --{name}: {why}")
    with needing_store():
        from dpbeam.jobs.charged import RunCharge
    charge = RunCharge(command, options, target)
    warn_of_twins(charge.store, options.dataset)
    if options.insecure_test_key is not None and not options.charge_test_key:
        return Uncharged(
            f"not charged to dataset '{options.dataset}': the output of --insecure_test_key is NOT PRIVATE and no "
            "release; --charge_test_key charges it"
        )
    charge.settle(look_only=options.dry_run)
    return charge


def warn_of_twins(store: BudgetStore, dataset: str) -> None:
    """Name the accounts that people take for this one: a new one of that kind is refused, older ones may be there."""
    for twin in store.twins(dataset):
        warn(
            f"--dataset: there is an account of dataset '{twin}' beside that of '{dataset}', and their names differ in "
            "case or width of letters alone: see to it that all runs on one dataset are charged to one of them"
        )


@contextlib.contextmanager
def needing_store() -> Iterator[None]:
    """Imports of what stores of accounts need.

    Raises:
      InputError: it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise SetupError(f"--budget needs {error.name}; install dpbeam[budget]") from None
