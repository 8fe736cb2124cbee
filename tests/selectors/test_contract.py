"""Every variant of every method does what a selector must do (`dpbeam.testing.SelectorContract`)."""

import functools

import pytest

from dpbeam.selection.plan import make_plan
from dpbeam.selectors.registry import selectors
from dpbeam.testing import SelectorContract, checks
from tests.support.variants import VARIANTS, case_of, config


@functools.cache
def plan_of(name, max_items):
    return make_plan(config(name, max_items=max_items))


class Variant(SelectorContract):
    def __init__(self, name):
        self.name, self.method, self.settings = name, VARIANTS[name]["method"], VARIANTS[name]
        self.epsilon = case_of(name).epsilon

    def plan(self, max_items=None):
        return plan_of(self.name, max_items or self.max_items)


OF_METHODS = (
    "it_says_what_is_asked",
    "it_has_a_plan_at_every_budget",
    "with_a_floor_items_of_fewer_users_are_never_released",
)
#: What `test_weights.py` tries on the variants of the registry, at another budget.
ELSEWHERE = ("weights_are_those_of_the_program", "items_are_released_as_often_as_it_states")
TESTS = [name for name, _ in checks(SelectorContract()) if name not in OF_METHODS + ELSEWHERE]


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("name", VARIANTS)
def test_what_a_selector_must_do(name, test):
    getattr(Variant(name), f"test_{test}")()


@pytest.mark.parametrize("test", OF_METHODS)
@pytest.mark.parametrize("method", selectors())
def test_what_a_method_must_say(method, test):
    contract = SelectorContract()
    contract.method = method
    getattr(contract, f"test_{test}")()
