"""Generic faults times programs: which of them the audits see, after how many trials, and how small they may be.

A cell plants one fault into one program and gives the audit more and more trials until it refutes the program. The same
with the fault's size: a *factor on epsilon* c stands for noise of 1/c of its scale, or users of c times their norm, or
choices of c times their range. A fault is built around the checks of the plan whose claim it makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.program import Draw, Exact, Keys, Program, with_state
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard
from dpbeam.selection.plan import SelectionPlan
from dpbeam.selectors.base import RoundPlan
from dpbeam.selectors.registry import defaults
from dpbeam_lab.audit.audit import ROUNDING, Subject, audit
from dpbeam_lab.audit.choices import choices, scaled
from dpbeam_lab.audit.draws import smallest_seen
from dpbeam_lab.audit.faults import plan_of, quiet
from dpbeam_lab.audit.neighbours import Ids, all_novel
from dpbeam_lab.audit.programs import programs
from dpbeam_lab.audit.worst_cases import worst_cases
from dpbeam_lab.tables import markdown_table

SHARES = (0.5, 0.8, 0.95)
FACTORS = (3.0, 2.0, 1.5, 1.25, 1.1)
MUST_SEE = 1.5
TRIALS = (1_000, 4_000, 16_000)
_MORE = (1, 4, 16)  # times the keys that tell 1.5
_ALPHA = 1e-6
_MAX_ITEMS = 16
_CASES = {all_novel(1).name, "tips one item from below", "tips one item from above"}
NOISE, NORM, RANGE = "noise", "norm", "range"


# Faults.


class Louder(Forwarding):
    """Users add `factor` times as much, in whole steps where the noise has steps."""

    def __init__(self, inner: Program, factor: float):
        super().__init__(inner)
        self._factor = factor

    def summarise(self, trip: int, part: Block | Shard, keys: Keys) -> Columns:
        summary = super().summarise(trip, part, keys)
        if "demand" in summary:
            summary["demand"] = np.ceil(self._factor * summary["demand"]).astype(np.int64)
        return summary

    def exact(self, trip: int, shard: Shard) -> Exact:
        exact, step = super().exact(trip, shard), UNITS // getattr(self.noise(trip), "grid", UNITS)
        return Exact(np.ceil(exact.units * self._factor / step).astype(np.int64) * step)


class Unmet(Forwarding):
    """The hub is asked for no noise, and decides by exact numbers: what a wrapper does that forgets it."""

    def hub_noise(self, trip: int) -> None:
        return None

    def decide(
        self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw
    ) -> tuple[Columns, Columns]:
        return super().decide(trip, state, summaries, _Nothing(draw))


class _Nothing(Draw):
    """Adds nothing, as if it had."""

    def __init__(self, inner: Draw):
        vars(self).update(vars(inner))

    def noisy(self, exact: np.ndarray, fp: np.ndarray) -> np.ndarray:
        return exact

    def noisy_within(self, share: float, exact: np.ndarray, fp: np.ndarray) -> np.ndarray:
        return exact


class Lower(Forwarding):
    """Thresholds are lower.

    Args:
      by: trip -> weight.

    Raises:
      ValueError: the program keeps what it compares under no name that is known here.
    """

    def __init__(self, inner: Program, by: Mapping[int, float]):
        super().__init__(inner)
        self._by = by

    def threshold(self, trip: int, shard: Shard) -> Shard:
        units = {"noisy": UNITS, "z": 1.0}
        names = [name for name in units if name in shard.state]
        if not names:
            raise ValueError(f"what {type(self.inner).__name__} compares with its threshold is not known")
        kept = {name: shard.state[name] for name in names}
        raised = {
            name: (values + self._by[trip] * units[name]).astype(values.dtype)
            for name, values in kept.items()
        }
        return with_state(super().threshold(trip, with_state(shard, **raised)), **kept)


def halves(users: Ids) -> Ids:
    """Every user is taken for two, with every second of its items each."""
    return 2 * users + np.arange(len(users)) % 2


Planted = tuple[SelectionPlan, Subject]


def _lowered(plan: SelectionPlan, by: Callable[[RoundPlan], float]) -> Subject | None:
    program, planned = plan.calibration.program, {row.number: row for row in plan.rounds}
    stated = {trip: program.noise(trip) for trip in range(program.trips)}
    shifts = {trip: by(planned[spec.round]) for trip, spec in stated.items() if spec is not None}
    # Coins have no threshold that a program could lower.
    if any(spec.bits for spec in stated.values() if spec is not None) or not any(shifts.values()):
        return None
    return Subject(Lower(program, shifts))


def believes(plan: SelectionPlan, settings: Mapping[str, Any], max_items: int) -> Planted | None:
    """The plan for fewer items than the program of `plan` sends, with its thresholds; None where they are no lower."""
    other = plan_of(**{**settings, "epsilon": plan.config.epsilon, "max_items_per_user": max_items})
    lower = {row.number: row.threshold for row in other.rounds}

    def by(row: RoundPlan) -> float:
        return max(0.0, row.threshold - lower[row.number]) if math.isfinite(row.threshold) else 0.0

    subject = _lowered(plan, by)
    return None if subject is None else (other, subject)


def generic_faults(
    plan: SelectionPlan, settings: Mapping[str, Any], shares: Sequence[float] = SHARES
) -> dict[str, Planted]:
    """Faults that fit every selection, by name: the plan whose claim is made, and what runs.

    What changes nothing in a selection is left out: a vote is one whatever D0 is, and coins have no threshold.
    """
    by_name: dict[str, Planted | None] = {
        **{f"noise x {share:g}": (plan, Subject(plan.program, quiet(share))) for share in shares},
        "norm x 2": (plan, Subject(Louder(plan.program, 2.0))),
        "event for D0/4": believes(plan, settings, max(1, (plan.config.max_items_per_user or 1) // 4)),
        "a user is two": (plan, Subject(plan.program, identity=halves)),
    }
    lower = _lowered(plan, lambda row: row.statistic_sigma)
    by_name["threshold - 1 sigma"] = None if lower is None else (plan, lower)
    return {name: planted for name, planted in by_name.items() if planted is not None}


# Rows.


@dataclass(frozen=True)
class Row:
    """What the audits see of faults in one program.

    Attributes:
      name: of the program.
      honest: whether the program itself passes.
      cells: fault -> trials (draws of runs, rankings) that refute it, None where none did; absent where it changes
        nothing.
      smallest: kind of fault -> the smallest factor on epsilon that is seen; None where the largest is not.
    """

    name: str
    honest: bool
    cells: Mapping[str, int | None]
    smallest: Mapping[str, float | None]

    @property
    def survives(self) -> bool:
        """Whether a factor that must be seen is not, or the program is refuted."""
        unseen = any(factor is None or factor > MUST_SEE for factor in self.smallest.values())
        return unseen or not self.honest


@dataclass(frozen=True)
class Sizes:
    """How large faults are.

    Attributes:
      shares: of the noise that is drawn, one cell each.
      factors: on epsilon, falling, of which the smallest that is seen is looked for.
    """

    shares: tuple[float, ...] = SHARES
    factors: tuple[float, ...] = FACTORS


def rows(sizes: Sizes = Sizes()) -> dict[str, Callable[[], Row]]:
    """One for the default of every selector and for every program of the other families, made when they are called."""
    by_name: dict[str, Callable[[], Row]] = {}
    for name, settings in defaults().items():
        by_name[f"select, {name}"] = partial(selection_row, name, settings, sizes)
    for name in programs():
        if not name.startswith("select, "):
            by_name[name] = partial(drawn_row, name, sizes)
    for name in choices():
        by_name[f"choice, {name}"] = partial(choice_row, name, sizes)
    return by_name


def _first(steps: tuple[int, ...], seen: Callable[[int], bool]) -> int | None:
    return next((step for step in steps if seen(step)), None)


def _smallest(factors: Sequence[float], seen: Callable[[float], bool]) -> float | None:
    by_factor: dict[float, bool] = {}
    for factor in factors:
        by_factor[factor] = seen(factor)
        if not by_factor[factor]:
            break
    return smallest_seen(by_factor)


def selection_row(name: str, settings: Mapping[str, Any], sizes: Sizes) -> Row:
    """A selection, by its transcripts, released sets and draws."""
    plan = plan_of(**settings, epsilon=1.0, max_items_per_user=_MAX_ITEMS)
    cases = [case for case in worst_cases(plan) if case.name in _CASES]
    cases += [all_novel(_MAX_ITEMS), all_novel(2 * _MAX_ITEMS)]

    def refuted(claim: SelectionPlan, subject: Subject, trials: int) -> bool:
        return not audit(claim, trials=trials, subject=subject, cases=cases, alpha=_ALPHA).passed

    def trials_of(subject: Subject, claim: SelectionPlan = plan) -> int | None:
        return _first(TRIALS, lambda trials: refuted(claim, subject, trials))

    planted = generic_faults(plan, settings, sizes.shares)
    cells = {name: trials_of(subject, claim) for name, (claim, subject) in planted.items()}
    smallest = {
        NOISE: _smallest(sizes.factors, lambda c: trials_of(Subject(plan.program, quiet(1 / c))) is not None),
        NORM: _smallest(sizes.factors, lambda c: trials_of(Subject(Louder(plan.program, c))) is not None),
    }
    honest = not refuted(plan, Subject(plan.program), TRIALS[0])
    return Row(f"select, {name}", honest, cells, smallest)


def drawn_row(name: str, sizes: Sizes) -> Row:
    """A program by the draws of its items and its hub, of which every round must be seen, and by what a user moves."""
    made = programs()[name]()

    def seen(share: float, runs: int) -> bool:
        p_values = made.drawn(runs, keys=quiet(share)).p_values()
        return all(p < _ALPHA / len(p_values) for p in p_values.values())

    steps = tuple(made.runs * more for more in _MORE)
    cells = {f"noise x {share:g}": _first(steps, partial(seen, share)) for share in sizes.shares}
    smallest = {
        NOISE: _smallest(sizes.factors, lambda c: _first(steps, lambda n: seen(1 / c, n)) is not None)
    }
    honest = not made.drawn(made.runs).fault(_ALPHA, made.stated)
    unmet = made.drawn(1, build=Unmet).fault(_ALPHA, made.stated)
    cells["hub without noise"] = 1 if unmet else None
    if made.move is not None:
        move, most = made.move, 1 + ROUNDING
        honest &= move(made.program) <= most
        cells["norm x 2"] = 1 if move(Louder(made.program, 2.0)) > most else None
        smallest[NORM] = _smallest(sizes.factors, lambda c: move(Louder(made.program, c)) > most)
    return Row(name, honest, cells, smallest)


def choice_row(name: str, sizes: Sizes) -> Row:
    """A mechanism by its rankings; the noise of a choice is its range."""
    made = choices()[name]()

    def seen(factor: float, runs: int) -> bool:
        return made.p_value(runs, plan=scaled(made.plan, factor)) < _ALPHA

    steps = tuple(made.runs * more for more in _MORE)
    cells = {f"noise x {share:g}": _first(steps, partial(seen, 1 / share)) for share in sizes.shares}
    smallest = {RANGE: _smallest(sizes.factors, lambda c: _first(steps, lambda n: seen(c, n)) is not None)}
    return Row(f"choice, {name}", made.p_value(made.runs) > _ALPHA, cells, smallest)


def markdown(table_rows: list[Row]) -> str:
    """A table: per program the trials that refute each fault, and the smallest factor on epsilon that is seen."""
    faults = list(dict.fromkeys(fault for row in table_rows for fault in row.cells))
    lines = []
    for row in table_rows:
        cells = [
            ("no" if row.cells[f] is None else f"{row.cells[f]}") if f in row.cells else "" for f in faults
        ]
        smallest = ", ".join(f"{kind} {factor or 'none'}" for kind, factor in row.smallest.items())
        lines.append([row.name, *cells, smallest])
    return markdown_table(["program", *faults, "smallest factor seen"], lines)
