"""Input and output on a store in memory, which has no folders."""

import errno
import io

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbeam.engine.beam.coders  # noqa: F401  (coder of record batches)
from dpbeam.errors import InputError
from dpbeam.io.files import identity, match_files
from dpbeam.io.output import OutputTarget
from dpbeam.io.sinks import OutputColumns, WriteReleased
from dpbeam.io.sources import preflight
from tests.support import memory_store
from tests.support.input import pairs_spec
from tests.support.releases import ledger_of

STORE: dict[str, bytes] = {}


@pytest.fixture(autouse=True)
def store(monkeypatch):
    STORE.clear()
    made = memory_store.install(monkeypatch)
    made.objects = STORE
    return made


def test_reading(read):
    lines = "".join(f"u{n % 5},i{n}\n" for n in range(3000))
    STORE["s3://b/in/a.csv"] = f"user,item\n{lines}".encode()
    STORE["s3://b/in/b.csv.gz"] = pa.compress(f"user,item\n{lines}".encode(), codec="gzip", asbytes=True)
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"user": [f"u{n % 5}" for n in range(3000)], "item": [f"i{n}" for n in range(3000)]}), sink
    )
    STORE["s3://b/in/c.parquet"] = sink.getvalue()
    spec = pairs_spec("s3://b/in/*.csv*", format="csv")
    rows, counts = read(spec)
    assert not counts and len(rows) == 3000 and set(rows.values()) == {2}
    spec = pairs_spec("s3://b/in/c.parquet")
    assert set(read(spec)[0]) == set(rows)
    with pytest.raises(InputError) as error:
        read(pairs_spec("s3://b/none.csv"))
    assert str(error.value) == "--input: no such file: 's3://b/none.csv'"


def test_a_folder(read):
    """Its files of one format, at any depth, but those whose names other tools hide."""
    for name in ("logs/a.csv", "logs/2026/b.csv", "logs/_SUCCESS", "logs/_temporary/c.csv", "logs/.d.csv"):
        STORE[f"s3://b/{name}"] = f"user,item\nu,{name}\n".encode()
    STORE["s3://b/logs/"] = STORE["s3://b/logs/2026/"] = b""  # what consoles make of a folder
    STORE["s3://b/logs2.csv"] = b"user,item\nu,another\n"
    for folder in ("s3://b/logs", "s3://b/logs/"):
        spec = pairs_spec(folder)
        assert spec.format == "csv"
        assert {item for _, item in read(spec)[0]} == {"logs/a.csv", "logs/2026/b.csv"}
        (note,) = preflight(spec).notes
        assert note == "input: 3 files whose names begin with a dot or an underscore are left out"
    STORE["s3://b/logs/e.jsonl"] = b"{}"
    with pytest.raises(InputError, match=r"e\.jsonl' is jsonl; one job reads one format"):
        pairs_spec("s3://b/logs")
    STORE["s3://b/none/_x.csv"] = b""
    with pytest.raises(InputError) as error:
        read(pairs_spec("s3://b/none", format="csv"))
    assert str(error.value) == "--input: the folder 's3://b/none' holds no file to read"
    STORE["s3://b/t.csv/part-0.csv"] = b"user,item\nu,part\n"
    assert set(read(pairs_spec("s3://b/t.csv"))[0]) == {("u", "part")}
    STORE["s3://b/t.csv"] = b"user,item\nu,file\n"  # an object of that name is what is meant
    assert set(read(pairs_spec("s3://b/t.csv"))[0]) == {("u", "file")}


def test_a_remote_file_is_read_once():
    """By the name that the filesystem gives, whatever the scheme's case; an object store's names are exact."""
    for name in ("a.csv", "b/../a.csv", "/a.csv"):
        STORE[f"s3://b/{name}"] = b"user,item\n"
    names = ["s3://b/a.csv", "s3://b/b/../a.csv", "s3://b//a.csv"]
    assert [file.path for file in match_files([*names, "s3://b/*.csv", names[0]])] == sorted(names)
    assert identity("HDFS://n/a//b/./c.csv") == identity("hdfs://n/a/x/../b/c.csv") == "hdfs://n/a/b/c.csv"
    assert identity("s3://b/a//c") != identity("s3://b/a/c") == identity("S3://b/a/c")


def test_a_remote_input_is_never_overwritten():
    write("s3://b/x", [b"a"])
    (shard, *_) = (name for name in STORE if name.endswith(".txt"))
    with pytest.raises(InputError) as error:
        OutputTarget("s3://b/x", "text", overwrite=True).check([shard.replace("s3", "S3")])
    assert str(error.value) == f"--output: '{shard}' is an input of this run; choose another prefix"
    STORE["s3://b/y-00000-of-00001.txt"] = b"mine"
    with pytest.raises(InputError, match="is in the way, and no ledger of dpbeam names it"):
        OutputTarget("s3://b/y", overwrite=True).check()


def write(prefix, items, **options):
    target = OutputTarget(prefix, "text", **options)
    target.check()
    target.prepare()
    batch = pa.record_batch({"item": pa.array(items, pa.large_binary())})
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        for attempt in range(2):  # the second finds the first's shards in place
            _ = (
                pipeline
                | f"Create{attempt}" >> beam.Create([batch]).with_output_types(pa.RecordBatch)
                | f"Write{attempt}"
                >> WriteReleased(target.staging, OutputColumns(("item",), ("string",)), "text", 2)
            )
    target.commit(ledger_of(release=None))


def test_writing():
    write("s3://b/out/x", [b"b", b"a", b"c"])
    names = ["s3://b/out/x-00000-of-00002.txt", "s3://b/out/x-00001-of-00002.txt"]
    assert sorted(STORE) == [*names, "s3://b/out/x.ledger.json"]
    assert sorted(b"".join(STORE[name] for name in names).split()) == [b"a", b"b", b"c"]
    with pytest.raises(InputError, match=r"x\.ledger\.json' exists; pass --overwrite"):
        OutputTarget("s3://b/out/x").check()
    write("s3://b/out/x", [b"z"], overwrite=True)
    assert b"".join(STORE[name] for name in names) == b"z\n" and len(STORE) == 3


def test_one_file():
    """It replaces what shards an earlier run with the same prefix has written, and they replace it."""
    write("s3://b/out/x", [b"b", b"a"])
    output = {"output": "s3://b/out/x.txt", "format": None, "overwrite": True}
    one = OutputTarget.asked(**output)
    one.check()
    one.prepare()
    STORE[f"{one.staging}/shard-00000-of-00001.txt"] = b"c\n"
    assert one.commit(ledger_of(release=None)) == ["s3://b/out/x.txt", "s3://b/out/x.ledger.json"]
    assert sorted(STORE) == ["s3://b/out/x.ledger.json", "s3://b/out/x.txt"]
    write("s3://b/out/x", [b"z"], overwrite=True)
    assert len(STORE) == 3 and "s3://b/out/x.txt" not in STORE
    STORE.clear()
    STORE["s3://b/out/x.txt"] = b"mine"
    with pytest.raises(InputError, match=r"x\.txt' is in the way, and no ledger of dpbeam names it"):
        OutputTarget.asked(**output).check()


def test_refusals(store):
    with pytest.raises(InputError) as error:
        OutputTarget("s3://b/out*")
    assert str(error.value) == "--output: 's3://b/out*' must not hold wildcards"
    OutputTarget("s3://b/out").check()
    assert STORE == {}

    def deny(kind, url):
        if kind in ("put", "make"):
            raise OSError(errno.EACCES, "denied")

    store.watch = deny
    with pytest.raises(InputError) as error:
        OutputTarget("s3://b/out").check()
    assert str(error.value) == "--output: cannot write 's3://b/out': denied"


def test_abort():
    target = OutputTarget("s3://b/out")
    STORE[f"{target.staging}/shard-00000-of-00001.parquet"] = b"x"
    STORE["s3://b/outer"] = b"y"
    target.abort()
    assert list(STORE) == ["s3://b/outer"]
