"""Looking at the input in the launcher, planning, and reading it on Beam."""

import gzip
import json
import os

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

import dpbeam.engine.beam.coders  # noqa: F401  (coder of record batches)
from dpbeam.errors import InputError
from dpbeam.io import sources
from dpbeam.io.files import match_files
from dpbeam.io.formats.base import InputFile
from dpbeam.io.sources import ReadInput, plan_units, preflight
from dpbeam.io.spec import InputSpec
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import Kinds
from tests.support.input import pairs_spec


def values(batch):
    kinds = Kinds.of(batch.schema)
    users = canonical.decode(canonical.plain(batch.column("user")), [kinds.user])[0].to_pylist()
    items = canonical.decode(canonical.plain(batch.column("item")), kinds.item)[0].to_pylist()
    return list(zip(users, items))


def block_values(element):
    block, batch = element
    items = canonical.decode(canonical.plain(batch.column("item")), Kinds.of(batch.schema).item)[
        0
    ].to_pylist()
    return [(block, user, item) for user, item in zip(batch.column("user").to_pylist(), items)]


# ---- matching


def test_a_file_is_read_once(tmp_path):
    for name in ("a.csv", "b.csv", "sub.csv"):
        (tmp_path / name).write_text("user,item\n")
    files = match_files([f"{tmp_path}/*.csv", f"{tmp_path}/a.csv", f"{tmp_path}/[ab].csv"])
    assert [file.path for file in files] == [f"{tmp_path}/{name}" for name in ("a.csv", "b.csv", "sub.csv")]
    assert files[0].size == 10


def test_a_file_with_several_names_is_read_once(tmp_path, monkeypatch, read):
    """Where a row is a user, each would count twice; so would one user's rows in a file that another shares."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.jsonl").write_text('{"items": ["x"]}\n')
    os.symlink("a.jsonl", tmp_path / "d" / "b.jsonl")
    os.link(tmp_path / "d" / "a.jsonl", tmp_path / "c.jsonl")
    os.symlink("d", tmp_path / "e")
    names = ["d/*.jsonl", "./d/a.jsonl", f"{tmp_path}/d/a.jsonl", "d/../d/a.jsonl", "e/*", "c.jsonl"]
    names += [f"file://{tmp_path}/d/a.jsonl"]
    for patterns in (names, names[::-1], *(["d/a.jsonl", name] for name in names)):
        files = match_files(patterns)
        assert len(files) == 1, patterns
        spec = InputSpec.create(patterns, format="jsonl", layout="grouped", item_columns=["items"])
        assert read(spec)[0] == [["x"]]
    assert match_files(names) == match_files(names[::-1])
    summary = preflight(
        InputSpec.create(["d/a.jsonl", "d/b.jsonl"], layout="grouped", item_columns=["items"])
    )
    assert summary.notes == ("input: 'd/b.jsonl' and 'd/a.jsonl' are one file, which is read once",)
    assert preflight(InputSpec.create(["d/a.jsonl"], layout="grouped", item_columns=["items"])).notes == ()


def test_copies_are_files_of_their_own(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("user,item\n")
    assert len(match_files([f"{tmp_path}/*.csv"])) == 2


def test_home_and_file_urls(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a b.csv").write_text("x")
    expected = f"{tmp_path}/a b.csv"
    for name in ("~/a b.csv", "~/*.csv", f"file://{tmp_path}/a%20b.csv", f"FILE://localhost{tmp_path}/*.csv"):
        assert [file.path for file in match_files([name])] == [expected]
    assert InputSpec.create(["~/a.txt"]).patterns == (f"{tmp_path}/a.txt",)
    for name in ("file://elsewhere/a.csv", "file://a.csv"):
        with pytest.raises(InputError) as error:
            match_files([name])
        assert str(error.value) == (f"--input: '{name}': a file URL names this machine: file:///folder/name")


@pytest.mark.parametrize(
    "scheme, package",
    [
        ("s3", "dpbeam[s3]"),
        ("gs", "dpbeam[gcs]"),
        ("az", "dpbeam[azure]"),
        ("abfss", "dpbeam[azure]"),
        ("hdfs", "dpbeam[hdfs]"),
    ],
)
def test_a_filesystem_without_its_client(scheme, package, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError) as error:
        match_files([f"{scheme}://bucket/a.csv"])
    assert str(error.value) == (
        f"--input: cannot look up '{scheme}://bucket/a.csv': {scheme}:// needs the package {package}; "
        "install it"
    )


def test_an_unknown_filesystem():
    with pytest.raises(
        InputError, match=r"'nope://a.csv': no filesystem is known for nope://, only .*hdfs://"
    ):
        match_files(["nope://a.csv"])


def test_hidden_files_and_markers_are_no_data(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("part-0", ".part-0.crc", "_SUCCESS", "_metadata", "_part", "deep/part-1", "deep/er/part-2"):
        (tmp_path / name).write_text("x")
    assert [f.path for f in match_files([f"{tmp_path}/*"])] == [f"{tmp_path}/_part", f"{tmp_path}/part-0"]
    assert len(match_files([f"{tmp_path}/**"])) == 4
    assert match_files([f"{tmp_path}/_SUCCESS"])  # asked for by name
    assert match_files([f"{tmp_path}/.*"])[0].path.endswith(".crc")


def test_names_with_wildcard_characters(tmp_path):
    (tmp_path / "a[1].csv").write_text("x")
    assert match_files([f"{tmp_path}/a[1].csv"])[0].path == f"{tmp_path}/a[1].csv"


# ---- preflight


def test_summary(tmp_path):
    for n in range(40):
        table = pa.table({"user": pa.array(range(n + 1), pa.int64()), "item": ["i"] * (n + 1)})
        pq.write_table(table, tmp_path / f"{n:02d}.parquet")
    summary = preflight(pairs_spec(f"{tmp_path}/*.parquet"))
    assert len(summary.files) == 40 and summary.bytes == sum(file.size for file in summary.files)
    assert summary.kinds == Kinds("int", ("string",)) and not summary.complete_users
    assert abs(summary.rows_estimate - 820) < 82  # 32 of the 40 files were opened


@pytest.mark.parametrize(
    ("items", "settings", "low", "high"),
    [
        ([f"{n:0500}" for n in range(2_000)], {}, 500, 506),
        (["x" * 500] * 2_000, {}, 0, 2),  # a dictionary of one
        (list(range(2_000)), {}, 7, 14),
        ([[f"{n:0300}", f"{n:0400}"] for n in range(1_000)], {"layout": "grouped"}, 350, 358),
        (["to be or not"] * 10, {"tokenizer": "words"}, None, None),
        ([], {}, None, None),
    ],
)
def test_bytes_of_an_item(items, settings, low, high, tmp_path):
    table = pa.table({"user": pa.array(range(len(items)), pa.int64()), "item": items})
    if not items:
        table = table.set_column(1, "item", pa.array([], pa.string()))
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd")
    spec = pairs_spec(f"{tmp_path}/a.parquet", **settings)
    item_bytes = preflight(spec).item_bytes
    assert item_bytes is None if low is None else low <= item_bytes <= high


def test_bytes_of_an_item_of_two_columns(tmp_path):
    columns = {"user": [f"u{n}" for n in range(2_000)]}
    columns |= {name: [f"{n:0{size}}" for n in range(2_000)] for name, size in (("a", 100), ("b", 50))}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    spec = InputSpec.create([f"{tmp_path}/a.parquet"], user_column="user", item_columns=["a", "b"])
    assert 150 <= preflight(spec).item_bytes <= 162


def test_kind_behind_many_null_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"user": null, "item": null}\n' * 30_000 + '{"user": 3, "item": "i"}\n')
    assert preflight(pairs_spec(str(path))).kinds == Kinds("int", ("string",))
    for n in range(40):
        pq.write_table(pa.table({"user": pa.nulls(1), "item": ["i"]}), tmp_path / f"a{n:02d}.parquet")
    pq.write_table(pa.table({"user": [b"u"], "item": ["i"]}), tmp_path / "a20.parquet")
    assert preflight(pairs_spec(f"{tmp_path}/*.parquet")).kinds == Kinds("bytes", ("string",))


def test_input_without_values_is_fine(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("")
    summary = preflight(pairs_spec(str(path)))
    assert (
        summary.kinds == Kinds("string", ("string",))
        and plan_units(summary.files, pairs_spec(str(path))) == []
    )


# ---- planning


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 10**6), max_size=30),
    st.integers(10**4, 10**5),
    st.sampled_from(["jsonl", "csv", "csv multiline", "parquet"]),
)
def test_plan_covers_every_byte_once(sizes, split, format):
    files = [InputFile(f"{n:03d}", size) for n, size in enumerate(sizes)]
    options = {"format": "csv", "csv_multiline": True} if "multiline" in format else {"format": format}
    units = plan_units(files, pairs_spec("x", **options), split)
    covered = {}
    for unit in units:
        assert len(unit.pieces) == 1 or sum(p.end - p.start for p in unit.pieces) <= split
        for piece in unit.pieces:
            assert piece.start == covered.get(piece.path, 0)
            covered[piece.path] = piece.end
    assert covered == {file.path: file.size for file in files if file.size or format == "parquet"}
    assert len({unit.number for unit in units}) == len(units)
    if format == "csv multiline":
        assert all(piece.start == 0 for unit in units for piece in unit.pieces)
    else:
        assert all(p.end - p.start <= 1.5 * split for unit in units for p in unit.pieces)


def test_what_cannot_be_split_is_not():
    large = [InputFile("a.jsonl.gz", 10**9), InputFile("b.jsonl", 10**9)]
    units = plan_units(large, pairs_spec("x", format="jsonl"))
    assert [u.pieces[0].path for u in units].count("a.jsonl.gz") == 1 and len(units) > 20
    files = [InputFile("a.txt", 10**9)]
    assert len(plan_units(files, InputSpec.create(["a.txt"], text_layout="file"))) == 1
    assert len(plan_units(files, InputSpec.create(["a.txt"]))) > 10
    many = [InputFile(f"{n}.txt", 10) for n in range(20_000)]
    assert len(plan_units(many, InputSpec.create(["a.txt"]))) == 20


# ---- Beam


def test_scattered_on_beam(tmp_path):
    expected = [(f"u{n % 7}", f"i{n % 11}") for n in range(100)]
    lines = [json.dumps({"user": u, "item": i}) + "\n" for u, i in expected]
    (tmp_path / "a.jsonl").write_text("".join(lines[:60]))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[60:]).encode()))
    spec = pairs_spec(f"{tmp_path}/a.jsonl", f"{tmp_path}/*.jsonl.gz")
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        batches = pipeline | ReadInput(spec, desired_split_bytes=200)
        assert batches.element_type == pa.RecordBatch
        # Through a shuffle, so that the coder has its part.
        assert_that(batches | beam.Reshuffle() | beam.FlatMap(values), equal_to(expected))


def test_complete_on_beam(tmp_path):
    generator = np.random.default_rng(2)
    lists = [[int(i) for i in generator.integers(0, 9, n)] for n in generator.integers(0, 9, 300)]
    pq.write_table(pa.table({"items": lists}), tmp_path / "a.parquet", row_group_size=50)
    spec = InputSpec.create([f"{tmp_path}/a.parquet"], layout="grouped", item_columns=["items"])

    def check(elements):
        users = {}
        for block, user, item in elements:
            users.setdefault((block, user), []).append(item)
        assert sorted(map(sorted, users.values())) == sorted(sorted(v) for v in lists if v)

    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        blocks = pipeline | ReadInput(spec, target_pairs=100, desired_split_bytes=300)
        assert blocks.element_type == beam.typehints.Tuple[int, pa.RecordBatch]
        assert_that(blocks | beam.Reshuffle() | beam.FlatMap(block_values), check)


def test_counts_on_request(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\nu,i\nu,\nx\n")
    (tmp_path / "b.csv").write_text("user,item\nu,\n,i\n")
    spec = pairs_spec(f"{tmp_path}/*.csv", on_bad_row="skip", on_null="drop")
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        pairs, counts = pipeline | ReadInput(spec, with_counts=True)
        assert_that(pairs | beam.FlatMap(values), equal_to([("u", "i")]), label="pairs")
        totals = counts | beam.CombinePerKey(sum)
        assert_that(totals, equal_to([("bad_rows", 1), ("empty_items", 2), ("null_rows", 1)]), label="counts")


@pytest.mark.usefixtures("beams_runner")
def test_exact_counts_are_no_metrics(tmp_path):
    """Counts of rows are exact functions of private data: none reaches the job's metrics unasked."""
    (tmp_path / "a.csv").write_text("user,item\nu,i\nx\n")
    pipeline = beam.Pipeline(runner="FnApiRunner")
    _ = pipeline | ReadInput(pairs_spec(f"{tmp_path}/a.csv", on_bad_row="skip"))
    result = pipeline.run()
    result.wait_until_finish()
    metrics = result.metrics().query()
    assert not [m for kind in metrics.values() for m in kind if "dpbeam" in str(m.key.metric.namespace)]


def test_no_data_on_beam(tmp_path):
    (tmp_path / "a.jsonl").write_text("")
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        batches = pipeline | ReadInput(pairs_spec(f"{tmp_path}/a.jsonl"))
        assert_that(batches | beam.FlatMap(values), equal_to([]))


def test_long_items_make_smaller_blocks_of_complete_users(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "TEXT_PER_BLOCK", 50_000)
    lists = [[f"{n:0250}{i:0250}" for i in range(5)] for n in range(400)]
    pq.write_table(pa.table({"items": lists}), tmp_path / "a.parquet")
    spec = InputSpec.create([f"{tmp_path}/a.parquet"], layout="grouped", item_columns=["items"])
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        sizes = pipeline | ReadInput(spec) | beam.MapTuple(lambda block, batch: batch.num_rows)

        def check(rows):
            assert sum(rows) == 2_000 and len(rows) >= 20 and max(rows) <= 105

        assert_that(sizes, check)


def test_a_fault_found_by_a_worker(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("user,item\nu,i\nx\n")
    with pytest.raises(Exception, match="malformed row: 1 fields where the header has 2") as error:  # noqa: SIM117
        with beam.Pipeline(runner="FnApiRunner") as pipeline:
            _ = pipeline | ReadInput(pairs_spec(str(path)))
    assert f"{path}:3: malformed row" in str(error.value)


def test_arguments_are_checked(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("user,item\n")
    with pytest.raises(ValueError, match="target_pairs must be at least 1, got 0"):
        ReadInput(pairs_spec(str(path)), target_pairs=0)
    with pytest.raises(ValueError, match="desired_split_bytes must be at least 1, got 0"):
        ReadInput(pairs_spec(str(path)), desired_split_bytes=0)
    with pytest.raises(InputError):
        ReadInput(pairs_spec(f"{tmp_path}/b.csv"))


def test_display_data(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\nu,i\n")
    read = ReadInput(pairs_spec(f"{tmp_path}/a.csv"))
    assert read.display_data() == {"input": f"{tmp_path}/a.csv", "format": "csv", "work_units": 1}


@pytest.mark.parametrize("workers", [2, 3])
def test_row_groups_are_dealt_out_evenly(tmp_path, workers):
    """Files of one row group and two ranges: in the files' order every other unit would be empty."""
    for n in range(12):
        table = pa.table({"user": [f"u{n}-{i}" for i in range(500)], "item": [f"i{i}" for i in range(500)]})
        pq.write_table(table, tmp_path / f"{n:02d}.parquet")
    size = os.path.getsize(tmp_path / "00.parquet")
    spec = pairs_spec(f"{tmp_path}/*.parquet")
    read = ReadInput(spec, desired_split_bytes=size // 2)
    starts = [pieces[0][1] for _, pieces in read._units]
    assert len(starts) == 24 and starts.count(0) == 12
    dealt = [starts[worker::workers].count(0) for worker in range(workers)]
    assert max(dealt) - min(dealt) <= 1
