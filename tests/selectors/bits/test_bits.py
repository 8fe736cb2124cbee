"""bits: its output law against its claim by definition, what one user moves, its plans and refusals."""

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.accounting.accountant import account
from dpbeam.accounting.coins import CoinNoise, pure_curve
from dpbeam.accounting.noise import NoiseMismatchError
from dpbeam.accounting.tables import ONE
from dpbeam.errors import InputError
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selection.report import plan_report
from dpbeam.selectors.base import Calibration
from dpbeam.selectors.bits.calibration import calibrate_bits
from dpbeam.selectors.bits.program import Moves
from dpbeam.testing.replay import ONE as UNIT
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from tests.support.instances import random_pairs
from tests.support.running import key, names, release, watch

EPSILON, DELTA = 1.0, 0.05
Sets = tuple[frozenset[int], ...]
Law = dict[frozenset[int], float]


def plan(epsilon=EPSILON, delta=DELTA, **options) -> SelectionPlan:
    return make_plan(SelectionConfig(epsilon, delta, "bits", **options))


# The output law, and the claim by definition.


def output_law(sets: Sets, tables: list[np.ndarray], moves: tuple[Moves, ...]) -> Law:
    """The law of the released set: all samples of all users, all coins, round by round. No sampling error."""
    law: Law = {frozenset(): 1.0}
    for table, pairs in zip(tables, moves):
        cap = pairs[-1][0]
        after: Law = defaultdict(float)
        for released, weight in law.items():
            left = [sorted(s - released) for s in sets]
            choices = [list(itertools.combinations(s, min(cap, len(s)))) for s in left]
            share = weight / math.prod(map(len, choices))
            for samples in itertools.product(*choices):
                counts: Counter[int] = Counter()
                for sample in samples:
                    counts.update(dict.fromkeys(sample, next(s for most, s in pairs if len(sample) <= most)))
                chance = {item: float(table[min(n, len(table) - 1)]) for item, n in counts.items()}
                for bits in itertools.product((0, 1), repeat=len(chance)):
                    new = frozenset(item for item, bit in zip(chance, bits) if bit)
                    p = math.prod(q if bit else 1 - q for q, bit in zip(chance.values(), bits))
                    after[released | new] += share * p
        law = after
    return law


def delta_between(sets: Sets, newcomer: frozenset[int], tables, moves, epsilon: float) -> float:
    """The smallest delta at epsilon, of adding and of removing the newcomer: the sum over all released sets."""
    fewer, more = output_law(sets, tables, moves), output_law((*sets, newcomer), tables, moves)
    assert math.fsum(more.values()) == pytest.approx(1.0)
    outputs = fewer.keys() | more.keys()
    return max(
        math.fsum(max(0.0, p.get(o, 0.0) - math.exp(epsilon) * q.get(o, 0.0)) for o in outputs)
        for p, q in ((fewer, more), (more, fewer))
    )


def tables_of(chosen) -> list[np.ndarray]:
    return [np.array([value / ONE for value in noise.law.cumulative]) for noise in chosen.noises()]


INSTANCES: list[tuple[Sets, frozenset[int]]] = [
    ((), frozenset({0, 1, 2})),
    ((frozenset({0}),), frozenset({0, 1})),
    ((frozenset({0, 1}), frozenset({1, 2})), frozenset({0, 1, 2})),
    ((frozenset({0, 1}),) * 3, frozenset({0, 1})),
    ((frozenset({0}),) * 6, frozenset({0})),
    ((frozenset({0}),) * 4 + (frozenset({1}),) * 9, frozenset({0, 1})),
    ((frozenset({0}),) * 8 + (frozenset({1}),) * 5, frozenset({0, 1, 2})),
    ((frozenset({0}),) * 15, frozenset({0, 1})),
]


@pytest.mark.parametrize("split", [(1.0,), (0.3, 0.7)])
def test_the_claim_holds_by_definition_on_every_small_input(split):
    """All outputs, both directions; items are novel, rare, at even odds and common, and samples bind."""
    seen = []
    for most, full in ((1, 1), (2, 2), (3, 1)):
        chosen = plan(max_items_per_user=most, budget_split=split, bits_full_items=full)
        tables, moves = tables_of(chosen.program), chosen.program.moves
        seen += [delta_between(sets, new, tables, moves, EPSILON) for sets, new in INSTANCES]
    assert 0.25 * DELTA < max(seen) <= DELTA


# One user.


@settings(max_examples=12)
@given(
    sets=st.lists(st.sets(st.integers(0, 6), min_size=1, max_size=6), min_size=1, max_size=25),
    own=st.sets(st.integers(0, 40), min_size=1, max_size=30),
    caps=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
)
def test_a_new_user_moves_what_the_event_says(sets, own, caps, seed):
    """In every round, under the bits of the run without: whatever the samples, and whatever was found."""
    split = tuple(1 / len(caps) for _ in caps)
    chosen = plan(4.0, round_items=tuple(map(float, caps)), budget_split=split, bits_full_items=2).program
    pairs = [(f"user {u}", f"item {i}") for u, items in enumerate(sets) for i in sorted(items)]
    extra = [("newcomer", f"item {i}") for i in sorted(own)]
    before = watch(chosen, pairs, key(seed), num_blocks=2)
    after = watch(chosen, pairs + extra, key(seed), history=before.rounds, num_shards=3)
    for trip, there in after.rounds.items():
        moved = {i: n - before.rounds[trip].exact.get(i, 0) for i, n in there.exact.items()}
        moved = {i: n for i, n in moved.items() if n}
        grid = chosen.coins[trip].grid
        allowed = {steps * UNIT // grid for most, steps in chosen.moves[trip] if len(moved) <= most}
        assert len(moved) <= caps[trip]
        assert len(set(moved.values())) <= 1 and set(moved.values()) <= {max(allowed)}
        assert there.released == before.rounds[trip].released


def test_a_move_that_a_floor_cuts_short_costs_no_more_than_the_whole():
    """From p_0 to p_j, j steps of the user's k: docs/explanation/privacy.md, A floor on users."""
    order, chosen = 15.0, plan(1.0, 1e-5, budget_split=(0.3, 0.7), max_items_per_user=50, bits_full_items=4)
    for event in chosen.event.parts:
        law, curve = event.curve.law, event.curve
        # It rises below a weight of 1.
        assert law.release_probability(1) < law.release_probability(curve.grid)
        for _, steps in event.moves:
            for fewer in range(1, steps + 1):
                chance = law.release_probability(fewer)
                off = min(curve.set_aside(steps), chance)
                add, remove = (
                    order * math.log1p(-one) + (1 - order) * math.log1p(-other)
                    for one, other in ((chance, off), (off, chance))
                )
                divergence = max(add, remove, 0.0) / (order - 1)
                assert chance <= curve.missing(steps) * (1 + 1e-12)
                assert divergence <= curve.divergence(order, steps) * (1 + 1e-9)


def test_only_bits_leave_the_engine():
    """What a program is shown of its sums is 0 or 1, whatever they are."""
    chosen = plan(max_items_per_user=8)
    seen = watch(chosen.program, random_pairs(1, users=200), key("bits"))
    shown = {value for round_ in seen.rounds.values() for value in round_.noisy.values()}
    assert shown == {0, 2**30}
    assert {1.0} == set(
        release(chosen.program, random_pairs(1, users=200), key("bits")).noisy_weight.tolist()
    )


def test_an_item_that_no_sample_of_a_round_holds_is_never_released():
    """One user with 3,000 items and coins of novel items at 1/4: never more than D0 a round."""
    chosen = plan(max_items_per_user=8).program
    chosen.coins = tuple(CoinNoise(pure_curve(1.0, 0.25), noise.round) for noise in chosen.noises())
    pairs = [("whale", f"own {i}") for i in range(3_000)]
    counts = [len(names(release(chosen, pairs, key(seed)))) for seed in range(20)]
    assert 0 < max(counts) <= 8 * chosen.trips


# Calibration.


@pytest.mark.parametrize(
    "items,epsilon,delta",
    [
        *(((1,), epsilon, delta) for epsilon in (0.05, 1.0, 10.0) for delta in (1e-3, 1e-15)),
        *(((7,), 1.0, 1e-3), ((7,), 10.0, 1e-15)),
        *(((50, 50), 1.0, 1e-3), ((50, 50), 10.0, 1e-15)),
        ((5000,), 10.0, 1e-3),  # at less epsilon tables are long, and as tight
    ],
)
def test_the_budget_is_used_up_and_not_exceeded(items, epsilon, delta):
    shares = (0.3, 0.7) if len(items) == 2 else (1.0,)
    chosen = plan(epsilon, delta, budget_split=shares, round_items=items)
    spent = account(chosen.event, epsilon)
    assert 0.95 * delta < spent.delta <= delta
    assert [part.max_items for part in chosen.event.parts] == list(items)
    assert all(part.moves == () or part.moves[-1][0] == part.max_items for part in chosen.event.parts)


def test_more_budget_needs_fewer_users():
    def users(**other) -> int:
        arguments = {"epsilon": 1.0, "delta": 1e-5, "shares": (1.0,), "items": (50,), "full": 50, **other}
        return calibrate_bits(**arguments)[-1].curve.law.users_needed(0.5)

    assert users(epsilon=0.5) > users() > users(epsilon=2.0)
    assert users(delta=1e-8) > users() > users(items=(10,)) > users(items=(1,))
    assert users(shares=(0.5, 0.5), items=(50, 50)) > users()


def test_plan_shows_how_many_users_it_takes():
    report = plan_report(
        plan(1.0, 1e-5, budget_split=(1.0,), max_items_per_user=100, bits_full_items=100), [1, 100]
    )
    for row in report["users_needed"]:
        needed = [row[f"users_{p}"] for p in ("0.05", "0.5", "0.95")]
        assert [abs(n - wanted) <= 2 for n, wanted in zip(needed, (45, 96, 148))] == [True] * 3
    assert report["rounds"][0]["noise"] == "coin"


def test_keep_probability_of_rounds_that_take_fewer_items_than_users_hold():
    chosen = plan(1.0, 1e-5, budget_split=(0.5, 0.5), round_items=(10, 100), bits_full_items=100)
    first, second = (noise.law for noise in chosen.program.noises())
    wanted = 1 - (1 - first.release_probability(20)) * (1 - second.release_probability(200))
    assert chosen.keep_probability(200, 100) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noisy_weights": True}, "--noisy_weights does not apply to --method=bits, which pays for"),
        ({"round_items": (5, 5)}, "--set round_items needs one number a round, 4, got 2"),
        (
            {"budget_split": (1.0,), "round_items": (0,)},
            "--set round_items must be an integer from 1 to 1e.06, got 0",
        ),
        ({"budget_split": (1.0,), "round_items": (2.5,)}, "--set round_items must be an integer"),
        (
            {"budget_split": (0.5, 0.5), "round_items": (4, 6), "max_items_per_user": 8},
            r"^--max_items_per_user \(8\) and the largest of --set round_items \(6\) differ: drop one of them$",
        ),
        ({"budget_split": (0.5, 0.6)}, "budget_split|shares"),
        ({"budget_split": ()}, "--set budget_split needs 1 to 64 shares, got 0"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        plan(**options)


def test_items_of_rounds_say_how_many_count():
    config = SelectionConfig(1.0, 1e-5, "bits", budget_split=(0.5, 0.5), round_items=(4, 6))
    assert config.resolve().max_items_per_user == 6
    assert config.resolve().resolve() == config.resolve() == replace(config, max_items_per_user=6).resolve()


def test_a_budget_without_a_table_is_refused():
    with pytest.raises(InputError, match=r"--epsilon \(1e-05\) and --delta \(1e-10\) need"):
        plan(1e-5, 1e-10, max_items_per_user=1000)


def test_a_plan_that_states_other_coins_is_refused():
    chosen, other = plan(max_items_per_user=8), plan(2.0, max_items_per_user=8)
    with pytest.raises(NoiseMismatchError, match="the ledger states coins"):
        SelectionPlan(chosen.config, Calibration(other.program, chosen.rounds, chosen.event))


def test_the_domain_of_top_k_composes_by_basic_composition():
    config = SelectionConfig(1.0, 1e-5, "bits", max_items_per_user=8)
    ranking_plan = plan_topk(TopKConfig(2.0, 1e-4, 5, selection=config))
    assert ranking_plan.composition == "basic"
    spent = account(ranking_plan.event)
    assert spent.epsilon <= 2.0 * (1 + 1e-12) and spent.delta <= 1e-4 * (1 + 1e-12)
