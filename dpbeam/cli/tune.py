"""`dpbeam tune`: what every method would release, from public data or a model, and the settings to take."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dpbeam.cli.flags import WRITTEN, FlagParser, add_budget_flags, add_input_flags, require
from dpbeam.errors import InputError
from dpbeam.io.new_files import NewFile
from dpbeam.jobs.checks import check_budget, warn_of_budget, within_arithmetic
from dpbeam.jobs.console import emit, run_command, tell, warn
from dpbeam.room import check_memory

if TYPE_CHECKING:
    from dpbeam.lab.evaluation.population import Model, Population
    from dpbeam.lab.evaluation.tuning import Tuning

#: Flags of the model, fields of `Model`; --users scales data too.
_MODEL = ("mean_items_per_user", "item_exponent", "set_size_spread", "items")
_NOT_PRIVATE = "NOT PRIVATE: chosen by looking at data, which must be public or consented"
_NO_DATA = "from a model; no data were read"


def make_parser() -> FlagParser:
    parser = FlagParser(
        "tune",
        "What every method is expected to release over the settings worth a try, and the cheapest choice near the best "
        "as a --config file: from public or consented data (NOT PRIVATE), or from a model without any data.",
        beam=False,
    )
    add_input_flags(parser)
    add_budget_flags(parser)
    group = parser.add_argument_group("model, instead of input")
    group.add_argument(
        "--users",
        type=int,
        metavar="N",
        help="users of the job; with --input, those for whom the input's users stand (default: themselves)",
    )
    group.add_argument(
        "--mean_items_per_user", type=float, metavar="X", help="different items of a user, on average"
    )
    group.add_argument(
        "--item_exponent", type=float, metavar="S", help="popularity of rank r is r^-S (default 1)"
    )
    group.add_argument(
        "--set_size_spread",
        type=float,
        metavar="X",
        help="standard deviation of the logarithm of a user's number of items (default 1.2)",
    )
    group.add_argument(
        "--items", type=int, metavar="N", help="different items (default: until one user holds the last)"
    )
    parser.add_switch("as_model", "with --input: run the model that fits the input instead of the input")
    group = parser.add_argument_group("search")
    group.add_argument(
        "--method", action="append", metavar="NAME", help="only this method; repeatable (default: all)"
    )
    group.add_argument(
        "--aim", metavar="WHAT", help="items (default): most released; pairs: most pairs whose item is"
    )
    group.add_argument(
        "--repetitions", type=int, metavar="N", help="runs of the choices that stay in the race (default 8)"
    )
    group.add_argument(
        "--tolerance",
        type=float,
        metavar="X",
        help="the pick is the cheapest within this share of the best (default 0.02)",
    )
    group.add_argument(
        "--time_limit",
        type=float,
        metavar="SECONDS",
        help="stop then, with what is known (default: until done)",
    )
    group.add_argument(
        "--jobs", type=int, metavar="N", help="processes (default: one per core that memory allows)"
    )
    group.add_argument("--seed", type=int, metavar="N", help="the same seed, the same figures (default 0)")
    group = parser.add_argument_group("output")
    group.add_argument(
        "--output", metavar="FILE.yaml", type=WRITTEN, help="the pick, as a --config file of dpbeam select"
    )
    group.add_argument(
        "--plot",
        metavar="FILE",
        type=WRITTEN,
        help="expected output by D0, FILE.svg or .png; needs the extra plots",
    )
    parser.add_switch("overwrite", "replace these files")
    parser.add_switch("json", "print JSON instead of a table")
    return parser


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit code."""
    return run_command("tune", lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    given, _ = make_parser().parse(argv)
    require(given, "epsilon", "delta")
    check_budget(given)
    _check(given)
    _check_files(given)
    from dpbeam.cli.bar import counted
    from dpbeam.lab.evaluation.tuning import REPETITIONS, TOLERANCE, choices, tune
    from dpbeam.lab.experiments.tuning_runs import ParallelRuns

    epsilon, delta, seed = given["epsilon"], given["delta"], given.get("seed", 0)
    model = None if "input" in given else _model(given)
    d0 = given.get("max_items_per_user")
    fixed = {} if d0 is None else {"max_items_per_user": (d0,)}
    with within_arithmetic(given):
        tried = choices(epsilon, delta, given.get("method"), fixed)
    warn_of_budget(given)
    population, source = _of_data(given, seed) if model is None else _simulated(model, seed, _NO_DATA)
    with (
        ParallelRuns(given.get("jobs")) as runs,
        counted("dpbeam tune", enabled=not given.get("quiet", False)) as (begin, advance),
    ):
        found = tune(
            population,
            tried,
            aim=given.get("aim", "items"),
            repetitions=given.get("repetitions", REPETITIONS),
            tolerance=given.get("tolerance", TOLERANCE),
            seed=seed,
            time_limit=given.get("time_limit"),
            runs=runs,
            begin=begin,
            advance=advance,
        )
    report = {"not_private": "input" in given, "source": source, **found.report(epsilon, delta)}
    if found.not_run:
        from dpbeam.cli.tables import not_run

        warn(not_run(report))
    _write(given, report, found)
    if given.get("json", False):
        emit(json.dumps(report, indent=2))
    else:
        from dpbeam.cli.tables import print_tuning

        print_tuning(report)
    return 0


def _check(given: dict[str, Any]) -> None:
    """Refuse flags that contradict each other, and numbers out of range."""
    from dpbeam.lab.evaluation.tuning import AIMS
    from dpbeam.selection.config import MAX_ITEMS_PER_USER
    from dpbeam.selectors.base import check_range

    if "input" in given:
        for name in _MODEL:
            if name in given:
                raise InputError(f"--{name} is of the model, which --input replaces: drop one of them")
    else:
        if "users" not in given or "mean_items_per_user" not in given:
            raise InputError("--input, or --users and --mean_items_per_user of a model, is required")
        if given.get("as_model", False):
            raise InputError("--as_model needs --input, to which the model is fitted")
    for name, low, high, integer in (
        ("users", 1, 1e9, True),
        ("repetitions", 1, 1000, True),
        ("tolerance", 0.0, 0.5, False),
        ("time_limit", 0.001, 1e9, False),
        ("jobs", 1, 1e6, True),
        ("seed", 0, 2**63, True),
        ("max_items_per_user", 1, MAX_ITEMS_PER_USER, True),
    ):
        if name in given:
            check_range(name, given[name], low, high, integer=integer)
    if given.get("aim", "items") not in AIMS:
        raise InputError(f"--aim must be {' or '.join(AIMS)}, got {given['aim']!r}")


def _check_files(given: dict[str, Any]) -> None:
    """Refuse places that cannot be written before anything runs."""
    for name in ("output", "plot"):
        if name in given:
            given[name].check(overwrite=given.get("overwrite", False))
    if "plot" in given:
        from dpbeam.lab.experiments.plots import check_matplotlib

        if os.path.splitext(given["plot"])[1] not in (".svg", ".png"):
            raise InputError(f"--plot: expected a name that ends in .svg or .png, got '{given['plot']}'")
        check_matplotlib("drop --plot")


def _model(given: dict[str, Any]) -> Model:
    from dpbeam.lab.evaluation.population import Model

    values = {name: given[name] for name in ("users", *_MODEL) if name in given}
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


def _of_data(given: dict[str, Any], seed: int) -> Source:
    import numpy as np

    from dpbeam.lab.evaluation.population import Model

    data = _read(given)
    users = given.get("users", data.users)
    if given.get("as_model", False):
        return _simulated(Model.fit(data).with_users(users), seed, _NOT_PRIVATE)
    _check_memory(data.pairs * users / max(data.users, 1), data.num_items)
    source = {"of": "data", "says": _NOT_PRIVATE, "users": users, "users_read": data.users}
    if users == data.users:
        return lambda number: data, source
    return lambda number: data.scaled(users, np.random.default_rng([seed, number])), source


def _read(given: dict[str, Any]) -> Population:
    from dpbeam.cli.settings import input_spec
    from dpbeam.io.pairs import read_pairs
    from dpbeam.io.sources import preflight
    from dpbeam.lab.evaluation.indexed import index_pairs
    from dpbeam.lab.evaluation.population import Population

    spec = input_spec(given)
    indexed = index_pairs(read_pairs(spec, preflight(spec)))
    return Population(indexed.sets, indexed.num_items)


def _write(given: dict[str, Any], report: dict[str, Any], found: Tuning) -> None:
    files: dict[NewFile, bytes] = {}
    if "output" in given:
        files[given["output"]] = _config(report).encode()
    if "plot" in given:
        from dpbeam.lab.experiments.tuning_plot import draw_tuning

        files[given["plot"]] = draw_tuning(found, report["source"]["says"], given["plot"].rpartition(".")[2])
    for file, data in files.items():
        file.write(data, overwrite=given.get("overwrite", False))
    if files and not given.get("quiet", False) and not given.get("json", False):
        tell(f"{', '.join(files)}: written")


def _config(report: dict[str, Any]) -> str:
    """The pick as flags of `dpbeam select`, with where it comes from."""
    import yaml

    from dpbeam.cli.tables import not_run

    pick = report["pick"]
    error = "" if pick["error"] is None else f", standard error {pick['error']:.3g}"
    head = [
        "dpbeam select --config=THIS --input=... --output=...",
        report["source"]["says"],
        f"expected {report['aim']}: {pick['mean']:.6g}{error}; best of {len(report['choices'])} choices: "
        f"{report['best']['mean']:.6g}",
        *([not_run(report)] if report["not_run"] else []),
    ]
    return "".join(f"# {line}\n" for line in head) + yaml.safe_dump(report["flags"], sort_keys=False)
