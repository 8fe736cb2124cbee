"""A floor on users: items of fewer users are never released, and what is left of weights keeps its bounds."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpbeam
from dpbeam.engine.in_process import link_shards, run_in_process
from dpbeam.engine.program import Exact, Keys
from dpbeam.errors import InputError
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selection.report import plan_report
from dpbeam.selectors.floor import USERS, Floored, lowered
from dpbeam.selectors.registry import find, selectors, variants
from dpbeam.testing.replay import ONE
from dpbeam.testing.selectors import LoudKeys
from tests.support.instances import batches, random_pairs, whole_block
from tests.support.running import key, names, release, watch
from tests.support.variants import of_own_code

METHODS = [name for name, selector in selectors().items() if selector.takes_min_users]
FLOORS = (2, 3, 7)


def plan(method: str, min_users: int | None, epsilon: float = 4.0, max_items: int = 8, **options):
    config = SelectionConfig(
        epsilon, 0.02, method, max_items_per_user=max_items, min_users=min_users, **options
    )
    return make_plan(config)


def users_of(pairs) -> Counter:
    return Counter(item for _, item in set(pairs))


def test_every_method_has_a_floor():
    """One that has none is refused by name; this one lists what is left out."""
    assert set(selectors()) - set(METHODS) == set()


class TestNeverReleased:
    @pytest.mark.parametrize("method", [name for name in METHODS if find(name).shows_weights])
    def test_without_a_floor_loud_noise_releases_all(self, method, monkeypatch):
        """Coins and counts take no such noise for more than it is: p_0 = 0."""
        monkeypatch.setattr("dpbeam.engine.in_process.Keys", LoudKeys)
        pairs = [(f"{item} {user}", f"{item}") for item in range(1, 12) for user in range(item)]
        assert len(release(plan(method, None).program, pairs, key("none"))) == 11

    @pytest.mark.parametrize(("method", "released"), [("mad", 16), ("mad2r", 16), ("basic", 0), ("gsu", 0)])
    def test_what_users_count_for(self, method, released, monkeypatch):
        """Of 5 users of 8 items each, whose weight of 1.8 is below the floor: MAD goes by users alone, its weights
        move with those of others; where nothing else moves them, what is left decides."""
        monkeypatch.setattr("dpbeam.engine.in_process.Keys", LoudKeys)
        pairs = [(f"{u} {group}", f"{group} {i}") for group in range(2) for u in range(5) for i in range(8)]
        chosen = plan(method, 5, max_items=8).program
        assert all(value == 0 for value in exact_sums(chosen, pairs, key("below"))[0].values())
        assert len(release(chosen, pairs, key("below"))) == released

    def test_an_item_that_was_above_the_floor_stays_a_candidate(self):
        """Of gsu, which tests the sum of all rounds: what crosses later is released, and nothing else that crosses."""
        chosen = plan("gsu", 3).program
        block = whole_block([("u", "a"), ("u", "b"), ("u", "c")], Keys(key(1)), chosen.cap)
        (shard,) = link_shards([block])
        for trip, present in enumerate(([True, False, False], [False, False, True], [False] * 3)):
            shard = chosen.observe(trip, shard, np.full(3, trip << 50), np.array(present))
            shard = chosen.threshold(trip, shard)
            assert shard.state["released"].tolist() == [trip > 0, False, trip > 0]
            if trip < chosen.trips - 1:
                shard, _ = chosen.reply(trip, shard)

    @pytest.mark.parametrize("method", METHODS)
    def test_under_many_keys(self, method):
        """400 items of K - 1 users of all they have, at a delta that lets novel items pass one time in fifty."""
        few = [(f"{item} {user}", f"few {item}") for item in range(400) for user in range(4)]
        many = [(f"many {user}", "many") for user in range(60)]
        for number in range(4):
            released = release(plan(method, 5, epsilon=1.0).program, few + many, key(number), num_shards=3)
            assert names(released) == {"many"}

    def test_without_a_floor_some_of_them_are_released(self):
        few = [(f"{item} {user}", f"few {item}") for item in range(400) for user in range(4)]
        assert len(release(plan("basic", None, epsilon=1.0).program, few, key(0))) > 40

    @pytest.mark.parametrize("method", METHODS)
    def test_on_data_of_all_sizes(self, method):
        """Over variants and floors, no item below; above it some, fewer with a higher floor."""
        pairs = random_pairs(1, users=200)
        for name in of_own_code(variants()):
            options = variants()[name]
            if options["method"] != method:
                continue
            sizes = []
            for floor in (2, 7):
                chosen = make_plan(
                    SelectionConfig(8.0, 0.05, max_items_per_user=8, min_users=floor, **options)
                ).program
                released = names(release(chosen, pairs, key(1), num_blocks=2, num_shards=3))
                assert all(users_of(pairs)[item] >= floor for item in released), name
                sizes.append(len(released))
            assert sizes[0] > sizes[-1] > 0, name


def exact_sums(chosen, pairs, run_key) -> list[dict[bytes, int]]:
    return [row.exact for row in watch(chosen, pairs, run_key).rounds.values()]


class TestWhatIsLeft:
    @given(
        st.lists(st.integers(0, 1 << 40), min_size=1, max_size=6),
        st.integers(0, 1 << 36),
        st.data(),
    )
    def test_is_exact_and_moves_by_no_more_than_the_weights(self, units, floor, data):
        fractions = st.lists(st.integers(0, 15), min_size=len(units), max_size=len(units))
        moves = st.lists(st.integers(0, 1 << 37), min_size=len(units), max_size=len(units))
        one, two = (
            (np.array(u, np.int64), np.array(data.draw(fractions), np.int64))
            for u in (units, np.add(units, data.draw(moves)))
        )
        kept = [self.numbers(lowered(Exact(*side, 4), floor)) for side in (one, two)]
        whole = [self.numbers(Exact(*side, 4)) for side in (one, two)]
        for before, after in zip(whole, kept):
            assert after == [max(Fraction(0), value - floor) for value in before]
        assert all(
            abs(a - b) <= abs(c - d) for a, b, c, d in zip(kept[0], kept[1], whole[0], whole[1], strict=True)
        )

    @staticmethod
    def numbers(exact: Exact) -> list[Fraction]:
        return [u + Fraction(int(f), 1 << exact.fraction_bits) for u, f in zip(exact.units, exact.fraction)]

    def test_needs_no_fraction(self):
        rest = lowered(Exact(np.array([1, 5, 9])), 5)
        assert rest.units.tolist() == [0, 0, 4] and rest.present.tolist() == [False, False, True]
        assert rest.fraction is None

    @pytest.mark.parametrize("method", METHODS)
    @settings(max_examples=6)
    @given(st.integers(0, 10_000), st.integers(2, 9))
    def test_is_nothing_for_items_of_fewer_users(self, method, seed, floor):
        """Whatever the users' numbers of items: what K - 1 of them give never exceeds (K - 1) c, to the unit."""
        pairs = random_pairs(seed, users=80, items=12, max_degree=9)
        least = 0
        for sums in exact_sums(plan(method, floor).program, pairs, key(seed)):
            held = users_of(pairs)
            for item, value in sums.items():
                assert value >= 0
                if held[item.decode()] < floor:
                    assert value == 0
                    least += 1
        assert least or min(users_of(pairs).values()) >= floor

    @pytest.mark.parametrize("method", METHODS)
    def test_is_what_one_user_more_gives(self, method):
        """Of K users of one item each the last counts alone: the floor is no higher than it must be."""
        made = plan(method, 5)
        first = exact_sums(made.program, [(f"{user}", "item") for user in range(5)], key("tight"))[0]
        assert first[b"item"] / ONE == pytest.approx(made.weight(1), abs=1e-8)

    @pytest.mark.parametrize("method", ["mad", "mad2r"])
    def test_no_item_of_k_users_has_excess(self, method):
        """The proof of MAD with a floor rests on it; items of a few more users have excess here."""
        options = {"adaptive_excess": 0.0, "max_adaptive_degree": 4}
        for floor in FLOORS:
            chosen = plan(method, floor, epsilon=50.0, **options)
            ratio = Counter()
            for seed in range(4):
                pairs = [(f"{item} {user}", f"{item}") for item in range(1, 40) for user in range(item)]
                for item, value in watch(chosen.program, pairs, key(seed)).replies[0]["ratio"].items():
                    ratio[int(item)] = max(ratio[int(item)], value)
            assert max(ratio[item] for item in range(1, floor + 1)) == 0
            assert max(ratio.values()) > 0

    def test_mad_counts_users_for_it_alone(self):
        for method in ("mad", "mad2r"):
            floored, plain = plan(method, 3).program, plan(method, None).program
            for trip in range(plain.trips):
                more = {USERS} if plain.noise(trip) is not None else set()
                assert set(floored.sum_names(trip)) == {*plain.sum_names(trip), *more}
            block = whole_block(random_pairs(1), Keys(key(1)), plain.cap)
            assert USERS not in plain.weigh(0, block, {}, Keys(key(1)))[0]


class TestPlan:
    @pytest.mark.parametrize("method", METHODS)
    def test_users_of_one_item_move_by_the_floor(self, method):
        """What an even chance takes moves by K - 1 where users hold one item, and give all they have."""
        for floor in FLOORS:
            without, with_floor = (
                plan_report(plan(method, k, epsilon=1.0, max_items=4), [1])["users_needed"][0]["users_0.5"]
                for k in (None, floor)
            )
            assert with_floor == without + floor - 1

    def test_the_report_says_what_it_costs(self):
        report = plan_report(plan("basic", 5, epsilon=1.0), [1, 4])
        without = plan_report(plan("basic", None, epsilon=1.0), [1, 4])
        floor = report.pop("floor")
        assert (floor["min_users"], floor["weight"]) == (5, 4.0)
        rows = zip(floor["more_users_0.5"], report["users_needed"], without["users_needed"], strict=True)
        assert all(more["users"] == row["users_0.5"] - bare["users_0.5"] for more, row, bare in rows)
        assert [row["users"] for row in floor["more_users_0.5"]] == [4, 8]
        assert "floor" not in without

    def test_a_vote_stays_with_an_item_until_it_has_enough_above_the_floor(self):
        quota = [plan("vote", k).config.settings.vote_quota for k in (None, 2, 9)]
        assert quota == [quota[0], quota[0] + 1, quota[0] + 8]
        assert plan("vote", 9, vote_quota=9).config.settings.vote_quota == 9
        with pytest.raises(
            InputError, match=r"--set vote_quota \(8\) must be at least --min_users \(9\): an item would"
        ):
            plan("vote", 9, vote_quota=8)

    def test_costs_no_budget(self):
        """Events and noise as they are."""
        for method in METHODS:
            assert plan(method, 5).event == plan(method, None).event

    @pytest.mark.parametrize("method", METHODS)
    def test_said_is_what_is_released(self, method):
        """Of items whose users hold one item each, at three levels: within six standard deviations of what is said."""
        made, items = plan(method, 4, epsilon=2.0), 600
        for holders in (8, 11, 14):
            pairs = [(f"{i} {u}", f"{i}") for i in range(items) for u in range(holders)]
            said = made.keep_probability(holders, 1)
            seen = len(release(made.program, pairs, key(holders))) / items
            assert abs(seen - said) < 6 * 0.5 / np.sqrt(items) + 0.05 * (len(made.rounds) > 1)
        assert made.keep_probability(3, 1) == 0

    def test_one_user_is_no_floor(self):
        assert not isinstance(plan("basic", 1).program, Floored)
        assert plan("basic", 1).config == plan("basic", None).config
        assert "min_users" not in plan("basic", 1).config.stated()
        assert plan("basic", 3).config.stated()["min_users"] == 3

    @pytest.mark.parametrize("value", [0, -1, 1.5, "5", True, float("nan"), 1_000_001])
    def test_what_is_no_number_of_users_is_refused(self, value):
        with pytest.raises(InputError, match=r"^--min_users must be an integer( from 1 to 1e\+06)?, got "):
            plan("basic", value)

    def test_a_selector_that_does_not_say_so_has_none(self, monkeypatch):
        monkeypatch.setattr(type(find("basic")), "takes_min_users", False)
        with pytest.raises(
            InputError, match="--min_users does not apply to --method=basic: nothing says that"
        ):
            plan("basic", 2)
        assert plan("basic", 1).config.min_users is None

    def test_a_program_of_no_floor_is_refused(self):
        with pytest.raises(ValueError, match="at least 2 users, got 1"):
            Floored(plan("basic", None).program, 1)


@pytest.mark.parametrize("method", METHODS)
def test_noisy_counts_come_for_what_is_released(method):
    """The rounds of the counts have no floor: a count near the true one, of no item below."""
    pairs = [(f"{i} {u}", f"{i}") for i, holders in enumerate((3, 4, 500, 900)) for u in range(holders)]
    released = release(plan(method, 5, noisy_counts=True).program, pairs, key(method))
    counts = dict(zip(released.items.to_pylist(), released.noisy_weight[:, 0]))
    assert set(counts) == {b"2", b"3"}
    assert abs(counts[b"2"] - 500) < 60 and abs(counts[b"3"] - 900) < 60


def test_batches_are_what_they_were():
    """The floor looks at sums, not at how they came together."""
    pairs = random_pairs(3, users=200)
    for method in METHODS:
        chosen = plan(method, 3).program
        whole = run_in_process(chosen, batches(pairs), key("b"))
        parts = run_in_process(chosen, batches(pairs, 7), key("b"), num_blocks=5, num_shards=4)
        assert len(whole) and sorted(whole.items.to_pylist()) == sorted(parts.items.to_pylist())


@pytest.mark.parametrize("command", [dpbeam.top_k, dpbeam.hitting_set])
def test_domains_have_a_floor_too(command):
    """A ranking, or a choice, of as many items as there are: with a floor none of fewer users, without one some."""
    pairs = [(f"{i} {u}", f"{i}") for i in range(1, 40) for u in range(i)]
    users, items = zip(*pairs)

    def least(**options) -> int:
        domain = command((users, items), k=39, epsilon=8.0, delta=1e-2, selector="gsu", **options)
        assert len(domain) > 5
        return min(map(int, domain.items))

    assert least() < 12
    assert least(min_users=20) >= 20


def test_a_public_domain_has_none():
    with pytest.raises(InputError, match="min_users belongs to a selection stage, and domain leaves none"):
        dpbeam.top_k((["u"], ["a"]), k=1, epsilon=1.0, delta=1e-6, domain=["a"], min_users=2)
