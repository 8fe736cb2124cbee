"""The account of a release that a pipeline makes: reserved by its first stage, settled by its last.

Order of a run, and what a job that comes after it, with the same release id, finds:

    reserve in the account      nothing is out: the retry takes the reservation over
    draw the key, run           nothing is out; where the folder is there, the retry goes on with it and draws the same
    publish in the account      some may be out: the retry goes on with the folder, or is refused where that is gone
    let the result leave        as before: who takes the result may have shown it
    commit in the account       all is out: the retry is refused, and nothing is drawn again

The account names the run's folder, so whoever comes with the release id has its key, and the engine draws with a key
for one set of data alone (`dpbeam.engine.binding`). Nobody can tell whether a pipeline on other machines still lives.
So nobody waits: of two jobs at once in one folder both give the same result, and one that has lost its reservation
(`dpbeam budget resolve`, or a job with a folder of its own) finds that out before anything of it leaves.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from dpbeam.accounting.ledger import Ledger
from dpbeam.budget.account import (
    COMMITTED,
    PIPELINE_FOLDER,
    PUBLISHING,
    Account,
    Draft,
    Release,
    ReservationLostError,
)
from dpbeam.budget.charges import charge_of
from dpbeam.budget.periods import Days
from dpbeam.engine.beam.store import RunStore
from dpbeam.errors import BudgetError, InputError, SettingError, SetupError
from dpbeam.storage.processes import PIPELINE

if TYPE_CHECKING:  # SQLAlchemy, which only runs with an account need
    from dpbeam.budget.store import Actor, BudgetStore


@contextlib.contextmanager
def _in_python() -> Iterator[None]:
    """Errors of accounts name arguments, not flags; SQLAlchemy may be missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise SetupError(f"budget needs {error.name} on the workers; install dpbeam[budget]") from None
    except InputError as error:
        raise type(error)(str(error).removeprefix("--")) from None


@dataclass(frozen=True)
class PipelineCharge:
    """One release and its account; goes with the stages of a pipeline.

    Attributes:
      url: of the store; workers open it.
      dataset, release_id: as of the command line.
      days: of the data, or None.
      command: of the family.
      ledger: what the run costs.
    """

    url: str
    dataset: str
    release_id: str
    days: Days | None
    command: str
    ledger: Ledger

    def check(self) -> None:
        """Refuse names that no account or release can have, before anything runs.

        Raises:
          InputError: naming the argument.
        """
        with _in_python():
            from dpbeam.budget.store import check_name, checked_url

            if checked_url(self.url).password is not None:
                raise SettingError(
                    "budget: the URL holds a password, and would lie with it in the job: leave it out, and give it to "
                    "the workers in PGPASSWORD or ~/.pgpass"
                )
            check_name("dataset", self.dataset)
            check_name("release_id", self.release_id)

    @property
    def _digest(self) -> str:
        """Of what is released: a release id stands for one."""
        anywhere = replace(self.ledger, versions={}, code_revision="")
        text = f"{self.command} {anywhere.to_json()}"
        return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()

    def _store(self) -> BudgetStore:
        from dpbeam.budget.store import BudgetStore

        return BudgetStore(self.url)

    @property
    def _by(self) -> Actor:
        from dpbeam.budget.store import Actor

        return Actor.this(f"{self.command} in a pipeline")

    def folder(self) -> str | None:
        """The folder of an earlier job with the same release id, where its key is there. Raises as `reserve`."""
        with _in_python():
            return self._folder(self._store().account(self.dataset))

    def _folder(self, account: Account) -> str | None:
        release = account.releases.get(self.release_id)
        if release is None or not release.counts:
            return None
        account.check_same(release, self._digest)
        path = release.holder.get(PIPELINE_FOLDER)
        going_on = path is not None and RunStore(str(path)).has_key
        if release.state == COMMITTED:
            raise BudgetError(
                f"release_id: '{self.release_id}' of dataset '{self.dataset}' is out already, since {release.last.at}; "
                "nothing is charged and nothing is drawn again"
            )
        if release.state == PUBLISHING and not going_on:
            raise BudgetError(
                f"release_id: a job let a part of '{self.release_id}' leave and died, and its folder '{path}' is gone: "
                "another job would draw other noise for what may have been seen; its budget stays spent, take another "
                "release id"
            )
        return str(path) if going_on else None

    def reserve(self, path: str) -> str:
        """Take the budget, for a run in this folder; the folder that the run is to work in.

        It is that of an earlier job with the same release id, where its key is there.

        Raises:
          OverLimitError, InputError: the run may not start, or the release is out.
          BudgetStoreError: the store does not answer.
        """

        def decide(account: Account) -> Draft | None:
            if self._folder(account) is not None:
                return None
            charge = charge_of(self.ledger, account.composition, days=self.days)
            holder = {**asdict(PIPELINE), PIPELINE_FOLDER: path}
            return account.reserve(
                self.release_id, self._digest, charge, holder, self.ledger.to_json(), lambda _: False
            )

        with _in_python():
            account = self._store().change(self.dataset, decide, self._by)
        return str(account.releases[self.release_id].holder[PIPELINE_FOLDER])

    def _ours(self, account: Account, path: str) -> Release:
        """The release, as that of a run in this folder. Raises ReservationLostError."""
        release = account.releases.get(self.release_id)
        if release is None or not release.counts or release.holder.get(PIPELINE_FOLDER) != path:
            raise ReservationLostError(
                f"the reservation of release '{self.release_id}' was taken over or given back while the run was under "
                "way; nothing of it leaves"
            )
        return release

    def publish(self, path: str) -> None:
        """Say that from here on something may be seen.

        Raises:
          ReservationLostError: the reservation is another job's.
          BudgetStoreError: the store does not answer.
        """

        def decide(account: Account) -> Draft | None:
            release = self._ours(account, path)
            if release.state in (PUBLISHING, COMMITTED):
                return None
            holder = {PIPELINE_FOLDER: path}
            return account.publish(self.release_id, release.attempt, holder, self.ledger.to_json())

        with _in_python():
            self._store().change(self.dataset, decide, self._by)

    def commit(self, path: str) -> None:
        """Say that all has left. Raises as `publish`."""

        def decide(account: Account) -> Draft | None:
            return account.commit(self.release_id, self._ours(account, path).attempt)

        with _in_python():
            self._store().change(self.dataset, decide, self._by)

    def mark(self) -> dict[str, Any]:
        """Of the ledger: which entry of which account the release belongs to."""
        with _in_python():
            store = self._store()
            release = store.account(self.dataset).releases[self.release_id]
        return {
            "store": store.id,
            "dataset": self.dataset,
            "release_id": self.release_id,
            "entry": release.attempt,
        }
