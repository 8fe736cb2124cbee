"""`dpbeam top-k`: the k items that most users hold, in order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from dpbeam.cli.flags import BoundOptions, FlagParser, SelectionOptions
from dpbeam.cli.release import ChoiceCommand, public_domain
from dpbeam.cli.settings import naming_selector, selection_config, selection_flags
from dpbeam.errors import InputError
from dpbeam.jobs.options import READ, BudgetOptions, InputOptions, Options, ReleaseOptions, flag, switch
from dpbeam.topk.family import TopK

if TYPE_CHECKING:
    import pyarrow as pa

    from dpbeam.engine.program import Program
    from dpbeam.jobs.job import Job
    from dpbeam.kernels.columns import Columns
    from dpbeam.randomness import RunKey
    from dpbeam.topk.config import TopKConfig, TopKPlan

_HISTOGRAM_NOTE = {
    True: "the items that the histogram lists are taken as public: only their counts are protected",
    False: "the items that the histogram lists are protected like their counts, one user holding each at most once",
}


class ChoiceOptions(Options):
    """How many items, and how they are chosen."""

    group = "top-k"
    k: int = flag("K", "how many items; required", needed=True)
    mechanism: str | None = flag(
        "NAME",
        "gauss-rank (default), cdp-peel, pnf-peel, joint, fast-joint or limited-domain",
        common=True,
    )
    selector: str | None = flag("NAME", "method of the domain's selection (default gsu)", common=True)
    selector_share: float | None = flag(
        "X", "its share of the budget (default 0.5; of gauss-rank more above k = 100, up to 0.7)"
    )
    kbar: int | None = flag("N", "limited-domain: counts that take part (default 10 k; 0: all)")
    noisy_count_share: float | None = flag("X", "share of --noisy_counts (default 0.2)")
    noisy_counts: bool = switch("release a noisy count of every chosen item")


class CandidateOptions(Options):
    """What is chosen from, if not by a selection."""

    group = "items to choose from"
    domain: str | None = flag(
        "FILE",
        "a public domain, one item per line or Parquet; no selection",
        type=READ,
        common=True,
    )
    histogram: str | None = flag(
        "FILE",
        "items and counts (Parquet, CSV) instead of --input; which items it lists must be public "
        "(--public_domain), or --mechanism=limited-domain",
        type=READ,
    )
    public_domain: bool = switch(
        "the items that --histogram lists are public: only their counts are protected"
    )


class TopKOptions(
    InputOptions,
    BudgetOptions,
    BoundOptions,
    ChoiceOptions,
    CandidateOptions,
    SelectionOptions,
    ReleaseOptions,
):
    """Settings of a ranking, its input and its output."""


class TopKCommand(ChoiceCommand):
    family = TopK()
    requires = ("epsilon", "delta", "k", "output")
    settings = "dpbeam.topk.config"
    plan_flags = (
        *("k", "mechanism", "selector", "selector_share", "kbar", "noisy_count_share", "noisy_counts"),
        "public_domain",
    )
    plan_requires = ("k",)
    implied_by = "k"
    zero_delta = True
    fewer = "the domain, or the mechanism, gives no more"

    def make_parser(self) -> FlagParser[TopKOptions]:
        parser = FlagParser(
            "top-k", "The k items that most users hold, in order, under differential privacy.", TopKOptions
        )
        parser.discard("method", instead="use --selector")
        parser.discard("public_items", "noisy_weights", "num_output_shards")
        return parser

    def check(self, options: TopKOptions) -> None:
        _check_domain(options)
        super().check(options)
        if options.histogram is None:
            options.require("input")

    def plan(self, options: TopKOptions) -> TopKPlan:
        from dpbeam.topk.config import plan_topk

        with naming_selector():
            return plan_topk(config_of(options))

    def notes(self, plan: TopKPlan, job: Job[TopKOptions]) -> Iterable[str]:
        if job.options.histogram is not None:
            yield _HISTOGRAM_NOTE[plan.config.public_domain]

    def program(self, plan: TopKPlan, job: Job[TopKOptions], listed: pa.Array | None) -> Program:
        from dpbeam.topk.program import topk_program

        return topk_program(plan, None if listed is None else public_domain(job, listed))

    def of_histogram(self, plan: TopKPlan) -> Callable[[Columns, RunKey], pa.RecordBatch]:
        from dpbeam.topk.program import chosen_of

        return functools.partial(chosen_of, plan)

    def how(self, plan: TopKPlan) -> str:
        selection = "" if plan.selection is None else f"selection by {plan.selection.config.method}, "
        counts = ", noisy counts" if plan.counts else ""
        return f"{selection}choice by {plan.config.mechanism}{counts}; {plan.composition} composition"

    def report(self, plan: TopKPlan, job: Job[TopKOptions], paths: list[str], released: int) -> None:
        super().report(plan, job, paths, released)
        for note in self.notes(plan, job):
            job.say(note)


def _check_domain(options: TopKOptions) -> None:
    """A histogram's list of items is somebody's data unless the user says otherwise.

    Raises:
      InputError: it is not said, or said of something else.
    """
    histogram = options.histogram is not None
    if options.domain is not None and histogram:
        raise InputError("--domain and --histogram exclude each other: a histogram names its items")
    if options.public_domain:
        if not histogram:
            raise InputError(
                "--public_domain is said of --histogram; for --input give the public items: --domain=FILE"
            )
        if options.mechanism == "limited-domain":
            raise InputError("--mechanism=limited-domain is for unknown items: drop it, or --public_domain")
        return
    if not histogram:
        return
    if options.mechanism != "limited-domain":
        raise InputError(
            "--histogram: which items a histogram lists tells what users hold; pass --public_domain if the list is "
            "public, or --mechanism=limited-domain, or --input, where a selection chooses the items"
        )
    if options.kbar == 0:
        raise InputError(
            "--histogram: --kbar=0 needs a bound on the items of each user, which only --input has"
        )


def config_of(options: TopKOptions) -> TopKConfig:
    from dpbeam.topk.config import DEFAULT_SELECTOR, TopKConfig

    settings = {
        name: options.said[name]
        for name in ("mechanism", "selector_share", "noisy_counts", "noisy_count_share", "kbar")
        if name in options.said
    }
    public = options.domain is not None or options.public_domain
    config = TopKConfig(options.epsilon, options.delta, options.k, public_domain=public, **settings)
    if config.selects:
        return replace(
            config,
            selection=selection_config(
                options, DEFAULT_SELECTOR if options.selector is None else options.selector
            ),
        )
    if options.selector is not None:
        raise InputError(
            "--selector needs a selection stage: drop it, or --domain, --histogram, limited-domain"
        )
    limited = config.mechanism == "limited-domain"
    for name in selection_flags(options):
        if options.histogram is not None and name == "max_items_per_user":
            raise InputError(
                "--max_items_per_user does not apply to --histogram: nothing is read but its counts"
            )
        if not (limited and name == "max_items_per_user"):
            raise InputError(f"--{name} belongs to a selection stage, and this job has none: drop it")
    if limited:
        return replace(config, max_items_per_user=options.max_items_per_user)
    return config


COMMAND = TopKCommand()
make_parser, main = COMMAND.make_parser, COMMAND.main
