"""Helpers of the input and output tests."""

import gzip

import pyarrow as pa
import pytest

from tests.support.input import read as _read


@pytest.fixture
def read():
    return _read


@pytest.fixture
def write_file(tmp_path):
    """Writes bytes or text to a file of the given name, compressed as its name says; returns the path."""

    def write(name, data):
        data = data.encode() if isinstance(data, str) else data
        if name.endswith(".gz"):
            data = gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :])
        elif name.endswith(".zst"):
            data = pa.compress(data, codec="zstd", asbytes=True)
        (tmp_path / name).write_bytes(data)
        return str(tmp_path / name)

    return write
