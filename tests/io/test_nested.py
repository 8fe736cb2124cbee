"""Names with dots reach the fields of structs and objects; a column that has the whole name comes first."""

import io
import json

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc as arrow_orc

from dpbeam.cli import main
from dpbeam.errors import InputError
from dpbeam.io.spec import InputSpec

NAMES = {"user_column": "actor.id", "item_columns": ["payload.search.query"]}
ROWS = [
    {
        "actor": {"id": f"u{n % 40}", "n": n},
        "payload": {"search": {"query": f"i{n % 7}", "tags": [f"t{n % 3}"]}},
    }
    for n in range(280)
]
PAIRS = {(f"u{n % 40}", f"i{n % 7}") for n in range(280)}


def parquet(rows: list[dict], **options) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, **{"row_group_size": 50, **options})
    return sink.getvalue()


def jsonl(rows: list[dict]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def avro(rows: list[dict]) -> bytes:
    def record(name: str, **fields) -> dict:
        own = [{"name": field, "type": kind} for field, kind in fields.items()]
        return {"type": "record", "name": name, "fields": own}

    search = record("s", query="string", tags={"type": "array", "items": "string"})
    schema = record("r", actor=record("a", id="string", n="int"), payload=record("p", search=search))
    sink = io.BytesIO()
    fastavro.writer(sink, schema, rows)
    return sink.getvalue()


def orc(rows: list[dict]) -> bytes:
    sink = io.BytesIO()
    arrow_orc.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


WRITE = {"parquet": parquet, "jsonl": jsonl, "avro": avro, "orc": orc}


def spec_of(tmp_path, format: str, data: bytes, **options):
    (tmp_path / f"in.{format}").write_bytes(data)
    return InputSpec.create([f"{tmp_path}/in.{format}"], **{**NAMES, **options})


def decoded(rows) -> set[tuple[str, str]]:
    return {tuple(map(str, pair)) for pair in rows}


@pytest.mark.parametrize("format", WRITE)
def test_fields_within_fields(read, tmp_path, format):
    rows, counts = read(spec_of(tmp_path, format, WRITE[format](ROWS)))
    assert not counts and decoded(rows) == PAIRS and set(rows.values()) == {1}


@pytest.mark.parametrize("dictionaries", [True, False])
def test_stored_as_dictionaries_or_not(read, tmp_path, dictionaries):
    rows, _ = read(spec_of(tmp_path, "parquet", parquet(ROWS, use_dictionary=dictionaries)))
    assert decoded(rows) == PAIRS


@pytest.mark.parametrize("format", WRITE)
def test_lists_within(read, tmp_path, format):
    grouped = {"layout": "grouped", "item_columns": ["payload.search.tags"]}
    rows, _ = read(spec_of(tmp_path, format, WRITE[format](ROWS), **grouped))
    assert decoded(rows) == {(f"u{n % 40}", f"t{n % 3}") for n in range(280)}


@pytest.mark.parametrize("format", ["parquet", "jsonl", "orc"])
def test_a_column_of_the_whole_name_comes_first(read, tmp_path, format):
    rows = [{**row, "actor.id": f"v{n}"} for n, row in enumerate(ROWS)]
    found, _ = read(spec_of(tmp_path, format, WRITE[format](rows)))
    assert {user for user, _ in decoded(found)} == {f"v{n}" for n in range(280)}


@pytest.mark.parametrize("format", ["parquet", "jsonl"])  # Arrow 25 writes other values into ORC
def test_what_lies_in_nothing_is_null(read, tmp_path, format):
    rows = [ROWS[0], {**ROWS[1], "actor": None}, {**ROWS[2], "payload": {"search": None}}, ROWS[3]]
    data = WRITE[format](rows)
    with pytest.raises(InputError, match=r"(row |:)2: null in column 'actor\.id'"):
        read(spec_of(tmp_path, format, data))
    found, counts = read(spec_of(tmp_path, format, data, on_null="drop"))
    assert decoded(found) == {("u0", "i0"), ("u3", "i3")} and counts["null_rows"] == 2


@pytest.mark.parametrize(
    ("format", "name", "message"),
    [
        ("parquet", "actor.uid", "; 'actor' has no field 'uid', only id, n"),
        ("avro", "actor.uid", "; 'actor' has no field 'uid', only id, n"),
        ("jsonl", "actor.uid", "; 'actor' has no field 'uid'"),
        ("parquet", "actor.id.x", "; 'actor.id' is of type string, which has no fields"),
        ("jsonl", "actor.id.x", "; 'actor.id' has no field 'x'"),
        ("parquet", "who.id", ""),
        ("jsonl", "who.id", ""),
    ],
)
def test_errors_name_the_level(read, tmp_path, format, name, message):
    with pytest.raises(InputError) as error:
        read(spec_of(tmp_path, format, WRITE[format](ROWS), user_column=name))
    what = f"--user_column: {tmp_path}/in.{format} has no column '{name}', only actor, payload"
    assert str(error.value) == what + message


def test_a_row_without_an_object_is_bad(read, tmp_path):
    data = jsonl([*ROWS, {**ROWS[0], "payload": {"search": "tea"}}])
    with pytest.raises(InputError, match=r":281: column 'payload\.search' holds a string where an object"):
        read(spec_of(tmp_path, "jsonl", data))
    rows, counts = read(spec_of(tmp_path, "jsonl", data, on_bad_row="skip"))
    assert decoded(rows) == PAIRS and counts["bad_rows"] == 1


def test_the_command_gives_the_bytes_of_a_flat_file(tmp_path):
    flat = [{"user": r["actor"]["id"], "item": r["payload"]["search"]["query"]} for r in ROWS]
    (tmp_path / "flat.parquet").write_bytes(parquet(flat))
    (tmp_path / "deep.parquet").write_bytes(parquet(ROWS))
    names = ["--user_column=actor.id", "--item_column=payload.search.query"]
    for file, more in (("flat.parquet", []), ("deep.parquet", names)):
        job = ["select", f"--input={tmp_path}/{file}", "--epsilon=5", "--delta=1e-3", "--quiet", *more]
        assert main([*job, f"--output={tmp_path}/{file}.csv", "--insecure_test_key=0a"]) == 0
    outputs = {(tmp_path / f"{file}.csv").read_bytes() for file in ("flat.parquet", "deep.parquet")}
    assert len(outputs) == 1 and len(outputs.pop().splitlines()) == 8
