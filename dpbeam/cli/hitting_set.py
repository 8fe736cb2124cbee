"""`dpbeam hitting-set`: k items that as many users as possible hold one of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpbeam.cli.flags import ChoiceOptions
from dpbeam.cli.release import ChoiceCommand
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.jobs.options import CheckpointOptions, SettingFlags

if TYPE_CHECKING:
    import pyarrow as pa

    from dpbeam.engine.program import Program
    from dpbeam.hitting.config import HittingSetPlan
    from dpbeam.jobs.job import Job


class HittingSetOptions(ChoiceOptions, CheckpointOptions):
    """Settings of a hitting set, its input and its output."""

    group = "hitting set"
    release = SettingFlags(HittingSetConfig)


class HittingSetCommand(ChoiceCommand):
    """`dpbeam hitting-set`."""

    family = HittingSetConfig
    options = HittingSetOptions
    settings = "dpbeam.hitting.config"

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


COMMAND = HittingSetCommand()
make_parser, main = COMMAND.make_parser, COMMAND.main
