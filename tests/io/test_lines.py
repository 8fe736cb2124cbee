"""Byte ranges: every line is read by exactly one of them, whatever the ranges, chunks and line ends."""

import gzip
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpbeam.errors import InputError
from dpbeam.io.lines import chunks
from dpbeam.io.streams import open_input

CONTENT = st.lists(
    st.sampled_from([b"a", b"\n", b"\r\n", b"long line", b"\xc3\xa9", b"\n\n"]), max_size=30
).map(b"".join)


def lines_of(path, start, end, chunk_bytes):
    with open_input(str(path)) as file:
        for chunk in chunks(str(path), file, start, end, chunk_bytes):
            bounds = chunk.bounds().tolist()
            for a, b in pairwise(bounds):
                yield chunk.line_number(a), chunk.data[a:b]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=CONTENT, cuts=st.lists(st.integers(1, 60), max_size=4), chunk_bytes=st.integers(1, 20))
def test_ranges_partition_the_lines(tmp_path, content, cuts, chunk_bytes):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    bounds = sorted({0, *(cut for cut in cuts if cut < len(content)), len(content)})
    lines = [line for a, b in pairwise(bounds) for line in lines_of(path, a, b, chunk_bytes)]
    # (bytes.splitlines would also split at a lone \r)
    pieces = content.split(b"\n")
    expected = [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
    assert lines == list(enumerate(expected, start=1))


@pytest.mark.parametrize("chunk_bytes", [1, 3, 1 << 20])
def test_compressed_and_byte_order_mark(tmp_path, chunk_bytes):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfone\n") + gzip.compress(b"two"))
    assert list(lines_of(path, 0, 10, chunk_bytes)) == [(1, b"one\n"), (2, b"two")]


@pytest.mark.parametrize("name, what", [("a.txt.gz", "gzip"), ("a.txt.zst", "zstd")])
def test_damaged_compression(tmp_path, write_file, name, what):
    path = write_file(name, "line\n" * 1000)
    whole = (tmp_path / name).read_bytes()
    for damaged in (whole[:-5], b"plain text\n" * 100):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(InputError, match=f"^{path}: not a whole {what} file: "):
            list(lines_of(path, 0, 10, 64))
