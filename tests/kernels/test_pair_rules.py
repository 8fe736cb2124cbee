"""Files and columns in memory lose the same rows, those that a plain reading of the rules loses."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.errors import InputError
from dpbeam.in_memory.select import input_pairs
from dpbeam.io.rows import Counts, PairMaker, Rows
from dpbeam.io.spec import InputSpec
from dpbeam.kernels.canonical import Kinds, encode_parts, plain

TEXTS = st.sampled_from([None, "", "a", "b", "ü"])


def canonical(values):
    parts = [pa.array([value.encode()], pa.large_binary()) for value in values]
    return parts[0][0].as_py() if len(parts) == 1 else encode_parts(parts)[0].as_py()


def expected(users, items):
    """Pairs and counts, row by row."""
    pairs, counts = [], Counter()
    for user, *row in zip(users, *items):
        if user is None or None in row:
            counts["null_rows"] += 1
        elif not any(row):
            counts["empty_items"] += 1
        else:
            pairs.append((user.encode(), canonical(row)))
    return pairs, counts


def listed(users, items):
    return list(zip(plain(users).to_pylist(), plain(items).to_pylist()))


@settings(max_examples=60)
@given(st.integers(1, 2), st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=12), st.booleans())
def test_files_and_memory_follow_one_rule(width, rows, dictionaries):
    users = [row[0] for row in rows]
    items = [[row[1 + place] for row in rows] for place in range(width)]
    names = ["i", "j"][:width]
    columns = [pa.array(values, pa.large_string()) for values in (users, *items)]
    if dictionaries:
        columns = [column.dictionary_encode() for column in columns]
    spec = InputSpec.create(["x.parquet"], user_column="u", item_columns=names, on_null="drop")
    counts, kinds = Counts(), Kinds("string", ("string",) * width)
    pairs = PairMaker(spec, kinds, counts)(Rows(columns[0], columns[1:], str))
    wanted, dropped = expected(users, items)
    assert listed(pairs.users_of_items(), pairs.items) == wanted
    assert +counts == dropped
    table, told = dict(zip(["u", *names], columns)), {}
    if rows and not wanted:
        with pytest.raises(InputError, match="leaves not a single row"):
            input_pairs(table, "u", names, None, "drop")
        return
    ours = input_pairs(table, "u", names, None, "drop", told)
    assert listed(ours.users, ours.items) == wanted
    assert +Counter(told) == dropped
    if dropped:
        with pytest.raises(InputError, match=r"holds a null|holds an empty item"):
            input_pairs(table, "u", names, None, "error")
