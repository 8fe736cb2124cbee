"""`dpbeam count`: noisy numbers of users of the items of a public list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpbeam.cli.release import ProgramCommand
from dpbeam.counting.family import CountConfig
from dpbeam.jobs.options import (
    READ,
    BudgetOptions,
    InputOptions,
    ReleaseOptions,
    SettingFlags,
    flag,
    left_out,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from dpbeam.counting.config import CountPlan
    from dpbeam.engine.program import Program
    from dpbeam.jobs.job import Job


class CountOptions(InputOptions, BudgetOptions, ReleaseOptions):
    """What is counted, and where the counts go."""

    release = SettingFlags(CountConfig)
    max_items_per_user = left_out("the clip follows from the budget")
    public_items = left_out("use --domain")

    domain: str = flag(
        "FILE",
        "the public list, one item per line or Parquet; all of its items are counted; required",
        type=READ,
        needed=True,
    )


class CountCommand(ProgramCommand):
    """`dpbeam count`."""

    family = CountConfig
    options = CountOptions
    requires = ("epsilon", "delta", "input", "domain", "output")
    settings = "dpbeam.counting.config"
    done = "counted"

    def program(self, plan: CountPlan, job: Job[CountOptions], listed: pa.Array | None) -> Program:
        from dpbeam.counts.gathered import public_domain

        return plan.program(public_domain(listed))

    def how(self, plan: CountPlan) -> str:
        return "gaussian composition"


COMMAND = CountCommand()
make_parser, main = COMMAND.make_parser, COMMAND.main
