"""Every format, layout and compression reads the same pairs, whole or in ranges."""

import datetime
import decimal
import json
import uuid
from collections import Counter

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.errors import InputError
from dpbeam.io.formats.delimited import Csv
from dpbeam.io.readers import Piece, WorkUnit, read_complete, read_scattered
from dpbeam.io.rows import Counts
from dpbeam.io.spec import InputSpec
from dpbeam.io.streams import open_input
from dpbeam.kernels.canonical import Kinds
from tests.support.input import pairs_spec

USERS = ["u1", "u2", "ü", "u1", "a b", "u1", "x'y"]
ITEMS = ["i", "ï", "i", "i", 'say "hi"', "k", "c,d"]
PAIRS = Counter(zip(USERS, ITEMS))
LISTS = [["a", "b"], [], ["a", "a", "c"], ["ü"]]


def csv_text(*columns, names=("user", "item")):
    rows = [names, *zip(*columns)]
    return "".join(",".join('"' + v.replace('"', '""') + '"' for v in row) + "\n" for row in rows)


@pytest.mark.parametrize("split", [None, 40])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.ndjson.zst", "a.csv", "a.csv.gz", "a.csv.zst"])
def test_lines_of_pairs(read, write_file, name, split):
    if "csv" in name:
        text = csv_text(USERS, ITEMS)
    else:
        text = "".join(json.dumps({"item": i, "x": [1], "user": u}) + "\n" for u, i in zip(USERS, ITEMS))
    assert read(pairs_spec(write_file(name, text)), split) == (PAIRS, {})
    assert read(pairs_spec(write_file(name, text.removesuffix("\n"))), split) == (PAIRS, {})
    assert read(pairs_spec(write_file(name, "\ufeff" + text.replace("\n", "\r\n"))), split) == (PAIRS, {})


@pytest.mark.parametrize("split", [None, 20, 7])
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.tsv.zst"])
def test_tsv_has_no_quotes(read, write_file, name, split):
    text = "x\titem\tuser\n" + "".join(f"0\t{i}\t{u}\n" for u, i in zip(USERS, ITEMS))
    assert read(pairs_spec(write_file(name, text)), split) == (PAIRS, {})
    assert read(pairs_spec(write_file(name, text.replace("\n", "\r\n\r\n"))), split) == (PAIRS, {})


def test_csv_newlines_in_quotes(read, write_file):
    users, items = ["a\nb", "c"], ["1\n\n2", "x\r\ny"]
    path = write_file("a.csv", csv_text(users, items))
    assert read(pairs_spec(path, csv_multiline=True))[0] == Counter(zip(users, items))
    # Records that straddle what is read at once.
    with open_input(path) as file:
        spec = pairs_spec(path, csv_multiline=True)
        rows = list(
            Csv().read(
                Piece(path, 0, 1 << 62), file, spec, Kinds("string", ("string",)), Counts(), block_bytes=16
            )
        )
    assert [v for row in rows for v in row.items[0].to_pylist()] == items and len(rows) > 1


def write_parquet(tmp_path, columns, rows=2, **options):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table(columns), path, row_group_size=rows, **options)
    return path


@pytest.mark.parametrize("use_dictionary,split", [(True, None), (False, 50)])
@pytest.mark.parametrize("type", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_parquet_pairs(read, tmp_path, type, use_dictionary, split):
    columns = {"other": [[1]] * len(USERS), "user": pa.array(USERS, type), "item": pa.array(ITEMS, type)}
    path = write_parquet(tmp_path, columns, use_dictionary=use_dictionary)
    assert read(pairs_spec(path), split) == (PAIRS, {})


@pytest.mark.parametrize(
    "values, type",
    [
        ([3, 2**40, -5], pa.int64()),
        ([3, 2, 5], pa.uint8()),
        ([b"\xff", b"", b"\0"], pa.binary()),
        ([b"\xff\x01", b"\0\0", b"zz"], pa.binary(2)),
    ],
)
def test_parquet_other_kinds(read, tmp_path, values, type):
    path = write_parquet(tmp_path, {"user": pa.array(values, type), "item": pa.array(values[::-1], type)})
    expected = Counter((u, i) for u, i in zip(values, values[::-1]) if i != b"")
    assert read(pairs_spec(path, on_null="drop"))[0] == expected


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
def test_composite_items(read, tmp_path, write_file, format):
    users, first, second = ["u", "u", "v"], ["a", "ab", ""], ["bc", "c", "x"]
    numbers = [1, 2, 3] if format != "csv" else ["1", "2", "3"]
    columns = {"user": users, "p": first, "q.r": second, "n": numbers}
    if format == "parquet":
        path = write_parquet(tmp_path, columns)
    elif format == "jsonl":
        path = write_file(
            "a.jsonl", "".join(json.dumps(dict(zip(columns, row))) + "\n" for row in zip(*columns.values()))
        )
    else:
        path = write_file("a.csv", csv_text(*columns.values(), names=tuple(columns)))
    types = ["string", "string", "int"] if format == "jsonl" else None
    spec = InputSpec.create([path], user_column="user", item_columns=["p", "q.r", "n"], item_types=types)
    assert read(spec) == (Counter(zip(users, zip(first, second, numbers))), {})
    assert spec.item_names == ("p", "q.r", "n")


@pytest.mark.parametrize(
    ("type", "split"),
    [(pa.list_(pa.string()), None), (pa.large_list(pa.large_string()), 1), (pa.list_(pa.binary()), 1)],
)
def test_parquet_grouped(read, tmp_path, type, split):
    binary = type.value_type == pa.binary()
    lists = [[v.encode() if binary else v for v in values] for values in LISTS]
    path = write_parquet(tmp_path, {"id": [1, 2, 1, 3], "items": pa.array(lists, type)})
    spec = InputSpec.create([path], layout="grouped", item_columns=["items"])
    assert read(spec, split) == ([sorted(values) for values in lists if values], {})
    spec = InputSpec.create([path], layout="grouped", user_column="id", item_columns=["items"])
    expected = Counter((u, i) for u, values in zip([1, 2, 1, 3], lists) for i in values)
    assert read(spec, split) == (expected, {})


def test_parquet_fixed_size_lists_of_integers(read, tmp_path):
    path = write_parquet(tmp_path, {"items": pa.array([[1, 2], [3, 3]], pa.list_(pa.int32(), 2))})
    assert read(InputSpec.create([path], layout="grouped", item_columns=["items"]))[0] == [[1, 2], [3, 3]]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("split", [None, 25])
def test_jsonl_grouped(read, write_file, name, split):
    text = "".join(json.dumps({"id": n, "items": values}) + "\n\n" for n, values in enumerate(LISTS))
    path = write_file(name, text)
    spec = InputSpec.create([path], layout="grouped", item_columns=["items"])
    assert read(spec, split) == ([sorted(values) for values in LISTS if values], {})
    spec = InputSpec.create([path], layout="grouped", user_column="id", item_columns=["items"])
    assert read(spec, split) == (Counter((u, i) for u, values in enumerate(LISTS) for i in values), {})


def test_jsonl_integers(read, write_file):
    text = '{"user": 9223372036854775807, "item": -9223372036854775808}\n'
    assert read(pairs_spec(write_file("a.jsonl", text), item_types=["int"]))[0] == Counter(
        [(2**63 - 1, -(2**63))]
    )


TEXT = "The cat's  tail\n\nthe END\r\nüber\x0bcat"


@pytest.mark.parametrize("split", [None, 9])
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst"])
def test_text_lines(read, write_file, name, split):
    path = write_file(name, TEXT)
    assert read(InputSpec.create([path]), split) == (
        [["The", "cat's", "tail"], ["END", "the"], ["cat", "über"]],
        {},
    )
    assert read(InputSpec.create([path], lowercase=True, ngrams="1:2"), split)[0][1] == [
        "end",
        "the",
        "the end",
    ]
    # The line end is no part of the document.
    assert read(InputSpec.create([path], token_pattern=r"(?s).$"), split)[0] == [["l"], ["D"], ["t"]]


def test_text_files(read, tmp_path, write_file):
    for name, text in (
        ("a.txt", "\ufeffone two\ntwo"),
        ("b.txt.gz", "three\n"),
        ("c.txt", ""),
        ("d.txt", "..."),
    ):
        write_file(name, text)
    spec = InputSpec.create([f"{tmp_path}/*.txt", f"{tmp_path}/*.gz"], text_layout="file", format="text")
    assert read(spec) == ([["one", "two", "two"], ["three"]], {})
    assert read(spec, 1) == ([["one", "two", "two"], ["three"]], {})


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv", "tsv"])
def test_text_columns(read, tmp_path, write_file, format):
    users, texts = ["u", "v", "u"], ["a b", "b", "a  c"]
    if format == "parquet":
        path = write_parquet(tmp_path, {"user": users, "item": texts})
    elif format == "jsonl":
        path = write_file(
            "a.jsonl", "".join(json.dumps({"user": u, "item": t}) + "\n" for u, t in zip(users, texts))
        )
    else:
        separator = "," if format == "csv" else "\t"
        path = write_file(
            f"a.{format}", "".join(f"{u}{separator}{t}\n" for u, t in zip(["user", *users], ["item", *texts]))
        )
    expected = Counter([("u", "a"), ("u", "b"), ("v", "b"), ("u", "a"), ("u", "c")])
    assert read(pairs_spec(path, tokenizer="words")) == (expected, {})
    one_text = InputSpec.create([path], layout="grouped", item_columns=["item"], tokenizer="words")
    assert read(one_text) == ([["a", "b"], ["b"], ["a", "c"]], {})


def test_lists_of_texts(read, tmp_path, write_file):
    texts = [["a b", "c"], ["d"], ["e f"]]
    path = write_parquet(tmp_path, {"texts": texts})
    spec = InputSpec.create([path], layout="grouped", item_columns=["texts"], tokenizer="words", ngrams="2")
    assert read(spec)[0] == [["a b"], ["e f"]]
    path = write_file("a.jsonl", '{"texts": ["a b", "c"]}\n{"texts": "e f"}\n')
    spec = InputSpec.create([path], layout="grouped", item_columns=["texts"], tokenizer="words", ngrams="2")
    assert read(spec)[0] == [["a b"], ["e f"]]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.csv", "user,item"), ("a.tsv", "user\titem\n"), ("a.jsonl", "\n\n"), ("a.txt", "\n\n")],
)
def test_files_without_a_row(read, write_file, name, text):
    path = write_file(name, text)
    assert not read(InputSpec.create([path]))[0]


@pytest.mark.parametrize("multiline", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_of_one_column(read, write_file, multiline, end):
    """Where a blank line could be a value: it is none, but an empty value in quotes is one, and a space is another."""
    path = write_file("a.csv", end.join(["item", "a b", "", '""', " ", "c", ""]))
    options = {
        "layout": "grouped",
        "item_columns": ["item"],
        "tokenizer": "words",
        "csv_multiline": multiline,
    }
    assert read(InputSpec.create([path], **options)) == ([["a", "b"], ["c"]], {})


def test_a_file_without_a_byte_lacks_its_header_also_where_it_is_compressed(read, write_file):
    path = write_file("a.csv.gz", "")
    with pytest.raises(InputError) as error:
        read(pairs_spec(path))
    assert str(error.value) == (
        f"{path}: an empty file, without even a header; remove it, or leave it out of --input"
    )


@pytest.mark.parametrize("split", [None, 50])
def test_dates_numbers_and_uuids_of_parquet_and_avro_are_the_same(read, tmp_path, split):
    day, time = (
        datetime.date(2026, 11, 1),
        datetime.datetime(2026, 11, 1, 9, 30, tzinfo=datetime.UTC),
    )
    amount, name = decimal.Decimal("12.50"), uuid.UUID(int=7)
    columns = {
        "user": pa.array([name.bytes] * 3, pa.uuid()),
        "day": [day] * 3,
        "time": pa.array([time] * 3, pa.timestamp("us", "UTC")),
        "amount": pa.array([amount] * 3, pa.decimal128(9, 3)),
    }
    expected = {(str(name), ("2026-11-01", "2026-11-01T09:30:00Z", "12.5")): 3}
    options = {"user_column": "user", "item_columns": ["day", "time", "amount"]}
    path = write_parquet(tmp_path, columns)
    assert read(InputSpec.create([path], **options), split)[0] == expected
    logical = {
        "user": {"type": "string", "logicalType": "uuid"},
        "day": ["null", {"type": "int", "logicalType": "date"}],
        "time": {"type": "long", "logicalType": "timestamp-micros"},
        "amount": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    }
    fields = [{"name": name, "type": kind} for name, kind in logical.items()]
    row = {"user": name, "day": day, "time": time, "amount": amount}
    with open(tmp_path / "a.avro", "wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, [row] * 3, codec="snappy")
    assert read(InputSpec.create([f"{tmp_path}/a.avro"], **options), split)[0] == expected


def test_what_avro_has_besides(read, tmp_path):
    """Unions with null, enums used twice, strings that are no UTF-8; other types are named where they are asked for."""
    suit = {"type": "enum", "name": "suit", "symbols": ["HEARTS", "CLUBS"]}
    fields = [
        {"name": "user", "type": ["null", "long"]},
        {"name": "item", "type": suit},
        {"name": "second", "type": "suit"},
        {"name": "text", "type": "string"},
        {"name": "both", "type": ["long", "string"]},
        {"name": "share", "type": "double"},
        {"name": "items", "type": {"type": "array", "items": ["null", "string"]}},
    ]
    rows = [
        {
            "user": n,
            "item": "CLUBS",
            "second": "HEARTS",
            "text": "x",
            "both": 1,
            "share": 0.5,
            "items": ["a", None],
        }
        for n in (1, None, 3)
    ]
    path = tmp_path / "a.avro"
    with open(path, "wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, rows)
    path.write_bytes(path.read_bytes().replace(b"\x02x", b"\x02\xff", 1))

    def avro(**options):
        return read(InputSpec.create([str(path)], on_null="drop", on_bad_row="skip", **options))

    assert avro(item_columns=["item", "second"]) == (
        {(1, ("CLUBS", "HEARTS")): 1, (3, ("CLUBS", "HEARTS")): 1},
        {"null_rows": 1},
    )
    assert avro(item_columns=["text"]) == ({(3, "x"): 1}, {"null_rows": 1, "bad_rows": 1})
    assert avro(layout="grouped", item_columns=["items"]) == ([["a"]] * 3, {"null_rows": 3})
    for column in ("both", "share"):
        with pytest.raises(InputError, match=f"column '{column}' has type "):
            avro(item_columns=[column])
    with pytest.raises(InputError, match=r"--item_column: .* has no column 'none', only user, item, second"):
        avro(item_columns=["none"])


def test_parquet_without_rows(read, tmp_path):
    path = write_parquet(tmp_path, {"user": pa.array([], pa.string()), "item": pa.array([], pa.int64())})
    assert read(pairs_spec(path)) == (Counter(), {})


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
@pytest.mark.parametrize("split", [None, 50])
def test_parquet_strings_that_take_little_without_a_dictionary(read, tmp_path, encoding, split):
    """Two bytes a value and less: no sign of a dictionary."""
    users, items = [f"a user {i // 9:06}" for i in range(900)], [f"{i % 9}" for i in range(900)]
    columns = {"user": users, "item": items, "items": [[item, "x"] for item in items]}
    leaves = dict.fromkeys(("user", "item", "items.list.element"), encoding)
    path = write_parquet(tmp_path, columns, rows=300, use_dictionary=False, column_encoding=leaves)
    assert read(pairs_spec(path), split) == (Counter(zip(users, items)), {})
    grouped = InputSpec.create([path], item_columns=["items"], layout="grouped")
    assert read(grouped, split)[0] == [sorted([item, "x"]) for item in items]


def test_dictionary_items_reach_the_output(tmp_path):
    """What makes Parquet fast: items that are stored as a dictionary are decoded once per row group."""
    pairs = [(f"u{i % 7}", f"a long and frequent item {i % 3}") for i in range(1000)]
    encoded = pa.dictionary(pa.int32(), pa.large_binary())
    for stored, kind in ((True, encoded), (False, pa.large_binary())):
        table = pa.table({"user": [u for u, _ in pairs], "item": [i for _, i in pairs]})
        path = str(tmp_path / f"{stored}.parquet")
        pq.write_table(table, path, use_dictionary=stored, row_group_size=300)
        unit = WorkUnit((Piece(path, 0, 1 << 30),))
        batches = list(read_scattered(unit, pairs_spec(path), Kinds("string", ("string",)), Counts()))
        assert len(batches) == 1  # row groups are gathered
        assert batches[0].schema.field("item").type == kind
        assert [row["item"].decode() for row in batches[0].to_pylist()] == [item for _, item in pairs]


def test_parquet_lists_come_in_bounded_batches(tmp_path):
    lists = [list(range(6_000))] * 180  # 1.08 million values in one row group
    path = write_parquet(
        tmp_path, {"user": range(180), "item": pa.array(lists, pa.list_(pa.int32()))}, rows=180
    )
    spec = pairs_spec(path, layout="grouped")
    unit = WorkUnit((Piece(path, 0, 1 << 30),))
    sizes = [batch.num_rows for batch in read_scattered(unit, spec, Kinds("int", ("int",)), Counts())]
    assert sum(sizes) == 1_080_000 and max(sizes) <= 1_000_000


def test_blocks_hold_whole_users(tmp_path):
    generator = np.random.default_rng(1)
    lists = [[int(i) for i in generator.integers(0, 9, n)] for n in generator.integers(0, 40, 500)]
    path = write_parquet(tmp_path, {"items": lists}, rows=70)
    spec = InputSpec.create([path], layout="grouped", item_columns=["items"])
    unit = WorkUnit((Piece(path, 0, 1 << 30),))
    blocks = list(read_complete(unit, spec, Kinds(None, ("int",)), Counts(), target_pairs=1000))
    sizes = [batch.num_rows for _, batch in blocks]
    assert all(500 <= size <= 1540 for size in sizes) and sum(sizes) == sum(map(len, lists))
    assert len({number for number, _ in blocks}) == len(blocks)
    assert all(0 < number < 2**63 for number, _ in blocks)
    users = sum(batch.column("user")[-1].as_py() + 1 for _, batch in blocks)
    assert users == sum(1 for values in lists if values)
    again = list(read_complete(unit, spec, Kinds(None, ("int",)), Counts(), target_pairs=1000))
    assert all(a[0] == b[0] and a[1].equals(b[1], check_metadata=True) for a, b in zip(blocks, again))


def test_shapes_are_not_confused(tmp_path):
    path = write_parquet(tmp_path, {"user": USERS, "item": ITEMS})
    unit = WorkUnit((Piece(path, 0, 1 << 30),))
    with pytest.raises(ValueError, match="does not declare complete users"):
        next(read_complete(unit, pairs_spec(path), Kinds("string", ("string",)), Counts()))
    with pytest.raises(ValueError, match="declares complete users"):
        next(read_scattered(unit, InputSpec.create(["a.txt"]), Kinds(None, ("string",)), Counts()))
