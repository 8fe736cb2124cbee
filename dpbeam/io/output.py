"""Where the output goes, and when it counts as finished.

Workers write shards into a staging folder beside the output (`PREFIX.staging-ID/`). After the pipeline has
succeeded, `commit` moves them to `PREFIX-00000-of-000NN.EXT` and writes `PREFIX.ledger.json` last: **the ledger is the
commit mark**. When older output is replaced, its ledger is removed before anything else. So at every instant,
a ledger stands for a whole, matching set of shards; a crash leaves none.
"""

from __future__ import annotations

import os
import re
import secrets

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from dpbeam.errors import InputError
from dpbeam.io.files import delete_quietly, list_prefix, reason, rename, write_atomically
from dpbeam.io.paths import is_local
from dpbeam.io.sinks import OUTPUT_FORMATS

_SHARD = re.compile(rf"(\d{{5}})-of-(\d{{5}})\.({'|'.join(OUTPUT_FORMATS.values())})")


class OutputTarget:
    """The output of one run.

    Args:
      prefix: path prefix of all output files (`--output`).
      format: `parquet` or `text` (`--output_format`).
      overwrite: replace output of an earlier run (`--overwrite`).
    """

    def __init__(self, prefix: str, format: str = "parquet", *, overwrite: bool = False):
        if format not in OUTPUT_FORMATS:
            raise InputError(f"--output_format: expected one of {', '.join(OUTPUT_FORMATS)}, got '{format}'")
        if not prefix or prefix.endswith(("/", os.sep)):
            raise InputError(
                f"--output: '{prefix}' is not a prefix of file names; add a name, for example '{prefix}items'"
            )
        if not is_local(prefix) and any(c in prefix for c in "*?["):
            raise InputError(f"--output: '{prefix}' must not hold wildcards")
        self.prefix = prefix
        self.format = format
        self.overwrite = overwrite
        self.staging = f"{prefix}.staging-{secrets.token_hex(8)}"
        self.ledger_path = f"{prefix}.ledger.json"

    def check(self) -> None:
        """Refuse early, before any work: existing output, or a place that cannot be written. Leaves no trace.

        Raises:
          InputError: naming `--output`.
        """
        try:
            existing = self.existing()
        except (BeamIOError, OSError, ValueError, ImportError) as error:
            raise InputError(f"--output: cannot look up '{self.prefix}': {reason(error)}") from None
        if existing and not self.overwrite:
            raise InputError(
                f"--output: '{existing[0]}' exists; pass --overwrite to replace it, or another prefix"
            )
        self._check_writable()

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
        """Files of earlier output with this prefix: the ledger if there is one, then shards of any format."""
        ledger = [self.ledger_path] if FileSystems.exists(self.ledger_path) else []
        return ledger + self._shards_of(f"{self.prefix}-")

    def prepare(self) -> str:
        """Make the staging folder and return it. Raises InputError if that fails."""
        try:
            FileSystems.mkdirs(self.staging)
        except (BeamIOError, OSError) as error:
            raise InputError(f"--output: cannot write '{self.prefix}': {reason(error)}") from None
        return self.staging

    def commit(self, ledger_json: str) -> list[str]:
        """Make the staged shards the output; return the final paths, the ledger last.

        The pipeline must have succeeded.

        Raises:
          InputError: output has appeared since `check` and `overwrite` is not set.
          RuntimeError: the staged shards are not one whole set.
        """
        staged = self.staged_shards()
        finals = [f"{self.prefix}-{name}" for name in staged]
        existing = self.existing()
        if existing and not self.overwrite:
            raise InputError(
                f"--output: '{existing[0]}' has appeared during the run; pass --overwrite to replace it"
            )
        # What can run out of space comes first: older output is still whole if it does.
        ledger = FileSystems.join(self.staging, "ledger.json")
        write_atomically(ledger, lambda file: file.write(ledger_json.encode()))
        # Old ledger first: from here on nothing looks finished until the new one is there.
        for path in existing:
            FileSystems.delete([path])
        try:
            for name, final in zip(staged, finals):
                rename(FileSystems.join(self.staging, f"shard-{name}"), final)
            rename(ledger, self.ledger_path)
        except (BeamIOError, OSError):
            delete_quietly([self.ledger_path, *finals])
            raise
        self.abort()
        return [*finals, self.ledger_path]

    def staged_shards(self) -> list[str]:
        """Names (`00000-of-00003.parquet`) of the staged shards, checked to be one whole set."""
        prefix = FileSystems.join(self.staging, "shard-")
        names = sorted(path[len(prefix) :] for path in self._shards_of(prefix))
        matches = [_SHARD.fullmatch(name) for name in names]
        counts = {(int(m[2]), m[3]) for m in matches}
        whole = len(counts) == 1 and [int(m[1]) for m in matches] == list(range(next(iter(counts))[0]))
        if not whole or next(iter(counts))[1] != OUTPUT_FORMATS[self.format]:
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

    @staticmethod
    def _shards_of(prefix: str) -> list[str]:
        """Sorted paths prefix + `NNNNN-of-NNNNN.EXT`."""
        return [path for path in list_prefix(prefix) if _SHARD.fullmatch(path[len(prefix) :])]


def count_released(paths: list[str]) -> int:
    """Number of items in finished output files; released, hence public."""
    total = 0
    for path in paths:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            if path.endswith(".parquet"):
                total += pq.ParquetFile(pa.BufferReader(file.read())).metadata.num_rows
            else:
                total += sum(chunk.count(b"\n") for chunk in iter(lambda f=file: f.read(1 << 20), b""))
    return total
