"""`select --known`: items of earlier releases cost nothing, and the output says which are new."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbeam
from dpbeam.accounting.ledger import Ledger
from dpbeam.cli import main
from dpbeam.errors import InputError
from dpbeam.io.item_lists import read_items
from dpbeam.io.known import read_known
from dpbeam.io.output_formats import OUTPUT_FORMATS
from dpbeam.io.sinks import OutputColumns, write_shard
from dpbeam.review.verification import check_ledger
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.known import KNOWN, NEW, differences, known_cost
from dpbeam.selectors.registry import DEFAULT_METHOD
from tests.support.instances import popular_table
from tests.support.releases import ledger_of

STRING = OutputColumns(("item",), ("string",))
KEY = "--insecure_test_key=0a"
BUDGET = ["--epsilon=2", "--delta=1e-3", "--max_items_per_user=6", "--quiet"]


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """A release of a first night, and the input of two."""
    folder = tmp_path_factory.mktemp("nights")
    for night, users in enumerate((150, 400)):
        pq.write_table(popular_table(users, night), folder / f"{night}.parquet")
    assert main(job(folder, 0, "first")) == 0
    return folder


def job(folder, night, output, *more):
    return ["select", f"--input={folder}/{night}.parquet", f"--output={folder}/{output}", *BUDGET, *more]


def read(folder, output):
    (path,) = folder.glob(f"{output}-0*")
    return pq.read_table(path).to_pydict()


def ledger(folder, output):
    return Ledger.from_json((folder / f"{output}.ledger.json").read_text())


def test_a_second_night(nights, capsys):
    """As if the first night's items were public, with a column that tells them; a third night reads text of it."""
    known, text = f"--known={nights}/first.ledger.json", (nights / "first.ledger.json").read_text()
    assert main(job(nights, 1, "second", known, KEY, "--output_format=text")) == 0
    assert main(job(nights, 1, "listed", f"--public_items={nights}/first", KEY)) == 0
    first, listed = read(nights, "first")["item"], read(nights, "listed")["item"]
    (path,) = nights.glob("second-0*")
    rows = dict(line.split("\t") for line in path.read_text().splitlines())
    assert rows == {item: "false" if item in first else "true" for item in listed}
    assert {"true", "false"} == set(rows.values())
    (named,) = ledger(nights, "second").parameters["known"]
    assert named["ledger_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert (named["method"], named["epsilon"], named["delta"]) == (DEFAULT_METHOD, 2, 1e-3)
    assert not ledger(nights, "second").public_items
    capsys.readouterr()
    # NOT PRIVATE, which verify says, but nothing else is wrong with it.
    main(["verify", f"{nights}/second.ledger.json", "--contents"])
    out = capsys.readouterr().out
    assert "-- " in out and "epsilon 2 and delta 0.001" in out and out.count("FAILS") == 1
    both = read_known([f"{nights}/first", f"{nights}/second", f"{nights}/first"], STRING, insecure=True)
    assert len(both.named) == 2 and sorted(both.items.to_pylist()) == sorted(i.encode() for i in listed)


def test_new_items_alone(nights, capsys):
    """The rows of the whole output that are new; verify takes the ledger, which says so."""
    known = [f"--known={nights}/first", KEY, "--noisy_counts"]
    assert main(job(nights, 1, "whole", *known)) == 0
    assert main(job(nights, 1, "some", *known, "--only_new")) == 0
    whole, some = (pa.table(read(nights, name)).to_pylist() for name in ("whole", "some"))
    assert some == [row for row in whole if row[NEW]] and 0 < len(some) < len(whole)
    assert ledger(nights, "some").parameters["only_new"] is True
    assert "only_new" not in ledger(nights, "whole").parameters
    capsys.readouterr()
    main(["verify", f"{nights}/some.ledger.json", "--contents"])
    assert capsys.readouterr().out.count("FAILS") == 1  # the key


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--only_new"], "--only_new needs --known, which says what is not new"),
        (
            ["--only_new", "--known=first", "--noisy_counts", "--others"],
            "--others counts users that hold neither known nor new items: drop it, or --only_new",
        ),
    ],
)
def test_only_new_of_what(flags, message, nights, capsys):
    assert main(job(nights, 1, "refused", *flags)) == 2
    assert capsys.readouterr().err == f"dpbeam select: error: {message}\n"
    assert not list(nights.glob("refused*"))


def test_memory_gives_the_same_with_counts(nights):
    out = ["--noisy_counts", f"--known={nights}/first", KEY]
    assert main(job(nights, 1, "counted", *out, "--num_shards=2")) == 0
    release = dpbeam.select(pq.read_table(nights / "0.parquet"), epsilon=2, delta=1e-3, max_items_per_user=6)
    first = dpbeam.in_memory.select.Selection(pq.read_table(next(nights.glob("first-0*"))), release.ledger)
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        second = dpbeam.select(
            pq.read_table(nights / "1.parquet"),
            epsilon=2,
            delta=1e-3,
            max_items_per_user=6,
            noisy_counts=True,
            known=first,
            insecure_test_key="0a",
        )
    assert second.table.to_pydict() == read(nights, "counted")
    assert second.table.schema.names == ["item", "noisy_count", "noisy_count_sd", NEW]
    assert set(second.items) > set(first.items) and second.table["noisy_count"].null_count == 0
    assert second.table.filter(pa.compute.invert(second.table[NEW]))["item"].to_pylist() == first.items
    named = second.ledger.parameters["known"]
    assert named[0]["ledger_sha256"] == hashlib.sha256(release.ledger.to_json().encode()).hexdigest()


def test_a_dry_run_says_what_is_known_and_writes_nothing(nights, capsys):
    before = sorted(nights.iterdir())
    flags = [
        flag for flag in job(nights, 1, "dry", f"--known={nights}/first", "--dry_run") if flag != "--quiet"
    ]
    assert main(flags) == 0
    items = len(read(nights, "first")["item"])
    assert f"known: {items} items of 1 releases take no part in the selection" in "".join(capsys.readouterr())
    assert sorted(nights.iterdir()) == before


@pytest.mark.parametrize("format", OUTPUT_FORMATS)
def test_the_column_in_every_format(format, tmp_path):
    items = pa.array([b"a,b", b"z", b"\xc3\xa9"], pa.large_binary())
    columns = OutputColumns(
        ("item",), ("string",), SelectionConfig(1, 1e-5, noisy_counts=True).columns(KNOWN)
    )
    numbers = {
        "noisy_count": np.array([3.0, -1.0, 2.0]),
        "noisy_count_sd": np.full(3, 1.5),
        NEW: np.array([1.0, 0, 1]),
    }
    path = tmp_path / f"out-00000-of-00001.{OUTPUT_FORMATS[format]}"
    with path.open("wb") as file:
        write_shard(file, items, numbers, columns, format)
    stated = ledger_of().parameters | {
        "noisy_counts": True,
        "known": [],
        "output": {"format": format, "shards": 1},
    }
    text = json.loads(ledger_of().to_json()) | {"parameters": stated}
    (tmp_path / "out.ledger.json").write_text(json.dumps(text))
    assert read_items(f"{tmp_path}/out", STRING, "--known").to_pylist() == items.to_pylist()
    if format == "parquet":
        assert pq.read_table(path)[NEW].to_pylist() == [True, False, True]
    elif format == "jsonl":
        assert [json.loads(line)[NEW] for line in path.read_text().splitlines()] == [True, False, True]
    else:
        ends = [line.replace(",", "\t").split("\t")[-1] for line in path.read_text().splitlines()]
        assert ends[-3:] == ["true", "false", "true"]


class TestRefused:
    @pytest.fixture
    def copy(self, nights, tmp_path):
        """The first night's release, to be spoilt."""
        for path in nights.glob("first*"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
        return tmp_path / "first"

    def known(self, prefix, columns=STRING, insecure=False):
        return read_known([str(prefix)], columns, insecure=insecure)

    def spoil(self, copy, change):
        path = Path(f"{copy}.ledger.json")
        values = json.loads(path.read_text())
        change(values)
        path.write_text(json.dumps(values))

    def test_is_whole_as_it_is(self, copy):
        assert len(self.known(copy).items) > 3

    def test_no_release(self, tmp_path, nights):
        with pytest.raises(InputError, match=r"--known: '.*none' is no finished release: cannot read"):
            self.known(tmp_path / "none")
        with pytest.raises(InputError, match=r"--known: '.*0.parquet' is no finished release"):
            self.known(nights / "0.parquet")

    def test_a_ledger_that_spends_more_than_it_says(self, copy):
        self.spoil(copy, lambda values: values.update(epsilon=1.0))
        with pytest.raises(
            InputError, match=r"--known: '.*ledger.json' does not verify: guarantee: .* costs delta"
        ):
            self.known(copy)

    def test_no_ledger(self, copy):
        Path(f"{copy}.ledger.json").write_text("{}")
        with pytest.raises(InputError, match=r"--known: '.*ledger.json': not a ledger of dpbeam"):
            self.known(copy)

    def test_files_that_were_changed(self, copy):
        (path,) = copy.parent.glob("first-0*")
        pq.write_table(pa.table({"item": ["the user's own"]}), path)
        with pytest.raises(
            InputError, match="does not verify: contents: 1 of 1 files are not what the run wrote"
        ):
            self.known(copy)
        path.unlink()
        with pytest.raises(InputError, match="does not verify: output: 1 of 1 files are missing"):
            self.known(copy)

    def test_a_fixed_key_unless_the_run_has_one(self, copy):
        self.spoil(copy, lambda values: values.update(key_source="NOT PRIVATE: fixed test key"))
        with pytest.raises(InputError, match=r"--known: '.*first' is NOT PRIVATE"):
            self.known(copy)
        assert len(self.known(copy, insecure=True).items)

    def test_a_release_without_digests(self, copy):
        self.spoil(copy, lambda values: values.pop("release"))
        with pytest.raises(InputError, match="names no files with their digests"):
            self.known(copy)

    def test_items_of_another_type(self, copy):
        with pytest.raises(
            InputError, match="'item' holds string values, but the items of the input are int"
        ):
            self.known(copy, OutputColumns(("item",), ("int",)))

    def test_the_command_ends_with_2(self, nights, copy, capsys):
        Path(f"{copy}.ledger.json").unlink()
        assert main(job(nights, 1, "never", f"--known={copy}")) == 2
        assert capsys.readouterr().err.startswith("dpbeam select: error: --known")
        assert not list(nights.glob("never*"))

    def test_a_known_release_is_not_overwritten(self, nights, capsys):
        assert main(job(nights, 1, "first", f"--known={nights}/first", "--overwrite")) == 2
        assert "is an input of this run" in capsys.readouterr().err

    @pytest.mark.parametrize(
        "known,message",
        [
            (["tea"], "known must be a Selection, got str"),
            ("fixed", "known: a release is NOT PRIVATE"),
            ("ints", "known holds int values, but column 'item' holds string values"),
        ],
    )
    def test_in_memory(self, known, message):
        result = dpbeam.select({"user": ["a"], "item": ["x"]}, epsilon=1, delta=1e-6)
        if known == "fixed":
            with pytest.warns(UserWarning):
                known = dpbeam.select(
                    {"user": ["a"], "item": ["x"]}, epsilon=1, delta=1e-6, insecure_test_key="aa"
                )
        elif known == "ints":
            known = type(result)(pa.table({"item": [1]}), result.ledger)
        with pytest.raises(InputError, match=message):
            dpbeam.select({"user": ["a"], "item": ["x"]}, epsilon=1, delta=1e-6, known=known)

    def test_in_memory_other_users_draw_a_warning(self):
        result = dpbeam.select({"user": ["a"], "item": ["x"]}, epsilon=1, delta=1e-6)
        with pytest.warns(UserWarning, match="its privacy unit is '.*'user''"):
            dpbeam.select(
                {"device": ["a"], "item": ["x"]}, user="device", epsilon=1, delta=1e-6, known=[result]
            )


class TestLedgers:
    def test_what_may_be_other_users(self):
        one = ledger_of()
        assert list(differences(one, one.privacy_unit, None)) == []
        charged = ledger_of()
        charged.parameters["account"] = {"dataset": "logs"}
        assert list(differences(charged, one.privacy_unit, "logs")) == []
        assert list(differences(charged, "one user: other", "sales")) == [
            f"its privacy unit is '{one.privacy_unit}', that of this run 'one user: other'",
            "it is charged to dataset 'logs', this run to dataset 'sales'",
        ]
        assert list(differences(one, one.privacy_unit, "logs")) == [
            "it is charged to no account, this run to dataset 'logs'"
        ]

    def test_what_known_releases_cost_is_stated_and_a_torn_list_fails(self):
        digest = {"ledger_sha256": "ab" * 32, "method": "gsu"}
        stated = ledger_of()
        stated.parameters["known"] = [
            {**digest, "epsilon": 1.0, "delta": 1e-6},
            {**digest, "epsilon": 0.5, "delta": 1e-7},
        ]
        assert known_cost(stated).startswith("epsilon 1.5 and delta 1.1e-06")
        statements = {s.name: s for s in check_ledger(stated.to_json())[1]}
        assert statements["known releases"].holds is None and statements["settings"].holds is True
        stated.parameters["known"] = [digest]
        statements = {s.name: s for s in check_ledger(stated.to_json())[1]}
        assert statements["known releases"].holds is False
