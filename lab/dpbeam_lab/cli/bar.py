"""A bar for work that is counted: so many of so many, on a terminal alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def counted(
    title: str, *, enabled: bool
) -> Iterator[tuple[Callable[[int, int], None], Callable[[Any], None]]]:
    """Yields (begin, advance), to be told (total, finished) and what was done; silent where no terminal listens."""
    if not enabled or sys.stderr is None or not sys.stderr.isatty():
        yield lambda total, finished: None, lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[done]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None, done="")

        def begin(total: int, finished: int) -> None:
            bar.update(task, total=total, completed=finished)

        def advance(done: Any) -> None:
            bar.update(task, advance=1, done=str(done))

        yield begin, advance
