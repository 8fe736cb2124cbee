"""Released rows go into the sinks and transforms of Beam without a further word; what arrives is what was released."""

import csv
import glob
import json

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.dataframe.convert import to_dataframe
from apache_beam.portability.api import schema_pb2
from apache_beam.transforms.sql import SqlTransform
from apache_beam.typehints.schemas import schema_from_element_type
from apache_beam.utils.subprocess_server import JavaJarServer

import dpbeam
from tests.support.pipelines import kept, outcome

PAIRS = [(f"u{u}", f"i{n}") for n, holders in enumerate((60, 45, 30, 2)) for u in range(holders)]
SCHEMA = pa.schema([("query", pa.string()), ("noisy_count", pa.int64()), ("noisy_count_sd", pa.float64())])


def select(tmp_path, as_batches=False, **more):
    return dpbeam.SelectPartitions(
        epsilon=4,
        delta=1e-3,
        method="basic",
        item="query",
        as_batches=as_batches,
        **(more or {"noisy_counts": True}),
        insecure_test_key="sinks",
        run_folder=str(tmp_path / "private"),
    )


def row_of(query, noisy_count, deviation):
    return query, int(noisy_count), round(float(deviation), 9)  # JSON of pandas has ten digits


def parquet(path):
    return [row_of(*row.values()) for row in pq.read_table(path).to_pylist()]


def lines(path):
    with open(path) as file:
        return [row_of(*row.values()) for row in map(json.loads, file)]


def commas(path):
    with open(path) as file:
        return [row_of(*row.values()) for row in csv.DictReader(file)]


#: Sinks of files, and what reads them.
FILES = {
    "parquet": (lambda rows, path: rows | beam.io.WriteToParquet(path), parquet),
    "parquet with a schema": (
        lambda rows, path: rows | "Schema" >> beam.io.WriteToParquet(path, SCHEMA),
        parquet,
    ),
    "json": (lambda rows, path: rows | beam.io.WriteToJson(path), lines),
    "csv": (lambda rows, path: rows | beam.io.WriteToCsv(path), commas),
    "frame": (lambda rows, path: to_dataframe(rows).to_csv(path, index=False), commas),
}


def test_files(tmp_path):
    """Of the same pipeline, so that nothing is drawn for one sink alone."""

    def build(pipeline):
        rows = pipeline | beam.Create(PAIRS, reshuffle=False) | select(tmp_path)
        for name, (write, _) in FILES.items():
            write(rows, str(tmp_path / name))
        return kept(rows)

    wanted = sorted(row_of(*row) for row in outcome(build))
    assert len(wanted) >= 3 and all(count > 0 < deviation for _, count, deviation in wanted)
    for name, (_, read) in FILES.items():
        [path] = glob.glob(f"{tmp_path}/{name}-0*")
        assert sorted(read(path)) == wanted, name


def test_record_batches(tmp_path):
    def build(pipeline):
        tables = pipeline | beam.Create(PAIRS, reshuffle=False) | select(tmp_path, as_batches=True)
        (
            tables
            | "Tables" >> beam.Map(lambda batch: pa.Table.from_batches([batch]).cast(SCHEMA))
            | (beam.io.WriteToParquetBatched(str(tmp_path / "tables"), SCHEMA))
        )
        return kept(tables)

    wanted = [row_of(*row.values()) for batch in outcome(build) for row in batch.to_pylist()]
    [path] = glob.glob(f"{tmp_path}/tables-*")
    assert sorted(parquet(path)) == sorted(wanted) != []


def test_transforms(tmp_path):
    def build(pipeline):
        rows = pipeline | beam.Create(PAIRS, reshuffle=False) | select(tmp_path)
        summed = rows | beam.GroupBy("query").aggregate_field("noisy_count", sum, "together")
        chosen = rows | beam.Select("noisy_count", name=lambda row: row.query)
        kept(rows, "Rows"), kept(summed, "Grouped"), kept(chosen, "Selected")

    came = outcome(build)
    rows = sorted((row.query, row.noisy_count) for row in came if hasattr(row, "noisy_count_sd"))
    assert len(rows) >= 3
    assert sorted((row.query, row.together) for row in came if hasattr(row, "together")) == rows
    assert sorted((row.name, row.noisy_count) for row in came if hasattr(row, "name")) == rows


@pytest.mark.parametrize("asked", ["noisy_weights", "noisy_counts"])
def test_the_schema_is_one_of_all_languages(asked, tmp_path):
    """What Java and SQL are told of the rows: no type that Python alone knows."""
    rows = beam.Pipeline() | beam.Create(PAIRS, reshuffle=False) | select(tmp_path, **{asked: True})
    fields = schema_from_element_type(rows.element_type).fields
    types = {field.name: field.type.atomic_type for field in fields}
    numbers = {"noisy_count": schema_pb2.INT64, "noisy_count_sd": schema_pb2.DOUBLE}
    if asked == "noisy_weights":
        numbers = {"noisy_weight": schema_pb2.DOUBLE}
    assert types == {"query": schema_pb2.STRING, **numbers}


def test_sql_takes_the_rows_up_to_its_service(tmp_path, monkeypatch):
    """The query is handed to Beam's expansion service, a jar that this test does not fetch."""
    asked = []

    class NoServiceError(Exception):
        pass

    def no_jar(cls, *target, **_):
        asked.append(target)
        raise NoServiceError

    monkeypatch.setattr(JavaJarServer, "path_to_beam_jar", classmethod(no_jar))
    rows = beam.Pipeline() | beam.Create(PAIRS, reshuffle=False) | select(tmp_path)
    with pytest.raises(NoServiceError):
        _ = rows | SqlTransform("SELECT query FROM PCOLLECTION WHERE noisy_count > 100")
    assert asked
