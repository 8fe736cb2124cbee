"""Plots: valid SVG with a group per line, the same bytes again, and words where nothing is to be drawn."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from dpbeam.errors import InputError
from dpbeam_lab.experiments.define import Plot
from dpbeam_lab.experiments.plots import draw
from dpbeam_lab.experiments.results import Row

SVG = "{http://www.w3.org/2000/svg}"


def row(dataset, method, epsilon, repetition, value) -> Row:
    columns = {"dataset": dataset, "method": method, "epsilon": epsilon, "repetition": repetition}
    bins = {"keep_rate": {(1, 1): 0.0, (2, 2): value / 100}, "keep_limit": {(1, 1): 0.1, (2, 2): 1.0}}
    bins["users_by_rank"] = {(1, 1): 90.0, (2, 2): 30.0, (3, 3): value}
    return Row(columns, {"released": value, "cpu_seconds": 1.0}, bins)


ROWS = [
    row(dataset, method, epsilon, repetition, 10.0 * epsilon + repetition)
    for dataset in ("a", "b")
    for method in ("x", "y", "z")
    for epsilon in (0.1, 1.0, 10.0)
    for repetition in (0, 1)
]


def spec(**changed) -> Plot:
    parts = {
        "name": "plot",
        "title": "A title",
        "kind": "line",
        "x": "epsilon",
        "y": ("released",),
        "lines": "method",
        "panels": "dataset",
        "log": ("x", "y"),
        "statistic": "mean",
        "where": {},
        "best": None,
    }
    return Plot(**{**parts, **changed})


def drawn(**changed):
    return draw(ROWS, spec(**changed), ("svg",))["svg"]


def series(svg: bytes) -> list[str]:
    groups = ElementTree.fromstring(svg).iter(f"{SVG}g")
    return [group.get("id") for group in groups if (group.get("id") or "").startswith("series-")]


def texts(svg: bytes) -> set[str]:
    return {"".join(element.itertext()).strip() for element in ElementTree.fromstring(svg).iter(f"{SVG}text")}


def test_a_line_for_each_method_in_each_panel():
    svg = drawn()
    assert len(series(svg)) == 6 and set(series(svg)) == {"series-0", "series-1", "series-2"}
    assert {"x", "y", "z", "a", "b", "epsilon", "released (items)", "A title"} <= texts(svg)
    assert any("not private" in text for text in texts(svg))
    assert len(series(drawn(where={"dataset": ("a",), "method": ("x", "z")}))) == 2


def test_what_follows_from_the_data_is_drawn_once():
    svg = drawn(x="frequency", y=("keep_rate", "keep_limit"), panels=None)
    assert len(series(svg)) == 4
    assert {"x: keep_rate", "y: keep_rate", "z: keep_rate", "keep_limit"} <= texts(svg)
    assert "share" in texts(svg)  # beside the axis: the legend names the measures


def test_bars_are_hatched():
    svg = drawn(kind="bar", x="frequency", y=("keep_rate",), panels=None, log=())
    assert b"<pattern" in svg and {"1", "2"} <= texts(svg)


@pytest.mark.parametrize("changed", [{}, {"kind": "bar", "log": ()}])
def test_the_same_results_give_the_same_bytes(changed):
    import matplotlib

    first = draw(ROWS, spec(**changed), ("svg", "png"))
    with matplotlib.rc_context({"lines.linewidth": 9, "svg.hashsalt": "other", "font.size": 20}):
        np.random.default_rng().random()
        again = draw(ROWS, spec(**changed), ("svg", "png"))
    assert again == first and first["png"].startswith(b"\x89PNG\r\n")
    assert b"<dc:date>" not in first["svg"]


def test_lines_differ_without_colour():
    """Marker and dash of two lines are never both the same, up to twelve of them."""
    from dpbeam import figures

    styles = {
        (figures.MARKERS[n % len(figures.MARKERS)], figures.DASHES[(n + n // len(figures.COLOURS)) % 4])
        for n in range(12)
    }
    assert len(styles) == 12


def test_what_cannot_be_drawn():
    with pytest.raises(InputError, match=r"plots \(plot\): x: dataset must be a number, got a"):
        drawn(x="dataset")
    with pytest.raises(InputError, match="no result has welfare by epsilon"):
        drawn(y=("welfare",))


def test_bins_are_drawn_over_what_they_are_of():
    svg = drawn(x="rank", y=("users_by_rank",), lines="dataset", panels=None)
    assert series(svg) == ["series-0", "series-1"]
    assert {"a", "b", "rank of the item", "users_by_rank (users)"} <= texts(svg)
    with pytest.raises(InputError, match="no result has keep_rate by rank"):
        drawn(x="rank", y=("keep_rate",), panels=None)
