"""What a selector says for reports and plans, `weight` and `keep_probability`, is what its program does.

Weights are compared exactly. Shares of released items: a false alarm has a probability below 1e-8 a check, and what
adapts to other items, which `keep_probability` leaves out, may add or take `ADAPTS`.
"""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pytest

from dpbeam.accounting.search import users_for
from dpbeam.engine.in_process import run_in_process
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selectors.registry import selectors, variants
from tests.support.running import key, watch
from tests.support.watch import ONE

D0 = 8
EPSILON, DELTA = 2.0, 1e-3
LEVELS = (0.15, 0.5, 0.85)
ITEMS = 1_000  # of each level
SURE = 6.0 * 0.5 / np.sqrt(ITEMS)
ADAPTS = 0.05


@functools.cache
def plan(name: str) -> SelectionPlan:
    return make_plan(SelectionConfig(EPSILON, DELTA, max_items_per_user=D0, **variants()[name]))


def check_weight(made: SelectionPlan) -> None:
    """In one of the noisy rounds each of 40 lone users gives to its items, on average, what the selector says."""
    for degree in (1, 2, 3, D0):
        pairs = [(f"{user}", f"{user} {item}") for user in range(40) for item in range(degree)]
        rounds = watch(made.program, pairs, key(degree)).rounds.values()
        all_means = []
        for number, row in enumerate(rounds):
            gone = {item for before in list(rounds)[:number] for item in before.released}
            users = [[f"{user} {item}".encode() for item in range(degree)] for user in range(40)]
            means = [
                np.mean([row.exact[item] / ONE for item in items])
                for items in users
                if gone.isdisjoint(items)
            ]
            all_means.append(means)
        said = made.weight(degree)
        assert any(means and np.allclose(means, said, rtol=1e-6) for means in all_means), (
            f"{degree} items: {said:.6g} is said, {[sorted(set(means)) for means in all_means]} are given"
        )


def shares(made: SelectionPlan, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """What is said and what is seen: the probability of release of items at three levels, all users of one degree."""
    needed = [users_for(level, lambda users: made.keep_probability(users, degree)) for level in LEVELS]
    rng = np.random.default_rng(degree)
    users, items, start = [], [], 0
    for level, holders in enumerate(needed):
        # Every user holds `degree` items of one level, no item twice: neighbours on a circle.
        members = np.arange(ITEMS * holders // degree)
        first = rng.permutation(ITEMS)[members % ITEMS]
        for step in range(degree):
            users.append(members + start)
            items.append(level * ITEMS + (first + step) % ITEMS)
        start += len(members)
    batch = (pa.array(np.concatenate(users).astype("U")), pa.array(np.concatenate(items).astype("U")))
    released = run_in_process(made.program, [batch], key(f"shares {degree}"), num_blocks=2, num_shards=2)
    levels = np.array([int(item) for item in released.items.to_pylist()]) // ITEMS
    said = np.array([made.keep_probability(holders, degree) for holders in needed])
    return said, np.bincount(levels, minlength=len(LEVELS)) / ITEMS


def check_shares(made: SelectionPlan) -> None:
    said, seen = shares(made, 1)
    assert (np.abs(seen - said) < SURE + ADAPTS).all(), f"one item: {said} is said, {seen} are released"
    said, seen = shares(made, 4)
    assert (seen > said - SURE - ADAPTS).all(), f"four items: {said} is said, {seen} are released"


@pytest.mark.parametrize("name", variants())
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
