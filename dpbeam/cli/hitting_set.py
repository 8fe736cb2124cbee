"""`dpbeam hitting-set`: k items that as many users as possible hold one of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpbeam.cli.flags import BoundOptions, FlagParser, SelectionOptions
from dpbeam.cli.release import ChoiceCommand
from dpbeam.cli.settings import naming_selector, selection_config, selection_flags
from dpbeam.errors import InputError
from dpbeam.hitting.family import HittingSet
from dpbeam.jobs.options import (
    READ,
    BudgetOptions,
    CheckpointOptions,
    InputOptions,
    Options,
    ReleaseOptions,
    flag,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from dpbeam.engine.program import Program
    from dpbeam.hitting.config import HittingSetConfig, HittingSetPlan
    from dpbeam.jobs.job import Job


class ChoiceOptions(Options):
    """How many items, and what they are chosen from."""

    group = "hitting set"
    k: int = flag("K", "how many items; required", needed=True)
    selector: str | None = flag("NAME", "method of the domain's selection (default gsu)", common=True)
    selector_share: float | None = flag(
        "X",
        "its share of the budget (default 0.3 to 0.9, growing with k/epsilon)",
    )
    domain: str | None = flag(
        "FILE",
        "a public domain, one item per line or Parquet; no selection",
        type=READ,
        common=True,
    )


class HittingSetOptions(
    InputOptions,
    BudgetOptions,
    BoundOptions,
    ChoiceOptions,
    SelectionOptions,
    ReleaseOptions,
    CheckpointOptions,
):
    """Settings of a hitting set, its input and its output."""

    public_domain: bool = False  # of `dpbeam plan` alone: here the file of --domain says it


class HittingSetCommand(ChoiceCommand):
    family = HittingSet()
    requires = ("epsilon", "delta", "k", "input", "output")
    settings = "dpbeam.hitting.config"
    plan_flags = ("k", "selector", "selector_share", "public_domain")
    plan_requires = ("k",)

    def make_parser(self) -> FlagParser[HittingSetOptions]:
        parser = FlagParser(
            "hitting-set",
            "At most k items that as many users as possible hold one of, under differential privacy.",
            HittingSetOptions,
        )
        parser.discard("method", instead="use --selector")
        parser.discard("public_items", "noisy_weights", "num_output_shards")
        return parser

    def plan(self, options: HittingSetOptions) -> HittingSetPlan:
        from dpbeam.hitting.config import plan_hitting_set

        with naming_selector():
            return plan_hitting_set(config_of(options))

    def program(self, plan: HittingSetPlan, job: Job[HittingSetOptions], listed: pa.Array | None) -> Program:
        from dpbeam.counts.gathered import public_domain
        from dpbeam.hitting.program import GATHERED_PAIRS, HittingSetProgram

        gather = job.options.num_shards is None and job.pairs_estimate <= GATHERED_PAIRS
        domain = None if listed is None else public_domain(listed)
        return HittingSetProgram(plan, domain, gather=gather)

    def rounds(self, plan: HittingSetPlan, program: Program) -> int:
        return program.trips

    def how(self, plan: HittingSetPlan) -> str:
        config, before = plan.config, "public domain"
        if plan.selection is not None:
            before = f"selection by {plan.selection.config.method} at share {config.selector_share:g}"
        choices = f"{config.k} choices of range {plan.epsilon0:.4g} by {100 * plan.rate:g} % of the users"
        return f"{before}, {choices}; {plan.composition} composition"


def config_of(options: HittingSetOptions) -> HittingSetConfig:
    """The settings among the flags.

    Raises:
      InputError: flags of a selection where the domain is public.
    """
    from dpbeam.hitting.config import DEFAULT_SELECTOR, HittingSetConfig

    config = HittingSetConfig(
        options.epsilon,
        options.delta,
        options.k,
        selector_share=options.selector_share,
        public_domain=options.domain is not None or options.public_domain,
    )
    if not config.public_domain:
        return replace(
            config,
            selection=selection_config(
                options, DEFAULT_SELECTOR if options.selector is None else options.selector
            ),
        )
    public = "--domain" if options.domain is not None else "--public_domain"
    for name in ("selector", "selector_share", *selection_flags(options)):
        if name in options.said:
            raise InputError(
                f"--{name} belongs to a selection stage, and {public} leaves none: drop one of them"
            )
    return config


COMMAND = HittingSetCommand()
make_parser, main = COMMAND.make_parser, COMMAND.main
