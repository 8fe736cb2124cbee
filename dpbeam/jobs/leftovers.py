"""Folders that killed runs leave behind: which there are, and what became of the processes that made them."""

from __future__ import annotations

import os
import shlex
import time

from dpbeam.engine.beam import owner
from dpbeam.io.output import may_be_paid
from dpbeam.jobs.console import warn

_BEAM_FOLDER = "beam-pipeline-temp"
_OLD_SECONDS = 24 * 3600


def leftovers(temp_location: str, output: str | None) -> list[tuple[str, str]]:
    """(folder, state) of all folders that a killed command leaves; for states see `_state_of`."""
    known = _of_runs(temp_location, output)
    of_evaluations = owner.folders(temp_location, owner.EVALUATION_FOLDER)
    known += [(folder, owner.state_of(folder)) for folder in of_evaluations]
    return known + [(folder, _state_of_beams(folder)) for folder in _of_beam(temp_location)]


def _of_runs(temp_location: str, output: str | None) -> list[tuple[str, str]]:
    """Those of `leftovers` that hold private data of runs."""
    stems = (owner.RUN_FOLDER, owner.STAGING)
    folders = [path for stem in stems for path in owner.folders(temp_location, stem)]
    if output:
        parent, stem = os.path.split(output)
        folders += owner.folders(parent, f"{stem}.staging-")
    return [(folder, _state_of(folder)) for folder in folders]


def _state_of(folder: str) -> str:
    """As `owner.state_of`; or "paid", where a process that is gone has staged what an account may have paid for."""
    state = owner.state_of(folder)
    return "paid" if state == "gone" and may_be_paid(folder) else state


def _of_beam(temp_location: str) -> list[str]:
    """Folders that Beam makes for each run and leaves empty when it is killed."""
    return [path for path in owner.folders(temp_location, _BEAM_FOLDER) if _is_empty(path)]


def _is_empty(folder: str) -> bool:
    try:
        return not os.listdir(folder)
    except FileNotFoundError:  # a living run has just ended
        return False


def _state_of_beams(folder: str) -> str:
    """They name no process; one that is a day old and still empty is no living run's."""
    try:
        return "gone" if time.time() - os.stat(folder).st_mtime > _OLD_SECONDS else "unknown"
    except FileNotFoundError:
        return "unknown"


def warn_of_leftovers(temp_location: str, output: str) -> None:
    """Name what killed runs left, private data among it, and how to remove it."""
    gone = [folder for folder, state in _of_runs(temp_location, output) if state == "gone"]
    if gone:
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        warn(
            f"a killed run left {gone[0]}{more}, which may hold private data; remove it: dpbeam clean "
            f"--temp_location={shlex.quote(temp_location)} --output={shlex.quote(output)}"
        )
