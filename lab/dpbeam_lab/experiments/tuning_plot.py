"""The figure of `dpbeam tune`: expected output by D0, a line for every method at the best of its other settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpbeam.figures import line_style, rendered
from dpbeam_lab.evaluation.tuning import AIMS, Estimate, Tuning

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_tuning(tuning: Tuning, says: str, format: str) -> bytes:
    """The figure as svg or png.

    Args:
      says: where the figures come from, for the title.
    """
    return rendered(lambda: _figure(tuning, says), (format,))[format]


def lines(tuning: Tuning) -> dict[str, list[Estimate]]:
    """Method with its other settings -> estimates by D0, ascending: of every method the line with the largest mean."""
    best: dict[str, Estimate] = {}
    for estimate in tuning.estimates:
        method = estimate.choice.method
        if method not in best or estimate.mean(tuning.aim) > best[method].mean(tuning.aim):
            best[method] = estimate
    titles = [estimate.choice.title for estimate in best.values()]
    return {
        title: sorted(
            (e for e in tuning.estimates if e.choice.title == title), key=lambda e: e.choice.max_items
        )
        for title in titles
    }


def _figure(tuning: Tuning, says: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axis = figure.subplots()
    for place, (title, estimates) in enumerate(lines(tuning).items()):
        axis.errorbar(
            [e.choice.max_items for e in estimates],
            [e.mean(tuning.aim) for e in estimates],
            [e.error(tuning.aim) or 0.0 for e in estimates],
            label=title,
            **line_style(place),
            markersize=4,
            linewidth=1.2,
            capsize=2,
        )
    pick = tuning.chosen
    axis.plot(
        [pick.choice.max_items],
        [pick.mean(tuning.aim)],
        "o",
        markersize=13,
        markerfacecolor="none",
        color="black",
        linestyle="none",
        label=f"the pick: {pick.choice.title}, D0 {pick.choice.max_items}",
    )
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    sizes = sorted({e.choice.max_items for e in tuning.estimates})
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    axis.set_xlabel("max_items_per_user")
    axis.set_ylabel(f"{AIMS[tuning.aim]}, mean and standard error")
    axis.set_title(says, fontsize=9)
    axis.grid(visible=True, linewidth=0.4, alpha=0.5)
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
