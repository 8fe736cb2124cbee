"""A command's input, output, account and runner, checked before anything starts; `dpbeam.jobs.running` runs it."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.combiners import ToDict

from dpbeam.accounting.ledger import REPLACE_ONE_AGENT, Ledger
from dpbeam.accounting.release import STARTED_FORMAT, Others, Release, as_text
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.io.output import OutputTarget
from dpbeam.io.pairs import check_not_empty
from dpbeam.io.paths import is_pipe
from dpbeam.io.sources import InputSummary, ReadInput, preflight
from dpbeam.io.spec import InputSpec
from dpbeam.jobs import files
from dpbeam.jobs.charge import open_charge
from dpbeam.jobs.engine import check_runner, is_local, local_threads, threads, use_stores
from dpbeam.jobs.options import ReleaseOptions
from dpbeam.jobs.result import file_of
from dpbeam.jobs.uncharged import Uncharged
from dpbeam.randomness import RunKey
from dpbeam.room import available_memory
from dpbeam.runners.options import complete
from dpbeam.runners.options import read as read_engine_flags
from dpbeam.selection.ledger import one_value_of
from dpbeam.selection.sizes import Sizes, choose_sizes

COUNTS = "counts"
OptionsT = TypeVar("OptionsT", bound=ReleaseOptions)
# Flags that name what is read of the users' data.
_INPUTS = ("input", "agents")
# A part of the available memory for pairs that could do with less: the most that they take is then below all of it.
_SHARE_OF_MEMORY = 3


@dataclass
class Job(Generic[OptionsT]):
    """One command's input, output and runner, checked before anything starts.

    Attributes:
      command: subcommand, for messages.
      options: its flags.
      spec, summary: the input; what preflight found.
      target: the output.
      beam_arguments: Beam's flags, completed for the runner.
      temp_location: where the run's private folder goes.
      key: the run's key.
      charge: the account that the run is charged to.
      began: when the job was made, in UTC, for the ledger.
      others: users that hold nothing of the output, for the ledger, if they were asked for.
    """

    command: str
    options: OptionsT
    spec: InputSpec
    summary: InputSummary
    target: OutputTarget
    beam_arguments: list[str]
    temp_location: str
    key: RunKey = field(repr=False)
    charge: Uncharged
    began: str = field(default_factory=lambda: datetime.now(UTC).strftime(STARTED_FORMAT))
    others: Others | None = None
    _source: ReadInput | None = field(default=None, init=False, repr=False)

    @classmethod
    def create(
        cls,
        command: str,
        options: OptionsT,
        beam_arguments: list[str],
        spec: InputSpec,
        *,
        look: Callable[..., InputSummary] = preflight,
        empty: Callable[..., None] = check_not_empty,
        extras: Sequence[str] = (),
        public: bool = True,
    ) -> Job[OptionsT]:
        """Check flags, input and output.

        Args:
          look: what opens the input early.
          empty: refuses one that holds nothing, unless that is allowed.
          extras, public: names of files beside the shards, and whether these are public, as in `OutputTarget`.

        Raises:
          InputError: the first fault found, naming its flag, file or column.
        """
        use_stores(beam_arguments)
        target = OutputTarget.asked(
            options.output,
            options.output_format,
            options.num_output_shards,
            overwrite=options.overwrite,
            extras=extras,
            public=public,
        )
        _claim_result_file(options, target)
        charge = open_charge(command, options, target)
        files.check_counts(options)
        files.check_checkpoint(options, spec)
        files.check_encryption(options, spec.patterns)
        summary = look(spec, temp_location=read_engine_flags(beam_arguments).temp_location)
        try:
            files.check_public(options, spec, summary)
            if not options.allow_empty:
                empty(spec, summary)
            inputs = [*(file.path for file in summary.files), *files.lists(options)]
            target.check(inputs, files.other_files(options))
            files.check_files(options, inputs)
            seen = [path for pattern in spec.patterns for path in spec.file_format.files_to_see(pattern)]
            patterns = [path for path in seen if not is_pipe(path)]
            spec = summary.spec or spec
            temp_location = check_runner(
                beam_arguments,
                patterns,
                target.prefix,
                options.checkpoint,
                untested=options.untested_runner,
            )
            target.stage_below(temp_location)
            key = files.run_key(options)
            job = cls(command, options, spec, summary, target, beam_arguments, temp_location, key, charge)
            job.beam_arguments = complete(beam_arguments, threads=threads(job.pairs_estimate))
        except BaseException:
            summary.release()
            raise
        for note in summary.notes:
            job.say(note)
        return job

    @property
    def output_files(self) -> int | None:
        """How many files the output is to have; None where that follows from its size."""
        return 1 if self.target.one_file else self.options.num_output_shards

    @property
    def reading(self) -> tuple[InputSpec, InputSummary]:
        """The input."""
        return self.spec, self.summary

    @contextlib.contextmanager
    def reading_ends(self) -> Iterator[None]:
        """What was kept of the input, such as the copy of a pipe, goes at the end."""
        try:
            yield
        finally:
            self.summary.release()

    @functools.cached_property
    def sizes(self) -> Sizes:
        """How many blocks and shards; one answer, though memory comes and goes."""
        spec, summary = self.reading
        # A chain that goes on after a failure has no step that makes all of it.
        all_at_once = (
            self.one_process and self.options.checkpoint is None and _counted(spec, summary) is not None
        )
        return choose_sizes(
            self.pairs_estimate,
            self.options.num_shards,
            summary.item_bytes,
            in_process=is_local(self.beam_arguments),
            room=available_memory() // _SHARE_OF_MEMORY if all_at_once else 0,
        )

    @property
    def one_process(self) -> bool:
        """Every step runs in this process, and once."""
        return read_engine_flags(self.beam_arguments).one_process

    @property
    def threads(self) -> int:
        """Threads of the in-process runner; 1 on others, whose workers have a core each."""
        return local_threads(self.beam_arguments)

    @property
    def privacy_unit(self) -> str:
        """What one user is, for the ledger."""
        return self.spec.file_format.unit(self.spec) or one_value_of(self.spec.user_column)

    def input_parameters(self) -> dict[str, Any]:
        """Public settings of the input, for the ledger."""
        names: tuple[str, ...] = (
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

    def release(self, ledger: Ledger) -> Release:
        """What the ledger says of this run and its staged output besides the settings."""
        # Under this relation every agent sees its own row alone: the rest of the output is as private as the input.
        public = ledger.neighbouring_relation != REPLACE_ONE_AGENT
        return Release(
            command=self.command,
            started=self.began,
            outputs=self.target.describe_staged(contents=public),
            release_id=self.options.said.get("release_id"),
            inputs=self._input_names(),
            others=self.others,
        )

    def _input_names(self) -> tuple[str, ...] | None:
        """The last part of the input's names in the command; the files that a pattern matches may follow the data."""
        # Where each file is a user, their names are data too.
        if getattr(self.spec, "text_layout", None) == "file":
            return None
        said = self.options.said
        named = [said[name] for name in _INPUTS if name in said]
        patterns = [name for names in named for name in ([names] if isinstance(names, str) else names)]
        return tuple(as_text(_last_part(pattern)) for pattern in patterns)

    @property
    def pairs_estimate(self) -> int:
        """Roughly how many (user, item) pairs there are."""
        return estimate_pairs(*self.reading)

    @property
    def quiet(self) -> bool:
        """Whether --quiet was said."""
        return self.options.quiet

    def say(self, text: str) -> None:
        """A line for the person at the terminal, unless --quiet."""
        self.options.say(text)

    def end_dry_run(self, ledger: Ledger, done: str) -> int:
        """Say what the run would be charged, and that it was not done; the exit code, 0.

        Raises:
          InputError: its account would refuse the run.
        """
        note = self.charge.preview(ledger)
        if note:
            self.say(note)
        self.say(f"dry run: {done}")
        return 0

    def read(self, pipeline: beam.Pipeline, folder: RunFolder) -> PCollection:
        """The input's pairs; with --not_private_counts also counts what reading drops."""
        wanted = self.options.not_private_counts is not None
        spec, summary = self.reading
        source = self._source = ReadInput(spec, summary=summary, with_counts=wanted, store=folder.store)
        if not wanted:
            return pipeline | "ReadInput" >> source
        pairs, counts = pipeline | "ReadInput" >> source
        _ = (
            counts
            | "SumCounts" >> beam.CombinePerKey(sum)
            | "AllCounts" >> ToDict()
            | "StoreCounts" >> beam.ParDo(_StoreCounts(folder.store))
        )
        return pairs

    def input_paths(self) -> list[str]:
        """Files of the users' data."""
        return [file.path for file in self.summary.files]

    def share_read(self) -> float | None:
        """Of the input, from 0 to 1; None where it is not known."""
        return None if self._source is None else self._source.share_read()


def estimate_pairs(spec: InputSpec, summary: InputSummary) -> int:
    """Roughly how many (user, item) pairs an input has."""
    counted = _counted(spec, summary)
    return summary.bytes // spec.file_format.bytes_per_pair if counted is None else counted


def _counted(spec: InputSpec, summary: InputSummary) -> int | None:
    """How many pairs an input has by what its files say; None where they do not say it."""
    return summary.rows_estimate if spec.layout == "pairs" and spec.tokenizer is None else None


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


def _claim_result_file(options: ReleaseOptions, target: OutputTarget) -> None:
    """First of all, so that whatever comes next can be told there."""
    file = file_of(options.said)
    if file is not None:
        file.claim(options.said, target.extras)


class _StoreCounts(beam.DoFn):
    """Puts the counts where the launcher finds them; they never become metrics or log lines."""

    def __init__(self, store: RunStore):
        self._store = store

    def process(self, counts: dict[str, int]) -> None:
        self._store.write_bytes(COUNTS, json.dumps(counts).encode())
