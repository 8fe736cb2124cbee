"""What a command prints, and how it ends: one line for an error, exit codes 0, 1, 2."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator

from dpbeam.errors import InputError

_INPUT_ERROR = re.compile(r"(?:dpbeam\.errors\.)?InputError: ([^\n]+)")
_STAGE = re.compile(r"(Trip\d+[A-Za-z]+|SubsamplePerUser|ReadUnits|ChooseTopK|WriteShard|WriteFile)")


def run_command(command: str, body: Callable[[], int], *, verbose: bool = False) -> int:
    """Run a subcommand and turn what it raises into an exit code.

    Returns:
      0 done, 1 failed or interrupted, 2 wrong usage or input.
    """
    quiet_beam(verbose)
    try:
        with _terminate_as_interrupt():
            return body()
    except KeyboardInterrupt:
        return _fail(command, "interrupted", 1)
    except Exception as error:
        if str(error).startswith("KeyboardInterrupt"):  # as Beam's in-process runner passes it on
            return _fail(command, "interrupted", 1)
        message = find_input_error(error)
        if message is not None:
            return _fail(command, message, 2)
        if verbose:
            traceback.print_exc()
        hint = "" if verbose else " (--verbose shows the whole trace)"
        return _fail(command, f"{type(error).__name__}: {_last_line(error)}{hint}", 1)


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that an orchestrator's stop cancels the job and cleans up too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def find_input_error(error: BaseException) -> str | None:
    """The message of an InputError that a worker raised, out of whatever the runner wrapped it in."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, InputError):
            return _without_step(str(seen))
        match = _INPUT_ERROR.search(str(seen))
        if match:
            return _without_step(match.group(1))
        seen = seen.__cause__ or seen.__context__
    return None


def _without_step(message: str) -> str:
    """A message less the step that Beam appends to what a DoFn raised."""
    return re.sub(r" ?\[while running '[^']*'\].*$", "", message).rstrip()


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def _fail(command: str, message: str, code: int) -> int:
    print(f"dpbeam {command}: error: {message}", file=sys.stderr)
    return code


def quiet_beam(verbose: bool) -> None:
    """Keep Beam's log and stack traces off the terminal unless asked for."""
    root = logging.getLogger()
    if not root.handlers:
        logging.basicConfig(stream=sys.stderr)
    root.setLevel(logging.INFO if verbose else logging.CRITICAL)


class Progress:
    """One line on the terminal: the stage and the time elapsed. Silent where stderr is no terminal."""

    def __init__(self, title: str, *, enabled: bool):
        self._title = title
        self._enabled = enabled and sys.stderr.isatty()
        self._status = None
        self._stage = ""

    def __enter__(self) -> Progress:
        if self._enabled:
            from rich.console import Console
            from rich.progress import Progress as Bar
            from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._status = Bar(*columns, console=Console(stderr=True), transient=True)
            self._status.start()
            self._task = self._status.add_task(self._title)
        return self

    def stage(self, name: str) -> None:
        """Show what runs now."""
        if self._status is not None and name != self._stage:
            self._stage = name
            self._status.update(self._task, description=f"{self._title}: {name}")

    def __exit__(self, *exc_info) -> None:
        if self._status is not None:
            self._status.stop()

    @property
    def shown(self) -> bool:
        """Whether there is a terminal to show anything on."""
        return self._status is not None

    @contextlib.contextmanager
    def follow_local_runner(self) -> Iterator[None]:
        """Show the stages of Beam's in-process runner, which tells them to its debug log alone."""
        if self._status is None:
            yield
            return
        logger = logging.getLogger("apache_beam.runners.portability.fn_api_runner.fn_runner")
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
        if str(record.msg).startswith("Running bundle for stage") and record.args:
            names = _STAGE.findall(str(record.args[0]))
            if names:
                self._progress.stage(names[0])
