"""`dpbeam series VERB`: a window of nights that are released one by one, for one budget."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpbeam.cli.flags import (
    FOLDER,
    READ,
    WRITTEN,
    WRITTEN_PREFIX,
    FlagParser,
    add_account_flags,
    add_input_flags,
    require,
    take_verb,
)
from dpbeam.cli.release import PlannedCommand
from dpbeam.cli.series_open import FAMILY, WINDOW, config_of, open_series
from dpbeam.cli.series_output import (
    ENCRYPT,
    SO_FAR,
    check_names,
    is_open,
    load_window,
    output_of_night,
    place_of_night,
    publish_night,
    published,
    say,
    write_result,
)
from dpbeam.errors import InputError
from dpbeam.jobs.console import emit, warn
from dpbeam.jobs.result import files_of, run_release

if TYPE_CHECKING:
    import pyarrow as pa

    from dpbeam.series.config import SeriesPlan
    from dpbeam.series.window import SeriesWindow

_ACCOUNT = ("budget", "dataset", "release_id", "budget_cohort", "budget_period", "charge_test_key")
_INPUT = (
    *("input", "input_format", "input_layout", "user_column", "item_column", "item_type", "on_null"),
    *("on_bad_row", "csv_multiline", "lowercase", "text_layout", "tokenizer", "token_pattern", "ngrams"),
    *("user", "language", "http_status", "csv_delimiter", "partition", "table_version"),
)
#: Verb -> (its flags beside those of all, one line of help).
VERBS = {
    "open": (
        (
            *WINDOW,
            *_ACCOUNT,
            *("output", "output_format", "known", "item_column", "item_type", "user_column"),
            *("insecure_test_key", "users_at_least", "dry_run", "noisy_counts", "noisy_count_share"),
        ),
        "fix window and budget, write the window's ledger, and charge the account, once",
    ),
    "run": (
        ("night", "empty", "result_file", "lineage_file", "overwrite", *_INPUT),
        "make one night: release what is new",
    ),
    "erase": (("users", "user_type"), "take users out of all nights that are still to come"),
    "show": (("json",), "nights made, items released, what the window costs"),
    "close": ((), "end the series and remove what its users brought"),
}


class SeriesCommand(PlannedCommand):
    family = FAMILY
    plan_flags = ("nights", "first_night", "noisy_counts", "noisy_count_share")
    plan_requires = ("nights",)
    implied_by = "nights"

    def make_parser(self) -> FlagParser:
        lines = "; ".join(f"{verb}: {text}" for verb, (_, text) in VERBS.items())
        parser = FlagParser(
            "series",
            f"Release items night by night from growing data, for one budget. Verbs: {lines}.",
            beam=False,
        )
        parser.add_argument("verb", nargs="?", metavar="VERB", help=", ".join(VERBS))
        parser.add_argument(
            "--folder",
            metavar="DIR",
            type=FOLDER,
            help="private folder of the series, here or on s3://, az:// or hdfs://; required",
        )
        parser.add_switch(
            ENCRYPT,
            "open: encrypt the folder, under the key in DPBEAM_FOLDER_KEY; other verbs: refuse one that is not",
        )
        group = parser.add_argument_group("window (open)")
        group.add_argument("--epsilon", type=float, metavar="EPS", help="of all nights together; required")
        group.add_argument("--delta", type=float, metavar="DELTA", help="of all nights together; required")
        group.add_argument("--nights", type=int, metavar="T", help="how many nights the window has; required")
        group.add_argument(
            "--preset", metavar="NAME", help="early (default), early-flat or late: when most is spent"
        )
        group.add_argument(
            "--max_items_per_user", type=int, metavar="D0", help="items of a user that count over all nights"
        )
        group.add_argument(
            "--first_night", metavar="DAY", help="nights are days from this one on (default: numbers from 1)"
        )
        parser.add_switch(
            "noisy_counts", "with every released item a noisy number of the users that held it then"
        )
        group.add_argument(
            "--noisy_count_share",
            type=float,
            metavar="SHARE",
            help="share of the budget for --noisy_counts (default 0.2)",
        )
        group.add_argument(
            "--known",
            metavar="FILE",
            type=READ,
            help="items that are out already: a list, or a prefix of an output",
        )
        group.add_argument(
            "--output",
            metavar="PREFIX",
            type=WRITTEN_PREFIX,
            help="ledger PREFIX.ledger.json; each night at PREFIX-NIGHT; required",
        )
        group.add_argument("--output_format", metavar="FORMAT", help="parquet (default), text, csv or jsonl")
        group.add_argument(
            "--insecure_test_key", metavar="HEX", help="fixed key for tests; the output is NOT PRIVATE"
        )
        group.add_argument(
            "--users_at_least",
            type=int,
            metavar="N",
            help="how many users there publicly are; --delta is held against it",
        )
        parser.add_switch("dry_run", "check everything and print the plan; nothing is opened or charged")
        group = parser.add_argument_group("night (run)")
        group.add_argument(
            "--night", metavar="NIGHT", help="a number, or a day where --first_night was given"
        )
        parser.add_switch("empty", "nothing came on this night; its rounds run all the same")
        group.add_argument(
            "--result_file",
            metavar="FILE",
            type=WRITTEN,
            help="how the night ended and what it has released, as JSON",
        )
        group.add_argument(
            "--lineage_file",
            metavar="FILE",
            type=WRITTEN,
            help="the night as events of OpenLineage, one JSON a line",
        )
        parser.add_switch(
            "overwrite",
            "replace a --result_file or --lineage_file of anything else; what is released never is",
        )
        add_input_flags(parser)
        group = parser.add_argument_group("erase")
        group.add_argument(
            "--users", metavar="FILE", type=READ, help="list of users, one per line or Parquet (column user)"
        )
        group.add_argument("--user_type", metavar="TYPE", help="string (default), int or bytes")
        parser.add_switch("json", "show: print JSON instead of text")
        add_account_flags(parser)
        return parser

    def plan(self, given: dict[str, Any]) -> SeriesPlan:
        from dpbeam.series.config import plan_series

        return plan_series(config_of(given))


COMMAND = SeriesCommand()
make_parser = COMMAND.make_parser


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit code (`dpbeam.jobs.exit_codes`)."""
    return run_release("series", list(argv), lambda: make_parser().parse(argv), _run, place_of_night)


def _run(flags: dict[str, Any], beam_arguments: list[str]) -> int:
    verb = take_verb("series", flags, VERBS, "folder", "config", ENCRYPT)
    require(flags, "folder")
    return _DO[verb](flags)


def _make(flags: dict[str, Any]) -> int:
    require(flags, "night")
    if flags.get("empty", False) == ("input" in flags):
        raise InputError("--input: give the night's files, or --empty where nothing came")
    window = load_window(flags)
    _check_open(window)
    config = window.plan.config
    number = config.number_of(flags["night"])
    name = config.name_of(number)
    result = {file.flag: file for file in files_of(flags)}
    for file in result.values():
        file.claim({**flags, **place_of_night(flags)}, (SO_FAR,))
    users, items, kinds, names, files = _pairs(flags)
    check_names(window, names)
    if window.key.insecure:
        warn("NOT PRIVATE: --insecure_test_key fixes the key of this series; never release its output")
    with window.alone():
        target = output_of_night(window, name)
        target.overwrite |= published(target.prefix, window, name) is not None
        target.check(files, result)
        if target.overwrite and window.made.state.night < number:
            raise InputError(
                f"--folder: night {name} is out, and the folder does not know of it: an older copy of a folder would "
                "draw its noise again on other data; close this series and open another"
            )
        for file in result.values():
            file.clear()
        state = window.run(number, users, items, kinds)
        made_now = publish_night(flags, window, state, target, number, names)
        write_result(flags, target, made_now=made_now)
    return 0


def _pairs(flags: dict[str, Any]) -> tuple[pa.Array, pa.Array, bytes, tuple[str, ...], list[str]]:
    """Users, items, kinds, names of the item columns, and files of a night's input."""
    import pyarrow as pa

    from dpbeam.cli.settings import input_spec
    from dpbeam.io.pairs import read_pairs
    from dpbeam.io.sources import preflight
    from dpbeam.kernels.canonical import METADATA_KEY

    nothing = pa.array([], pa.large_binary())
    if flags.get("empty", False):
        return nothing, nothing, b"", ("item",), []
    spec = input_spec(flags)
    summary = preflight(spec)
    try:
        if summary.complete_users:
            raise InputError(
                "--user_column is required: a series follows its users over nights, so rows, lines or files cannot be "
                "users"
            )
        batches = list(read_pairs(spec, summary))
    finally:
        summary.release()
    if not any(len(batch[0]) for batch in batches):
        raise InputError("--input: there is not a single pair; give --empty where nothing came")
    users, items = (pa.concat_arrays([nothing, *(batch[side] for batch in batches)]) for side in (0, 1))
    kinds = summary.kinds.metadata()[METADATA_KEY]
    return users, items, kinds, (summary.spec or spec).item_names, [file.path for file in summary.files]


def _erase(flags: dict[str, Any]) -> int:
    require(flags, "users")
    from dpbeam.io.item_lists import read_items
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.kernels.canonical import ID_KINDS, STRING
    from dpbeam.series.state import kinds_of

    window = load_window(flags)
    kind = flags.get("user_type", STRING)
    if kind not in ID_KINDS:
        raise InputError(f"--user_type must be one of {', '.join(ID_KINDS)}, got '{kind}'")
    kinds = window.made.state.kinds
    if kinds and kinds_of(kinds).user != kind:
        raise InputError(f"--user_type must be {kinds_of(kinds).user}, as the users of the series are")
    window.erase(read_items(flags["users"], OutputColumns(("user",), (kind,)), "--users"))
    say(flags, "erased: these users give no weight on any night to come; whether they were here is not told")
    return 0


def _show(flags: dict[str, Any]) -> int:
    window = load_window(flags)
    made, config = window.made, window.plan.config
    schedule = config.resolved_schedule
    done = made.state.rounds
    noise, tests = (round(sum(shares[:done]), 6) for shares in (schedule.fractions, schedule.spending))
    values = {
        "series": window.id,
        "output": window.settings.get("output"),
        "open": is_open(window) and not made.closed,
        "closed": made.closed,
        "nights": config.nights,
        "nights_made": made.state.night,
        "next_night": None
        if made.closed or made.state.night == config.nights
        else config.name_of(made.state.night + 1),
        "items_released": len(made.state.released),
        "epsilon": config.epsilon,
        "delta": config.delta,
        "rounds": schedule.rounds,
        "rounds_made": done,
        "noise_spent": noise,
        "tests_spent": tests,
    }
    if flags.get("json", False):
        emit(json.dumps(values, indent=2))
        return 0
    state = "closed" if made.closed else "open" if values["open"] else "not open: dpbeam series open goes on"
    emit(
        f"series {window.id}: {state}; nights {made.state.night} of {config.nights}, next: {values['next_night']}\n"
        f"items released: {values['items_released']}\n"
        f"paid: epsilon {config.epsilon:g}, delta {config.delta:g} for the whole window; used so far: "
        f"{100 * noise:.0f} % of the noise, {100 * tests:.0f} % of the tests' delta"
    )
    return 0


def _close(flags: dict[str, Any]) -> int:
    window = load_window(flags)
    window.close()
    say(flags, "closed: what the users brought is removed; budget that no night has used is not given back")
    return 0


def _check_open(window: SeriesWindow) -> None:
    if "output" not in window.settings:
        raise InputError("--folder: this series was opened by dpbeam.Series and has no output; go on there")
    if not is_open(window):
        raise InputError("--folder: the opening of this series was cut short; give dpbeam series open again")


_DO = {"open": open_series, "run": _make, "erase": _erase, "show": _show, "close": _close}
