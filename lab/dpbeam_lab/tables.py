"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows of cells under a head, each as long as it."""
    lines = [" | ".join(str(cell).replace("|", "\\|") for cell in row) for row in (head, *rows)]
    first, *others = (f"| {line} |" for line in lines)
    return "\n".join([first, "|" + "---|" * len(head), *others])
