"""`dpbeam hitting-set`: k items that as many users as possible hold one of."""

from __future__ import annotations

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
)
from dpbeam.cli.release import ChoiceCommand, public_domain
from dpbeam.cli.settings import naming_selector, selection_config, selection_flags
from dpbeam.errors import InputError
from dpbeam.hitting.family import HittingSet

if TYPE_CHECKING:
    import pyarrow as pa

    from dpbeam.engine.program import Program
    from dpbeam.hitting.config import HittingSetConfig, HittingSetPlan
    from dpbeam.jobs.job import Job


class HittingSetCommand(ChoiceCommand):
    family = HittingSet()
    requires = ("epsilon", "delta", "k", "input", "output")
    settings = "dpbeam.hitting.config"
    plan_flags = ("k", "selector", "selector_share", "public_domain")
    plan_requires = ("k",)
    fewer = "the domain has no more"

    def make_parser(self) -> FlagParser:
        parser = FlagParser(
            "hitting-set",
            "At most k items that as many users as possible hold one of, under differential privacy.",
        )
        add_input_flags(parser)
        add_budget_flags(parser)
        group = parser.add_argument_group("hitting set")
        group.add_argument("--k", type=int, metavar="K", help="how many items; required")
        group.add_argument(
            "--selector", metavar="NAME", help="method of the domain's selection (default gsu)"
        )
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

    def plan(self, given: dict[str, Any]) -> HittingSetPlan:
        from dpbeam.hitting.config import plan_hitting_set

        with naming_selector():
            return plan_hitting_set(config_of(given))

    def program(self, plan: HittingSetPlan, job: Job, listed: pa.Array | None) -> Program:
        from dpbeam.hitting.program import GATHERED_PAIRS, HittingSetProgram

        gather = "num_shards" not in job.given and job.pairs_estimate <= GATHERED_PAIRS
        domain = None if listed is None else public_domain(job, listed)
        return HittingSetProgram(plan, domain, gather=gather)

    def rounds(self, plan: HittingSetPlan, program: Program) -> int:
        return program.trips

    def how(self, plan: HittingSetPlan) -> str:
        config, before = plan.config, "public domain"
        if plan.selection is not None:
            before = f"selection by {plan.selection.config.method} at share {config.selector_share:g}"
        choices = f"{config.k} choices of range {plan.epsilon0:.4g} by {100 * plan.rate:g} % of the users"
        return f"{before}, {choices}; {plan.composition} composition"


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


COMMAND = HittingSetCommand()
make_parser, main = COMMAND.make_parser, COMMAND.main
