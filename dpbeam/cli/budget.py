"""`dpbeam budget VERB`: accounts of what all runs on a dataset have spent."""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING, Any

from dpbeam.cli.flags import FlagParser, Verbs, entry_point, take_verb
from dpbeam.errors import BudgetError, SettingError, StoreError, visible
from dpbeam.jobs.charge import needing_store, warn_of_twins
from dpbeam.jobs.console import emit
from dpbeam.jobs.options import Options, ReleaseIdOptions, StoreOptions, flag, switch

if TYPE_CHECKING:
    from rich.console import Console

    from dpbeam.budget.account import Account, Limit, Release, Standing
    from dpbeam.budget.history import Composition
    from dpbeam.budget.store import BudgetStore


class LimitOptions(Options):
    """The limit of an account."""

    group = "limit"
    epsilon: float = flag("EPS", "the most that all runs may spend", needed=True)
    delta: float = flag("DELTA", "the same of delta", needed=True)
    period: str = flag(
        "NAME", "renew the budget for each: day, week, month, quarter, year of the data", value=""
    )
    starts: str | None = flag("DAY", "first day of the data that it is for, as 2026-01-31")
    ends: str | None = flag("DAY", "last day")


class NewOptions(LimitOptions):
    """A new account."""

    group = "limit"
    composition: str = flag(
        "NAME", "basic (default): sums; zcdp: sums of rho, which let many runs spend less", value="basic"
    )


class HistoryOptions(Options):
    """What is shown."""

    json: bool = switch("print JSON instead of tables")


class ShowOptions(HistoryOptions):
    """What is shown of a standing."""

    budget_period: str | None = flag(
        "DAY or FIRST:LAST", "show: days of the data (default: those with charges)"
    )


class AccountsOptions(ReleaseIdOptions, NewOptions, ShowOptions):
    """Flags of all verbs."""

    verb: str | None = flag("VERB", "create, limit, show, history, resolve", nargs="?", positional=True)


VERBS: Verbs = {
    "create": ((NewOptions,), "open an account with its limit"),
    "limit": ((LimitOptions,), "set another limit from now on"),
    "show": ((ShowOptions,), "what is spent, reserved and left, and which releases are open"),
    "history": ((HistoryOptions,), "every entry, and what all releases cost together"),
    "resolve": ((ReleaseIdOptions,), "bring a release whose run died to its end"),
}


def make_parser() -> FlagParser[AccountsOptions]:
    lines = "; ".join(f"{verb}: {text}" for verb, (_, text) in VERBS.items())
    return FlagParser(
        "budget",
        f"Accounts of what all runs on a dataset have spent. Verbs: {lines}.",
        AccountsOptions,
        beam=False,
    )


@entry_point("budget", make_parser)
def main(options: AccountsOptions) -> int:
    verb = take_verb("budget", options, VERBS, StoreOptions)
    options.require("budget")
    if verb != "show":
        options.require("dataset")
    with needing_store():
        from dpbeam.budget.store import BudgetStore, check_name
    if verb == "create":  # nothing is made for a wrong flag
        check_name("--dataset", options.dataset)
        _limit_of(_composition(options), options)
    store = BudgetStore(options.budget, create=verb == "create")
    return _DO[verb](store, options)


def _create(store: BudgetStore, options: AccountsOptions) -> int:
    from dpbeam.budget.account import Draft, limit_draft
    from dpbeam.budget.store import Actor

    composition = _composition(options)
    limit = _limit_of(composition, options)

    def drafts(account: Account) -> list[Draft]:
        return [account.create(composition), limit_draft(limit)]

    store.create(options.dataset, drafts, Actor.this("budget create"))
    options.say(f"account of dataset '{options.dataset}' opened in {store.place}: {_spelled(limit)}")
    return 0


def _composition(options: AccountsOptions) -> str:
    from dpbeam.budget.account import COMPOSITIONS

    composition = options.composition
    if composition not in COMPOSITIONS:
        raise SettingError(f"--composition must be one of {', '.join(COMPOSITIONS)}, got '{composition}'")
    return str(composition)


def _set_limit(store: BudgetStore, options: AccountsOptions) -> int:
    from dpbeam.budget.account import limit_draft
    from dpbeam.budget.store import Actor

    account = store.account(options.dataset)
    if any(account.cohorts):
        raise BudgetError(
            f"--dataset: the account of '{options.dataset}' has limits of cohorts, which dpbeam 1.0 alone can change; "
            "they hold, and every run is charged to each of them"
        )
    limit = _limit_of(account.composition, options)
    store.change(options.dataset, lambda account: limit_draft(limit), Actor.this("budget limit"))
    options.say(f"dataset '{options.dataset}': {_spelled(limit)}")
    return 0


def _limit_of(composition: str, options: AccountsOptions) -> Limit:
    from dpbeam.budget.charges import make_limit
    from dpbeam.budget.periods import Days, parse_day

    options.require("epsilon", "delta")
    first = parse_day(options.starts, "--starts") if options.starts is not None else date.min
    last = parse_day(options.ends, "--ends") if options.ends is not None else date.max
    if last < first:
        raise SettingError(f"--ends: {last} is before --starts={first}")
    days, period = Days(first, last), options.period
    return make_limit(composition, options.epsilon, options.delta, period=period, days=days)


def _spelled(limit: Limit) -> str:
    parts = [f"epsilon {limit.epsilon:g}, delta {limit.delta:g}"]
    if limit.cohort:
        parts.append(f"for cohort '{limit.cohort}'")
    if limit.period:
        parts.append(f"for every {limit.period} of the data")
    if limit.days.first != date.min:
        parts.append(f"from {limit.days.first}")
    if limit.days.last != date.max:
        parts.append(f"to {limit.days.last}")
    return " ".join(parts)


def _show(store: BudgetStore, options: AccountsOptions) -> int:
    from dpbeam.budget.periods import parse_days

    days = parse_days(options.budget_period, "--budget_period") if options.budget_period is not None else None
    names = [options.dataset] if "dataset" in options.said else store.datasets()
    for name in names:
        warn_of_twins(store, name)
    standings = [_standing(store.account(name), days) for name in names]
    if options.json:
        emit(json.dumps(standings[0] if "dataset" in options.said else standings, indent=2))
        return 0
    from dpbeam.cli.tables import show

    show(lambda console: _draw_standing(standings, console))
    return 0


def _standing(account: Account, days: Any) -> dict[str, Any]:
    from dpbeam.budget.account import COMMITTED, windows

    open_releases = [r for r in account.releases.values() if r.counts and r.state != COMMITTED]
    return {
        "dataset": account.dataset,
        "composition": account.composition,
        "limits": [_spelled(limit) for limit in account.limits],
        "budgets": [_budget(standing) for standing in windows(account, days)],
        "open": [_open_release(release) for release in open_releases],
    }


def _budget(standing: Standing) -> dict[str, Any]:
    limit = standing.limit
    amounts = {"limit": limit.amounts, "spent": standing.spent, "reserved": standing.reserved}
    return {
        "cohort": limit.cohort,
        "days": str(standing.days) if limit.dated else "",
        **{
            name: {key: float(value) for key, value in values.items()}
            for name, values in {**amounts, "left": standing.left}.items()
        },
    }


def _open_release(release: Release) -> dict[str, Any]:
    from dpbeam.budget.account import holder_text

    return {"release_id": release.id, "state": release.state, "holder": holder_text(release)}


def _draw_standing(standings: list[dict[str, Any]], console: Console) -> None:
    from rich.table import Table

    for account in standings:
        table = Table("budget", "amount", "limit", "spent", "reserved", "left", title=account["dataset"])
        for row in account["budgets"]:
            place = " ".join(part for part in (row["cohort"], row["days"]) if part) or "all"
            for name in row["limit"]:
                values = [f"{row[what][name]:.6g}" for what in ("limit", "spent", "reserved", "left")]
                table.add_row(place, name, *values)
        console.print(table)
        for text in account["limits"]:
            console.print(f"limit: {text}", highlight=False, soft_wrap=True)
        for release in account["open"]:
            console.print(
                f"{release['state']}: release '{release['release_id']}', {release['holder']}; dpbeam budget resolve "
                "ends it if that process is dead",
                highlight=False,
                soft_wrap=True,
            )


def _history(store: BudgetStore, options: AccountsOptions) -> int:
    from dpbeam.budget.history import compose

    account = store.account(options.dataset)
    try:
        together = compose(account, account.releases.values(), store.ledgers(account.dataset))
    except ValueError as error:
        raise StoreError(
            f"--budget: '{store.place}': a ledger of dataset '{account.dataset}' is not what dpbeam wrote: {error}"
        ) from None
    if options.json:
        entries = [{**vars(entry), "details": dict(entry.details)} for entry in account.entries]
        emit(json.dumps({"entries": entries, "together": _together(together)}, indent=2))
        return 0
    from dpbeam.cli.tables import show

    show(lambda console: _draw_history(account, together, console))
    return 0


def _together(composed: Composition) -> dict[str, Any]:
    tight = {"epsilon": composed.tight_epsilon, "delta": composed.tight_delta}
    return {
        "releases": composed.releases,
        "private": composed.private,
        "basic": {"epsilon": float(composed.epsilon), "delta": float(composed.delta)},
        "tightest": None if composed.tight_epsilon is None else tight,
    }


def _draw_history(account: Account, together: Composition, console: Console) -> None:
    from rich.table import Table

    from dpbeam.budget.amounts import text

    table = Table("entry", "at (UTC)", "who", "host", "command", "what", "release", title=account.dataset)
    for entry in account.entries:
        what = entry.kind
        if entry.kind == "reserve":
            charge = entry.details["charge"]
            what = f"reserve epsilon {charge['epsilon']:g}, delta {charge['delta']:g}"
        cells = (entry.at, entry.who, entry.host, entry.command, what, entry.release_id or "")
        table.add_row(str(entry.number), *map(visible, cells))
    console.print(table)
    lines = [
        f"{together.releases} releases count; sums: epsilon {text(together.epsilon)}, delta {text(together.delta)}"
    ]
    if together.tight_epsilon is not None:
        lines.append(
            f"the tightest that their noise allows, where no setting was chosen by what earlier runs released: epsilon "
            f"{together.tight_epsilon:.6g}, delta {together.tight_delta:g}"
        )
    if not together.private:
        lines.append("NOT PRIVATE: a release with a fixed test key is among them")
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def _resolve(store: BudgetStore, options: AccountsOptions) -> int:
    options.require("release_id")
    from dpbeam.budget.store import Actor
    from dpbeam.jobs.charged import resolve

    outcome = resolve(store, options.dataset, options.release_id, Actor.this("budget resolve"))
    options.say(f"release '{options.release_id}' of dataset '{options.dataset}' {outcome}")
    return 0


_DO = {"create": _create, "limit": _set_limit, "show": _show, "history": _history, "resolve": _resolve}
