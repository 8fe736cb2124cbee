"""What a selector of somebody's own must do, as tests to inherit (lab/docs/how-to/test_a_selector.md).

They try what the proof of a selector rests on: that one user moves the sums of a round by what the program states and
by nothing else, that noise is drawn anew for each round and item under the run's key, and that the probabilities which
the selector states keep the budget and are those of its program. Whether its events cost what they say is for the
audit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from dpbeam.accounting.search import users_for
from dpbeam.engine.in_process import Released, run_in_process
from dpbeam.engine.program import Keys, Program
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selectors.base import Request
from dpbeam.selectors.registry import find
from dpbeam.testing.replay import (
    ONE,
    Pair,
    audit_by_replay,
    check_moves,
    key,
    newcomer,
    random_pairs,
    release,
    replay,
    to_arrays,
    watch,
)

_LEVELS = (0.15, 0.5, 0.85)
_ITEMS = 1_000  # of each level
_SURE = 6.0 * 0.5 / np.sqrt(_ITEMS)
_ADAPTS = 0.05
_TOO_MANY = 1_000
_ROUNDING = 1e-9


class SelectorContract:
    """Tests of a selector, for pytest: a class that inherits them names it.

    Attributes:
      method: name of the selector, registered or installed.
      settings: of the method.
      epsilon, delta, max_items: at which a hundred users release something.
    """

    method: str
    settings: Mapping[str, Any] = {}
    epsilon = 4.0
    delta = 0.02
    max_items = 8

    def plan(self, max_items: int | None = None) -> SelectionPlan:
        """The calibrated selection that is tried.

        Raises:
          ValueError: what the selector says in one place contradicts what it says in another.
        """
        options = {"max_items_per_user": max_items or self.max_items, **self.settings}
        return make_plan(SelectionConfig(self.epsilon, self.delta, self.method, **options))

    def test_it_says_what_is_asked(self) -> None:
        selector = find(self.method)
        assert selector.summary and "\n" not in selector.summary, "its summary is one line"
        default, first = (
            selector.resolve(Request(1.0, 1e-5, None, selector.settings_type(**settings)))
            for settings in ({}, next(iter(selector.variants.values())))
        )
        assert default == first, "its first variant has the default settings"

    def test_it_has_a_plan_at_every_budget(self) -> None:
        options = {"max_items_per_user": self.max_items, **self.settings}
        for epsilon, delta in ((0.1, 1e-9), (8.0, 1e-2)):
            make_plan(SelectionConfig(epsilon, delta, self.method, **options))

    def test_blocks_shards_order_and_duplicates_leave_no_trace(self) -> None:
        program, data = self.plan().program, random_pairs(11, users=120, items=60, max_degree=14)
        wanted = _outcome(release(program, data, key("d")))
        assert len(wanted) >= 5, "these settings release next to nothing: set `epsilon` higher"
        shuffled = [data[i] for i in np.random.default_rng(5).permutation(len(data))]
        for pairs, blocks, shards in ((data, 1, 40), (data, 40, 1), ([*shuffled, *data[::3]], 3, 2)):
            again = _outcome(release(program, pairs, key("d"), num_blocks=blocks, num_shards=shards))
            assert again == wanted, f"with {blocks} blocks and {shards} shards something else is released"

    def test_nobody_releases_nothing(self) -> None:
        assert len(run_in_process(self.plan().program, [], key("d"))) == 0

    def test_the_number_of_rounds_never_depends_on_data(self) -> None:
        """Everything is found in the first round, nothing ever, or one pair is all."""
        program = self.plan().program
        noisy = [trip for trip in range(program.trips) if program.noise(trip) is not None]
        popular = [(f"user {u}", "one item") for u in range(500)]
        for pairs in (popular, [("a", "b")], random_pairs(2)):
            watched = watch(program, pairs, key("rounds"), num_blocks=2)
            assert sorted(watched.rounds) == noisy, "a round is left out, or added"
            assert sorted(watched.replies) == sorted(program.reply_columns), "a reply is left out, or added"

    def test_only_a_new_user_shows(self) -> None:
        result = audit_by_replay(self.plan().program)
        assert not result.refuted, result.refuted
        assert result.compared >= 7, "novel items are released too often for a test: set `delta` lower"
        assert result.largest > 0.7, "nobody comes near the norm that noise is made for: is a factor wrong?"

    def test_only_a_new_user_with_a_thousand_items_of_its_own_shows(self) -> None:
        """A score, filter or table that looks at other items of the data moves when 1,000 items appear."""
        program, extra = self.plan(1_000).program, newcomer(3, known=8, novel=1_000)
        differences, after = replay(program, random_pairs(3, users=100), extra, key(3), (3, 2), (2, 5))
        if differences is not None:
            check_moves(program, extra, key(3), differences, after)

    def test_every_round_draws_noise_of_its_own_for_every_item(self) -> None:
        rounds = _noise(self.plan().program, [(f"user {n}", f"item {n}") for n in range(2_000)])
        assert np.std(rounds, axis=1).all(), "a round draws the same for all items"
        correlation = np.corrcoef(rounds) - np.eye(len(rounds))
        assert np.abs(correlation).max() < 0.2, "two rounds draw the same noise"

    def test_the_probabilities_that_it_states_keep_the_budget(self) -> None:
        """Of items that nobody else holds none is released, but for delta; of items of n others, who hold one each, the
        release of all of them, or of none, keeps (epsilon, delta) where a user gives every item the same."""
        plan, most = self.plan(), self.max_items
        for degree in {1, most}:
            novel = 1.0 - (1.0 - plan.keep_probability(1, degree)) ** degree
            assert novel <= self.delta + _ROUNDING, (
                f"{degree} novel items are released with probability {novel:.3g}"
            )
        together = most if plan.weight(most) == plan.weight(1) else 1
        keep = np.array([plan.keep_probability(users, 1) for users in range(100)])
        for kept in (keep**together, (1.0 - keep) ** together):
            for less, more in ((kept[:-1], kept[1:]), (kept[1:], kept[:-1])):
                over = more - np.exp(self.epsilon) * less - self.delta
                users = int(over.argmax())
                assert over[users] <= _ROUNDING, (
                    f"{users} users or {users + 1}: one more shows beyond the budget"
                )

    def test_with_a_floor_items_of_fewer_users_are_never_released(self) -> None:
        """Whatever the noise: all is lifted over every threshold."""
        if not find(self.method).takes_min_users:
            return
        pairs = [(f"{item} {user}", f"{item}") for item in range(1, 12) for user in range(item)]
        for floor in (2, 3, 7):
            options = {"max_items_per_user": self.max_items, **self.settings, "min_users": floor}
            plan = make_plan(SelectionConfig(self.epsilon, self.delta, self.method, **options))
            with mock.patch("dpbeam.engine.in_process.Keys", LoudKeys):
                released = {int(item) for item in release(plan.program, pairs, key(floor)).items.to_pylist()}
            assert released == set(range(floor, 12)), (
                f"above a floor of {floor}: items of {sorted(released)} users"
            )

    def test_weights_are_those_of_the_program(self) -> None:
        check_weight(self.plan())

    def test_items_are_released_as_often_as_it_states(self) -> None:
        check_shares(self.plan())


class LoudKeys(Keys):
    """Noise that lifts everything over every threshold."""

    def noise(self, spec: Any, fp: np.ndarray, place: str = "noise", **below: Any) -> np.ndarray:
        return np.full(len(fp), 1 << 55, np.int64)


def check_weight(plan: SelectionPlan) -> None:
    """Holds that in one of the noisy rounds each of 40 lone users gives its items on average what the selector says.

    Raises:
      AssertionError: it gives something else.
    """
    for degree in (1, 2, 3, 8):
        pairs = [(f"{user}", f"{user} {item}") for user in range(40) for item in range(degree)]
        rounds = watch(plan.program, pairs, key(degree)).rounds.values()
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
        said = plan.weight(degree)
        assert any(means and np.allclose(means, said, rtol=1e-6) for means in all_means), (
            f"{degree} items: {said:.6g} is said, {[sorted(set(means)) for means in all_means]} are given"
        )


def check_shares(plan: SelectionPlan) -> None:
    """Holds that items are released as often as `keep_probability` says, or with several items per user more often.

    Raises:
      AssertionError: they are not; false with probability below 1e-8. What adapts to other items, which
        `keep_probability` leaves out, may add or take 0.05.
    """
    said, seen = _shares(plan, 1)
    assert (np.abs(seen - said) < _SURE + _ADAPTS).all(), f"one item: {said} is said, {seen} are released"
    said, seen = _shares(plan, 4)
    assert (seen > said - _SURE - _ADAPTS).all(), f"four items: {said} is said, {seen} are released"


def _shares(plan: SelectionPlan, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """What is said and what is seen: the probability of release of items at three levels, all users of one degree."""
    needed = [
        users_for(level, lambda users: plan.keep_probability(users, degree)) or _TOO_MANY for level in _LEVELS
    ]
    assert max(needed) < _TOO_MANY, "an item needs more than a thousand users: set `epsilon` higher"
    rng = np.random.default_rng(degree)
    users, items, start = [], [], 0
    for level, holders in enumerate(needed):
        # Every user holds `degree` items of one level, no item twice: neighbours on a circle.
        members = np.arange(_ITEMS * holders // degree)
        first = rng.permutation(_ITEMS)[members % _ITEMS]
        for step in range(degree):
            users.append(members + start)
            items.append(level * _ITEMS + (first + step) % _ITEMS)
        start += len(members)
    batch = (pa.array(np.concatenate(users).astype("U")), pa.array(np.concatenate(items).astype("U")))
    released = run_in_process(plan.program, [batch], key(f"shares {degree}"), num_blocks=2, num_shards=2)
    levels = np.array([int(item) for item in released.items.to_pylist()]) // _ITEMS
    said = np.array([plan.keep_probability(holders, degree) for holders in needed])
    return said, np.bincount(levels, minlength=len(_LEVELS)) / _ITEMS


def _outcome(released: Released) -> dict[bytes, float]:
    weights = dict(zip(released.items.to_pylist(), released.noisy_weight.tolist()))
    assert len(weights) == len(released), "an item is released twice"
    return weights


def _noise(program: Program, pairs: list[Pair]) -> list[np.ndarray]:
    """What each round draws for the items, which come in one order."""
    drawn = []

    class Recorded(Keys):
        def noise(self, spec: Any, fp: np.ndarray, place: str = "noise", **below: Any) -> np.ndarray:
            drawn.append(super().noise(spec, fp, place, **below))
            return drawn[-1]

    with mock.patch("dpbeam.engine.in_process.Keys", Recorded):
        run_in_process(program, [to_arrays(pairs)], key("noise"))
    return drawn
