"""Draws docs/figures/released.svg: the README's table of released items as bars. Run from the repository's root.

python docs/figures/plot_released.py
"""

from __future__ import annotations

import re
from pathlib import Path

from matplotlib.figure import Figure

from dpbeam.figures import rendered

ROOT = Path(__file__).resolve().parents[2]
COLOURS = ("#9aa5b1", "#0072b2")  # distinct in grey and on light and dark paper
INK = "#6b7580"


def table(text: str) -> list[tuple[str, int, int]]:
    """Rows of the README's first table: dataset, items of the best published method, items of dpbeam."""
    rows = re.findall(r"^\| ([\w-]+) \|[^|]+\|[^|]+\| ([\d,]+) \| \*{0,2}([\d,]+)\*{0,2} \|", text, re.M)
    return [(name, int(best.replace(",", "")), int(ours.replace(",", ""))) for name, best, ours in rows]


def figure(rows: list[tuple[str, int, int]]) -> Figure:
    drawn = Figure(figsize=(7.6, 0.62 * len(rows) + 0.5), layout="constrained")
    drawn.patch.set_alpha(0)
    axis = drawn.subplots()
    axis.patch.set_alpha(0)
    most = max(max(best, ours) for _, best, ours in rows)
    for place, (_, *numbers) in enumerate(rows):
        for number, offset, colour in zip(numbers, (-0.19, 0.19), COLOURS):
            axis.barh(place + offset, number, 0.34, color=colour)
            axis.text(number + most / 100, place + offset, f"{number:,}", va="center", color=INK, fontsize=8)
    axis.set_yticks(range(len(rows)), [name for name, *_ in rows], color=INK)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.08 * most)
    axis.set_xticks([])
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    handles = [drawn.add_artist(_swatch(colour)) for colour in COLOURS]
    drawn.legend(
        handles,
        ("best published parallel method", "dpbeam"),
        loc="outside upper center",
        ncols=2,
        frameon=False,
        labelcolor=INK,
    )
    return drawn


def _swatch(colour: str):
    from matplotlib.patches import Rectangle

    return Rectangle((0, 0), 0, 0, color=colour)


def svg() -> bytes:
    rows = table((ROOT / "README.md").read_text(encoding="utf-8"))
    return rendered(lambda: figure(rows), ("svg",))["svg"]


if __name__ == "__main__":
    Path(__file__).with_name("released.svg").write_bytes(svg())
