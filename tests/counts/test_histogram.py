"""Canonical order, ranks, sampling without replacement, refused arguments."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.counts.histogram import check_histogram, check_k, largest_positions, positions_at_ranks


def canonical(counts, fp):
    return np.lexsort((fp[:, 1], fp[:, 0], -counts))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(0, 10**6))
def test_ranks_follow_the_canonical_order(counts, seed):
    counts, rng = np.array(counts), np.random.default_rng(seed)
    fp = rng.permutation(np.array([[a, b] for a in range(3) for b in range(4)], np.uint64))[: len(counts)]
    ranks = rng.permutation(len(counts))[: rng.integers(1, len(counts) + 1)]
    np.testing.assert_array_equal(positions_at_ranks(counts, fp, ranks), canonical(counts, fp)[ranks])
    k = len(ranks)
    np.testing.assert_array_equal(largest_positions(counts, fp, k), canonical(counts, fp)[:k])


@pytest.mark.parametrize("distinct_words", [2**64, 500])
def test_ranks_in_a_large_class(tools, distinct_words):
    """More equal counts than are sorted whole, also with many equal first words."""
    rng, n = np.random.default_rng(1), 150_000
    counts = np.where(np.arange(n) % 5 == 0, 3, 0)
    fp = tools.fingerprints_of(n)
    if distinct_words < 2**64:
        fp[:, 0] %= distinct_words
    ranks = np.concatenate((rng.choice(n, 200, replace=False), [0, n - 1]))
    ranks = np.unique(ranks)[::-1]
    np.testing.assert_array_equal(positions_at_ranks(counts, fp, ranks), canonical(counts, fp)[ranks])


FP = np.arange(6, dtype=np.uint64).reshape(3, 2)


@pytest.mark.parametrize(
    ("counts", "fp", "k", "message"),
    [
        ([1.0, 2.0, 3.0], FP, 1, "counts must be a vector of integers, got float64"),
        ([[1, 2, 3]], FP, 1, "counts must be a vector of integers"),
        ([1, -1, 3], FP, 1, r"counts must lie in \[0, 2\^52\]"),
        ([1, 2**53, 3], FP, 1, r"counts must lie in \[0, 2\^52\]"),
        ([1, 2], FP, 1, r"fingerprint must be uint64 of shape \(2, 2\)"),
        ([1, 2, 3], FP.astype(np.int64), 1, "fingerprint must be uint64"),
        ([1, 2, 3], FP, 4, "k must not exceed the number of items, got k = 4 and 3 items"),
        ([], FP[:0], 1, "counts must be a vector of integers"),
        ([1, 2, 3], FP, 0, "k must be an integer of at least 1, got 0"),
        ([1, 2, 3], FP, 1.5, "k must be an integer of at least 1, got 1.5"),
    ],
)
def test_refused(counts, fp, k, message):
    with pytest.raises(ValueError, match=message):
        check_histogram(counts, fp, k)


def test_accepted():
    counts, _ = check_histogram(np.array([3, 2, 1], np.uint8), FP, 3)
    assert counts.dtype == np.int64
    empty, _ = check_histogram(np.empty(0, np.int64), FP[:0])
    assert len(empty) == 0
    assert check_k(np.int64(5)) == 5
    with pytest.raises(ValueError, match="got True"):
        check_k(True)
