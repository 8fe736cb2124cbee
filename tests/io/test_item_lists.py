"""Lists of public items: what is refused (what is read is tested with the sinks)."""

import json
import os
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.errors import InputError
from dpbeam.io.formats import find
from dpbeam.io.item_lists import has_column, list_files, read_items
from dpbeam.io.output_formats import unescape
from dpbeam.io.sinks import OutputColumns, write_shard
from tests.support.format_files import FILES

STRING = OutputColumns(("item",), ("string",))
INT = OutputColumns(("item",), ("int",))
PAIR = OutputColumns(("a", "b"), ("string", "int"))
BYTES = OutputColumns(("item",), ("bytes",))


def test_text(write_file):
    path = write_file("a.txt", "\ufeffone\r\ntwo\n\none\nback\\\\slash\\t\n")
    items = read_items(path, STRING, "--public_items").to_pylist()
    assert items == [b"one", b"two", b"back\\slash\t"]
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
        (STRING, b"a\n\xff\n", "2: not valid UTF-8"),
        (STRING, b"C:\\dir\n", "1: a backslash must be written as two"),
        (BYTES, "ж\n".encode(), "1: a character that is no byte; write \\xNN"),
    ],
)
def test_bad_text(write_file, columns, text, problem):
    path = write_file("a.txt", text)
    with pytest.raises(InputError) as error:
        read_items(path, columns, "--domain")
    assert str(error.value) == f"--domain: {path}:{problem}"


@pytest.mark.parametrize("text", ["C:\\dir", "\\x4", "\\ud800", "a\\"])
def test_a_backslash_that_escapes_nothing(text):
    with pytest.raises(ValueError, match=r"^a backslash must be written as two$"):
        unescape(text)


@pytest.mark.parametrize(
    "columns, problem",
    [
        ({"x": ["a"]}, "--domain: FILE has no column 'item', only x"),
        (
            {"item": [1]},
            "--domain: FILE: column 'item' holds int values, but the items of the input are string",
        ),
        ({"item": ["a", None]}, "--domain: FILE: row 2: null in column 'item'"),
        (
            {"item": [1.5]},
            "--domain: FILE: column 'item' has type double; users and items are strings, integers or bytes; "
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


@pytest.mark.parametrize(
    "columns, name, text, problem",
    [
        (STRING, "a.csv", b"item;n\n", " has no column 'item'; its fields seem to be separated by ';'"),
        (STRING, "a.csv", b"", ": an empty file, without even a header; remove it"),
        (
            STRING,
            "a.csv",
            b"item\na,b\n",
            ":2: malformed row: 2 fields where the header has 1; fix the line",
        ),
        (INT, "a.csv", b'item\n1\n""\n', ":3: null in column 'item'"),
        (BYTES, "a.csv", b"item\n\\x4\n", ":2: a backslash must be written as two"),
        (
            INT,
            "a.jsonl",
            b'{"item": "1"}\n',
            ":1: column 'item' holds a string where an integer is expected; fix the line",
        ),
    ],
)
def test_bad_csv_and_jsonl(write_file, columns, name, text, problem):
    path = write_file(name, text)
    with pytest.raises(InputError) as error:
        read_items(path, columns, "--domain")
    assert str(error.value) == f"--domain: {path}{problem}"


def test_csv_and_jsonl(write_file):
    path = write_file("a.csv.gz", '\ufeffb,item,a\r\n1,"x\r\ny",w\r\n\r\n-2,z,""\r\n')
    assert read_items(path, STRING, "--domain").to_pylist() == [b"x\r\ny", b"z"]
    assert read_items(path, PAIR, "--domain") == read_items(
        write_file("b.jsonl", '{"b": 1, "a": "w"}\n{"a": "", "b": -2}\n'), PAIR, "--domain"
    )
    assert (
        read_items(write_file("c.csv", "item\n" + "x" * 200_000), STRING, "--domain")[0].as_py()
        == b"x" * 200_000
    )


@pytest.mark.parametrize("name", sorted(set(FILES) - {"text", "wet", "warc"}))
def test_every_format_with_columns(tmp_path, name):
    path = tmp_path / f"list.{find(name).suffixes[0]}"
    path.write_bytes(FILES[name].pairs([("u", "a"), ("v", "b\\"), ("w", "a")]))
    assert read_items(str(path), STRING, "--domain").to_pylist() == [b"a", b"b\\"]
    assert has_column(str(path), "--domain", "user") and not has_column(str(path), "--domain", "day")


def test_words_that_begin_like_a_file_of_another_format(write_file):
    """A text has no magic bytes of its own; those of others end a list only where they cannot be a word."""
    path = write_file("a.txt", "WARCRAFT\nObject\nPARADE\nBZ\n")
    assert read_items(path, STRING, "--domain").to_pylist() == [b"WARCRAFT", b"Object", b"PARADE", b"BZ"]
    path = write_file("b.txt", "WARC/1.1\r\n")
    with pytest.raises(InputError, match=f"^--domain: {path}: is a WET file, not text$"):
        read_items(path, STRING, "--domain")


def test_an_item_of_empty_parts_is_none(write_file):
    """As in the input."""
    path = write_file("a.csv", 'a,b\n"",""\n"",x\n')
    columns = OutputColumns(("a", "b"), ("string", "string"))
    assert len(read_items(path, columns, "--domain")) == 1


def output(prefix, lines, method="gsu", **parameters):
    (prefix.parent / f"{prefix.name}-00000-of-00001.txt").write_text(lines)
    ledger = {"format": "dpbeam ledger", "method": method, "parameters": parameters}
    (prefix.parent / f"{prefix.name}.ledger.json").write_text(json.dumps(ledger))
    return f"{prefix}-00000-of-00001.txt"


@pytest.mark.parametrize(
    "lines, ledger",
    [
        ("a\nb\n", {}),
        ("a\t1.5\nb\t\n", {"noisy_weights": True}),
        ("1\ta\n2\tb\n", {"method": "top-k", "noisy_count_deviation": None}),
        ("1\ta\n2\tb\n", {"method": "hitting-set"}),
        ("1\ta\t17\n2\tb\t-3\n", {"method": "top-k", "noisy_count_deviation": 2.0}),
    ],
)
@pytest.mark.parametrize("name", ["file", "glob", "prefix"])
def test_text_outputs_of_ours(tmp_path, lines, ledger, name):
    """Text has no header; the ledger beside it says what stands beside the items."""
    path = output(tmp_path / "out", lines, **ledger)
    path = {"file": path, "glob": f"{tmp_path}/out-*", "prefix": f"{tmp_path}/out"}[name]
    assert read_items(path, STRING, "--released").to_pylist() == [b"a", b"b"]


def test_text_of_others_has_items_alone(tmp_path, write_file):
    output(tmp_path / "out", "", noisy_weights=True)
    path = write_file("out-1.txt", "a\t1.5\n")
    with pytest.raises(InputError, match=r"out-1.txt:1: 2 fields separated by tabs, expected 1"):
        read_items(path, STRING, "--released")


@pytest.mark.parametrize("extension", ["parquet", "csv", "jsonl"])
def test_the_prefix_of_an_output_stands_for_its_files(tmp_path, extension):
    for n in range(3):
        path = tmp_path / f"out-{n:05d}-of-00003.{extension}"
        with open(path, "wb") as file:
            write_shard(file, pa.array([b"i%d" % n], pa.large_binary()), {}, STRING, extension)
    (tmp_path / "out-notes.txt").write_text("no item")
    ledger = {"format": "dpbeam ledger", "method": "gsu", "parameters": {}}
    for output in ({}, {"output": {"format": extension, "shards": 3}}):
        ledger["parameters"] = output
        (tmp_path / "out.ledger.json").write_text(json.dumps(ledger))
        assert read_items(f"{tmp_path}/out", STRING, "--released").to_pylist() == [b"i0", b"i1", b"i2"]
    assert list_files(f"{tmp_path}/out", "--domain") == [
        f"{tmp_path}/out-0000{n}-of-00003.{extension}" for n in range(3)
    ]


def test_pipes(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text("a\nb\n"))
    writer.start()
    assert read_items(f"{tmp_path}/pipe", STRING, "--public_items").to_pylist() == [b"a", b"b"]
    writer.join()


def test_files(tmp_path, write_file):
    with pytest.raises(InputError, match=r"^--domain: no such file: "):
        read_items(f"{tmp_path}/none.txt", STRING, "--domain")
    path = write_file("a.parquet", "no")
    with pytest.raises(InputError, match=rf"^--domain: {path}: not a Parquet file$"):
        read_items(path, STRING, "--domain")
