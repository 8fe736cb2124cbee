"""Released sets and noisy weights depend on data, settings and key alone."""

import numpy as np
import pyarrow as pa
import pytest

import dpbeam.kernels.pairs as pairs_module
from dpbeam.engine.in_process import run_in_process
from tests.support.instances import batches, random_pairs
from tests.support.running import key, release, watch
from tests.support.variants import program


def outcome(released) -> dict[bytes, float]:
    weights = dict(zip(released.items.to_pylist(), released.noisy_weight.tolist()))
    assert len(weights) == len(released)  # nothing twice
    return weights


@pytest.fixture(scope="module")
def data():
    return random_pairs(11, users=120, items=60, max_degree=14)


@pytest.mark.parametrize("name", ["basic", "mad2r resampled", "gsu2"])
def test_order_duplicates_batches_and_array_types_leave_no_trace(name, data):
    chosen = program(name)
    wanted = outcome(release(chosen, data, key("d")))
    rng = np.random.default_rng(5)
    shuffled = [data[i] for i in rng.permutation(len(data))]
    doubled = shuffled + [data[i] for i in rng.integers(0, len(data), 500)]
    kinds = (
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.dictionary(pa.int32(), pa.string()),
    )
    for rows, size in ((shuffled, None), (doubled, None), (doubled, 17)):
        assert outcome(run_in_process(chosen, batches(rows, size), key("d"), num_blocks=3)) == wanted
    few = data[:100]
    one_by_one = run_in_process(chosen, batches(few, 1), key("d"), num_blocks=3)
    assert outcome(one_by_one) == outcome(release(chosen, few, key("d")))
    for kind in kinds:
        again = run_in_process(chosen, batches(doubled, 101, kind), key("d"), num_blocks=2, num_shards=2)
        assert outcome(again) == wanted, kind


def test_output_order_is_that_of_the_keyed_fingerprints(data):
    """It follows neither the input nor the alphabet, and shards do not change it."""
    orders = [
        release(program("basic"), data, key("d"), num_shards=shards).items.to_pylist() for shards in (1, 5)
    ]
    assert orders[0] == orders[1]
    assert orders[0] != sorted(orders[0])
    other = release(program("basic", epsilon=50.0), data, key("e")).items.to_pylist()
    again = release(program("basic", epsilon=50.0), data, key("d")).items.to_pylist()
    both = set(other) & set(again)
    assert [i for i in other if i in both] != [i for i in again if i in both]


@pytest.mark.parametrize("bits", [0, 1, 3, 8])
def test_shard_and_block_choice_by_few_bits_merges_nothing(bits, data, monkeypatch):
    """A short hash may choose a shard, never decide equality of users or items."""
    wanted = {name: outcome(release(program(name), data, key("d"))) for name in ("mad", "gsu2")}

    def coarse(fingerprint, buckets):
        top = fingerprint[:, 0] >> np.uint64(64 - bits) if bits else np.zeros(len(fingerprint), np.uint64)
        return (top.astype(np.int64) * buckets) >> bits

    monkeypatch.setattr(pairs_module, "range_bucket", coarse)
    for name, expected in wanted.items():
        other = release(program(name), data, key("d"), num_blocks=9, num_shards=11)
        assert outcome(other) == expected


def test_another_key_gives_other_noise(data):
    first = watch(program("basic"), data, key("d")).rounds[0].state["noisy"]
    second = watch(program("basic"), data, key("e")).rounds[0].state["noisy"]
    assert all(first[item] != second[item] for item in first)
