"""Finished output as who checks it sees it: its ledger, files, rows and digests.

Needs no Beam for files of this machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.release import Shard
from dpbeam.errors import DataError, UnavailableError
from dpbeam.io.paths import is_folder, local_path
from dpbeam.review.verification import Statement, check_ledger
from dpbeam.storage import FileSystems
from dpbeam.storage.reasons import is_passing, reason

_CHUNK = 1 << 20
_LARGEST_LEDGER = 64 << 20


def describe(file: BinaryIO, name: str) -> Shard:
    """The rows and the digest of an output file, of which the name tells the format; released, hence public.

    Memory: the file's size for Parquet, a megabyte for the other formats.
    """
    if name.endswith(".parquet"):
        data = file.read()
        return Shard(name, _parquet_rows(data), hashlib.sha256(data).hexdigest())
    quotes = name.endswith(".csv")
    digest, rows, outside = hashlib.sha256(), 0, True
    for chunk in iter(lambda: file.read(_CHUNK), b""):
        digest.update(chunk)
        # A line break between quotes is part of a value (RFC 4180).
        parts = chunk.split(b'"') if quotes else [chunk]
        rows += sum(part.count(b"\n") for part in parts[0 if outside else 1 :: 2])
        outside ^= len(parts) % 2 == 0
    return Shard(name, rows - quotes, digest.hexdigest())


def _parquet_rows(data: bytes) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return int(pq.ParquetFile(pa.BufferReader(data)).metadata.num_rows)


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """A file to read.

    Raises: OSError if there is none, or if it cannot be read.
    """
    try:
        file = FileSystems.open(path)
    except (ValueError, ImportError) as error:
        raise OSError(None, str(error)) from None
    with file:
        yield file


def sha256_of(path: str) -> bytes:
    """The digest of a file's content. Raises OSError."""
    content = hashlib.sha256()
    with opened(path) as file:
        while chunk := file.read(_CHUNK):
            content.update(chunk)
    return content.digest()


def exists(path: str) -> bool:
    """Whether there is such a file. Raises UnavailableError."""
    try:
        return FileSystems.exists(path) and not is_folder(path)
    except OSError as error:
        _check_answers(path, error)
        raise


def _check_answers(path: str, error: OSError) -> None:
    """Whether there is no such file is not known where its store does not answer. Raises UnavailableError."""
    if is_passing(error):
        raise UnavailableError(f"cannot read '{path}': {reason(error)}") from None


class NoLedgerError(DataError):
    """A file is not there, cannot be read, or is no text."""


def read_ledger_text(path: str) -> str:
    """The text of a ledger's file. Raises NoLedgerError, UnavailableError."""
    place = local_path(path, "LEDGER")
    try:
        with opened(place) as file:
            data = file.read(_LARGEST_LEDGER + 1)
    except OSError as error:
        _check_answers(place, error)
        raise NoLedgerError(f"cannot read '{path}': {error.strerror or 'no such file'}") from None
    try:
        if len(data) > _LARGEST_LEDGER:
            raise ValueError("too large")
        return data.decode()
    except ValueError:
        raise NoLedgerError(f"'{path}': not a ledger of dpbeam") from None


def read_and_check(path: str) -> tuple[str, Ledger | None, list[Statement]]:
    """A ledger's text, the ledger, and every statement that follows from it alone, as `check_ledger`.

    Raises:
      NoLedgerError, UnavailableError: see `read_ledger_text`.
      InputError: it is not a ledger that this version knows.
    """
    text = read_ledger_text(path)
    try:
        return text, *check_ledger(text)
    except ValueError as error:
        raise DataError(f"'{path}': {error}") from None


def refutation(path: str, statements: list[Statement]) -> str | None:
    """Why a ledger does not verify; None if it does, also of a fixed key: what is made of it says so."""
    wrong = next((s for s in statements if s.holds is False and s.name != "key"), None)
    return None if wrong is None else f"'{path}' does not verify: {wrong.name}: {wrong.text}"


def check_outputs(path: str, ledger: Ledger, *, contents: bool) -> list[Statement]:
    """Whether the files that a ledger names lie beside it, and, if asked, whether they are what the run wrote.

    Args:
      path: of the ledger; the output lies in its folder.
      contents: read the files.

    Raises:
      UnavailableError: their store does not answer.
    """
    if ledger.release is None:
        text = "the ledger does not name its files, as those of early versions"
        return [Statement("output", None, text)]
    if not ledger.release.outputs and "output" not in ledger.parameters:
        return [Statement("output", None, "released in a pipeline, which does not say where its rows went")]
    folder = local_path(path, "LEDGER").rpartition("/")[0]
    shards = {f"{folder}/{shard.name}" if folder else shard.name: shard for shard in ledger.release.outputs}
    stated = ledger.parameters.get("output")
    if not isinstance(stated, dict) or stated.get("shards") != len(shards) or not shards:
        return [Statement("output", False, "the ledger contradicts itself on the number of files")]
    missing = [shard.name for name, shard in shards.items() if not exists(name)]
    if missing:
        text = f"{len(missing)} of {len(shards)} files are missing, the first: {missing[0]}"
        return [Statement("output", False, text)]
    files = f"{len(shards)} files" if len(shards) > 1 else "one file"
    rows = ledger.release.items_released
    counted = "" if rows is None else f"; the ledger counts {rows} released items"
    statements = [Statement("output", True, f"{files} in place{counted}")]
    if not contents:
        return [*statements, Statement("contents", None, "not asked for (--contents)")]
    if rows is None:
        return [
            *statements,
            Statement("contents", None, "the ledger holds no digests: the output is not released as a whole"),
        ]
    different = [shard.name for name, shard in shards.items() if _described(name, shard.name) != shard]
    if different:
        text = (
            f"{len(different)} of {len(shards)} files are not what the run wrote, the first: {different[0]}"
        )
        return [*statements, Statement("contents", False, text)]
    return [*statements, Statement("contents", True, "digests and numbers of rows are those of the ledger")]


def _described(path: str, name: str) -> Shard | None:
    """What a file holds; None where it cannot be read as what it is called. Raises UnavailableError."""
    try:
        with opened(path) as file:
            return describe(file, name)
    except OSError as error:
        _check_answers(path, error)
        return None
    except ValueError:
        return None
