"""What a job is doing, for a person: a line that changes on a terminal, one line per stage elsewhere."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpbeam.errors import complain

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_TRIP = re.compile(r"Trip(\d+)([A-Za-z]+)(?:-(\w+))?")
_TRIP_STEPS = {
    "WeightPerUser": "weights",
    "GroupByItem": "sums and noise",
    "AddNoise": "sums and noise",
    "Threshold": "sums and noise",
    "MeetAtHub": "decision",
    "RerouteExcess": "values back",
}
# Label of a step -> what it does; the first that a fused stage holds names it.
_STEPS = {
    "ReadUnits": "reading",
    "SamplePerUser": "items of each user",
    "AllTrips": "all rounds",
    "ChooseTopK-Choose": "choosing",
    "WriteShard": "writing",
    "WriteFile": "writing",
}
_RUNNER_LOG = "apache_beam.runners.portability.fn_api_runner.fn_runner"


class Progress:
    """Tells what a job is doing; silent where `enabled` is false.

    Args:
      title: what runs, as `dpbeam select`.
      enabled: false under --quiet.
      passes: how often users send to items, for "round 3 of 8"; 0 where that is not known.
      pass_name: "round", or "pass" where a round of the method takes several.
    """

    def __init__(self, title: str, *, enabled: bool, passes: int = 0, pass_name: str = "round"):
        self._title = title
        self._enabled = enabled
        self._passes = passes
        self._pass_name = pass_name
        self._bar: Bar | None = None
        self._task: TaskID
        self._stage = ""

    def __enter__(self) -> Progress:
        if self._enabled and sys.stderr is not None and sys.stderr.isatty():
            import rich.progress
            from rich.console import Console
            from rich.progress import (
                ProgressColumn,
                SpinnerColumn,
                TaskProgressColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            columns: list[ProgressColumn] = [
                SpinnerColumn(),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
            ]
            if self._passes:  # the number of stages is public: reading, two a pass, writing
                columns += [
                    TaskProgressColumn(),
                    TextColumn("about"),
                    TimeRemainingColumn(),
                    TextColumn("left"),
                ]
            bar = rich.progress.Progress(*columns, console=Console(stderr=True), transient=True)
            with contextlib.suppress(OSError):
                bar.start()
            self._bar, self._task = (
                bar,
                bar.add_task(self._title, total=2 * self._passes + 2 if self._passes else None),
            )
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.stop()

    @property
    def shown(self) -> bool:
        """Whether a terminal shows the stage."""
        return self._bar is not None

    def stage(self, name: str) -> None:
        """Say what runs now, once."""
        if not self._enabled or name == self._stage:
            return
        done, self._stage = bool(self._stage), name
        if self._bar is None:
            complain(f"{self._title}: {name}")
            return
        with contextlib.suppress(OSError):
            self._bar.update(self._task, description=f"{self._title}: {name}", advance=done)

    def describe(self, stage: str) -> str | None:
        """Words for one of Beam's fused stages, None where it does nothing worth a word."""
        words = [words for label, words in _STEPS.items() if label in stage][:1]
        for number, step, part in _TRIP.findall(stage):
            # The stages that wake the hub of every trip all run before the first trip.
            if step in _TRIP_STEPS and (step != "MeetAtHub" or part == "Decide"):
                of = f" of {self._passes}" if self._passes else ""
                words.append(f"{self._pass_name} {number}{of}, {_TRIP_STEPS[step]}")
                break
        return "; ".join(words) or None

    @contextlib.contextmanager
    def follow_local_runner(self) -> Iterator[None]:
        """Show the stages of Beam's in-process runner, which tells them to its debug log alone."""
        if not self._enabled:
            yield
            return
        logger = logging.getLogger(_RUNNER_LOG)
        handler = _StageHandler(self)
        level, propagate = logger.level, logger.propagate
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


class _StageHandler(logging.Handler):
    def __init__(self, progress: Progress):
        super().__init__(logging.DEBUG)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        if str(record.msg).startswith("Running bundle for stage") and isinstance(record.args, tuple):
            words = self._progress.describe(str(record.args[0]))
            if words:
                self._progress.stage(words)
