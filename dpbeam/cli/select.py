"""`dpbeam select`: release the items that many users hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dpbeam.cli.flags import (
    READ,
    FlagParser,
    add_budget_flags,
    add_checkpoint_flags,
    add_input_flags,
    add_method_flags,
    add_output_flags,
)
from dpbeam.cli.release import ProgramCommand, write_released
from dpbeam.cli.settings import check_selection, selection_config
from dpbeam.errors import InputError
from dpbeam.jobs.console import warn
from dpbeam.selection.family import Select
from dpbeam.selectors.registry import DEFAULT_METHOD, REVIEWED_METHOD, advised, find

if TYPE_CHECKING:
    import apache_beam as beam

    from dpbeam.accounting.ledger import Ledger
    from dpbeam.engine.beam.driver import ProgramRun
    from dpbeam.engine.beam.store import RunFolder
    from dpbeam.engine.program import Program
    from dpbeam.io.known import KnownReleases
    from dpbeam.jobs.job import Job
    from dpbeam.selection.config import SelectionConfig
    from dpbeam.selection.plan import SelectionPlan
    from dpbeam.selection.public_items import ListedBeside


@dataclass(frozen=True)
class Lists:
    """What is released beside a selection, and the known releases in it as the ledger names them; None without."""

    beside: ListedBeside
    named: list[dict[str, Any]] | None = None


class SelectCommand(ProgramCommand):
    family = Select()
    requires = ("input", "epsilon", "delta", "output")
    settings = "dpbeam.selection.plan"
    plan_flags = ("noisy_counts", "noisy_count_share", "others")
    list_flag = "public_items"

    def make_parser(self) -> FlagParser:
        parser = FlagParser("select", "Release the items that many users hold, under differential privacy.")
        add_input_flags(parser)
        add_budget_flags(parser)
        add_method_flags(parser)
        add_output_flags(parser)
        add_checkpoint_flags(parser)
        parser.add_switch("noisy_counts", "release a noisy number of users of every released item")
        parser.add_argument(
            "--noisy_count_share",
            type=float,
            metavar="X",
            help="share of the budget for --noisy_counts (default 0.2)",
        )
        parser.add_switch(
            "others",
            "with --noisy_counts, a noisy number of users that hold nothing of the output; in the ledger",
        )
        parser.add_argument(
            "--known",
            nargs="+",
            action="extend",
            metavar="PREFIX",
            type=READ,
            help="earlier releases, by prefix or ledger: their items cost nothing, and the output says which items "
            "are new",
        )
        return parser

    def check(self, given: dict[str, Any]) -> None:
        check_selection(given)

    def plan(self, given: dict[str, Any]) -> SelectionPlan:
        from dpbeam.selection.plan import make_plan

        return make_plan(config_of(given))

    def plan_report(self, given: dict[str, Any]) -> dict[str, Any]:
        from dpbeam.selection.report import plan_report

        degrees = given.get("degrees")
        if degrees and min(degrees) < 1:
            raise InputError("--degrees must be at least 1")
        chosen, advice = _advised(given)
        return {**plan_report(self.plan(chosen), degrees), **advice}

    def notes(self, plan: SelectionPlan, job: Job) -> Iterable[str]:
        spec, summary = job.reading
        yield f"input: {len(summary.files)} files of format {spec.format}; output: {job.target.prefix}"
        yield from _of_the_default(job)

    def read_list(self, plan: SelectionPlan, job: Job) -> Lists:
        import pyarrow as pa

        from dpbeam.selection.public_items import ListedBeside

        public, known = super().read_list(plan, job), _known(job)
        if known is None:
            return Lists(ListedBeside(plan, public, job.reading[1].kinds))
        job.say(
            f"known: {len(known.items)} items of {len(known.named)} releases take no part in the selection"
        )
        items = pa.chunked_array([known.items, *([] if public is None else [public])]).unique()
        return Lists(ListedBeside(plan, items, job.reading[1].kinds, known.items), known.named)

    def ledger(self, plan: SelectionPlan, job: Job, listed: Lists, **more: Any) -> Ledger:
        public = "public_items" in job.given
        return super().ledger(plan, job, listed, public_items=public, known=listed.named)

    def program(self, plan: SelectionPlan, job: Job, listed: Lists) -> Program:
        return listed.beside.program

    def program_run(
        self, folder: RunFolder, program: Program, writer: beam.PTransform, job: Job, listed: Lists
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

    def after(self, plan: SelectionPlan, program: Program, job: Job, folder: RunFolder) -> None:
        from dpbeam.selection.transforms import others_of

        job.others = others_of(plan, program, folder)

    def report(self, plan: SelectionPlan, job: Job, paths: list[str], released: int) -> None:
        super().report(plan, job, paths, released)
        if job.others is not None:
            job.say(
                f"others: {job.others.users} users hold none of them (standard deviation {job.others.sd:.1f})"
            )
        for line in _of_the_default(job):
            job.say(line)

    def writer(self, plan: SelectionPlan, job: Job) -> beam.PTransform:
        config, new = plan.config, "known" in job.given
        return write_released(
            job, noisy_weight=config.noisy_weights, noisy_count=config.noisy_counts, new=new
        )

    def selection(self, plan: SelectionPlan) -> SelectionPlan:
        return plan

    def how(self, plan: SelectionPlan) -> str:
        return f"method {plan.config.method}, {len(plan.rounds)} rounds, {plan.accounting} accounting"


def config_of(given: dict[str, Any]) -> SelectionConfig:
    """The settings among the given flags."""
    counts = {name: given[name] for name in SelectCommand.plan_flags if name in given}
    return replace(selection_config(given), **counts)


def _advised(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The flags, completed by what is recommended unless another method is given; and the recommendation to report."""
    if "items_per_user" not in given:
        return given, {}
    selector, advice = advised(given["items_per_user"])
    recommended = {"method": selector.name, **advice.settings}
    report = {"recommended": {**recommended, "why": advice.why}}
    other = "method" in given and find(given["method"]) is not selector
    return (given if other else {**recommended, **given}), report


def _of_the_default(job: Job) -> Iterable[str]:
    """What everybody should know who has not chosen a method."""
    if "method" not in job.given and DEFAULT_METHOD != REVIEWED_METHOD:
        yield f"{DEFAULT_METHOD} is the default; its proof is not peer-reviewed, that of --method={REVIEWED_METHOD} is"


def _known(job: Job) -> KnownReleases | None:
    from dpbeam.io.known import FLAG, read_known
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.selection.known import differences

    if "known" not in job.given:
        return None
    spec, summary = job.reading
    columns = OutputColumns.of(spec, summary.kinds)
    known = read_known(job.given["known"], columns, insecure=job.key.insecure)
    for prefix, ledger in known.ledgers.items():
        for difference in differences(ledger, job.privacy_unit, job.given.get("dataset")):
            warn(f"{FLAG}: '{prefix}' may tell of other users: {difference}")
    return known


COMMAND = SelectCommand()
make_parser, main = COMMAND.make_parser, COMMAND.main
