"""`dpbeam hitting-set`: k items that as many users as possible hold one of."""

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
from dpbeam.cli.settings import (
    PlanFlags,
    check_selection,
    input_spec,
    naming_selector,
    selection_config,
    selection_flags,
)
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

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.pvalue import PCollection

    from dpbeam.engine.beam.driver import ProgramRun
    from dpbeam.engine.beam.store import RunFolder
    from dpbeam.hitting.config import HittingSetConfig, HittingSetPlan
    from dpbeam.jobs.job import Job

FAMILY = families()["hitting-set"]


def make_parser() -> FlagParser:
    """The flags of hitting-set."""
    parser = FlagParser(
        "hitting-set",
        "At most k items that as many users as possible hold one of, under differential privacy.",
    )
    add_input_flags(parser)
    add_budget_flags(parser)
    group = parser.add_argument_group("hitting set")
    group.add_argument("--k", type=int, metavar="K", help="how many items; required")
    group.add_argument("--selector", metavar="NAME", help="method of the domain's selection (default gsu)")
    group.add_argument(
        "--selector_share",
        type=float,
        metavar="X",
        help="its share of the budget (default 0.3 to 0.9, growing with k/epsilon)",
    )
    group.add_argument(
        "--domain",
        metavar="FILE",
        type=READ,
        help="a public domain, one item per line or Parquet; no selection",
    )
    add_method_flags(parser)
    add_output_flags(parser)
    add_checkpoint_flags(parser)
    parser.discard("method", instead="use --selector")
    parser.discard("public_items", "noisy_weights", "num_output_shards")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code (`dpbeam.jobs.exit_codes`)."""
    argv = list(sys.argv[1:] if argv is None else argv)
    return run_release("hitting-set", argv, lambda: make_parser().parse(argv), _run)


def _run(given: dict[str, Any], beam_arguments: list[str]) -> int:
    require(given, "epsilon", "delta", "k", "input", "output")
    check_budget(given)
    check_test_key(given)
    if "selector" in given:
        with naming_selector():
            check_selection({**given, "method": given["selector"]})
    # Heavy imports only now, so that --help and wrong flags answer at once; Beam, the heaviest, last.
    with importing():
        from dpbeam.hitting.config import plan_hitting_set
    spec = input_spec(given)
    with within_arithmetic(given), naming_selector():
        plan = plan_hitting_set(config_of(given))
    with importing():
        from dpbeam.hitting.report import hitting_set_ledger
        from dpbeam.hitting.transforms import HittingSet  # noqa: F401
        from dpbeam.jobs.job import Job

    job = Job.create("hitting-set", given, beam_arguments, spec)
    ledger = hitting_set_ledger(
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


def config_of(given: dict[str, Any]) -> HittingSetConfig:
    """The settings among the given flags.

    Raises:
      InputError: flags of a selection where the domain is public.
    """
    from dpbeam.hitting.config import DEFAULT_SELECTOR, HittingSetConfig

    config = HittingSetConfig(
        given["epsilon"],
        given["delta"],
        given["k"],
        selector_share=given.get("selector_share"),
        public_domain="domain" in given or given.get("public_domain", False),
    )
    if not config.public_domain:
        chosen = {**given, "method": given.get("selector", DEFAULT_SELECTOR)}
        return replace(config, selection=selection_config(chosen))
    public = "--domain" if "domain" in given else "--public_domain"
    for name in ("selector", "selector_share", *selection_flags(given)):
        if name in given:
            raise InputError(
                f"--{name} belongs to a selection stage, and {public} leaves none: drop one of them"
            )
    return config


def _plan_report(given: dict[str, Any]) -> dict[str, Any]:
    from dpbeam.hitting.config import plan_hitting_set

    with naming_selector():
        return FAMILY.report(plan_hitting_set(config_of(given)))


PLAN = PlanFlags(
    flags=("k", "selector", "selector_share", "public_domain"), report=_plan_report, required=("k",)
)


def _execute(plan: HittingSetPlan, job: Job, ledger: str) -> int:
    from dpbeam.io.sinks import OutputColumns

    spec, summary = job.reading
    columns = OutputColumns.of(spec, summary.kinds)
    domain = None
    if "domain" in job.given:
        from dpbeam.io.item_lists import read_items

        domain = read_items(job.given["domain"], columns, "--domain")

    from dpbeam.engine.beam.driver import ProgramRun
    from dpbeam.hitting.transforms import HittingSet
    from dpbeam.io.ranked import WriteRanked

    transform = HittingSet(
        plan.config,
        domain=None if domain is None else (domain, summary.kinds),
        pairs=job.pairs_estimate,
        item_bytes=summary.item_bytes,
        num_shards=job.given.get("num_shards"),
        complete=spec.complete_users,
    )
    program = transform.program

    def made(folder: RunFolder) -> ProgramRun:
        def read(pipeline: beam.Pipeline) -> PCollection:
            return job.read(pipeline, folder) | "HittingSet" >> transform.blocks(folder.store)

        return ProgramRun(
            program, read, write, one_step=transform.sizes.one_step, relays=transform.sizes.relays
        )

    def write(ranking: PCollection) -> None:
        ranked = WriteRanked(job.target.staging, columns, job.target.format, noisy_counts=False)
        _ = ranking | "WriteRanked" >> ranked

    def report(paths: list[str], released: int) -> None:
        _report(plan, job, paths, released)

    return job.run_program(made, ledger, report=report, trips=program.trips, rounds=program.trips)


def _report(plan: HittingSetPlan, job: Job, paths: list[str], released: int) -> None:
    """What the person at the terminal learns at the end."""
    config = plan.config
    if released < config.k:
        job.say(f"fewer items than --k={config.k}: the domain has no more")
    if released == 0 and plan.selection is not None:
        from dpbeam.selection.report import plan_report

        warn(released_nothing(plan_report(plan.selection)))
    job.say(f"{released} items released: {paths[0]}")
    before = "public domain"
    if plan.selection is not None:
        before = f"selection by {plan.selection.config.method} at share {config.selector_share:g}"
    choices = f"{config.k} choices of range {plan.epsilon0:.4g} by {100 * plan.rate:g} % of the users"
    how = f"{before}, {choices}; {plan.composition} composition"
    job.say(f"budget spent: epsilon {config.epsilon:g}, delta {config.delta:g} ({how})")
