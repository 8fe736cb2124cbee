"""The account of one dataset: a machine over entries, without any storage.

Design. An account is its entries, oldest first; `Account` folds them, and nothing else holds state. Every change is a
function of a folded account that returns the entry to append, or refuses. So what the store must guarantee is small:
whoever appends entry n+1 has seen entries 1 to n.

A reservation counts against the limit from `reserve` on, whatever becomes of the run; only `return`, which is refused
once `publish` is there, takes it back. A release id has one reservation at a time. `takeover` moves it to another
attempt and fences the one before: only the latest attempt may publish.

Composition, the rule of the limit:

  basic  epsilons and deltas add up to at most the limit's. Valid for runs whose settings were chosen after looking at
         earlier releases (Rogers, Roth, Ullman and Vadhan 2016, "Privacy odometers and filters").
  zcdp   rhos add up to at most rho, and the deltas of thresholds, which stand outside, to at most half of the
         limit's; rho is the largest that implies (epsilon, delta/2)-DP. Valid for adaptively chosen settings, because
         both totals are fixed beforehand: the filter of approximate zCDP (Whitehouse, Ramdas, Rogers and Wu 2023,
         "Fully-adaptive composition in differential privacy"). No rule takes the better of the two kinds
         at each run, or trades rho for delta on the way: for neither is a valid filter known to us.

Limits are data: each holds for days, and for every calendar period anew; the latest that covers a day is in force. The
budget of a period protects what a user's data of that period show, so a run names the days of the data that it reads.
Version 1.0 also had limits and runs of a cohort, disjoint sets of users. They count as they did there, and every new
run touches all cohorts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from typing import Any

from dpbeam.budget.amounts import Amounts, exact, text, total
from dpbeam.budget.periods import ALWAYS, PERIODS, Days, window
from dpbeam.errors import BudgetError

#: Amounts that are held against the limit, by composition.
COMPOSITIONS = {"basic": ("epsilon", "delta"), "zcdp": ("rho", "delta")}
RESERVED, PUBLISHING, COMMITTED, RETURNED = "reserved", "publishing", "committed", "returned"
#: Of a holder and of an output: the private folder of a pipeline's run, which has no output files of its own.
PIPELINE_FOLDER = "folder"
#: What reading an entry raises that no version of dpbeam writes.
DAMAGED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class OverLimitError(BudgetError):
    """A run does not fit into what is left."""


class StillRunningError(RuntimeError):
    """Another attempt at the release is under way: later the answer may be another."""


class ReservationLostError(RuntimeError):
    """The reservation is no longer this attempt's: nothing may be published."""


@dataclass(frozen=True)
class Draft:
    """An entry to append.

    Attributes:
      kind: create, limit, reserve, takeover, publish, commit or return.
      release_id: whose; None of create and limit.
      details: JSON values.
      ledger: JSON text of a ledger.
    """

    kind: str
    release_id: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    ledger: str | None = None


@dataclass(frozen=True)
class Entry:
    """What the store holds; `number` counts from 1 without gaps, `at` is UTC.

    who, host, command and software say who did it from where, with what.
    """

    number: int
    at: str
    kind: str
    release_id: str | None
    who: str
    host: str
    command: str
    software: str
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Limit:
    """The most that all runs may cost, on some days, in each period.

    Attributes:
      epsilon, delta: as they were typed.
      amounts: what is compared, by name (COMPOSITIONS).
      cohort: of version 1.0, whose users it is for alone; empty for those of no other cohort.
      period: of PERIODS, empty for a budget that never renews.
      days: when it holds.
    """

    epsilon: float
    delta: float
    amounts: Amounts
    cohort: str = ""
    period: str = ""
    days: Days = ALWAYS

    @property
    def dated(self) -> bool:
        """Whether it matters of which days the data are."""
        return bool(self.period) or self.days != ALWAYS

    def window(self, day: date) -> Days:
        """The days that share a budget with this one."""
        return window(self.period, day) if self.period else self.days


@dataclass(frozen=True)
class Charge:
    """What a run costs.

    Attributes:
      epsilon, delta: that its ledger declares.
      rho, outside_delta: zCDP of its noise and the deltas beside it; None in an account of basic composition.
      relation: of neighbours, as the ledger has it.
      cohort: of version 1.0, whose users it reads alone; empty for all of them.
      days: of the data that it reads; None where it is not said.
    """

    epsilon: float
    delta: float
    rho: float | None = None
    outside_delta: float | None = None
    relation: str = ""
    cohort: str = ""
    days: Days | None = None

    def amounts(self, composition: str) -> dict[str, Fraction]:
        """Exact amounts that count against a limit."""
        if composition == "basic":
            return {"epsilon": exact(self.epsilon), "delta": exact(self.delta)}
        if self.rho is None or self.outside_delta is None:
            raise BudgetError(
                "an account of zcdp composition needs the rho of a run, which its events do not give"
            )
        return {"rho": exact(self.rho), "delta": exact(self.outside_delta)}

    def to_details(self) -> dict[str, Any]:
        """JSON values for an entry of the account."""
        days = None if self.days is None else [str(self.days.first), str(self.days.last)]
        return {**vars(self), "days": days}

    @classmethod
    def from_details(cls, values: Mapping[str, Any]) -> Charge:
        """Inverse of `to_details`."""
        days = values["days"]
        return cls(**{**values, "days": None if days is None else Days(*map(date.fromisoformat, days))})


@dataclass(frozen=True)
class Release:
    """A release id and what has become of it.

    Attributes:
      digest: of the settings that it is bound to.
      state: RESERVED, PUBLISHING, COMMITTED or RETURNED.
      attempt: number of the entry by which the latest attempt took it; what that attempt publishes carries it.
      holder: the process of that attempt.
      output: where it publishes, from `publish` on: staging folder, prefix, format.
      first, last: entries of its reservation and of its latest change.
    """

    id: str
    digest: str
    charge: Charge
    state: str
    attempt: int
    holder: Mapping[str, Any]
    first: Entry
    last: Entry
    output: Mapping[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether it counts against the limit."""
        return self.state != RETURNED


@dataclass(frozen=True)
class Standing:
    """A limit in one window, and what is left of it."""

    limit: Limit
    days: Days
    spent: Amounts
    reserved: Amounts

    @property
    def left(self) -> dict[str, Fraction]:
        """What is neither spent nor reserved, by the names of the limit's amounts."""
        return {
            name: amount - self.spent[name] - self.reserved[name]
            for name, amount in self.limit.amounts.items()
        }

    def __str__(self) -> str:
        """Which budget this is, for people."""
        cohort = f" of cohort '{self.limit.cohort}'" if self.limit.cohort else ""
        return f"{cohort} for {self.days}" if self.limit.dated else cohort


class Account:
    """What the entries of a dataset say.

    Raises: ValueError, or another error of `DAMAGED`, on entries that no version of dpbeam writes.
    """

    def __init__(self, dataset: str, entries: Iterable[Entry]):
        self.dataset = dataset
        self.entries: list[Entry] = []
        self.composition = ""
        self.limits: list[Limit] = []
        self.releases: dict[str, Release] = {}
        for entry in entries:
            self.take(entry)

    def take(self, entry: Entry) -> None:
        """Fold one more entry. Raises as the class does."""
        if entry.number != len(self.entries) + 1 or (entry.kind == "create") != (entry.number == 1):
            raise ValueError(f"entry {entry.number} of account '{self.dataset}' is out of place")
        details = entry.details
        match entry.kind:
            case "create":
                self.composition = details["composition"]
                if self.composition not in COMPOSITIONS:
                    raise ValueError("unknown composition")
            case "limit":
                self.limits.append(_limit(details, self.composition))
            case "reserve":
                name, digest = _text(entry.release_id), _text(details["digest"])
                if name in self.releases and self.releases[name].counts:
                    raise ValueError("reserved twice")
                charge, holder = _charge(details["charge"], self.composition), _holder(details)
                release = Release(name, digest, charge, RESERVED, entry.number, holder, entry, entry)
                self.releases[name] = release
            case "takeover":
                self._change(entry, RESERVED, attempt=entry.number, holder=_holder(details))
            case "publish":
                self._change(entry, RESERVED, state=PUBLISHING, output=dict(details["output"]))
            case "commit":
                self._change(entry, PUBLISHING, state=COMMITTED)
            case "return":
                self._change(entry, RESERVED, state=RETURNED)
            case _:
                raise ValueError(f"entry {entry.number} of account '{self.dataset}' is of unknown kind")
        self.entries.append(entry)

    @property
    def exists(self) -> bool:
        """Whether the account has an entry."""
        return bool(self.entries)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the amounts that are held against the limit."""
        return COMPOSITIONS[self.composition]

    @property
    def cohorts(self) -> list[str]:
        """All cohorts that ever had a limit; the empty one is that of the others."""
        return sorted({limit.cohort for limit in self.limits})

    def _change(self, entry: Entry, before: str, **values: Any) -> None:
        release = self.releases[_text(entry.release_id)]
        if release.state != before:
            raise ValueError(f"'{release.state}' becomes '{entry.kind}'")
        self.releases[release.id] = replace(release, last=entry, **values)

    # What is left.

    def limit_on(self, cohort: str, day: date) -> Limit | None:
        """The limit in force."""
        in_force = [x for x in self.limits if x.cohort == cohort and x.days.first <= day <= x.days.last]
        return in_force[-1] if in_force else None

    def standing(self, limit: Limit, days: Days) -> Standing:
        """What the releases of one window have used of its limit."""
        charged = [
            release
            for release in self.releases.values()
            if release.counts
            and release.charge.cohort in ("", limit.cohort)
            and (release.charge.days is None or release.charge.days.overlaps(days))
        ]

        def used(committed: bool) -> dict[str, Fraction]:
            parts = [
                r.charge.amounts(self.composition) for r in charged if (r.state == COMMITTED) == committed
            ]
            return total(parts, self.names)

        return Standing(limit, days, used(True), used(False))

    def touched(self, charge: Charge) -> list[Standing]:
        """Every window that a run is charged to.

        Raises:
          InputError: no limit is in force there, or the run does not say which days it reads.
        """
        cohorts = [charge.cohort] if charge.cohort else self.cohorts
        # A limit may begin within another's window: both are in force in it, each on days of its own.
        by_window: dict[tuple[Days, int], Limit] = {}
        for cohort in cohorts:
            if charge.days is None and any(x.dated for x in self.limits if x.cohort == cohort):
                raise BudgetError(
                    f"--budget_period: {self._account} has budgets for days: say of which days the data are, as "
                    "2026-01-31 or 2026-01-01:2026-01-31"
                )
            for day in charge.days or Days(date.min, date.min):
                limit = self.limit_on(cohort, day)
                if limit is None:
                    of = f" of cohort '{cohort}'" if cohort else ""
                    raise BudgetError(f"--dataset: {self._account} has no limit{of} for {day}")
                by_window[limit.window(day), id(limit)] = limit
        return [self.standing(limit, days) for (days, _), limit in by_window.items()]

    def check_fits(self, charge: Charge) -> list[Standing]:
        """Refuse a run for which too little is left; the windows that it is charged to.

        Raises:
          OverLimitError: it does not fit.
          InputError: see `touched`; or the run protects against other neighbours than those before.
        """
        for release in self.releases.values():
            if release.counts and release.charge.relation != charge.relation:
                raise BudgetError(
                    f"--dataset: {self._account} holds runs that protect against '{release.charge.relation}', this one "
                    f"protects against '{charge.relation}', and their costs do not add up: take another account"
                )
        needed = charge.amounts(self.composition)
        standings = self.touched(charge)
        for standing in standings:
            for name, amount in needed.items():
                if amount > standing.left[name]:
                    raise OverLimitError(
                        f"--budget: the limit of dataset '{self.dataset}'{standing} would be passed: this run needs "
                        f"{name} {text(amount)}, and {text(max(standing.left[name], Fraction(0)))} of "
                        f"{text(standing.limit.amounts[name])} is left"
                    )
        return standings

    @property
    def _account(self) -> str:
        return f"the account of dataset '{self.dataset}'"

    # Changes.

    def create(self, composition: str) -> Draft:
        """Open the account.

        Raises:
          InputError: it is open.
        """
        if self.exists:
            raise BudgetError(f"--dataset: there is an account of dataset '{self.dataset}' already")
        return Draft("create", details={"composition": composition})

    def reserve(
        self,
        release_id: str,
        digest: str,
        charge: Charge,
        holder: Mapping[str, Any],
        ledger: str,
        lives: Callable[[Mapping[str, Any]], bool],
    ) -> Draft | None:
        """Take the budget for a release, or take over what an earlier attempt left; None where it is out, or half out.

        Args:
          digest: of the settings; a release id serves one.
          lives: whether a holder is known to be still running.

        Raises:
          OverLimitError, InputError: the run may not start.
          StillRunningError: it may not start now.
        """
        release = self.releases.get(release_id)
        if release is None or release.state == RETURNED:
            self.check_fits(charge)
            details = {"digest": digest, "charge": charge.to_details(), "holder": dict(holder)}
            return Draft("reserve", release_id, details, ledger)
        self.check_same(release, digest)
        if release.state != RESERVED:
            return None
        if lives(release.holder):
            raise StillRunningError(
                f"--release_id: '{release_id}' is being released by {holder_text(release)}, which still runs"
            )
        if release.charge != charge:
            raise BudgetError(
                f"--release_id: '{release_id}' was reserved at another cost, by {holder_text(release)}; take another "
                "release id, or give it back: dpbeam budget resolve"
            )
        return Draft("takeover", release_id, {"holder": dict(holder)})

    def check_same(self, release: Release, digest: str) -> None:
        """Refuse a release id that stands for something else.

        Raises:
          InputError: other settings.
        """
        if release.counts and release.digest != digest:
            way_out = ", or give it back: dpbeam budget resolve" if release.state == RESERVED else ""
            raise BudgetError(
                f"--release_id: '{release.id}' of dataset '{self.dataset}' is {release.state} for other settings or "
                f"another output; take another release id{way_out}"
            )

    def publish(self, release_id: str, attempt: int, output: Mapping[str, Any], ledger: str) -> Draft:
        """From here on something may be seen, and no other attempt draws noise.

        Raises:
          ReservationLostError: another attempt has the reservation, or it was given back.
        """
        release = self.releases.get(release_id)
        if release is None or release.state != RESERVED or release.attempt != attempt:
            raise ReservationLostError(
                f"the reservation of release '{release_id}' was taken over or given back while the run was under way; "
                "nothing was published"
            )
        return Draft("publish", release_id, {"output": dict(output)}, ledger)

    def commit(self, release_id: str, attempt: int) -> Draft | None:
        """The output of an attempt is complete; None where that is known.

        Raises:
          ReservationLostError: it was never published.
        """
        release = self.releases.get(release_id)
        if release is None or release.attempt != attempt or release.state not in (PUBLISHING, COMMITTED):
            raise ReservationLostError(f"release '{release_id}' was not published by this attempt")
        return None if release.state == COMMITTED else Draft("commit", release_id)

    def give_back(self, release_id: str, attempt: int) -> Draft | None:
        """Nothing was released; None where the attempt has nothing to give back."""
        release = self.releases.get(release_id)
        if release is None or release.attempt != attempt or release.state != RESERVED:
            return None
        return Draft("return", release_id)


def limit_draft(limit: Limit) -> Draft:
    """The entry of a limit."""
    return Draft(
        "limit",
        details={
            "epsilon": limit.epsilon,
            "delta": limit.delta,
            "amounts": {name: float(amount) for name, amount in limit.amounts.items()},
            "cohort": limit.cohort,
            "period": limit.period,
            "days": [str(limit.days.first), str(limit.days.last)],
        },
    )


def _limit(details: Mapping[str, Any], composition: str) -> Limit:
    amounts = {name: _amount(details["amounts"][name]) for name in COMPOSITIONS[composition]}
    days = Days(*map(date.fromisoformat, details["days"]))
    cohort, period = _text(details["cohort"]), _text(details["period"])
    epsilon, delta = details["epsilon"], details["delta"]
    for amount in (epsilon, delta):
        _amount(amount)
    if period not in ("", *PERIODS):
        raise ValueError("unknown period")
    return Limit(epsilon, delta, amounts, cohort, period, days)


def _charge(details: Mapping[str, Any], composition: str) -> Charge:
    charge = Charge.from_details(details)
    _amount(charge.epsilon)
    _amount(charge.delta)
    for amount in charge.amounts(composition).values():
        _amount(amount)
    for name in (charge.relation, charge.cohort):
        _text(name)
    return charge


def _amount(value: float | Fraction) -> Fraction:
    """A number, and nothing below zero: a cost would give budget back."""
    if type(value) not in (int, float, Fraction) or value < 0:
        raise ValueError("not an amount")
    return exact(float(value))


def _holder(details: Mapping[str, Any]) -> Mapping[str, Any]:
    holder = dict(details["holder"])
    _text(holder["host"])
    int(holder["pid"])
    return holder


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def holder_text(release: Release) -> str:
    """The latest attempt of a release, for people."""
    holder = release.holder
    if PIPELINE_FOLDER in holder:
        return f"a pipeline in the folder '{holder[PIPELINE_FOLDER]}', since {release.last.at}"
    return f"process {holder.get('pid')} on {str(holder.get('host')).split(' ')[0]}, since {release.last.at}"


def windows(account: Account, days: Days | None = None) -> Iterator[Standing]:
    """The windows that have charges, those of the given days, and the budgets that never renew."""
    for cohort in account.cohorts:
        charges = [
            r.charge for r in account.releases.values() if r.counts and r.charge.cohort in ("", cohort)
        ]
        spans = {charge.days for charge in charges} | {days}
        by_window: dict[tuple[Days, int], Limit] = {}
        for day in sorted({date.min, *(day for span in spans if span is not None for day in span)}):
            limit = account.limit_on(cohort, day)
            if limit is not None and (day != date.min or not limit.dated):
                by_window[limit.window(day), id(limit)] = limit
        for (span, _), limit in sorted(by_window.items(), key=lambda entry: entry[0][0]):
            yield account.standing(limit, span)
