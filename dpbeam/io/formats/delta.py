"""Delta tables: `delta:PATH`, of which one version's live files are read. Needs the extra `delta`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from dpbeam.errors import InputError
from dpbeam.io.formats.parquet import Parquet
from dpbeam.io.spec import InputSpec
from dpbeam.io.tables import Column, Table

if TYPE_CHECKING:
    from dpbeam.io.files import InputFile

#: Features of a table that change nothing about how its Parquet files are read, or that are looked at below.
_FEATURES = {"timestampNtz", "vacuumProtocolCheck", "v2Checkpoint", "columnMapping", "deletionVectors"}


class Delta(Parquet):
    name, title = "delta", "a Delta"
    suffixes = ()
    magic = b""
    is_table = True
    options = ("table_version",)
    ledger_fields = ("format", "table_version")
    modules = ("deltalake",)
    extra = "delta"

    def files_to_see(self, pattern: str) -> tuple[str, ...]:
        return (f"{pattern.removeprefix('delta:').rstrip('/')}/_delta_log/*",)

    def find_files(self, spec: InputSpec, flag: str) -> tuple[InputSpec, list[InputFile]]:
        from dpbeam.io.files import InputFile

        place = self.place_of(spec)
        table = self._open(place, spec)
        _check(place, table)
        schema = pa.schema(table.schema().to_arrow())
        partitions = list(table.metadata().partition_columns)
        columns = tuple(Column(name, schema.field(name).type) for name in schema.names)
        files = []
        for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
            constants = tuple((name, _text(action[f"partition.{name}"])) for name in partitions)
            files.append(InputFile(_path(place, action["path"]), action["size_bytes"], constants))
        resolved = replace(spec, table_version=table.version(), table=Table(f"delta:{place}", columns))
        return resolved, sorted(files)

    def _open(self, place: str, spec: InputSpec) -> Any:
        from deltalake import DeltaTable

        try:
            return DeltaTable(place, version=spec.table_version)
        except Exception as error:  # the library's errors have no common class of their own
            version = "" if spec.table_version is None else f" version {spec.table_version} of"
            reason = str(error).partition("\n")[0]
            raise InputError(f"--input: cannot open{version} the Delta table '{place}': {reason}") from None


def _check(place: str, table: Any) -> None:
    """Refuse a table whose files do not say what its rows are."""
    protocol = table.protocol()
    unknown = set(protocol.reader_features or ()) - _FEATURES
    if unknown:
        raise InputError(
            f"--input: the Delta table '{place}' has features that are not read: {', '.join(sorted(unknown))}"
        )
    mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        raise InputError(
            f"--input: the Delta table '{place}' maps its columns by {mapping} (delta.columnMapping.mode), which is "
            "not read; write it again without"
        )
    if any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors())):
        raise InputError(
            f"--input: the Delta table '{place}' has rows that deletion vectors hide, which are not read; run REORG "
            "TABLE ... APPLY (PURGE) first"
        )


def _path(place: str, path: str) -> str:
    """Where a file lies that the log names, relative to its table or, of a clone, in full."""
    return unquote(path) if "://" in path else f"{place.rstrip('/')}/{unquote(path)}"


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
