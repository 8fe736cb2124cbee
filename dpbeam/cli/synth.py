"""`dpbeam synth`: synthetic (user, item) data of any size."""

from __future__ import annotations

from collections.abc import Sequence

from dpbeam.cli.console import run_command, tell
from dpbeam.cli.flags import FlagParser, require


def make_parser() -> FlagParser:
    parser = FlagParser("synth", "Generate synthetic (user, item) pairs by power laws.", beam=False)
    parser.add_argument("--output", metavar="PREFIX", help="files PREFIX-00000-of-000NN.FORMAT; required")
    parser.add_argument("--output_format", metavar="FORMAT", help="parquet (default), jsonl, csv or tsv")
    parser.add_argument("--users", type=int, metavar="N", help="size of the universe of users; required")
    parser.add_argument("--items", type=int, metavar="N", help="size of the universe of items; required")
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
    require(given, "output", "users", "items")
    from dpbeam.io.synth import write_synthetic

    prefix = given.pop("output")
    format = given.pop("output_format", "parquet")
    given.setdefault("mean_items_per_user", 10.0)
    paths = write_synthetic(prefix, format=format, **given)
    tell(f"{len(paths)} files, {paths[0]}" + (f" to {paths[-1]}" if len(paths) > 1 else ""))
    return 0
