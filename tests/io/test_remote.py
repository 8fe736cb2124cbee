"""Input and output on a filesystem that is not local: a fake object store, with short reads and no folders."""

import io

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystem import BeamIOError

import dpbeam.engine.beam.coders  # noqa: F401  (coder of record batches)
from dpbeam.errors import InputError
from dpbeam.io.files import identity, match_files
from dpbeam.io.output import OutputTarget
from dpbeam.io.sinks import OutputColumns, WriteReleased
from dpbeam.io.sources import preflight
from tests.support.input import pairs_spec
from tests.support.objects import STORE, FakeStore
from tests.support.releases import ledger_of


@pytest.fixture(autouse=True)
def empty_store():
    STORE.clear()


def test_reading(read):
    lines = "".join(f"u{n % 5},i{n}\n" for n in range(3000))
    STORE["dpfake://b/in/a.csv"] = f"user,item\n{lines}".encode()
    STORE["dpfake://b/in/b.csv.gz"] = pa.compress(f"user,item\n{lines}".encode(), codec="gzip", asbytes=True)
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"user": [f"u{n % 5}" for n in range(3000)], "item": [f"i{n}" for n in range(3000)]}), sink
    )
    STORE["dpfake://b/in/c.parquet"] = sink.getvalue()
    spec = pairs_spec("dpfake://b/in/*.csv*", format="csv")
    rows, counts = read(spec)
    assert not counts and len(rows) == 3000 and set(rows.values()) == {2}
    spec = pairs_spec("dpfake://b/in/c.parquet")
    assert set(read(spec)[0]) == set(rows)
    with pytest.raises(InputError) as error:
        read(pairs_spec("dpfake://b/none.csv"))
    assert str(error.value) == "--input: no such file: 'dpfake://b/none.csv'"


def test_a_folder(read):
    """Its files of one format, at any depth, but those whose names other tools hide."""
    for name in ("logs/a.csv", "logs/2026/b.csv", "logs/_SUCCESS", "logs/_temporary/c.csv", "logs/.d.csv"):
        STORE[f"dpfake://b/{name}"] = f"user,item\nu,{name}\n".encode()
    STORE["dpfake://b/logs/"] = STORE["dpfake://b/logs/2026/"] = b""  # what consoles make of a folder
    STORE["dpfake://b/logs2.csv"] = b"user,item\nu,another\n"
    for folder in ("dpfake://b/logs", "dpfake://b/logs/"):
        spec = pairs_spec(folder)
        assert spec.format == "csv"
        assert {item for _, item in read(spec)[0]} == {"logs/a.csv", "logs/2026/b.csv"}
        (note,) = preflight(spec).notes
        assert note == "input: 3 files whose names begin with a dot or an underscore are left out"
    STORE["dpfake://b/logs/e.jsonl"] = b"{}"
    with pytest.raises(InputError, match=r"e\.jsonl' is jsonl; one job reads one format"):
        pairs_spec("dpfake://b/logs")
    STORE["dpfake://b/none/_x.csv"] = b""
    with pytest.raises(InputError) as error:
        read(pairs_spec("dpfake://b/none", format="csv"))
    assert str(error.value) == "--input: the folder 'dpfake://b/none' holds no file to read"
    STORE["dpfake://b/t.csv/part-0.csv"] = b"user,item\nu,part\n"
    assert set(read(pairs_spec("dpfake://b/t.csv"))[0]) == {("u", "part")}
    STORE["dpfake://b/t.csv"] = b"user,item\nu,file\n"  # an object of that name is what is meant
    assert set(read(pairs_spec("dpfake://b/t.csv"))[0]) == {("u", "file")}


def test_a_remote_file_is_read_once():
    """By the name that the filesystem gives, whatever the scheme's case; an object store's names are exact."""
    for name in ("a.csv", "b/../a.csv", "/a.csv"):
        STORE[f"dpfake://b/{name}"] = b"user,item\n"
    names = ["dpfake://b/a.csv", "dpfake://b/b/../a.csv", "dpfake://b//a.csv"]
    assert [file.path for file in match_files([*names, "dpfake://b/*.csv", names[0]])] == sorted(names)
    assert identity("HDFS://n/a//b/./c.csv") == identity("hdfs://n/a/x/../b/c.csv") == "hdfs://n/a/b/c.csv"
    assert identity("s3://b/a//c") != identity("s3://b/a/c") == identity("S3://b/a/c")


def test_a_remote_input_is_never_overwritten():
    write("dpfake://b/x", [b"a"])
    (shard, *_) = (name for name in STORE if name.endswith(".txt"))
    with pytest.raises(InputError) as error:
        OutputTarget("dpfake://b/x", "text", overwrite=True).check([shard.replace("dpfake", "DPFAKE")])
    assert str(error.value) == f"--output: '{shard}' is an input of this run; choose another prefix"
    STORE["dpfake://b/y-00000-of-00001.txt"] = b"mine"
    with pytest.raises(InputError, match="is in the way, and no ledger of dpbeam names it"):
        OutputTarget("dpfake://b/y", overwrite=True).check()


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
    write("dpfake://b/out/x", [b"b", b"a", b"c"])
    names = ["dpfake://b/out/x-00000-of-00002.txt", "dpfake://b/out/x-00001-of-00002.txt"]
    assert sorted(STORE) == [*names, "dpfake://b/out/x.ledger.json"]
    assert sorted(b"".join(STORE[name] for name in names).split()) == [b"a", b"b", b"c"]
    with pytest.raises(InputError, match=r"x\.ledger\.json' exists; pass --overwrite"):
        OutputTarget("dpfake://b/out/x").check()
    write("dpfake://b/out/x", [b"z"], overwrite=True)
    assert b"".join(STORE[name] for name in names) == b"z\n" and len(STORE) == 3


def test_one_file():
    """It replaces what shards an earlier run with the same prefix has written, and they replace it."""
    write("dpfake://b/out/x", [b"b", b"a"])
    output = {"output": "dpfake://b/out/x.txt", "format": None, "overwrite": True}
    one = OutputTarget.asked(**output)
    one.check()
    one.prepare()
    STORE[f"{one.staging}/shard-00000-of-00001.txt"] = b"c\n"
    assert one.commit(ledger_of(release=None)) == ["dpfake://b/out/x.txt", "dpfake://b/out/x.ledger.json"]
    assert sorted(STORE) == ["dpfake://b/out/x.ledger.json", "dpfake://b/out/x.txt"]
    write("dpfake://b/out/x", [b"z"], overwrite=True)
    assert len(STORE) == 3 and "dpfake://b/out/x.txt" not in STORE
    STORE.clear()
    STORE["dpfake://b/out/x.txt"] = b"mine"
    with pytest.raises(InputError, match=r"x\.txt' is in the way, and no ledger of dpbeam names it"):
        OutputTarget.asked(**output).check()


def test_refusals(monkeypatch):
    with pytest.raises(InputError) as error:
        OutputTarget("dpfake://b/out*")
    assert str(error.value) == "--output: 'dpfake://b/out*' must not hold wildcards"
    OutputTarget("dpfake://b/out").check()
    assert STORE == {}

    def deny(*_, **__):
        raise BeamIOError("denied")

    monkeypatch.setattr(FakeStore, "create", deny)
    with pytest.raises(InputError) as error:
        OutputTarget("dpfake://b/out").check()
    assert str(error.value) == "--output: cannot write 'dpfake://b/out': denied"


def test_abort():
    target = OutputTarget("dpfake://b/out")
    STORE[f"{target.staging}/shard-00000-of-00001.parquet"] = b"x"
    STORE["dpfake://b/outer"] = b"y"
    target.abort()
    assert list(STORE) == ["dpfake://b/outer"]
