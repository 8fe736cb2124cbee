"""The order in which every command releases, from flags to what is said at the end; a command says what is its own.

What is wrong is said as early as it can be known: flags before large imports, settings before the input is opened, the
input before the plan is shown, and all of it before anything is charged or drawn.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from dpbeam.cli.flags import FlagParser, SelectionOptions
from dpbeam.cli.loading import importing
from dpbeam.cli.settings import input_spec, naming_selector
from dpbeam.families.base import Release
from dpbeam.jobs.checks import (
    check_budget,
    check_test_key,
    released_nothing,
    warn_of_budget,
    within_arithmetic,
)
from dpbeam.jobs.console import warn
from dpbeam.jobs.options import BudgetOptions, Options
from dpbeam.jobs.result import run_release

if TYPE_CHECKING:
    import apache_beam as beam
    import pyarrow as pa
    from apache_beam.pvalue import PCollection

    from dpbeam.accounting.ledger import Ledger
    from dpbeam.engine.beam.driver import ProgramRun
    from dpbeam.engine.beam.store import RunFolder
    from dpbeam.engine.program import Program
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.jobs.job import Job


class PlannedCommand(ABC):
    """The command of a family, and how `dpbeam plan` plans what it does; stands in its module as `COMMAND`.

    Attributes:
      family: that it releases.
      options: its flags.
      guarantee: of what it releases, for its help.
      plan_flags: of this family, perhaps with others, beside those of its settings; refused elsewhere.
      plan_requires: flags without which nothing can be planned, beside the budget.
      implied_by: a flag, perhaps of a config file alone, that says without --family that this family is meant.
      zero_delta: whether --delta=0 may be.
      draws: whether it has a figure.
    """

    family: ClassVar[type[Release]]
    options: ClassVar[type[Options]]
    guarantee: ClassVar[str] = "differential privacy"
    plan_flags: ClassVar[tuple[str, ...]] = ()
    plan_requires: ClassVar[tuple[str, ...]] = ()
    implied_by: ClassVar[str | None] = None
    zero_delta: ClassVar[bool] = False
    draws: ClassVar[bool] = False

    @property
    def own_flags(self) -> tuple[str, ...]:
        """Flags of `dpbeam plan` that are of this family, and not of every selection."""
        return (*(self.family.described().keys() - set(SelectionOptions.names())), *self.plan_flags)

    @property
    def asked_by(self) -> str:
        """The flag that asks `dpbeam plan` for this family."""
        return self.implied_by if self.implied_by in self.own_flags else f"family={self.family.name}"

    @property
    def text(self) -> str:
        """What it does, for its help."""
        return f"{self.family.summary[0].upper()}{self.family.summary[1:]}, under {self.guarantee}."

    def make_parser(self) -> FlagParser:
        """The flags."""
        return FlagParser(self.family.name, self.text, self.options)

    def plan(self, options: Any) -> Any:
        """The settings among the flags, calibrated; looks at no data."""
        return self.asked(options).plan()

    def asked(self, options: Any) -> Any:
        """The settings among the flags."""
        said = {**options.said, "settings": options.said.get("set", {})}
        public = next((name for name in ("domain", "public_domain") if said.get(name)), None)
        return self.family.asked(said, public)

    def plan_shown(self, options: Any) -> tuple[Any, dict[str, Any]]:
        """What `dpbeam plan` plans, and what it shows of that, for `Release.shown`."""
        plan = self.plan(options)
        return plan, self.family.report(plan)

    def users(self, plan: Any) -> int | None:
        """How many users there publicly are, where the plan says it."""
        return None

    def draw_plan(self, plan: Any, report: Mapping[str, Any], format: str) -> bytes:
        """The figure of a plan, in a format of `dpbeam.figures`, for a family that draws."""
        raise NotImplementedError


class ReleaseCommand(PlannedCommand):
    """A command that releases once.

    Attributes:
      requires: flags without which nothing can be released.
      settings: the module that makes plans, loaded before Beam is.
      done: what has become of the items, for the message at the end.
      not_done: what a dry run ends with.
    """

    requires: ClassVar[tuple[str, ...]]
    settings: ClassVar[str]
    done: ClassVar[str] = "released"
    not_done: ClassVar[str] = "nothing was read or written"

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Entry point; returns the exit code (`dpbeam.jobs.exit_codes`)."""
        argv = list(sys.argv[1:] if argv is None else argv)
        return run_release(self.family.name, argv, lambda: self.make_parser().parse(argv), self._run)

    def _run(self, options: BudgetOptions, beam_arguments: list[str]) -> int:
        options.require(*self.requires)
        check_budget(options, zero_delta=self.zero_delta)
        check_test_key(options)
        self.check(options)
        # Heavy imports only now, so that --help and wrong flags answer at once; Beam, the heaviest, last.
        with importing():
            import_module(self.settings)
        plan, job = self.prepare(options, beam_arguments)
        with job.reading_ends():
            self.check_columns(plan, job)
            listed = self.read_list(plan, job)
            ledger = self.ledger(plan, job, listed)
            ledger.verify()
            warn_of_budget(options, plan.config.doubts(), self.users(plan))
            if options.dry_run:
                return self._print_plan(plan, job, ledger)
            return self.execute(plan, job, listed, ledger)

    def check(self, options: Any) -> None:
        """Refuse flags of this command that do not go together. Raises InputError."""

    @abstractmethod
    def prepare(self, options: Any, beam_arguments: list[str]) -> tuple[Any, Job[Any]]:
        """Plan and job: settings first, so that what is wrong with them is said first."""

    def check_columns(self, plan: Any, job: Job[Any]) -> None:
        """Refuse a column of the input that has the name of a column of the output. Raises InputError."""

    def read_list(self, plan: Any, job: Job[Any]) -> Any:
        """Lists of items that take part in the run."""
        return None

    @abstractmethod
    def ledger(self, plan: Any, job: Job[Any], listed: Any) -> Ledger:
        """What the run costs and how."""

    @abstractmethod
    def execute(self, plan: Any, job: Job[Any], listed: Any, ledger: Ledger) -> int:
        """Run, publish, say what was released; the exit code."""

    def _print_plan(self, plan: Any, job: Job[Any], ledger: Ledger) -> int:
        from dpbeam.cli.tables import print_plan

        if not job.quiet:
            print_plan(self.family, self.family.report(plan))
        for line in self.notes(plan, job):
            job.say(line)
        return job.end_dry_run(ledger, self.not_done)

    def notes(self, plan: Any, job: Job[Any]) -> Iterable[str]:
        """Lines about this run below its plan."""
        return ()


class ProgramCommand(ReleaseCommand):
    """A command whose release is what the program of its family makes of pairs.

    Attributes:
      list_flag: names the public list of items.
    """

    list_flag: ClassVar[str] = "domain"

    def prepare(self, options: Any, beam_arguments: list[str]) -> tuple[Any, Job[Any]]:
        spec = input_spec(options)
        with within_arithmetic(options):
            plan = self.plan(options)
        with importing():
            from dpbeam.jobs.job import Job
            from dpbeam.jobs.running import run_program  # noqa: F401
            from dpbeam.selection.transforms import UserBlocks  # noqa: F401
        return plan, Job.create(self.family.name, options, beam_arguments, spec)

    def check_columns(self, plan: Any, job: Job[Any]) -> None:
        self._writer(plan, job)

    def _writer(self, plan: Any, job: Job[Any]) -> beam.PTransform:
        from dpbeam.io.sinks import OutputColumns

        spec, summary = job.reading
        columns = OutputColumns.of(spec, summary.kinds)
        asked = (name for name in job.options.said if getattr(job.options, name))
        return self.writer(plan, job, replace(columns, added=plan.config.columns(*asked)))

    def read_list(self, plan: Any, job: Job[Any]) -> Any:
        """Canonical bytes of the public list, None without."""
        from dpbeam.io.item_lists import read_items
        from dpbeam.io.sinks import OutputColumns

        if self.list_flag not in job.options.said:
            return None
        spec, summary = job.reading
        columns = OutputColumns.of(spec, summary.kinds)
        return read_items(job.options.said[self.list_flag], columns, f"--{self.list_flag}")

    def ledger(self, plan: Any, job: Job[Any], listed: Any, **more: Any) -> Ledger:
        return self.family.ledger(
            plan,
            input_parameters=job.input_parameters(),
            fixed_key=job.key.insecure,
            privacy_unit=job.privacy_unit,
            **more,
        )

    def execute(self, plan: Any, job: Job[Any], listed: Any, ledger: Ledger) -> int:
        from dpbeam.engine.program import check_trips
        from dpbeam.jobs.running import run_program

        program, writer = self.program(plan, job, listed), self._writer(plan, job)
        check_trips(program)  # before anything is charged

        def make_run(folder: RunFolder) -> ProgramRun:
            return self.program_run(folder, program, writer, job, listed)

        def report(paths: list[str], released: int) -> None:
            self.report(plan, job, paths, released)

        def after(folder: RunFolder) -> None:
            self.after(plan, program, job, folder)

        return run_program(
            job,
            make_run,
            ledger,
            report=report,
            trips=program.trips,
            rounds=self.rounds(plan, program),
            after=after,
            rows_beside=self.rows_beside(listed),
        )

    def after(self, plan: Any, program: Program, job: Job[Any], folder: RunFolder) -> None:
        """What is left to do with a run's folder when its program has come to its end."""

    def rows_beside(self, listed: Any) -> int:
        """How many rows more the output has than the program's result."""
        return 0

    @abstractmethod
    def program(self, plan: Any, job: Job[Any], listed: Any) -> Program:
        """What runs."""

    def program_run(
        self, folder: RunFolder, program: Program, writer: beam.PTransform, job: Job[Any], listed: Any
    ) -> ProgramRun:
        """The program with its input and what is done with its result."""
        domain = listed if self.family.listed_alone else None
        return self.run_of(folder, program, writer, job, domain=domain)

    def run_of(
        self,
        folder: RunFolder,
        program: Program,
        writer: beam.PTransform,
        job: Job[Any],
        *,
        domain: pa.Array | None = None,
        before: Callable[[PCollection], PCollection] = lambda pairs: pairs,
    ) -> ProgramRun:
        """Read, group into blocks, run, write.

        Args:
          domain: a list of items to keep to.
          before: done to the pairs before they are grouped.
        """
        from dpbeam.engine.beam.driver import ProgramRun
        from dpbeam.selection.transforms import UserBlocks

        spec, _ = job.reading
        sizes = job.sizes
        blocks = UserBlocks(folder.store, program, sizes, complete=spec.complete_users, domain=domain)

        def read(pipeline: beam.Pipeline) -> PCollection:
            return before(job.read(pipeline, folder)) | "UserBlocks" >> blocks

        def write(released: PCollection) -> None:
            _ = released | "Write" >> writer

        return ProgramRun(
            program, read, write, one_step=sizes.one_step, threads=job.threads, relays=sizes.relays
        )

    def writer(self, plan: Any, job: Job[Any], columns: OutputColumns) -> beam.PTransform:
        """Writes what is released to the job's staging folder, items in the order of their bytes."""
        from dpbeam.io.sinks import WriteReleased

        return WriteReleased(job.target.staging, columns, job.target.format, job.output_files)

    def rounds(self, plan: Any, program: Program) -> int:
        """Of the method, for messages on the way: where a round takes several trips, these are called passes."""
        selection = self.family.selection_of(plan)
        return 1 if selection is None else len(selection.rounds)

    @abstractmethod
    def how(self, plan: Any) -> str:
        """How the budget was spent, in brief."""

    def report(self, plan: Any, job: Job[Any], paths: list[str], released: int) -> None:
        """What the person at the terminal learns at the end; `paths`: the ledger is the last."""
        from dpbeam.selection.report import plan_report

        selection, config = self.family.selection_of(plan), plan.config
        meaning = None if selection is None else plan_report(selection)
        if not released and meaning is not None:
            warn(released_nothing(meaning))
        more = f" and {len(paths) - 2} more" if len(paths) > 2 else ""
        job.say(f"{released} items {self.done}: {paths[0]}{more}")
        left_out = self.list_flag == "domain" and self.family.listed_alone
        for line in (*_decided(meaning), *_dropped(job, left_out)):
            job.say(line)
        job.say(f"budget spent: epsilon {config.epsilon:g}, delta {config.delta:g} ({self.how(plan)})")
        if job.options.not_private_counts is not None:
            job.say(f"counts of what was dropped (NOT PRIVATE): {job.options.not_private_counts}")


class ChoiceCommand(ProgramCommand):
    """A command that chooses k items, of a public domain or of what a selection releases."""

    requires = ("epsilon", "delta", "k", "input", "output")
    plan_flags = ("selector", "public_domain")
    plan_requires = ("k",)

    def check(self, options: Any) -> None:
        with naming_selector():
            selection = self.asked(options).selection
            if selection is not None:
                selection.request()

    def plan(self, options: Any) -> Any:
        with naming_selector():
            return super().plan(options)

    def writer(self, plan: Any, job: Job[Any], columns: OutputColumns) -> beam.PTransform:
        """Writes items in the order of their rank."""
        from dpbeam.io.sinks import WriteRanked

        columns.check_free(plan.config.added)  # reserved, whether they are asked for or not
        return WriteRanked(job.target.staging, columns, job.target.format)

    def report(self, plan: Any, job: Job[Any], paths: list[str], released: int) -> None:
        if released < plan.config.k:
            job.say(_fewer(plan, released))
        super().report(plan, job, paths, released)


def _decided(meaning: Mapping[str, Any] | None) -> Iterable[str]:
    """What has decided about an item, from the plan of a selection alone (`plan_report`); nothing without one."""
    from dpbeam.selection.report import even_chance

    if meaning is None:
        return
    yield f"method {meaning['method']}: of each user at most {meaning['parameters']['max_items_per_user']} items count"
    yield even_chance(meaning)


def _dropped(job: Job[Any], unlisted: bool) -> Iterable[str]:
    """The rules by which rows or items were left out, and no number of them, which is private.

    Args:
      unlisted: whether items outside of a list were.
    """
    spec, said = job.spec, job.options.said
    rules = {
        "rows without a user or item (--on_null=drop)": spec.on_null == "drop",
        "rows that cannot be read (--on_bad_row=skip)": spec.on_bad_row == "skip",
        "items outside of the list (--domain)": unlisted and "domain" in said,
        f"items of fewer than {said.get('min_users')} users (--min_users)": said.get("min_users", 1) > 1,
    }
    if any(rules.values()):
        yield f"dropped by rule: {'; '.join(rule for rule, holds in rules.items() if holds)}"


def _fewer(plan: Any, released: int) -> str:
    """Why there are fewer items than --k."""
    short = f"fewer than --k={plan.config.k}"
    if plan.selection is not None:
        return f"only {released} items passed the selection, {short}"
    if plan.config.public_domain:
        return f"the domain has only {released} items, {short}"
    return f"only {released} items passed {plan.config.mechanism}, {short}"
