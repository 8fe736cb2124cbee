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
    path = write_file("h.csv", 'count,item,more\n5,007,x\n4,"a,b",y\n')
    items, counts, kinds = read_histogram(path)
    assert items.to_pylist() == [b"007", b"a,b"] and counts.tolist() == [5, 4]
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
    def test_missing_columns(self, tmp_path, write_file):
        path = parquet(tmp_path, name_of_item=["a"], count=[1])
        refused(path, f"{path} has no column 'item', only name_of_item, count")
        path = write_file("h.csv", "item,counts\na,1\n")
        refused(path, f"{path} has no column 'count', only item, counts")

    def test_a_column_twice(self, write_file):
        path = write_file("h.csv", "item,count,count\na,1,2\n")
        refused(path, f"{path} has several columns 'count'")

    def test_nulls(self, tmp_path, write_file):
        path = parquet(tmp_path, item=["a", None], count=[1, 2])
        refused(path, f"{path}: row 2: null in column 'item'")
        path = write_file("h.csv", "item,count\na,1\nsecret,\n")
        refused(path, f"{path}:3: null in column 'count'")

    def test_types(self, tmp_path, write_file):
        for column, count, kind in (("count", 1.0, "double"), ("count", True, "bool"), ("item", 1, "double")):
            path = parquet(tmp_path, item=["a"] if column == "count" else [0.5], count=[count])
            refused(
                path,
                f"{path}: column '{column}' has type {kind}; users and items are strings, integers or bytes; "
                "convert the column to one of these",
            )
        path = parquet(tmp_path, item=["a"], count=["1"])
        refused(path, f"{path}: column 'count' holds string values, not integers")
        path = write_file("h.csv", "item,count\na,many\n")
        refused(path, f"{path}:2: column 'count' holds no 64-bit integer where one is expected; fix the line")

    def test_quotes_out_of_place(self, write_file):
        """Item b and its count were part of item a."""
        path = write_file("h.csv", 'item,count\n"a,1\nb",2\nc,3\n')
        items, counts, _ = read_histogram(path)  # well quoted: one item of two lines
        assert items.to_pylist() == [b"a,1\nb", b"c"] and counts.tolist() == [2, 3]
        misplaced = (
            "a quote inside a value is not doubled, or a value with quotes or a carriage return is not quoted as a "
            "whole"
        )
        path = write_file("h.csv", 'item,count\na",1\nb",2\nc,3\n')
        refused(path, f"{path}:2: {misplaced}; fix the file")
        path = write_file("h.csv", 'item,count\na"b"c,1\n')
        refused(path, f"{path}:2: {misplaced}; fix the line")
        path = write_file("h.csv", 'item,count\nb,2\n"a,1\n')
        refused(
            path,
            f"{path}:3: a quoted value that begins here does not end, or a quote before it is not doubled; "
            "fix the file",
        )

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

    @pytest.mark.parametrize(
        "name,data,problem",
        [
            ("h.csv", "", ": an empty file, without even a header; remove it"),
            (
                "h.csv",
                "item,count\na,1,secret\n",
                ":2: malformed row: 3 fields where the header has 2; fix the line",
            ),
            ("h.csv", b"item,count\n\xff\xfe,1\n", ":2: not valid UTF-8"),
            (
                "h.csv",
                "item;count\na;1\n",
                " has no columns 'item', 'count'; its fields seem to be separated by ';'",
            ),
            ("h.parquet", "PAR1 but not really", ": truncated Parquet file"),
            ("h.parquet", "item,count\na,1\n", ": not a Parquet file"),
        ],
    )
    def test_unreadable(self, name, data, problem, write_file):
        path = write_file(name, data)
        refused(path, f"{path}{problem}")

    def test_missing_file(self, tmp_path):
        with pytest.raises(InputError, match=r"^--histogram: .*none\.parquet"):
            read_histogram(str(tmp_path / "none.parquet"))
