"""What every job command shares: check everything first, run on Beam, and finish whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from dpbeam.accounting.ledger import REPLACE_ONE_AGENT
from dpbeam.accounting.release import INPUT_NAMES, STARTED_FORMAT, InputDigest, Others, Release, as_text
from dpbeam.engine.beam import owner
from dpbeam.engine.beam.driver import TRIPS_PER_JOB, ProgramRun, run_in_jobs
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.engine.seal import folder_key
from dpbeam.errors import InputError, UnavailableError
from dpbeam.io.digests import digest_input, digest_key
from dpbeam.io.item_lists import has_column, list_files, refuse_input
from dpbeam.io.known import FLAG as KNOWN_FLAG
from dpbeam.io.known import known_prefix
from dpbeam.io.new_files import NewFile
from dpbeam.io.output import OutputTarget, count_released, read_ledger
from dpbeam.io.pairs import check_not_empty
from dpbeam.io.paths import absolute, is_pipe, local_path
from dpbeam.io.sources import InputSummary, ReadInput, preflight
from dpbeam.io.spec import InputSpec
from dpbeam.jobs.beam_flags import refused_by_beam
from dpbeam.jobs.charge import open_charge
from dpbeam.jobs.checkpoint import RunIdentity, can_go_on, checkpointed
from dpbeam.jobs.checks import check_test_key
from dpbeam.jobs.console import elapsed, tell, warn
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.jobs.leftovers import warn_of_leftovers
from dpbeam.jobs.progress import Progress
from dpbeam.jobs.result import RELEASED, describe, files_of, of_release
from dpbeam.jobs.uncharged import Uncharged
from dpbeam.randomness import RunKey
from dpbeam.runners.check import Path, Row, check_path
from dpbeam.runners.check import preflight as check_engine
from dpbeam.runners.frugal import compute_once
from dpbeam.runners.job import quiet_workers, run_and_wait
from dpbeam.runners.options import check_runner_name, complete
from dpbeam.runners.options import read as read_engine_flags
from dpbeam.selection.ledger import one_value_of
from dpbeam.selection.sizes import Sizes, choose_sizes
from dpbeam.signals import deferring
from dpbeam.storage import FileSystems

Build = Callable[[beam.Pipeline], None]
#: From the final paths, the ledger last, and the number of released items.
Report = Callable[[list[str], int], None]
DEFAULT_RUNNER = "FnApiRunner"
_COUNTS = "counts"
# Measured on two cores: 30 percent less time at 30 million pairs for 25 percent more memory; starting the second worker
# takes a third of a second.
PAIRS_FOR_THREADS = 3_000_000
MAX_THREADS = 4
# From here on the in-process runner takes a job for each pass. One costs a third of a second to build.
PAIRS_FOR_JOBS = 30_000_000
# Flags that say how pairs are read and partitioned.
_OF_PAIRS = (
    "input",
    "input_format",
    "input_layout",
    "user_column",
    "item_column",
    "text_layout",
    "user",
    "language",
    "http_status",
    "tokenizer",
    "token_pattern",
    "lowercase",
    "ngrams",
    "on_null",
    "on_bad_row",
    "item_type",
    "csv_multiline",
    "csv_delimiter",
    "partition",
    "table_version",
    "not_private_counts",
    "num_shards",
)
# How flags of Beam begin that say where a store is.
_OF_STORES = ("--s3_", "--hdfs_")
# Flags that name what is read of the users' data.
_INPUTS = ("input", "agents", "histogram")
# Flags of lists that are public by declaration.
_PUBLIC = ("public_items", "domain")


@dataclass
class Job:
    """One command's input, output and runner, checked before anything starts.

    Attributes:
      command: subcommand, for messages.
      given: the flags that were given.
      spec, summary: the input; what preflight found; None where the command reads no pairs.
      target: the output.
      beam_arguments: Beam's flags, completed for the runner.
      temp_location: where the run's private folder goes.
      key: the run's key.
      charge: the account that the run is charged to.
      began: when the job was made, in UTC, for the ledger.
      input_digest: of the input, for the ledger, if it was asked for.
      others: users that hold nothing of the output, likewise.
    """

    command: str
    given: dict[str, Any]
    spec: InputSpec | None
    summary: InputSummary | None
    target: OutputTarget
    beam_arguments: list[str]
    temp_location: str
    key: RunKey = field(repr=False)
    charge: Uncharged
    began: str = field(default_factory=lambda: datetime.now(timezone.utc).strftime(STARTED_FORMAT))
    input_digest: InputDigest | None = None
    others: Others | None = None
    _source: ReadInput | None = field(default=None, init=False, repr=False)

    @classmethod
    def create(
        cls,
        command: str,
        given: dict[str, Any],
        beam_arguments: list[str],
        spec: InputSpec,
        *,
        look: Callable[..., InputSummary] = preflight,
        empty: Callable[..., None] = check_not_empty,
        extras: Sequence[str] = (),
        public: bool = True,
    ) -> Job:
        """Check flags, input and output.

        Args:
          look: what opens the input early.
          empty: refuses one that holds nothing, unless that is allowed.
          extras, public: names of files beside the shards, and whether these are public, as in `OutputTarget`.

        Raises:
          InputError: the first fault found, naming its flag, file or column.
        """
        use_stores(beam_arguments)
        target = _target(given, extras, public=public)
        _check_result_file(given, target)
        charge = open_charge(command, given, target)
        _check_counts(given)
        _check_checkpoint(given, spec)
        _check_encryption(given, spec.patterns)
        summary = look(spec, temp_location=read_engine_flags(beam_arguments).temp_location)
        try:
            _check_public(given, spec, summary)
            if not given.get("allow_empty", False):
                empty(spec, summary)
            inputs = [*(file.path for file in summary.files), *_lists(given)]
            target.check(inputs, _other_files(given))
            _check_files(given, inputs)
            seen = [path for pattern in spec.patterns for path in spec.file_format.files_to_see(pattern)]
            patterns = [path for path in seen if not is_pipe(path)]
            spec = summary.spec or spec
            temp_location = check_runner(beam_arguments, patterns, target.prefix, given.get("checkpoint"))
            target.stage_below(temp_location)
            key = run_key(given)
            job = cls(command, given, spec, summary, target, beam_arguments, temp_location, key, charge)
            job.beam_arguments = complete(beam_arguments, threads=_threads(job.pairs_estimate))
        except BaseException:
            summary.release()
            raise
        for note in summary.notes:
            job.say(note)
        return job

    @classmethod
    def without_input(cls, command: str, given: dict[str, Any], beam_arguments: list[str]) -> Job:
        """A job that reads no pairs, with the same checks otherwise."""
        for name in _OF_PAIRS:
            if name in given:
                raise InputError(f"--{name} does not apply here: nothing is read but the given file")
        use_stores(beam_arguments)
        target = _target(given)
        _check_result_file(given, target)
        charge = open_charge(command, given, target)
        target.check(_lists(given), _other_files(given))
        _check_files(given, _lists(given))
        _check_encryption(given)
        temp_location = check_runner(beam_arguments, [], given["output"])
        target.stage_below(temp_location)
        arguments = complete(beam_arguments)
        return cls(command, given, None, None, target, arguments, temp_location, run_key(given), charge)

    @property
    def reading(self) -> tuple[InputSpec, InputSummary]:
        """The input of a job that has one."""
        if self.spec is None or self.summary is None:
            raise ValueError(f"{self.command} reads no pairs here")
        return self.spec, self.summary

    @contextlib.contextmanager
    def reading_ends(self) -> Iterator[None]:
        """What was kept of the input, such as the copy of a pipe, goes at the end."""
        try:
            yield
        finally:
            if self.summary is not None:
                self.summary.release()

    @property
    def sizes(self) -> Sizes:
        """How many blocks and shards."""
        _, summary = self.reading
        return choose_sizes(self.pairs_estimate, self.given.get("num_shards"), summary.item_bytes)

    @property
    def privacy_unit(self) -> str:
        """What one user is, for the ledger."""
        if self.spec is None:
            return "one user: one unit of at most one count each"
        return self.spec.file_format.unit(self.spec) or one_value_of(self.spec.user_column)

    def input_parameters(self) -> dict[str, Any] | None:
        """Public settings of the input, for the ledger."""
        if self.spec is None:
            return None
        names = (
            "layout",
            "tokenizer",
            "token_pattern",
            "lowercase",
            "on_null",
            "on_bad_row",
            "csv_multiline",
        )
        names += self.spec.file_format.ledger_fields
        if self.spec.partitions:
            names += ("partitions",)
        if self.spec.csv_delimiter != ",":
            names += ("csv_delimiter",)
        values = {name: getattr(self.spec, name) for name in names}
        return {**values, "ngrams": list(self.spec.ngrams), "item_types": list(self.summary.kinds.item)}

    def release(self, ledger_json: str) -> Release:
        """What the ledger says of this run and its staged output besides the settings."""
        # Under this relation every agent sees its own row alone: the rest of the output is as private as the input.
        public = json.loads(ledger_json)["neighbouring_relation"] != REPLACE_ONE_AGENT
        return Release(
            command=self.command,
            started=self.began,
            outputs=self.target.describe_staged(contents=public),
            release_id=self.given.get("release_id"),
            inputs=self._input_names(),
            input_digest=self.input_digest,
            others=self.others,
        )

    def _input_names(self) -> tuple[str, ...] | None:
        """The input as the command names it, never the files that a pattern matches: those may follow the data."""
        wanted = self.given.get("input_names", INPUT_NAMES[0])
        given = [self.given[name] for name in _INPUTS if name in self.given]
        patterns = [name for names in given for name in ([names] if isinstance(names, str) else names)]
        # Where each file is a user, their names are data too.
        if wanted == "none" or getattr(self.spec, "text_layout", None) == "file":
            return None
        named = patterns if wanted == "full" else map(_last_part, patterns)
        return tuple(map(as_text, named))

    @property
    def pairs_estimate(self) -> int:
        """Roughly how many (user, item) pairs there are."""
        if (
            self.summary.rows_estimate is not None
            and self.spec.layout == "pairs"
            and self.spec.tokenizer is None
        ):
            return self.summary.rows_estimate
        return self.summary.bytes // self.spec.file_format.bytes_per_pair

    @property
    def _large_and_local(self) -> bool:
        """Whether a job for each trip costs little: the folder loses what is left of a trip when its job has ended."""
        local = read_engine_flags(self.beam_arguments).runner == DEFAULT_RUNNER
        return local and self.summary is not None and self.pairs_estimate >= PAIRS_FOR_JOBS

    @property
    def quiet(self) -> bool:
        return self.given.get("quiet", False)

    def say(self, text: str) -> None:
        """A line for the person at the terminal, unless --quiet."""
        if not self.quiet:
            tell(text)

    def end_dry_run(self, ledger_json: str, done: str) -> int:
        """Say what the run would be charged, and that it was not done; the exit code, 0.

        Raises:
          InputError: its account would refuse the run.
        """
        note = self.charge.preview(ledger_json)
        if note:
            self.say(note)
        self.say(f"dry run: {done}")
        return 0

    def read(self, pipeline: beam.Pipeline, folder: RunFolder) -> beam.PCollection:
        """The input's pairs; with --not_private_counts also counts what reading drops."""
        wanted = "not_private_counts" in self.given
        source = self._source = ReadInput(self.spec, summary=self.summary, with_counts=wanted)
        if not wanted:
            return pipeline | "ReadInput" >> source
        pairs, counts = pipeline | "ReadInput" >> source
        _ = (
            counts
            | "SumCounts" >> beam.CombinePerKey(sum)
            | "AllCounts" >> beam.combiners.ToDict()
            | "StoreCounts" >> beam.ParDo(_StoreCounts(folder.store))
        )
        return pairs

    def run(
        self,
        build: Callable[[beam.Pipeline, RunFolder], None],
        ledger_json: str,
        *,
        report: Report,
        passes: int = 0,
        rounds: int = 0,
        first: Callable[[], object] | None = None,
    ) -> int:
        """Build and run a pipeline, then publish its output; a failure leaves neither output nor private files.

        Once the output is in place the job is done, whatever happens to its messages: a launcher that took it for
        failed would spend the budget again.

        Args:
          build: adds the job's transforms, which write to `target.staging`.
          report: tells the person what was released, from the final paths (the ledger last) and the number of items.
          passes, rounds: of the selection, for messages on the way.
          first: reads what the launcher itself reads of the input, once that is paid for.

        Returns:
          The exit code, 0.
        """

        def work(folder: RunFolder, execute: Callable[[Build], None]) -> None:
            if first is not None:
                first()
            execute(lambda pipeline: build(pipeline, folder))

        return self._publish(self._folder(), work, ledger_json, report, self._progress(passes, rounds))

    def run_program(
        self,
        made: Callable[[RunFolder], ProgramRun],
        ledger_json: str,
        *,
        report: Report,
        trips: int,
        rounds: int = 0,
        after: Callable[[RunFolder], None] | None = None,
    ) -> int:
        """The same for a program: in one job, or in several where it has many trips or `--checkpoint` is given.

        Args:
          made: the run of the program in a folder; called once.
          trips: of the program.
          after: what is left to do with the folder when the program has come to its end.
        """

        def work(folder: RunFolder, execute: Callable[[Build], None]) -> None:
            run, store = made(folder), folder.claim()
            alone = self._large_and_local and "passes_per_job" not in self.given
            if run.fits_one_job and not alone and "checkpoint" not in self.given:
                execute(lambda pipeline: run.add_to(pipeline, store))
            else:
                run_in_jobs(
                    store,
                    run.program,
                    read=run.read,
                    write=run.write,
                    run=execute,
                    trips_per_job=1 if alone else self.given.get("passes_per_job", TRIPS_PER_JOB),
                    blocks_first=alone,
                    relays=run.relays,
                )
            if after is not None:
                after(folder)

        folder = self._kept(ledger_json, trips) if "checkpoint" in self.given else self._folder()
        return self._publish(folder, work, ledger_json, report, self._progress(trips, rounds))

    @contextlib.contextmanager
    def _folder(self) -> Iterator[RunFolder]:
        with RunFolder(self.temp_location, self.key, encrypt=self._encrypted) as folder:
            yield folder

    @contextlib.contextmanager
    def _kept(self, ledger_json: str, trips: int) -> Iterator[RunFolder]:
        """The run's private folder below --checkpoint."""
        paths = [*([] if self.summary is None else self._input_paths()), *_lists(self.given)]
        identity = RunIdentity.of(self.command, self.given, absolute(self.target.prefix), ledger_json, paths)
        place = self.given["checkpoint"]
        with checkpointed(place, self.key, identity, trips, encrypt=self._encrypted) as folder:
            yield folder

    @property
    def _encrypted(self) -> bool:
        return bool(self.given.get("encrypt_intermediates", False))

    def _publish(
        self,
        folder_of_run: contextlib.AbstractContextManager[RunFolder],
        work: Callable[[RunFolder, Callable[[Build], None]], None],
        ledger_json: str,
        report: Report,
        progress: Progress,
    ) -> int:
        if self.key.insecure:
            warn("NOT PRIVATE: --insecure_test_key fixes the key of this run; never release its output")
        warn_of_leftovers(self.temp_location, self.target.prefix)
        compute_once()
        if self.charge.note:
            self.say(self.charge.note)
        folder = None
        try:
            self.charge.reserve(ledger_json)
            for file in files_of(self.given):
                file.clear()
            if "input_digests" in self.given:
                key = digest_key(self.given["input_digests"], make=True)
                self.input_digest = digest_input(self._input_paths(), key)
            with contextlib.ExitStack() as private:
                folder = private.enter_context(folder_of_run)
                owner.mark(self.target.prepare())
                with self._executor(progress) as execute:
                    work(folder, execute)
                counts = folder.store.read_bytes(_COUNTS) if "not_private_counts" in self.given else None
                self.target.release = self.release(ledger_json)
                with deferring():
                    paths = self.charge.publish(self.target, ledger_json)
                    _removed(private)
                    self._write_counts(counts)
                    self._finish(paths, report)
        except BaseException:
            self.charge.failed(self.target, kept=folder is not None and self._can_go_on(folder))
            raise
        return 0

    def _write_counts(self, counts: bytes | None) -> None:
        """Exact counts of what was dropped, for the owner of the data only; trouble here is a warning."""
        if counts is None:
            return
        text = json.dumps({"not_private": True, "dropped": json.loads(counts)}, indent=2, sort_keys=True)
        try:
            file = self.given["not_private_counts"]
            file.write(f"{text}\n".encode(), overwrite=self.given.get("overwrite", False), private=True)
        except (InputError, UnavailableError) as error:
            warn(f"the output is complete, but {error}")

    def _can_go_on(self, folder: RunFolder) -> bool:
        try:
            return "checkpoint" in self.given and can_go_on(folder)
        except Exception:  # storage that does not answer denies nothing
            return True

    def _finish(self, paths: list[str], report: Report) -> None:
        """Say what was released; trouble here is a warning."""
        try:
            released = count_released(paths[:-1])
            if files_of(self.given):
                self._write_result(paths, released)
            report(paths, released)
            self.say(f"ledger: {paths[-1]} (noise, thresholds and the proof of what was spent)")
            self.say(f"elapsed: {_duration(elapsed())}")
        except Exception as error:
            warn(f"the output is complete, but its summary failed: {type(error).__name__}: {error}")

    def _write_result(self, paths: list[str], released: int) -> None:
        ledger = read_ledger(self.target.prefix)
        if ledger is None:
            raise ValueError(f"no ledger at '{self.target.prefix}'")
        found = of_release(ledger, paths[-1], paths[:-1], released)
        charge = self.charge.charged
        result = describe(self.command, self.given, RELEASED, ExitCode.DONE, charge=charge, **found)
        for file in files_of(self.given):
            file.tell(result)

    def _input_paths(self) -> list[str]:
        if self.summary is None:
            return list_files(self.given["histogram"], "--histogram")
        return [file.path for file in self.summary.files]

    def _progress(self, passes: int, rounds: int) -> Progress:
        name = "round" if rounds == passes else "pass"
        return Progress(
            f"dpbeam {self.command}",
            enabled=not self.quiet,
            passes=passes,
            pass_name=name,
            read=lambda: None if self._source is None else self._source.share_read(),
        )

    @contextlib.contextmanager
    def _executor(self, progress: Progress) -> Iterator[Callable[[Build], None]]:
        """Runs pipelines, one after the other, and tells what they do."""
        workers = contextlib.nullcontext() if self.given.get("verbose", False) else quiet_workers()

        def execute(build: Build) -> None:
            pipeline = beam.Pipeline(options=pipeline_options(self.beam_arguments))
            build(pipeline)
            # The in-process runner tells its stages itself, and has no state worth a word.
            local = read_engine_flags(self.beam_arguments).runner == DEFAULT_RUNNER
            tell = _nothing if local else progress.job
            run_and_wait(pipeline, self.beam_arguments, tell, progress.follow)

        with progress, progress.follow_local_runner(), workers:
            yield execute


def _nothing(text: str) -> None:
    """Where a message goes that nobody wants."""


def _removed(private: contextlib.ExitStack) -> None:
    """Leave the private folder's context, which removes it; the output is in place, so trouble is a warning."""
    try:
        private.close()
    except Exception as error:
        warn(f"the output is complete, but the run's private folder could not be removed: {error}")


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


def _check_result_file(given: dict[str, Any], target: OutputTarget) -> None:
    """First of all, so that whatever comes next can be told there."""
    for file in files_of(given):
        file.claim(given, target.extras)


def _lists(given: dict[str, Any]) -> list[str]:
    """Files that a job reads besides its input."""
    names = [name for name in ("public_items", "domain", "histogram", "supplies") if name in given]
    files = [path for name in names for path in list_files(given[name], f"--{name}")]
    return files + [
        path for name in given.get("known", ()) for path in list_files(known_prefix(name), KNOWN_FLAG)
    ]


def _check_public(given: dict[str, Any], spec: InputSpec, summary: InputSummary) -> None:
    """Refuse the input as its own public list, and doubt one that has users in it.

    Raises:
      InputError: naming the flag.
    """
    for name in _PUBLIC:
        if name not in given:
            continue
        refuse_input(given[name], f"--{name}", spec.patterns, summary.files)
        if spec.user_column is not None and has_column(given[name], f"--{name}", spec.user_column):
            warn(
                f"--{name}: '{given[name]}' has the column '{spec.user_column}' of users beside its items; all its "
                "items are taken as public, so it must not come from the data"
            )


def _other_files(given: dict[str, Any]) -> dict[str, str]:
    """Files that a job writes besides its output, by their flag."""
    return {value.flag: value for value in given.values() if isinstance(value, NewFile)}


def use_stores(arguments: list[str]) -> None:
    """Let filesystems know their flags before the first pipeline is made.

    Raises:
      InputError: a flag that Beam refuses.
    """
    options = PipelineOptions(arguments)
    if any(argument.startswith(_OF_STORES) for argument in arguments):
        refused_by_beam(options.get_all_options)
    FileSystems.set_options(options)


def check_runner(arguments: list[str], inputs: list[str], output: str, checkpoint: str | None = None) -> str:
    """Refuse a runner that cannot start, or whose workers cannot see a path; return the temp location.

    Raises:
      InputError: the first thing that is missing, with its fix.
    """
    flags = read_engine_flags(arguments)
    check_runner_name(flags)
    refused_by_beam(lambda: pipeline_options(arguments).get_all_options())
    kept = [] if checkpoint is None else [Path("--checkpoint", checkpoint, "temp")]
    if flags.runner == DEFAULT_RUNNER:
        temp_location = flags.temp_location or tempfile.gettempdir()
        for path in (Path("--temp_location", temp_location, "temp"), *kept):
            _refuse_unless_ok(check_path(flags, path))
        return absolute(temp_location)
    if flags.temp_location is None and flags.remote_workers:
        raise InputError(
            "--temp_location is required where workers run elsewhere: a folder that all of them share"
        )
    paths = [Path("--input", pattern, "input") for pattern in inputs]
    paths += [Path("--output", output, "output"), *kept]
    for row in check_engine(arguments, paths):
        _refuse_unless_ok(row)
    return absolute(flags.temp_location or tempfile.gettempdir())


def _refuse_unless_ok(row: Row) -> None:
    if not row.ok:
        message = f"{row.what}: {row.finding}; {row.fix}"
        raise UnavailableError(message) if row.passing else InputError(message)


def run_key(given: dict[str, Any]) -> RunKey:
    """A fresh key, or the fixed one of --insecure_test_key."""
    if "insecure_test_key" not in given:
        return RunKey.fresh()
    check_test_key(given)
    return RunKey.insecure_fixed(given["insecure_test_key"].lower())


def _target(given: dict[str, Any], extras: Sequence[str] = (), *, public: bool = True) -> OutputTarget:
    overwrite, format = given.get("overwrite", False), given.get("output_format", "parquet")
    return OutputTarget(given["output"], format, overwrite=overwrite, extras=extras, public=public)


def pipeline_options(arguments: list[str]) -> PipelineOptions:
    """Beam's options, with the in-process runner where none is named."""
    options = PipelineOptions(arguments)
    standard = options.view_as(StandardOptions)
    if not standard.runner:
        standard.runner = DEFAULT_RUNNER
    return options


def _threads(pairs: int) -> int:
    """Bundles at once on the in-process runner: the kernels let go of the interpreter for most of their time."""
    if pairs < PAIRS_FOR_THREADS:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_THREADS)


def _check_counts(given: dict[str, Any]) -> None:
    for name in ("num_shards", "num_output_shards"):
        value = given.get(name)
        if value is not None and not 1 <= value <= 65_536:
            raise InputError(f"--{name} must be from 1 to 65536, got {value}")


def _check_checkpoint(given: dict[str, Any], spec: InputSpec) -> None:
    """Refuse what a run could not go on with.

    Raises:
      InputError: naming the flag.
    """
    per_job = given.get("passes_per_job")
    if per_job is not None and per_job < 1:
        raise InputError(f"--passes_per_job must be at least 1, got {per_job}")
    if "checkpoint" not in given:
        return
    given["checkpoint"] = local_path(given["checkpoint"], "--checkpoint")
    if any(map(is_pipe, spec.patterns)):
        raise InputError("--checkpoint: a pipe cannot be read again; give --input a file")
    if spec.file_format.is_table and spec.table_version is None:
        raise InputError(
            "--checkpoint: a retry must read the same version of the table; pass --table_version"
        )


def _check_encryption(given: dict[str, Any], patterns: Sequence[str] = ()) -> None:
    """Refuse a run that could not be encrypted.

    Raises:
      InputError: there is no key, or a pipe would be copied as it is.
    """
    if not given.get("encrypt_intermediates", False):
        return
    folder_key()
    if any(map(is_pipe, patterns)):
        raise InputError(
            "--encrypt_intermediates: what comes through a pipe is copied as it is; give --input a file"
        )


def _check_files(given: dict[str, Any], inputs: Sequence[str]) -> None:
    """Refuse files for results that could not be written at the end, or that stand in the way.

    Raises:
      InputError: naming the flag.
    """
    files = [value for value in given.values() if isinstance(value, NewFile)]
    for file in files:
        file.check(overwrite=given.get("overwrite", False), inputs=inputs)
        if any(os.path.abspath(file) == os.path.abspath(other) for other in files if other is not file):
            raise InputError(f"{file.flag}: '{file}' is named for another file too; name two files")


class _StoreCounts(beam.DoFn):
    """Puts the counts where the launcher finds them; they never become metrics or log lines."""

    def __init__(self, store: RunStore):
        self._store = store

    def process(self, counts: dict[str, int]) -> None:
        self._store.write_bytes(_COUNTS, json.dumps(counts).encode())


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{seconds:.1f} s" if seconds < 60 else f"{minutes} min {rest} s"
