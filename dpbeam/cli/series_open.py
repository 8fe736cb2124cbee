"""`dpbeam series open`: fix window and budget, publish the window's ledger, charge the account once.

Order, and what a process that comes after it finds: the private folder is made, with a key that has drawn nothing; the
account is charged and the ledger published as by any release (`dpbeam.jobs.charged`); the folder is marked as open. Cut
short anywhere, the same command goes on, and no night runs before the mark is there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpbeam.cli.flags import require
from dpbeam.cli.series_output import (
    ENCRYPT,
    folder_of,
    go_on,
    is_open,
    load_window,
    mark_open,
    published,
    release_of,
    say,
    stage,
)
from dpbeam.errors import InputError
from dpbeam.families.registry import families
from dpbeam.jobs.charge import open_charge
from dpbeam.jobs.checks import check_budget, check_test_key, warn_of_budget, within_arithmetic
from dpbeam.jobs.console import NothingToDo, warn
from dpbeam.jobs.uncharged import Uncharged

if TYPE_CHECKING:
    import pyarrow as pa

    from dpbeam.io.output import OutputTarget
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.series.config import SeriesConfig, SeriesPlan
    from dpbeam.series.window import SeriesWindow

FAMILY = families()["series"]
#: Flags that are fields of `SeriesConfig`.
WINDOW = ("epsilon", "delta", "nights", "preset", "max_items_per_user", "first_night")


def open_series(flags: dict[str, Any]) -> int:
    require(flags, "epsilon", "delta", "nights", "output")
    check_budget(flags)
    check_test_key(flags)
    from dpbeam.io.output import OutputTarget
    from dpbeam.io.paths import absolute
    from dpbeam.series.config import plan_series, series_ledger
    from dpbeam.series.store import check_folder_key

    with within_arithmetic(flags):
        config = config_of(flags)
        plan = plan_series(config)
    _check_period(flags, config)
    target = OutputTarget(flags["output"], flags.get("output_format", "parquet"))
    settings = {
        "user": flags.get("user_column", "user"),
        "item": flags.get("item_column", ["item"]),
        "item_type": flags.get("item_type"),
        "output": absolute(target.prefix),
        "format": target.format,
    }
    columns = _columns(flags)
    known = None if "known" not in flags else _read_known(flags["known"], columns)
    settings["known_kinds"] = None if known is None else list(columns.kinds)
    warn_of_budget(flags)
    if flags.get(ENCRYPT, False):
        check_folder_key()
    if flags.get("dry_run", False):
        target.check()
        ledger = series_ledger(
            plan,
            series_id="",
            fixed_key="insecure_test_key" in flags,
            user_column=settings["user"],
            known_items=known is not None,
        )
        return _print_plan(flags, plan, open_charge("series", flags, target), ledger.to_json())
    charge = _charge(flags, target)
    window = _window(flags, config, known, settings, target)
    ledger = series_ledger(
        plan,
        series_id=window.id,
        fixed_key=window.key.insecure,
        user_column=window.settings["user"],
        known_items=len(window.known) > 0,
    )
    _publish_window(flags, window, charge, target, ledger.to_json())
    return 0


def config_of(flags: dict[str, Any]) -> SeriesConfig:
    """The settings among the flags. Raises InputError."""
    from dpbeam.series.config import SeriesConfig
    from dpbeam.series.counts import count_share

    share = count_share(flags.get("noisy_counts", False), flags.get("noisy_count_share"))
    chosen = {name: flags[name] for name in WINDOW if name in flags}
    return SeriesConfig(**chosen, noisy_count_share=share)


def _check_period(flags: dict[str, Any], config: SeriesConfig) -> None:
    """Refuse an account's period that does not hold all nights of the window.

    Raises:
      InputError: naming the flag.
    """
    if "budget_period" not in flags or config.first_night is None:
        return
    from datetime import date

    from dpbeam.budget.periods import parse_days

    days = parse_days(flags["budget_period"], "--budget_period")
    first, last = (config.name_of(night) for night in (1, config.nights))
    if date.fromisoformat(first) < days.first or days.last < date.fromisoformat(last):
        raise InputError(f"--budget_period must hold all nights of the window, {first}:{last}")


def _columns(flags: Mapping[str, Any]) -> OutputColumns:
    """Of known items: strings, unless the flags say otherwise.

    Raises:
      InputError: naming the flag.
    """
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.kernels.canonical import ID_KINDS, STRING

    names = tuple(flags.get("item_column") or ["item"])
    kinds = tuple(flags.get("item_type") or [STRING])
    kinds = kinds * len(names) if len(kinds) == 1 else kinds
    if len(kinds) != len(names) or not set(kinds) <= set(ID_KINDS):
        raise InputError(
            f"--item_type must be {', '.join(ID_KINDS)}, one for all item columns or one for each"
        )
    return OutputColumns(names if len(names) > 1 else ("item",), kinds)


def _read_known(path: str, columns: OutputColumns) -> pa.Array:
    from dpbeam.io.item_lists import read_items

    return read_items(path, columns, "--known")


def _window(
    flags: dict[str, Any],
    config: SeriesConfig,
    known: pa.Array | None,
    settings: dict[str, Any],
    target: OutputTarget,
) -> SeriesWindow:
    """The series of this folder: a new one, or one whose opening was cut short.

    Raises:
      NothingToDo: it is open already.
      InputError: the folder holds another one.
    """
    from dpbeam.randomness import RunKey
    from dpbeam.series.store import SeriesStore
    from dpbeam.series.window import SeriesWindow

    folder = folder_of(flags["folder"])
    if SeriesStore.exists(folder):
        window = load_window(flags)
        same = (window.plan.config, window.settings) == (config, json.loads(json.dumps(settings)))
        same = same and window.encrypted == flags.get(ENCRYPT, False)
        if not same or window.key.insecure != ("insecure_test_key" in flags):
            raise InputError(f"--folder: '{folder.path}' holds a series of other settings")
        if is_open(window):
            say(flags, f"the series in '{folder.path}' is open already; nothing is charged")
            raise NothingToDo
        return window
    target.check()
    key = RunKey.fresh()
    if "insecure_test_key" in flags:
        key = RunKey.insecure_fixed(flags["insecure_test_key"].lower())
    return SeriesWindow.open(config, key, known, folder, settings, encrypt=flags.get(ENCRYPT, False))


def _charge(flags: dict[str, Any], target: OutputTarget) -> Uncharged:
    """The account of this opening, before anything is made.

    Raises:
      NothingToDo: it was charged and published before, and is open now.
      InputError: the release id stands for something else.
    """
    from dpbeam.series.store import SeriesStore

    try:
        return open_charge("series", flags, target)
    except NothingToDo:
        window = load_window(flags) if SeriesStore.exists(folder_of(flags["folder"])) else None
        if window is None or published(target.prefix, window) is None:
            raise InputError(
                f"--release_id: '{flags['release_id']}' was charged for a series in another folder; go on with that, "
                "or take another release id"
            ) from None
        mark_open(window)
        raise


def _publish_window(
    flags: dict[str, Any], window: SeriesWindow, charge: Uncharged, target: OutputTarget, ledger: str
) -> None:
    """Charge the account and put the window's ledger in place; its one file lists what was known before."""
    with window.alone():
        go_on(target, window)
        if published(target.prefix, window) is None:
            target.check()
            try:
                if charge.note:
                    say(flags, charge.note)
                charge.reserve(ledger)
                _publish(flags, window, charge, target, ledger)
            except BaseException:
                charge.failed(target, kept=False)
                raise
        target.tidy()
        mark_open(window)
    config = window.plan.config
    if window.key.insecure:
        warn("NOT PRIVATE: --insecure_test_key fixes the key of this series; never release its output")
    say(
        flags,
        f"series of {config.nights} nights opened in '{flags['folder']}': epsilon "
        f"{config.epsilon:g}, delta {config.delta:g} for all of them; ledger: {target.ledger_path}",
    )


def _publish(
    flags: dict[str, Any], window: SeriesWindow, charge: Uncharged, target: OutputTarget, ledger: str
) -> None:
    if target.can_finish:  # without an account; with one, what was staged is gone since the reservation
        target.finish()
        return
    target.abort()
    columns = _columns({"item_column": window.settings["item"], "item_type": window.settings["item_type"]})
    stage(target, window.known, columns, None, {})
    target.release = release_of(flags, target)
    charge.publish(target, ledger)


def _print_plan(flags: dict[str, Any], plan: SeriesPlan, charge: Uncharged, ledger: str) -> int:
    lines = [str(part) for part in FAMILY.shown(FAMILY.report(plan))]
    if preview := charge.preview(ledger):
        lines.append(preview)
    say(flags, "\n".join([*lines, "dry run: nothing was opened or charged"]))
    return 0
