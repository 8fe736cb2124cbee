"""Written shards: content, order, layout, and the transform that writes them."""

import hashlib
import io
import json
import os
from dataclasses import replace

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dpbeam.engine.beam.coders  # noqa: F401  (coder of record batches)
from dpbeam.engine.beam import owner
from dpbeam.errors import InputError
from dpbeam.families.base import OutputColumn
from dpbeam.io import sinks
from dpbeam.io.formats import formats
from dpbeam.io.item_lists import read_items
from dpbeam.io.output_formats import OUTPUT_FORMATS, shard_name
from dpbeam.io.released import describe
from dpbeam.io.sinks import (
    OutputColumns,
    WriteReleased,
    num_output_shards,
    output_shard,
    stage,
    write_shard,
)
from dpbeam.io.spec import InputSpec
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import Kinds
from dpbeam.kernels.columns import encode
from dpbeam.storage import FileSystems
from tests.support import memory_store

WEIGHT, SHARE = OutputColumn("noisy_weight", float), OutputColumn("share", float)
STRINGS = OutputColumns(("item",), ("string",))
WEIGHTED = OutputColumns(("item",), ("string",), added=(WEIGHT,))


def binary(*values):
    return pa.array([v.encode() if isinstance(v, str) else v for v in values], pa.large_binary())


def written(items, columns=STRINGS, weights=None, format="parquet"):
    file = io.BytesIO()
    numbers = {} if weights is None else {"noisy_weight": weights}
    write_shard(file, items, numbers, columns, format)
    return file.getvalue()


def table(data):
    return pq.read_table(io.BytesIO(data))


def test_parquet_content():
    written_table = table(written(binary("b", "ü", "a"), WEIGHTED, np.array([2.5, 3.0, 1.0])))
    assert written_table.to_pylist() == [
        {"item": "a", "noisy_weight": 1.0},
        {"item": "b", "noisy_weight": 2.5},
        {"item": "ü", "noisy_weight": 3.0},
    ]
    assert written_table.schema.types == [pa.string(), pa.float64()]


def test_parquet_kinds_and_names():
    columns = OutputColumns(("name", "n", "raw"), ("string", "int", "bytes"))
    parts = [canonical.encode(pa.array(v))[0] for v in (["x", "a"], [1, -2], [b"\xff", b""])]
    written_table = table(written(canonical.encode_parts(parts), columns))
    assert written_table.to_pylist() == [
        {"name": "a", "n": -2, "raw": b""},
        {"name": "x", "n": 1, "raw": b"\xff"},
    ]
    assert written_table.schema.types == [pa.string(), pa.int64(), pa.binary()]


@pytest.mark.parametrize("format", OUTPUT_FORMATS)
def test_order_and_bytes_carry_nothing(format):
    values = [f"item {n}" for n in range(1000)]
    weights = np.arange(1000) / 4
    one = written(binary(*values), WEIGHTED, weights, format)
    order = np.random.default_rng(1).permutation(1000)
    assert written(binary(*(values[i] for i in order)), WEIGHTED, weights[order], format) == one


def test_parquet_metadata_is_fixed():
    """But for the number of rows and the released values' own statistics, no metadata."""
    metadata = pq.ParquetFile(io.BytesIO(written(binary("a", "b")))).metadata
    assert metadata.metadata is None
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_empty_shards_are_valid():
    assert table(written(binary(), WEIGHTED, np.empty(0))).schema.names == ["item", "noisy_weight"]
    assert table(written(binary())).num_rows == 0
    assert written(binary(), format="text") == b""


def test_text_escapes():
    data = written(binary("a\tb", "c\nd", "e\\n", "f\r", "ü"), format="text")
    assert data.decode() == "a\\tb\nc\\nd\ne\\\\n\nf\\r\nü\n"
    controls = "".join(
        map(chr, [*range(9), *range(11, 13), *range(14, 32), *range(127, 160), 0x2028, 0x2029])
    )
    data = written(binary(f"a{controls}b"), format="text").decode()
    assert data.isprintable() is False and data[:-1].isprintable() and data.splitlines() == [data[:-1]]
    assert data.startswith("a\\x00\\x01") and data.endswith("\\x9f\\u2028\\u2029b\n")
    columns = OutputColumns(("b", "n"), ("bytes", "int"), added=(WEIGHT,))
    parts = [canonical.encode(pa.array(v))[0] for v in ([b"\xff\t\\x", b"plain"], [-1, 2])]
    data = written(canonical.encode_parts(parts), columns, np.array([0.5, 2.0]), "text")
    assert sorted(data.decode().splitlines()) == ["\\xff\\t\\\\x\t-1\t0.5", "plain\t2\t2"]


def test_csv_content():
    data = written(binary("b,c", 'd"e', "f\ng", " h", "ü", "=1+1", "\x1b[2J"), format="csv")
    assert data.decode() == 'item\n"\x1b[2J"\n" h"\n=1+1\n"b,c"\n"d""e"\n"f\ng"\nü\n'
    columns = OutputColumns(("a,b", "n", "raw"), ("string", "int", "bytes"), added=(WEIGHT,))
    parts = [canonical.encode(pa.array(v))[0] for v in (["", "x"], [1, -2], [b"\xff\\", b"p,q"])]
    data = written(canonical.encode_parts(parts), columns, np.array([0.5, np.nan]), "csv")
    assert data.decode() == '"a,b",n,raw,noisy_weight\n"",1,\\xff\\\\,0.5\nx,-2,"p,q",\n'
    assert written(binary(), format="csv") == b"item\n"


def test_jsonl_content():
    columns = OutputColumns(("name", "n", "raw"), ("string", "int", "bytes"), added=(WEIGHT,))
    parts = [canonical.encode(pa.array(v))[0] for v in (['a"\n\x1b', "x"], [2**63 - 1, -2], [b"\xff\\", b""])]
    data = written(canonical.encode_parts(parts), columns, np.array([0.5, np.nan]), "jsonl")
    assert [json.loads(line) for line in data.splitlines()] == [
        {"name": "x", "n": -2, "raw": "", "noisy_weight": None},
        {"name": 'a"\n\x1b', "n": 2**63 - 1, "raw": "\\xff\\\\", "noisy_weight": 0.5},
    ]
    assert written(binary(), format="jsonl") == b""


VALUES_OF_KIND = {"string": st.text(), "int": st.integers(-(2**63), 2**63 - 1), "bytes": st.binary()}
ARROW = {"string": pa.string(), "int": pa.int64(), "bytes": pa.binary()}


@st.composite
def _items(draw):
    kinds = tuple(draw(st.lists(st.sampled_from(canonical.ID_KINDS), min_size=1, max_size=3)))
    rows = draw(st.lists(st.tuples(*(VALUES_OF_KIND[kind] for kind in kinds)), max_size=20, unique=True))
    return kinds, [row for row in rows if any(value not in ("", b"") for value in row)]


@pytest.mark.parametrize("format, extension", OUTPUT_FORMATS.items())
@settings(max_examples=15)
@given(drawn=_items())
def test_output_is_a_list_of_public_items(tmp_path_factory, format, extension, drawn):
    """What is written reads back as the same canonical items."""
    kinds, rows = drawn
    parts = [
        canonical.encode(pa.array([row[p] for row in rows], ARROW[kind]))[0] for p, kind in enumerate(kinds)
    ]
    items = parts[0] if len(parts) == 1 else canonical.encode_parts(parts)
    columns = OutputColumns(tuple(f"c{p}" for p in range(len(kinds))), kinds)
    path = tmp_path_factory.mktemp("items") / f"a.{extension}"
    path.write_bytes(written(items, columns, format=format))
    if format == "text":  # a first item that looks like another format is refused
        assume(not path.read_bytes().startswith(tuple(other.magic for other in formats() if other.magic)))
    with open(path, "rb") as file:
        described = describe(file, path.name)
    assert (described.rows, described.sha256) == (len(rows), hashlib.sha256(path.read_bytes()).hexdigest())
    back = read_items(str(path), columns, "--public_items")
    assert sorted(back.to_pylist()) == sorted(items.to_pylist())


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="numbers are"):
        written(binary("a"), WEIGHTED)
    with pytest.raises(ValueError, match="numbers are"):
        written(binary("a"), STRINGS, np.ones(1))
    with pytest.raises(ValueError, match="format must be one of parquet, text, csv, jsonl, got 'tsv'"):
        written(binary("a"), format="tsv")
    with pytest.raises(ValueError, match="names and kinds differ in length: 1 and 2"):
        OutputColumns(("a",), ("int", "int"))
    with pytest.raises(ValueError, match=r"num_output_shards must be in 1\.\.99999, got 0"):
        WriteReleased("x", STRINGS, num_output_shards=0)
    with pytest.raises(ValueError, match="format must be one of parquet, text, csv, jsonl, got 'tsv'"):
        WriteReleased("x", STRINGS, "tsv")


def test_an_item_is_written_once():
    with pytest.raises(ValueError, match="an item occurs twice among the released items"):
        written(binary("a", "b", "a"))


def test_columns_of_an_input():
    spec = InputSpec.create(["a.parquet"], user_column="u", item_columns=["a", "noisy_weight"])
    kinds = Kinds("int", ("string", "int"))
    assert OutputColumns.of(spec, kinds) == OutputColumns(("a", "noisy_weight"), ("string", "int"))
    with pytest.raises(InputError) as error:
        replace(OutputColumns.of(spec, kinds), added=(WEIGHT,))
    assert str(error.value) == "--item_column: 'noisy_weight' is a column of the output; rename yours"
    with pytest.raises(InputError, match=r"^--item_column: 'share' is a column of the output"):
        OutputColumns(("a", "share"), ("string", "string"), (SHARE,))
    assert OutputColumns.of(InputSpec.create(["a.txt"]), Kinds(None, ("string",))) == STRINGS


@pytest.mark.parametrize("added", [(), (OutputColumn("share", float),)])
def test_a_released_column_that_the_output_does_not_declare_is_an_error(added, tmp_path):
    items, halves = binary("a", "b"), pa.array([0.5, 0.5])
    batch = pa.RecordBatch.from_arrays([items, halves, halves], ["item", "share", "share_sd"])
    undeclared = "share" if not added else "share_sd"
    with pytest.raises(ValueError, match=f"declares no column '{undeclared}'"):
        write(tmp_path, [batch], OutputColumns(("item",), ("string",), added))
    assert not list(tmp_path.iterdir())


def test_number_of_shards():
    assert [num_output_shards((n, 0)) for n in (0, 1, 5_000_000, 5_000_001, 10**9)] == [1, 1, 1, 2, 200]
    assert [num_output_shards((5, n)) for n in (10, 256_000_000, 256_000_001, 10**10)] == [1, 1, 2, 40]
    assert num_output_shards((0, 0), 3) == num_output_shards((10**9, 10**11), 3) == 3


def test_shard_of_an_item_is_fixed_and_even():
    """Golden values: the layout must not change between versions; 30,000 items, 6 standard deviations."""
    assert output_shard(binary("a", "b", "", "ü", "x" * 2000), 1000).tolist() == GOLDEN_SHARDS
    items = binary(*(f"item {n}" for n in range(30_000)))
    counts = np.bincount(output_shard(items, 3), minlength=3)
    assert (abs(counts - 10_000) < 6 * np.sqrt(30_000 * 2 / 9)).all()


GOLDEN_SHARDS = [874, 622, 537, 919, 335]


def write(folder, batches, columns, format="parquet", shards=None, repeat=1):
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        for n in range(repeat):
            _ = (
                pipeline
                | f"Create{n}" >> beam.Create(batches).with_output_types(pa.RecordBatch)
                | f"Write{n}" >> WriteReleased(str(folder), columns, format, shards)
            )


def batches_of(count, size, weighted):
    for start in range(0, count, size):
        numbers = range(start, min(start + size, count))
        columns = {"item": binary(*(f"i{n}" for n in numbers))}
        if weighted:
            columns["noisy_weight"] = pa.array([n / 2 for n in numbers])
        yield pa.record_batch(columns)


def contents(folder):
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}


@pytest.mark.usefixtures("beams_runner")
def test_write_on_beam(tmp_path):
    for folder, size in (("a", 100), ("b", 7)):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, list(batches_of(100, size, True)), WEIGHTED, shards=3)
    files = contents(tmp_path / "a")
    assert list(files) == [f"shard-{shard_name(n, 3, 'parquet')}" for n in range(3)]
    rows = [row for data in files.values() for row in table(data).to_pylist()]
    expected = [{"item": f"i{n}", "noisy_weight": n / 2} for n in range(100)]
    assert sorted(rows, key=str) == sorted(expected, key=str)
    # How items arrive does not show.
    assert contents(tmp_path / "b") == files
    for number, data in enumerate(files.values()):
        items = table(data)["item"].to_pylist()
        assert items == sorted(items) and set(output_shard(binary(*items), 3)) == {number}


@pytest.mark.parametrize("place", ["", "s3://b/"])
def test_a_worker_that_outlives_the_run_does_not_bring_its_staging_folder_back(place, tmp_path, monkeypatch):
    """Made anew it could be read by others."""
    kept = memory_store.install(monkeypatch).objects
    folder = f"{place or f'{tmp_path}/'}out.staging-1"

    def write():
        return stage(folder, 0, 1, "text", lambda file: file.write(b"x\n"))

    with pytest.raises(FileNotFoundError):
        write()
    assert os.listdir(tmp_path) == [] and kept == {}
    FileSystems.make_folder(folder, private=True)
    owner.mark(folder)
    assert FileSystems.exists(write())


def test_long_items_travel_and_lie_in_more_pieces(tmp_path, monkeypatch):
    """Messages and shards are bounded by bytes as well: engines hold many messages, a worker sorts a shard."""
    monkeypatch.setattr(sinks, "_BYTES_PER_MESSAGE", 3_000)
    monkeypatch.setattr(sinks, "BYTES_PER_SHARD", 40_000)
    sent = []

    def counted(columns):
        sent.append(columns["item"].nbytes)
        return encode(columns)

    monkeypatch.setattr(sinks, "encode", counted)
    items = [f"{n:0500}" for n in range(200)]
    batch = pa.record_batch({"item": binary(*items)})
    write(tmp_path, [batch], STRINGS)
    files = contents(tmp_path)
    assert list(files) == [f"shard-{shard_name(n, 3, 'parquet')}" for n in range(3)]
    assert sorted(item for data in files.values() for item in table(data)["item"].to_pylist()) == items
    assert max(sent) <= 3_000 and len(sent) >= 34


@pytest.mark.parametrize("format", OUTPUT_FORMATS)
def test_nothing_released(tmp_path, format):
    write(tmp_path, [], WEIGHTED, format)
    (name,) = os.listdir(tmp_path)
    assert name == f"shard-{shard_name(0, 1, format)}"
    with open(tmp_path / name, "rb") as file:
        assert describe(file, name).rows == 0
    if format == "parquet":
        assert table((tmp_path / name).read_bytes()).schema.names == ["item", "noisy_weight"]


def test_more_shards_than_items(tmp_path):
    write(tmp_path, list(batches_of(2, 2, False)), STRINGS, shards=5)
    assert sum(table(data).num_rows for data in contents(tmp_path).values()) == 2
    assert len(contents(tmp_path)) == 5


def test_a_shard_written_twice_is_the_same(tmp_path):
    """As a retried or speculative bundle does."""
    write(tmp_path, list(batches_of(50, 9, True)), WEIGHTED, shards=2)
    once = contents(tmp_path)
    write(tmp_path, list(batches_of(50, 9, True)), WEIGHTED, shards=2, repeat=2)
    assert contents(tmp_path) == once


def test_dictionary_items_are_written(tmp_path):
    batch = pa.record_batch({"item": binary("b", "a").dictionary_encode()})
    write(tmp_path, [batch], STRINGS, "text")
    assert contents(tmp_path) == {"shard-00000-of-00001.txt": b"a\nb\n"}
