"""Draws progress.svg: what a terminal shows while a job of a minute and more runs, as it was recorded.

    script -qec "dpbeam select --input '30M/*.parquet' --epsilon 1 --delta 1e-8 --output out/items" typescript
    python docs/figures/plot_progress.py typescript

The picture is a terminal that goes through a dozen moments of the recording in as many seconds, without a script in it.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

MOMENTS, SECONDS = 14, 14
_ESCAPE = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")
_LINE = re.compile(r"\S (dpbeam \w.*?\d:\d\d:\d\d +\d+%.*)")


def moments(recorded: str) -> tuple[list[str], list[str]]:
    """The states of the changing line, spread over the run, and the lines that stand in the end."""
    lines = [_ESCAPE.sub("", line).rstrip() for line in re.split(r"[\r\n]+", recorded)]
    live = [match[1] for line in lines if (match := _LINE.fullmatch(line))]
    end = next(n for n, line in enumerate(lines) if "items released" in line)
    rest = [line for line in lines[end:] if line and not _LINE.fullmatch(line) and "Script done" not in line]
    return [live[round(n * (len(live) - 1) / (MOMENTS - 1))] for n in range(MOMENTS)], rest


def draw(command: str, states: list[str], rest: list[str]) -> str:
    """The picture."""
    height = 26 * (len(rest) + 3)
    share = 100 / (len(states) + 3)  # the end stays three times as long

    def text(line: str, row: int, style: str = "") -> str:
        return f'<text x="16" y="{26 * row + 8}"{style}>{html.escape(line)}</text>'

    body = [text(f"$ {command}", 1)]
    for n, state in enumerate(states):
        body.append(
            text(state, 2, f' class="moment" style="animation-delay:{n * share * SECONDS / 100:.2f}s"')
        )
    body.append('<g class="end">' + "".join(text(line, n) for n, line in enumerate(rest, 2)) + "</g>")
    size = f'width="860" height="{height}" viewBox="0 0 860 {height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">
<title>A terminal: one line changes from reading to writing, then six lines say what was released</title>
<style>
text {{ font: 15px ui-monospace, Menlo, Consolas, monospace; fill: #e6e6e6; white-space: pre; }}
.moment {{ opacity: 0; animation: show {SECONDS}s infinite step-end; }}
.end {{ opacity: 0; animation: stay {SECONDS}s infinite step-end; }}
@keyframes show {{ 0% {{ opacity: 1 }} {share:.3f}% {{ opacity: 0 }} 100% {{ opacity: 0 }} }}
@keyframes stay {{ 0% {{ opacity: 0 }} {100 - 3 * share:.3f}% {{ opacity: 1 }} 100% {{ opacity: 1 }} }}
@media (prefers-reduced-motion: reduce) {{ .moment {{ animation: none }} .end {{ animation: none; opacity: 1 }} }}
</style>
<rect width="860" height="{height}" rx="8" fill="#1e2129"/>
{chr(10).join(body)}
</svg>
"""


if __name__ == "__main__":
    record = Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace")
    Path(__file__).with_name("progress.svg").write_text(
        draw(
            "dpbeam select --input '30M/*.parquet' --epsilon 1 --delta 1e-8 --output out/items",
            *moments(record),
        ),
        encoding="utf-8",
    )
