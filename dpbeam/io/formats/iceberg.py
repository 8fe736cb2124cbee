"""Iceberg tables: `iceberg:CATALOG.NAMESPACE.TABLE` or `iceberg:PATH.metadata.json`, of which one snapshot's live files
are read. Needs the extra `iceberg`; catalogs are those of pyiceberg's configuration.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpbeam.errors import InputError
from dpbeam.io.formats.parquet import Parquet
from dpbeam.io.paths import local_path
from dpbeam.io.spec import InputSpec
from dpbeam.io.tables import Column, Table

if TYPE_CHECKING:
    from dpbeam.io.files import InputFile


class Iceberg(Parquet):
    name, title = "iceberg", "an Iceberg"
    suffixes = ()
    magic = b""
    is_table = True
    options = ("table_version",)
    ledger_fields = ("format", "table_version")
    modules = ("pyiceberg",)
    extra = "iceberg"

    def files_to_see(self, pattern: str) -> tuple[str, ...]:
        place = pattern.removeprefix("iceberg:")
        return (place,) if place.endswith(".metadata.json") else ()

    def find_files(self, spec: InputSpec, flag: str) -> tuple[InputSpec, list[InputFile]]:
        from dpbeam.io.files import InputFile

        place = self.place_of(spec)
        table = _open(place)
        snapshot = (
            table.current_snapshot()
            if spec.table_version is None
            else table.snapshot_by_id(spec.table_version)
        )
        if snapshot is None:
            raise InputError(
                f"--table_version: the Iceberg table '{place}' has no such snapshot"
                if spec.table_version is not None
                else f"--input: the Iceberg table '{place}' has no snapshot: nothing was written to it"
            )
        scan = table.scan(snapshot_id=snapshot.snapshot_id)
        files = []
        for task in _tasks(place, scan):
            path = local_path(task.file.file_path, "--input")
            files.append(InputFile(path, task.file.file_size_in_bytes))
        resolved = replace(
            spec,
            table_version=snapshot.snapshot_id,
            table=Table(f"iceberg:{place}", _columns(table, scan, place)),
        )
        return resolved, sorted(files)


def _open(place: str) -> Any:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.table import StaticTable

    try:
        if place.endswith(".metadata.json"):
            return StaticTable.from_metadata(place)
        if "/" not in place and place.count(".") >= 2:
            catalog, _, name = place.partition(".")
            return load_catalog(catalog).load_table(name)
    except Exception as error:  # of many libraries: catalogs, stores
        reason = str(error).partition("\n")[0]
        raise InputError(f"--input: cannot open the Iceberg table '{place}': {reason}") from None
    raise InputError(
        f"--input: iceberg:{place}: its catalog knows which metadata is current; write "
        "iceberg:CATALOG.NAMESPACE.TABLE, or the path of that .metadata.json file"
    )


def _tasks(place: str, scan: Any) -> list[Any]:
    """The files of a snapshot, if they alone say what its rows are."""
    try:
        tasks = list(scan.plan_files())
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"--input: cannot read the Iceberg table '{place}': {reason}") from None
    if any(task.delete_files for task in tasks):
        raise InputError(
            f"--input: the Iceberg table '{place}' has rows that delete files hide (merge-on-read), which are not "
            "read; run rewrite_data_files first"
        )
    if others := {task.file.file_format.value for task in tasks} - {"PARQUET"}:
        raise InputError(
            f"--input: the Iceberg table '{place}' has files of {', '.join(sorted(others))}, only Parquet is read"
        )
    return tasks


def _columns(table: Any, scan: Any, place: str) -> tuple[Column, ...]:
    """The columns of the snapshot that is read. Those of identity partitions need not be in the files."""
    from pyiceberg.transforms import IdentityTransform

    in_paths = {
        field.source_id
        for spec in table.specs().values()
        for field in spec.fields
        if isinstance(field.transform, IdentityTransform)
    }
    schema = scan.projection()
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
