"""`dpbeam top-k`: the k items that most users hold, in order."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from dpbeam.cli.console import run_command
from dpbeam.cli.flags import (
    FlagParser,
    add_budget_flags,
    add_input_flags,
    add_method_flags,
    add_output_flags,
    require,
)
from dpbeam.errors import InputError


def _parser() -> FlagParser:
    parser = FlagParser("top-k", "The k items that most users hold, in order, under differential privacy.")
    add_input_flags(parser)
    add_budget_flags(parser)
    group = parser.add_argument_group("top-k")
    group.add_argument("--k", type=int, metavar="K", help="how many items; required")
    group.add_argument(
        "--mechanism",
        metavar="NAME",
        help="cdp-peel (default), pnf-peel, joint, fast-joint or limited-domain",
    )
    group.add_argument("--selector", metavar="NAME", help="method of the domain's selection (default gsu)")
    group.add_argument(
        "--selector_share", type=float, metavar="X", help="its share of the budget (default 0.5)"
    )
    group.add_argument(
        "--domain", metavar="FILE", help="a public domain, one item per line or Parquet; no selection"
    )
    group.add_argument(
        "--histogram", metavar="FILE", help="items and counts (Parquet, CSV) instead of --input"
    )
    group.add_argument("--kbar", type=int, metavar="N", help="limited-domain: counts that take part; 0: all")
    group.add_argument(
        "--noisy_count_share", type=float, metavar="X", help="share of --noisy_counts (default 0.2)"
    )
    parser.add_switch("noisy_counts", "release a noisy count of every chosen item")
    add_method_flags(parser)
    add_output_flags(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code: 0 done, 1 failed, 2 wrong usage or input."""
    argv = list(sys.argv[1:] if argv is None else argv)
    return run_command("top-k", lambda: _run(argv), verbose="--verbose" in argv)


def _run(argv: list[str]) -> int:
    given, beam_arguments = _parser().parse(argv)
    require(given, "epsilon", "delta", "k", "output")
    for name in ("method", "public_items", "noisy_weights", "num_output_shards"):
        if name in given:
            instead = "; use --selector" if name == "method" else ""
            raise InputError(f"--{name} does not apply to top-k{instead}")
    from dpbeam.cli.job import Job
    from dpbeam.cli.settings import input_spec
    from dpbeam.topk.config import plan_topk

    plan = plan_topk(_config(given))
    if "histogram" in given:
        job = Job.without_input("top-k", given, beam_arguments)
    else:
        require(given, "input")
        job = Job.create("top-k", given, beam_arguments, input_spec(given))
    ledger = _ledger(plan, job).to_json()
    if given.get("dry_run", False):
        job.say(f"{plan.config.mechanism}: {plan.choice_budgets}, {plan.composition} composition")
        job.say("dry run: nothing was read or written")
        return 0
    return _execute(plan, job, ledger)


def _config(given: dict):
    from dpbeam.cli.settings import selection_config, selection_flags
    from dpbeam.topk.config import DEFAULT_SELECTOR, TopKConfig

    settings = {
        n: given[n]
        for n in ("mechanism", "selector_share", "noisy_counts", "noisy_count_share", "kbar")
        if n in given
    }
    if "domain" in given and "histogram" in given:
        raise InputError("--domain and --histogram exclude each other: a histogram names its items")
    public = "domain" in given or "histogram" in given
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
        if not (limited and name == "max_items_per_user"):
            raise InputError(f"--{name} belongs to a selection stage, and this job has none: drop it")
    if limited:
        return replace(config, max_items_per_user=given.get("max_items_per_user"))
    return config


def _ledger(plan, job):
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.accounting.versions import code_revision, versions

    config = plan.config
    parameters = {
        "k": config.k,
        "mechanism": config.mechanism,
        "choice_budget": plan.choice_budgets,
        "selector_share": config.selector_share,
        "noisy_count_share": config.noisy_count_share,
        "noisy_count_deviation": None if plan.counts is None else plan.counts.deviation,
        "kbar": config.kbar,
        "public_domain": config.public_domain,
        "selection": None if plan.selection is None else plan.selection.config.public_parameters(),
        "selector": None if plan.selection is None else plan.selection.config.method,
        "input": job.input_parameters(),
    }
    return Ledger(
        method="top-k",
        epsilon=config.epsilon,
        delta=config.delta,
        accounting=plan.composition,
        events=plan.event,
        privacy_unit=job.privacy_unit,
        parameters=parameters,
        key_source=job.key_source,
        versions=versions(),
        code_revision=code_revision(),
    )


def _execute(plan, job, ledger: str) -> int:
    from dpbeam.io.output import count_released

    histogram = domain = None
    if "histogram" in job.given:
        from dpbeam.io.histograms import read_histogram

        histogram = read_histogram(job.given["histogram"])
    if "domain" in job.given:
        from dpbeam.io.item_lists import read_items
        from dpbeam.io.sinks import OutputColumns

        domain = read_items(job.given["domain"], OutputColumns.of(job.spec, job.summary.kinds), "--domain")
    build = _histogram_job(plan, job, histogram) if histogram else _input_job(plan, job, domain)
    paths = job.run(build, ledger, counts_path=job.given.get("not_private_counts"))
    found = count_released(paths[:-1])
    if found < plan.config.k:
        job.say(f"fewer items than --k={plan.config.k}: the domain, or the mechanism, gives no more")
    job.say(f"{found} items released: {paths[0]}")
    job.say(f"ledger: {paths[-1]}")
    return 0


def _input_job(plan, job, domain):
    """The job graph: read, keep to a public domain, select and count, choose, write."""
    from dpbeam.io.ranked import WriteRanked
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.selection.public_items import FilterItems
    from dpbeam.topk.transforms import DOMAIN_FILE, TopKItems, store_domain

    complete = job.spec.complete_users
    columns = OutputColumns.of(job.spec, job.summary.kinds)
    write = WriteRanked(job.target.staging, columns, job.target.format, noisy_counts=plan.counts is not None)

    def build(pipeline, folder):
        pairs = job.read(pipeline, folder)
        if domain is not None:
            store_domain(folder.store, domain, job.summary.kinds)
            pairs = pairs | "KeepDomain" >> FilterItems(
                folder.store, DOMAIN_FILE, keep=True, complete=complete
            )
        ranking = pairs | "TopK" >> TopKItems(
            plan.config,
            run=folder,
            domain=domain is not None,
            pairs=job.pairs_estimate,
            item_bytes=job.summary.item_bytes,
            num_shards=job.given.get("num_shards"),
            complete=complete,
        )
        _ = ranking | "WriteRanked" >> write

    return build


def _histogram_job(plan, job, histogram):
    """The job graph for a given histogram: choose and write."""
    import apache_beam as beam

    from dpbeam.io.ranked import WriteRanked
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.topk.transforms import DOMAIN_FILE, ChooseTopK, histogram_columns

    items, counts, kinds = histogram

    def build(pipeline, folder):
        folder.store.write(DOMAIN_FILE, histogram_columns(items, counts, kinds))
        nothing = pipeline | "NoPairs" >> beam.Create([]).with_output_types(tuple[int, bytes])
        ranking = nothing | "ChooseTopK" >> ChooseTopK(folder.store, plan, domain=True)
        columns = OutputColumns(("item",), kinds.item)
        _ = ranking | "WriteRanked" >> WriteRanked(
            job.target.staging, columns, job.target.format, noisy_counts=plan.counts is not None
        )

    return build
