"""Iceberg tables: `iceberg:CATALOG.NAMESPACE.TABLE` or `iceberg:PATH.metadata.json`, of which one snapshot's live files
are read. Needs the extra `iceberg`; catalogs are those of pyiceberg's configuration.
"""

from __future__ import annotations

from typing import Any

from dpbeam.errors import DataError, SettingError
from dpbeam.io.formats.table import Live, TableFormat
from dpbeam.io.paths import local_path
from dpbeam.io.tables import Column


class Iceberg(TableFormat):
    """Tables of Apache Iceberg."""

    name, title = "iceberg", "an Iceberg"
    modules = ("pyiceberg",)
    extra = "iceberg"
    mark = "metadata/*.metadata.json"
    spelling = "iceberg:CATALOG.NAMESPACE.TABLE"

    def files_to_see(self, pattern: str) -> tuple[str, ...]:
        place = pattern.removeprefix("iceberg:")
        return (place,) if place.endswith(".metadata.json") else ()

    def live(self, place: str, version: int | None) -> Live:
        table = self._open(place)
        if version is None:
            snapshot = table.current_snapshot()
        elif (snapshot := table.snapshot_by_id(version)) is None:
            raise SettingError(f"--table_version: {self.called(place)} has no such snapshot")
        if snapshot is None:
            raise self.refused(place, "has no snapshot: nothing was written to it")
        scan = table.scan(snapshot_id=snapshot.snapshot_id)
        tasks = self._tasks(place, scan)
        files: list[Any] = [
            (local_path(t.file.file_path, "--input"), t.file.file_size_in_bytes, {}) for t in tasks
        ]
        # A change of the schema alone makes no snapshot: the current one has the columns of today.
        schema = table.schema() if snapshot == table.current_snapshot() else scan.projection()
        return snapshot.snapshot_id, _columns(table, schema), files

    def _open(self, place: str) -> Any:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.table import StaticTable

        with self.asking(place, "open"):
            if place.endswith(".metadata.json"):
                return StaticTable.from_metadata(place)
            if "/" not in place and place.count(".") >= 2:
                catalog, _, name = place.partition(".")
                return load_catalog(catalog).load_table(name)
        raise DataError(
            f"--input: iceberg:{place}: its catalog knows which metadata is current; write {self.spelling}, or the "
            "path of that .metadata.json file"
        )

    def _tasks(self, place: str, scan: Any) -> list[Any]:
        """The files of a snapshot, if they alone say what its rows are."""
        with self.asking(place, "read"):
            tasks = list(scan.plan_files())
        if any(task.delete_files for task in tasks):
            raise self.refused(
                place,
                "has rows that delete files hide (merge-on-read), which are not read; run rewrite_data_files first",
            )
        if others := {task.file.file_format.value for task in tasks} - {"PARQUET"}:
            raise self.refused(place, f"has files of {', '.join(sorted(others))}, only Parquet is read")
        return tasks


def _columns(table: Any, schema: Any) -> tuple[Column, ...]:
    """The columns of a schema. Those of identity partitions need not be in the files."""
    from pyiceberg.transforms import IdentityTransform

    parts = [field for spec in table.specs().values() for field in spec.fields]
    in_paths = {field.source_id for field in parts if isinstance(field.transform, IdentityTransform)}
    arrow = schema.as_arrow()
    return tuple(
        Column(
            field.name,
            arrow.field(field.name).type,
            field.field_id,
            always=field.field_id in in_paths or getattr(field, "initial_default", None) is not None,
        )
        for field in schema.fields
    )
