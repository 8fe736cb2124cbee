"""The figure of a plan holds the numbers of the plan."""

import numpy as np
import pytest

from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.curves import curves, draw_plan
from dpbeam.selection.plan import make_plan
from dpbeam.selection.report import even_chance, plan_report
from dpbeam.selection.shown import shown_selection
from dpbeam.selectors.registry import selectors


@pytest.mark.parametrize("method", selectors())
def test_each_curve_crosses_where_the_table_says(method):
    """The table searches for the least number of users with a probability, the curve walks the numbers of users."""
    plan = make_plan(SelectionConfig(1.0, 1e-5, method, max_items_per_user=10))
    report = plan_report(plan, [1, 10])
    (limit, (users, most)), *rows = curves(plan, report).items()
    assert limit == "limit of any algorithm" and most[0] == pytest.approx(1e-5)
    names = ["1 item per user", "10 items per user"][: plan.config.max_items_per_user]
    assert [name for name, _ in rows] == names
    for (_, (numbers, chance)), needed in zip(rows, report["users_needed"], strict=True):
        assert np.array_equal(numbers, users) and np.all(np.diff(users) > 0) and users[0] == 1
        assert np.all(chance <= most * (1 + 1e-9))
        for probability in (0.05, 0.5, 0.95):
            above = users >= needed[f"users_{probability:g}"]
            assert np.array_equal(chance >= probability, above)
    assert chance[-1] >= 0.95


def test_the_figure_names_its_curves_and_is_the_same_again():
    plan = make_plan(SelectionConfig(1.0, 1e-5, "basic"))
    report = plan_report(plan)
    svg = draw_plan(plan, report, "svg")
    assert svg == draw_plan(plan, report, "svg")
    for text in ("limit of any algorithm", "100 items per user", "basic, epsilon 1, delta 1e-05, D0 100"):
        assert f">{text}<" in svg.decode()
    assert draw_plan(plan, report, "png").startswith(b"\x89PNG")


def test_an_even_chance_names_the_items_that_were_asked_about():
    plan = make_plan(SelectionConfig(1.0, 1e-5, "basic", max_items_per_user=5))
    for degrees, told in (([3, 5], "{} with 3 items each, {} with 5"), ([1], "{} with 1 item each")):
        report = plan_report(plan, degrees)
        users = [row["users_0.5"] for row in report["users_needed"]]
        words = "users for an even chance of release: " + told.format(*users)
        assert even_chance(report) == list(shown_selection(report))[1] == words
    report = plan_report(plan, [10**24])  # more than anybody keeps
    assert even_chance(report) == "" and not any(
        "even chance" in str(line) for line in shown_selection(report)
    )
