"""`dpbeam frequency`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frequency.family import FrequencyConfig

from dpbeam.cli.release import ProgramCommand
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
    from frequency.plan import FrequencyPlan

    from dpbeam.engine.program import Program


class FrequencyOptions(InputOptions, BudgetOptions, ReleaseOptions):
    """What is looked at, and where the shares go."""

    release = SettingFlags(FrequencyConfig)
    max_items_per_user = left_out("use --clip")
    public_items = left_out("use --domain")

    domain: str = flag(
        "FILE", "the public list, one item per line or Parquet; required", type=READ, needed=True
    )


class FrequencyCommand(ProgramCommand):
    family = FrequencyConfig
    options = FrequencyOptions
    requires = ("epsilon", "delta", "input", "domain", "output")
    settings = "frequency.plan"
    done = "estimated"

    def program(self, plan: FrequencyPlan, job: Any, listed: Any) -> Program:
        from dpbeam.counts.gathered import public_domain

        return plan.program(public_domain(listed))

    def how(self, plan: FrequencyPlan) -> str:
        return "gaussian composition"


COMMAND = FrequencyCommand()
make_parser, main = COMMAND.make_parser, COMMAND.main
