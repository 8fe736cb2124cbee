"""Delta tables: `delta:PATH`, of which one version's live files are read. Needs the extra `delta`."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from dpbeam.io.formats.table import Live, TableFormat
from dpbeam.io.tables import Column

#: Features of a table that change nothing about how its Parquet files are read, or that are looked at below.
_FEATURES = {"timestampNtz", "vacuumProtocolCheck", "v2Checkpoint", "columnMapping", "deletionVectors"}


class Delta(TableFormat):
    """Tables of Delta Lake."""

    name, title = "delta", "a Delta"
    modules = ("deltalake",)
    extra = "delta"
    mark = "_delta_log/*"
    spelling = "delta:{folder}"

    def files_to_see(self, pattern: str) -> tuple[str, ...]:
        return (f"{pattern.removeprefix('delta:').rstrip('/')}/_delta_log/*",)

    def live(self, place: str, version: int | None) -> Live:
        from deltalake import DeltaTable

        with self.asking(place, "open" if version is None else f"open version {version} of"):
            table = DeltaTable(place, version=version)
        self._check(place, table)
        schema = pa.schema(table.schema().to_arrow())
        partitions = list(table.metadata().partition_columns)
        files = []
        for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
            values = {name: action[f"partition.{name}"] for name in partitions}
            constants = {name: None if value is None else str(value) for name, value in values.items()}
            files.append((_path(place, action["path"]), action["size_bytes"], constants))
        columns = tuple(Column(name, schema.field(name).type) for name in schema.names)
        return table.version(), columns, files

    def _check(self, place: str, table: Any) -> None:
        """Refuse a table whose files do not say what its rows are."""
        unknown = set(table.protocol().reader_features or ()) - _FEATURES
        if unknown:
            raise self.refused(place, f"has features that are not read: {', '.join(sorted(unknown))}")
        mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mapping != "none":
            raise self.refused(
                place,
                f"maps its columns by {mapping} (delta.columnMapping.mode), which is not read; write it again without",
            )
        if any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors())):
            raise self.refused(
                place,
                "has rows that deletion vectors hide, which are not read; run REORG TABLE ... APPLY (PURGE) first",
            )


def _path(place: str, path: str) -> str:
    """Where a file lies that the log names, relative to its table or, of a clone, in full."""
    return unquote(path) if "://" in path else f"{place.rstrip('/')}/{unquote(path)}"
