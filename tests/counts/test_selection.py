"""Noisy counts of released items: against dictionaries, on Beam, by the command and in memory; what they cost."""

import json
import math
from collections import Counter

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import dpbeam
from dpbeam.accounting.accountant import account
from dpbeam.accounting.events import leaves
from dpbeam.accounting.gaussian import gaussian_sigma
from dpbeam.accounting.ledger import Ledger
from dpbeam.cli.select import main
from dpbeam.counts.items_per_user import bucket_edges
from dpbeam.counts.selection import CountNoises
from dpbeam.engine.beam.store import RunFolder
from dpbeam.engine.in_process import run_in_process
from dpbeam.engine.program import Keys
from dpbeam.errors import InputError
from dpbeam.kernels.grid import NORM_UNITS, UNITS
from dpbeam.randomness import RunKey, fingerprints
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selection.transforms import CountedItem, SelectPartitions
from dpbeam.selectors.registry import selectors
from tests.support.instances import batches

TEXT = "c0de"


def key():
    return RunKey.insecure_fixed(TEXT)


def some_pairs(seed=1, users=900, items=60):
    """Popularity like 1/rank, rows that repeat, and two users who hold everything, far above D0."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), rng.geometric(0.35, users))
    item = np.minimum((items ** rng.random(len(user))).astype(int), items - 1)
    pairs = [(f"user {u}", f"item {i}") for u, i in zip(user, item)]
    pairs += [(f"whale {w}", f"item {i}") for w in range(2) for i in range(items)]
    return pairs + pairs[::3]


PAIRS = some_pairs()


def plan_of(method="gsu", epsilon=2.0, delta=1e-3, **more):
    return make_plan(SelectionConfig(epsilon, delta, method, max_items_per_user=6, noisy_counts=True, **more))


def released(plan, pairs=PAIRS, **sizes):
    """{item: (count, deviation)}"""
    found = run_in_process(plan.program, batches(pairs), key(), **sizes)
    return {
        item.decode(): tuple(row) for item, row in zip(found.items.to_pylist(), found.noisy_weight.tolist())
    }


def same(found, expected):
    """The same items and numbers, but for the last digits of the deviation."""
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[name] for name in expected], list(expected.values()), rtol=1e-12)


def reference(plan, pairs=PAIRS):
    """The same by dictionaries and exact integers."""
    alone = run_in_process(plan.calibration.program, batches(pairs), key())
    names = sorted(item.decode() for item in alone.items.to_pylist())
    held = {}
    for user, item in pairs:
        if item in names:
            held.setdefault(user, set()).add(item)
    noises, d, keys = plan.counts[0], len(names), Keys(key())
    edges = bucket_edges(d).tolist()
    exact = Counter(max(e for e in edges if e <= len(items)) for items in held.values())
    fp = np.array([[b, 0] for b in range(len(edges))], np.uint64)
    noisy = np.array([exact[e] for e in edges]) + keys.hub(plan.program.histogram_noise).noise(fp) / UNITS
    clip, loss = noises.clip(noisy, d)
    sums = Counter()
    for items in held.values():
        for item in items:
            sums[item] += math.isqrt(NORM_UNITS // max(clip, len(items)))
    fp = fingerprints(keys.pairs.item, pa.array([name.encode() for name in names], pa.large_binary()))
    noise = keys.noise(plan.program.noise(plan.program.trips - 1), fp)
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
    out = tmp_path / "rows"
    options = PipelineOptions(["--runner=FnApiRunner"])
    with RunFolder(str(tmp_path), key()) as folder, beam.Pipeline(options=options) as pipeline:
        chosen = pipeline | beam.Create(PAIRS) | SelectPartitions(plan.config, run=folder)
        rows = chosen | beam.Map(lambda row: (type(row).__name__, *row)) | beam.combiners.ToList()
        _ = rows | beam.Map(lambda rows: out.write_text(json.dumps(rows)))
    found = json.loads(out.read_text())
    assert {kind for kind, *_ in found} == {CountedItem.__name__}
    same({item: (count, deviation) for _, item, count, deviation in found}, released(plan))


def test_the_command_and_the_function_agree(tmp_path, capsys):
    users, items = zip(*PAIRS)
    table = pa.table({"user": users, "item": items})
    pq.write_table(table, tmp_path / "in.parquet")
    (tmp_path / "public.txt").write_text("item 0\nnobody's\n")
    flags = [
        "--input",
        str(tmp_path / "in.parquet"),
        "--user_column=user",
        "--item_column=item",
        "--epsilon=2",
    ]
    flags += ["--delta=1e-3", "--noisy_counts", f"--insecure_test_key={TEXT}", f"--output={tmp_path / 'out'}"]
    assert main([*flags, f"--public_items={tmp_path / 'public.txt'}", "--num_shards=2"]) == 0
    [path] = tmp_path.glob("out-*")
    written = pq.read_table(path)
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        found = dpbeam.select(
            table,
            epsilon=2,
            delta=1e-3,
            noisy_counts=True,
            public_items=["item 0", "nobody's"],
            insecure_test_key=TEXT,
        )
    assert found.table.to_pydict() == written.to_pydict()
    assert written.schema.names == found.table.schema.names == ["item", "noisy_count", "noisy_count_sd"]
    assert written.schema.field("noisy_count").type == pa.int64()
    counts = dict(zip(found.items, found.table["noisy_count"].to_pylist()))
    assert len(counts) > 7 and [item for item, count in counts.items() if count is None] == [
        "item 0",
        "nobody's",
    ]
    assert len(set(found.table["noisy_count_sd"].drop_null().to_pylist())) == 1
    parameters = json.loads((tmp_path / "out.ledger.json").read_text())["parameters"]
    assert parameters["noisy_counts"] is True and parameters["noisy_count_share"] == 0.2
    assert parameters["noisy_count_sd_per_sqrt_item"] == pytest.approx(
        found.ledger.parameters["noisy_count_sd_per_sqrt_item"]
    )
    capsys.readouterr()


def test_nothing_released():
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        found = dpbeam.select(
            (["u"], ["i"]), epsilon=0.5, delta=1e-9, noisy_counts=True, insecure_test_key=TEXT
        )
    assert found.items == [] and found.table.schema.names == ["item", "noisy_count", "noisy_count_sd"]


@pytest.mark.parametrize(
    "settings,message",
    [
        ({"noisy_count_share": 0.1}, "noisy_count_share needs noisy_counts"),
        (
            {"noisy_counts": True, "noisy_count_share": 1.0},
            "noisy_count_share must lie strictly between 0 and 1, got 1.0",
        ),
        ({"noisy_counts": True, "noisy_weights": True}, "noisy_counts and noisy_weights exclude each other"),
    ],
)
def test_refusals(settings, message):
    with pytest.raises(InputError, match=message):
        dpbeam.select((["u"], ["i"]), epsilon=1, delta=1e-6, **settings)
