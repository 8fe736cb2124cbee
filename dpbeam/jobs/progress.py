"""What a job is doing, for a person: a line that changes on a terminal, few lines elsewhere.

Nothing private shows: stages and their number follow the settings, the share of the input that was read its files. Time
left is what the work done so far suggests; it is said once it has something to go by.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
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
    "WriteShard": "writing",
    "WriteFile": "writing",
}
# A cluster names a fused stage by its outer transforms alone; the first here that it holds names it.
_OUTER_STEPS = {
    "ReadInput": "reading",
    "SelectPartitions": "items of each user",
    "UserBlocks": "items of each user",
    "WriteReleased": "writing",
    "WriteRanked": "writing",
}
_LAST_STEPS = ("choosing", "writing")
_RUNNER_LOG = "apache_beam.runners.portability.fn_api_runner.fn_runner"

# Time of each part, a pass as two. Measured in process at 4 million pairs on a busy machine: reading 14 s, users 7 s, a
# pass 2 to 4 s, writing 1 s.
_READING, _USERS, _PASS, _WRITING = 7.0, 4.0, 2.0, 1.0
_WITHIN_PASS = {"weights": 0.0, "sums and noise": 0.6, "decision": 0.9, "values back": 0.9}
_NUMBERED = re.compile(r"(?:round|pass) (\d+) of \d+, ([a-z ]+)$")
#: Before, an estimate of the time left would say more about the machine's start than about the job.
SECONDS_BEFORE_ESTIMATE = 15.0
SHARE_BEFORE_ESTIMATE = 0.05
#: Off a terminal, a stage that takes longer says how far it is.
SECONDS_BETWEEN_LINES = 60.0


def share_before(stage: str, passes: int) -> float | None:
    """Share of a job's work that lies before a stage, None where that is not known.

    Args:
      stage: as `Progress.describe` words it.
      passes: how often users send to items; 0 where that is not known.
    """
    if not passes:
        return None
    total = _READING + _USERS + _PASS * passes + _WRITING
    numbered = _NUMBERED.search(stage)
    if numbered and numbered[2] in _WITHIN_PASS:
        # What gathers a user's items is fused with the first weights, and takes most of their time.
        first = 0.0 if "items of each user" in stage else _USERS
        return (_READING + first + _PASS * (int(numbered[1]) - 1 + _WITHIN_PASS[numbered[2]])) / total
    places = {
        "reading": 0.0,
        "items of each user": _READING,
        "all rounds": _READING + _USERS,
        "choosing": total - _WRITING,
        "writing": total - _WRITING,
    }
    return places[stage] / total if stage in places else None


def seconds_left(share: float, elapsed: float) -> float | None:
    """Time left if the rest goes as what is done went; None where too little is done to tell.

    Args:
      share: of the work that is done, from 0 to 1.
      elapsed: seconds that it took.
    """
    if elapsed < SECONDS_BEFORE_ESTIMATE or share < SHARE_BEFORE_ESTIMATE:
        return None
    return elapsed * (1 - share) / share


def spelled(seconds: float) -> str:
    """A rough time for a person: "40 s", "3 min", "2 h 10 min"."""
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """Tells what a job is doing; silent where `enabled` is false.

    Args:
      title: what runs, as `dpbeam select`.
      enabled: false under --quiet.
      passes: how often users send to items, for "round 3 of 8"; 0 where that is not known.
      pass_name: "round", or "pass" where a round of the method takes several.
      read: share of the input that has been read, from 0 to 1; None where it is not known.
      clock: seconds.
    """

    def __init__(
        self,
        title: str,
        *,
        enabled: bool,
        passes: int = 0,
        pass_name: str = "round",
        read: Callable[[], float | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._title = title
        self._enabled = enabled
        self._passes = passes
        self._pass_name = pass_name
        self._read = read
        self._clock = clock
        self._begun = clock()
        self._bar: Bar | None = None
        self._task: TaskID
        self._stage = ""
        self._job: dict[str, str] = {}
        self._share = 0.0
        self._last_line = 0.0
        self._ended = threading.Event()

    def __enter__(self) -> Progress:
        self._begun = self._last_line = self._clock()
        if not self._enabled:
            return self
        if sys.stderr is not None and sys.stderr.isatty():
            self._bar, self._task = self._live_line()
        threading.Thread(target=self._tick, name="progress", daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.stop()

    def _live_line(self) -> tuple[Bar, TaskID]:
        import rich.progress
        from rich.console import Console
        from rich.progress import (
            ProgressColumn,
            SpinnerColumn,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        columns: list[ProgressColumn] = [
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        ]
        if self._passes:
            columns += [TaskProgressColumn(), TextColumn("{task.fields[left]}")]
        columns.append(TextColumn("{task.fields[job]}", markup=False))
        bar = rich.progress.Progress(*columns, console=Console(stderr=True), transient=True)
        with contextlib.suppress(OSError):
            bar.start()
        return bar, bar.add_task(self._title, total=1.0 if self._passes else None, left="", job="")

    def _tick(self) -> None:
        while not self._ended.wait(1.0):
            self.refresh()

    @property
    def share(self) -> float | None:
        """Share of the work that is done, None where the number of stages is not known. It never falls."""
        start = share_before(self._stage, self._passes)
        if start is None:
            return None
        if self._stage == "reading":
            part = self._read()
            start = (share_before("items of each user", self._passes) or 0.0) * min(1.0, part or 0.0)
        self._share = max(self._share, start)
        return self._share

    def _how_far(self) -> str:
        """As "62 % done, about 40 s left", empty while that is not known."""
        share = self.share
        left = None if share is None else seconds_left(share, self._clock() - self._begun)
        return "" if share is None or left is None else f"{share:.0%} done, about {spelled(left)} left"

    def refresh(self) -> None:
        """Bring the line up to date; off a terminal a line more where the last is long ago."""
        if self._bar is not None:
            far = self._how_far().partition(", ")[2]
            with contextlib.suppress(OSError):
                self._bar.update(self._task, completed=self.share or 0.0, left=far)
        elif self._stage and self._clock() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._line()

    def _line(self) -> None:
        self._last_line = self._clock()
        far = self._how_far()
        complain(f"{self._title}: {self._stage}{f' ({far})' if far else ''}")

    def stage(self, name: str) -> None:
        """Say what runs now, once."""
        if not self._enabled or name == self._stage:
            return
        self._stage = name
        if self._bar is None:
            self._line()
            return
        with contextlib.suppress(OSError):
            self._bar.update(self._task, description=f"{self._title}: {name}")
        self.refresh()

    def job(self, text: str) -> None:
        """Say what the engine says of its job: its state, or once its address."""
        if not self._enabled:
            return
        if self._bar is None:
            complain(f"{self._title}: {text}")
            return
        kind, _, value = text.partition(": ")
        self._job[kind] = value or text
        with contextlib.suppress(OSError):
            self._bar.update(self._task, job=" ".join(self._job.values()))

    def follow(self, steps: Sequence[str]) -> None:
        """Say the stage of the first of a cluster's running steps that has words; never one that lies behind.

        Args:
          steps: their names, in the order of the job.
        """
        begun = self._stage not in ("", "reading")
        # The impulses of later steps run first of all, and Flink starts a shuffle's reader with its writer.
        words = [
            text for text in map(self.describe_fused, steps) if text and (begun or text not in _LAST_STEPS)
        ]
        if not self._enabled or not words:
            return
        here, there = (share_before(stage, self._passes) for stage in (self._stage, words[0]))
        if here is None or there is None or there >= here:
            self.stage(words[0])

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

    def describe_fused(self, name: str) -> str | None:
        """The same for the name that a cluster gives it, which may say no more than the outer transforms."""
        name = name.partition(" -> ")[0]  # less the shuffle that it writes to, which names the next step
        outer = [words for label, words in _OUTER_STEPS.items() if label in name]
        return self.describe(name) or (outer[0] if outer else None)

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
