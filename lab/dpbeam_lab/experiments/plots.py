"""Figures of an experiment: a line is the mean or median of repetitions, with the standard deviation around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpbeam.errors import SettingError
from dpbeam.figures import COLOURS, line_style, rendered
from dpbeam_lab.evaluation.measures import BINNED
from dpbeam_lab.evaluation.registry import measures
from dpbeam_lab.experiments.define import CPU_SECONDS, DATASET, METHOD, Plot
from dpbeam_lab.experiments.markdown import named, shown
from dpbeam_lab.experiments.results import NOT_PRIVATE, Row, at_best, chosen, summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float, float]
"""x, centre, spread."""

_HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "+++", "ooo")
_PANEL = (4.0, 3.2)  # inches
_COLUMNS = 3


def draw(rows: Sequence[Row], spec: Plot, formats: Sequence[str]) -> dict[str, bytes]:
    """A figure in every format.

    Raises:
      InputError: nothing is to be drawn, or an axis is to be logarithmic and has no positive value.
    """
    return rendered(lambda: _figure(rows, spec), formats)


def _figure(rows: Sequence[Row], spec: Plot) -> Figure:
    from matplotlib.figure import Figure

    rows = chosen(rows, spec.where)
    if spec.best is not None:
        rows = at_best(rows, spec.best, spec.y[0])
    panels = _panels(rows, spec)
    if not any(panels.values()):
        raise SettingError(f"plots ({spec.name}): no result has {' or '.join(spec.y)} by {spec.x}")
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    width = min(len(panels), _COLUMNS)
    height = -(-len(panels) // width)
    figure = Figure(figsize=(_PANEL[0] * width, _PANEL[1] * height + 0.5), layout="constrained")
    axes = figure.subplots(height, width, squeeze=False).flatten()
    handles: dict[str, Any] = {}
    for axis, (title, series) in zip(axes, panels.items()):
        handles.update(_draw_panel(axis, spec, title, series, names))
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    ordered = [name for name in names if name in handles]
    figure.legend(
        [handles[name] for name in ordered],
        ordered,
        loc="outside lower center",
        ncols=min(2 * width, len(ordered)),
    )
    figure.suptitle(f"{spec.title}\n({NOT_PRIVATE})" if spec.title else f"({NOT_PRIVATE})", fontsize=9)
    return figure


def _panels(rows: Sequence[Row], spec: Plot) -> dict[str, dict[str, list[Point]]]:
    """Title of a panel -> name of a line -> its points, ascending."""
    panels: dict[str, dict[str, dict[float, list[float]]]] = {}
    for row in rows:
        panel = "" if spec.panels is None else _titled(spec.panels, row)
        for measure in spec.y:
            name = _titled(spec.lines, row)
            if measure != CPU_SECONDS and measures()[measure].of_data and spec.lines == METHOD:
                name = measure
            elif len(spec.y) > 1:
                name = f"{name}: {measure}"
            for x, value in _points(row, spec, measure).items():
                line = panels.setdefault(panel, {}).setdefault(name, {})
                line.setdefault(x, []).append(value)
    return {
        panel: {
            name: [(x, *summary(points[x], spec.statistic)) for x in sorted(points)]
            for name, points in series.items()
        }
        for panel, series in panels.items()
    }


def _titled(column: str, row: Row) -> str:
    """A value, with the name of its column where it does not speak for itself."""
    value = named(row, column)
    return value if column in (DATASET, METHOD) else f"{column} {value}"


def _points(row: Row, spec: Plot, measure: str) -> Mapping[float, float]:
    if spec.x in BINNED:
        if measure == CPU_SECONDS or measures()[measure].by != spec.x:
            return {}
        return {float(high): value for (_, high), value in row.bins.get(measure, {}).items()}
    x = row.columns[spec.x]
    if measure not in row.values or x is None:
        return {}
    if isinstance(x, bool) or not isinstance(x, int | float):
        raise SettingError(f"plots ({spec.name}): x: {spec.x} must be a number, got {shown(x)}")
    return {float(x): row.values[measure]}


def _draw_panel(
    axis: Axes, spec: Plot, title: str, series: Mapping[str, Sequence[Point]], names: Sequence[str]
) -> dict[str, Any]:
    handles: dict[str, Any] = {}
    xs = sorted({x for points in series.values() for x, _, _ in points})
    for name, points in series.items():
        place = names.index(name)
        if spec.kind == "bar":
            handles[name] = _bars(axis, points, xs, list(series).index(name), len(series), place)
            continue
        centres = [y for _, y, _ in points]
        style = line_style(place)
        (handles[name],) = axis.plot(
            [x for x, _, _ in points],
            centres,
            **style,
            markersize=4,
            linewidth=1.2,
            gid=f"series-{place}",
        )
        spreads = [spread for _, _, spread in points]
        if any(spreads):
            axis.errorbar(
                [x for x, _, _ in points],
                centres,
                spreads,
                fmt="none",
                ecolor=style["color"],
                elinewidth=0.8,
                capsize=2,
            )
    if spec.kind == "bar":
        axis.set_xticks(range(len(xs)), [_tick(x, spec) for x in xs], rotation=45 if len(xs) > 8 else 0)
    elif "x" in spec.log:
        axis.set_xscale("log", base=2 if spec.x in BINNED else 10)
        if len(xs) <= 8:
            axis.set_xticks(xs, [_tick(x, spec) for x in xs])
            axis.minorticks_off()
    if "y" in spec.log:
        axis.set_yscale("log", nonpositive="clip" if spec.kind == "bar" else "mask")
    elif min(y for points in series.values() for _, y, _ in points) >= 0:
        axis.set_ylim(bottom=0)
    axis.set_xlabel(BINNED.get(spec.x, spec.x))
    axis.set_ylabel(_label(spec.y))
    if title:
        axis.set_title(title, fontsize=9)
    axis.grid(visible=True, linewidth=0.4, alpha=0.5)
    return handles


def _bars(
    axis: Axes, points: Sequence[Point], xs: Sequence[float], number: int, count: int, place: int
) -> Any:
    width = 0.8 / count
    return axis.bar(
        [xs.index(x) + (number - (count - 1) / 2) * width for x, _, _ in points],
        [y for _, y, _ in points],
        width,
        color=COLOURS[1:][place % (len(COLOURS) - 1)],
        hatch=_HATCHES[place % len(_HATCHES)],
        edgecolor="black",
        linewidth=0.5,
        gid=f"series-{place}",
    )


def _tick(x: float, spec: Plot) -> str:
    if spec.x in BINNED and x >= 1024 and x == 2 ** (int(x).bit_length() - 1):
        return f"2^{int(x).bit_length() - 1}"
    return f"{x:g}"


def _label(names: Sequence[str]) -> str:
    """Measure and unit; of several measures the units alone, since the legend names them."""
    units = sorted({"seconds" if name == CPU_SECONDS else measures()[name].unit for name in names})
    return f"{names[0]} ({units[0]})" if len(names) == 1 else ", ".join(units)
