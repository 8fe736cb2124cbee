"""What is said of finished files is what is in them, in every format and across the pieces that they are read in."""

import csv
import hashlib
import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbeam.accounting.release import Release, Shard
from dpbeam.cli import main
from dpbeam.errors import UnavailableError
from dpbeam.io import released
from dpbeam.io.known import read_known
from dpbeam.io.released import NoLedgerError, check_outputs, describe
from dpbeam.io.sinks import OutputColumns
from dpbeam.storage import FileSystems
from dpbeam.storage.files import UNAVAILABLE
from dpbeam.storage.s3 import S3Files

OLD = Path(__file__).resolve().parents[1] / "accounting" / "ledgers" / "gsu.ledger.json"
VALUES = st.lists(st.text(alphabet='a",\n\r; é', max_size=6), max_size=20)


@given(values=VALUES, piece=st.integers(1, 9))
def test_rows_of_csv_are_those_of_a_reader(values, piece):
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(["item"])
    writer.writerows([value] for value in values)
    data = text.getvalue().encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(released, "_CHUNK", piece)
        described = describe(io.BytesIO(data), "x-00000-of-00001.csv")
    expected = sum(1 for _ in csv.reader(io.StringIO(text.getvalue(), newline=""))) - 1
    assert (described.rows, described.sha256) == (expected, hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize("extension", ["txt", "jsonl"])
def test_rows_of_lines(extension):
    data = b'"a\n' * 3
    assert describe(io.BytesIO(data), f"x.{extension}").rows == 3


def test_what_is_no_parquet_has_no_description():
    with pytest.raises(ValueError):
        describe(io.BytesIO(b"PAR1"), "x.parquet")


class TestStoreThatDoesNotAnswer:
    """It may do so a minute later: neither a wrong path, nor files that are not what the run wrote."""

    LEDGER = "s3://b/x.ledger.json"

    @pytest.fixture
    def silent(self, monkeypatch):
        def request(self, path):
            raise OSError(UNAVAILABLE, "the store does not answer", path)

        monkeypatch.setattr(S3Files, "state", request)

    @pytest.mark.parametrize("command", [["verify"], ["report", "--output=page.html"], ["export"]])
    def test_of_a_ledger(self, silent, command, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert main([*command, self.LEDGER]) == 1
        told = f"cannot read '{self.LEDGER}': the store does not answer"
        assert capsys.readouterr().err == f"dpbeam {command[0]}: error: {told}\n"
        assert list(tmp_path.iterdir()) == []

    def test_of_one_among_several_ledgers(self, silent, capsys, tmp_path):
        assert main(["verify", self.LEDGER, str(OLD)]) == 1
        told = capsys.readouterr()
        assert told.err.count("\n") == 1 and told.out.startswith(f"{OLD}: verified\n")
        assert main(["verify", self.LEDGER, str(tmp_path / "none")]) == 2

    def test_of_a_known_release(self, silent):
        with pytest.raises(
            UnavailableError, match=r"^--known: cannot read 's3://b/x.ledger.json': the store"
        ):
            read_known(["s3://b/x"], OutputColumns(("item",), ("string",)), insecure=False)

    @pytest.mark.parametrize("contents", [False, True])
    def test_of_the_output(self, silent, contents, monkeypatch):
        shard = Shard("x-00000-of-00001.parquet", 1, "ab" * 32)
        outputs = Release("select", "2026-11-01T00:00:00Z", outputs=(shard,))
        ledger = SimpleNamespace(release=outputs, parameters={"output": {"shards": 1}})
        if contents:
            monkeypatch.setattr(S3Files, "exists", lambda self, path: True)
        with pytest.raises(
            UnavailableError, match=rf"^cannot read 's3://b/{shard.name}': the store does not answer$"
        ):
            check_outputs(self.LEDGER, ledger, contents=contents)

    def test_a_file_that_is_not_there_is_another_thing(self, monkeypatch):
        def fails(path):
            raise FileNotFoundError(2, "no such file", path)

        monkeypatch.setattr(FileSystems, "open", fails)
        with pytest.raises(NoLedgerError, match=r"^cannot read 's3://b/x.ledger.json': no such file$"):
            released.read_ledger_text(self.LEDGER)
