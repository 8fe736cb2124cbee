"""Where the output goes, and when it counts as finished.

Workers write shards into a staging folder beside the output (`PREFIX.staging-ID/`). After the pipeline has
succeeded, `commit` moves them to `PREFIX-00000-of-000NN.EXT` and writes `PREFIX.ledger.json` last: **the ledger is the
commit mark**. When older output is replaced, its ledger is removed before anything else. So at every instant,
a ledger stands for a whole, matching set of shards; a crash leaves none.

Only what dpbeam has written is ever removed. The ledger says how many shards of which format there are, and while a
commit is under way, `PREFIX.commit.json` names the files that it may leave behind. Any other file in the way is an
error, also with `--overwrite`, and so is a file that the run reads, whatever name it was given by.
"""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from dpbeam.errors import InputError
from dpbeam.io.files import (
    delete,
    delete_quietly,
    identity,
    is_local_folder,
    list_prefix,
    reason,
    rename,
    write_atomically,
)
from dpbeam.io.formats import OUTPUT_FORMATS, SHARD_NAME, shard_name
from dpbeam.io.paths import WILDCARDS, is_local, local_path

_LEDGER = "dpbeam ledger"
_COMMIT = "dpbeam commit"


class OutputTarget:
    """The output of one run.

    Args:
      prefix: path prefix of all output files (`--output`).
      format: a key of OUTPUT_FORMATS (`--output_format`).
      overwrite: replace output of an earlier run (`--overwrite`).
      extras: names of further files, `PREFIX.NAME`, which the run puts at `staged_extra` before the commit.
    """

    def __init__(
        self, prefix: str, format: str = "parquet", *, overwrite: bool = False, extras: Sequence[str] = ()
    ):
        if format not in OUTPUT_FORMATS:
            raise InputError(f"--output_format: expected one of {', '.join(OUTPUT_FORMATS)}, got '{format}'")
        prefix = local_path(prefix, "--output")
        if not prefix or prefix.endswith(("/", os.sep)):
            raise InputError(
                f"--output: '{prefix}' is not a prefix of file names; add a name, for example '{prefix}items'"
            )
        if is_local_folder(prefix):
            raise InputError(
                f"--output: '{prefix}' is a folder; add a name, for example '{os.path.join(prefix, 'items')}'"
            )
        if not is_local(prefix) and any(c in prefix for c in WILDCARDS):
            raise InputError(f"--output: '{prefix}' must not hold wildcards")
        self.prefix = prefix
        self.format = format
        self.overwrite = overwrite
        self.extras = tuple(extras)
        self.staging = f"{prefix}.staging-{secrets.token_hex(8)}"
        self.ledger_path = _ledger_path(prefix)
        self._journal_path = f"{prefix}.commit.json"
        self._inputs: tuple[str, ...] = ()

    def check(self, inputs: Iterable[str] = (), writes: Mapping[str, str] | None = None) -> None:
        """Refuse early, before any work: files in the way, or a place that cannot be written. Leaves no trace.

        Args:
          inputs: every file that the run reads; `commit` looks at them again.
          writes: other files that the run writes, by their flag.

        Raises:
          InputError: naming `--output`, or the flag of another file.
        """
        self._inputs = tuple(inputs)
        try:
            existing = self.existing()
        except (BeamIOError, OSError, ValueError, ImportError) as error:
            message = f"--output: cannot look up '{self.prefix}': {reason(error, self.prefix)}"
            raise InputError(message) from None
        for flag, path in (writes or {}).items():
            self._check_other(flag, path)
        self._check_free(existing, "exists")
        self._check_writable()

    def _check_other(self, flag: str, path: str) -> None:
        if self._reads(path):
            raise InputError(f"{flag}: '{path}' is an input of this run; name another file")
        stem = os.path.realpath(self.prefix)
        rest = os.path.realpath(path).removeprefix(stem) if is_local(self.prefix) else ""
        ours = (".ledger.json", ".commit.json", *(f".{name}" for name in self.extras))
        if rest in ours or (rest[:1] == "-" and SHARD_NAME.fullmatch(rest[1:])):
            raise InputError(f"{flag}: '{path}' is a file of --output; name another one")

    def _reads(self, path: str) -> bool:
        """Whether the run reads this file, by whatever name."""
        found = identity(path)
        return found is not None and any(identity(name) == found for name in self._inputs)

    def _check_free(self, existing: list[str], how: str) -> None:
        """Refuse files that must not be replaced."""
        if not existing:
            return
        inputs = {identity(name) for name in self._inputs} - {None}
        for path in existing:
            if identity(path) in inputs:
                raise InputError(f"--output: '{path}' is an input of this run; choose another prefix")
        owned = self._owned(existing)
        for path in existing:
            if path not in owned:
                raise InputError(
                    f"--output: '{path}' is in the way, and no ledger of dpbeam names it; choose another prefix, or "
                    "remove it yourself"
                )
        if not self.overwrite:
            raise InputError(
                f"--output: '{existing[0]}' {how}; pass --overwrite to replace it, or another prefix"
            )

    def _owned(self, existing: list[str]) -> set[str]:
        """Those of the existing files that dpbeam has written: as the ledger, or a commit cut short, says."""
        owned = set()
        ledger, journal = read_ledger(self.prefix), _read_json(self._journal_path)
        if ledger is not None:
            owned |= {
                self.ledger_path,
                *shards_named(self.prefix, ledger),
                *_extras_named(self.prefix, ledger),
            }
        if journal is not None and journal.get("format") == _COMMIT:
            owned |= {self._journal_path, *(self.prefix + name for name in journal["files"])}
        return owned & set(existing)

    def _check_writable(self) -> None:
        if is_local(self.prefix):
            folder = os.path.dirname(os.path.abspath(self.prefix))
            while not os.path.lexists(folder):
                folder = os.path.dirname(folder)
            if not os.path.isdir(folder):
                raise InputError(f"--output: cannot write '{self.prefix}': '{folder}' is not a folder")
            if not os.access(folder, os.W_OK | os.X_OK):
                raise InputError(
                    f"--output: cannot write '{self.prefix}': no permission to write in '{folder}'"
                )
            return
        probe = FileSystems.join(self.staging, "probe")
        try:
            write_atomically(probe, lambda file: None)
        except (BeamIOError, OSError, ValueError) as error:
            raise InputError(f"--output: cannot write '{self.prefix}': {reason(error)}") from None
        finally:
            delete_quietly([probe, self.staging])

    def existing(self) -> list[str]:
        """Files where this output goes: ledger, commit under way, further files, shards of any number and format."""
        further = {f"{self.prefix}.{name}" for name in self.extras}
        ledger = read_ledger(self.prefix)
        if ledger is not None:
            further.update(_extras_named(self.prefix, ledger))
        marks = [self.ledger_path, self._journal_path, *sorted(further)]
        return [path for path in marks if FileSystems.exists(path)] + _shards_of(f"{self.prefix}-")

    def staged_extra(self, name: str) -> str:
        """Where the run puts a further file."""
        return FileSystems.join(self.staging, f"extra-{name}")

    def prepare(self) -> str:
        """Make the staging folder and return it. Raises InputError if that fails."""
        try:
            FileSystems.mkdirs(self.staging)
        except (BeamIOError, OSError) as error:
            raise InputError(f"--output: cannot write '{self.prefix}': {reason(error)}") from None
        return self.staging

    def commit(self, ledger_json: str) -> list[str]:
        """Make the staged shards the output; return the final paths, the ledger last.

        The pipeline must have succeeded. The ledger's parameters get `output`: the format and number of shards.

        Raises:
          InputError: files have appeared since `check` that must not be replaced.
          RuntimeError: the staged shards are not one whole set.
        """
        staged = self.staged_shards()
        finals = [f"{self.prefix}-{name}" for name in staged]
        further = [f"{self.prefix}.{name}" for name in self.extras]
        existing = self.existing()
        self._check_free(existing, "has appeared during the run")
        # What can run out of space comes first: older output is still whole if it does.
        ledger = FileSystems.join(self.staging, "ledger.json")
        write_atomically(ledger, lambda file: file.write(self._with_output(ledger_json, len(staged))))
        names = sorted(
            {path[len(self.prefix) :] for path in [*existing, *finals, *further]} - {".commit.json"}
        )
        journal = json.dumps({"format": _COMMIT, "files": names}, indent=2).encode()
        write_atomically(self._journal_path, lambda file: file.write(journal))
        # Old ledger first: from here on nothing looks finished until the new one is there.
        for path in existing:
            if path != self._journal_path:
                delete(path)
        try:
            for name, final in zip(staged, finals):
                rename(FileSystems.join(self.staging, f"shard-{name}"), final)
            for name, final in zip(self.extras, further):
                rename(self.staged_extra(name), final)
            rename(ledger, self.ledger_path)
        except (BeamIOError, OSError):
            delete_quietly([self.ledger_path, *finals, *further, self._journal_path])
            raise
        delete_quietly([self._journal_path])
        self.abort()
        return [*finals, self.ledger_path]

    def _with_output(self, ledger_json: str, shards: int) -> bytes:
        values = json.loads(ledger_json)
        output: dict[str, Any] = {"format": self.format, "shards": shards}
        if self.extras:
            output["extras"] = list(self.extras)
        values.setdefault("parameters", {})["output"] = output
        return (
            json.dumps(values, sort_keys=True, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        ).encode()

    def staged_shards(self) -> list[str]:
        """Names (`00000-of-00003.parquet`) of the staged shards, checked to be one whole set."""
        prefix = FileSystems.join(self.staging, "shard-")
        names = [path[len(prefix) :] for path in _shards_of(prefix)]
        if not _is_whole(names) or not names[0].endswith(f".{OUTPUT_FORMATS[self.format]}"):
            raise RuntimeError(f"'{self.staging}' does not hold one whole set of shards ({len(names)} found)")
        return names

    def abort(self) -> None:
        """Remove the staging folder, if any."""
        if not is_local(self.staging):
            try:
                delete_quietly(list_prefix(FileSystems.join(self.staging, "")))
            except (BeamIOError, OSError):
                return
        delete_quietly([self.staging])


def read_ledger(prefix: str) -> dict[str, Any] | None:
    """The ledger of a finished output as plain data, not verified; None if there is none of ours."""
    found = _read_json(_ledger_path(prefix))
    known = found is not None and found.get("format") == _LEDGER and isinstance(found.get("parameters"), dict)
    return found if known else None


def shards_named(prefix: str, ledger: Mapping[str, Any]) -> list[str]:
    """Paths of the shards that a ledger stands for.

    One written before ledgers named them stands for the shards that there are, if these are one whole set.
    """
    output = ledger["parameters"].get("output")
    if output is not None:
        match output:
            case {"shards": int(count), "format": str(format)} if format in OUTPUT_FORMATS:
                return [f"{prefix}-{shard_name(number, count, format)}" for number in range(count)]
        return []
    paths = _shards_of(f"{prefix}-")
    return paths if _is_whole([path[len(prefix) + 1 :] for path in paths]) else []


def _extras_named(prefix: str, ledger: Mapping[str, Any]) -> list[str]:
    """Paths of the further files that a ledger stands for."""
    match ledger["parameters"].get("output"):
        case {"extras": list(names)}:
            return [f"{prefix}.{name}" for name in names if isinstance(name, str) and "/" not in name]
    return []


def _ledger_path(prefix: str) -> str:
    return f"{prefix}.ledger.json"


def _read_json(path: str) -> dict[str, Any] | None:
    if not FileSystems.exists(path):
        return None
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        try:
            found = json.loads(file.read())
        except ValueError:
            return None
    return found if isinstance(found, dict) else None


def _shards_of(prefix: str) -> list[str]:
    """Sorted paths prefix + `NNNNN-of-NNNNN.EXT`."""
    return [path for path in list_prefix(prefix) if SHARD_NAME.fullmatch(path[len(prefix) :])]


def _is_whole(names: list[str]) -> bool:
    """Whether sorted shard names are one set, of one format, with none missing."""
    matches = [SHARD_NAME.fullmatch(name) for name in names]
    sets = {(int(m[2]), m[3]) for m in matches}
    return len(sets) == 1 and [int(m[1]) for m in matches] == list(range(next(iter(sets))[0]))


def count_released(paths: list[str]) -> int:
    """Number of items in finished output files; released, hence public."""
    total = 0
    for path in paths:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            if path.endswith(".parquet"):
                total += pq.ParquetFile(pa.BufferReader(file.read())).metadata.num_rows
            elif path.endswith(".csv"):
                total += sum(1 for _ in csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))) - 1
            else:
                total += sum(chunk.count(b"\n") for chunk in iter(lambda f=file: f.read(1 << 20), b""))
    return total
