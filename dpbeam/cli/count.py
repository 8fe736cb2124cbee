"""`dpbeam count`: noisy numbers of users of the items of a public list."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpbeam.cli.flags import (
    READ,
    FlagParser,
    add_budget_flags,
    add_input_flags,
    add_output_flags,
    require,
)
from dpbeam.cli.loading import importing
from dpbeam.cli.settings import PlanFlags, input_spec
from dpbeam.families.registry import families
from dpbeam.jobs.checks import check_budget, check_test_key, warn_of_budget, within_arithmetic
from dpbeam.jobs.result import run_release

if TYPE_CHECKING:
    import apache_beam as beam

    from dpbeam.counting.config import CountPlan
    from dpbeam.engine.beam.store import RunFolder
    from dpbeam.jobs.job import Job

FAMILY = families()["count"]


def make_parser() -> FlagParser:
    """The flags of count."""
    parser = FlagParser(
        "count", "Noisy numbers of users of every item of a public list, under differential privacy."
    )
    add_input_flags(parser)
    add_budget_flags(parser)
    parser.add_argument(
        "--domain",
        metavar="FILE",
        type=READ,
        help="the public list, one item per line or Parquet; all of its items are counted; required",
    )
    add_output_flags(parser)
    parser.discard("max_items_per_user", instead="the clip follows from the budget")
    parser.discard("public_items", instead="use --domain")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code (`dpbeam.jobs.exit_codes`)."""
    argv = list(sys.argv[1:] if argv is None else argv)
    return run_release("count", argv, lambda: make_parser().parse(argv), _run)


def _run(given: dict[str, Any], beam_arguments: list[str]) -> int:
    require(given, "epsilon", "delta", "input", "domain", "output")
    check_budget(given)
    check_test_key(given)
    with importing():
        from dpbeam.counting.config import CountConfig, plan_count
    spec = input_spec(given)
    with within_arithmetic(given):
        plan = plan_count(CountConfig(given["epsilon"], given["delta"]))
    with importing():
        from dpbeam.counting.report import count_ledger
        from dpbeam.counting.transforms import CountItems  # noqa: F401
        from dpbeam.jobs.job import Job

    job = Job.create("count", given, beam_arguments, spec)
    ledger = count_ledger(
        plan,
        input_parameters=job.input_parameters(),
        fixed_key=job.key.insecure,
        privacy_unit=job.privacy_unit,
    ).to_json()
    warn_of_budget(given)
    if given.get("dry_run", False):
        from dpbeam.cli.tables import print_plan

        if not job.quiet:
            print_plan(FAMILY, FAMILY.report(plan))
        return job.end_dry_run(ledger)
    return _execute(plan, job, ledger)


def _plan_report(given: dict[str, Any]) -> dict[str, Any]:
    from dpbeam.counting.config import CountConfig, plan_count

    return FAMILY.report(plan_count(CountConfig(given["epsilon"], given["delta"])))


PLAN = PlanFlags(flags=(), report=_plan_report)


def _execute(plan: CountPlan, job: Job, ledger: str) -> int:
    from dpbeam.counting.transforms import CountItems
    from dpbeam.io.item_lists import read_items
    from dpbeam.io.sinks import OutputColumns, WriteReleased

    spec, summary = job.reading
    columns = OutputColumns.of(spec, summary.kinds, noisy_count=True)
    domain = read_items(job.given["domain"], OutputColumns.of(spec, summary.kinds), "--domain")

    def build(pipeline: beam.Pipeline, folder: RunFolder) -> None:
        counts = job.read(pipeline, folder) | "Count" >> CountItems(
            plan.config,
            run=folder,
            domain=(domain, summary.kinds),
            pairs=job.pairs_estimate,
            item_bytes=summary.item_bytes,
            num_shards=job.given.get("num_shards"),
            complete=spec.complete_users,
        )
        _ = counts | "WriteCounts" >> WriteReleased(
            job.target.staging, columns, job.target.format, job.given.get("num_output_shards")
        )

    def report(paths: list[str], released: int) -> None:
        more = f" and {len(paths) - 2} more" if len(paths) > 2 else ""
        job.say(f"{released} items counted: {paths[0]}{more}")
        config = plan.config
        job.say(f"budget spent: epsilon {config.epsilon:g}, delta {config.delta:g} (gaussian composition)")

    return job.run(build, ledger, report=report, passes=3, rounds=1)
