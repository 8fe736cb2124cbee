"""What a selector says for reports and plans, `weight` and `keep_probability`, is what its program does.

Weights are compared exactly. Shares of released items: a false alarm has a probability below 1e-8 a check, and what
adapts to other items, which `keep_probability` leaves out, may add or take 0.05.
"""

from __future__ import annotations

import functools

import pytest

from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selectors.registry import selectors, variants
from dpbeam.testing.selectors import check_shares, check_weight
from tests.support.variants import of_own_code

D0 = 8
EPSILON, DELTA = 2.0, 1e-3


@functools.cache
def plan(name: str) -> SelectionPlan:
    return make_plan(SelectionConfig(EPSILON, DELTA, max_items_per_user=D0, **variants()[name]))


@pytest.mark.parametrize("name", of_own_code(variants()))
def test_weights_are_those_of_the_program(name):
    check_weight(plan(name))


@pytest.mark.parametrize("name", [next(iter(selector.variants)) for selector in selectors().values()])
def test_items_are_released_as_often_as_the_selector_says(name):
    check_shares(plan(name))


@pytest.mark.parametrize("name", ["basic", "vote", "bits"])
@pytest.mark.parametrize("factor", [5.0, 1.001])
def test_a_weight_that_is_made_up_is_noticed(name, factor, monkeypatch):
    honest = type(plan(name).selector).weight
    monkeypatch.setattr(type(plan(name).selector), "weight", lambda *args: factor * honest(*args))
    with pytest.raises(AssertionError, match="is said"):
        check_weight(plan(name))


@pytest.mark.parametrize("name", ["basic", "vote", "bits"])
def test_a_probability_of_other_weights_is_noticed(name, monkeypatch):
    kind = type(plan(name).selector)
    honest = kind.keep_probability
    monkeypatch.setattr(
        kind, "keep_probability", lambda s, c, users, degree: honest(s, c, users * 4 // 3, degree)
    )
    with pytest.raises(AssertionError, match="is said"):
        check_shares(plan(name))
