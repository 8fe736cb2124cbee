"""Bad input: every message word for word, with file and line or row, and nothing of the data in it."""

import csv
import json
import os
import re
import uuid
from base64 import b64encode
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from itertools import permutations

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.cli import main
from dpbeam.errors import InputError
from dpbeam.io.formats.delimited import Csv
from dpbeam.io.readers import Piece, WorkUnit, read_scattered
from dpbeam.io.rows import Counts
from dpbeam.io.sources import preflight
from dpbeam.io.spec import InputSpec
from dpbeam.kernels.canonical import Kinds
from tests.support.input import pairs_spec
from tests.support.input import read as read_all
from tests.support.kill_at import in_child

SECRET = "secret-value"
CONVERT = "convert the file if it has another encoding, as iconv -f CP1252 -t UTF-8 does"


@pytest.fixture
def refused(read):
    """The message of the error that reading a file gives, with the path replaced by FILE."""

    def message(path, split=None, **options):
        if not path.endswith(".txt"):
            options = {"user_column": "user", "item_columns": ["item"], **options}
        with pytest.raises(InputError) as error:
            read(InputSpec.create([path], **options), split)
        text = str(error.value)
        assert "\n" not in text and SECRET not in text
        return text.replace(path, "FILE")

    return message


def parquet(tmp_path, name="a.parquet", rows=2, **columns):
    path = str(tmp_path / name)
    pq.write_table(pa.table(columns), path, row_group_size=rows)
    return path


def jsonl(*rows):
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def good(n, **more):
    return [{"user": f"u{i}", "item": SECRET, **more} for i in range(n)]


# ---- files


def test_missing_files(tmp_path, refused):
    assert refused(f"{tmp_path}/a.csv") == "--input: no such file: 'FILE'"
    assert refused(f"{tmp_path}/*.csv") == "--input: no file matches 'FILE'"
    assert refused(f"{tmp_path}/none/*.csv") == "--input: no file matches 'FILE'"
    assert refused(str(tmp_path), format="csv") == "--input: the folder 'FILE' holds no file to read"
    assert refused("nowhere://a.csv").startswith("--input: cannot look up 'FILE': ")


def test_unreadable_file(write_file, refused, monkeypatch):
    path = write_file("a.csv", "user,item\n")
    if os.geteuid():
        os.chmod(path, 0)
    else:  # the superuser may read everything
        from dpbeam.storage.local import LocalFiles

        def deny(*_, **__):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(LocalFiles, "open", deny)
    assert refused(path) == "FILE: cannot be read: Permission denied"


def test_damaged_parquet(tmp_path, write_file, refused):
    path = parquet(tmp_path, user=["u"] * 1000, item=[SECRET + str(i) for i in range(1000)])
    whole = (tmp_path / "a.parquet").read_bytes()
    assert (
        refused(write_file("a.parquet", "a,b\n")) == "FILE: not a Parquet file; pass the right --input_format"
    )
    assert refused(write_file("a.parquet", whole[: len(whole) // 2])) == "FILE: truncated Parquet file"
    assert refused(write_file("a.parquet", whole[:4] + b"x" * 100 + b"PAR1")) == "FILE: damaged Parquet file"
    # A page that rots behind a healthy footer is found by the worker.
    start = 60
    assert refused(write_file("a.parquet", whole[:start] + b"\xff" * 200 + whole[start + 200 :])) == (
        "FILE: damaged Parquet file"
    )
    assert path.endswith("a.parquet")


def test_checksums_of_parquet_pages(tmp_path, write_file, read, refused):
    """A page that is not compressed may rot into another value; writers may add a checksum, and need not."""
    table = pa.table({"user": ["ann", "ben"], "item": ["tea", "tea"]})
    written = {}
    for checksum in (True, False):
        path = str(tmp_path / "a.parquet")
        plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        pq.write_table(table, path, write_page_checksum=checksum, **plain)
        written[checksum] = (tmp_path / "a.parquet").read_bytes()
        assert read(pairs_spec(path)) == ({("ann", "tea"): 1, ("ben", "tea"): 1}, {})
    rotten = written[True].replace(b"ben", b"ann", 1)
    assert refused(write_file("a.parquet", rotten)) == "FILE: damaged Parquet file"
    rotten = written[False].replace(b"ben", b"ann", 1)
    assert read(pairs_spec(write_file("a.parquet", rotten))) == ({("ann", "tea"): 2}, {})


class _Keys(encryption.KmsClient):
    """Keeps every key in the file, in the clear."""

    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key_bytes, master_key_identifier):
        return b64encode(key_bytes)


def encrypted_parquet(path, columns, footer):
    text = [f"{n % 3}" for n in range(9)]
    table = pa.table(dict.fromkeys(("first", "user", "item", "other"), text) | {"items": [text] * 9})
    config = encryption.EncryptionConfiguration(
        footer_key="a",
        column_keys={"b": columns} if columns else {},
        uniform_encryption=not columns,
        plaintext_footer=footer,
    )
    factory = encryption.CryptoFactory(_Keys)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)


def test_encrypted_parquet(tmp_path, capfd):
    """In a process of its own: asked what is stored of such a column, Arrow ends it."""
    cases = [
        (["user", "item"], True, "column 'user' is encrypted; "),
        (["item"], True, "column 'item' is encrypted; "),
        (["items.list.element"], True, "column 'items.list.element' is encrypted; "),
        (["first"], True, "column 'first' is encrypted; "),
        ([], True, ""),  # the footer too
        (["user"], False, ""),
        (["other"], True, None),
    ]

    def codes() -> int:
        for number, (columns, footer, named) in enumerate(cases):
            encrypted_parquet(f"{tmp_path}/{number}.parquet", columns, footer)
            item, layout = ("items", "grouped") if "items" in "".join(columns) else ("item", "pairs")
            flags = [f"--item_column={item}", f"--input_layout={layout}", "--epsilon=1", "--delta=1e-6"]
            files = [f"--input={tmp_path}/{number}.parquet", f"--output={tmp_path}/out{number}"]
            assert main(["select", *files, *flags, "--user_column=user", "--quiet"]) == (
                2 if named is not None else 0
            )
        return 0

    assert in_child(codes) == 0
    *refusals, _ = capfd.readouterr().err.splitlines()  # of what was read nothing is released
    assert refusals == [
        f"dpbeam select: error: {tmp_path}/{number}.parquet: {named}encrypted Parquet is not read; "
        "write the file anew without encryption"
        for number, (_, _, named) in enumerate(cases)
        if named is not None
    ]


def test_wrong_format(tmp_path, write_file, refused):
    path = parquet(tmp_path, user=["u"], item=["i"])
    for format in ("csv", "tsv", "jsonl"):
        assert refused(path, format=format) == (
            f"FILE: is a Parquet file, not {format}; pass --input_format=parquet"
        )
    compressed = pa.compress(b"user,item\n", codec="gzip", asbytes=True)
    assert refused(write_file("a.csv", compressed)) == "FILE: is a gzip file, not csv; name it .gz"
    assert refused(write_file("a.txt", compressed)) == "FILE: is a gzip file, not text; name it .gz"


# ---- columns


@pytest.mark.parametrize(
    "columns, options, message",
    [
        ({"item": ["i"]}, {}, "--user_column: FILE has no column 'user', only item"),
        ({"user": ["u"]}, {}, "--item_column: FILE has no column 'item', only user"),
        (
            {"user": [1.5], "item": ["i"]},
            {},
            "FILE: column 'user' has type double; users and items are strings, integers or bytes; "
            "convert the column to one of these",
        ),
        (
            {"user": ["u"], "item": [True]},
            {},
            "FILE: column 'item' has type bool; users and items are strings, integers or bytes; "
            "convert the column to one of these",
        ),
        (
            {"user": ["u"], "item": [["i"]]},
            {},
            "FILE: column 'item' is a list column; pass --input_layout=grouped for one user per row",
        ),
        (
            {"user": ["u"], "item": ["i"]},
            {"layout": "grouped"},
            "FILE: column 'item' has type string, but --input_layout=grouped needs a list column; "
            "use --input_layout=pairs for one item per row",
        ),
        (
            {"user": ["u"], "item": [[1.5]]},
            {"layout": "grouped"},
            "FILE: column 'item' has type double; users and items are strings, integers or bytes; "
            "convert the column to one of these",
        ),
        (
            {"user": ["u"], "item": [1]},
            {"tokenizer": "words"},
            "FILE: column 'item' has type int64, but --tokenizer needs a string column",
        ),
        (
            {"user": pa.array([2**63], pa.uint64()), "item": ["i"]},
            {},
            "FILE: column 'user' has integers above 2^63 - 1; convert the column to strings",
        ),
    ],
)
def test_parquet_columns(tmp_path, refused, columns, options, message):
    assert refused(parquet(tmp_path, **columns), **options) == message


def test_repeated_parquet_column(tmp_path, refused):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table([["u"], ["i"], ["j"]], names=["user", "item", "item"]), path)
    assert refused(path) == "--item_column: FILE has several columns 'item'"


def test_other_columns_of_one_name(tmp_path, write_file, read):
    names, values = ["x", "user", "x", "item", "x"], [["a"], ["u"], ["b"], ["i"], ["c"]]
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table(values, names=names), path)
    assert read(pairs_spec(path)) == ({("u", "i"): 1}, {})
    for name, mark in (("a.csv", ","), ("a.tsv", "\t")):
        rows = [mark.join(names), mark.join(value for (value,) in values)]
        assert read(pairs_spec(write_file(name, "\n".join(rows)))) == ({("u", "i"): 1}, {})
    text = '{"x": 1, "user": "u", "x": 2, "item": "i"}'
    assert read(pairs_spec(write_file("a.jsonl", text))) == ({("u", "i"): 1}, {})


@pytest.mark.parametrize("format", ["csv", "tsv"])
def test_delimited_columns(write_file, refused, format):
    comma = "," if format == "csv" else "\t"
    hint = f"; the first line must be a header of {format} column names"
    path = write_file(f"a.{format}", f"u{comma}{SECRET}\n")
    assert refused(path) == f"--user_column, --item_column: FILE has no columns 'user', 'item'{hint}"
    path = write_file(f"a.{format}", f"user{comma}itm{comma}n\n")
    assert refused(path) == "--item_column: FILE has no column 'item', only user, itm, n"
    path = write_file(f"a.{format}", f"user{comma}item{comma}item\n")
    assert refused(path) == "--item_column: FILE has several columns 'item'"


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_columns_that_nobody_names(tmp_path, write_file, read, name):
    """As in memory: `user` and `item` where the file has them; else one error names all that is missing."""

    def written(user, item):
        if name == "a.parquet":
            return parquet(tmp_path, **{user: ["u", "v"], item: ["i", "j"]})
        if name == "a.jsonl":
            return write_file(name, jsonl(*({user: u, item: i} for u, i in (("u", "i"), ("v", "j")))))
        return write_file(name, f"{user},{item}\nu,i\nv,j\n".replace(",", "\t" if "tsv" in name else ","))

    def message(path, **options):
        with pytest.raises(InputError) as error:
            read(InputSpec.create([path], **options))
        return str(error.value).replace(path, "FILE")

    path = written("user", "item")
    assert read(InputSpec.create([path])) == ({("u", "i"): 1, ("v", "j"): 1}, {})
    assert read(InputSpec.create([path], item_columns=["user"], user_column="item"))[0] == {
        ("i", "u"): 1,
        ("j", "v"): 1,
    }
    path = written("user", "thing")
    assert message(path).startswith("--item_column is required: FILE has no column 'item', only ")
    path = written("who", "thing")
    both = message(path)
    assert both.startswith("--user_column, --item_column are required: FILE has no columns 'user', 'item'")
    assert both.endswith("pass --input_layout=grouped if every row is one user") or "header" in both
    assert message(path, user_column="who", item_columns=["a", "b"]).startswith(
        "--item_column: FILE has no columns 'a', 'b', only "
    )
    if name == "a.parquet":  # a row is a user: nobody may become one by the name of a column
        spec = InputSpec.create([path], layout="grouped", item_columns=["thing"], tokenizer="words")
        assert spec.complete_users and spec.user_column is None


def test_headers_that_are_nearly_right(write_file, refused, read):
    path = write_file("a.csv", "user;item\nu;i\n")
    assert refused(path) == (
        "--user_column, --item_column: FILE has no columns 'user', 'item'; its fields seem to be separated by ';': "
        "pass --csv_delimiter=';'"
    )
    assert read(pairs_spec(path, csv_delimiter=";")) == ({("u", "i"): 1}, {})
    path = write_file("a.csv", "user, item\nu,i\n")
    assert refused(path) == (
        "--item_column: FILE has no column 'item', only user and 1 more; blanks stand around 'item' in its header: "
        "fix it, or name the column with them"
    )
    spec = InputSpec.create([path], user_column="user", item_columns=[" item"])
    assert read(spec)[0] == {("u", "i"): 1}


@pytest.mark.parametrize("mark", [";", "|", "^", "-", "]", "\\", "\t"])
def test_other_delimiters_of_csv(write_file, read, refused, mark):
    """With quotes as ever: what stands in them is no delimiter, and one out of place costs its own row."""
    lines = ["user,item", 'u,"a,b"', "v,c", 'w,"x"y"z"', "x,d,e"]
    path = write_file("a.csv", "".join(line.replace(",", mark) + "\n" for line in lines))
    assert refused(path, csv_delimiter=mark).startswith("FILE:4: a quote inside a value is not doubled")
    for split in (None, 5):
        kept = read(pairs_spec(path, csv_delimiter=mark, on_bad_row="skip"), split)
        assert kept == ({("u", f"a{mark}b"): 1, ("v", "c"): 1}, {"bad_rows": 2})
    for wrong in ("ab", '"', "\n", "é"):
        with pytest.raises(InputError, match="--csv_delimiter: expected one character of ASCII"):
            pairs_spec(path, csv_delimiter=wrong)
    with pytest.raises(InputError, match="--csv_delimiter: is for --input_format=csv, not tsv"):
        pairs_spec("a.tsv", csv_delimiter=";")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_header_that_holds_rows_is_not_shown(write_file, refused, name):
    """Behind carriage returns 30 users and items were taken for names of columns, and printed."""
    mark = "," if name == "a.csv" else "\t"
    rows = "\r".join(f"{SECRET}{n}{mark}item{n}" for n in range(30))
    for end in ("", "\n", f"\nu{mark}i\n"):
        path = write_file(name, f"user{mark}thing\r{rows}{end}")
        message = refused(path)
        assert "carriage returns alone" in message or "its header cannot be read" in message
    path = write_file(name, f"user{mark}thing{mark}{SECRET} is what he said! {mark}+49 151 1\n")
    assert "only user, thing and 2 more" in refused(path)


def test_a_row_that_is_no_utf_8_and_has_other_fields_prints_nothing(write_file, read, refused, capfd):
    path = write_file("a.csv", b"user,item\nu,\xff,x\nv,i\n\xffw\n")
    assert refused(path) == f"FILE:2: malformed row, not valid UTF-8; {CONVERT}"
    assert read(pairs_spec(path, on_bad_row="skip")) == ({("v", "i"): 1}, {"bad_rows": 2})
    assert capfd.readouterr().err == ""


def test_jsonl_columns(write_file, refused):
    path = write_file("a.jsonl", jsonl(*({"user": "u", "itm": SECRET} for _ in range(3))))
    assert refused(path) == "--item_column: FILE has no column 'item', only itm, user"
    path = write_file("a.jsonl", jsonl({"user": "u", SECRET: "i"}))  # one row's keys may be its content
    assert refused(path) == "--item_column: FILE has no column 'item'"
    path = write_file("a.jsonl", jsonl({"user": "u", "item": 3}, {"user": "u", "item": "text"}))
    assert refused(path, tokenizer="words") == (
        "FILE:1: column 'item' holds an integer where a string is expected; fix the line, or pass --on_bad_row=skip"
    )


TIME = datetime(2026, 11, 1)
WHO = uuid.UUID(int=0xABC)
#: Columns that may name one person, as text the same or not.
DAY = ("date", pa.array([TIME], pa.date32()))
MOMENT = ("timestamp", pa.array([TIME], pa.timestamp("us")))
ZONED = ("timestamp with a time zone", pa.array([TIME], pa.timestamp("ms", "Europe/Berlin")))
AMOUNT = ("decimal", pa.array([Decimal("12.50")], pa.decimal128(9, 2)))
PADDED = ("string", pa.array(["12.50"]))
DAY_TEXT = ("string", pa.array(["2026-11-01"], pa.large_string()))
UPPER = ("string", pa.array([str(WHO).upper()]).dictionary_encode())
if int(pa.__version__.partition(".")[0]) < 21:
    WHO_TYPED = ("bytes", pa.array([WHO.bytes], pa.uuid()))  # of Parquet
else:
    WHO_TYPED = ("UUID", pa.array([WHO.bytes], pa.uuid()))
PAIRS = [(DAY, MOMENT), (MOMENT, ZONED), (DAY, DAY_TEXT), (UPPER, WHO_TYPED), (AMOUNT, PADDED), (DAY, AMOUNT)]


@pytest.mark.parametrize("column", ["user", "item"])
@pytest.mark.parametrize("types", [*PAIRS, *(pair[::-1] for pair in PAIRS)])
def test_types_that_differ_between_files(tmp_path, read, column, types):
    """Of one kind, string: what they write of one value may differ."""
    (first, values), (second, others) = types
    columns = {"user": ["u"], "item": ["i"]}
    for name, array in (("a.parquet", values), ("b.parquet", others)):
        parquet(tmp_path, name, **columns | {column: array})
    spec = pairs_spec(f"{tmp_path}/*.parquet")
    message = (
        f"{tmp_path}/b.parquet: column '{column}' holds {second} values where {{}} holds {first} values; ids must have "
        "one type throughout, convert them"
    )
    with pytest.raises(InputError) as error:
        read(spec)
    assert str(error.value) == message.format(f"{tmp_path}/a.parquet")
    # A worker refuses too, should the launcher not have looked at that file.
    kinds = preflight(pairs_spec(f"{tmp_path}/a.parquet")).kinds
    with pytest.raises(InputError) as error:
        list(read_scattered(WorkUnit((Piece(f"{tmp_path}/b.parquet", 0, 1 << 30),)), spec, kinds, Counts()))
    assert str(error.value) == message.format("other input")


@pytest.mark.parametrize(
    "arrays",
    [
        [pa.array(["x"], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())]
        + [pa.array(["x"]).dictionary_encode(), pa.array(["x"], pa.large_string()).dictionary_encode()],
        [pa.array([7], kind) for kind in (pa.int8(), pa.int32(), pa.int64(), pa.uint32())],
        [pa.array([b"ab"], kind) for kind in (pa.binary(), pa.large_binary(), pa.binary(2))],
        [pa.array([TIME], kind) for kind in (pa.date32(), pa.date64())],
        [pa.array([TIME], pa.timestamp(unit)) for unit in ("ms", "us", "ns")],
        [pa.array([TIME], pa.timestamp("us", zone)) for zone in ("UTC", "Europe/Berlin")],
        [pa.array([Decimal("1.5")], kind) for kind in (pa.decimal128(9, 1), pa.decimal128(20, 9))],
    ],
)
@pytest.mark.parametrize("flag", [False, True])
def test_types_that_write_the_same(tmp_path, read, arrays, flag):
    for number, array in enumerate(arrays):
        parquet(tmp_path, f"{number}.parquet", user=array, item=array)
    kind = preflight(pairs_spec(f"{tmp_path}/*.parquet")).kinds.item
    spec = pairs_spec(f"{tmp_path}/*.parquet", item_types=list(kind) if flag else None)
    (pair,) = read(spec)[0].items()
    assert pair[0][0] == pair[0][1] and pair[1] == len(arrays)


def test_types_that_differ_though_a_flag_names_their_kind(tmp_path, refused):
    for name, array in (("a.parquet", DAY[1]), ("b.parquet", MOMENT[1])):
        parquet(tmp_path, name, user=["u"], item=array)
    message = refused(f"{tmp_path}/*.parquet", item_types=["string"])
    assert "column 'item' holds timestamp values where" in message


AVRO = {
    "date": ({"type": "int", "logicalType": "date"}, TIME.date()),
    "timestamp": ({"type": "long", "logicalType": "local-timestamp-micros"}, TIME),
    "timestamp with a time zone": (
        {"type": "long", "logicalType": "timestamp-millis"},
        TIME.replace(tzinfo=UTC),
    ),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("12.50")),
    "UUID": ({"type": "string", "logicalType": "uuid"}, WHO),
    "string": ("string", str(WHO).upper()),
}


@pytest.mark.parametrize("types", list(permutations(AVRO, 2)))
def test_types_that_differ_between_files_of_avro(tmp_path, refused, types):
    for name, type in zip(("a.avro", "b.avro"), types):
        schema, value = AVRO[type]
        fields = [{"name": "user", "type": ["null", schema]}, {"name": "item", "type": "string"}]
        with open(tmp_path / name, "wb") as file:
            row = {"user": value, "item": SECRET}
            fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, [row])
    assert refused(f"{tmp_path}/*.avro") == (
        f"{tmp_path}/b.avro: column 'user' holds {types[1]} values where {tmp_path}/a.avro holds {types[0]} values; "
        "ids must have one type throughout, convert them"
    )


def test_columns_of_nulls_fit_every_kind(tmp_path, read):
    parquet(tmp_path, "a.parquet", user=pa.nulls(2), item=pa.array(["i", "j"]))
    parquet(tmp_path, "b.parquet", user=[7], item=["i"])
    spec = pairs_spec(f"{tmp_path}/*.parquet", on_null="drop")
    assert read(spec) == ({(7, "i"): 1}, {"null_rows": 2})


# ---- nulls


def test_parquet_nulls(tmp_path, refused):
    path = parquet(tmp_path, user=[f"u{i}" for i in range(9)], item=["i"] * 8 + [None])
    for split in (None, 1):  # rows are numbered in the file, not in what a worker reads
        assert refused(path, split) == (
            "FILE: row 9: null in column 'item'; pass --on_null=drop to drop such rows"
        )
    composite = parquet(tmp_path, user=["u", "v"], item=["i", "j"], part=[1, None])
    assert refused(composite, item_columns=["item", "part"]) == (
        "FILE: row 2: null in column 'part'; pass --on_null=drop to drop such rows"
    )


def test_grouped_nulls_of_users_with_names(tmp_path, read, refused):
    rows = [["a"], None, ["b", None, "c"], []]
    path = parquet(tmp_path, rows=4, user=["u", "v", "w", "x"], item=rows)
    message = "FILE: row 2: null in column 'item'; pass --on_null=drop to drop such rows"
    assert refused(path, layout="grouped") == message
    kept, counts = read(pairs_spec(path, layout="grouped", on_null="drop"))
    assert kept == {("u", "a"): 1, ("w", "b"): 1, ("w", "c"): 1} and counts == {"null_rows": 2}


# ---- malformed rows


@pytest.mark.parametrize("split", [None, 9])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_malformed_csv(write_file, read, refused, suffix, split):
    text = f'user,item\n"a,b",i\n\nu,{SECRET},x\n{SECRET}\nv,j\n,k\n'
    path = write_file("a.csv" + suffix, text)
    assert refused(path, split) == (
        "FILE:4: malformed row: 3 fields where the header has 2; fix the line, or pass --on_bad_row=skip"
    )
    # Lines are right behind skipped rows, too.
    assert refused(path, split, on_bad_row="skip") == (
        "FILE:7: null in column 'user'; pass --on_null=drop to drop such rows"
    )
    spec = pairs_spec(path, on_bad_row="skip", on_null="drop")
    assert read(spec, split) == ({("a,b", "i"): 1, ("v", "j"): 1}, {"bad_rows": 2, "null_rows": 1})


def test_malformed_csv_of_several_lines_a_row(write_file, read, refused):
    text = f'user,item\n"a\n\nb",i\n\nu,{SECRET},x\n{SECRET}\nv,j\n,k\n'
    path = write_file("a.csv", text)
    assert refused(path, csv_multiline=True) == (
        "FILE:6: malformed row: 3 fields where the header has 2; fix the line, or pass --on_bad_row=skip"
    )
    options = {"csv_multiline": True, "on_bad_row": "skip"}
    assert refused(path, **options) == "FILE:9: null in column 'user'; pass --on_null=drop to drop such rows"
    kept = read(pairs_spec(path, on_null="drop", **options))
    assert kept == ({("a\n\nb", "i"): 1, ("v", "j"): 1}, {"bad_rows": 2, "null_rows": 1})


@pytest.mark.parametrize("split", [None, 12])
def test_malformed_tsv(write_file, read, refused, split):
    text = "user\titem\n\nu\ti\n\n" + f"u\t{SECRET}\tx\n" + "v\tj\n\tk\n"
    path = write_file("a.tsv", text)
    assert refused(path, split) == (
        "FILE:5: malformed row: 3 fields where the header has 2; fix the line, or pass --on_bad_row=skip"
    )
    assert refused(path, split, on_bad_row="skip") == (
        "FILE:7: null in column 'user'; pass --on_null=drop to drop such rows"
    )
    spec = pairs_spec(path, on_bad_row="skip", on_null="drop")
    assert read(spec, split) == ({("u", "i"): 1, ("v", "j"): 1}, {"bad_rows": 1, "null_rows": 1})


UNEVEN = (
    "a quoted value does not end on its line, or a quote inside a value is not doubled; "
    "fix the line, or pass --csv_multiline if values hold line breaks"
)
UNENDED = "a quoted value that begins here does not end, or a quote before it is not doubled; fix the file"
MISPLACED = (
    "a quote inside a value is not doubled, or a value with quotes or a carriage return is not quoted as a "
    "whole; "
)


@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
@pytest.mark.parametrize("split", [None, 8])
def test_two_rows_of_one_user_swallow_no_others(write_file, refused, on_bad_row, split):
    """Both quotes are the same user's: together they are even, and all rows between were part of one value."""
    rows = "".join(f"u{n},common\n" for n in range(50))
    path = write_file("a.csv", f'user,item\nv,"{SECRET}\n{rows}v,"b\n')
    assert refused(path, split, on_bad_row=on_bad_row) == f"FILE:2: {UNEVEN}"
    message = f"FILE:2: {MISPLACED}fix the file"
    assert refused(path, split, on_bad_row=on_bad_row, csv_multiline=True) == message


@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
def test_a_quote_that_does_not_end_is_an_error_also_where_rows_are_skipped(write_file, refused, on_bad_row):
    path = write_file("a.csv", f'user,item\nu,i\nv,"{SECRET}\nw,j\nx,k\n')
    assert refused(path, on_bad_row=on_bad_row) == f"FILE:3: {UNEVEN}"
    assert refused(path, on_bad_row=on_bad_row, csv_multiline=True) == f"FILE:3: {UNENDED}"


@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
def test_a_value_of_several_lines_forges_no_rows(write_file, read, refused, on_bad_row):
    """Skipping its first line would make rows of other users out of one user's value."""
    forged = "".join(f"w{n},forged\n" for n in range(9))
    path = write_file("a.csv", f'user,item\nu,i\nv,"{SECRET}\n{forged}"\n')
    assert refused(path, on_bad_row=on_bad_row) == f"FILE:3: {UNEVEN}"
    kept, _ = read(pairs_spec(path, csv_multiline=True, on_bad_row=on_bad_row))
    assert kept == {("u", "i"): 1, ("v", f"{SECRET}\n{forged}"): 1}


@pytest.mark.parametrize(
    "line",
    [
        'v,a"b"c',
        'v,"a"b"c"',
        'v", "a',
        'v",b,"c',
        'v,x "a',
        'v,"a" ',
        'v,"a""b" c""',
        "v,a\rw,b",
        'v,"a"\rw,b',
    ],
)
@pytest.mark.parametrize("multiline", [False, True])
def test_quotes_out_of_place_cost_their_own_row(write_file, read, refused, line, multiline):
    """Even in number, and yet Arrow takes some of them for the beginning of a value that holds other rows."""
    line = line if line.count('"') % 2 == 0 else line + '"'
    path = write_file("a.csv", f"user,item\nu,i\n{line}\nw,j\nx,k\n")
    assert (
        refused(path, csv_multiline=multiline)
        == f"FILE:3: {MISPLACED}fix the line, or pass --on_bad_row=skip"
    )
    for split in (None, 5):
        kept = read(pairs_spec(path, on_bad_row="skip", csv_multiline=multiline), split)
        assert kept == ({("u", "i"): 1, ("w", "j"): 1, ("x", "k"): 1}, {"bad_rows": 1})


@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
def test_a_row_of_several_lines_is_never_skipped(write_file, refused, on_bad_row):
    """Well quoted, and with a field too many: what it swallows may be other users' rows."""
    path = write_file("a.csv", f'user,item\nu,i\nv,"{SECRET}\nw,j\nx,k\n","b"\ny,l\n')
    message = refused(path, csv_multiline=True, on_bad_row=on_bad_row)
    assert message.startswith("FILE:3: malformed row") and ("fix the file" in message) == (
        on_bad_row == "skip"
    )


@pytest.mark.parametrize("multiline", [False, True])
def test_a_header_in_quotes(write_file, read, refused, multiline):
    path = write_file("a.csv", '\n"user","item ""x"""\nu,i\n')
    spec = InputSpec.create([path], user_column="user", item_columns=['item "x"'], csv_multiline=multiline)
    assert read(spec) == ({("u", "i"): 1}, {})
    path = write_file("a.csv", f'user,item,"{SECRET}\nu,i,j\n')
    assert refused(path, csv_multiline=multiline) == "FILE: its header cannot be read; is it csv in UTF-8?"
    path = write_file("a.csv", 'user,"a\nb",item\nu,x,i\n')
    if multiline:
        assert read(pairs_spec(path, csv_multiline=True)) == ({("u", "i"): 1}, {})
    else:
        assert refused(path) == "FILE: its header cannot be read; is it csv in UTF-8?"


@pytest.mark.parametrize("split", [None, 5])
def test_a_carriage_return_ends_no_line_of_tsv(write_file, read, refused, split):
    path = write_file("a.tsv", f"user\titem\nu\ti\nv\t{SECRET}\rw0\tforged\rw1\tforged\nx\tk\n")
    assert refused(path, split) == (
        "FILE:3: a carriage return inside the line; fix the line, or pass --on_bad_row=skip"
    )
    kept = read(pairs_spec(path, on_bad_row="skip"), split)
    assert kept == ({("u", "i"): 1, ("x", "k"): 1}, {"bad_rows": 1})


def test_csv_quote_that_does_not_end_in_a_large_file(write_file, refused):
    path = write_file("a.csv", 'user,item\nv,"' + "w,j\n" * 2_500_000)
    assert refused(path) == f"FILE:2: {UNEVEN}"
    assert refused(path, csv_multiline=True) == f"FILE:2: {UNENDED}"


LINES = st.lists(
    st.sampled_from(['u,"a"', "u,a", 'u,"', 'u,"a,""b"', '"', 'a"b', "", 'x"', '","', "\r", '"a"\r'])
)


@settings(max_examples=60)
@given(LINES, st.sampled_from([None, 3, 11]))
def test_no_line_of_csv_changes_how_others_are_read(tmp_path_factory, lines, split):
    """Whatever the lines: each is a row of its own, a bad row, or the file is refused."""
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(b"user,item\n" + "".join(f"{line}\n" for line in ["first,i", *lines, "last,i"]).encode())
    spec = pairs_spec(str(path), on_bad_row="skip", on_null="drop")
    if any(line.count('"') % 2 for line in lines):
        with pytest.raises(InputError):
            read_all(spec, split)
        return
    alone = [csv_row(line) for line in lines]
    kept, counts = read_all(spec, split)
    assert kept == Counter([("first", "i"), ("last", "i"), *(row for row in alone if row)])
    assert sum(kept.values()) + sum(counts.values()) == 2 + sum(bool(line.strip("\r")) for line in lines)


def csv_row(line):
    """What a line of the property above means on its own, by the standard library's strict parser."""
    try:
        rows = list(csv.reader([line.removesuffix("\r")], strict=True))
    except csv.Error:
        return None
    out_of_place = '"' in line and not re.fullmatch(r'[^"]*(,?"([^"]|"")*",?)+[^"]*', line.removesuffix("\r"))
    if len(rows) != 1 or len(rows[0]) != 2 or "" in rows[0] or out_of_place:
        return None
    return tuple(rows[0])


@pytest.mark.parametrize(
    "line, problem",
    [
        (f'{{"user": "{SECRET}", ', "not a JSON value"),
        ("{'user': 1}", "not a JSON value"),
        ("[1, 2]", "a list where an object is expected"),
        ("17", "an integer where an object is expected"),
        (
            '{"user": true, "item": "i"}',
            "column 'user' holds true or false where a string is expected",
        ),
        (
            '{"user": "u", "item": 1.0}',
            "column 'item' holds a number that is no 64-bit integer where a string is expected",
        ),
        (
            '{"user": "u", "item": ["i"]}',
            "column 'item' holds a list where a string is expected",
        ),
    ],
)
@pytest.mark.parametrize("split", [None, 50])
def test_malformed_jsonl(write_file, read, refused, line, problem, split):
    path = write_file("a.jsonl", jsonl(*good(2), "", line, *good(1)))
    assert refused(path, split) == f"FILE:4: {problem}; fix the line, or pass --on_bad_row=skip"
    spec = pairs_spec(path, on_bad_row="skip")
    kept, counts = read(spec, split)
    assert sum(kept.values()) == 3 and counts == {"bad_rows": 1}


@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(
    "indent, several, what",
    [
        (None, True, "a JSON array, not JSON lines with an object on each; convert it, as jq -c '.[]' does"),
        (2, True, "a JSON array, not JSON lines with an object on each; convert it, as jq -c '.[]' does"),
        (
            2,
            False,
            "JSON whose objects stand on several lines each, not JSON lines with an object on each; convert it, as "
            "jq -c . does",
        ),
    ],
)
def test_json_that_is_no_lines(write_file, refused, indent, several, what, mark, on_bad_row):
    """Skipping, which would leave no row or all but every one, is not advised, and does not hide it."""
    row = {"user": "u", "item": "i"}
    text = json.dumps([row, row] if several else row, indent=indent)
    assert refused(write_file("a.json", mark + text.encode()), on_bad_row=on_bad_row) == f"FILE: is {what}"


@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
@pytest.mark.parametrize(
    "first, second, types", [("u", 1, "an integer where a string"), (1, "1", "a string where an integer")]
)
def test_jsonl_ids_that_mix_types(write_file, refused, first, second, types, on_bad_row):
    """Not skipped: which half of the data would go would depend on the first row."""
    path = write_file("a.jsonl", jsonl({"user": first, "item": "i"}, {"user": second, "item": "i"}))
    assert refused(path, on_bad_row=on_bad_row) == (
        f"FILE:2: column 'user' holds {types} is expected; ids must have one type throughout, convert them"
    )


def test_jsonl_integers_out_of_range(write_file, refused):
    for value in (2**63, -(2**63) - 1, 2**64):
        path = write_file("a.jsonl", jsonl({"user": 1, "item": "i"}, {"user": value, "item": "i"}))
        assert refused(path).startswith("FILE:2: column 'user' holds a number that is no 64-bit integer")


def test_malformed_jsonl_lists(write_file, read, refused):
    path = write_file("a.jsonl", jsonl(*({"user": 1, "item": v} for v in (["a"], "a", ["b", True]))))
    options = {"layout": "grouped"}
    assert refused(path, **options) == (
        "FILE:2: column 'item' holds a string where a list is expected; fix the line, or pass --on_bad_row=skip"
    )
    spec = InputSpec.create([path], item_columns=["item"], on_bad_row="skip", **options)
    assert read(spec) == ([["a"]], {"bad_rows": 2})


# ---- UTF-8


def test_a_line_that_is_no_utf_8(write_file, read, refused):
    path = write_file("a.txt", b"one\n\xff\xfe\ntwo\n")
    assert refused(path) == f"FILE:2: not valid UTF-8; {CONVERT}"
    assert read(InputSpec.create([path], on_bad_row="skip")) == ([["one"], ["two"]], {"bad_rows": 1})


@pytest.mark.parametrize("tokenizer", [None, "words"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_invalid_utf8_in_parquet(tmp_path, read, refused, tokenizer, use_dictionary):
    def strings(*values):
        return pa.array(values, pa.large_binary()).view(pa.large_string())

    path = str(tmp_path / "a.parquet")
    table = pa.table({"user": strings(b"u", b"v", b"\xff"), "item": strings(b"a", b"\xc3", b"c")})
    pq.write_table(table, path, use_dictionary=use_dictionary, write_statistics=False)
    assert refused(path, tokenizer=tokenizer) == (
        "FILE: row 2: not valid UTF-8; write the column in UTF-8 or as bytes"
    )
    spec = pairs_spec(path, tokenizer=tokenizer, on_bad_row="skip")
    assert read(spec) == ({("u", "a"): 1}, {"bad_rows": 2})


def test_invalid_utf8_in_a_text_file(tmp_path, write_file, read):
    write_file("a.txt", "one")
    path = write_file("b.txt", b"\xff")
    spec = InputSpec.create([f"{tmp_path}/*.txt"], text_layout="file")
    with pytest.raises(InputError) as error:
        read(spec)
    assert str(error.value) == f"{path}: not valid UTF-8; {CONVERT}"
    spec = InputSpec.create([f"{tmp_path}/*.txt"], text_layout="file", on_bad_row="skip")
    assert read(spec) == ([["one"]], {"bad_rows": 1})


def test_header_that_is_not_utf8(write_file, refused):
    path = write_file("a.csv", b"us\xffer,item\n")
    assert refused(path).startswith("--user_column: FILE has no column 'user'")


@pytest.mark.parametrize("item_type", ["string", "bytes"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_another_column_whose_name_is_not_utf8(write_file, read, name, item_type):
    """As spreadsheets write them in Latin-1: nobody asks for it."""
    text = b"user,caf\xe9,item\nu,x,i\nv,\xe9,j\n"
    items = ["i", "j"] if item_type == "string" else [b"i", b"j"]
    for lines, expected in ((3, dict.fromkeys(zip("uv", items), 1)), (1, {})):
        data = b"".join(text.splitlines(keepends=True)[:lines])
        path = write_file(name, data.replace(b",", b"\t") if name == "a.tsv" else data)
        assert read(pairs_spec(path, item_types=[item_type])) == (expected, {})


@pytest.mark.parametrize("rows", [b"", b"v,i\n"])
@pytest.mark.parametrize(
    ("name", "bad"), [("a.csv", b'u,"a"b"c\xff"\n'), ("a.tsv", b"u\t\rc\xff\n"), ("a.csv", b"u,\xff,x\n")]
)
def test_a_skipped_row_that_is_no_utf_8_either(write_file, read, refused, name, bad, rows):
    """It is what made the chunk no UTF-8; with it out, or with all rows out, no row is left to look for."""
    text = b"user,item\n" + rows
    path = write_file(name, (text.replace(b",", b"\t") if name == "a.tsv" else text) + bad)
    kept = {("v", "i"): 1} if rows else {}
    for split in (None, 10):
        assert read(pairs_spec(path, on_bad_row="skip"), split) == (kept, {"bad_rows": 1})
    assert refused(path).startswith(f"FILE:{2 + bool(rows)}: ")


def test_bytes_that_are_no_utf_8_in_the_part_of_a_row_at_the_end_of_a_chunk(write_file):
    """With --csv_multiline a chunk holds the beginning of a row whose end is in the next one."""
    path = write_file("a.csv", b'user,item\nu,i\nv,"\xff\n' + b"x" * 20 + b'"\nw,j\n')
    spec = pairs_spec(path, csv_multiline=True)
    with open(path, "rb") as file:
        rows = list(
            Csv().read(
                Piece(path, 0, 1 << 62), file, spec, Kinds("string", ("string",)), Counts(), block_bytes=20
            )
        )
    items = [item for part in rows for item in part.items[0].cast(pa.large_binary()).to_pylist()]
    assert items == [b"i", b"\xff\n" + b"x" * 20, b"j"]


# ---- empty items


@pytest.mark.parametrize("values", [["", "i", ""], [b"", b"i", b""]])
def test_empty_items_are_nulls(tmp_path, read, refused, values):
    path = parquet(tmp_path, rows=3, user=["", "v", "w"], item=values)
    message = "FILE: row 1: empty item in column 'item'; pass --on_null=drop to drop such rows"
    assert refused(path) == message
    assert read(pairs_spec(path, on_null="drop")) == ({("v", values[1]): 1}, {"empty_items": 2})
    path = parquet(tmp_path, rows=3, user=["", "v", "w"], item=[[values[1]], [], values])
    assert refused(path, layout="grouped", user_column=None) == message.replace("row 1", "row 3")
    spec = InputSpec.create([path], layout="grouped", item_columns=["item"], on_null="drop")
    assert read(spec) == ([[values[1]], [values[1]]], {"empty_items": 2})


@pytest.mark.parametrize("empty", ["", '""'])
def test_an_empty_item_of_csv_is_a_null(write_file, read, refused, empty):
    path = write_file("a.csv", f"user,item,part\nu,i,p\nv,{empty},p\nw,{empty},{empty}\n")
    assert refused(path) == "FILE:3: empty item in column 'item'; pass --on_null=drop to drop such rows"
    assert read(pairs_spec(path, on_null="drop"))[1] == {"empty_items": 2}
    # Of a composite all parts must be empty.
    columns = {"user_column": "user", "item_columns": ["item", "part"]}
    assert refused(path, **columns).startswith("FILE:4: empty item")
    kept, counts = read(InputSpec.create([path], on_null="drop", **columns))
    assert kept == {("u", ("i", "p")): 1, ("v", ("", "p")): 1} and counts == {"empty_items": 1}


def test_empty_composite_items(tmp_path, read):
    path = parquet(tmp_path, rows=3, user=["u", "v", "w"], item=["", "", "i"], part=["", "p", ""])
    spec = InputSpec.create([path], user_column="user", item_columns=["item", "part"], on_null="drop")
    assert read(spec) == ({("v", ("", "p")): 1, ("w", ("i", "")): 1}, {"empty_items": 1})


# ---- types


def test_one_user_does_not_decide_the_type_of_the_items(write_file, read):
    """50 empty lists and one user's integer made every item an integer, also in the output."""
    rows = jsonl(*({"items": []} for _ in range(50)))
    options = {"layout": "grouped", "item_columns": ["items"]}
    kinds = []
    for text in (rows, rows + jsonl({"items": [5]}, {"items": ["a"]}), rows + jsonl({"items": ["a"]})):
        spec = InputSpec.create([write_file("a.jsonl", text)], on_bad_row="skip", **options)
        kinds.append(preflight(spec).kinds)
    assert set(kinds) == {Kinds(None, ("string",))}
    path = write_file("a.jsonl", rows + jsonl({"items": [5]}, {"items": ["a"]}))
    assert read(InputSpec.create([path], on_bad_row="skip", **options)) == ([["a"]], {"bad_rows": 1})
    for types in (["int"], ["bytes"], ["string"]):
        spec = InputSpec.create([write_file("a.jsonl", rows)], item_types=types, **options)
        assert preflight(spec).kinds == Kinds(None, tuple(types))


def test_json_integers_are_declared(write_file, read, refused):
    path = write_file("a.jsonl", jsonl(*({"user": n, "item": n} for n in range(3)), {"user": 1, "item": "x"}))
    assert refused(path, item_types=["int"]) == (
        "FILE:4: column 'item' holds a string where an integer is expected; fix the line, or pass --on_bad_row=skip"
    )
    kept = read(pairs_spec(path, item_types=["int"], on_bad_row="skip"))
    assert kept == ({(n, n): 1 for n in range(3)}, {"bad_rows": 1})
    path = write_file("a.jsonl", jsonl(*({"user": n, "item": n} for n in range(3))))
    for on_bad_row in ("error", "skip"):
        assert refused(path, on_bad_row=on_bad_row) == (
            "--item_type is required: column 'item' holds integers; pass --item_type=int (items of JSON lines are "
            "strings by default)"
        )
    assert read(pairs_spec(path, item_types=["string"], on_bad_row="skip")) == ({}, {"bad_rows": 3})


@pytest.mark.parametrize("format", ["csv", "tsv"])
def test_integers_of_delimited_files(write_file, read, refused, format):
    values = ["7", "+7", "-007", "9223372036854775807", "-9223372036854775808"]
    bad = ["9223372036854775808", "1.0", "0x10", " 1", "1_0", SECRET]
    text = "".join(f"u,{value}\n" for value in ["item", *values, "", *bad])
    path = write_file(
        f"a.{format}", text.replace("u,", "user,", 1).replace(",", "," if format == "csv" else "\t")
    )
    assert refused(path, item_types=["int"], on_null="drop") == (
        "FILE:8: column 'item' holds no 64-bit integer where one is expected; fix the line, or pass --on_bad_row=skip"
    )
    assert refused(path, item_types=["int"], on_bad_row="skip").startswith("FILE:7: null in column 'item'")
    kept = read(pairs_spec(path, item_types=["int"], on_bad_row="skip", on_null="drop"))
    expected = {("u", 7): 2, ("u", -7): 1, ("u", 2**63 - 1): 1, ("u", -(2**63)): 1}
    assert kept == (expected, {"bad_rows": len(bad), "null_rows": 1})


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_items_as_bytes(write_file, read, name):
    text = b"user,item\nu,\xff\nu,\xc3\xbc\n" if name == "a.csv" else '{"user": "u", "item": "ü"}\n'
    kept, counts = read(pairs_spec(write_file(name, text), item_types=["bytes"]))
    expected = {("u", "ü".encode()): 1} | ({("u", b"\xff"): 1} if name == "a.csv" else {})
    assert kept == expected and not counts


def test_declared_types_and_parquet(tmp_path, read, refused):
    """The schema declares the type; the flag must agree, and stands in where a column is of the null type."""
    path = parquet(tmp_path, user=["u"], item=[1])
    assert refused(path, item_types=["string"]) == "--item_type=string: FILE: column 'item' holds int values"
    assert read(pairs_spec(path, item_types=["int"]))[0] == {("u", 1): 1}
    path = parquet(tmp_path, user=["u"], item=pa.nulls(1))
    assert refused(path, on_null="drop") == (
        "--item_type is required: FILE: column 'item' has type null; say string, int or bytes"
    )
    spec = pairs_spec(path, item_types=["bytes"], on_null="drop")
    assert preflight(spec).kinds == Kinds("string", ("bytes",))
    assert read(spec) == ({}, {"null_rows": 1})


def test_empty_tokens(write_file, read):
    path = write_file("a.txt", "ab\nb\n")
    assert read(InputSpec.create([path], token_pattern="a*")) == ([["a"]], {"empty_items": 4})


def test_nothing_is_lost_at_random(tmp_path, read):
    """Rows read plus rows counted are all rows, at any split."""
    generator = np.random.default_rng(3)
    rows = []
    for _ in range(400):
        kind = generator.choice(["good", "null", "bad", "empty"], p=[0.7, 0.1, 0.1, 0.1])
        rows.append({"good": {"user": "u", "item": "i"}, "null": {"user": None, "item": "i"},
                     "bad": "oops", "empty": {"user": "u", "item": ""}}[kind])  # fmt: skip
    (tmp_path / "a.jsonl").write_text(jsonl(*rows))
    spec = pairs_spec(f"{tmp_path}/a.jsonl", on_null="drop", on_bad_row="skip")
    for split in (None, 1000, 33):
        kept, counts = read(spec, split)
        assert sum(kept.values()) + sum(counts.values()) == 400 and len(counts) == 3
