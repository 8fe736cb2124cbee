"""`dpbeam tune`: what every method would release, from public data or a model, and the settings to take."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpbeam.cli.flags import FlagParser, entry_point
from dpbeam.errors import SettingError
from dpbeam.figures import format_of
from dpbeam.io.new_files import NewFile
from dpbeam.jobs.checks import check_budget, warn_of_budget, within_arithmetic
from dpbeam.jobs.console import emit, warn
from dpbeam.jobs.options import WRITTEN, BudgetOptions, InputOptions, JobOptions, flag, switch
from dpbeam_lab.room import check_memory

if TYPE_CHECKING:
    from dpbeam_lab.evaluation.population import Model, Population
    from dpbeam_lab.evaluation.tuning import Tuning

#: Flags of the model, fields of `Model`; --users scales data too.
_MODEL = ("mean_items_per_user", "rare_items_per_user", "item_exponent", "set_size_spread", "items")
_NOT_PRIVATE = "NOT PRIVATE: chosen by looking at data, which must be public or consented"
_NO_DATA = "from a model; no data were read"


class ModelOptions(JobOptions):
    """What is known of the users where there is no input."""

    group = "model, instead of input"
    users: int | None = flag(
        "N",
        "users of the job; with --input, those for whom the input's users stand (default: themselves)",
        common=True,
    )
    mean_items_per_user: float | None = flag("X", "different items of a user, on average", common=True)
    rare_items_per_user: float | None = flag(
        "X",
        "how many of these fewer than 100 users hold; it gives the exponent, which is a guess otherwise",
        common=True,
    )
    item_exponent: float | None = flag("S", "popularity of rank r is r^-S (default 1)")
    set_size_spread: float | None = flag(
        "X", "standard deviation of the logarithm of a user's number of items (default 1.2)"
    )
    items: int | None = flag("N", "different items (default: until one user holds the last)")
    as_model: bool = switch("with --input: run the model that fits the input instead of the input")


class SearchOptions(JobOptions):
    """How to search."""

    group = "search"
    method: list[str] | None = flag("NAME", "only this method; repeatable (default: all)", common=True)
    aim: str = flag(
        "WHAT", "items (default): most released; pairs: most pairs whose item is", value="items", common=True
    )
    repetitions: int | None = flag("N", "runs of the choices that stay in the race (default 8)")
    max_items_per_user: int | None = flag(
        "D0", "items of a user that count (default: those worth a try)", common=True
    )
    tolerance: float | None = flag(
        "X", "the pick is the cheapest within this share of the best (default 0.02)"
    )
    time_limit: float | None = flag(
        "SECONDS", "stop then, with what is known (default: until done)", common=True
    )
    jobs: int | None = flag("N", "processes (default: one per core that memory allows)")
    seed: int = flag("N", "the same seed, the same figures (default 0)", value=0)


class TuneOptions(InputOptions, BudgetOptions, ModelOptions, SearchOptions):
    """Data or model, how to search, and where the pick goes."""

    group = "output"
    output: NewFile | None = flag(
        "FILE.yaml", "the pick, as a --config file of dpbeam select", type=WRITTEN, common=True
    )
    plot: NewFile | None = flag(
        "FILE",
        "expected output by D0, FILE.svg or .png; needs the extra plots",
        type=WRITTEN,
        common=True,
    )
    overwrite: bool = switch("replace these files", common=True)
    json: bool = switch("print JSON instead of a table", common=True)


def make_parser() -> FlagParser[TuneOptions]:
    return FlagParser(
        "tune",
        "What every method is expected to release over the settings worth a try, and the cheapest choice near the best "
        "as a --config file: from public or consented data (NOT PRIVATE), or from a model without any data.",
        TuneOptions,
        beam=False,
    )


@entry_point("tune", make_parser)
def main(options: TuneOptions) -> int:
    options.require("epsilon", "delta")
    check_budget(options)
    _check(options)
    _check_files(options)
    from dpbeam_lab.cli.bar import counted
    from dpbeam_lab.evaluation.tuning import REPETITIONS, TOLERANCE, choices, tune
    from dpbeam_lab.experiments.tuning_runs import ParallelRuns

    epsilon, delta, seed = options.epsilon, options.delta, options.seed
    model = None if options.input is not None else _model(options)
    d0 = options.max_items_per_user
    fixed = {} if d0 is None else {"max_items_per_user": (d0,)}
    with within_arithmetic(options):
        tried = choices(epsilon, delta, options.method, fixed)
    warn_of_budget(options)
    population, source = _of_data(options, seed) if model is None else _simulated(model, seed, _NO_DATA)
    with (
        ParallelRuns(options.jobs) as runs,
        counted("dpbeam tune", enabled=not options.quiet) as (begin, advance),
    ):
        tuning = tune(
            population,
            tried,
            aim=options.aim,
            repetitions=REPETITIONS if options.repetitions is None else options.repetitions,
            tolerance=TOLERANCE if options.tolerance is None else options.tolerance,
            seed=seed,
            time_limit=options.time_limit,
            runs=runs,
            begin=begin,
            advance=advance,
        )
    report = {"not_private": options.input is not None, "source": source, **tuning.report(epsilon, delta)}
    if source["of"] == "model":
        report["model_error"] = _model_error(options, tuning)
        if options.rare_items_per_user is not None:
            source["rare_items_per_user"] = options.rare_items_per_user
    if tuning.not_run:
        from dpbeam_lab.cli.tables import not_run

        warn(not_run(report))
    _write(options, report, tuning)
    if options.json:
        emit(json.dumps(report, indent=2))
    else:
        from dpbeam_lab.cli.tables import print_tuning

        print_tuning(report)
    return 0


def _model_error(options: TuneOptions, tuning: Tuning) -> dict[str, Any]:
    """What the figures of a model are worth, from how models of its kind did on public sets."""
    from dpbeam_lab.evaluation.population import FITTED, FROM_RARE_ITEMS, GUESSED

    rare = options.rare_items_per_user is not None
    error = FITTED if options.as_model else FROM_RARE_ITEMS if rare else GUESSED
    promised, pick = tuning.chosen.mean("items"), tuning.chosen.mean(tuning.aim)
    return {
        "promise_over_truth": list(error.promise),
        "items": [promised / ratio for ratio in reversed(error.promise)],
        "ratio_of_methods": error.near,
        "near": {name: mean / pick for name, mean in tuning.rivals(error.near).items()} if pick else {},
    }


def _check(options: TuneOptions) -> None:
    """Refuse flags that contradict each other, and numbers out of range."""
    from dpbeam.selection.config import MAX_ITEMS_PER_USER
    from dpbeam.selectors.base import check_range
    from dpbeam_lab.evaluation.tuning import AIMS

    if options.input is not None:
        for name in _MODEL:
            if name in options.said:
                raise SettingError(f"--{name} is of the model, which --input replaces: drop one of them")
    else:
        if options.users is None or options.mean_items_per_user is None:
            raise SettingError("--input, or --users and --mean_items_per_user of a model, is required")
        if options.rare_items_per_user is not None and options.item_exponent is not None:
            raise SettingError(
                "--rare_items_per_user gives the exponent of items: drop it, or --item_exponent"
            )
        if options.as_model:
            raise SettingError("--as_model needs --input, to which the model is fitted")
    for name, low, high, integer in (
        ("users", 1, 1e9, True),
        ("repetitions", 1, 1000, True),
        ("tolerance", 0.0, 0.5, False),
        ("time_limit", 0.001, 1e9, False),
        ("jobs", 1, 1e6, True),
        ("seed", 0, 2**63, True),
        ("max_items_per_user", 1, MAX_ITEMS_PER_USER, True),
    ):
        if name in options.said:
            check_range(name, options.said[name], low, high, integer=integer)
    if options.aim not in AIMS:
        raise SettingError(f"--aim must be {' or '.join(AIMS)}, got {options.aim!r}")


def _check_files(options: TuneOptions) -> None:
    """Refuse places that cannot be written before anything runs."""
    for name in ("output", "plot"):
        if name in options.said:
            options.said[name].check(overwrite=options.overwrite)
    if options.plot is not None:
        format_of(options.plot, "--plot")
        if options.output is not None:
            options.plot.check_apart(options.output)


def _model(options: TuneOptions) -> Model:
    from dpbeam_lab.evaluation.population import Model

    values = {name: options.said[name] for name in ("users", *_MODEL) if name in options.said}
    if options.rare_items_per_user is not None:
        model = Model.of_rare_items(**values)
    else:
        model = Model(**{"item_exponent": 1.0, **values})
    _check_memory(model.users * model.mean_items_per_user, model.num_items)
    return model


def _check_memory(pairs: float, items: int) -> None:
    """Refuse a population that memory does not hold. Raises InputError."""
    check_memory("--users", 40 * pairs + 24 * items)


Source = tuple[Callable[[int], "Population"], dict[str, Any]]
"""Populations by the number of the repetition, and what is said of where they come from."""


def _simulated(model: Model, seed: int, says: str) -> Source:
    import numpy as np

    source = {"of": "model", "says": says, **model.public_parameters()}
    return lambda number: model.draw(np.random.default_rng([seed, number])), source


def _of_data(options: TuneOptions, seed: int) -> Source:
    import numpy as np

    from dpbeam_lab.evaluation.population import Model

    data = _read(options)
    users = data.users if options.users is None else options.users
    if options.as_model:
        return _simulated(Model.fit(data).with_users(users), seed, _NOT_PRIVATE)
    _check_memory(data.pairs * users / max(data.users, 1), data.num_items)
    source = {"of": "data", "says": _NOT_PRIVATE, "users": users, "users_read": data.users}
    if users == data.users:
        return lambda number: data, source
    return lambda number: data.scaled(users, np.random.default_rng([seed, number])), source


def _read(options: TuneOptions) -> Population:
    from dpbeam.cli.settings import input_spec
    from dpbeam.io.pairs import read_pairs
    from dpbeam.io.sources import preflight
    from dpbeam_lab.evaluation.indexed import index_pairs
    from dpbeam_lab.evaluation.population import Population

    spec = input_spec(options)
    indexed = index_pairs(read_pairs(spec, preflight(spec)))
    return Population(indexed.sets, indexed.num_items)


def _write(options: TuneOptions, report: dict[str, Any], tuning: Tuning) -> None:
    files: dict[NewFile, bytes] = {}
    if options.output is not None:
        files[options.output] = _config(report).encode()
    if options.plot is not None:
        from dpbeam_lab.experiments.tuning_plot import draw_tuning

        files[options.plot] = draw_tuning(tuning, report["source"]["says"], format_of(options.plot, "--plot"))
    for file, data in files.items():
        file.write(data, overwrite=options.overwrite)
    if files and not options.json:
        options.say(f"{', '.join(files)}: written")


def _config(report: dict[str, Any]) -> str:
    """The pick as flags of `dpbeam select`, with where it comes from."""
    import yaml

    from dpbeam_lab.cli.tables import model_error, not_run

    pick = report["pick"]
    error = "" if pick["error"] is None else f", standard error {pick['error']:.3g}"
    head = [
        "dpbeam select --config=THIS --input=... --output=...",
        report["source"]["says"],
        f"expected {report['aim']}: {pick['mean']:.6g}{error}; best of {len(report['choices'])} choices: "
        f"{report['best']['mean']:.6g}",
        *model_error(report),
        *([not_run(report)] if report["not_run"] else []),
    ]
    return "".join(f"# {line}\n" for line in head) + yaml.safe_dump(report["flags"], sort_keys=False)
