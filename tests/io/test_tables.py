"""Tables that their own libraries wrote: one version's rows are read, and nothing that was deleted or replaced."""

import datetime
import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.types import StringType
from pyiceberg.utils.config import Config

from dpbeam.cli import main
from dpbeam.errors import InputError
from dpbeam.io.partitions import Filter
from dpbeam.io.sources import preflight
from dpbeam.io.spec import InputSpec


def spec_of(place, **options):
    return InputSpec.create([place], **{"user_column": "user", "item_columns": ["item"], **options})


def refusal(read, place, **options):
    with pytest.raises(InputError) as error:
        read(spec_of(place, **options))
    assert "\n" not in str(error.value)
    return str(error.value)


def rows(*pairs, **more):
    users, items = zip(*pairs)
    return pa.table({"user": users, "item": items, **more})


# ---- Delta


@pytest.fixture
def delta(tmp_path):
    """Three writes, a delete, an update: rows of u1 are gone, those of u2 replaced."""
    place = str(tmp_path / "a table")
    write_deltalake(place, rows(("u1", "erased"), ("u2", "old"), ("u3", "c")))
    write_deltalake(place, rows(("u1", "erased"), ("u4", "d")), mode="append")
    DeltaTable(place).delete("user = 'u1'")
    DeltaTable(place).update(predicate="user = 'u2'", updates={"item": "'new'"})
    return place


NOW = {("u2", "new"): 1, ("u3", "c"): 1, ("u4", "d"): 1}


def test_the_live_rows_of_a_delta_table(read, delta):
    assert read(spec_of(f"delta:{delta}")) == (NOW, {})
    assert read(spec_of(f"delta:{delta}"), 1) == (NOW, {})
    before = {("u1", "erased"): 2, ("u2", "old"): 1, ("u3", "c"): 1, ("u4", "d"): 1}
    assert read(spec_of(f"delta:{delta}", table_version=1)) == (before, {})
    assert read(spec_of(f"delta:{delta}", table_version=0))[0] == Counter(before) - Counter(
        [("u1", "erased"), ("u4", "d")]
    )
    summary = preflight(spec_of(f"delta:{delta}"))
    assert summary.spec.table_version == 3 and summary.rows_estimate == 3
    assert summary.notes == (f"input: version 3 of the table, {len(summary.files)} files",)


def test_types_that_differ_between_files_of_a_table(read, delta, iceberg):
    """As after a change of a column's type that wrote no file anew."""
    write_deltalake(delta, rows(("u5", "e")), mode="append")
    for place, item in ((f"delta:{delta}", "item"), ("iceberg:shop.ns.t", "thing")):
        files = preflight(spec_of(place, item_columns=[item])).files
        path = files[-1].path
        table = pq.read_table(path)
        at = table.schema.names.index("user")
        day = pa.array([datetime.date(2026, 11, 1)] * table.num_rows)
        pq.write_table(table.set_column(at, table.schema.field(at).with_type(pa.date32()), day), path)
        with pytest.raises(InputError) as error:
            read(spec_of(place, item_columns=[item]))
        assert str(error.value) == (
            f"{path}: column 'user' holds date values where {files[0].path} holds string values; ids must have one "
            "type throughout, convert them"
        )


def test_what_is_no_delta_table(read, delta, tmp_path):
    assert refusal(read, f"delta:{tmp_path}/none").startswith("--input: cannot open the Delta table")
    assert "version 99" in refusal(read, f"delta:{delta}", table_version=99)
    assert refusal(read, f"delta:{delta}", item_columns=["thing"]).startswith("--item_column: ")
    with pytest.raises(InputError, match="delta is read from one table, got 2"):
        preflight(InputSpec.create([f"delta:{delta}"] * 2, user_column="user", item_columns=["item"]))
    with pytest.raises(InputError, match="--table_version: is for --input_format=delta or iceberg, not csv"):
        spec_of("a.csv", table_version=3)


def test_partitions_and_new_columns_of_a_delta_table(read, tmp_path):
    """Values that need escapes in paths; a column that older files lack is null in them."""
    place = str(tmp_path / "t")
    days = [datetime.date(2026, 11, 1), None]
    write_deltalake(
        place,
        rows(("u1", "a"), ("u2", "b"), shop=["x/y %", "ü=1"], day=days, n=[1, 2]),
        partition_by=["shop", "day", "n"],
    )
    more = rows(("u3", "c"), shop=["x/y %"], day=days[:1], n=[1], colour=["red"])
    write_deltalake(place, more, mode="append", schema_mode="merge")
    live = read(spec_of(f"delta:{place}", item_columns=["item", "shop", "n"]))[0]
    expected = [("u1", ("a", "x/y %", 1)), ("u2", ("b", "ü=1", 2)), ("u3", ("c", "x/y %", 1))]
    assert live == Counter(expected)
    assert read(spec_of(f"delta:{place}", user_column="shop"))[0] == Counter(
        [("x/y %", "a"), ("x/y %", "c"), ("ü=1", "b")]
    )
    live = read(spec_of(f"delta:{place}", item_columns=["colour"], on_null="drop"))
    assert live == ({("u3", "red"): 1}, {"null_rows": 2})
    assert "null in column 'colour'" in refusal(read, f"delta:{place}", item_columns=["colour"])


def test_rows_of_a_table_that_are_users(read, tmp_path):
    place = str(tmp_path / "t")
    write_deltalake(place, pa.table({"id": range(9), "items": [[f"w{n}", "all"] for n in range(9)]}))
    DeltaTable(place).delete("id < 4")
    spec = InputSpec.create([f"delta:{place}"], layout="grouped", item_columns=["items"])
    for split in (None, 1):
        assert sorted(read(spec, split)[0]) == [["all", f"w{n}"] for n in range(4, 9)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": ["deletionVectors", "rowTracking"]}, "has features that are not read: rowTracking"),
        (
            {"features": ["columnMapping"], "configuration": {"delta.columnMapping.mode": "name"}},
            "maps its columns by name",
        ),
    ],
)
def test_what_would_change_the_meaning_of_the_files(read, tmp_path, changes, message):
    place = tmp_path / "t"
    write_deltalake(str(place), rows(("u1", "a")))
    (log,) = (place / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            features = changes["features"]
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7}
            action["protocol"] |= {"readerFeatures": features, "writerFeatures": features}
        if "metaData" in action:
            action["metaData"]["configuration"] = changes.get("configuration", {})
            if "configuration" in changes:
                schema = json.loads(action["metaData"]["schemaString"])
                for number, field in enumerate(schema["fields"], start=1):
                    field["metadata"] = {
                        "delta.columnMapping.id": number,
                        "delta.columnMapping.physicalName": field["name"],
                    }
                action["metaData"]["schemaString"] = json.dumps(schema)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    said = refusal(read, f"delta:{place}")
    assert message in said or said.startswith("--input: cannot open the Delta table"), said
    if changes["features"] == ["columnMapping"]:
        assert message in said


def test_deletion_vectors_are_refused(read, delta, monkeypatch):
    hidden = pa.table({"filepath": [f"{delta}/x"], "selection_vector": [[False, True]]}).to_reader()
    monkeypatch.setattr(DeltaTable, "deletion_vectors", lambda self: hidden)
    assert "has rows that deletion vectors hide" in refusal(read, f"delta:{delta}")


# ---- Iceberg


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/wh"}
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__SHOP__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # which read them when it was imported
    local = load_catalog("shop")
    local.create_namespace("ns")
    return local


@pytest.fixture
def iceberg(catalog):
    """A delete, an overwrite, a column renamed and one added."""
    first = rows(("u1", "erased"), ("u2", "old"), ("u3", "c"))
    table = catalog.create_table("ns.t", schema=first.schema)
    table.append(first)
    table.delete("user = 'u1'")
    table.overwrite(rows(("u2", "new")), EqualTo("user", "u2"))
    with table.update_schema() as change:
        change.rename_column("item", "thing")
        change.add_column("colour", StringType())
    table.append(pa.table({"user": ["u4"], "thing": ["d"], "colour": ["red"]}))
    return catalog.load_table("ns.t")


def test_the_live_rows_of_an_iceberg_table(read, iceberg):
    named = {"item_columns": ["thing"]}
    for place in ("iceberg:shop.ns.t", f"iceberg:{iceberg.metadata_location.removeprefix('file://')}"):
        assert read(spec_of(place, **named)) == (NOW, {})
    history = [entry.snapshot_id for entry in iceberg.history()]
    assert preflight(spec_of("iceberg:shop.ns.t", **named)).spec.table_version == history[-1]
    live = read(spec_of("iceberg:shop.ns.t", table_version=history[0]))[0]  # by the names of that time
    assert live == {("u1", "erased"): 1, ("u2", "old"): 1, ("u3", "c"): 1}
    live = read(spec_of("iceberg:shop.ns.t", item_columns=["colour"], on_null="drop"))
    assert live == ({("u4", "red"): 1}, {"null_rows": 2})


def test_a_column_is_renamed_and_nothing_is_written(read, iceberg):
    """The current snapshot has the table's names of today, an older one those of its time."""
    with iceberg.update_schema() as change:
        change.rename_column("thing", "word")
    assert read(spec_of("iceberg:shop.ns.t", item_columns=["word"])) == (NOW, {})
    now, before = (entry.snapshot_id for entry in reversed(iceberg.history()[-2:]))
    assert read(spec_of("iceberg:shop.ns.t", item_columns=["word"], table_version=now)) == (NOW, {})
    assert "no column 'word'" in refusal(
        read, "iceberg:shop.ns.t", item_columns=["word"], table_version=before
    )


def test_what_is_no_iceberg_table(read, iceberg, catalog):
    assert "cannot open the Iceberg table 'shop.ns.x'" in refusal(read, "iceberg:shop.ns.x")
    assert "cannot open the Iceberg table" in refusal(read, "iceberg:nope.ns.x")
    assert "no such snapshot" in refusal(read, "iceberg:shop.ns.t", table_version=7)
    assert "its catalog knows which metadata is current" in refusal(read, "iceberg:/some/folder")
    catalog.create_table("ns.empty", schema=rows(("u", "i")).schema)
    assert "has no snapshot" in refusal(read, "iceberg:shop.ns.empty")


def test_deletes_that_are_merged_on_read_are_refused(read, iceberg, monkeypatch):
    from pyiceberg.table import DataScan

    tasks = list(iceberg.scan().plan_files())
    tasks[0].delete_files.add(tasks[0].file)
    monkeypatch.setattr(DataScan, "plan_files", lambda self: tasks)
    assert "rows that delete files hide (merge-on-read)" in refusal(
        read, "iceberg:shop.ns.t", item_columns=["thing"]
    )


def test_files_of_an_iceberg_table_that_lack_what_it_has(read, catalog):
    """Files of other tools may lack a column whose value their folder tells, or all ids: no nulls are made up."""
    data = rows(("u1", "a"), ("u2", "b"), shop=["x", "x"])
    table = catalog.create_table("ns.p", schema=data.schema)
    with table.update_spec() as change:
        change.add_identity("shop")
    table.append(data)
    (task,) = table.scan().plan_files()
    path = task.file.file_path.removeprefix("file://")
    stored = pq.ParquetFile(path).read()
    assert read(spec_of("iceberg:shop.ns.p", item_columns=["shop"]))[0] == {("u1", "x"): 1, ("u2", "x"): 1}
    pq.write_table(stored.drop_columns("shop"), path)
    assert read(spec_of("iceberg:shop.ns.p"))[0] == {("u1", "a"): 1, ("u2", "b"): 1}
    said = refusal(read, "iceberg:shop.ns.p", item_columns=["shop"])
    assert (
        said == f"{path}: holds no values of column 'shop', which the table has elsewhere; this is not read"
    )
    pq.write_table(data, path)
    said = refusal(read, "iceberg:shop.ns.p")
    assert said == f"{path}: a column has no field id: such files of a table are not read"


# ---- partitions


@pytest.fixture
def folders(tmp_path):
    """A file for each of four days and two shops; of the last day it is no Parquet."""
    for day in ("2026-10-31", "2026-11-01", "2026-11-02", "2026-12-01"):
        for shop in ("x%2Fy", "__HIVE_DEFAULT_PARTITION__"):
            folder = tmp_path / f"day={day}" / f"shop={shop}"
            folder.mkdir(parents=True)
            pq.write_table(rows((f"u{day}", shop[0])), folder / "a.parquet")
            if day == "2026-12-01":
                (folder / "a.parquet").write_text("damaged")
    return tmp_path


def test_partitions_are_columns_and_filters(read, folders):
    place = f"{folders}/**/*.parquet"
    days = ["day>=2026-11-01", "day<2026-12-01"]
    options = {"partitions": days, "item_columns": ["day", "shop", "item"], "on_null": "drop"}
    for split in (None, 1):
        kept = read(spec_of(place, **options), split)
        expected = {(f"u{day}", (day, "x/y", "x")): 1 for day in ("2026-11-01", "2026-11-02")}
        assert kept == (expected, {"null_rows": 2})
    assert len(preflight(spec_of(place, partitions=["day=2026-11-02"])).files) == 2
    assert len(preflight(spec_of(place, partitions=["day!=2026-12-01", "shop=x/y"])).files) == 3
    assert read(spec_of(place, partitions=days, item_columns=["day"], user_column="item"))[0].keys() == {
        (shop, day) for shop in "x_" for day in ("2026-11-01", "2026-11-02")
    }


def test_a_folder_is_its_files_of_one_format(read, folders, tmp_path):
    """And of the folders below it; what other tools take for no data is left out, and said."""
    place = tmp_path / "a [1]*"
    (place / "day=2026-11-01").mkdir(parents=True)
    for name in ("a.parquet", "day=2026-11-01/b.parquet"):
        pq.write_table(rows((f"u{name[0]}", "x")), place / name)
    (place / "_temporary").mkdir()
    for name in ("_SUCCESS", "_rest.csv", ".a.parquet.crc", "_temporary/c.parquet"):
        (place / name).write_text("no data")
    kept, _ = read(spec_of(str(place)))
    assert kept == {("ua", "x"): 1, ("ud", "x"): 1}
    assert preflight(spec_of(str(place))).notes == (
        "input: 4 files whose names begin with a dot or an underscore are left out",
    )
    assert preflight(spec_of(f"{place}/")).bytes == preflight(spec_of(str(place))).bytes
    (place / "more.csv").write_text("user,item\n")
    with pytest.raises(
        InputError, match=r"a\.parquet' is parquet and '.*more\.csv' is csv; one job reads one format"
    ):
        spec_of(str(place))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"the folder '.*empty' holds no file to read"):
        spec_of(str(tmp_path / "empty"))


def test_filters_that_say_nothing(read, folders):
    place = f"{folders}/**/*.parquet"
    assert refusal(read, place, partitions=["day=2026-01-01"]) == "--partition: no file is left of 8"
    assert "lies in no partition hour=..." in refusal(read, place, partitions=["hour>3"])
    for text in ("day", "=3", "day>=", "day~3"):
        with pytest.raises(InputError, match="--partition: expected a comparison such as"):
            spec_of(place, partitions=[text])


@pytest.mark.parametrize(
    ("text", "kept"),
    [("n>9", "10"), ("n<=9", "9"), ("n=10", "10"), ("n = 09", "9"), ("n!=9", "10"), ("n>9x", "")],
)
def test_integers_are_compared_as_integers(text, kept):
    values = [value for value in ("9", "10") if Filter.parse(text).keeps(value)]
    assert values == ([kept] if kept else [])
    assert not Filter.parse(text).keeps(None)


def test_partitions_of_a_table(read, tmp_path):
    table = rows(("u", "a"), ("v", "b"), day=[datetime.date(2026, 11, 1), datetime.date(2026, 11, 2)])
    write_deltalake(str(tmp_path / "t"), table, partition_by=["day"])
    spec = spec_of(f"delta:{tmp_path}/t", partitions=["day>2026-11-01"], item_columns=["day"])
    assert read(spec)[0] == {("v", "2026-11-02"): 1}


# ---- globs


def test_a_glob_in_the_folder_of_a_table_is_refused(read, delta, iceberg, tmp_path):
    """It would read the rows that were deleted, and release the words of users that were erased."""
    import os

    os.makedirs(f"{delta}/day=1")
    pq.write_table(rows(("u", "i")), f"{delta}/day=1/x.parquet")
    for pattern in ("*.parquet", "day=1/*.parquet", "**/*.parquet"):
        assert refusal(read, f"{delta}/{pattern}") == (
            f"--input: '{delta}' is the folder of a table, whose files hold deleted and replaced rows too; read it as "
            f"--input delta:{delta}"
        )
    place = iceberg.metadata_location.removeprefix("file://").rpartition("/metadata/")[0]
    assert "read it as --input iceberg:CATALOG.NAMESPACE.TABLE" in refusal(read, f"{place}/data/*.parquet")
    pq.write_table(rows(("u", "i")), tmp_path / "plain.parquet")
    assert read(spec_of(f"{tmp_path}/*.parquet"))[0] == {("u", "i"): 1}


def test_erased_users_do_not_reach_the_release(tmp_path, capsys):
    """The glob over the same folder released the words of 400 users that had been deleted, with exit code 0."""
    place = str(tmp_path / "t")
    users = [f"u{n}" for n in range(800)]
    words = ["erased" if n < 400 else "kept" for n in range(800)]
    write_deltalake(place, pa.table({"user": users, "item": words}))
    DeltaTable(place).delete("item = 'erased'")
    flags = [
        "--user_column=user",
        "--item_column=item",
        "--epsilon=2",
        "--delta=1e-4",
        "--output_format=text",
    ]
    flags += ["--quiet", f"--output={tmp_path}/out"]
    assert main(["select", f"--input={place}/*.parquet", *flags]) == 2
    assert f"--input delta:{place}" in capsys.readouterr().err
    assert main(["select", f"--input=delta:{place}", *flags]) == 0
    assert (tmp_path / "out-00000-of-00001.txt").read_text() == "kept\n"
    ledger = json.loads((tmp_path / "out.ledger.json").read_text())
    assert ledger["parameters"]["input"]["table_version"] == 1
    assert ledger["parameters"]["input"]["format"] == "delta"
    assert main(["select", f"--input=delta:{place}", "--table_version=0", "--overwrite", *flags]) == 0
    assert (tmp_path / "out-00000-of-00001.txt").read_text() == "erased\nkept\n"
    assert main(["check", f"--input=delta:{place}"]) == 0
    assert main(["check", f"--input=delta:{place}/none"]) == 1
    capsys.readouterr()
    assert main(["select", f"--input=delta:{place}", f"--checkpoint={tmp_path}/c", *flags]) == 2
    assert "pass --table_version" in capsys.readouterr().err
