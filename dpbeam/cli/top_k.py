"""`dpbeam top-k`: the k items that most users hold, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpbeam.cli.flags import ChoiceOptions
from dpbeam.cli.release import ChoiceCommand
from dpbeam.jobs.options import SettingFlags
from dpbeam.topk.family import TopKConfig

if TYPE_CHECKING:
    import pyarrow as pa

    from dpbeam.engine.program import Program
    from dpbeam.jobs.job import Job
    from dpbeam.topk.config import TopKPlan


class TopKOptions(ChoiceOptions):
    """Settings of a ranking, its input and its output."""

    group = "top-k"
    release = SettingFlags(TopKConfig)


class TopKCommand(ChoiceCommand):
    """`dpbeam top-k`."""

    family = TopKConfig
    options = TopKOptions
    settings = "dpbeam.topk.config"
    implied_by = "k"
    zero_delta = True

    def program(self, plan: TopKPlan, job: Job[TopKOptions], listed: pa.Array | None) -> Program:
        from dpbeam.counts.gathered import public_domain
        from dpbeam.topk.program import topk_program

        return topk_program(plan, None if listed is None else public_domain(listed))

    def how(self, plan: TopKPlan) -> str:
        selection = "" if plan.selection is None else f"selection by {plan.selection.config.method}, "
        counts = ", noisy counts" if plan.counts else ""
        return f"{selection}choice by {plan.config.mechanism}{counts}; {plan.composition} composition"


COMMAND = TopKCommand()
make_parser, main = COMMAND.make_parser, COMMAND.main
