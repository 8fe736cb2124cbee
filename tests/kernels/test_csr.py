"""Rows of user items in compressed form, against lists."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbeam.kernels import csr as csr_module
from dpbeam.kernels.csr import Csr, integer_row_sums, joined, sums_at
from tests.support.instances import csr

sets = st.lists(st.frozensets(st.integers(0, 9), max_size=6).map(sorted), min_size=1, max_size=12)


def to_lists(rows: Csr) -> list[list[int]]:
    return [rows.links[a:b].tolist() for a, b in zip(rows.offsets[:-1], rows.offsets[1:])]


@given(sets, st.integers(0, 2**32), st.sampled_from([0, 100]))
def test_operations_equal_lists(rows, seed, long_row):
    """With rows taken one by one, and all pairs at a time."""
    with mock.patch.multiple(csr_module, LONG_TO_SUM=long_row, LONG_TO_REPEAT=long_row):
        check_operations(rows, np.random.default_rng(seed))


def check_operations(rows, rng):
    matrix = csr(rows)
    count = sum(map(len, rows))
    values = rng.integers(-(2**40), 2**40, count)
    assert matrix.degrees.tolist() == [len(r) for r in rows]
    assert matrix.per_pair(np.arange(len(rows))).tolist() == [u for u, r in enumerate(rows) for _ in r]
    pieces = np.split(values, matrix.offsets[1:-1])
    assert matrix.row_sums(values).tolist() == [int(p.sum()) for p in pieces]
    assert matrix.row_sums(values.astype(np.float64)).tolist() == [float(p.sum()) for p in pieces]
    sums = dict.fromkeys(range(10), 0)
    for item, value in zip(matrix.links.tolist(), values.tolist()):
        sums[item] += value
    assert matrix.item_sums(values, 10).tolist() == list(sums.values())
    keep = rng.random(count) < 0.5
    kept = [[i for i, k in zip(r, p) if k] for r, p in zip(rows, np.split(keep, matrix.offsets[1:-1]))]
    assert to_lists(matrix.restrict(keep)) == kept
    chosen = rng.random(len(rows)) < 0.5
    selected, mask = matrix.select_rows(chosen)
    assert to_lists(selected) == [r for r, c in zip(rows, chosen) if c]
    assert mask.tolist() == [bool(c) for r, c in zip(rows, chosen) for _ in r]
    at = np.flatnonzero(keep)
    touched = [row for row, its in enumerate(kept) if its]
    assert matrix.rows_of(at).tolist() == touched
    starts = matrix.offsets.tolist()
    assert to_lists(matrix.places(np.array(touched, np.int64))) == [
        list(range(starts[row], starts[row + 1])) for row in touched
    ]
    filled = matrix.filled()
    assert to_lists(filled) == [r for r in rows if r]
    assert filled.links is matrix.links
    state = matrix.to_state("x")
    assert to_lists(Csr.from_state({**state, "other": keep}, "x")) == rows


def test_row_sums_are_exact_where_running_sums_wrap_around():
    for kind in (np.int64, np.uint64):
        values = np.full(60, 2**60 + 1, kind)
        assert integer_row_sums(values, np.arange(0, 61, 3)).tolist() == [3 * (2**60 + 1)] * 20


@given(sets, st.integers(1, 20))
def test_parts_are_whole_rows_in_order(rows, at_once):
    matrix = csr(rows)
    with mock.patch.object(csr_module, "PAIRS_AT_ONCE", at_once):
        parts = list(matrix.parts())
    assert [row for _, _, part in parts for row in to_lists(part)] == rows
    for these, pairs, part in parts:
        assert to_lists(part) == rows[these] and part.links.tolist() == matrix.links[pairs].tolist()
        longest = max(map(len, rows[these]), default=0)
        assert len(part.links) < at_once + longest


def test_nothing_has_one_part():
    assert [len(part.links) for _, _, part in csr([]).parts()] == [0]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-(2**60), 2**60)), max_size=8), st.booleans())
def test_sums_at_places_are_exact(pairs, narrow):
    places, values = np.array(pairs, np.int64).reshape(-1, 2).T
    sums = sums_at(places.astype(np.int32 if narrow else np.int64), values, 5)
    assert sums.dtype == np.int64
    assert sums.tolist() == [sum(value for place, value in pairs if place == at) for at in range(5)]


@pytest.mark.parametrize("place", [-1, 3])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_place_that_is_none_is_refused(place, kind):
    with pytest.raises(IndexError, match="from 0 to 2"):
        sums_at(np.array([0, place], kind), np.array([1, 1]), 3)


def test_pieces_are_joined_array_by_array():
    first, second = joined((np.arange(n), np.full(n, n)) for n in (2, 0, 1))
    assert first.tolist() == [0, 1, 0] and second.tolist() == [2, 2, 1]
    piece = (np.arange(2), np.ones(2))
    assert joined([piece]) is piece
