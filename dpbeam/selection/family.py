"""The family `select`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpbeam.families.base import Family, Recalibrated, Shown, Table
from dpbeam.selectors.registry import as_flags

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.selection.config import SelectionConfig
    from dpbeam.selection.plan import SelectionPlan


class Select(Family):
    """Releases the items that many users hold. Its ledgers carry the selector's name."""

    name = "select"
    summary = "release the items that many users hold"

    def wrote(self, method: str) -> bool:
        from dpbeam.selectors.registry import selectors

        return method in selectors()

    def ledger(self, plan: SelectionPlan, **run: Any) -> Ledger:
        from dpbeam.selection.ledger import selection_ledger

        return selection_ledger(plan, **run)

    def recalibrated(self, ledger: Ledger) -> Recalibrated:
        from dpbeam.selection.ledger import count_parameters
        from dpbeam.selection.plan import make_plan

        plan = make_plan(config_of_ledger(ledger.epsilon, ledger.delta, ledger.method, ledger.parameters))
        return Recalibrated(plan.event, plan, count_parameters(plan))

    def report(self, plan: SelectionPlan) -> dict[str, Any]:
        from dpbeam.selection.report import plan_report

        return plan_report(plan)

    def shown(self, report: Mapping[str, Any]) -> Iterator[Shown]:
        return shown_selection(report)

    def beside_items(self, parameters: Mapping[str, Any]) -> tuple[int, int]:
        numbers = 2 * (parameters.get("noisy_counts") is True) + (parameters.get("noisy_weights") is True)
        return 0, numbers + ("known" in parameters)


def config_of_ledger(
    epsilon: float, delta: float, method: str, parameters: Mapping[str, Any]
) -> SelectionConfig:
    """The settings of a selection among a ledger's parameters.

    Raises:
      InputError, TypeError: they are none.
    """
    from dpbeam.counts.selection import COUNT_DEVIATION
    from dpbeam.selection.config import SelectionConfig
    from dpbeam.selection.known import KNOWN, ONLY_NEW
    from dpbeam.selection.ledger import OTHERS_DEVIATION

    apart = ("account", "input", "output", KNOWN, ONLY_NEW, COUNT_DEVIATION, OTHERS_DEVIATION)
    values = {name: value for name, value in parameters.items() if name not in apart}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return SelectionConfig(epsilon, delta, method, **values)


def domain_stage(ledger: Ledger, delta: float) -> SelectionConfig | None:
    """The selection that chose the domain of a ledger's job, from its `selection` and `selector`; None without."""
    settings = ledger.parameters["selection"]
    if settings is None:
        return None
    return config_of_ledger(ledger.epsilon, delta, ledger.parameters["selector"], settings)


def shown_selection(report: Mapping[str, Any]) -> Iterator[Shown]:
    """`plan_report` for the terminal: settings, rounds, users needed."""
    yield f"{report['method']}  epsilon {report['epsilon']:g}  delta {report['delta']:g}"
    yield "  ".join(f"{name}={short(value)}" for name, value in report["parameters"].items())
    if "recommended" in report:
        yield recommendation(report["recommended"])
    rounds = [
        (
            str(row["round"]),
            f"{row['sigma']:.4f}",
            "not tested" if row["threshold"] is None else f"{row['threshold']:.4f}",
            f"{row['statistic_sigma']:.4f}",
        )
        for row in report["rounds"]
    ]
    yield Table(
        ("round", "sigma", "threshold", "noise of what is compared"), tuple(rounds), "Noise and thresholds"
    )
    limit = report["limit_of_any_algorithm"]
    names = tuple(limit)  # users_0.05, ...
    needed = [
        (str(row["items_per_user"]), f"{row['weight']:.4f}", *(_users(row[name]) for name in names))
        for row in report["users_needed"]
    ]
    needed.append(("limit of any algorithm", "", *(str(limit[name]) for name in names)))
    percent = (f"{100 * float(name.removeprefix('users_')):g} %" for name in names)
    yield Table(
        ("items per user", "weight each", *percent),
        tuple(needed),
        "Users an item needs to be released with probability",
    )
    if "floor" in report:
        yield _floor(report["floor"])
    if "others_sd" in report:
        yield f"others: users that hold nothing of the output, standard deviation {report['others_sd']:.2f}"


def _users(count: int | None) -> str:
    return "never" if count is None else str(count)


def _floor(floor: Mapping[str, Any]) -> str:
    more = ", ".join(
        f"{_users(row['users'])} where users hold {row['items_per_user']}" for row in floor["more_users_0.5"]
    )
    return (
        f"floor: no item of fewer than {floor['min_users']} users; {floor['weight']:.6g} is taken off every weight "
        f"before noise. More users for 50 %: {more}"
    )


def shown_domain(head: str, report: Mapping[str, Any]) -> Iterator[Shown]:
    """The head of a plan, and the selection of its domain if there is one."""
    yield head
    if report["selection"] is not None:
        yield f"selection of the items, {report['selector_share']:g} of the budget:"
        yield from shown_selection(report["selection"])
    else:
        yield f"no selection: items of {'the public domain' if report['public_domain'] else 'an unknown domain'}"


def recommendation(advice: Mapping[str, Any]) -> str:
    """One line: the flags, and why."""
    settings = {name: value for name, value in advice.items() if name != "why"}
    return f"recommended: {as_typed(settings)} ({advice['why']})"


def as_typed(settings: Mapping[str, Any]) -> str:
    """Settings of a selection as they are typed: `--method=gsu --set rounds=16`."""
    flags = as_flags(settings)
    constants = flags.pop("set", {})
    return " ".join(
        [
            *(f"--{name}={short(value)}" for name, value in flags.items()),
            *(f"--set {name}={short(value)}" for name, value in constants.items()),
        ]
    )


def short(value: Any) -> str:
    """A setting as text, numbers in six digits."""
    if isinstance(value, list | tuple):
        return ",".join(short(item) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
