"""Tables that Spark wrote, as Delta and as Iceberg: live rows are read, what hides rows is refused."""

import subprocess

import pytest

from dpbeam.errors import InputError
from dpbeam.io.sources import preflight
from dpbeam.io.spec import InputSpec
from tests.engines.conftest import ROOT, _fetch
from tests.support.input import read

pytestmark = [pytest.mark.engines, pytest.mark.slow]

# Three writes, a delete, an update and a merge: rows of u1 are gone, those of u2 and u3 replaced.
HISTORY = """
INSERT INTO {table} VALUES ('u1', 'erased', 'x/y %'), ('u2', 'old', 'x/y %'), ('u3', 'c', 'b');
INSERT INTO {table} VALUES ('u1', 'erased', 'b'), ('u4', 'd', 'b');
DELETE FROM {table} WHERE user = 'u1';
UPDATE {table} SET item = 'new' WHERE user = 'u2';
MERGE INTO {table} t USING (SELECT * FROM VALUES ('u3', 'merged'), ('u5', 'e') s(user, item)) s ON t.user = s.user
  WHEN MATCHED THEN UPDATE SET item = s.item
  WHEN NOT MATCHED THEN INSERT (user, item, day) VALUES (s.user, s.item, 'z');
"""
NOW = {("u2", ("new", "x/y %")): 1, ("u3", ("merged", "b")): 1, ("u4", ("d", "b")): 1, ("u5", ("e", "z")): 1}
COLUMNS = "(user STRING, item STRING, day STRING)"
VECTORS, MERGED = "delta.enableDeletionVectors", "write.delete.mode"


def _script(folder) -> str:
    def delta(name):
        return f"delta.`{folder}/{name}`"

    return "\n".join(
        (
            # Partitions in the paths; a delete leaves whole files.
            f"CREATE TABLE {delta('whole')} {COLUMNS} USING delta PARTITIONED BY (day) "
            f"TBLPROPERTIES ('{VECTORS}' = 'false');",
            HISTORY.format(table=delta("whole")),
            f"ALTER TABLE {delta('whole')} ADD COLUMN colour STRING;",
            f"CREATE TABLE {delta('hidden')} {COLUMNS} USING delta TBLPROPERTIES ('{VECTORS}' = 'true');",
            f"INSERT INTO {delta('hidden')} SELECT /*+ COALESCE(1) */ 'u' || id, 'erased', 'b' FROM range(9);",
            f"DELETE FROM {delta('hidden')} WHERE user = 'u1';",
            f"CREATE TABLE {delta('mapped')} {COLUMNS} USING delta "
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name');",
            f"CREATE TABLE ice.db.whole {COLUMNS} USING iceberg PARTITIONED BY (day);",
            HISTORY.format(table="ice.db.whole"),
            "ALTER TABLE ice.db.whole RENAME COLUMN item TO word;",
            f"CREATE TABLE ice.db.hidden {COLUMNS} USING iceberg TBLPROPERTIES ('{MERGED}' = 'merge-on-read', "
            "'format-version' = '2');",
            "INSERT INTO ice.db.hidden SELECT /*+ COALESCE(1) */ 'u' || id, 'erased', 'b' FROM range(9);",
            "DELETE FROM ice.db.hidden WHERE user = 'u1';",
        )
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of the tables; Iceberg's are below `ice/db`."""
    _fetch("spark")
    folder = tmp_path_factory.mktemp("tables")
    (folder / "tables.sql").write_text(_script(folder))
    command = [ROOT / "scripts" / "spark", "sql", folder / "tables.sql", folder / "ice"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def place(written, table):
    kind, name = table.split(":")
    if kind == "delta":
        return f"delta:{written / name}"
    versions = (written / "ice" / "db" / name / "metadata").glob("v*.metadata.json")
    return f"iceberg:{max(versions, key=lambda path: int(path.name[1:].partition('.')[0]))}"


def spec_of(pattern, item="item"):
    return InputSpec.create([pattern], user_column="user", item_columns=[item, "day"])


@pytest.mark.parametrize(("table", "item"), [("delta:whole", "item"), ("iceberg:whole", "word")])
def test_the_live_rows(written, table, item):
    assert read(spec_of(place(written, table), item)) == (NOW, {})
    assert read(spec_of(place(written, table), item), 1) == (NOW, {})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("delta:hidden", "has rows that deletion vectors hide"),
        ("delta:mapped", "maps its columns by name"),
        ("iceberg:hidden", "has rows that delete files hide (merge-on-read)"),
    ],
)
def test_what_hides_rows_or_names_is_refused(written, table, message):
    with pytest.raises(InputError) as error:
        preflight(spec_of(place(written, table)))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("glob", ["whole/**/*.parquet", "ice/db/whole/data/**/*.parquet"])
def test_a_glob_over_a_table_is_refused(written, glob):
    with pytest.raises(InputError, match="is the folder of a table"):
        preflight(spec_of(f"{written}/{glob}"))
