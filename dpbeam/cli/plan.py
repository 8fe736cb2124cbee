"""`dpbeam plan`: what a method and budget mean, before any data."""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Mapping, Sequence

from dpbeam.cli import COMMANDS
from dpbeam.cli.flags import AdviceOptions, FlagParser, SelectionOptions
from dpbeam.cli.numbers import integer_list
from dpbeam.cli.release import PlannedCommand
from dpbeam.errors import SettingError
from dpbeam.families.registry import families
from dpbeam.figures import format_of
from dpbeam.io.new_files import NewFile
from dpbeam.jobs.checks import check_budget, warn_of_budget, within_arithmetic
from dpbeam.jobs.console import emit, run_command
from dpbeam.jobs.options import WRITTEN, BudgetOptions, Options, flag, switch

DEFAULT = "select"


@functools.cache
def planned() -> Mapping[str, PlannedCommand]:
    """Family -> its command."""
    return {name: importlib.import_module(COMMANDS[name][0]).COMMAND for name in families()}


def _implied() -> str:
    return ", ".join(
        f"{name} (default with --{command.implied_by})" if command.implied_by else name
        for name, command in planned().items()
    )


class PlanOptions(BudgetOptions, AdviceOptions, SelectionOptions):
    """What is planned; each family adds its own flags."""

    family: str | None = flag("NAME", _implied(), common=True)
    users_at_least: int | None = flag(
        "N", "a public number of users (default 1000), for --delta", common=True
    )
    degrees: list[int] | None = flag(
        "D,D,...", "items per user to tabulate", type=integer_list, action="store"
    )
    public_domain: bool = switch("of top-k and hitting-set: the items are public, as with --domain")
    plot: NewFile | None = flag(
        "FILE",
        "how likely an item is released, by the number of its users: FILE.svg or .png; needs the extra plots",
        type=WRITTEN,
        common=True,
    )
    overwrite: bool = switch("replace this file")
    json: bool = switch("print JSON instead of tables", common=True)


#: Flags of this command alone.
_OF_ALL = {f"--{name}" for options in (PlanOptions, AdviceOptions) for name in options.__annotations__}


def make_parser() -> FlagParser[PlanOptions]:
    parser = FlagParser(
        "plan",
        "Sigma, thresholds and keep probabilities of a method and budget, or of the job of a --config file, whose "
        "flags say of which family it is where --family does not.",
        PlanOptions,
        beam=False,
    )
    for command in planned().values():
        parser.adopt(command.make_parser(), only=command.own_flags, common=command.plan_requires)
    return parser


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit code."""
    return run_command("plan", lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    options, _ = make_parser().parse(argv, files=_job_parser)
    options.require("epsilon", "delta")
    family = _family(options)
    command = planned()[family]
    check_budget(options, zero_delta=command.zero_delta)
    _check_flags(options, family)
    options.require(*command.plan_requires)
    if options.plot is not None:
        options.plot.check(overwrite=options.overwrite)
        format = format_of(options.plot, "--plot")
    with within_arithmetic(options):
        plan, report = command.plan_shown(command.options(options.said))
    warn_of_budget(options, plan.config.doubts(), command.users(plan))
    if options.plot is not None:
        options.plot.write(command.draw_plan(plan, report, format), overwrite=options.overwrite)
    if options.json:
        emit(json.dumps(report, indent=2))
        return 0
    from dpbeam.cli.tables import print_plan

    print_plan(families()[family], report)
    return 0


def _family(options: PlanOptions) -> str:
    """What is planned.

    Raises:
      InputError: --family names no family that is planned.
    """
    family = options.family
    if family not in (None, *planned()):
        raise SettingError(f"--family: expected {', '.join(planned())}, got '{family}'")
    implied = (name for name, command in planned().items() if command.implied_by in options.said)
    return family or next(implied, DEFAULT)


def _check_flags(options: PlanOptions, family: str) -> None:
    """Refuse flags of other families.

    Raises:
      InputError: naming the first, and a family that it is of.
    """
    # Where several have a flag, it is said to be of one that needs another flag to be meant.
    order = sorted(planned(), key=lambda name: name == DEFAULT)
    for name in options.said:
        owners = [other for other in order if name in planned()[other].own_flags]
        if owners and family not in owners:
            asked = planned()[owners[0]].asked_by
            fix = "drop it" if asked in options.said else f"give --{asked} too, or drop it"
            raise SettingError(f"--{name} is of {owners[0]}: {fix}")
    if options.items_per_user is not None and family != DEFAULT:
        raise SettingError("--items_per_user recommends a method of select: drop it, or --k")
    if options.degrees is not None and family != DEFAULT:
        raise SettingError(f"--degrees is of {DEFAULT}: drop it")
    if options.plot is not None and not planned()[family].draws:
        raise SettingError(f"--plot does not apply to {family}")
    own = planned()[family].make_parser()
    own.refuse_left_out(options.said)
    for name in options.said:
        if f"--{name}" not in own.flags | _OF_ALL and name not in planned()[family].own_flags:
            raise SettingError(f"--{name} does not apply to {family}")


def _job_parser() -> FlagParser:
    """Every flag that the file of a job may hold."""
    parser = FlagParser("plan", "", Options)
    for command in planned().values():
        parser.adopt(command.make_parser())
    parser.adopt(make_parser())
    return parser
