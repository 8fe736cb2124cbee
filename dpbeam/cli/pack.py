"""`dpbeam pack`: scarce resources for many agents, under joint differential privacy."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpbeam.cli.loading import importing
from dpbeam.cli.release import ReleaseCommand
from dpbeam.errors import DataError, SettingError
from dpbeam.jobs.checks import within_arithmetic
from dpbeam.jobs.console import warn
from dpbeam.jobs.options import (
    READ,
    BudgetOptions,
    CheckpointOptions,
    Options,
    ReleaseOptions,
    SettingFlags,
    flag,
    left_out,
)
from dpbeam.packing.family import PackingConfig

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.pvalue import PCollection

    from dpbeam.accounting.ledger import Ledger
    from dpbeam.engine.beam.driver import ProgramRun
    from dpbeam.engine.beam.store import RunFolder
    from dpbeam.io.agents import AgentSpec
    from dpbeam.io.sources import InputSummary
    from dpbeam.jobs.job import Job
    from dpbeam.packing.config import Market, PackingPlan, Resource

PRICES = "prices.parquet"
_ROWS_PER_SHARD = 2_000_000  # a worker sorts a shard in memory, at about 130 bytes a row
#: The one mechanism, and others that are known by name: experiments compare with them (docs/explanation/packing.md).
MECHANISM = "filter"
_COMPARED = ("published", "gradient", "fixed-steps", "online")


class AgentOptions(Options):
    """Who takes part."""

    group = "agents"
    agents: list[str] = flag(
        "PATTERN",
        "files, globs, or - for stdin; one row per agent",
        type=READ,
        nargs="+",
        action="extend",
        needed=True,
    )
    input_format: str | None = flag("FORMAT", "parquet, jsonl, csv, tsv (default: extension)", common=True)
    agent_column: str = flag("NAME", "column of the agents (default agent)", value="agent", common=True)
    value_column: str = flag("NAME", "column of the values (default value)", value="value", common=True)
    demand_column: list[str] | None = flag(
        "NAME",
        "columns of the demands, one for each resource (default: the names in --supplies), or one column of "
        "lists",
        common=True,
    )
    agent_type: str | None = flag("TYPE", "string (default), int or bytes, where the input declares none")
    num_blocks: int | None = flag("N", "parts of the agents; the engine then runs every round")


class MarketOptions(Options):
    """The market, and the settings of a packing."""

    group = "packing"
    release = SettingFlags(PackingConfig)
    supplies: str = flag(
        "FILE",
        "YAML or JSON: resource -> supply, or -> {supply, max_demand}; a list for a column of lists; required",
        type=READ,
        needed=True,
    )
    num_agents: int | None = flag(
        "N", "how many agents there are, a public number (default: rows)", common=True
    )
    max_value: float = flag("X", "public bound of the values (default 1)", value=1.0, common=True)


class PackOptions(
    AgentOptions,
    BudgetOptions,
    MarketOptions,
    ReleaseOptions,
    CheckpointOptions,
):
    """Settings of a packing, its agents and its output."""

    max_items_per_user = left_out("an agent is one row")
    public_items = not_private_counts = num_shards = users_at_least = left_out()

    mechanism: str | None = flag(
        "NAME",
        "filter (default), the one whose guarantee is proved; others are for comparison only "
        "(docs/explanation/packing.md)",
        common=True,
    )


class PackCommand(ReleaseCommand):
    """`dpbeam pack`."""

    family = PackingConfig
    options = PackOptions
    guarantee = "joint differential privacy"
    requires = ("agents", "supplies", "epsilon", "delta", "output")
    settings = "dpbeam.packing.config"
    not_done = "nothing was written"
    plan_flags = tuple(declared.name for declared in MarketOptions.own_flags())
    plan_requires = ("supplies", "num_agents")
    implied_by = "agents"

    def check(self, options: PackOptions) -> None:
        if options.num_blocks is not None and not 1 <= options.num_blocks <= 65_536:
            raise SettingError(f"--num_blocks must be from 1 to 65536, got {options.num_blocks}")

    def plan(self, options: PackOptions) -> PackingPlan:
        resources = read_supplies(options.supplies)
        return config_of(options).plan(market_of(options, resources, None))

    def prepare(
        self, options: PackOptions, beam_arguments: list[str]
    ) -> tuple[PackingPlan, Job[PackOptions]]:
        resources = read_supplies(options.supplies)
        config = config_of(options)
        with importing():
            from dpbeam.io.agents import preflight_agents
            from dpbeam.jobs.job import Job
            from dpbeam.packing.transforms import AgentBlocks  # noqa: F401

        spec = agent_spec(options, resources)
        job = Job.create(
            "pack",
            options,
            beam_arguments,
            spec,
            look=preflight_agents,
            empty=_check_agents,
            extras=(PRICES,),
            public=False,
        )
        try:
            with within_arithmetic(options):
                plan = config.plan(market_of(options, resources, job.reading[1].rows_estimate))
                plan.check_supply()
        except BaseException:
            job.reading[1].release()
            raise
        return plan, job

    def users(self, plan: PackingPlan) -> int:
        return plan.market.num_agents

    def check_columns(self, plan: PackingPlan, job: Job[PackOptions]) -> None:
        _writer(plan, job)

    def ledger(self, plan: PackingPlan, job: Job[PackOptions], listed: Any) -> Ledger:
        columns = job.reading[0].item_columns
        named = {
            "agent_column": job.reading[0].user_column,
            "value_column": columns[0],
            "demand_columns": list(columns[1:]),
        }
        return self.family.ledger(plan, fixed_key=job.key.insecure, input_parameters=named)

    def execute(self, plan: PackingPlan, job: Job[PackOptions], listed: Any, ledger: Ledger) -> int:
        from dpbeam.jobs.running import run_program
        from dpbeam.packing.transforms import posted_prices

        if plan.market.supply < plan.supply_needed:
            warn(
                f"the supply {float(plan.market.supply):g} is below the {plan.supply_needed:.4g} that --alpha needs: "
                "much of it is left to the noise"
            )

        def after(folder: RunFolder) -> None:
            import pyarrow.parquet as pq

            from dpbeam.io.files import write_atomically

            table = posted_prices(plan, folder).to_table()
            write_atomically(job.target.staged_extra(PRICES), lambda file: pq.write_table(table, file))

        def report(paths: list[str], released: int) -> None:
            job.say(f"{released} allocations, NOT FOR PUBLICATION, each for its own agent alone: {paths[0]}")
            job.say(f"prices, public: {job.target.prefix}.{PRICES}")
            config = plan.config
            job.say(
                f"budget spent: epsilon {config.epsilon:g}, delta {config.delta:g} (joint differential privacy; one "
                "agent's row replaced)"
            )

        make_run = functools.partial(_program_run, plan, job)
        return run_program(job, make_run, ledger, report=report, trips=plan.rounds_limit, after=after)


def _check_agents(spec: AgentSpec, summary: InputSummary) -> None:
    """Refuse an input without a row. Raises InputError."""
    from dpbeam.io.agents import any_agent

    if not any_agent(spec, summary):
        raise DataError("--agents: there are no agents; pass --allow_empty if that may be so")


def read_supplies(path: str) -> tuple[Resource, ...]:
    """The resources of a --supplies file.

    Raises:
      InputError: it cannot be read, or holds something else.
    """
    from dpbeam.io.yaml_files import load
    from dpbeam.packing.config import resources_of

    supplies = load(path, "--supplies")
    if not isinstance(supplies, Mapping | list) or not supplies:
        raise SettingError(f"--supplies: '{path}' must map resources to supplies, or list supplies")
    return resources_of(supplies)


def config_of(options: PackOptions) -> PackingConfig:
    """The settings among the flags.

    Raises:
      InputError: a mechanism that nothing can be released with.
    """

    mechanism = MECHANISM if options.mechanism is None else options.mechanism
    if mechanism in _COMPARED:
        raise SettingError(
            f"--mechanism: '{mechanism}' has no guarantee with constants that a ledger could state; compare with it by "
            "dpbeam evaluate run, and release with --mechanism=filter"
        )
    if mechanism != MECHANISM:
        raise SettingError(f"--mechanism must be {MECHANISM}, got '{mechanism}'")
    return PackingConfig.asked(options.said)


def market_of(options: PackOptions, resources: Sequence[Resource], rows: int | None) -> Market:
    """The market that flags and supplies describe.

    Raises:
      InputError: nobody says how many agents there are, or a number is out of range.
    """
    from dpbeam.packing.config import Market

    agents = rows if options.num_agents is None else options.num_agents
    if agents is None:
        raise SettingError("--num_agents is required: how many agents there publicly are")
    if agents == 0 and options.num_agents is None:
        raise DataError("--agents: there are no agents")
    return Market(tuple(resources), agents, options.max_value)


def agent_spec(options: PackOptions, resources: Sequence[Resource]) -> AgentSpec:
    """The input that the flags describe.

    Raises:
      InputError: demand columns and supplies do not belong together.
    """
    from dpbeam.io.agents import AgentSpec

    names = [resource.name for resource in resources]
    columns = options.demand_column or names
    listed = len(columns) == 1 and columns != names
    if not listed and sorted(columns) != sorted(names):
        missing = [name for name in columns if name not in names]
        if missing:
            raise SettingError(f"--supplies: no supply for --demand_column '{missing[0]}'")
        more = next(name for name in names if name not in columns)
        raise SettingError(f"--demand_column: '{more}' has a supply, but no column is named so")
    if not listed and list(columns) != names:
        columns = names  # in the order of the supplies
    return AgentSpec.of(
        options.agents,
        agent_column=options.agent_column,
        value_column=options.value_column,
        demand_columns=columns,
        listed=listed,
        format=options.input_format,
        agent_type=options.agent_type,
    )


def _writer(plan: PackingPlan, job: Job[PackOptions]) -> beam.PTransform:
    """Writes allocations. Raises InputError for an agent column that has the name of a column of the output."""
    from dpbeam.io.agents import WriteAllocations

    spec, summary = job.reading
    files = job.output_files or -(-plan.market.num_agents // _ROWS_PER_SHARD)
    column = spec.user_column or "agent"
    return WriteAllocations(job.target.staging, column, summary.kinds, job.target.format, files)


def _program_run(plan: PackingPlan, job: Job[PackOptions], folder: RunFolder) -> ProgramRun:
    """Read agents, run the rounds, write allocations."""
    from dpbeam.engine.beam.driver import ProgramRun
    from dpbeam.io.agents import AgentSpec, ReadAgents
    from dpbeam.packing.program import PackingProgram
    from dpbeam.packing.transforms import AgentBlocks, packing_sizes

    spec, summary = job.reading
    assert isinstance(spec, AgentSpec)
    sizes = packing_sizes(plan.market, job.options.num_blocks)

    def read(pipeline: beam.Pipeline) -> PCollection:
        agents = pipeline | "ReadAgents" >> ReadAgents(spec, summary, plan.market, folder.store)
        return agents | "AgentBlocks" >> AgentBlocks(folder.store, plan, sizes, spec.user_column or "agent")

    def write(allocated: PCollection) -> None:
        _ = allocated | "WriteAllocations" >> _writer(plan, job)

    return ProgramRun(PackingProgram(plan), read, write, one_step=sizes.one_step)


COMMAND = PackCommand()
make_parser, main = COMMAND.make_parser, COMMAND.main
