"""What a series publishes: the window's ledger and each night's items, and whether they are there.

What is staged lies in a folder that follows from series and night. So whatever a killed run has left is found by the
next one, which holds the series alone: a whole staging is put in place as it is, ledger included, any other is redone.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dpbeam.cli.series_options import SeriesOptions
from dpbeam.errors import InputError, StoreError, UnavailableError
from dpbeam.jobs.console import warn
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.jobs.result import OUT_ALREADY, RELEASED, describe, file_of, of_release

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from dpbeam.accounting.ledger import Ledger
    from dpbeam.accounting.release import Release
    from dpbeam.io.output import OutputTarget
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.series.folder import Folder
    from dpbeam.series.state import SeriesState
    from dpbeam.series.window import SeriesWindow

#: Everything that is released so far, beside each night's output.
SO_FAR = "released.parquet"
#: Of the settings that a window keeps, `layout`: each night is the one file that was asked for.
ONE_FILE = "one_file"
_STAGING_DIGITS = 16


def folder_of(path: str) -> Folder:
    """What `--folder` names.

    Raises:
      InputError: no series can be there.
      UnavailableError: a store does not answer.
    """
    from dpbeam.io.paths import local_path
    from dpbeam.series.folder import Folder

    return Folder(local_path(path, "--folder"))


def load_window(options: SeriesOptions) -> SeriesWindow:
    """The series of `--folder`, encrypted where the flags say so: who can write there cannot turn that off.

    Raises:
      InputError: there is none, its key is not in the environment, or it is not encrypted.
    """
    from dpbeam.series.window import SeriesWindow

    window = SeriesWindow.load(folder_of(options.folder))
    if options.encrypt_intermediates and not window.encrypted:
        raise StoreError(f"--encrypt_intermediates: the series in '{options.folder}' is not encrypted")
    return window


@contextlib.contextmanager
def output_of_night(window: SeriesWindow, night: str) -> Iterator[OutputTarget]:
    """Where a night goes, held alone; it may go on from what a killed run has left of it.

    Raises:
      InputError: naming `--output`.
      UnavailableError: another run, as of a copy of the folder, writes to the same place.
    """
    from dpbeam.io.output import OutputTarget

    settings = window.settings
    target = OutputTarget(
        f"{settings['output']}-{night}",
        settings["format"],
        extras=(SO_FAR,),
        one_file=settings.get("layout") == ONE_FILE,
    )
    with target.alone():
        go_on(target, window, night)
        yield target


def check_names(window: SeriesWindow, names: tuple[str, ...]) -> None:
    """Refuse item columns whose names the output needs, before the night is made.

    Raises:
      InputError: naming `--item_column`.
    """
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.kernels.canonical import STRING
    from dpbeam.series.window import NIGHT_COLUMN

    added = (NIGHT_COLUMN, *window.plan.config.columns())
    OutputColumns(names, (STRING,) * len(names)).check_free(added)


def check_ledger_there(target: OutputTarget, night: str) -> None:
    """Refuse to write a night again beside files that may be its own, but that no ledger names.

    Raises:
      InputError: saying what brings the night back.
    """
    from dpbeam.io.released import exists

    if target.was_begun or exists(target.ledger_path):
        return
    if there := target.existing():
        raise StoreError(
            f"--night {night} is out, but its ledger '{target.ledger_path}' is gone, and nothing else says whose the "
            f"files beside it are: move {', '.join(map(repr, there))} away, and give the command again, which writes "
            "all of the night anew"
        )


def go_on(target: OutputTarget, window: SeriesWindow, night: str | None = None) -> None:
    """Give an output the staging folder of its series and night; what its own runs have put in place is replaced."""
    name = hashlib.sha256(f"{window.id} {night or ''}".encode()).hexdigest()[:_STAGING_DIGITS]
    target.resume(name, is_out=published(target.prefix, window, night) is not None)


def place_of_night(said: Mapping[str, Any]) -> dict[str, str]:
    """Where the night of these flags goes, and which night of which series it is; nothing where they do not say."""
    from dpbeam.io.new_files import OUTPUT_FORMATS
    from dpbeam.series.store import SeriesStore
    from dpbeam.series.window import config_of

    try:
        folder = folder_of(said["folder"])
        values = SeriesStore.settings_of(folder)
        config = config_of(folder, values)
        night = config.name_of(config.number_of(said["night"]))
        settings = values["settings"]
        one_file = f".{OUTPUT_FORMATS[settings['format']]}" if settings.get("layout") == ONE_FILE else ""
        return {
            "output": f"{settings['output']}-{night}{one_file}",
            "series": values["series"],
            "night": night,
        }
    except (InputError, UnavailableError, KeyError, TypeError):
        return {}


def publish_night(
    options: SeriesOptions,
    window: SeriesWindow,
    state: SeriesState,
    target: OutputTarget,
    number: int,
    names: tuple[str, ...],
) -> bool:
    """Put what a committed night has released in place, unless it is there; whether it was not."""
    import pyarrow as pa

    from dpbeam.io.released import check_outputs, exists

    name = window.plan.config.name_of(number)
    new = state.released.filter(pa.array(state.released_night == number))
    if target.can_finish:
        target.finish()
    else:
        before = published(target.prefix, window, name)
        if before is not None:
            target.tidy()
            statements = check_outputs(target.ledger_path, before, contents=True)
            if exists(f"{target.prefix}.{SO_FAR}") and all(s.holds is not False for s in statements):
                options.say(f"night {name} is out already: {len(new)} items, {target.ledger_path}")
                return False
        target.abort()
        _write_night(options, window, state, target, number, new, names)
    out = int((state.released_night <= number).sum())
    options.say(f"night {name}: {len(new)} new items, {out} so far; ledger: {target.ledger_path}")
    return True


def write_result(options: SeriesOptions, target: OutputTarget, *, made_now: bool) -> None:
    """`--result_file` of a night that is out; trouble is a warning."""
    file = file_of(options.said)
    if file is None:
        return
    try:
        known = of_release(target.prefix)
    except Exception as error:
        warn(f"the output is complete, but {file.flag} cannot be written: {error}")
        return
    status = RELEASED if made_now else OUT_ALREADY
    file.tell(describe("series", options.said, status, ExitCode.DONE, **known))


def _write_night(
    options: SeriesOptions,
    window: SeriesWindow,
    state: SeriesState,
    target: OutputTarget,
    number: int,
    new: pa.Array,
    names: tuple[str, ...],
) -> None:
    import numpy as np

    from dpbeam.io.sinks import OutputColumns
    from dpbeam.kernels.canonical import STRING
    from dpbeam.series.state import kinds_of

    kinds = kinds_of(state.kinds).item if state.kinds else (STRING,) * len(names)
    if len(names) != len(kinds):
        names = tuple(f"item_{n}" for n in range(1, len(kinds) + 1)) if len(kinds) > 1 else ("item",)
    counts = window.plan.counts
    columns = OutputColumns(names, kinds, window.plan.config.columns())
    numbers = {}
    if counts is not None:
        noisy = state.released_count[state.released_night == number]
        numbers = dict(zip(columns.added_names, (noisy, np.full(len(noisy), counts.deviation))))
    so_far = window.released_so_far(state, number, columns.names, columns.kinds)
    try:
        stage(target, new, columns, so_far, numbers)
        target.release = release_of(options, target)
        target.commit(window.ledger(number))
    except BaseException:
        target.abort()
        raise


def stage(
    target: OutputTarget,
    items: pa.Array,
    columns: OutputColumns,
    so_far: pa.Table | None,
    numbers: Mapping[str, np.ndarray],
) -> None:
    """One file of items with their numbers, and if there is one the table of all so far, in the staging folder."""
    import pyarrow.parquet as pq

    from dpbeam.io.files import write_atomically
    from dpbeam.io.sinks import stage, write_shard

    folder = target.prepare()
    stage(folder, 0, 1, target.format, lambda file: write_shard(file, items, numbers, columns, target.format))
    if so_far is not None:
        write_atomically(target.staged_extra(SO_FAR), lambda file: pq.write_table(so_far, file))


def release_of(options: SeriesOptions, target: OutputTarget) -> Release:
    """What the ledger says of the command and the staged files."""
    from dpbeam.accounting.release import STARTED_FORMAT, Release

    return Release(
        command="series",
        started=datetime.now(UTC).strftime(STARTED_FORMAT),
        outputs=target.describe_staged(),
        release_id=options.said.get("release_id"),
    )


def published(prefix: str, window: SeriesWindow, night: str | None = None) -> Ledger | None:
    """The ledger at a prefix if it is of this series, and of this night."""
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.io.output import read_ledger

    values = read_ledger(prefix)
    if values is None:
        return None
    parameters = values.get("parameters", {})
    if (parameters.get("series"), parameters.get("night")) != (window.id, night):
        return None
    try:
        return Ledger.of_values(values)
    except ValueError:
        return None


def is_open(window: SeriesWindow) -> bool:
    """Whether the opening of a series was paid for and published."""
    return window.store is not None and window.store.opened


def mark_open(window: SeriesWindow) -> None:
    """Write down that it was."""
    if window.store is not None:
        window.store.mark_opened()
