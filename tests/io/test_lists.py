"""Histograms from files: what is read, and each refusal word for word."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.errors import InputError
from dpbeam.io.lists import read_histogram
from dpbeam.kernels.canonical import Kinds

LIMIT = 2**52


def parquet(tmp_path, name="h.parquet", **columns):
    pq.write_table(pa.table(columns), tmp_path / name)
    return str(tmp_path / name)


def refused(path, message):
    with pytest.raises(InputError) as caught:
        read_histogram(path)
    assert str(caught.value) == f"--histogram: {message}"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
@pytest.mark.parametrize("number", [pa.int64(), pa.int32(), pa.uint64(), pa.uint8()])
def test_strings_and_counts_of_any_integer_type(kind, number, tmp_path):
    path = parquet(tmp_path, item=pa.array(["a", "é", ""]).cast(kind), count=pa.array([7, 0, 255], number))
    items, counts, kinds = read_histogram(path)
    assert items.type == pa.large_binary() and items.to_pylist() == [b"a", "é".encode(), b""]
    assert counts.dtype == np.int64 and counts.tolist() == [7, 0, 255]
    assert kinds == Kinds(None, ("string",))


def test_integer_and_bytes_items(tmp_path):
    items, counts, kinds = read_histogram(parquet(tmp_path, item=[1, -1], count=[2, LIMIT]))
    assert kinds.item == ("int",) and counts.tolist() == [2, LIMIT]
    assert items.to_pylist() == [(1).to_bytes(8, "big"), b"\xff" * 8]
    items, _, kinds = read_histogram(parquet(tmp_path, item=[b"\x00", b"\xff"], count=[2, 3]))
    assert kinds.item == ("bytes",) and items.to_pylist() == [b"\x00", b"\xff"]


def test_csv_items_are_strings_even_where_they_look_like_numbers(write_file):
    path = write_file("h.csv", 'count,item,more\n5,007,x\n4,"a,b",y\n3,"c\nd",z\n')
    items, counts, kinds = read_histogram(path)
    assert items.to_pylist() == [b"007", b"a,b", b"c\nd"] and counts.tolist() == [5, 4, 3]
    assert kinds == Kinds(None, ("string",))


def test_several_files(tmp_path, write_file):
    write_file("b.csv", "item,count\nc,1\n")
    parquet(tmp_path, "a.parquet", item=["a", "b"], count=[3, 2])
    items, counts, _ = read_histogram(str(tmp_path / "*"))
    assert items.to_pylist() == [b"a", b"b", b"c"] and counts.tolist() == [3, 2, 1]


@pytest.mark.parametrize("name", ["h.csv", "h.parquet"])
def test_no_items(name, tmp_path, write_file):
    if name == "h.csv":
        path = write_file(name, "item,count\n")
    else:
        path = parquet(tmp_path, item=pa.array([], pa.string()), count=pa.array([], pa.int64()))
    items, counts, kinds = read_histogram(path)
    assert (len(items), len(counts), kinds.item) == (0, 0, ("string",))


def test_row_groups(tmp_path):
    path = tmp_path / "h.parquet"
    many = pa.table({"item": [f"i{n}" for n in range(1_000)], "count": list(range(1_000))})
    pq.write_table(many, path, row_group_size=64)
    items, counts, _ = read_histogram(str(path))
    assert items[999].as_py() == b"i999" and counts.tolist() == list(range(1_000))


def test_other_formats(tmp_path, write_file):
    """JSON lines as they are made; a name that tells no format is CSV."""
    write_file("a.jsonl", '{"item": "a", "count": 3}\n{"count": 0, "item": "b"}\n')
    write_file("b.tsv", "count\titem\n5\tc\n")
    write_file("c.list", "item,count\nd,1\n")
    items, counts, kinds = read_histogram(str(tmp_path / "*"))
    assert items.to_pylist() == [b"a", b"b", b"c", b"d"] and counts.tolist() == [3, 0, 5, 1]
    assert kinds == Kinds(None, ("string",))


class TestRefusals:
    """What formats refuse is in tests/io/test_bad_input.py; of that, what a list says otherwise."""

    def test_a_missing_column(self, tmp_path):
        path = parquet(tmp_path, name_of_item=["a"], count=[1])
        refused(path, f"{path} has no column 'item', only name_of_item, count")

    def test_a_null(self, write_file):
        path = write_file("h.csv", "item,count\na,1\nsecret,\n")
        refused(path, f"{path}:3: null in column 'count'")

    def test_a_malformed_line(self, write_file):
        path = write_file("h.csv", "item,count\na,1,secret\n")
        refused(path, f"{path}:2: malformed row: 3 fields where the header has 2; fix the line")

    def test_counts_that_are_no_integers(self, tmp_path):
        path = parquet(tmp_path, item=["a"], count=["1"])
        refused(path, f"{path}: column 'count' holds string values, not integers")

    @pytest.mark.parametrize("count", [-1, LIMIT + 1, 2**63 - 1])
    def test_counts_out_of_range(self, count, tmp_path):
        path = parquet(tmp_path, item=["a", "b"], count=[1, count])
        refused(path, f"{path}: column 'count' must hold numbers from 0 to 2^52")

    def test_counts_beyond_64_bits(self, tmp_path):
        path = parquet(tmp_path, item=["a"], count=pa.array([2**64 - 1], pa.uint64()))
        refused(path, f"{path}: column 'count' must hold numbers from 0 to 2^52")

    def test_an_item_twice(self, tmp_path, write_file):
        refused(
            parquet(tmp_path, item=["a", "b", "a"], count=[1, 2, 3]),
            "an item occurs twice; add its counts up first",
        )
        write_file("x.csv", "item,count\na,1\n")
        write_file("y.csv", "item,count\na,1\n")
        refused(str(tmp_path / "?.csv"), "an item occurs twice; add its counts up first")

    def test_types_mixed_across_files(self, tmp_path):
        parquet(tmp_path, "a.parquet", item=["a"], count=[1])
        parquet(tmp_path, "b.parquet", item=[1], count=[1])
        refused(str(tmp_path / "*.parquet"), "item ids mix types across the files")

    def test_missing_file(self, tmp_path):
        with pytest.raises(InputError, match=r"^--histogram: .*none\.parquet"):
            read_histogram(str(tmp_path / "none.parquet"))
