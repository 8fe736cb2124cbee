"""The engine of a run: Beam's flags, what must be ready before a job starts, and how many bundles run at once."""

from __future__ import annotations

import os
import tempfile

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from dpbeam.errors import SettingError, SetupError, UnavailableError
from dpbeam.io.paths import absolute
from dpbeam.jobs.beam_flags import refused_by_beam
from dpbeam.runners import matrix
from dpbeam.runners.check import Path, Row, check_path
from dpbeam.runners.check import preflight as check_engine
from dpbeam.runners.options import DEFAULT_RUNNER, check_runner_name, runner_name
from dpbeam.runners.options import read as read_engine_flags
from dpbeam.storage import FileSystems

# Measured on two cores: 30 percent less time at 30 million pairs for 25 percent more memory; starting the second worker
# takes a third of a second.
PAIRS_FOR_THREADS = 3_000_000
MAX_THREADS = 4
# How flags of Beam begin that say where a store is.
_OF_STORES = ("--s3_", "--hdfs_")


def use_stores(arguments: list[str]) -> None:
    """Let filesystems know their flags before the first pipeline is made.

    Raises:
      InputError: a flag that Beam refuses.
    """
    options = PipelineOptions(arguments)
    if any(argument.startswith(_OF_STORES) for argument in arguments):
        refused_by_beam(options.get_all_options)
    FileSystems.set_options(options)


def check_runner(
    arguments: list[str],
    inputs: list[str],
    output: str | None,
    checkpoint: str | None = None,
    *,
    untested: bool,
    folder: str | None = None,
) -> str:
    """Refuse a runner that cannot start, or whose workers cannot see a path; return the temp location.

    Args:
      output: None where the launcher writes it.
      untested: also a runner that dpbeam was never tested on.
      folder: of a series.

    Raises:
      InputError: the first thing that is missing, with its fix.
    """
    flags = read_engine_flags(arguments)
    check_runner_name(flags)
    verdict = matrix.runner(flags.runner)
    if verdict.level != "ok" and not untested:
        raise SettingError(f"--runner: {verdict.reason}; {verdict.fix}")
    refused_by_beam(lambda: pipeline_options(arguments).get_all_options())
    kept = [] if checkpoint is None else [Path("--checkpoint", checkpoint, "temp")]
    kept += [] if folder is None else [Path("--folder", folder, "temp")]
    if flags.is_default:
        temp_location = flags.temp_location or tempfile.gettempdir()
        for path in (Path("--temp_location", temp_location, "temp"), *kept):
            _refuse_unless_ok(check_path(flags, path))
        return absolute(temp_location)
    if flags.temp_location is None and flags.remote_workers:
        raise SettingError(
            "--temp_location is required where workers run elsewhere: a folder that all of them share"
        )
    paths = [Path("--input", pattern, "input") for pattern in inputs]
    paths += [*([] if output is None else [Path("--output", output, "output")]), *kept]
    for row in check_engine(arguments, paths):
        _refuse_unless_ok(row)
    return absolute(flags.temp_location or tempfile.gettempdir())


def _refuse_unless_ok(row: Row) -> None:
    if not row.ok:
        message = f"{row.what}: {row.finding}; {row.fix}"
        raise UnavailableError(message) if row.passing else SetupError(message)


def pipeline_options(arguments: list[str]) -> PipelineOptions:
    """Beam's options, with the in-process runner where none is named, or one of its other names.

    By these names Beam may choose another, Prism, which it downloads, and run a job that failed there a second time.
    """
    options = PipelineOptions(arguments)
    standard = options.view_as(StandardOptions)
    if runner_name(standard.runner) == DEFAULT_RUNNER:
        standard.runner = DEFAULT_RUNNER
    return options


def is_local(arguments: list[str]) -> bool:
    """Whether these flags mean the in-process runner, in a process that waits for it."""
    return read_engine_flags(arguments).is_default


def local_threads(arguments: list[str]) -> int:
    """Bundles at once that these flags give the in-process runner; 1 on other runners."""
    if not is_local(arguments):
        return 1
    return int(read_engine_flags(arguments).direct_num_workers or 1) or os.cpu_count() or 1


def threads(pairs: int) -> int:
    """Bundles at once on the in-process runner: the kernels let go of the interpreter for most of their time."""
    if pairs < PAIRS_FOR_THREADS:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_THREADS)
