"""`dpbeam series run --runner=...`: the pipeline that makes a night on an engine."""

from __future__ import annotations

from collections.abc import Callable

import apache_beam as beam
from apache_beam.pvalue import PCollection

from dpbeam.cli.series_options import EMPTY_NIGHT, NO_PAIRS, SeriesOptions
from dpbeam.errors import DataError
from dpbeam.io.pairs import check_not_empty
from dpbeam.io.paths import is_pipe
from dpbeam.io.sources import InputSummary, ReadInput
from dpbeam.io.spec import InputSpec
from dpbeam.jobs import files
from dpbeam.jobs.engine import check_runner, threads
from dpbeam.jobs.job import estimate_pairs
from dpbeam.jobs.progress import Progress
from dpbeam.jobs.running import executor
from dpbeam.kernels.canonical import METADATA_KEY
from dpbeam.runners.options import complete
from dpbeam.runners.options import read as read_engine_flags
from dpbeam.series.state import SeriesState
from dpbeam.series.transforms import SeriesNight
from dpbeam.series.window import SeriesWindow

Make = Callable[[SeriesWindow, int], SeriesState]


class _Night(SeriesNight):
    """A night of record batches that are canonical already."""

    def _batches(self, pcoll: PCollection) -> PCollection:
        return pcoll


class Engine:
    """An engine for the nights of a series.

    Args:
      options: of the command.
      beam_arguments: Beam's flags.

    Raises:
      InputError: a flag that does not fit.
    """

    def __init__(self, options: SeriesOptions, beam_arguments: list[str]):
        self._options, self._arguments = options, beam_arguments
        files.check_counts(options)
        self.temp_location = read_engine_flags(beam_arguments).temp_location
        if options.empty:
            self._check_runner([])

    def reading(self, spec: InputSpec, summary: InputSummary) -> Make:
        """Makes nights of an input.

        Raises:
          InputError: there is not a single row, or workers do not see a path.
        """
        check_not_empty(spec, summary, EMPTY_NIGHT)
        files.check_encryption(self._options, spec.patterns)
        seen = [path for pattern in spec.patterns for path in spec.file_format.files_to_see(pattern)]
        patterns = [path for path in seen if not is_pipe(path)]
        self._check_runner(patterns)
        return lambda window, number: self._make(window, number, (summary.spec or spec, summary))

    def _check_runner(self, patterns: list[str]) -> None:
        options = self._options
        check_runner(self._arguments, patterns, None, untested=options.untested_runner, folder=options.folder)

    def make(self, window: SeriesWindow, number: int) -> SeriesState:
        """The state after a night on which nothing came."""
        return self._make(window, number, None)

    def _make(
        self, window: SeriesWindow, number: int, reading: tuple[InputSpec, InputSummary] | None
    ) -> SeriesState:
        pairs, item_bytes = 0, None
        if reading is not None:
            pairs, item_bytes = estimate_pairs(*reading), reading[1].item_bytes
            window.check_night(window.snapshot, number, reading[1].kinds.metadata()[METADATA_KEY])
        night = _Night(
            window,
            night=window.plan.config.name_of(number),
            pairs=pairs,
            item_bytes=item_bytes,
            num_shards=self._options.num_shards,
        )
        arguments = complete(self._arguments, threads=threads(pairs))
        with night:
            source = None if reading is None else ReadInput(reading[0], summary=reading[1], store=night.store)
            progress = Progress(
                "dpbeam series",
                enabled=not self._options.quiet,
                passes=1 + len(window.plan.config.resolved_schedule.of_night(number)),
                pass_name="pass",
                read=_nothing if source is None else source.share_read,
            )

            def build(pipeline: beam.Pipeline) -> None:
                came = pipeline if source is None else pipeline | "ReadInput" >> source
                _ = came | "Night" >> night

            with executor(arguments, progress, verbose=self._options.verbose) as execute:
                execute(build)
            if reading is not None and not night.any_pairs:
                raise DataError(NO_PAIRS)
            return night.commit()


def _nothing() -> None:
    """The share that is read where nothing is."""
