"""The private input is never taken for its own public list, which would release all of it."""

import os
import shutil

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import dpbeam
from dpbeam.cli import main
from dpbeam.errors import InputError
from tests.support.instances import popular_table

TABLE = popular_table(60, 0)
JOBS = {
    "select": ["--public_items"],
    "top-k": ["--k=1", "--domain"],
    "hitting-set": ["--k=1", "--domain"],
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(TABLE.slice(0, 200), "a.parquet")
    pq.write_table(TABLE.slice(200), "b.parquet")
    shutil.copy("b.parquet", "copy.parquet")
    os.symlink("b.parquet", "link.parquet")
    os.link("b.parquet", "hard.parquet")


def job(command, listed, *more) -> list[str]:
    *before, flag = JOBS[command]
    flags = [
        "--input=[ab].parquet",
        "--user_column=user",
        "--item_column=item",
        "--epsilon=2",
        "--delta=1e-3",
        "--users_at_least=100",
    ]
    return [command, *flags, *before, f"{flag}={listed}", "--output=out", "--quiet", *more]


@pytest.mark.parametrize(
    "command,listed",
    [
        *(("select", f"{name}.parquet") for name in ("b", "./b", "link", "hard", "copy", "?")),
        ("top-k", "copy.parquet"),
        ("hitting-set", "link.parquet"),
    ],
)
def test_is_refused_before_anything_runs(command, listed, place, capsys):
    before = sorted(os.listdir())
    assert main(job(command, listed)) == 2
    err = capsys.readouterr().err
    flag = JOBS[command][-1]
    assert (
        err.startswith(f"dpbeam {command}: error: {flag}: '") and "is the input of this run, or a copy" in err
    )
    assert sorted(os.listdir()) == before


def test_stdin_cannot_be_both(place, capsys):
    argv = ["select", "--input=-", "--input_format=csv", "--user_column=user", "--item_column=item"]
    argv += ["--epsilon=2", "--delta=1e-3", "--users_at_least=100", "--public_items=-", "--output=out"]
    read, write = os.pipe()
    os.write(write, b"user,item\na,b\n")
    os.close(write)
    kept = os.dup(0)
    os.dup2(read, 0)
    try:
        assert main(argv) == 2
    finally:
        os.dup2(kept, 0)
    assert "--public_items: '-' is the input of this run" in capsys.readouterr().err


@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl"])
def test_a_list_with_users_beside_its_items_is_doubted(format, place, capsys):
    part = TABLE.slice(0, 5)
    name = f"list.{format}"
    if format == "parquet":
        pq.write_table(part, name)
    elif format == "csv":
        pacsv.write_csv(part, name)
    else:
        with open(name, "w") as file:
            file.writelines(
                f'{{"user": "{row["user"]}", "item": "{row["item"]}"}}\n' for row in part.to_pylist()
            )
    assert main(job("select", name, "--dry_run")) == 0
    err = capsys.readouterr().err
    assert err.count("has the column 'user' of users beside its items") == 1
    pq.write_table(part.select(["item"]), "plain.parquet")
    assert main(job("select", "plain.parquet", "--dry_run")) == 0 and capsys.readouterr().err == ""


class TestInMemory:
    BUDGET = (("epsilon", 2.0), ("delta", 1e-3))

    @pytest.mark.parametrize(
        "data,listed",
        [
            (TABLE, TABLE),
            (TABLE, TABLE["item"]),
            ((columns := (TABLE["user"], TABLE["item"])), columns[1]),
            (TABLE, TABLE["item"].to_pylist()),
        ],
    )
    def test_is_refused(self, data, listed):
        with pytest.raises(InputError, match="public_items is the data of this call"):
            dpbeam.select(data, public_items=listed, **dict(self.BUDGET))
        with pytest.raises(InputError, match="domain is the data of this call"):
            dpbeam.hitting_set(data, k=2, domain=listed, **dict(self.BUDGET))

    @pytest.mark.parametrize(
        ("user", "item"),
        [("u", ""), ("u", None), (None, "i1"), ("", "")],
        ids=["empty", "null", "nobody", "both"],
    )
    def test_rows_that_are_dropped_hide_nothing(self, user, item):
        """A single one let the data pass for a public list, and all of them be released."""
        rows = TABLE.select(["user", "item"]).to_pylist()
        rows.insert(7, {"user": user, "item": item})
        data = pa.table({name: [row[name] for row in rows] for name in ("user", "item")})
        listed = [row["item"] for row in rows if row["item"] is not None]
        for values in (listed, data["item"].drop_null()):
            with pytest.raises(InputError, match="public_items is the data of this call"):
                dpbeam.select(data, public_items=values, on_null="drop", **dict(self.BUDGET))
            with pytest.raises(InputError, match="domain is the data of this call"):
                dpbeam.hitting_set(data, k=2, domain=values, on_null="drop", **dict(self.BUDGET))

    def test_a_list_with_users_is_doubted(self):
        with pytest.warns(UserWarning, match="column 'user' of users beside its items"):
            dpbeam.select(TABLE, public_items=TABLE.slice(0, 5), **dict(self.BUDGET))
