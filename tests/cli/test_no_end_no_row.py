"""Inputs that hold nothing, or never end: neither is a paid success, and neither fills a disk or a memory."""

import io
import subprocess
import sys
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam import room
from dpbeam.cli import main
from dpbeam.io import pairs
from tests.support.commands import COLUMNS, standard_input

BUDGET = ["--epsilon=2", "--delta=1e-3", "--users_at_least=100"]
NOTHING = pa.table({"user": pa.array([], pa.string()), "item": pa.array([], pa.string())})


def avro_file(users, items) -> bytes:
    sink = io.BytesIO()
    fields = [{"name": name, "type": ["null", "string"]} for name in ("user", "item")]
    rows = [{"user": user, "item": item} for user, item in zip(users, items)]
    fastavro.writer(sink, {"type": "record", "name": "row", "fields": fields}, rows)
    return sink.getvalue()


@pytest.fixture
def place(tmp_path, monkeypatch, own_temp):
    monkeypatch.chdir(tmp_path)
    assert (
        main(["budget", "create", "--budget=b.db", "--dataset=d", "--epsilon=9", "--delta=0.01", "--quiet"])
        == 0
    )
    return tmp_path


def spent() -> list[str]:
    import sqlite3

    with sqlite3.connect("b.db") as store:
        return [kind for (kind,) in store.execute("select kind from dpbeam_budget_entries order by number")]


ACCOUNT = ["--budget=b.db", "--dataset=d", "--release_id=r"]
EMPTY = {
    "none.csv": b"user,item\n",
    "none.jsonl": b"",
    "blank.jsonl": b"\n\n",
    "none.txt": b"",
    "none.parquet": None,
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_file_without_a_row(name, place, capsys):
    if EMPTY[name] is None:
        pq.write_table(NOTHING, name)
    else:
        (place / name).write_bytes(EMPTY[name])
    columns = ["--tokenizer=words"] if name.endswith("txt") else COLUMNS
    argv = ["select", f"--input={name}", *columns, *BUDGET, "--output=out", *ACCOUNT]
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert (
        err
        == "dpbeam select: error: --input: there is not a single row; pass --allow_empty if that may be so\n"
    )
    assert spent() == ["create", "limit"] and not list(place.glob("out*"))
    if name in ("none.csv", "none.txt"):
        assert main([*argv, "--allow_empty"]) == 0
        assert spent()[-1] == "commit"


@pytest.mark.parametrize("command", [["select"], ["top-k", "--k=1"], ["hitting-set", "--k=1"]])
@pytest.mark.parametrize("source", ["-", "/dev/null"])
def test_a_pipe_that_failed(command, source, place):
    argv = [*command, f"--input={source}", "--input_format=jsonl", *COLUMNS, *BUDGET, "--output=out"]
    if source == "-":
        with standard_input("/dev/null"):
            assert main(argv) == 2
    else:
        assert main(argv) == 2
    assert not list(place.glob("out*"))


def test_one_row_in_the_last_of_many_files_is_enough(place):
    for number in range(40):
        (place / f"{number:02}.jsonl").write_text("")
    (place / "39.jsonl").write_text('{"user": "a", "item": "x"}\n')
    assert main(["select", "--input=*.jsonl", *COLUMNS, *BUDGET, "--output=out"]) == 0


DROP, SKIP, GROUPED = "--on_null=drop", "--on_bad_row=skip", ["--input_layout=grouped", "--item_column=items"]
#: Files of which every row is dropped by a flag, the other one given too.
DROPPED = {
    "latin.csv": (b"user,item\n" + b"u,caf\xe9\n" * 99, COLUMNS, SKIP),
    "latin.tsv": (b"user\titem\n" + b"u\tcaf\xe9\n" * 99, COLUMNS, SKIP),
    "latin.jsonl": (b'{"user": "u", "item": "caf\xe9"}\n' * 99, COLUMNS, SKIP),
    "latin.txt": (b"caf\xe9\n" * 99, [], SKIP),
    "wide.csv": (b"user,item\n" + b"u,i,more\n" * 99, COLUMNS, SKIP),
    "types.jsonl": (b'{"user": "u", "item": 1.5}\n' * 99, COLUMNS, SKIP),
    "nobody.csv": (b"user,item\n" + b",i\n" * 99, COLUMNS, DROP),
    "nothing.tsv": (b"user\titem\n" + b"u\t\n" * 99, COLUMNS, DROP),
    "nobody.jsonl": (b'{"user": null, "item": "i"}\n' * 99, COLUMNS, DROP),
    "lists.jsonl": (b'{"items": null}\n{"items": [null]}\n' * 99, GROUPED, DROP),
    "nobody.parquet": ({"user": pa.nulls(99, pa.string()), "item": ["i"] * 99}, COLUMNS, DROP),
    "nothing.parquet": ({"user": ["u"] * 99, "item": pa.nulls(99, pa.string())}, COLUMNS, DROP),
    "lists.parquet": ({"items": pa.nulls(99, pa.list_(pa.string()))}, GROUPED, DROP),
    "latin.parquet": (
        {"user": ["u"] * 99, "item": pa.array([b"caf\xe9"] * 99, pa.binary()).view(pa.string())},
        COLUMNS,
        SKIP,
    ),
    "nothing.avro": (avro_file(["u"] * 99, [None] * 99), COLUMNS, DROP),
}
BOTH = [DROP, SKIP]


def write_rows(name, data):
    if isinstance(data, dict):
        pq.write_table(pa.table(data), name, write_statistics=False)
    else:
        Path(name).write_bytes(data)


@pytest.mark.parametrize("name", DROPPED)
def test_rows_that_are_dropped_one_and_all(name, place, capsys):
    data, columns, flag = DROPPED[name]
    write_rows(name, data)
    argv = ["select", f"--input={name}", *columns, *BUDGET, "--output=out", *ACCOUNT, *BOTH]
    assert main(argv) == 2
    assert capsys.readouterr().err == (
        f"dpbeam select: error: {flag}: not a single row of the input is left; without that, the first is an error "
        "that says what is wrong; pass --allow_empty if that may be so\n"
    )
    assert spent() == ["create", "limit"] and not list(place.glob("out*"))
    if name in ("latin.jsonl", "nobody.parquet"):
        assert main([*argv, "--allow_empty"]) == 0
        assert spent()[-1] == "commit"


@pytest.mark.parametrize(
    "command", [["top-k", "--k=1"], ["hitting-set", "--k=1"], ["count", "--domain=list.txt"], ["select"]]
)
@pytest.mark.parametrize("runner", [[], ["--runner=no.such.Runner"]])
def test_by_every_command_before_any_runner(command, runner, place, capsys):
    write_rows("a.parquet", DROPPED["nobody.parquet"][0])
    (place / "list.txt").write_text("i\n")
    (place / "bad.csv").write_text("user,item\nu,i,more\n,i\n")
    for files, flags in (("a.parquet", DROP), ("bad.csv", f"{DROP}, {SKIP}")):
        argv = [*command, f"--input={files}", *COLUMNS, *BUDGET, "--output=out", *ACCOUNT, *BOTH, *runner]
        assert main(argv) == 2
        assert f"error: {flags}: not a single row of the input is left" in capsys.readouterr().err
    assert spent() == ["create", "limit"] and not list(place.glob("out*"))


@pytest.mark.parametrize("runner", [[], ["--runner=FnApiRunner"]])
def test_by_a_night_of_a_series(runner, place, capsys):
    window = ["--folder=f", "--nights=2", "--output=out/items", *BUDGET]
    assert main(["series", "open", *window]) == 0
    write_rows("a.parquet", DROPPED["nobody.parquet"][0])
    night = ["series", "run", "--folder=f", "--night=1", *runner]
    capsys.readouterr()
    assert main([*night, "--input=a.parquet", *COLUMNS, DROP]) == 2
    err = capsys.readouterr().err
    assert f"error: {DROP}: not a single row of the input is left" in err
    assert err.endswith("; give --empty where nothing came\n") and "allow_empty" not in err
    (place / "none.csv").write_text("user,item\n")
    assert main([*night, "--input=none.csv", *COLUMNS]) == 2
    assert "--input: there is not a single row; give --empty where nothing came\n" in capsys.readouterr().err
    assert main([*night, "--empty"]) == 0


def test_one_row_that_stays_is_enough(place, monkeypatch):
    """And it is looked for here and there: sorted nulls lie together."""
    looked_at = []
    look = pairs.has_rows
    monkeypatch.setattr(pairs, "has_rows", lambda *args: looked_at.append(args) or look(*args))
    users = pa.array([None] * 50 + ["u"] * 50, pa.string())
    pq.write_table(pa.table({"user": users, "item": ["i"] * 100}), "a.parquet", row_group_size=1)
    monkeypatch.setattr(pairs, "_LOOK_BYTES", 1)
    argv = ["select", *COLUMNS, *BUDGET, "--output=out", "--overwrite", DROP]
    assert main([*argv, "--input=a.parquet"]) == 0
    assert 1 < len(looked_at) < 32
    (place / "last.csv").write_text("user,item\n" + ",i\n" * 500 + "u,i\n")
    assert main([*argv, "--input=last.csv"]) == 0


def test_texts_without_a_token_are_users(place):
    """Of a tokeniser that finds none, or only empty ones, no row is dropped."""
    (place / "a.txt").write_text("... ---\n")
    argv = ["select", "--input=a.txt", *BUDGET, "--output=out", "--overwrite", *BOTH]
    assert main([*argv, "--tokenizer=words"]) == 0
    assert main([*argv, "--tokenizer=regex", "--token_pattern=(x?)"]) == 0


def test_the_first_line_of_another_encoding_is_an_error_at_once(place, capsys, monkeypatch):
    """Before a job is built, and however many lines like it follow."""
    (place / "a.csv").write_bytes(b"user,item\n" + b"u,caf\xe9\n" * 9)
    monkeypatch.setattr("apache_beam.Pipeline", None)
    assert main(["select", "--input=a.csv", *COLUMNS, *BUDGET, "--output=out", *ACCOUNT]) == 2
    assert capsys.readouterr().err == (
        "dpbeam select: error: a.csv:2: not valid UTF-8; convert the file if it has another encoding, as iconv -f "
        "CP1252 -t UTF-8 does\n"
    )
    assert spent() == ["create", "limit"]


def test_users_without_items_are_rows(place):
    """Whether anybody holds anything is private, unlike whether there is a row of anybody."""
    (place / "a.jsonl").write_text('{"items": []}\n' * 3)
    assert (
        main(
            [
                "select",
                "--input=a.jsonl",
                "--input_layout=grouped",
                "--item_column=items",
                *BUDGET,
                "--output=o",
            ]
        )
        == 0
    )


def test_a_pattern_that_no_token_matches(place, capsys):
    (place / "a.txt").write_text("some words\n")
    assert (
        main(["select", "--input=a.txt", "--tokenizer=regex", "--token_pattern=", *BUDGET, "--output=out"])
        == 2
    )
    assert "--token_pattern: is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, text", [("a.csv", "agent,value,r\n"), ("a.csv", "agent,value,r\n\n\n"), ("a.jsonl", "\n \n")]
)
def test_agents(name, text, place, capsys):
    (place / name).write_text(text)
    (place / "s.yaml").write_text("r: 100\n")
    argv = [
        *("pack", f"--agents={name}", "--supplies=s.yaml", "--num_agents=5", "--allow_small_supply"),
        *BUDGET[:2],
    ]
    assert main([*argv, "--output=out"]) == 2
    assert "--agents: there are no agents; pass --allow_empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags,named",
    [
        (["--input=/dev/zero", "--input_format=csv"], "--input"),
        (["--input=/dev/urandom", "--input_format=jsonl"], "--input"),
        (["--input=a.csv", "--public_items=/dev/zero"], "--public_items"),
        (["--input=-", "--input_format=csv"], "--input"),
    ],
)
def test_what_never_ends(flags, named, place, capfd):
    (place / "a.csv").write_text("user,item\na,x\n")
    with standard_input("/dev/zero"):
        assert main(["select", *flags, *COLUMNS, *BUDGET, "--output=out"]) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert f"error: {named}: '" in err and "is a device; name a file" in err


class TestRoom:
    """Nobody waits for what cannot be held."""

    @pytest.mark.parametrize("version", [1, 2])
    def test_of_a_container(self, version, tmp_path, monkeypatch):
        """The least of its groups, above what files hold that the system gives up."""
        _, limit, used, cached = room._GROUPS[version == 1]
        monkeypatch.setattr(room, "_GROUPS", {version == 1: (str(tmp_path), limit, used, cached)})
        for folder, most in (("", None), ("a", 1000), ("a/b", 700), ("a/b/c", 800)):
            (tmp_path / folder).mkdir(exist_ok=True)
            if most is not None:
                (tmp_path / folder / limit).write_text(f"{most}\n")
            (tmp_path / folder / used).write_text("400\n")
            (tmp_path / folder / "memory.stat").write_text(f"active_file 5\n{cached} 150\nanon 7\n")
        (tmp_path / "a/b/c" / limit).write_text("max\n")
        listing = tmp_path / "listing"
        listing.write_text("3:cpu:/x\n4:memory:/a/b/c\n" if version == 1 else "0::/a/b/c\n")
        assert sorted(room._of_groups(str(listing))) == [450, 750]
        assert list(room._of_groups(str(tmp_path / "none"))) == []

    def test_below_ulimit(self):
        if not sys.platform.startswith("linux"):
            pytest.skip("Linux alone says how much address space a process has")
        code = (
            "import resource; from dpbeam import room; resource.setrlimit(resource.RLIMIT_AS, (10**9, 10**9)); "
            "print(room.available_memory())"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert 0 < int(done.stdout) < 10**9
