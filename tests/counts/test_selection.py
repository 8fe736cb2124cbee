"""Noisy counts of released items: against dictionaries, on Beam, by the command and in memory; what they cost."""

import functools
import json
import math
from collections import Counter
from dataclasses import replace

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

import dpbeam
from dpbeam.accounting.accountant import account
from dpbeam.accounting.budget import two_parts
from dpbeam.accounting.events import leaves
from dpbeam.accounting.gaussian import gaussian_sigma
from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.release import Others
from dpbeam.cli.select import main
from dpbeam.counting.family import CountConfig
from dpbeam.counting.transforms import CountItems
from dpbeam.counts.counted import CountedProgram
from dpbeam.counts.gathered import public_domain
from dpbeam.counts.items_per_user import bucket_edges
from dpbeam.counts.selection import CountNoises
from dpbeam.engine.beam.store import RunFolder
from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.in_process import build_blocks, output_batches, run_in_process, run_trips
from dpbeam.engine.program import Keys
from dpbeam.errors import InputError
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.hitting.transforms import HittingSet
from dpbeam.kernels.grid import NORM_UNITS, UNITS
from dpbeam.randomness import RunKey, fingerprints
from dpbeam.review.verification import check_ledger
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.ledger import others_in
from dpbeam.selection.plan import make_plan
from dpbeam.selection.report import plan_report
from dpbeam.selection.shown import shown_selection
from dpbeam.selection.transforms import SelectPartitions
from dpbeam.selectors.registry import selectors
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.transforms import TopKItems
from tests.support.instances import batches, pairs_with_whales
from tests.support.pipelines import kept, outcome

TEXT = "c0de"


def key():
    return RunKey.insecure_fixed(TEXT)


PAIRS = pairs_with_whales()


@functools.cache
def plan_of(method="gsu", epsilon=2.0, delta=1e-3, **more):
    return make_plan(SelectionConfig(epsilon, delta, method, max_items_per_user=6, noisy_counts=True, **more))


def released(plan, pairs=PAIRS, **sizes):
    """{item: (count, deviation)}"""
    result = run_in_process(plan.program, batches(pairs), key(), **sizes)
    return {
        item.decode(): tuple(row) for item, row in zip(result.items.to_pylist(), result.noisy_weight.tolist())
    }


def same(rows, expected):
    """The same items and numbers, but for the last digits of the deviation."""
    assert rows.keys() == expected.keys()
    np.testing.assert_allclose([rows[name] for name in expected], list(expected.values()), rtol=1e-12)


def listed_domain(items):
    return public_domain(pa.array([i.encode() for i in items], pa.large_binary()))


def beside(plan, listed, pairs=PAIRS, run_key=None, **sizes):
    """{item: (count, deviation)} of a selection beside which a list is counted."""
    keys = Keys(run_key or key())
    program = plan.program_beside(listed_domain(listed))
    sizes = {"num_blocks": 1, "num_shards": 1, **sizes}
    blocks = list(build_blocks(batches(pairs), keys, program.cap, **sizes))
    (batch,) = output_batches(program, run_trips(program, blocks, keys))
    items, *numbers = (column.to_pylist() for column in batch.columns)
    return {item.decode(): row for item, row in zip(items, zip(*numbers))}


def reference(plan, pairs=PAIRS, listed=()):
    """The same by dictionaries and exact integers; items of a list are taken out of the selection's input."""
    rest = [(user, item) for user, item in pairs if item not in listed]
    alone = run_in_process(plan.calibration.program, batches(rest), key())
    names = sorted({item.decode() for item in alone.items.to_pylist()} | set(listed))
    held = {}
    for user, item in pairs:
        if item in names:
            held.setdefault(user, set()).add(item)
    noises, d, keys = plan.counts[0], len(names), Keys(key())
    edges = bucket_edges(d).tolist()
    exact = Counter(max(e for e in edges if e <= len(items)) for items in held.values())
    fp = np.array([[b, 0] for b in range(len(edges))], np.uint64)
    noisy = np.array([exact[e] for e in edges]) + keys.noise(plan.program.histogram_noise, fp, "hub") / UNITS
    clip, loss = noises.clip(noisy, d)
    sums = Counter()
    for items in held.values():
        for item in items:
            sums[item] += math.isqrt(NORM_UNITS // max(clip, len(items)))
    fp = fingerprints(keys.pairs.item, pa.array([name.encode() for name in names], pa.large_binary()))
    spec = plan.program.noise(plan.program.trips - 1)
    noise = keys.noise(spec, fp, "hub") if listed else keys.noise(spec, fp)
    scale = math.sqrt(clip) / (1 - loss)
    return {
        n: (round((sums[n] + int(z)) / UNITS * scale), noises.sigma * scale) for n, z in zip(names, noise)
    }


@pytest.mark.parametrize("method", ["gsu", "basic", "laplace", "vote"])
def test_counts_equal_their_definition_from_any_number_of_blocks(method):
    plan = plan_of(method)
    expected = reference(plan)
    assert len(expected) > 5
    for sizes in ({}, {"num_blocks": 4, "num_shards": 3}):
        same(released(plan, **sizes), expected)


LISTED = ("item 0", "item 3", "item 59", "nobody's", "nor this")


@pytest.mark.parametrize("method", list(selectors()))
def test_a_list_is_counted_beside_what_a_selection_without_it_releases(method):
    """Also items that nobody holds; and users of listed items alone are no users of the selection."""
    plan = plan_of(method, epsilon=8.0)
    pairs = PAIRS + [(f"listed {n}", "item 3") for n in range(50)]
    expected = reference(plan, pairs, LISTED)
    assert len(expected) > len(LISTED) + 2 and set(LISTED) < expected.keys()
    for sizes in ({}, {"num_blocks": 4, "num_shards": 3}):
        same(beside(plan, LISTED, pairs, **sizes), expected)


class _NoEmptyUsers(Forwarding):
    """As blocks are built, every user holds something."""

    def weigh(self, trip, block, reply, keys):
        assert block.degrees.min() > 0 and len(block.degrees) == len(block.user_fp) < 1_000
        return super().weigh(trip, block, reply, keys)


def test_the_selection_sees_no_users_of_listed_items_alone():
    counted = CountedProgram(
        _NoEmptyUsers(plan_of("gsu").calibration.program), listed_domain(LISTED)["items"]
    )
    keys, pairs = Keys(key()), PAIRS + [(f"listed {n}", "item 3") for n in range(500)]
    run_trips(
        counted, list(build_blocks(batches(pairs), keys, counted.cap, num_blocks=1, num_shards=1)), keys
    )


def test_where_nothing_is_held_a_list_has_its_noise_alone():
    plan = plan_of("basic")
    rows = beside(plan, LISTED, [("user", "item 3")])
    assert rows.keys() == set(LISTED) and len({count for count, _ in rows.values()}) > 1
    assert beside(plan, LISTED, []).keys() == set(LISTED)


def test_numbers_of_what_nobody_holds_have_the_stated_law():
    """2,000 unheld items in 5 runs; false alarm 2e-7, and noise of 0.7 or 1.3 times the scale would show."""
    plan, nobody = plan_of("basic", epsilon=1.0), [f"nobody {n}" for n in range(2_000)]
    square, size, total = 0.0, 0, 0.0
    for run in range(5):
        by_item = beside(plan, nobody, PAIRS, RunKey.insecure_fixed(f"law {run}"))
        rows = np.array([by_item[item] for item in nobody])
        square += float((rows[:, 0] ** 2 / (rows[:, 1] ** 2 + 1 / 12)).sum())
        total, size = total + float((rows[:, 0] / rows[:, 1]).sum()), size + len(rows)
    low, high = chi2.ppf(5e-8, size), chi2.isf(5e-8, size)
    assert low < square < high and not any(low < square * f**2 < high for f in (0.7, 1.3))
    assert abs(total) < norm.isf(5e-8) * math.sqrt(size)


def without(items, pairs=PAIRS):
    held = {}
    for user, item in pairs:
        held.setdefault(user, set()).add(item)
    return sum(not of_user & set(items) for of_user in held.values())


def others(pairs, run_key, **more):
    """A result with the number of users that hold nothing of it."""
    table = dict(zip(("user", "item"), map(list, zip(*pairs))))
    with pytest.warns(UserWarning):
        return dpbeam.select(
            table, max_items_per_user=6, noisy_counts=True, others=True, insecure_test_key=run_key, **more
        )


@pytest.mark.parametrize("listed", [None, ["item 3", "nobody's"]])
def test_with_little_noise_others_are_who_holds_nothing_of_the_output(listed):
    pairs = PAIRS + [(f"lonely {n}", f"own {n}") for n in range(400)]
    result = others(pairs, "0b", epsilon=400.0, delta=1e-2, public_items=listed)
    assert result.others.sd < 0.6 and abs(result.others.users - without(result.items, pairs)) < 4 < 300
    alone = others(pairs[-400:], "0b", epsilon=400.0, delta=1e-29, public_items=listed)
    assert set(alone.items) == set(listed or ()) and abs(alone.others.users - 400) <= 4


def test_the_number_of_others_has_the_law_of_the_histogram():
    """200 runs that release nothing; false alarm 2e-7, and 0.7 or 1.3 times the deviation would show."""
    pairs, errors = [(f"user {n}", f"own {n}") for n in range(50)], []
    plan = plan_of("basic", epsilon=1.0, delta=1e-6, others=True)
    for run in range(200):
        keys = Keys(RunKey.insecure_fixed(f"others {run}"))
        blocks = list(build_blocks(batches(pairs), keys, plan.program.cap, num_blocks=2, num_shards=1))
        finished = run_trips(plan.program, blocks, keys)
        errors.append(others_in(plan, finished.broadcast).users - 50)
    # No bucket, (number, 0), has this noise.
    (noise,) = keys.noise(plan.program.histogram_noise, np.array([[0, 1]], np.uint64), "hub") / UNITS
    assert errors[-1] == round(noise)
    expected = plan.counts[0].histogram_sigma ** 2 + 1 / 12
    square = float((np.array(errors) ** 2).sum()) / expected
    low, high = chi2.ppf(5e-8, 200), chi2.isf(5e-8, 200)
    assert low < square < high and not any(low < square * f**2 < high for f in (0.6, 1.5))
    assert others_in(plan, finished.broadcast).sd == plan.counts[0].histogram_sigma


class _Buckets(Forwarding):
    """Keeps the histogram before noise."""

    def decide(self, trip, state, summaries, draw):
        if "users" in summaries[0]:
            self.histogram = np.concatenate(
                [sum(part[name] for part in summaries) for name in ("users", "others")]
            )
        return super().decide(trip, state, summaries, draw)


@settings(max_examples=12)
@given(st.lists(st.integers(0, 80), min_size=1, max_size=20, unique=True))
def test_a_user_is_in_one_bucket_of_the_histogram_whether_it_holds_something_or_not(held):
    sides, plan = [], plan_of("basic", others=True)
    for pairs in (PAIRS, PAIRS + [("newcomer", f"item {i}") for i in held]):
        keys, noted = Keys(key()), _Buckets(plan.program)
        blocks = list(build_blocks(batches(pairs), keys, noted.cap, num_blocks=2, num_shards=2))
        noted.size = sum(len(batch) for batch in output_batches(noted, run_trips(noted, blocks, keys)))
        sides.append(noted)
    if sides[0].size == sides[1].size:
        moved = sides[1].histogram - sides[0].histogram
        assert sorted(moved.tolist()) == [0] * (len(moved) - 1) + [1]


def test_others_cost_nothing_and_change_nothing_else():
    bare, more = plan_of(), plan_of(others=True)
    assert bare.event == more.event and bare.others_deviation is None
    same(released(bare), released(more))
    *_, last = shown_selection(plan_report(more))
    assert last.startswith("others: ") and f"{more.others_deviation:.2f}" in last


class _LastSums(Forwarding):
    """Keeps what the hub adds noise to: {item: exact sum}, and what it was told before."""

    def decide(self, trip, state, summaries, draw):
        if trip == self.trips - 1:
            self.way = state["way"].tolist()
            self.sums = Counter()
            for part in summaries:
                self.sums.update(dict(zip(part["items"].to_pylist(), part["weights"].tolist())))
        return super().decide(trip, state, summaries, draw)


@settings(max_examples=16)
@given(st.lists(st.integers(0, 59), max_size=40, unique=True), st.sampled_from(["basic", "gsu"]))
def test_a_user_moves_the_sums_of_listed_and_released_items_by_norm_one(held, method):
    """Whatever it holds of both, where the same is released and the clip is the same."""
    plan, sides = plan_of(method, epsilon=8.0), []
    for pairs in (PAIRS, PAIRS + [("newcomer", f"item {i}") for i in held]):
        keys, noted = Keys(key()), _LastSums(plan.program_beside(listed_domain(LISTED)))
        blocks = list(build_blocks(batches(pairs), keys, noted.cap, num_blocks=2, num_shards=2))
        run_trips(noted, blocks, keys)
        sides.append(noted)
    one, two = sides
    if one.way == two.way and one.sums.keys() == two.sums.keys():
        assert sum((two.sums[item] - one.sums[item]) ** 2 for item in one.sums) <= NORM_UNITS


def test_a_list_beside_no_counts_is_refused():
    plan = make_plan(SelectionConfig(1.0, 1e-6))
    with pytest.raises(ValueError, match="without counts"):
        plan.program_beside(listed_domain(LISTED))


def test_counts_are_near_the_truth():
    """Six standard deviations for each of the items, and a bias below one."""
    true = Counter(item for _, item in set(PAIRS))
    errors = [
        (count - true[item]) / deviation
        for item, (count, deviation) in released(plan_of(epsilon=4.0)).items()
    ]
    assert len(errors) > 10 and max(map(abs, errors)) < 7 and abs(np.mean(errors)) < 1


@pytest.mark.parametrize("method", list(selectors()))
def test_a_plan_spends_its_budget_and_no_more(method):
    plan = plan_of(method, epsilon=1.0, delta=1e-6)
    spent = account(plan.event, 1.0)
    assert spent.epsilon == pytest.approx(1.0, rel=1e-9) and 0.999e-6 <= spent.delta <= 1e-6 * (1 + 1e-12)
    assert Ledger(method, 1.0, 1e-6, plan.accounting, plan.event).verify()
    if plan.calibration.event.kind == "gaussian":
        outside = sum(leaf.outside_delta() for leaf in leaves(plan.event))
        parts = [leaf.gaussian_sigma() for leaf in leaves(plan.event) if leaf.gaussian_sigma()]
        assert sum(s**-2 for s in parts) == pytest.approx(gaussian_sigma(1.0, 1e-6 - outside) ** -2, rel=1e-9)


@pytest.mark.parametrize("method", list(selectors()))
def test_defaults_follow_from_the_selections_own_budget(method):
    """Settings are those of the selection alone with what the counts leave it, also where they are filled in before."""
    config = SelectionConfig(1.0, 1e-5, method, max_items_per_user=8, noisy_counts=True)
    left = two_parts(1.0, 1e-5, 0.2)[0]
    alone = make_plan(SelectionConfig(*left, method, max_items_per_user=8))
    for counted in (make_plan(config), make_plan(config.resolve())):
        assert counted.config.settings == alone.config.settings
        assert counted.calibration.event == alone.event
        assert (counted.config.epsilon, counted.config.delta) == (1.0, 1e-5)


def test_the_quota_of_vote_is_enough_for_the_noise_beside_counts():
    plan = plan_of("vote", epsilon=1.0, delta=1e-5)
    program = plan.calibration.program
    assert program.quota == program.count_noise.law.users_needed(0.95)
    assert program.quota > make_plan(SelectionConfig(1.0, 1e-5, "vote")).calibration.program.quota


def test_the_clip_of_the_smallest_error():
    noises = CountNoises.calibrate(5.0, 1)
    d = 400
    edges = bucket_edges(d)
    assert noises.clip(np.zeros(len(edges)), d) == (d, 0.0)  # nothing is known: no user is weighed down
    clip, loss = noises.clip(np.where(edges == 2, 1e4, 0.0), d)
    assert clip == 2 and loss == pytest.approx(0.0, abs=1e-12)
    # Few users of many items: the rarer the items, the more they may be clipped.
    mixed = np.where(edges == 1, 1e4, np.where(edges == 46, 1e2, 0.0))
    chosen = [noises.clip(scale * mixed, d)[0] for scale in (1, 30)]
    assert 1 < chosen[0] < chosen[1] <= 56


def test_on_beam_items_carry_counts(tmp_path):
    """In one step; through the engine's trips goes the command below."""
    plan = plan_of("basic")
    with RunFolder(str(tmp_path), key()) as folder:
        select = SelectPartitions(plan.config, run=folder)
        rows = outcome(lambda pipeline: kept(pipeline | beam.Create(PAIRS) | select))
    assert {row._fields for row in rows} == {("item", "noisy_count", "noisy_count_sd")}
    same({item: (count, deviation) for item, count, deviation in rows}, released(plan))


@pytest.mark.parametrize("counts", [True, False])
def test_on_beam_a_list_is_released_beside_a_selection(counts, tmp_path):
    """As items of earlier releases are: with numbers where released items have some."""
    config = SelectionConfig(2.0, 1e-3, "basic", max_items_per_user=6, noisy_counts=counts)
    with RunFolder(str(tmp_path), key()) as folder:
        select = SelectPartitions(config, run=folder, public_items=["item 0", "nobody's"])
        rows = sorted(outcome(lambda pipeline: kept(pipeline | beam.Create(PAIRS) | select)))
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        expected = dpbeam.select(
            pa.table(dict(zip(("user", "item"), zip(*PAIRS)))),
            epsilon=2,
            delta=1e-3,
            method="basic",
            max_items_per_user=6,
            noisy_counts=counts,
            public_items=["item 0", "nobody's"],
            insecure_test_key=TEXT,
        ).table
    assert [row[0] for row in rows] == expected["item"].to_pylist() and len(rows) > 5
    if counts:
        assert [row.noisy_count for row in rows] == expected["noisy_count"].to_pylist()


@pytest.mark.parametrize(
    "transform",
    [
        lambda run, listed: SelectPartitions(
            SelectionConfig(2.0, 1e-3, "basic"), run=run, public_items=listed
        ),
        lambda run, listed: TopKItems(TopKConfig(2.0, 1e-3, 2, public_domain=True), run=run, domain=listed),
        lambda run, listed: HittingSet(
            HittingSetConfig(2.0, 1e-3, 2, public_domain=True), run=run, domain=listed, num_shards=2
        ),
        lambda run, listed: CountItems(CountConfig(2.0, 1e-3), run=run, domain=listed),
    ],
    ids=["select", "top-k", "hitting-set", "count"],
)
def test_a_list_of_another_kind_is_refused_on_beam(transform, tmp_path):
    """Its items would count as held by nobody."""
    with (
        pytest.raises(InputError, match="holds int values, and 'item' is string"),
        RunFolder(str(tmp_path), key()) as folder,
    ):
        _ = beam.Pipeline() | beam.Create(PAIRS[:9]) | transform(folder, [7])


@pytest.mark.parametrize("how", [["--num_shards=2"], ["--known"]])
def test_the_command_puts_others_into_ledger_and_result(how, tmp_path, capsys):
    """In one step and in trips, from shards and from the hub; the same as in memory."""
    table = pa.table(dict(zip(("user", "item"), zip(*PAIRS))))
    pq.write_table(table, tmp_path / "in.parquet")
    flags = [f"--input={tmp_path}/in.parquet", "--epsilon=2", "--delta=1e-3", f"--insecure_test_key={TEXT}"]
    more = []
    if "--known" in how:
        assert main([*flags, f"--output={tmp_path}/first", "--quiet"]) == 0
        more = [f"--known={tmp_path}/first"]
    more += [flag for flag in how if flag != "--known"] + [f"--result_file={tmp_path}/result.json"]
    assert main([*flags, "--noisy_counts", "--others", f"--output={tmp_path}/out", *more]) == 0
    text = "".join(capsys.readouterr())
    settings = {"epsilon": 2, "delta": 1e-3, "insecure_test_key": TEXT}
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        known = dpbeam.select(table, **settings) if "--known" in how else ()
        result = dpbeam.select(table, **settings, noisy_counts=True, others=True, known=known)
    ledger = Ledger.from_json((tmp_path / "out.ledger.json").read_text())
    assert ledger.release.others == result.others and ledger.parameters["others_sd"] == result.others.sd
    assert json.loads((tmp_path / "result.json").read_text())["others"] == vars(result.others)
    assert f"others: {result.others.users} users hold none of them" in text
    statements = {s.name: s for s in check_ledger((tmp_path / "out.ledger.json").read_text())[1]}
    assert statements["others"].holds and statements["settings"].holds
    spoilt = replace(ledger, release=replace(ledger.release, others=Others(3, 1.0)))
    assert {s.name: s.holds for s in check_ledger(spoilt.to_json())[1]}["others"] is False


def test_others_of_an_input_without_rows(tmp_path):
    pq.write_table(
        pa.table({"user": pa.array([], pa.string()), "item": pa.array([], pa.string())}),
        tmp_path / "in.parquet",
    )
    flags = [
        f"--input={tmp_path}/in.parquet",
        "--epsilon=2",
        "--delta=1e-3",
        f"--output={tmp_path}/out",
        "--quiet",
    ]
    assert main([*flags, "--noisy_counts", "--others", "--allow_empty"]) == 0
    others = Ledger.from_json((tmp_path / "out.ledger.json").read_text()).release.others
    assert abs(others.users) < 8 * others.sd


def test_nothing_released():
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        result = dpbeam.select(
            (["u"], ["i"]), epsilon=0.5, delta=1e-9, noisy_counts=True, insecure_test_key=TEXT
        )
    assert result.items == [] and result.table.schema.names == ["item", "noisy_count", "noisy_count_sd"]


@pytest.mark.parametrize(
    "flags,message",
    [
        ({"noisy_count_share": 0.1}, "noisy_count_share needs noisy_counts"),
        (
            {"noisy_counts": True, "noisy_count_share": 1.0},
            "noisy_count_share must lie strictly between 0 and 1, got 1.0",
        ),
        ({"noisy_counts": True, "noisy_weights": True}, "noisy_counts and noisy_weights exclude each other"),
        ({"others": True}, "others needs noisy_counts: it is read from their histogram"),
    ],
)
def test_refusals(flags, message):
    with pytest.raises(InputError, match=message):
        dpbeam.select((["u"], ["i"]), epsilon=1, delta=1e-6, **flags)
