"""`dpbeam top-k`: the k items that most users hold, in order."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpbeam.cli.flags import (
    READ,
    FlagParser,
    add_budget_flags,
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
    from collections.abc import Callable

    import apache_beam as beam
    import numpy as np
    import pyarrow as pa

    from dpbeam.engine.beam.store import RunFolder
    from dpbeam.jobs.job import Job
    from dpbeam.kernels.canonical import Kinds
    from dpbeam.topk.config import TopKConfig, TopKPlan

    Build = Callable[[beam.Pipeline, RunFolder], None]
    Histogram = tuple[pa.Array, np.ndarray, Kinds]

#: Flags of the choice, which `dpbeam plan` takes too.
CHOICE_FLAGS = ("k", "mechanism", "selector", "selector_share", "kbar", "noisy_count_share", "noisy_counts")

FAMILY = families()["top-k"]


def make_parser() -> FlagParser:
    """The flags of top-k."""
    parser = FlagParser("top-k", "The k items that most users hold, in order, under differential privacy.")
    add_input_flags(parser)
    add_budget_flags(parser)
    add_choice_flags(parser)
    group = parser.add_argument_group("items to choose from")
    group.add_argument(
        "--domain",
        metavar="FILE",
        type=READ,
        help="a public domain, one item per line or Parquet; no selection",
    )
    group.add_argument(
        "--histogram",
        metavar="FILE",
        type=READ,
        help="items and counts (Parquet, CSV) instead of --input; which items it lists must be public "
        "(--public_domain), or --mechanism=limited-domain",
    )
    parser.add_switch(
        "public_domain", "the items that --histogram lists are public: only their counts are protected"
    )
    add_method_flags(parser)
    add_output_flags(parser)
    parser.discard("method", instead="use --selector")
    parser.discard("public_items", "noisy_weights", "num_output_shards")
    return parser


def add_choice_flags(parser: FlagParser) -> None:
    """CHOICE_FLAGS: how many items, and how they are chosen."""
    group = parser.add_argument_group("top-k")
    group.add_argument("--k", type=int, metavar="K", help="how many items; required")
    group.add_argument(
        "--mechanism",
        metavar="NAME",
        help="gauss-rank (default), cdp-peel, pnf-peel, joint, fast-joint or limited-domain",
    )
    group.add_argument("--selector", metavar="NAME", help="method of the domain's selection (default gsu)")
    group.add_argument(
        "--selector_share",
        type=float,
        metavar="X",
        help="its share of the budget (default 0.5; of gauss-rank more above k = 100, up to 0.7)",
    )
    group.add_argument(
        "--kbar", type=int, metavar="N", help="limited-domain: counts that take part (default 10 k; 0: all)"
    )
    group.add_argument(
        "--noisy_count_share", type=float, metavar="X", help="share of --noisy_counts (default 0.2)"
    )
    parser.add_switch("noisy_counts", "release a noisy count of every chosen item")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code (`dpbeam.jobs.exit_codes`)."""
    argv = list(sys.argv[1:] if argv is None else argv)
    return run_release("top-k", argv, lambda: make_parser().parse(argv), _run)


def _run(given: dict[str, Any], beam_arguments: list[str]) -> int:
    require(given, "epsilon", "delta", "k", "output")
    check_budget(given, zero_delta=True)
    check_test_key(given)
    _check_domain(given)
    if "selector" in given:
        with naming_selector():
            check_selection({**given, "method": given["selector"]})
    if "histogram" not in given:
        require(given, "input")
    # Heavy imports only now, so that --help and wrong flags answer at once; Beam, the heaviest, last.
    with importing():
        from dpbeam.topk.config import plan_topk
    spec = None if "histogram" in given else input_spec(given)
    with within_arithmetic(given), naming_selector():
        plan = plan_topk(config_of(given))
    with importing():
        from dpbeam.jobs.job import Job
        from dpbeam.topk.report import topk_ledger
        from dpbeam.topk.transforms import TopKItems  # noqa: F401

    if spec is None:
        job = Job.without_input("top-k", given, beam_arguments)
    else:
        job = Job.create("top-k", given, beam_arguments, spec)
    ledger = topk_ledger(
        plan,
        input_parameters=job.input_parameters(),
        fixed_key=job.key.insecure,
        privacy_unit=job.privacy_unit,
    ).to_json()
    warn_of_budget(given)
    if given.get("dry_run", False):
        return _print_plan(plan, job, ledger)
    return _execute(plan, job, ledger)


def _check_domain(given: dict[str, Any]) -> None:
    """A histogram's list of items is somebody's data unless the user says otherwise.

    Raises:
      InputError: it is not said, or said of something else.
    """
    histogram = "histogram" in given
    if "domain" in given and histogram:
        raise InputError("--domain and --histogram exclude each other: a histogram names its items")
    if given.get("public_domain", False):
        if not histogram:
            raise InputError(
                "--public_domain is said of --histogram; for --input give the public items: --domain=FILE"
            )
        if given.get("mechanism") == "limited-domain":
            raise InputError("--mechanism=limited-domain is for unknown items: drop it, or --public_domain")
        return
    if not histogram:
        return
    if given.get("mechanism") != "limited-domain":
        raise InputError(
            "--histogram: which items a histogram lists tells what users hold; pass --public_domain if the list is "
            "public, or --mechanism=limited-domain, or --input, where a selection chooses the items"
        )
    if given.get("kbar") == 0:
        raise InputError(
            "--histogram: --kbar=0 needs a bound on the items of each user, which only --input has"
        )


def _print_plan(plan: TopKPlan, job: Job, ledger: str) -> int:
    from dpbeam.cli.tables import print_plan

    if not job.quiet:
        print_plan(FAMILY, FAMILY.report(plan))
    if "histogram" in job.given:
        job.say(_HISTOGRAM_NOTE[plan.config.public_domain])
    return job.end_dry_run(ledger)


_HISTOGRAM_NOTE = {
    True: "the items that the histogram lists are taken as public: only their counts are protected",
    False: "the items that the histogram lists are protected like their counts, one user holding each at most once",
}


def config_of(given: dict[str, Any]) -> TopKConfig:
    from dpbeam.topk.config import DEFAULT_SELECTOR, TopKConfig

    settings = {
        n: given[n]
        for n in ("mechanism", "selector_share", "noisy_counts", "noisy_count_share", "kbar")
        if n in given
    }
    public = "domain" in given or given.get("public_domain", False)
    config = TopKConfig(given["epsilon"], given["delta"], given["k"], public_domain=public, **settings)
    if config.selects:
        chosen = {**given, "method": given.get("selector", DEFAULT_SELECTOR)}
        return replace(config, selection=selection_config(chosen))
    if "selector" in given:
        raise InputError(
            "--selector needs a selection stage: drop it, or --domain, --histogram, limited-domain"
        )
    limited = config.mechanism == "limited-domain"
    for name in selection_flags(given):
        if "histogram" in given and name == "max_items_per_user":
            raise InputError(
                "--max_items_per_user does not apply to --histogram: nothing is read but its counts"
            )
        if not (limited and name == "max_items_per_user"):
            raise InputError(f"--{name} belongs to a selection stage, and this job has none: drop it")
    if limited:
        return replace(config, max_items_per_user=given.get("max_items_per_user"))
    return config


def _plan_report(given: dict[str, Any]) -> dict[str, Any]:
    from dpbeam.topk.config import plan_topk

    with naming_selector():
        return FAMILY.report(plan_topk(config_of(given)))


PLAN = PlanFlags(
    flags=(*CHOICE_FLAGS, "public_domain"),
    report=_plan_report,
    required=("k",),
    implied_by="k",
    zero_delta=True,
)


def _execute(plan: TopKPlan, job: Job, ledger: str) -> int:
    domain = None
    if "domain" in job.given:
        from dpbeam.io.item_lists import read_items
        from dpbeam.io.sinks import OutputColumns

        spec, summary = job.reading
        domain = read_items(job.given["domain"], OutputColumns.of(spec, summary.kinds), "--domain")
    read = _histogram_reader(job)
    build = _histogram_job(plan, job, read) if "histogram" in job.given else _input_job(plan, job, domain)
    rounds = len(plan.selection.rounds) if plan.selection else 1

    def report(paths: list[str], released: int) -> None:
        _report(plan, job, paths, released)

    first = read if "histogram" in job.given else None
    return job.run(build, ledger, report=report, passes=plan.trips, rounds=rounds, first=first)


def _report(plan: TopKPlan, job: Job, paths: list[str], released: int) -> None:
    """What the person at the terminal learns at the end."""
    config = plan.config
    if released < config.k:
        job.say(f"fewer items than --k={config.k}: the domain, or the mechanism, gives no more")
    if released == 0 and plan.selection is not None:
        from dpbeam.selection.report import plan_report

        warn(released_nothing(plan_report(plan.selection)))
    job.say(f"{released} items released: {paths[0]}")
    selection = "" if plan.selection is None else f"selection by {plan.selection.config.method}, "
    counts = ", noisy counts" if plan.counts else ""
    how = f"{selection}choice by {config.mechanism}{counts}; {plan.composition} composition"
    job.say(f"budget spent: epsilon {config.epsilon:g}, delta {config.delta:g} ({how})")
    if "histogram" in job.given:
        job.say(_HISTOGRAM_NOTE[config.public_domain])


def _input_job(plan: TopKPlan, job: Job, domain: pa.Array | None) -> Build:
    """The job graph: read, keep to a public domain, select and count, choose, write."""
    from dpbeam.io.ranked import WriteRanked
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.topk.transforms import TopKItems

    spec, summary = job.reading
    complete = spec.complete_users
    columns = OutputColumns.of(spec, summary.kinds)
    write = WriteRanked(job.target.staging, columns, job.target.format, noisy_counts=plan.counts is not None)

    def build(pipeline: beam.Pipeline, folder: RunFolder) -> None:
        pairs = job.read(pipeline, folder)
        ranking = pairs | "TopK" >> TopKItems(
            plan.config,
            run=folder,
            domain=None if domain is None else (domain, summary.kinds),
            pairs=job.pairs_estimate,
            item_bytes=summary.item_bytes,
            num_shards=job.given.get("num_shards"),
            complete=complete,
        )
        _ = ranking | "WriteRanked" >> write

    return build


def _histogram_reader(job: Job) -> Callable[[], Histogram]:
    """Reads the histogram, once; InputError where it holds nothing and that is not allowed."""
    from dpbeam.io.histograms import read_histogram
    from dpbeam.io.pairs import NO_ROWS

    @functools.cache
    def read() -> Histogram:
        histogram = read_histogram(job.given["histogram"])
        if not len(histogram[0]) and not job.given.get("allow_empty", False):
            raise InputError(f"--histogram: {NO_ROWS}")
        return histogram

    return read


def _histogram_job(plan: TopKPlan, job: Job, read: Callable[[], Histogram]) -> Build:
    """The job graph for a given histogram: choose and write."""
    from dpbeam.counts.gathered import histogram as columns_of
    from dpbeam.io.ranked import WriteRanked
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.kernels.canonical import METADATA_KEY
    from dpbeam.topk.transforms import ChooseTopK

    def build(pipeline: beam.Pipeline, folder: RunFolder) -> None:
        items, counts, kinds = read()
        given = columns_of(items, counts, kinds.metadata()[METADATA_KEY])
        ranking = pipeline | "ChooseTopK" >> ChooseTopK(folder, plan, given)
        columns = OutputColumns(("item",), kinds.item)
        _ = ranking | "WriteRanked" >> WriteRanked(
            job.target.staging, columns, job.target.format, noisy_counts=plan.counts is not None
        )

    return build
