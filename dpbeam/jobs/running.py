"""Runs a job: folder, pipelines, progress, account and output, whole or not at all; then what there is to say."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam

from dpbeam.accounting.ledger import Ledger
from dpbeam.engine.beam.driver import TRIPS_PER_JOB, ProgramRun, run_in_jobs
from dpbeam.engine.beam.receipts import taken_for_lost
from dpbeam.engine.beam.store import RunFolder
from dpbeam.errors import InputError, RunnerError, UnavailableError
from dpbeam.io.output import count_released
from dpbeam.io.paths import absolute
from dpbeam.jobs import files
from dpbeam.jobs.checkpoint import RunIdentity, can_go_on, checkpointed
from dpbeam.jobs.console import elapsed, warn
from dpbeam.jobs.engine import is_local, pipeline_options
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.jobs.job import COUNTS, Job
from dpbeam.jobs.leftovers import warn_of_leftovers
from dpbeam.jobs.progress import Progress
from dpbeam.jobs.result import RELEASED, describe, file_of, of_release
from dpbeam.runners.allocator import give_back, keep_freed_memory
from dpbeam.runners.job import quiet_workers, run_and_wait
from dpbeam.signals import deferring

Build = Callable[[beam.Pipeline], None]
#: From the final paths, the ledger last, and the number of released items.
Report = Callable[[list[str], int], None]
# From here on the in-process runner takes a job for each pass. One costs a third of a second to build.
PAIRS_FOR_JOBS = 30_000_000


def run_program(
    job: Job[Any],
    make_run: Callable[[RunFolder], ProgramRun],
    ledger: Ledger,
    *,
    report: Report,
    trips: int,
    rounds: int = 0,
    after: Callable[[RunFolder], None] | None = None,
    rows_beside: int = 0,
) -> int:
    """Run a program and publish its output; a failure leaves neither output nor private files.

    It runs in one job, or in several where it has many trips or `--checkpoint` is given. Once the output is in place
    the job is done, whatever happens to its messages: a launcher that took it for failed would spend the budget again.

    Args:
      make_run: makes the run of the program in a folder; called once.
      report: tells the person what was released, from the final paths (the ledger last) and the number of items.
      trips: of the program.
      rounds: of the selection, for messages on the way.
      after: what is left to do with the folder when the program has come to its end.
      rows_beside: how many rows more the output has than the program's result.

    Returns:
      The exit code, 0.
    """

    def work(folder: RunFolder, execute: Callable[[Build], None]) -> int:
        run, store = make_run(folder), folder.claim()
        large = _large_and_local(job)
        alone = large and job.options.passes_per_job is None and not run.one_step
        if run.fits_one_job and not alone and job.options.checkpoint is None:
            store.in_memory = run.one_step and job.one_process
            execute(lambda pipeline: run.add_to(pipeline, store))
        else:
            run_in_jobs(
                store,
                run.program,
                read=run.read,
                write=run.write,
                run=_from_little(execute) if large else execute,
                trips_per_job=1 if alone else job.options.passes_per_job or TRIPS_PER_JOB,
                blocks_first=alone,
                relays=run.relays,
            )
        rows = folder.check()
        if after is not None:
            with taken_for_lost("a decision of the hub"):
                after(folder)
        return rows + rows_beside

    folder = _kept(job, ledger, trips) if job.options.checkpoint is not None else _folder(job)
    return _publish(job, folder, work, ledger, report, _progress(job, trips, rounds))


def _from_little(execute: Callable[[Build], None]) -> Callable[[Build], None]:
    """Jobs that begin with little memory, whatever the job before has freed and kept."""

    def run(build: Build) -> None:
        give_back()
        execute(build)

    return run


@contextlib.contextmanager
def _folder(job: Job[Any]) -> Iterator[RunFolder]:
    with RunFolder(job.temp_location, job.key, encrypt=job.options.encrypt_intermediates) as folder:
        yield folder


@contextlib.contextmanager
def _kept(job: Job[Any], ledger: Ledger, trips: int) -> Iterator[RunFolder]:
    """The run's private folder below --checkpoint."""
    paths = [*job.input_paths(), *files.lists(job.options)]
    identity = RunIdentity.of(job.command, job.options, absolute(job.target.path), ledger.to_json(), paths)
    place = job.options.checkpoint
    with checkpointed(place, job.key, identity, trips, encrypt=job.options.encrypt_intermediates) as folder:
        yield folder


def _publish(
    job: Job[Any],
    folder_of_run: contextlib.AbstractContextManager[RunFolder],
    work: Callable[[RunFolder, Callable[[Build], None]], int],
    ledger: Ledger,
    report: Report,
    progress: Progress,
) -> int:
    if job.key.insecure:
        warn("NOT PRIVATE: --insecure_test_key fixes the key of this run; never release its output")
    warn_of_leftovers(job.temp_location, job.target.prefix)
    keep_freed_memory()
    if job.charge.note:
        job.say(job.charge.note)
    folder = None
    try:
        job.charge.reserve(ledger)
        if job.options.result_file is not None:
            job.options.result_file.clear()
        with contextlib.ExitStack() as private:
            folder = private.enter_context(folder_of_run)
            private.enter_context(job.target.alone())
            job.target.check_again()  # one that held it before may have ended
            job.target.prepare()
            with executor(job.beam_arguments, progress, verbose=job.options.verbose) as execute:
                rows = work(folder, execute)
            with taken_for_lost("the counts of what was dropped"):
                counts = (
                    folder.store.read_bytes(COUNTS) if job.options.not_private_counts is not None else None
                )
            job.target.release = job.release(ledger)
            if job.target.staged_rows(job.target.release.items_released) != rows:
                raise RunnerError("the runner lost or doubled rows of the output")
            with deferring():
                paths = job.charge.publish(job.target, ledger)
                _removed(private)
                _write_counts(job, counts)
                _finish(job, paths, report)
    except BaseException:
        job.charge.failed(job.target, kept=folder is not None and _can_go_on(job, folder))
        raise
    return 0


def _write_counts(job: Job[Any], counts: bytes | None) -> None:
    """Exact counts of what was dropped, for the owner of the data only; trouble here is a warning."""
    if counts is None:
        return
    text = json.dumps({"not_private": True, "dropped": json.loads(counts)}, indent=2, sort_keys=True)
    try:
        file = job.options.not_private_counts
        file.write(f"{text}\n".encode(), overwrite=job.options.overwrite, private=True)
    except (InputError, UnavailableError) as error:
        warn(f"the output is complete, but {error}")


def _can_go_on(job: Job[Any], folder: RunFolder) -> bool:
    try:
        return job.options.checkpoint is not None and can_go_on(folder)
    except Exception:  # if the folder cannot be asked, keep it: the run may be able to go on
        return True


def _finish(job: Job[Any], paths: list[str], report: Report) -> None:
    """Say what was released; trouble here is a warning."""
    try:
        released = count_released(paths[:-1])
        file = file_of(job.options.said)
        if file is not None:
            file.tell(_result(job, released))
        report(paths, released)
        job.say(f"ledger: {paths[-1]} (noise, thresholds and the proof of what was spent)")
        job.say(f"elapsed: {_duration(elapsed())}")
    except Exception as error:
        warn(f"the output is complete, but its summary failed: {type(error).__name__}: {error}")


def _result(job: Job[Any], released: int) -> dict[str, Any]:
    released_now = of_release(job.target.prefix, released)
    charge = job.charge.charged
    return describe(job.command, job.options.said, RELEASED, ExitCode.DONE, charge=charge, **released_now)


def _progress(job: Job[Any], passes: int, rounds: int) -> Progress:
    name = "round" if rounds == passes else "pass"
    return Progress(
        f"dpbeam {job.command}",
        enabled=not job.quiet,
        passes=passes,
        pass_name=name,
        read=job.share_read,
    )


@contextlib.contextmanager
def executor(
    beam_arguments: list[str], progress: Progress, *, verbose: bool
) -> Iterator[Callable[[Build], None]]:
    """Runs pipelines, one after the other, and tells what they do."""
    workers = contextlib.nullcontext() if verbose else quiet_workers()

    def execute(build: Build) -> None:
        with _pipeline(beam_arguments) as pipeline:
            build(pipeline)
            # The in-process runner tells its stages itself, and has no state worth a word.
            say = _nothing if is_local(beam_arguments) else progress.job
            run_and_wait(pipeline, beam_arguments, say, progress.follow)

    with progress, progress.follow_local_runner(), workers:
        yield execute


@contextlib.contextmanager
def _pipeline(beam_arguments: list[str]) -> Iterator[beam.Pipeline]:
    """A pipeline whose temporary folder goes whatever happens: Beam removes it where the pipeline comes to run."""
    with deferring() as came:  # a signal now would leave a folder that nobody knows
        pipeline = beam.Pipeline(options=pipeline_options(beam_arguments))
    try:
        for number in came[:1]:
            signal.raise_signal(number)
        yield pipeline
    finally:
        shutil.rmtree(pipeline.local_tempdir, ignore_errors=True)


def _large_and_local(job: Job[Any]) -> bool:
    """Whether a job for each trip costs little: the folder loses what is left of a trip when its job has ended."""
    return is_local(job.beam_arguments) and job.pairs_estimate >= PAIRS_FOR_JOBS


def _nothing(text: str) -> None:
    """Where a message goes that nobody wants."""


def _removed(private: contextlib.ExitStack) -> None:
    """Leave the private folder's context, which removes it; the output is in place, so trouble is a warning."""
    try:
        private.close()
    except Exception as error:
        warn(f"the output is complete, but the run's private folder could not be removed: {error}")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{seconds:.1f} s" if seconds < 60 else f"{minutes} min {rest} s"
