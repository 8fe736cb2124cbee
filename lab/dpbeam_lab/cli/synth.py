"""`dpbeam synth`: synthetic (user, item) data, or agents of a market, of any size."""

from __future__ import annotations

from dpbeam.cli.flags import FlagParser, entry_point
from dpbeam.errors import SettingError
from dpbeam.io.paths import local_path, scheme_of
from dpbeam.jobs.options import WRITTEN_PREFIX, Options, flag, switch

_MARKET = ("agents", "resources", "filled", "supply_share")
_PAIRS = ("users", "items", "mean_items_per_user", "user_exponent", "item_exponent", "item_bytes")
_SETTINGS = {*_MARKET, *_PAIRS, "seed", "shards", "overwrite"}


class SynthOptions(Options):
    """How many users and items, or agents, and how they are spread."""

    output: str = flag(
        "PREFIX", "files PREFIX-00000-of-000NN.FORMAT; required", type=WRITTEN_PREFIX, needed=True
    )
    output_format: str = flag("FORMAT", "parquet (default), jsonl, csv or tsv", value="parquet")
    users: int | None = flag("N", "size of the universe of users; required for pairs")
    items: int | None = flag("N", "size of the universe of items; required for pairs")
    agents: int | None = flag("N", "a market: its agents, and PREFIX.supplies.yaml")
    resources: int | None = flag("M", "a market: its resources; required there")
    filled: float | None = flag("X", "a market: share of demands that are not zero (default 0.5)")
    supply_share: float | None = flag("X", "a market: supply of every resource, per agent (default 0.1)")
    mean_items_per_user: float | None = flag("X", "rows divided by users (default 10)")
    user_exponent: float | None = flag("X", "power law of the users (default 0.5)")
    item_exponent: float | None = flag("X", "power law of the items (default 1)")
    item_bytes: int | None = flag("N", "shortest length of an item, as of web addresses (default 0)")
    seed: int | None = flag("N", "default 0")
    shards: int | None = flag("N", "number of files (default 1)")
    overwrite: bool = switch("replace earlier files of the same prefix")


def make_parser() -> FlagParser[SynthOptions]:
    return FlagParser(
        "synth",
        "Generate synthetic (user, item) pairs by power laws, or with --agents a market for pack.",
        SynthOptions,
        beam=False,
    )


@entry_point("synth", make_parser)
def main(options: SynthOptions) -> int:
    of_market = next((name for name in _MARKET if name in options.said), None)
    market = of_market is not None
    for name in _PAIRS if market else ():
        if name in options.said:
            raise SettingError(f"--{name} is of pairs, --{of_market} of a market: drop one of them")
    options.require("output", *(("agents", "resources") if market else ("users", "items")))
    prefix = local_path(options.output, "--output")
    if scheme_of(prefix) is not None:
        raise SettingError(f"--output: '{prefix}' must be a prefix on this machine")
    settings = {name: value for name, value in options.said.items() if name in _SETTINGS}
    if market:
        from dpbeam_lab.synth_market import write_market

        paths = write_market(prefix, format=options.output_format, **settings)
    else:
        from dpbeam_lab.synth import write_synthetic

        settings.setdefault("mean_items_per_user", 10.0)
        paths = write_synthetic(prefix, format=options.output_format, **settings)
    shards, supplies = (paths[:-1], f"; {paths[-1]}") if market else (paths, "")
    count = "1 file" if len(shards) == 1 else f"{len(shards)} files"
    options.say(f"{count}, {shards[0]}" + (f" to {shards[-1]}" if len(shards) > 1 else "") + supplies)
    return 0
