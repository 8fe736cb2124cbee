"""What is said of finished files is what is in them, in every format and across the pieces that they are read in."""

import csv
import hashlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbeam.io import released
from dpbeam.io.released import describe

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
