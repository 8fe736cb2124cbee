"""Selections from counts: what they release is what pairs of users with D0 items each release, to the bit."""

import numpy as np
import pyarrow as pa
import pytest

from dpbeam.counts.gathered import histogram
from dpbeam.errors import InputError
from dpbeam.kernels.canonical import METADATA_KEY, STRING, Kinds
from dpbeam.kernels.grid import UNITS
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selection.tallied import select_counted
from dpbeam.selectors.registry import selectors
from tests.support.running import key, release

ABLE = [name for name, selector in selectors().items() if selector.count_units(1) is not None]
KIND = Kinds(None, (STRING,)).metadata()[METADATA_KEY]
D0 = 4


def plan_of(method, max_items=D0, **options):
    return make_plan(SelectionConfig(1.0, 1e-3, method, max_items_per_user=max_items, **options))


def counted(items, counts):
    return histogram(pa.array([i.encode() for i in items], pa.large_binary()), np.array(counts), KIND)


def whole_users(rng, users=3_000, items=300):
    """Pairs of users who hold exactly D0 items, popular ones more often."""
    share = 1 / np.arange(1, items + 1)
    held = [rng.choice(items, D0, replace=False, p=share / share.sum()) for _ in range(users)]
    return [(f"u{u}", f"i{i}") for u, own in enumerate(held) for i in own]


@pytest.mark.parametrize("method", ABLE)
@pytest.mark.parametrize("seed", [1, 2])
def test_users_of_d0_items_and_their_counts_release_the_same(method, seed):
    pairs = whole_users(np.random.default_rng(seed))
    items, counts = np.unique([item for _, item in pairs], return_counts=True)
    plan = plan_of(method)
    of_pairs = release(plan.program, pairs, key(seed))
    batch = select_counted(plan, counted(items, counts), key(seed))
    assert 10 < batch.num_rows < len(items)
    assert dict(zip(batch["item"].to_pylist(), batch["noisy_weight"].to_pylist())) == dict(
        zip(of_pairs.items.to_pylist(), of_pairs.noisy_weight.tolist())
    )


@pytest.mark.parametrize("max_items", [1, 2, 7, 100, 12_345])
def test_the_weight_of_a_user_of_d0_items(max_items):
    """1/sqrt(D0) or 1/D0, rounded down; a user of D0 items has a norm of at most 1."""
    units = {method: selector.count_units(max_items) for method, selector in selectors().items()}
    for method, power in (("basic", 2), ("laplace", 1)):
        own = units.pop(method)
        assert max_items * own**power <= UNITS**power < max_items * (own + 1) ** power
    assert set(units.values()) == {None}


def test_what_nobody_holds_is_not_released():
    """The noise of an item alone would release one in a thousand."""
    items = [f"i{n}" for n in range(20_000)]
    for counts in (np.zeros(20_000, np.int64), []):
        batch = select_counted(plan_of("basic"), counted(items[: len(counts)], counts), key())
        assert batch.num_rows == 0 and batch.schema.names == ["item", "noisy_weight"]


def test_counts_beyond_the_sums_are_refused():
    plan, most = plan_of("laplace", 1), (1 << 61) // UNITS
    assert select_counted(plan, counted(["a"], [most]), key(1)).num_rows == 1
    with pytest.raises(InputError, match=f"^--max_items_per_user: a count is above {most}, so"):
        select_counted(plan, counted(["a"], [most + 1]), key(2))
    with pytest.raises(ValueError, match="gsu cannot select from counts"):
        select_counted(plan_of("gsu"), counted(["a"], [3]), key(3))
