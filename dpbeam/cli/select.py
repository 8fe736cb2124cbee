"""`dpbeam select`: release the items that many users hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dpbeam.cli.flags import AdviceOptions, SelectionOptions, merged
from dpbeam.cli.release import ProgramCommand
from dpbeam.errors import SettingError
from dpbeam.jobs.console import warn
from dpbeam.jobs.options import (
    READ,
    BudgetOptions,
    CheckpointOptions,
    InputOptions,
    ReleaseOptions,
    SettingFlags,
    flag,
    switch,
)
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.shown import recommendation
from dpbeam.selectors.registry import advised, as_flags, find

if TYPE_CHECKING:
    import apache_beam as beam

    from dpbeam.accounting.ledger import Ledger
    from dpbeam.engine.beam.driver import ProgramRun
    from dpbeam.engine.beam.store import RunFolder
    from dpbeam.engine.program import Program
    from dpbeam.io.known import KnownReleases
    from dpbeam.jobs.job import Job
    from dpbeam.selection.plan import SelectionPlan
    from dpbeam.selection.public_items import ListedBeside


class SelectOptions(
    InputOptions,
    BudgetOptions,
    AdviceOptions,
    SelectionOptions,
    ReleaseOptions,
    CheckpointOptions,
):
    """Settings of a selection, its input and its output."""

    release = SettingFlags(SelectionConfig, alone=True)
    degrees: list[int] | None = None  # of `dpbeam plan` alone
    others: bool = False
    known: list[str] | None = flag(
        "PREFIX",
        "earlier releases, by prefix or ledger: their items cost nothing and are marked",
        type=READ,
        nargs="+",
        action="extend",
    )
    only_new: bool = switch("with --known, write the new items alone")


@dataclass(frozen=True)
class ListedItems:
    """What is released beside a selection, and the known releases in it as the ledger names them; None without."""

    beside: ListedBeside
    named: list[dict[str, Any]] | None = None


class SelectCommand(ProgramCommand):
    """`dpbeam select`."""

    family = SelectionConfig
    options = SelectOptions
    requires = ("input", "epsilon", "delta", "output")
    settings = "dpbeam.selection.plan"
    list_flag = "public_items"
    draws = True

    def check(self, options: SelectOptions) -> None:
        self.asked(options).request()  # before anything large is imported
        if options.only_new and options.known is None:
            raise SettingError("--only_new needs --known, which says what is not new")
        if options.only_new and options.others:
            raise SettingError(
                "--others counts users that hold neither known nor new items: drop it, or --only_new"
            )

    def asked(self, options: SelectOptions) -> SelectionConfig:
        """The settings among the flags, completed by what is recommended unless another method is named."""
        recommended = _advice(options)
        if recommended is not None:
            del recommended["why"]
            if options.method is None or find(options.method).name == recommended["method"]:
                options = SelectOptions(merged(as_flags(recommended), options.said))
        config: SelectionConfig = super().asked(options)
        return config

    def plan_shown(self, options: SelectOptions) -> tuple[SelectionPlan, dict[str, Any]]:
        from dpbeam.selection.report import plan_report

        degrees = options.degrees
        if degrees and min(degrees) < 1:
            raise SettingError("--degrees must be at least 1")
        plan, advice = self.plan(options), _advice(options)
        recommended = {} if advice is None else {"recommended": advice}
        return plan, {**plan_report(plan, degrees), **recommended}

    def draw_plan(self, plan: SelectionPlan, report: Mapping[str, Any], format: str) -> bytes:
        from dpbeam.selection.curves import draw_plan

        return draw_plan(plan, report, format)

    def prepare(
        self, options: SelectOptions, beam_arguments: list[str]
    ) -> tuple[SelectionPlan, Job[SelectOptions]]:
        plan, job = super().prepare(options, beam_arguments)
        if (advice := _advice(options)) is not None:
            job.say(recommendation(advice))
        return plan, job

    def notes(self, plan: SelectionPlan, job: Job[SelectOptions]) -> Iterable[str]:
        spec, summary = job.reading
        yield f"input: {len(summary.files)} files of format {spec.format}; output: {job.target.path}"

    def read_list(self, plan: SelectionPlan, job: Job[SelectOptions]) -> ListedItems:
        import pyarrow as pa

        from dpbeam.selection.public_items import ListedBeside

        public, known = super().read_list(plan, job), _known(job)
        if known is None:
            return ListedItems(ListedBeside(plan, public))
        job.say(
            f"known: {len(known.items)} items of {len(known.named)} releases take no part in the selection"
        )
        items = pa.chunked_array([known.items, *([] if public is None else [public])]).unique()
        only_new = job.options.only_new
        return ListedItems(ListedBeside(plan, items, known.items, only_new), known.named)

    def ledger(
        self, plan: SelectionPlan, job: Job[SelectOptions], listed: ListedItems, **more: Any
    ) -> Ledger:
        public = job.options.public_items is not None
        return super().ledger(
            plan, job, listed, public_items=public, known=listed.named, only_new=job.options.only_new
        )

    def program(self, plan: SelectionPlan, job: Job[SelectOptions], listed: ListedItems) -> Program:
        return listed.beside.program

    def rows_beside(self, listed: ListedItems) -> int:
        return listed.beside.rows

    def program_run(
        self,
        folder: RunFolder,
        program: Program,
        writer: beam.PTransform,
        job: Job[SelectOptions],
        listed: ListedItems,
    ) -> ProgramRun:
        beside, store = listed.beside, folder.store
        beside.put(store)
        run = self.run_of(
            folder,
            program,
            writer,
            job,
            before=lambda pairs: beside.leave_out(pairs, store, complete=job.reading[0].complete_users),
        )
        return replace(run, write=lambda released: run.write(beside.add_to(released, store)))

    def after(
        self, plan: SelectionPlan, program: Program, job: Job[SelectOptions], folder: RunFolder
    ) -> None:
        from dpbeam.selection.transforms import others_of

        job.others = others_of(plan, program, folder)

    def report(self, plan: SelectionPlan, job: Job[SelectOptions], paths: list[str], released: int) -> None:
        super().report(plan, job, paths, released)
        if job.options.method is None and job.options.items_per_user is None:
            job.say(
                "no method was named: --items_per_user, of public knowledge, recommends one for the next release"
            )
        if job.others is not None:
            job.say(
                f"others: {job.others.users} users hold none of them (standard deviation {job.others.sd:.1f})"
            )

    def how(self, plan: SelectionPlan) -> str:
        return f"method {plan.config.method}, {len(plan.rounds)} rounds, {plan.accounting} accounting"


def _advice(options: SelectOptions) -> dict[str, Any] | None:
    """The method and settings recommended for users of so many items, and `why`; None where nobody asks.

    Raises:
      InputError: a number is out of range, or that of rare items stands alone.
    """
    if options.items_per_user is None:
        if options.rare_items_of_holder is not None:
            raise SettingError("--rare_items_of_holder needs --items_per_user")
        return None
    selector, advice = advised(options.items_per_user, options.rare_items_of_holder)
    return {"method": selector.name, **advice.settings, "why": advice.why}


def _known(job: Job[SelectOptions]) -> KnownReleases | None:
    from dpbeam.io.known import FLAG, read_known
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.selection.known import differences

    if job.options.known is None:
        return None
    spec, summary = job.reading
    columns = OutputColumns.of(spec, summary.kinds)
    known = read_known(job.options.known, columns, insecure=job.key.insecure)
    for prefix, ledger in known.ledgers.items():
        for difference in differences(ledger, job.privacy_unit, job.options.said.get("dataset")):
            warn(f"{FLAG}: '{prefix}' may tell of other users: {difference}")
    return known


COMMAND = SelectCommand()
make_parser, main = COMMAND.make_parser, COMMAND.main
