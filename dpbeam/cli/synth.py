"""`dpbeam synth`: synthetic (user, item) data, or agents of a market, of any size."""

from __future__ import annotations

from collections.abc import Sequence

from dpbeam.cli.flags import WRITTEN_PREFIX, FlagParser, require
from dpbeam.errors import InputError
from dpbeam.io.paths import is_local, local_path
from dpbeam.jobs.console import run_command, tell

_MARKET = ("agents", "resources", "filled", "supply_share")
_PAIRS = ("users", "items", "mean_items_per_user", "user_exponent", "item_exponent", "item_bytes")


def make_parser() -> FlagParser:
    parser = FlagParser(
        "synth",
        "Generate synthetic (user, item) pairs by power laws, or with --agents a market for pack.",
        beam=False,
    )
    parser.add_argument(
        "--output", metavar="PREFIX", type=WRITTEN_PREFIX, help="files PREFIX-00000-of-000NN.FORMAT; required"
    )
    parser.add_argument("--output_format", metavar="FORMAT", help="parquet (default), jsonl, csv or tsv")
    parser.add_argument(
        "--users", type=int, metavar="N", help="size of the universe of users; required for pairs"
    )
    parser.add_argument(
        "--items", type=int, metavar="N", help="size of the universe of items; required for pairs"
    )
    parser.add_argument(
        "--agents", type=int, metavar="N", help="a market: its agents, and PREFIX.supplies.yaml"
    )
    parser.add_argument("--resources", type=int, metavar="M", help="a market: its resources; required there")
    parser.add_argument(
        "--filled", type=float, metavar="X", help="a market: share of demands that are not zero (default 0.5)"
    )
    parser.add_argument(
        "--supply_share",
        type=float,
        metavar="X",
        help="a market: supply of every resource, per agent (default 0.1)",
    )
    parser.add_argument(
        "--mean_items_per_user", type=float, metavar="X", help="rows divided by users (default 10)"
    )
    parser.add_argument(
        "--user_exponent", type=float, metavar="X", help="power law of the users (default 0.5)"
    )
    parser.add_argument("--item_exponent", type=float, metavar="X", help="power law of the items (default 1)")
    parser.add_argument(
        "--item_bytes",
        type=int,
        metavar="N",
        help="shortest length of an item, as of web addresses (default 0)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="default 0")
    parser.add_argument("--shards", type=int, metavar="N", help="number of files (default 1)")
    parser.add_switch("overwrite", "replace earlier files of the same prefix")
    return parser


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit code."""
    return run_command("synth", lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    given, _ = make_parser().parse(argv)
    of_market = next((name for name in _MARKET if name in given), None)
    market = of_market is not None
    for name in _PAIRS if market else ():
        if name in given:
            raise InputError(f"--{name} is of pairs, --{of_market} of a market: drop one of them")
    require(given, "output", *(("agents", "resources") if market else ("users", "items")))
    prefix = local_path(given.pop("output"), "--output")
    if not is_local(prefix):
        raise InputError(f"--output: '{prefix}' must be a prefix on this machine")
    format = given.pop("output_format", "parquet")
    for name in ("config", "quiet", "verbose"):
        given.pop(name, None)
    if market:
        from dpbeam.lab.synth_market import write_market

        paths = write_market(prefix, format=format, **given)
    else:
        from dpbeam.lab.synth import write_synthetic

        given.setdefault("mean_items_per_user", 10.0)
        paths = write_synthetic(prefix, format=format, **given)
    shards, supplies = (paths[:-1], f"; {paths[-1]}") if market else (paths, "")
    count = "1 file" if len(shards) == 1 else f"{len(shards)} files"
    tell(f"{count}, {shards[0]}" + (f" to {shards[-1]}" if len(shards) > 1 else "") + supplies)
    return 0
