"""`dpbeam series open`: fix window and budget, publish the window's ledger, charge the account once.

Order, and what a process that comes after it finds: the private folder is made, with a key that has drawn nothing; the
account is charged and the ledger published as by any release (`dpbeam.jobs.charged`); the folder is marked as open. Cut
short anywhere, the same command goes on, and no night runs before the mark is there.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from dpbeam.cli.series_options import SeriesOptions
from dpbeam.cli.series_output import (
    ONE_FILE,
    folder_of,
    go_on,
    is_open,
    load_window,
    mark_open,
    published,
    release_of,
    stage,
)
from dpbeam.errors import BudgetError, InputError, SettingError, StoreError
from dpbeam.jobs.charge import open_charge
from dpbeam.jobs.checks import check_budget, check_test_key, warn_of_budget, within_arithmetic
from dpbeam.jobs.console import NothingToDo, warn
from dpbeam.jobs.uncharged import Uncharged
from dpbeam.series.family import SeriesConfig

if TYPE_CHECKING:
    import pyarrow as pa

    from dpbeam.accounting.ledger import Ledger
    from dpbeam.io.output import OutputTarget
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.series.config import SeriesPlan
    from dpbeam.series.window import SeriesWindow


def open_series(options: SeriesOptions) -> int:
    """Open a series, charge its account and publish its ledger; the exit code.

    Raises:
      InputError: flags do not go together, or the account or the place refuses.
      NothingToDo: it was opened before.
    """
    options.require("epsilon", "delta", "nights", "output")
    check_budget(options)
    check_test_key(options)
    from dpbeam.io.item_lists import read_items
    from dpbeam.io.output import OutputTarget
    from dpbeam.io.paths import absolute
    from dpbeam.series.config import series_ledger
    from dpbeam.series.store import check_folder_key
    from dpbeam.series.window import NIGHT_COLUMN

    with within_arithmetic(options):
        config = SeriesConfig.asked(options.said)
        plan = config.plan()
    _check_period(options, config)
    target = OutputTarget.asked(options.output, options.output_format)
    # A night's name is longer: refused now, before the window is paid for.
    OutputTarget(f"{target.prefix}-{config.name_of(config.nights)}", target.format)
    user = "user" if options.user_column is None else options.user_column
    settings = {
        "user": user,
        "item": options.item_column or ["item"],
        "item_type": options.item_type,
        "output": absolute(target.prefix),
        "format": target.format,
        **({"layout": ONE_FILE} if target.one_file else {}),
    }
    columns = _columns(options.item_column, options.item_type)
    columns.check_free((NIGHT_COLUMN, *plan.config.columns()))
    known = None if options.known is None else read_items(options.known, columns, "--known")
    settings["known_kinds"] = None if known is None else list(columns.kinds)
    warn_of_budget(options, config.doubts())
    if options.encrypt_intermediates:
        check_folder_key()
    if options.dry_run:
        _check_free(options, target)
        ledger = series_ledger(
            plan,
            series_id="",
            fixed_key=options.insecure_test_key is not None,
            user_column=user,
            known_items=known is not None,
        )
        return _print_plan(options, plan, open_charge("series", options, target), ledger)
    charge = _charge(options, target)
    window = _window(options, config, known, settings, target)
    _publish_window(options, window, charge, target, window.ledger())
    return 0


def _check_period(options: SeriesOptions, config: SeriesConfig) -> None:
    """Refuse an account's period that does not hold all nights of the window.

    Raises:
      InputError: naming the flag.
    """
    if options.budget_period is None or config.first_night is None:
        return
    from datetime import date

    from dpbeam.budget.periods import parse_days

    days = parse_days(options.budget_period, "--budget_period")
    first, last = (config.name_of(night) for night in (1, config.nights))
    if date.fromisoformat(first) < days.first or days.last < date.fromisoformat(last):
        raise SettingError(f"--budget_period must hold all nights of the window, {first}:{last}")


def _columns(item_column: list[str] | None, item_type: list[str] | None) -> OutputColumns:
    """Of known items: strings, unless the flags say otherwise.

    Raises:
      InputError: naming the flag.
    """
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.kernels.canonical import ID_KINDS, STRING

    names = tuple(item_column or ["item"])
    kinds = tuple(item_type or [STRING])
    kinds = kinds * len(names) if len(kinds) == 1 else kinds
    if len(kinds) != len(names) or not set(kinds) <= set(ID_KINDS):
        raise SettingError(
            f"--item_type must be {', '.join(ID_KINDS)}, one for all item columns or one for each"
        )
    return OutputColumns(names if len(names) > 1 else ("item",), kinds)


def _window(
    options: SeriesOptions,
    config: SeriesConfig,
    known: pa.Array | None,
    settings: dict[str, Any],
    target: OutputTarget,
) -> SeriesWindow:
    """The series of this folder: a new one, or one whose opening was cut short.

    Raises:
      NothingToDo: it is open already.
      InputError: the folder holds another one.
      UnavailableError: another process opens it.
    """
    from dpbeam.jobs.files import run_key
    from dpbeam.series.store import SeriesStore
    from dpbeam.series.window import SeriesWindow

    folder = folder_of(options.folder)
    if SeriesStore.exists(folder):
        window = load_window(options)
        same = (window.plan.config, window.settings) == (config, json.loads(json.dumps(settings)))
        same = same and window.encrypted == options.encrypt_intermediates
        if not same or window.key.insecure != (options.insecure_test_key is not None):
            raise StoreError(f"--folder: '{folder.path}' holds a series of other settings")
        _check_not_open(options, window)
        if set(window.known.to_pylist()) != set(known.to_pylist() if known is not None else ()):
            raise StoreError(
                "--known: this opening began with other known items; give those, or take another --folder and --output"
            )
        return window
    try:
        _check_free(options, target)
        encrypt = options.encrypt_intermediates
        return SeriesWindow.open(config, run_key(options), known, folder, settings, encrypt=encrypt)
    except InputError:
        if SeriesStore.exists(folder):  # since it was asked above
            raise folder.busy() from None
        raise


def _check_not_open(options: SeriesOptions, window: SeriesWindow) -> None:
    if is_open(window):
        options.say(f"the series in '{options.folder}' is open already; nothing is charged")
        raise NothingToDo


def _check_free(options: SeriesOptions, target: OutputTarget) -> None:
    """Refuse an output that is there, or would lie in the private folder of its own series.

    Raises:
      InputError: naming the flag.
    """
    from dpbeam.io.paths import local_path, resolved

    target.check()
    prefix, folder = (resolved(path) for path in (target.prefix, local_path(options.folder, "--folder")))
    if prefix.startswith(os.path.join(folder, "")):
        raise SettingError(
            f"--output: '{options.output}' lies in --folder, which is private; name another place"
        )


def _charge(options: SeriesOptions, target: OutputTarget) -> Uncharged:
    """The account of this opening, before anything is made.

    Raises:
      NothingToDo: it was charged and published before, and is open now.
      InputError: the release id stands for something else.
    """
    from dpbeam.series.store import SeriesStore

    try:
        return open_charge("series", options, target)
    except NothingToDo:
        window = load_window(options) if SeriesStore.exists(folder_of(options.folder)) else None
        if window is None or published(target.prefix, window) is None:
            raise BudgetError(
                f"--release_id: '{options.release_id}' was charged for a series in another folder; go on with that, "
                "or take another release id"
            ) from None
        mark_open(window)
        raise


def _publish_window(
    options: SeriesOptions, window: SeriesWindow, charge: Uncharged, target: OutputTarget, ledger: Ledger
) -> None:
    """Charge the account and put the window's ledger in place; its one file lists what was known before."""
    with window.alone(), target.alone():
        _check_not_open(options, window)  # by another process since it was loaded
        go_on(target, window)
        if published(target.prefix, window) is None:
            target.check()
            try:
                if charge.note:
                    options.say(charge.note)
                charge.reserve(ledger)
                _publish(options, window, charge, target, ledger)
            except BaseException:
                charge.failed(target, kept=False)
                raise
        elif charge.pays:
            raise BudgetError(
                "--budget: this opening began without an account, and its ledger is out; give the command again "
                "without --budget, or take another --folder and --output"
            )
        target.tidy()
        mark_open(window)
    config = window.plan.config
    if window.key.insecure:
        warn("NOT PRIVATE: --insecure_test_key fixes the key of this series; never release its output")
    options.say(
        f"series of {config.nights} nights opened in '{options.folder}': epsilon "
        f"{config.epsilon:g}, delta {config.delta:g} for all of them; ledger: {target.ledger_path}",
    )


def _publish(
    options: SeriesOptions, window: SeriesWindow, charge: Uncharged, target: OutputTarget, ledger: Ledger
) -> None:
    if target.can_finish:  # without an account; with one, what was staged is gone since the reservation
        target.finish()
        return
    target.abort()
    columns = _columns(window.settings["item"], window.settings["item_type"])
    stage(target, window.known, columns, None, {})
    target.release = release_of(options, target)
    charge.publish(target, ledger)


def _print_plan(options: SeriesOptions, plan: SeriesPlan, charge: Uncharged, ledger: Ledger) -> int:
    lines = [str(part) for part in SeriesConfig.shown(SeriesConfig.report(plan))]
    if preview := charge.preview(ledger):
        lines.append(preview)
    options.say("\n".join([*lines, "dry run: nothing was opened or charged"]))
    return 0
