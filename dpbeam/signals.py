"""Stopping a program: SIGTERM and SIGHUP count like Ctrl-C, so that a stopped job is cancelled and cleans up."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

_STOPS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextlib.contextmanager
def interrupting(*, every: bool = False) -> Iterator[None]:
    """Signals that stop a program raise KeyboardInterrupt in the main thread, once; a second one changes nothing.

    A signal that is ignored stays so: a job under `nohup` outlives its terminal.

    Args:
      every: SIGINT too, where some other handler may have taken it; otherwise it is left as it is.
    """
    seen: list[bool] = []

    def interrupt(*_: object) -> None:
        if not seen:
            seen.append(True)
            raise KeyboardInterrupt

    with _handled(interrupt, _STOPS if every else _STOPS[1:]):
        yield


def forget_interrupt() -> None:
    """To be called where a KeyboardInterrupt was handled: else `python -m` may still end by SIGINT, without exit code.

    It does where the interrupt has passed through `exec` of a text, as of dataclasses, until another text is run.
    """
    exec("")


@contextlib.contextmanager
def deferring() -> Iterator[list[int]]:
    """Signals that stop a program wait: the list that the context gives holds those that came."""
    came: list[int] = []
    with _handled(lambda number, _: came.append(number), _STOPS):
        yield came


@contextlib.contextmanager
def _handled(handler: Callable, numbers: tuple[int, ...]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # One that is not of Python (None) could not be put back.
    heeded = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
