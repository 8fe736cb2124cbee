"""Plans as tables on the terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from dpbeam.families.base import Release, Shown
from dpbeam.jobs.console import emit


def print_plan(family: type[Release], report: dict[str, Any]) -> None:
    """Print a plan report of a family."""
    show(lambda console: _plan(family.shown(report), console))


def show(draw: Callable[[Console], None], width: int = 110) -> None:
    """Print what `draw` draws, as the product of the command."""
    drawn = io.StringIO()
    terminal = sys.stdout is not None and sys.stdout.isatty()
    # Names and fixes may have brackets, as in dpbeam[gcs], which markup would take away.
    draw(Console(file=drawn, width=width, force_terminal=terminal, markup=False))
    emit(drawn.getvalue().removesuffix("\n"))


def _plan(parts: Iterable[Shown], console: Console) -> None:
    for part in parts:
        if isinstance(part, str):
            console.print(part, highlight=False, soft_wrap=True)
            continue
        table = Table(*part.columns, title=part.title)
        for row in part.rows:
            table.add_row(*row)
        console.print(table)
