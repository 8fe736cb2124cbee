"""Rows of user items in compressed form, against lists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpbeam.kernels.csr import Csr, integer_row_sums
from tests.support.instances import csr

sets = st.lists(st.frozensets(st.integers(0, 9), max_size=6).map(sorted), min_size=1, max_size=12)


def to_lists(rows: Csr) -> list[list[int]]:
    return [rows.links[a:b].tolist() for a, b in zip(rows.offsets[:-1], rows.offsets[1:])]


@given(sets, st.integers(0, 2**32))
def test_operations_equal_lists(rows, seed):
    rng = np.random.default_rng(seed)
    matrix = csr(rows)
    count = sum(map(len, rows))
    values = rng.integers(-(2**40), 2**40, count)
    assert matrix.degrees.tolist() == [len(r) for r in rows]
    assert matrix.per_pair(np.arange(len(rows))).tolist() == [u for u, r in enumerate(rows) for _ in r]
    pieces = np.split(values, matrix.offsets[1:-1])
    assert matrix.row_sums(values).tolist() == [int(p.sum()) for p in pieces]
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
    filled = matrix.filled()
    assert to_lists(filled) == [r for r in rows if r]
    assert filled.links is matrix.links
    state = matrix.to_state("x")
    assert to_lists(Csr.from_state({**state, "other": keep}, "x")) == rows


def test_row_sums_are_exact_where_running_sums_wrap_around():
    for kind in (np.int64, np.uint64):
        values = np.full(60, 2**60 + 1, kind)
        assert integer_row_sums(values, np.arange(0, 61, 3)).tolist() == [3 * (2**60 + 1)] * 20
