"""The program: the same items whatever the blocks and wherever the rounds run; a reference; hostile inputs."""

import numpy as np
import pyarrow as pa
import pytest

from dpbeam.counts.gathered import public_domain
from dpbeam.engine.in_process import run_in_process
from dpbeam.engine.program import Keys
from dpbeam.hitting.config import plan_hitting_set
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.hitting.program import HittingSetProgram, noisy_choice, taking_part
from dpbeam.randomness import RunKey, fingerprints
from dpbeam.selection.config import SelectionConfig
from tests.support.instances import batches, random_pairs

PAIRS = random_pairs(3, users=300)
KEY = "hitting set"


def plan_of(k=8, epsilon=4.0, delta=1e-2, method="basic", public=False, **settings):
    selection = None if public else SelectionConfig(epsilon, delta, method, max_items_per_user=6, **settings)
    return plan_hitting_set(HittingSetConfig(epsilon, delta, k, selection, public_domain=public))


def domain_of(*names):
    """A public domain for blocks of bare arrays, which carry no kinds."""
    return public_domain(pa.array([name.encode() for name in names], pa.large_binary()))


def reference(plan, pairs, domain=None):
    """Selection, then peeling of Python sets restricted to the domain."""
    key = RunKey.insecure_fixed(KEY)
    if domain is None:
        selected = run_in_process(plan.selection.program, batches(pairs), key, num_blocks=2)
        domain = [item.decode() for item in selected.items.to_pylist()]
    names = sorted(domain)
    fp = fingerprints(Keys(key).pairs.item, pa.array([n.encode() for n in names], pa.large_binary()))
    held = {}
    for user, item in pairs:
        held.setdefault(user, set()).add(item)
    if held:
        users = pa.array([user.encode() for user in held], pa.large_binary())
        coins = taking_part(plan.rate, fingerprints(Keys(key).pairs.user, users), Keys(key))
        held = {user: items for (user, items), kept in zip(held.items(), coins) if kept}
    sets = [{names.index(item) for item in items if item in names} for items in held.values()]
    choose, chosen = noisy_choice(plan.epsilon0, fp, key), []
    while len(chosen) < min(plan.config.k, len(names)):
        rest = np.array([i for i in range(len(names)) if i not in chosen])
        left = [items for items in sets if not items & set(chosen)]
        counts = np.array([sum(i in items for items in left) for i in rest])
        chosen.append(int(rest[choose(len(chosen) + 1, counts, rest)]))
    return [names[i] for i in chosen]


@pytest.mark.parametrize(
    "method, rate, settings", [("basic", 1.0, {}), ("gsu", 0.9, {"k": 100, "delta": 1e-4})]
)
def test_every_way_to_run_it_gives_the_reference(method, rate, settings, tools):
    plan = plan_of(method=method, **settings)
    assert plan.rate == rate
    expected = reference(plan, PAIRS)
    assert len(expected) >= 8
    for gather in (False, True):
        program = HittingSetProgram(plan, gather=gather)
        for sizes in ((1, 1), (5, 3)):
            assert tools.run_program(program, PAIRS, KEY, *sizes) == expected


def test_trips_are_a_function_of_settings_alone():
    plan = plan_of(k=9)
    first = plan.selection.program.trips
    assert HittingSetProgram(plan).trips == first + 9
    assert HittingSetProgram(plan, gather=True).trips == first + 1
    assert HittingSetProgram(plan_of(k=1)).trips == first + 1


def test_no_trip_after_the_restriction_reads_blocks_again():
    program = HittingSetProgram(plan_of(k=4))
    first = program.inner.trips
    assert [program.reads_block(trip) for trip in range(program.trips)] == [True] * (first + 1) + [False] * 3
    assert program.block_state_trip(first + 1) == program.block_state_trip(first + 2) == first


def test_every_user_has_a_coin_of_its_own():
    """Frequencies within 6 deviations, false alarm 1e-8; no relation between users or between keys."""
    fp = np.random.default_rng(0).integers(0, 2**64, (40_000, 2), dtype=np.uint64)
    keys = [Keys(RunKey.insecure_fixed(f"coins {n}")) for n in range(2)]
    for rate in (0.1, 0.5, 0.9):
        first, second = (taking_part(rate, fp, key) for key in keys)
        for sample in (first, second, first[::2]):
            assert abs(sample.mean() - rate) < 6 * np.sqrt(rate * (1 - rate) / len(sample))
        both = (first & second).mean()
        assert abs(both - rate**2) < 6 * np.sqrt(rate**2 * (1 - rate**2) / len(fp))
        assert (taking_part(rate, fp[::-1], keys[0])[::-1] == first).all()
    assert taking_part(1.0, fp, keys[0]).all()


class TestPublicDomain:
    @pytest.mark.parametrize("gather", [False, True])
    def test_nothing_else_is_chosen_and_everything_may_be(self, gather, tools):
        plan = plan_of(k=5, public=True)
        listed = ["item 7", "item 1", "nobody", "item 30"]
        program = HittingSetProgram(plan, domain_of(*listed), gather=gather)
        expected = reference(plan, PAIRS, listed)
        assert sorted(expected) == sorted(listed)
        for sizes in ((1, 1), (4, 2)):
            assert tools.run_program(program, PAIRS, KEY, *sizes) == expected

    @pytest.mark.parametrize("gather", [False, True])
    def test_nobody_and_nothing(self, gather, tools):
        plan = plan_of(k=3, public=True)
        listed = ["a", "b", "c", "d"]
        chosen = tools.run_program(HittingSetProgram(plan, domain_of(*listed), gather=gather), [], KEY)
        assert chosen == reference(plan, [], listed) and len(chosen) == 3
        assert tools.run_program(HittingSetProgram(plan, domain_of(), gather=gather), PAIRS, KEY) == []

    def test_plan_and_domain_must_agree(self):
        with pytest.raises(ValueError, match="needs the domain's items, and one without takes none"):
            HittingSetProgram(plan_of(public=True))
        with pytest.raises(ValueError, match="needs the domain's items, and one without takes none"):
            HittingSetProgram(plan_of(), domain_of("a"))


@pytest.mark.parametrize("gather", [False, True])
class TestHostile:
    def test_a_user_who_holds_everything(self, gather, tools):
        """Hit by the first item, whatever it is; the rest of the ranking is that of the others."""
        pairs = PAIRS + [("whale", f"item {n}") for n in range(2_000)]
        plan = plan_of(k=6)
        program = HittingSetProgram(plan, gather=gather)
        assert tools.run_program(program, pairs, KEY, 3, 2) == reference(plan, pairs)

    def test_fewer_items_than_k(self, gather, tools):
        plan = plan_of(k=200)
        chosen = tools.run_program(HittingSetProgram(plan, gather=gather), PAIRS, KEY, 2)
        assert chosen == reference(plan, PAIRS) and 3 < len(chosen) < 41 and len(set(chosen)) == len(chosen)

    def test_no_item_at_all(self, gather, tools):
        pairs = [(f"u{n}", f"own {n}") for n in range(50)]
        assert tools.run_program(HittingSetProgram(plan_of(delta=1e-6), gather=gather), pairs, KEY) == []
        assert tools.run_program(HittingSetProgram(plan_of(), gather=gather), [], KEY) == []

    def test_everybody_is_hit_at_once(self, gather, tools):
        """The rounds go on although nobody is left."""
        pairs = [(f"u{n}", item) for n in range(300) for item in ("x", "y", "z")]
        chosen = tools.run_program(HittingSetProgram(plan_of(k=3), gather=gather), pairs, KEY)
        assert sorted(chosen) == ["x", "y", "z"]

    def test_repeated_rows_count_once(self, gather, tools):
        program = HittingSetProgram(plan_of(), gather=gather)
        assert tools.run_program(program, PAIRS * 3, KEY, 2) == tools.run_program(program, PAIRS, KEY)


@pytest.mark.parametrize("label, same", [("sample", True), ("sample/round 1", True), ("users", False)])
def test_the_coin_of_users_has_a_key_of_its_own(label, same, tools, monkeypatch):
    """The order of samples says which items of a user a selection saw; who takes part must not follow from it."""
    plan = plan_hitting_set(HittingSetConfig(0.5, 1e-4, 8, public_domain=True))
    assert plan.rate < 1
    program = HittingSetProgram(plan, domain_of(*(f"item {n}" for n in range(40))), gather=True)

    def takes_part():
        keys = Keys(RunKey.insecure_fixed(KEY))
        return taking_part(plan.rate, np.arange(400, dtype=np.uint64).reshape(-1, 2), keys).tolist()

    before = takes_part(), tools.run_program(program, PAIRS)
    derive = RunKey.derive
    monkeypatch.setattr(RunKey, "derive", lambda key, name: derive(key, name + "!" * (name == label)))
    assert ((takes_part(), tools.run_program(program, PAIRS)) == before) == same
