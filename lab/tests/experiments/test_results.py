"""Tables: what is chosen, grouped and shown."""

import pytest

from dpbeam_lab.experiments.define import Table
from dpbeam_lab.experiments.markdown import figure, table
from dpbeam_lab.experiments.results import Row, at_best, chosen, quartiles, summary


def row(method, d0, repetition, value, epsilon=1.0) -> Row:
    columns = {
        "dataset": "a",
        "method": method,
        "epsilon": epsilon,
        "repetition": repetition,
        "max_items_per_user": d0,
    }
    return Row(columns, {"released": value}, {}, parallel=method != "y")


ROWS = [
    *(
        row("x", d0, n, value)
        for d0, values in {5: (1, 3, 9), 50: (100, 200, 8)}.items()
        for n, value in enumerate(values)
    ),
    *(row("y", None, n, value) for n, value in enumerate((10, 20, 7))),
]


def spec(**changed) -> Table:
    parts = {
        "title": "t",
        "rows": ("dataset",),
        "columns": "method",
        "value": "released",
        "statistic": "mean",
        "where": {},
        "best": None,
    }
    return Table(**{**parts, **changed})


def test_the_last_repetition_chooses_and_is_left_out():
    best = at_best(ROWS, "max_items_per_user", "released")
    assert [r.values["released"] for r in best] == [1, 3, 10, 20]


def test_what_no_other_repetition_ran_at_is_not_chosen():
    rows = [r for r in ROWS if r.columns["max_items_per_user"] != 5 or r.columns["repetition"] == 2]
    best = at_best(rows, "max_items_per_user", "released")
    assert [r.values["released"] for r in best] == [100, 200, 10, 20]


def test_a_table():
    text = table(ROWS, spec(best="max_items_per_user"))
    assert text.splitlines() == ["| dataset | x | y (not parallel) |", "|---|---|---|", "| a | 2 (5) | 15 |"]
    text = table(ROWS, spec(rows=("method", "max_items_per_user"), columns="dataset"))
    assert text.splitlines()[2:] == [
        "| x | 5 | 4.33 |",
        "| x | 50 | 103 |",
        "| y (not parallel) | default | 12.3 |",
    ]
    text = table(ROWS, spec(where={"method": ("x",), "max_items_per_user": (5,)}, statistic="mean ± sd"))
    assert text.splitlines()[2] == "| a | 4.33 ± 4 |"
    text = table(ROWS, spec(where={"method": ("y",)}, statistic="median (quartiles)"))
    assert text.splitlines()[2] == "| a | 10 (8.5..15) |"
    assert chosen(ROWS, {"repetition": (2,), "method": ("x", "y")}) == [ROWS[2], ROWS[5], ROWS[8]]


def test_cells_without_runs_are_empty():
    rows = [ROWS[0], row("y", 5, 0, 3, epsilon=2.0)]
    assert table(rows, spec(rows=("epsilon",))).splitlines()[2:] == [
        "| 1 | 1 |  |",
        "| 2 |  | 3 |",
    ]


@pytest.mark.parametrize(
    "value, text",
    [(0, "0"), (0.12345, "0.123"), (99.96, "100"), (1234.5, "1,234"), (7.0, "7"), (1.5e-7, "1.5e-07")],
)
def test_figures(value, text):
    assert figure(value) == text


def test_summaries():
    assert summary([1, 2, 6], "mean") == (3.0, pytest.approx(7**0.5))
    assert summary([1, 2, 6], "median (sd)")[0] == 2
    assert summary([4], "mean ± sd") == (4.0, 0.0)
    assert quartiles([4]) == (4, 4) and quartiles([0, 1, 2, 3, 4]) == (1, 3)
