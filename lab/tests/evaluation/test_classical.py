"""The truncated geometric baseline releases by the law of its paper, of which the package of the tests draws coins."""

import math

import numpy as np
import pytest

from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam_lab.evaluation.classical import release_probabilities, truncated_geometric
from tests.plugins.faults import ENTRIES, PACKAGE
from tests.support.instances import csr
from tests.support.plugins import installed, put


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-7), (3.0, 0.01)])
def test_each_user_more_uses_the_budget_and_no_more(epsilon, delta):
    chances = release_probabilities(epsilon, delta)
    less, more = chances[:-1], chances[1:]
    rise = np.maximum(more - math.exp(epsilon) * less, (1 - less) - math.exp(epsilon) * (1 - more))
    assert chances[0] == 0 and chances[-1] == 1
    assert rise[:-1] == pytest.approx(delta, rel=1e-6)  # the last step reaches 1 before the bound
    assert rise.max() <= delta * (1 + 1e-6)


def test_the_coins_of_a_selector_have_these_probabilities(tmp_path):
    """Two implementations: a recursion, and integers from two lines and their mirror images."""
    put(tmp_path, PACKAGE, ENTRIES)
    with installed(tmp_path, PACKAGE.name):
        plan = make_plan(SelectionConfig(1.0, 1e-5, "geometric", max_items_per_user=3))
        chances = release_probabilities(1 / 3, 1e-5 / 3)
        drawn = [plan.keep_probability(users, 1) for users in range(len(chances))]
    assert np.abs(chances - drawn).max() < 1e-6


def test_items_of_samples_are_released_with_these_probabilities():
    """Of 3,000 items with n users each; a user holds two items and keeps one or both."""
    items, users = 3_000, 3
    sets = csr([[item, (item + 1) % items] for item in range(items) for _ in range(users)])
    both = truncated_geometric(sets, items, 1.0, 0.02, rng=np.random.default_rng(1), max_items_per_user=2)
    expected = release_probabilities(0.5, 0.01)[2 * users]
    assert 0.1 < expected < 0.9 and abs(both.mean() - expected) < 6 * 0.5 / math.sqrt(items)
    one = truncated_geometric(sets, items, 0.5, 0.02, rng=np.random.default_rng(1))
    chances = release_probabilities(0.5, 0.02)
    binomial = [math.comb(2 * users, n) / 2 ** (2 * users) for n in range(2 * users + 1)]
    expected = sum(chance * chances[min(n, len(chances) - 1)] for n, chance in enumerate(binomial))
    assert 0.1 < expected < 0.9 and abs(one.mean() - expected) < 6 * 0.5 / math.sqrt(items)


@pytest.mark.parametrize("wrong", [{"epsilon": 0.0}, {"delta": 1.5}, {"max_items_per_user": 0}])
def test_refusals(wrong):
    values = {"epsilon": 1.0, "delta": 1e-5, **wrong}
    with pytest.raises(ValueError):
        truncated_geometric(csr([[0]]), 1, rng=np.random.default_rng(0), **values)
