"""`dpbeam series VERB`: a window of nights that are released one by one, for one budget."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dpbeam.cli.flags import take_verb
from dpbeam.cli.release import PlannedCommand
from dpbeam.cli.series_open import open_series
from dpbeam.cli.series_options import EMPTY_NIGHT, NO_PAIRS, VERBS, FolderOptions, SeriesOptions
from dpbeam.cli.series_output import (
    SO_FAR,
    check_ledger_there,
    check_names,
    is_open,
    load_window,
    output_of_night,
    place_of_night,
    publish_night,
    write_result,
)
from dpbeam.errors import DataError, SettingError, StoreError
from dpbeam.jobs.console import emit, warn
from dpbeam.jobs.result import file_of, run_release
from dpbeam.series.family import SeriesConfig

if TYPE_CHECKING:
    from dpbeam.io.sources import InputSummary
    from dpbeam.io.spec import InputSpec
    from dpbeam.series.state import SeriesState
    from dpbeam.series.window import SeriesWindow


class SeriesCommand(PlannedCommand):
    """`dpbeam series`."""

    family = SeriesConfig
    plan_requires = ("nights",)
    options = SeriesOptions
    implied_by = "nights"

    @property
    def text(self) -> str:
        verbs = "; ".join(f"{verb}: {text}" for verb, (_, text) in VERBS.items())
        return f"{super().text} Verbs: {verbs}. With --runner that engine makes the night, without it this process."


COMMAND = SeriesCommand()
make_parser = COMMAND.make_parser


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit code (`dpbeam.jobs.exit_codes`)."""
    return run_release("series", list(argv), lambda: make_parser().parse(argv), _run, place_of_night)


def _run(options: SeriesOptions, beam_arguments: list[str]) -> int:
    verb = take_verb("series", options, VERBS, FolderOptions)
    options.require("folder")
    if verb == "run":
        return _make(options, beam_arguments)
    if beam_arguments:
        raise SettingError(f"{_name_of(beam_arguments[0])} does not apply to series {verb}")
    return _DO[verb](options)


def _make(options: SeriesOptions, beam_arguments: list[str]) -> int:
    options.require("night")
    if options.empty == (options.input is not None):
        raise SettingError("--input: give the night's files, or --empty where nothing came")
    if not any(argument.startswith("--runner=") for argument in beam_arguments):
        for flag in (*map(_name_of, beam_arguments), *(["--num_shards"] if options.num_shards else [])):
            raise SettingError(f"{flag} needs --runner: without it a night is made in this process")
    else:
        from dpbeam.jobs.engine import use_stores

        use_stores(beam_arguments)
    window = load_window(options)
    _check_open(window)
    config = window.plan.config
    number = config.number_of(options.night)
    name = config.name_of(number)
    result = file_of(options.said)
    if result is not None:
        result.claim({**options.said, **place_of_night(options.said)}, (SO_FAR,))
    with _night_input(options, beam_arguments) as source:
        check_names(window, source.names)
        if window.key.insecure:
            warn("NOT PRIVATE: --insecure_test_key fixes the key of this series; never release its output")
        with window.alone(), output_of_night(window, name) as target:
            if number <= window.snapshot.state.night:
                check_ledger_there(target, name)
            target.check(source.files, {} if result is None else {result.flag: result})
            if target.overwrite and window.snapshot.state.night < number:
                raise StoreError(
                    f"--folder: night {name} is out, and the folder does not know of it: an older copy of a folder "
                    "would draw its noise again on other data; close this series and open another"
                )
            if result is not None:
                result.clear()
            state = source.make(window, number)
            made_now = publish_night(options, window, state, target, number, source.names)
            write_result(options, target, made_now=made_now)
    return 0


def _name_of(argument: str) -> str:
    return argument.partition("=")[0]


class NightInput(NamedTuple):
    """What came with a night.

    Attributes:
      names: of the item columns; files: of the input.
      make: the state after the night, from a window and the night's number.
    """

    names: tuple[str, ...]
    files: list[str]
    make: Callable[[SeriesWindow, int], SeriesState]


@contextlib.contextmanager
def _night_input(options: SeriesOptions, beam_arguments: list[str]) -> Iterator[NightInput]:
    """The night's input, looked at; where no engine is asked for, read."""
    from dpbeam.cli.settings import input_spec
    from dpbeam.io.sources import preflight

    if beam_arguments:
        from dpbeam.cli.series_engine import Engine

        engine = Engine(options, beam_arguments)
    if options.empty:
        make = engine.make if beam_arguments else _in_process(None, None)
        yield NightInput(("item",), [], make)
        return
    spec = input_spec(options)
    summary = preflight(spec, temp_location=engine.temp_location if beam_arguments else None)
    try:
        if summary.complete_users:
            raise SettingError(
                "--user_column is required: a series follows its users over nights, so rows, lines or files cannot be "
                "users"
            )
        make = engine.reading(spec, summary) if beam_arguments else _in_process(spec, summary)
        yield NightInput((summary.spec or spec).item_names, [file.path for file in summary.files], make)
    finally:
        summary.release()


def _in_process(
    spec: InputSpec | None, summary: InputSummary | None
) -> Callable[[SeriesWindow, int], SeriesState]:
    """Reads the input, and makes nights of it in this process."""
    import pyarrow as pa

    from dpbeam.io.pairs import check_not_empty, read_pairs
    from dpbeam.kernels.canonical import METADATA_KEY

    nothing = pa.array([], pa.large_binary())
    users, items, kinds = nothing, nothing, b""
    if spec is not None and summary is not None:
        check_not_empty(spec, summary, EMPTY_NIGHT)
        batches = list(read_pairs(spec, summary))
        summary.release()
        if not any(len(batch[0]) for batch in batches):
            raise DataError(NO_PAIRS)
        users, items = (pa.concat_arrays([nothing, *(batch[side] for batch in batches)]) for side in (0, 1))
        kinds = summary.kinds.metadata()[METADATA_KEY]
    return lambda window, number: window.run(number, users, items, kinds)


def _erase(options: SeriesOptions) -> int:
    options.require("users")
    from dpbeam.io.item_lists import read_items
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.kernels.canonical import ID_KINDS
    from dpbeam.series.state import kinds_of

    window = load_window(options)
    kind = options.user_type
    if kind not in ID_KINDS:
        raise SettingError(f"--user_type must be one of {', '.join(ID_KINDS)}, got '{kind}'")
    kinds = window.snapshot.state.kinds
    if kinds and kinds_of(kinds).user != kind:
        raise SettingError(f"--user_type must be {kinds_of(kinds).user}, as the users of the series are")
    window.erase(read_items(options.users, OutputColumns(("user",), (kind,)), "--users"))
    options.say("erased: these users give no weight on any night to come; whether they were here is not told")
    return 0


def _show(options: SeriesOptions) -> int:
    window = load_window(options)
    made, config = window.snapshot, window.plan.config
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
    if options.json:
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


def _close(options: SeriesOptions) -> int:
    window = load_window(options)
    window.close()
    options.say("closed: what the users brought is removed; budget that no night has used is not given back")
    return 0


def _check_open(window: SeriesWindow) -> None:
    if "output" not in window.settings:
        raise StoreError("--folder: this series was opened by dpbeam.Series and has no output; go on there")
    window.check_paid()


_DO = {"open": open_series, "erase": _erase, "show": _show, "close": _close}
