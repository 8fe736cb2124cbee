"""`--budget URL --dataset NAME --release_id ID`: a run, its output and its account, which agree after any crash.

Order of a run, and what a process that comes after it finds:

    reserve in the account       nothing is out: a retry takes the reservation over, or it is given back
    run; stage output and ledger nothing is out: what is staged goes before a retry draws or anything is given back
    publish in the account       nothing is out, or some, or all: the staged files and the ledger tell, and a retry
    rename shards, then ledger   finishes what was begun, with the same noise
    commit in the account        all is out: a retry says so, or which file is not what was published

A crash may be a power cut. What is staged is on the disk before `publish` is in the account, and what was renamed is
before `commit` is (`OutputTarget.stage`, `finish`). A file that is not what its ledger says counts as not there.

The ledger beside the output carries the number of the attempt in the account (`parameters.account`), so an output is
never taken for that of another attempt. Only the latest attempt may publish: one that was believed dead and is not
finds its reservation gone before anything of it is out. What an attempt has staged is a release, for whoever can read
it, so its staging folder stands in the account from the reservation on, and only one release is ever left behind.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dpbeam.accounting.ledger import Ledger
from dpbeam.budget.account import (
    COMMITTED,
    PIPELINE_FOLDER,
    PUBLISHING,
    RETURNED,
    Account,
    Charge,
    Draft,
    Release,
    StillRunningError,
    holder_text,
)
from dpbeam.budget.amounts import spell
from dpbeam.budget.charges import charge_of
from dpbeam.budget.periods import parse_days
from dpbeam.budget.store import Actor, BudgetStore, BudgetStoreError, check_name
from dpbeam.engine.beam import owner
from dpbeam.errors import BudgetError, InputError, StoreError
from dpbeam.io.output import OutputTarget, damaged, holds_output, read_ledger
from dpbeam.io.paths import absolute
from dpbeam.jobs.console import NothingToDo, tell, warn
from dpbeam.jobs.identity import settings_digest
from dpbeam.jobs.options import AccountOptions
from dpbeam.jobs.uncharged import Uncharged
from dpbeam.storage import FileSystems
from dpbeam.storage.processes import Owner

# Attempts of this very process that have not come to their end.
_GOING: set[str] = set()


class RunCharge(Uncharged):
    """The account of one run.

    Args:
      command: subcommand.
      options: flags of the run.
      target: its output.
    """

    pays = True

    def __init__(self, command: str, options: AccountOptions, target: OutputTarget):
        super().__init__()
        self._dataset, self._id = options.dataset, options.release_id
        check_name("--dataset", self._dataset)
        check_name("--release_id", self._id)
        self._days = (
            None if options.budget_period is None else parse_days(options.budget_period, "--budget_period")
        )
        self._say = options.say
        self._by = Actor.this(command)
        self._digest = settings_digest(command, options, absolute(target.path))
        self.store = BudgetStore(options.budget)
        self._account = self.store.account(self._dataset)
        self._target, self._run = target, uuid.uuid4().hex
        self._attempt = 0
        self._published = False

    @property
    def _holder(self) -> dict[str, Any]:
        """This attempt, as the account names it."""
        return {**asdict(Owner.this_process()), "run": self._run, "staging": self._target.staging}

    def settle(self, *, look_only: bool = False) -> None:
        """Conclude a release that is out, or half out.

        Args:
          look_only: change nothing.

        Raises:
          NothingToDo: it is out.
          StillRunningError: it is being published.
          InputError: the release id stands for something else, what was begun cannot be finished, or what is out is
            damaged.
        """
        release = self._account.releases.get(self._id)
        if release is None or release.state == RETURNED:
            return
        self._account.check_same(release, self._digest)
        if release.state == PUBLISHING:
            if look_only:
                tell(
                    f"release '{self._id}' was begun by {holder_text(release)}: a run finishes it and pays nothing"
                )
                raise NothingToDo
            recover(self.store, self._dataset, release, self._by)
            release = self.store.account(self._dataset).releases[self._id]
        if release.state == COMMITTED:
            check_undamaged(self.store, self._dataset, release)
            self._say(
                f"release '{self._id}' of dataset '{self._dataset}' is out already, since {release.last.at}; nothing "
                "is charged and nothing is drawn again"
            )
            raise NothingToDo(_figures(release.charge, self._account))

    def reserve(self, ledger: Ledger) -> None:
        """Take the budget, or take over what an attempt that died has left; what it staged is removed.

        Raises: see `open_charge`; OverLimitError where too little is left; InputError where staged output stays.
        """
        account = self.store.change(self._dataset, lambda account: self._reserved(account, ledger), self._by)
        release = account.releases[self._id]
        if release.holder != self._holder:  # out since it was looked at
            self._account = account
            self.settle()
        _GOING.add(self._run)
        self._attempt = release.attempt
        again = (
            "taken over; nothing is charged again" if release.attempt != release.first.number else "reserved"
        )
        amounts = spell(release.charge.amounts(account.composition))
        self.charged = _figures(release.charge, account)
        self._say(f"account of dataset '{self._dataset}': {amounts} {again}")
        for folder in staged_by(account, self._id):
            if owner.remove(folder):
                raise StoreError(
                    f"--release_id: '{folder}' holds what an earlier attempt of '{self._id}' has staged, and cannot be "
                    "removed: a second release would stand beside it; remove it, and give the command again"
                )

    def _cost(self, account: Account, ledger: Ledger) -> Charge:
        return charge_of(ledger, account.composition, days=self._days)

    def _reserved(self, account: Account, ledger: Ledger) -> Draft | None:
        cost = self._cost(account, ledger)
        return account.reserve(self._id, self._digest, cost, self._holder, ledger.to_json(), lives)

    def preview(self, ledger: Ledger) -> str:
        """What the run would be charged, and what would be left.

        Raises: see `reserve`.
        """
        account, who = self._account, f"account of dataset '{self._dataset}'"
        draft = self._reserved(account, ledger)
        if draft is None or draft.kind == "takeover":
            return f"{who}: reserved by {holder_text(account.releases[self._id])}; a run pays nothing more"
        cost = self._cost(account, ledger)
        amounts = cost.amounts(account.composition)
        left = [
            f"{spell({name: amount - amounts[name] for name, amount in standing.left.items()})}{standing}"
            for standing in account.touched(cost)
        ]
        return f"{who}: {spell(amounts)} would be charged, which leaves {'; '.join(left)}"

    def publish(self, target: OutputTarget, ledger: Ledger) -> list[str]:
        """Put staged output in place, and tell the account before and after.

        Raises:
          ReservationLostError: another attempt has the reservation.
        """
        target.stage(ledger.stating(account=self._mark(self._attempt)))
        output = {"format": target.format, "overwrite": target.overwrite, "extras": list(target.extras)}
        output |= {name: absolute(getattr(target, name)) for name in ("prefix", "staging")}
        output |= {"one_file": True} if target.one_file else {}
        # If the answer is lost the entry may still be there; then nothing of the staged output may be removed.
        self._published = True
        try:
            self.store.change(
                self._dataset,
                lambda account: account.publish(self._id, self._attempt, output, ledger.to_json()),
                self._by,
            )
        except Exception as error:
            self._published = isinstance(error, BudgetStoreError) and self._may_publish()
            raise
        paths = target.finish()
        self._commit()
        return paths

    def _may_publish(self) -> bool:
        """Whether the account says, or cannot deny, that this attempt publishes."""
        try:
            return self.store.account(self._dataset).releases[self._id].state == PUBLISHING
        except (BudgetStoreError, InputError):
            return True

    def _mark(self, attempt: int) -> dict[str, Any]:
        return _mark(self.store, self._dataset, self._id, attempt)

    def _commit(self) -> None:
        """The output is out, so trouble is a warning."""
        try:
            self.store.change(
                self._dataset, lambda account: account.commit(self._id, self._attempt), self._by
            )
        except (RuntimeError, InputError) as error:
            warn(
                f"the output is complete, and counts as spent, but its account could not be told: {error}; dpbeam "
                "budget resolve tells it"
            )
        _GOING.discard(self._run)

    def failed(self, target: OutputTarget, *, kept: bool) -> None:
        """Give the reservation back where nothing is out and nothing can go on."""
        _GOING.discard(self._run)
        if self._published:
            warn(
                f"the output may be half in place; what is missing stays in '{target.staging}': give the same command "
                f"again to finish release '{self._id}'"
            )
            return
        target.abort()
        if not self._attempt:
            return
        if kept or self._staged():
            what = "goes on with it" if kept else "removes what was staged and goes on with it"
            warn(f"the reservation of release '{self._id}' stays: the same command {what}")
            return
        try:
            self.store.change(
                self._dataset, lambda account: account.give_back(self._id, self._attempt), self._by
            )
        except (RuntimeError, InputError) as error:
            warn(
                f"the reservation of release '{self._id}' could not be given back: {error}; the same command takes it "
                "over, and dpbeam budget resolve gives it back"
            )

    def _staged(self) -> bool:
        """Whether an attempt has left staged output, so that nothing may be given back."""
        try:
            return bool(staged_by(self.store.account(self._dataset), self._id))
        except Exception:
            # If nobody answers, keep the reservation: giving it back could spend the budget twice.
            return True


def recover(store: BudgetStore, dataset: str, release: Release, by: Actor) -> None:
    """Finish a release that was being published when its process died: with what it has staged, or it is complete.

    Raises:
      StillRunningError: its process lives.
      UnavailableError: another run writes to the same place.
      InputError: neither its output nor what it staged is there.
    """
    if lives(release.holder):
        raise StillRunningError(
            f"--release_id: '{release.id}' is being published by {holder_text(release)}, which still runs"
        )
    output = _output(release)
    target = OutputTarget(
        output["prefix"],
        output["format"],
        overwrite=output["overwrite"],
        extras=output["extras"],
        one_file=output.get("one_file", False),
    )
    target.staging = output["staging"]
    mark = _mark(store, dataset, release.id, release.attempt)
    with target.alone():
        ledger = read_ledger(target.prefix)
        if ledger is not None and _marked(ledger) == mark and target.has_all(ledger):
            target.tidy()
        elif target.can_finish:
            target.finish()
        else:
            raise BudgetError(
                f"--release_id: '{release.id}' was cut short while {holder_text(release)} published it, and neither "
                f"its output '{target.prefix}' nor what it staged is here: part of it may have been seen, so its "
                "budget stays spent; try where those files are, or take another release id"
            )
    store.change(dataset, lambda account: account.commit(release.id, release.attempt), by)


def _output(release: Release) -> Mapping[str, Any]:
    """Where a release was published.

    Raises:
      InputError: the account does not say it as dpbeam does.
    """
    match release.output:
        case {
            "prefix": str(),
            "staging": str(),
            "format": str(),
            "overwrite": bool(),
            "extras": list(),
        } as output:
            return output
    raise StoreError(
        f"--budget: the entry by which '{release.id}' was published is not what dpbeam writes: restore a backup of the "
        "store"
    )


def check_undamaged(store: BudgetStore, dataset: str, release: Release) -> None:
    """Refuse to call a release out whose files are there, and are not what was published.

    Files that are not there may have been moved, or have made room for a later release.

    Raises:
      InputError: naming the file.
    """
    prefix = _output(release)["prefix"]
    ledger = read_ledger(prefix)
    if not FileSystems.at(prefix).needs_flush or (
        ledger is not None and _marked(ledger) != _mark(store, dataset, release.id, release.attempt)
    ):
        return
    path = damaged(prefix)
    if path is not None:
        raise StoreError(
            f"--release_id: '{release.id}' is out since {release.last.at}, but '{path}' is not what was published: put "
            "a copy there, or remove it; its budget stays spent, and nothing is drawn again"
        )


def resolve(store: BudgetStore, dataset: str, release_id: str, by: Actor) -> str:
    """Bring a release whose run died to its end; what became of it, in words.

    Raises:
      StillRunningError: its process lives.
      InputError: no such release, it cannot be told here, or what is out is damaged.
    """
    release = store.account(dataset).releases.get(release_id)
    if release is None:
        raise BudgetError(f"--release_id: the account of dataset '{dataset}' knows no release '{release_id}'")
    if release.state == COMMITTED:
        if PIPELINE_FOLDER not in release.output:
            check_undamaged(store, dataset, release)
        return f"is out since {release.last.at}; nothing to do"
    if release.state == RETURNED:
        return f"was given back at {release.last.at}; nothing to do"
    if release.state == PUBLISHING and PIPELINE_FOLDER in release.output:
        store.change(dataset, lambda account: account.commit(release_id, release.attempt), by)
        return "counts as out: a pipeline has let a part of it leave, and nobody can tell who has seen it"
    if release.state == PUBLISHING:
        recover(store, dataset, release, by)
        return "is out: its output is complete"
    if lives(release.holder):
        raise StillRunningError(
            f"--release_id: '{release_id}' is being released by {holder_text(release)}, which still runs"
        )
    for folder in staged_by(store.account(dataset), release_id):
        raise BudgetError(
            f"--release_id: '{release_id}' was not published, but what it has staged is in '{folder}': give its "
            "command again, which removes that and goes on, or remove the folder (dpbeam clean --output=PREFIX "
            "--force) and resolve again"
        )
    store.change(dataset, lambda account: account.give_back(release_id, release.attempt), by)
    return "was never published: its budget is given back"


def staged_by(account: Account, release_id: str) -> list[str]:
    """Staging folders with output of attempts at a release; those of another machine's own disk are not seen.

    Raises:
      OSError: a store does not answer.
    """
    taken = [
        e.details["holder"] for e in account.entries if e.release_id == release_id and "holder" in e.details
    ]
    folders = [str(holder["staging"]) for holder in taken if "staging" in holder]
    return [folder for folder in folders if holds_output(folder)]


def lives(holder: Mapping[str, Any]) -> bool:
    """Whether the process of an attempt is known to be still at it."""
    owner = Owner(str(holder["host"]), int(holder["pid"]), str(holder["started"]))
    if owner == Owner.this_process():
        return holder["run"] in _GOING
    return owner.state == "alive"


def _figures(charge: Charge, account: Account) -> dict[str, float]:
    return {name: float(amount) for name, amount in charge.amounts(account.composition).items()}


def _mark(store: BudgetStore, dataset: str, release_id: str, attempt: int) -> dict[str, Any]:
    """Of the ledger: which entry of which account its output belongs to."""
    return {"store": store.id, "dataset": dataset, "release_id": release_id, "entry": attempt}


def _marked(ledger: Mapping[str, Any] | None) -> Any:
    return None if ledger is None else ledger["parameters"].get("account")
