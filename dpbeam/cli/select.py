"""`dpbeam select`: release the items that many users hold."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpbeam.cli.flags import (
    READ,
    FlagParser,
    add_budget_flags,
    add_checkpoint_flags,
    add_input_flags,
    add_method_flags,
    add_output_flags,
    require,
)
from dpbeam.cli.loading import importing
from dpbeam.cli.settings import PlanFlags, check_selection, input_spec, selection_config
from dpbeam.errors import InputError
from dpbeam.families.registry import families
from dpbeam.jobs.checks import (
    check_budget,
    check_test_key,
    released_nothing,
    warn_of_budget,
    within_arithmetic,
)
from dpbeam.jobs.console import warn
from dpbeam.jobs.result import run_release
from dpbeam.selectors.registry import advised, find

if TYPE_CHECKING:
    import apache_beam as beam
    import pyarrow as pa
    from apache_beam.pvalue import PCollection

    from dpbeam.accounting.ledger import Ledger
    from dpbeam.engine.beam.driver import ProgramRun
    from dpbeam.engine.beam.store import RunFolder
    from dpbeam.io.known import KnownReleases
    from dpbeam.jobs.job import Job
    from dpbeam.selection.config import SelectionConfig
    from dpbeam.selection.plan import SelectionPlan
    from dpbeam.selection.public_items import ListedBeside

FAMILY = families()["select"]


def make_parser() -> FlagParser:
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
    parser.add_argument(
        "--known",
        nargs="+",
        action="extend",
        metavar="PREFIX",
        type=READ,
        help="earlier releases, by prefix or ledger: their items cost nothing, and the output says which items are new",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code (`dpbeam.jobs.exit_codes`)."""
    argv = list(sys.argv[1:] if argv is None else argv)
    return run_release("select", argv, lambda: make_parser().parse(argv), _run)


def _run(given: dict[str, Any], beam_arguments: list[str]) -> int:
    require(given, "input", "epsilon", "delta", "output")
    check_budget(given)
    check_test_key(given)
    check_selection(given)
    # Heavy imports only now, so that --help and wrong flags answer at once; Beam, the heaviest, last.
    with importing():
        from dpbeam.selection.plan import make_plan
    spec = input_spec(given)
    with within_arithmetic(given):
        plan = make_plan(config_of(given))
    with importing():
        from dpbeam.jobs.job import Job
        from dpbeam.selection.transforms import UserBlocks  # noqa: F401

    job = Job.create("select", given, beam_arguments, spec)
    public, known = _public_items(given, job), _known(given, job)
    ledger = _ledger(plan, job, known).to_json()
    warn_of_budget(given)
    if known is not None:
        job.say(
            f"known: {len(known.items)} items of {len(known.named)} releases take no part in the selection"
        )
    if given.get("dry_run", False):
        return _print_plan(plan, job, ledger)
    return _execute(plan, job, _beside(plan, job, public, known), ledger)


def config_of(given: dict[str, Any]) -> SelectionConfig:
    """The settings among the given flags."""
    counts = {name: given[name] for name in ("noisy_counts", "noisy_count_share") if name in given}
    return replace(selection_config(given), **counts)


def _plan_report(given: dict[str, Any]) -> dict[str, Any]:
    from dpbeam.selection.plan import make_plan
    from dpbeam.selection.report import plan_report

    degrees = given.get("degrees")
    if degrees and min(degrees) < 1:
        raise InputError("--degrees must be at least 1")
    chosen, advice = _advised(given)
    return {**plan_report(make_plan(config_of(chosen)), degrees), **advice}


def _advised(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The flags, completed by what is recommended unless another method is given; and the recommendation to report."""
    if "items_per_user" not in given:
        return given, {}
    selector, advice = advised(given["items_per_user"])
    recommended = {"method": selector.name, **advice.settings}
    report = {"recommended": {**recommended, "why": advice.why}}
    other = "method" in given and find(given["method"]) is not selector
    return (given if other else {**recommended, **given}), report


PLAN = PlanFlags(flags=("noisy_counts", "noisy_count_share"), report=_plan_report)


def _public_items(given: dict[str, Any], job: Job) -> pa.Array | None:
    from dpbeam.io.item_lists import read_items
    from dpbeam.io.sinks import OutputColumns

    if "public_items" not in given:
        return None
    spec, summary = job.reading
    return read_items(given["public_items"], OutputColumns.of(spec, summary.kinds), "--public_items")


def _known(given: dict[str, Any], job: Job) -> KnownReleases | None:
    from dpbeam.io.known import FLAG, read_known
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.selection.known import differences

    if "known" not in given:
        return None
    spec, summary = job.reading
    columns = OutputColumns.of(spec, summary.kinds)
    known = read_known(given["known"], columns, insecure=job.key.insecure)
    for prefix, ledger in known.ledgers.items():
        for difference in differences(ledger, job.privacy_unit, given.get("dataset")):
            warn(f"{FLAG}: '{prefix}' may tell of other users: {difference}")
    return known


def _beside(
    plan: SelectionPlan, job: Job, public: pa.Array | None, known: KnownReleases | None
) -> ListedBeside:
    import pyarrow as pa

    from dpbeam.selection.public_items import ListedBeside

    kinds = job.reading[1].kinds
    if known is None:
        return ListedBeside(plan, public, kinds)
    lists = [known.items, *([] if public is None else [public])]
    return ListedBeside(plan, pa.chunked_array(lists).unique(), kinds, known.items)


def _ledger(plan: SelectionPlan, job: Job, known: KnownReleases | None) -> Ledger:
    from dpbeam.selection.ledger import selection_ledger

    return selection_ledger(
        plan,
        input_parameters=job.input_parameters(),
        fixed_key=job.key.insecure,
        privacy_unit=job.privacy_unit,
        public_items="public_items" in job.given,
        known=None if known is None else known.named,
    )


def _print_plan(plan: SelectionPlan, job: Job, ledger: str) -> int:
    from dpbeam.cli.tables import print_plan

    if not job.quiet:
        print_plan(FAMILY, FAMILY.report(plan))
    spec, summary = job.reading
    job.say(f"input: {len(summary.files)} files of format {spec.format}; output: {job.target.prefix}")
    return job.end_dry_run(ledger)


def _execute(plan: SelectionPlan, job: Job, beside: ListedBeside, ledger: str) -> int:
    def made(folder: RunFolder) -> ProgramRun:
        return _program_run(folder, beside, job)

    def report(paths: list[str], released: int) -> None:
        _report(plan, job, paths, released)

    return job.run_program(made, ledger, report=report, trips=plan.program.trips, rounds=len(plan.rounds))


def _report(plan: SelectionPlan, job: Job, paths: list[str], released: int) -> None:
    """What the person at the terminal learns at the end."""
    from dpbeam.selection.report import plan_report

    more = f" and {len(paths) - 2} more" if len(paths) > 2 else ""
    job.say(f"{released} items released: {paths[0]}{more}")
    config = plan.config
    how = f"method {config.method}, {len(plan.rounds)} rounds, {plan.accounting} accounting"
    job.say(f"budget spent: epsilon {config.epsilon:g}, delta {config.delta:g} ({how})")
    if not released:
        warn(released_nothing(plan_report(plan)))
    if "not_private_counts" in job.given:
        job.say(f"counts of what was dropped (NOT PRIVATE): {job.given['not_private_counts']}")


def _program_run(folder: RunFolder, beside: ListedBeside, job: Job) -> ProgramRun:
    """Read, leave out items of lists, select, write."""

    from dpbeam.engine.beam.driver import ProgramRun
    from dpbeam.io.sinks import OutputColumns, WriteReleased
    from dpbeam.selection.sizes import choose_sizes
    from dpbeam.selection.transforms import UserBlocks

    spec, summary = job.reading
    complete, store, program = spec.complete_users, folder.store, beside.program
    sizes = choose_sizes(job.pairs_estimate, job.given.get("num_shards"), summary.item_bytes)
    beside.put(store)

    def read(pipeline: beam.Pipeline) -> PCollection:
        pairs = beside.leave_out(job.read(pipeline, folder), store, complete=complete)
        return pairs | "SelectPartitions" >> UserBlocks(store, program, sizes, complete=complete)

    def write(released: PCollection) -> None:
        columns = OutputColumns.of(
            spec,
            summary.kinds,
            noisy_weight=beside.plan.config.noisy_weights,
            noisy_count=beside.plan.config.noisy_counts,
            new=beside.known is not None,
        )
        _ = beside.add_to(released, store) | "WriteReleased" >> WriteReleased(
            job.target.staging, columns, job.target.format, job.given.get("num_output_shards")
        )

    return ProgramRun(program, read, write, one_step=sizes.one_step, relays=sizes.relays)
