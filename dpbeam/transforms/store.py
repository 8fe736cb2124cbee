"""The private folder of one run: its key, and blocks and shards between trips.

Blocks and shards are written once and read once per trip; only messages go through shuffles, which costs a third
of the time and a quarter of the memory of sending the state along. Files appear by rename, so a reader never
sees half a file, and every writer writes the same bytes for the same name, so retries are harmless.

The folder holds the run's key, exact sums and unreleased items. It is readable by its owner only (on a local
disk) and is removed at the end of the run, also after a failure.
"""

from __future__ import annotations

import os
import shutil
import uuid

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from dpbeam.kernels.columns import Columns, decode, encode
from dpbeam.randomness import RunKey

_KEY_FILE = "key"
_MIME = "application/octet-stream"
_PLAIN = CompressionTypes.UNCOMPRESSED
_INSECURE = b"NOT PRIVATE: fixed test key\n"


class RunStore:
    """Reads and writes named columns in a run's folder; picklable, holds the path alone."""

    def __init__(self, path: str):
        self.path = path

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a file so that it appears whole or not at all; replaces an earlier one.

        Raises:
          OSError: the folder is gone, as after the end of the run: a late worker must not bring it back.
        """
        final = FileSystems.join(self.path, name)
        temporary = f"{final}.tmp-{uuid.uuid4().hex}"
        if _is_local(final):
            with open(temporary, "xb") as sink:
                sink.write(data)
            os.replace(temporary, final)
            return
        with FileSystems.create(temporary, _MIME, compression_type=_PLAIN) as sink:
            sink.write(data)
        FileSystems.rename([temporary], [final])

    def read_bytes(self, name: str) -> bytes:
        path = FileSystems.join(self.path, name)
        if _is_local(path):
            with open(path, "rb") as source:
                return source.read()
        with FileSystems.open(path, _MIME, compression_type=_PLAIN) as source:
            return source.read()

    def write(self, name: str, columns: Columns) -> None:
        self.write_bytes(name, encode(columns))

    def read(self, name: str) -> Columns:
        return decode(self.read_bytes(name))

    def run_key(self) -> RunKey:
        """The key of the run."""
        data = self.read_bytes(_KEY_FILE)
        insecure = data.startswith(_INSECURE)
        return RunKey(data[len(_INSECURE) :] if insecure else data, insecure=insecure)


class RunFolder:
    """Creates a run's private folder and removes it at the end.

    Use as a context manager around the pipeline's run:

        with RunFolder(temp_location) as run, beam.Pipeline(options=options) as pipeline:
            released = pipeline | Read(...) | SelectPartitions(config, run=run)

    Args:
      temp_location: a folder that every worker can reach, on any Beam filesystem.
      key: the run's key; default a fresh one from the operating system. Never reuse a key.
    """

    def __init__(self, temp_location: str, key: RunKey | None = None):
        key = key or RunKey.fresh()
        self.insecure_key = key.insecure
        self.path = FileSystems.join(temp_location, f"dpbeam-run-{uuid.uuid4().hex}")
        self.store = RunStore(self.path)
        if _is_local(self.path):
            os.makedirs(temp_location, exist_ok=True)
            os.mkdir(self.path, 0o700)
            _write_private(os.path.join(self.path, _KEY_FILE), self._key_bytes(key))
        else:
            FileSystems.mkdirs(self.path)
            self.store.write_bytes(_KEY_FILE, self._key_bytes(key))

    @staticmethod
    def _key_bytes(key: RunKey) -> bytes:
        return (_INSECURE if key.insecure else b"") + key.secret_bytes()

    def remove(self) -> None:
        """Delete the folder with everything in it; harmless if it is gone."""
        if _is_local(self.path):
            shutil.rmtree(self.path, ignore_errors=True)
        elif FileSystems.match([FileSystems.join(self.path, "*")])[0].metadata_list:
            FileSystems.delete([FileSystems.join(self.path, "*")])

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *exc_info) -> None:
        self.remove()


def _is_local(path: str) -> bool:
    return FileSystems.get_scheme(path) is None


def _write_private(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as sink:
        sink.write(data)
