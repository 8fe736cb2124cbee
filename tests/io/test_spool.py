"""Stdin and pipes: copied to a private folder, read as files are, and removed."""

import atexit
import gzip
import os
import stat
import tempfile
import threading

import pyarrow as pa
import pytest

from dpbeam.engine.beam import owner
from dpbeam.engine.beam.store import NewFile
from dpbeam.errors import InputError, UnavailableError
from dpbeam.io.files import match_files
from dpbeam.io.sources import preflight
from dpbeam.io.spec import InputSpec
from dpbeam.io.spool import Spool
from tests.support.commands import standard_input
from tests.support.input import read
from tests.support.kill_at import in_child

CSV = b"user,item\nu,i\nv,j\n"


@pytest.fixture
def fifo(tmp_path):
    """Makes a named pipe into which a thread writes the given bytes."""
    threads = []

    def make(name, data):
        path = str(tmp_path / name)
        os.mkfifo(path)

        def write():
            with open(path, "wb") as file:
                file.write(data)

        threads.append(threading.Thread(target=write, daemon=True))
        threads[-1].start()
        return path

    yield make
    for thread in threads:
        thread.join(10)


@pytest.fixture
def stdin():
    """Puts bytes where this process reads its stdin."""
    saved = os.dup(0)

    def put(data):
        receiver, sender = os.pipe()
        with os.fdopen(sender, "wb") as file:
            file.write(data)
        os.dup2(receiver, 0)
        os.close(receiver)

    yield put
    os.dup2(saved, 0)
    os.close(saved)


def spec(*patterns, format="csv", **options):
    return InputSpec.create(patterns, format=format, user_column="user", item_columns=["item"], **options)


@pytest.mark.parametrize(
    "compress", [bytes, gzip.compress, lambda data: pa.compress(data, "zstd", asbytes=True)]
)
@pytest.mark.parametrize("name", ["pipe", "pipe.csv", "pipe.csv.gz"])
def test_a_named_pipe(fifo, compress, name, tmp_path):
    """Compressed or not, whatever its name says: only the bytes know."""
    data = compress(CSV)
    summary = preflight(spec(fifo(name, data)), temp_location=str(tmp_path))
    (file,) = summary.files
    with open(file.path, "rb") as copy:
        assert copy.read() == data
    assert os.path.dirname(os.path.dirname(file.path)) == str(tmp_path)
    assert stat.S_IMODE(os.stat(os.path.dirname(file.path)).st_mode) == 0o700
    assert read(spec(file.path))[0] == {("u", "i"): 1, ("v", "j"): 1}
    summary.release()
    summary.release()
    assert not os.path.exists(os.path.dirname(file.path))


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
@pytest.mark.parametrize(
    "format, data", [("csv", CSV), ("jsonl", b'{"user": "u", "item": "i"}\n'), ("tsv", b"user\titem\nu\ti\n")]
)
def test_stdin(stdin, format, data, name, tmp_path):
    stdin(data)
    summary = preflight(spec(name, format=format), temp_location=str(tmp_path))
    assert "stdin" in summary.files[0].path and summary.bytes == len(data)
    summary.release()
    assert os.listdir(tmp_path) == []


def test_a_file_on_stdin(tmp_path, stdin):
    (tmp_path / "a.csv").write_bytes(CSV)
    with open(tmp_path / "a.csv", "rb") as file:
        os.dup2(file.fileno(), 0)
    summary = preflight(spec("-"), temp_location=str(tmp_path))
    assert read(spec(summary.files[0].path))[0] == {("u", "i"): 1, ("v", "j"): 1}
    summary.release()


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no memory disk")
def test_a_file_on_a_memory_disk_is_a_file():
    with tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=".csv") as file:
        file.write(CSV)
        file.flush()
        assert [file_read.path for file_read in preflight(spec(file.name)).files] == [file.name]


def test_text_on_stdin(stdin, tmp_path):
    stdin(b"to be or\nnot to be\n")
    summary = preflight(InputSpec.create(["-"], format="text"), temp_location=str(tmp_path))
    rows, _ = read(InputSpec.create([summary.files[0].path], format="text"))
    assert rows == [["be", "or", "to"], ["be", "not", "to"]]
    summary.release()


def test_pipes_and_files_together(fifo, tmp_path):
    (tmp_path / "a.csv").write_bytes(CSV)
    one, two = fifo("one", CSV), fifo("two", CSV)
    os.symlink(one, tmp_path / "same")
    patterns = [one, f"{tmp_path}/*.csv", f"{tmp_path}/same", two, one]
    summary = preflight(spec(*patterns), temp_location=str(tmp_path))
    assert len(summary.files) == 3  # a pipe that is named twice is read once
    summary.release()


def test_refusals(fifo, tmp_path, stdin):
    with pytest.raises(InputError) as error:
        preflight(spec("-", format="parquet"))
    assert str(error.value) == (
        "--input: '-': Parquet is not read from a pipe, its index is at the end; name a file"
    )
    with pytest.raises(InputError, match=r"^--input: cannot tell the format of '-'; pass --input_format$"):
        InputSpec.create(["-"])
    with pytest.raises(InputError, match=r"^--other: '-' is a pipe; name a file$"):
        match_files(["-"], "--other")
    # What is wrong inside is told with the copy's name, which holds the pipe's; and nothing stays.
    stdin(b"user,itm\nu,i\n")
    with pytest.raises(InputError, match=r"--item_column: .*/0-stdin has no column 'item', only user, itm"):
        preflight(spec("-"), temp_location=str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_temp_location_that_is_none(stdin, tmp_path):
    stdin(CSV)
    (tmp_path / "file").write_text("")
    for temp, why in (
        (f"{tmp_path}/file", "File exists"),
        ("nope://x", "no filesystem is known for nope://"),
    ):
        with pytest.raises(InputError) as error:
            preflight(spec("-"), temp_location=temp)
        assert str(error.value).startswith(f"--temp_location: cannot write '{temp}': {why}")


def test_a_full_disk(stdin, tmp_path, monkeypatch):
    stdin(CSV)

    write = NewFile.write

    def full(file, data):
        if file._name == owner.KEY:
            return write(file, data)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NewFile, "write", full)
    with pytest.raises(UnavailableError) as error:
        preflight(spec("-"), temp_location=str(tmp_path))
    assert str(error.value) == "--input: cannot copy '-' to the temp location: No space left on device"
    assert os.listdir(tmp_path) == []


def test_copies_go_when_the_process_ends(tmp_path):
    given, temp = tmp_path / "given", tmp_path / "temp"
    given.write_bytes(CSV)
    temp.mkdir()

    def work() -> int:
        atexit._clear()  # what this process has registered
        with standard_input(given):
            Spool(str(temp)).replace(["-"], "csv")
        made = len(os.listdir(temp))
        atexit._run_exitfuncs()
        return made

    assert in_child(work) == 1
    assert os.listdir(temp) == []


def test_nothing_is_made_without_pipes(tmp_path):
    assert Spool(str(tmp_path / "new")).replace(["a.csv", "s3://b/c"], "csv") == ("a.csv", "s3://b/c")
    assert os.listdir(tmp_path) == []
