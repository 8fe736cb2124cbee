"""`dpbeam pack`: scarce resources for many agents, under joint differential privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpbeam.cli.flags import READ, FlagParser, add_budget_flags, add_checkpoint_flags, add_output_flags
from dpbeam.cli.loading import importing
from dpbeam.cli.release import ReleaseCommand
from dpbeam.errors import InputError
from dpbeam.jobs.checks import within_arithmetic
from dpbeam.jobs.console import warn
from dpbeam.packing.family import Pack

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.pvalue import PCollection

    from dpbeam.accounting.ledger import Ledger
    from dpbeam.engine.beam.driver import ProgramRun
    from dpbeam.engine.beam.store import RunFolder
    from dpbeam.io.agents import AgentSpec
    from dpbeam.io.sources import InputSummary
    from dpbeam.jobs.job import Job
    from dpbeam.packing.config import Market, PackingConfig, PackingPlan, Resource

PRICES = "prices.parquet"
_ROWS_PER_SHARD = 2_000_000  # a worker sorts a shard in memory, at about 130 bytes a row
#: Flags of the settings, which are fields of `PackingConfig`.
SETTINGS = (
    "alpha",
    "failure_probability",
    "integral",
    "start_rounds",
    "start_share",
    "settle_share",
    "max_rounds",
    "margin",
    "max_resources_per_agent",
    "allow_small_supply",
)
#: Flags of the market.
MARKET = ("supplies", "num_agents", "max_value")
#: The one mechanism; of the others that are known by name, `dpbeam.lab.evaluation.packing` tells what they would give.
MECHANISM = "filter"
_COMPARED = ("published", "gradient", "fixed-steps", "online")


class PackCommand(ReleaseCommand):
    family = Pack()
    requires = ("agents", "supplies", "epsilon", "delta", "output")
    settings = "dpbeam.packing.config"
    not_done = "nothing was written"
    plan_flags = (*SETTINGS, *MARKET)
    plan_requires = ("supplies", "num_agents")
    implied_by = "agents"

    def make_parser(self) -> FlagParser:
        parser = FlagParser(
            "pack", "Allocate scarce resources among agents under joint differential privacy."
        )
        group = parser.add_argument_group("agents")
        group.add_argument(
            "--agents",
            nargs="+",
            action="extend",
            metavar="PATTERN",
            type=READ,
            help="files, globs, or - for stdin; one row per agent",
        )
        group.add_argument(
            "--input_format", metavar="FORMAT", help="parquet, jsonl, csv, tsv (default: extension)"
        )
        group.add_argument("--agent_column", metavar="NAME", help="column of the agents (default agent)")
        group.add_argument("--value_column", metavar="NAME", help="column of the values (default value)")
        group.add_argument(
            "--demand_column",
            action="append",
            metavar="NAME",
            help="columns of the demands, one for each resource (default: the names in --supplies), or one column of "
            "lists",
        )
        group.add_argument(
            "--agent_type",
            metavar="TYPE",
            help="string (default), int or bytes, where the input declares none",
        )
        add_budget_flags(parser)
        add_packing_flags(parser)
        parser.add_argument(
            "--mechanism",
            metavar="NAME",
            help="filter (default), the one whose guarantee is proved; others are for comparison only "
            "(docs/packing.md)",
        )
        add_output_flags(parser)
        add_checkpoint_flags(parser)
        group.add_argument(
            "--num_blocks",
            type=int,
            metavar="N",
            help="parts of the agents; the engine then runs every round",
        )
        parser.discard("max_items_per_user", instead="an agent is one row")
        parser.discard("public_items", "not_private_counts", "num_shards", "users_at_least")
        return parser

    def check(self, given: dict[str, Any]) -> None:
        if not 1 <= given.get("num_blocks", 1) <= 65_536:
            raise InputError(f"--num_blocks must be from 1 to 65536, got {given['num_blocks']}")

    def plan(self, given: dict[str, Any]) -> PackingPlan:
        resources = read_supplies(given["supplies"])
        return plan_of(given, config_of(given), resources, None)

    def prepare(self, given: dict[str, Any], beam_arguments: list[str]) -> tuple[PackingPlan, Job]:
        resources = read_supplies(given["supplies"])
        config = config_of(given)
        with importing():
            from dpbeam.io.agents import preflight_agents
            from dpbeam.jobs.job import Job
            from dpbeam.packing.transforms import AgentBlocks  # noqa: F401

        spec = agent_spec(given, resources)
        job = Job.create(
            "pack",
            given,
            beam_arguments,
            spec,
            look=preflight_agents,
            empty=_check_agents,
            extras=(PRICES,),
            public=False,
        )
        try:
            with within_arithmetic(given):
                plan = plan_of(given, config, resources, job.reading[1].rows_estimate)
                plan.check_supply()
        except BaseException:
            job.reading[1].release()
            raise
        return plan, job

    def ledger(self, plan: PackingPlan, job: Job, listed: Any) -> Ledger:
        columns = job.reading[0].item_columns
        named = {
            "agent_column": job.reading[0].user_column,
            "value_column": columns[0],
            "demand_columns": list(columns[1:]),
        }
        return self.family.ledger(plan, fixed_key=job.key.insecure, input_parameters=named)

    def execute(self, plan: PackingPlan, job: Job, listed: Any, ledger: str) -> int:
        return _execute(plan, job, ledger)


def add_packing_flags(parser: FlagParser) -> None:
    """Settings and market, which `dpbeam plan --family pack` takes too."""
    group = parser.add_argument_group("packing")
    group.add_argument(
        "--supplies",
        metavar="FILE",
        type=READ,
        help="YAML or JSON: resource -> supply, or -> {supply, max_demand}; a list for a column of lists; required",
    )
    group.add_argument(
        "--num_agents",
        type=int,
        metavar="N",
        help="how many agents there are, a public number (default: rows)",
    )
    group.add_argument("--max_value", type=float, metavar="X", help="public bound of the values (default 1)")
    group.add_argument("--alpha", type=float, metavar="X", help="accuracy and step (default 0.1)")
    group.add_argument(
        "--failure_probability",
        type=float,
        metavar="X",
        help="of using more than there is of any resource (default 0.001)",
    )
    group.add_argument(
        "--max_resources_per_agent",
        type=int,
        metavar="K",
        help="no agent demands more resources: less noise; more is an error",
    )
    group.add_argument(
        "--start_rounds", type=int, metavar="N", help="rounds of larger steps at the start (default 30)"
    )
    group.add_argument(
        "--start_share", type=float, metavar="X", help="their share of the budget (default 0.1)"
    )
    group.add_argument(
        "--settle_share",
        type=float,
        metavar="X",
        help="share of the rest before allocations are averaged (default 0.1)",
    )
    group.add_argument("--max_rounds", type=int, metavar="N", help="rounds after the start (default 1000)")
    parser.add_switch("integral", "every agent gets its whole bundle or nothing")
    parser.add_switch("margin", "aim at the supply less the noise's margin (default)")
    parser.add_switch("allow_small_supply", "go on where the supply is below what --alpha needs")


def _check_agents(spec: AgentSpec, summary: InputSummary) -> None:
    """Refuse an input without a row. Raises InputError."""
    if not summary.rows_estimate:
        raise InputError("--agents: there are no agents; pass --allow_empty if that may be so")


def read_supplies(path: str) -> tuple[Resource, ...]:
    """The resources of a --supplies file.

    Raises:
      InputError: it cannot be read, or holds something else.
    """
    from dpbeam.io.yaml_files import load
    from dpbeam.packing.config import resources_of

    found = load(path, "--supplies")
    if not isinstance(found, Mapping | list) or not found:
        raise InputError(f"--supplies: '{path}' must map resources to supplies, or list supplies")
    return resources_of(found)


def config_of(given: dict[str, Any]) -> PackingConfig:
    """The settings among the flags.

    Raises:
      InputError: a mechanism that nothing can be released with.
    """
    from dpbeam.packing.config import PackingConfig

    mechanism = given.get("mechanism", MECHANISM)
    if mechanism in _COMPARED:
        raise InputError(
            f"--mechanism: '{mechanism}' has no guarantee with constants that a ledger could state; compare with it by "
            "dpbeam evaluate run configs/experiments/packing.yaml, and release with --mechanism=filter"
        )
    if mechanism != MECHANISM:
        raise InputError(f"--mechanism must be {MECHANISM}, got '{mechanism}'")
    chosen = {name: given[name] for name in SETTINGS if name in given}
    return PackingConfig(given["epsilon"], given["delta"], **chosen)


def market_of(given: dict[str, Any], resources: Sequence[Resource], rows: int | None) -> Market:
    """The market that flags and supplies describe.

    Raises:
      InputError: nobody says how many agents there are, or a number is out of range.
    """
    from dpbeam.packing.config import Market

    agents = given.get("num_agents", rows)
    if agents is None:
        raise InputError("--num_agents is required: how many agents there publicly are")
    if agents == 0 and "num_agents" not in given:
        raise InputError("--agents: there are no agents")
    return Market(tuple(resources), agents, given.get("max_value", 1.0))


def plan_of(
    given: dict[str, Any], config: PackingConfig, resources: Sequence[Resource], rows: int | None
) -> PackingPlan:
    """The plan of flags and supplies."""
    from dpbeam.packing.config import make_plan

    return make_plan(config, market_of(given, resources, rows))


def agent_spec(given: dict[str, Any], resources: Sequence[Resource]) -> AgentSpec:
    """The input that the flags describe.

    Raises:
      InputError: demand columns and supplies do not belong together.
    """
    from dpbeam.io.agents import AgentSpec

    names = [resource.name for resource in resources]
    columns = given.get("demand_column", names)
    listed = len(columns) == 1 and columns != names
    if not listed and sorted(columns) != sorted(names):
        missing = [name for name in columns if name not in names]
        if missing:
            raise InputError(f"--supplies: no supply for --demand_column '{missing[0]}'")
        more = next(name for name in names if name not in columns)
        raise InputError(f"--demand_column: '{more}' has a supply, but no column is named so")
    if not listed and list(columns) != names:
        columns = names  # in the order of the supplies
    return AgentSpec.of(
        given["agents"],
        agent_column=given.get("agent_column", "agent"),
        value_column=given.get("value_column", "value"),
        demand_columns=columns,
        listed=listed,
        format=given.get("input_format"),
        agent_type=given.get("agent_type"),
    )


def _execute(plan: PackingPlan, job: Job, ledger: str) -> int:
    from dpbeam.packing.transforms import posted_prices

    if plan.market.supply < plan.supply_needed:
        warn(
            f"the supply {float(plan.market.supply):g} is below the {plan.supply_needed:.4g} that --alpha needs: much "
            "of it is left to the noise"
        )

    def made(folder: RunFolder) -> ProgramRun:
        return _program_run(folder, plan, job)

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

    return job.run_program(made, ledger, report=report, trips=plan.rounds_limit, after=after)


def _program_run(folder: RunFolder, plan: PackingPlan, job: Job) -> ProgramRun:
    """Read agents, run the rounds, write allocations."""
    from dpbeam.engine.beam.driver import ProgramRun
    from dpbeam.io.agents import AgentSpec, ReadAgents
    from dpbeam.io.allocations import WriteAllocations
    from dpbeam.packing.program import PackingProgram
    from dpbeam.packing.transforms import AgentBlocks, packing_sizes

    spec, summary = job.reading
    assert isinstance(spec, AgentSpec)
    sizes = packing_sizes(plan.market, job.given.get("num_blocks"))

    def read(pipeline: beam.Pipeline) -> PCollection:
        agents = pipeline | "ReadAgents" >> ReadAgents(spec, summary, plan.market)
        return agents | "AgentBlocks" >> AgentBlocks(folder.store, plan, sizes, spec.user_column or "agent")

    def write(allocated: PCollection) -> None:
        _ = allocated | "WriteAllocations" >> WriteAllocations(
            job.target.staging,
            spec.user_column or "agent",
            summary.kinds,
            job.target.format,
            job.given.get("num_output_shards", -(-plan.market.num_agents // _ROWS_PER_SHARD)),
        )

    return ProgramRun(PackingProgram(plan), read, write, one_step=sizes.one_step)


COMMAND = PackCommand()
make_parser, main = COMMAND.make_parser, COMMAND.main
