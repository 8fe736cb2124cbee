"""`dpbeam top-k`: the k items that most users hold, in order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpbeam.cli.flags import BoundOptions, FlagParser, SelectionOptions
from dpbeam.cli.release import ChoiceCommand
from dpbeam.cli.settings import naming_selector, selection_config, selection_flags
from dpbeam.errors import InputError
from dpbeam.jobs.options import READ, BudgetOptions, InputOptions, Options, ReleaseOptions, flag, switch
from dpbeam.topk.family import TopK

if TYPE_CHECKING:
    import pyarrow as pa

    from dpbeam.engine.program import Program
    from dpbeam.jobs.job import Job
    from dpbeam.topk.config import TopKConfig, TopKPlan


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

    public_domain: bool = False  # of `dpbeam plan` alone: here the file of --domain says it


class TopKCommand(ChoiceCommand):
    family = TopK()
    requires = ("epsilon", "delta", "k", "input", "output")
    settings = "dpbeam.topk.config"
    plan_flags = (
        *("k", "mechanism", "selector", "selector_share", "kbar", "noisy_count_share", "noisy_counts"),
        "public_domain",
    )
    plan_requires = ("k",)
    implied_by = "k"
    zero_delta = True

    def make_parser(self) -> FlagParser[TopKOptions]:
        parser = FlagParser(
            "top-k", "The k items that most users hold, in order, under differential privacy.", TopKOptions
        )
        parser.discard("method", instead="use --selector")
        parser.discard("public_items", "noisy_weights", "num_output_shards")
        return parser

    def plan(self, options: TopKOptions) -> TopKPlan:
        from dpbeam.topk.config import plan_topk

        with naming_selector():
            return plan_topk(config_of(options))

    def program(self, plan: TopKPlan, job: Job[TopKOptions], listed: pa.Array | None) -> Program:
        from dpbeam.counts.gathered import public_domain
        from dpbeam.topk.program import topk_program

        return topk_program(plan, None if listed is None else public_domain(listed))

    def how(self, plan: TopKPlan) -> str:
        selection = "" if plan.selection is None else f"selection by {plan.selection.config.method}, "
        counts = ", noisy counts" if plan.counts else ""
        return f"{selection}choice by {plan.config.mechanism}{counts}; {plan.composition} composition"


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
        raise InputError("--selector needs a selection stage: drop it, or --domain, limited-domain")
    limited = config.mechanism == "limited-domain"
    for name in selection_flags(options):
        if not (limited and name == "max_items_per_user"):
            raise InputError(f"--{name} belongs to a selection stage, and this job has none: drop it")
    if limited:
        return replace(config, max_items_per_user=options.max_items_per_user)
    return config


COMMAND = TopKCommand()
make_parser, main = COMMAND.make_parser, COMMAND.main
