"""The figure of a plan: how likely an item is released, by how many users hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dpbeam.accounting.limits import release_probability_limit
from dpbeam.figures import line_style, rendered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpbeam.selection.plan import SelectionPlan

_POINTS = 60


def draw_plan(plan: SelectionPlan, report: Mapping[str, Any], format: str) -> bytes:
    """The figure in a format of `dpbeam.figures`.

    Args:
      report: of `plan_report`; its numbers of items per user are drawn.
    """
    return rendered(lambda: _figure(curves(plan, report), _title(plan)), (format,))[format]


def curves(plan: SelectionPlan, report: Mapping[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Name -> numbers of users, ascending, and the probability of release; the limit of any algorithm comes first.

    The last number of users is the first, among those that are drawn, with a probability of 95 % at every degree.
    """
    needed = [row["users_0.95"] for row in report["users_needed"] if row["users_0.95"] is not None]
    last = max([*needed, report["limit_of_any_algorithm"]["users_0.95"]])
    users = np.unique(np.geomspace(1, last, _POINTS).round().astype(np.int64))
    config = plan.config
    limit = np.asarray(release_probability_limit(users, config.epsilon, config.delta))
    drawn = {"limit of any algorithm": (users, limit)}
    for row in report["users_needed"]:
        degree = row["items_per_user"]
        chance = np.array([plan.keep_probability(int(n), degree) for n in users])
        drawn[f"{degree} item{'s' * (degree > 1)} per user"] = (users, chance)
    return drawn


def _title(plan: SelectionPlan) -> str:
    config = plan.config
    return (
        f"{config.method}, epsilon {config.epsilon:g}, delta {config.delta:g}, D0 {config.max_items_per_user}"
    )


def _figure(drawn: Mapping[str, tuple[np.ndarray, np.ndarray]], title: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    axis = figure.subplots()
    for place, (name, (users, chance)) in enumerate(drawn.items()):
        axis.plot(users, chance, label=name, **{**line_style(place), "marker": ""})
    axis.set_xscale("log")
    axis.set_ylim(-0.02, 1.02)
    axis.set_xlabel("users that hold the item")
    axis.set_ylabel("probability that it is released")
    axis.set_title(title, fontsize=9)
    axis.grid(visible=True, linewidth=0.4, alpha=0.5)
    axis.legend(fontsize=8, loc="upper left")
    return figure
