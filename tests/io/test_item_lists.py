"""Lists of public items: what is refused (what is read is tested with the sinks)."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.errors import InputError
from dpbeam.io.item_lists import read_items
from dpbeam.io.sinks import OutputColumns

STRING = OutputColumns(("item",), ("string",))
INT = OutputColumns(("item",), ("int",))
PAIR = OutputColumns(("a", "b"), ("string", "int"))
BYTES = OutputColumns(("item",), ("bytes",))


def test_text(write_file):
    path = write_file("a.txt", "\ufeffone\r\ntwo\n\none\nback\\\\slash\\t\n")
    found = read_items(path, STRING, "--public_items").to_pylist()
    assert found == [b"one", b"two", b"back\\slash\t"]
    assert read_items(write_file("a.txt.gz", "7\n-1\n"), INT, "--public_items").to_pylist() == [
        b"\0" * 7 + b"\x07",
        b"\xff" * 8,
    ]
    assert read_items(write_file("b.txt", "\\xff\\x00a\n"), BYTES, "--public_items").to_pylist() == [
        b"\xff\0a"
    ]
    assert read_items(write_file("c.txt", ""), STRING, "--public_items").to_pylist() == []


@pytest.mark.parametrize(
    "columns, text, problem",
    [
        (STRING, b"a\nb\tc\n", "2: 2 fields separated by tabs, expected 1"),
        (PAIR, b"a\t1\nb\n", "2: 1 fields separated by tabs, expected 2"),
        (INT, b"1\nx\n", "2: not a 64-bit integer, as the items of the input are"),
        (INT, b"9223372036854775808\n", "1: not a 64-bit integer, as the items of the input are"),
        (INT, b"1_0\n", "1: not a 64-bit integer, as the items of the input are"),
        (STRING, b"a\n\xff\n", "2: not valid UTF-8"),
        (STRING, b"C:\\dir\n", "1: a backslash must be written as two"),
        (STRING, b"\\x4\n", "1: a backslash must be written as two"),
        (STRING, b"\\ud800\n", "1: a backslash must be written as two"),
        (STRING, b"a\\\n", "1: a backslash must be written as two"),
        (BYTES, "ж\n".encode(), "1: a character that is no byte; write \\xNN"),
    ],
)
def test_bad_text(write_file, columns, text, problem):
    path = write_file("a.txt", text)
    with pytest.raises(InputError) as error:
        read_items(path, columns, "--domain")
    assert str(error.value) == f"--domain: {path}:{problem}"


@pytest.mark.parametrize(
    "columns, problem",
    [
        ({"x": ["a"]}, "--domain: FILE has no column 'item'"),
        (
            {"item": [1]},
            "--domain: FILE: column 'item' holds int values, but the items of the input are string",
        ),
        ({"item": ["a", None]}, "--domain: FILE: column 'item' holds nulls; remove them"),
        (
            {"item": [1.5]},
            "FILE: column 'item' has type double; users and items are strings, integers or bytes; "
            "convert the column to one of these",
        ),
    ],
)
def test_bad_parquet(tmp_path, columns, problem):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table(columns), path)
    with pytest.raises(InputError) as error:
        read_items(path, STRING, "--domain")
    assert str(error.value).replace(path, "FILE") == problem


def test_files(tmp_path, write_file):
    with pytest.raises(InputError, match=r"^--domain: no such file: "):
        read_items(f"{tmp_path}/none.txt", STRING, "--domain")
    path = write_file("a.parquet", "no")
    with pytest.raises(InputError, match=rf"^--domain: {path}: not a whole Parquet file$"):
        read_items(path, STRING, "--domain")
