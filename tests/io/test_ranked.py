"""A ranking on disk: one file, in rank order, also when there is nothing to rank."""

import os
from dataclasses import replace

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from dpbeam.io.sinks import OutputColumns, WriteRanked
from dpbeam.kernels import canonical
from dpbeam.topk.family import TopKConfig

STRING = OutputColumns(("item",), ("string",))


def ranking(items, noisy=None):
    """A record batch as top-k emits it."""
    counts = {} if noisy is None else {"noisy_count": pa.array(noisy, pa.int64())}
    ranks = pa.array(range(1, len(items) + 1), pa.int64())
    return pa.RecordBatch.from_pydict({"rank": ranks, "item": pa.array(items, pa.large_binary()), **counts})


def write(tmp_path, batches, columns=STRING, format="parquet", noisy_counts=False):
    """Path of the one file that is written."""
    folder = tmp_path / "staging"
    folder.mkdir()
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        source = pipeline | beam.Create(batches).with_output_types(pa.RecordBatch)
        columns = replace(columns, added=TopKConfig(1.0, 1e-5, 3, noisy_counts=noisy_counts).columns())
        _ = source | WriteRanked(str(folder), columns, format)
    [name] = os.listdir(folder)
    assert name == f"shard-00000-of-00001.{'txt' if format == 'text' else 'parquet'}"
    return folder / name


def test_parquet_in_rank_order(tmp_path):
    """Order of rank, which is not the order of the items."""
    table = pq.read_table(write(tmp_path, [ranking([b"z", b"a", "é".encode()])]))
    assert table.to_pydict() == {"rank": [1, 2, 3], "item": ["z", "a", "é"]}
    assert not any(field.nullable for field in table.schema)


def test_noisy_counts(tmp_path):
    written = write(tmp_path, [ranking([b"z", b"a"], [-3, 2**40])], noisy_counts=True)
    table = pq.read_table(written)
    assert table.schema.names == ["rank", "item", "noisy_count"]
    assert table.to_pydict() == {"rank": [1, 2], "item": ["z", "a"], "noisy_count": [-3, 2**40]}
    assert table.schema.field("noisy_count").type == pa.int64()


def test_text_is_tab_separated_and_escaped(tmp_path):
    written = write(tmp_path, [ranking([b"b\tc", b"a\nx"], [5, -6])], format="text", noisy_counts=True)
    assert written.read_bytes() == b"1\tb\\tc\t5\n2\ta\\nx\t-6\n"


def test_text_without_counts(tmp_path):
    assert write(tmp_path, [ranking([b"b", b"a"])], format="text").read_bytes() == b"1\tb\n2\ta\n"


@pytest.mark.parametrize("format", ["parquet", "text"])
@pytest.mark.parametrize("empty", [False, True], ids=["no ranking", "empty ranking"])
@pytest.mark.parametrize("noisy_counts", [False, True])
def test_nothing_to_rank(format, empty, noisy_counts, tmp_path):
    batches = [ranking([], [] if noisy_counts else None)] if empty else []
    written = write(tmp_path, batches, format=format, noisy_counts=noisy_counts)
    if format == "text":
        assert written.read_bytes() == b""
    else:
        table = pq.read_table(written)
        assert table.num_rows == 0
        assert table.schema.names == ["rank", "item", *(["noisy_count"] if noisy_counts else [])]
        assert table.schema.field("item").type == pa.string()


def test_kinds(tmp_path):
    """Integers, and composite items under their own names."""
    integers = canonical.encode(pa.array([5, -1]))[0].to_pylist()
    columns = OutputColumns(("item",), ("int",))
    assert pq.read_table(write(tmp_path, [ranking(integers)], columns)).to_pydict() == {
        "rank": [1, 2],
        "item": [5, -1],
    }
    parts = canonical.encode_parts(
        [pa.array(["h", "g"]).cast(pa.large_binary()), pa.array(integers, pa.large_binary())]
    )
    (tmp_path / "more").mkdir()
    columns = OutputColumns(("host", "port"), ("string", "int"))
    table = pq.read_table(write(tmp_path / "more", [ranking(parts.to_pylist())], columns))
    assert table.to_pydict() == {"rank": [1, 2], "host": ["h", "g"], "port": [5, -1]}
