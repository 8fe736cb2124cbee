"""Draws docs/figures/released.svg: the README's table of released items as bars. Run from the repository's root.

python docs/figures/plot_released.py
"""

from __future__ import annotations

import re
from pathlib import Path

from matplotlib.figure import Figure

from dpbeam.figures import rendered

ROOT = Path(__file__).resolve().parents[2]
COLOURS = ("#9aa5b1", "#56b4e9", "#0072b2")  # distinct in grey and on light and dark paper
INK = "#6b7580"


def table(text: str) -> list[tuple[str, list[int]]]:
    """Rows of the README's table: dataset; items of the best published method, of dpbeam by default and at its best."""
    rows = re.findall(
        r"^\| ([\w-]+) \|[^|]+\|[^|]+\| ([\d,]+) \| ([\d,]+) \| \*\*([\d,]+)\*\* \|", text, re.M
    )
    return [(name, [int(number.replace(",", "")) for number in numbers]) for name, *numbers in rows]


def figure(rows: list[tuple[str, list[int]]]) -> Figure:
    drawn = Figure(figsize=(7.6, 0.78 * len(rows) + 0.5), layout="constrained")
    drawn.patch.set_alpha(0)
    axis = drawn.subplots()
    axis.patch.set_alpha(0)
    most = max(max(numbers) for _, numbers in rows)
    for place, (_, numbers) in enumerate(rows):
        for number, offset, colour in zip(numbers, (-0.27, 0, 0.27), COLOURS):
            axis.barh(place + offset, number, 0.24, color=colour)
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
        ("best published parallel method", "dpbeam by default", "dpbeam's best method"),
        loc="outside upper center",
        ncols=3,
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
