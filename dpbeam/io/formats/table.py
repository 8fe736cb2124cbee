"""What formats of tables share: `NAME:PLACE` names a table, of which one version's live files are read, as Parquet."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from dpbeam.errors import DataError, InputError, SettingError
from dpbeam.io.formats.base import InputFile
from dpbeam.io.formats.parquet import Parquet
from dpbeam.io.tables import Column, Table

if TYPE_CHECKING:
    from dpbeam.io.spec import InputSpec

#: A version; its columns; path, size and partitions of each of its files.
Live = tuple[int, tuple[Column, ...], list[tuple[str, int, dict[str, str | None]]]]


class TableFormat(Parquet):
    """A kind of table. What would change the meaning of its files is refused."""

    suffixes = ()
    magic = b""
    is_table = True
    options = ("table_version",)
    ledger_fields = ("format", "table_version")

    @abstractmethod
    def live(self, place: str, version: int | None) -> Live:
        """What is live in a version, by default the current one. Raises InputError."""

    def find_files(self, spec: InputSpec, flag: str) -> tuple[InputSpec, list[InputFile]]:
        place, *more = (pattern.removeprefix(f"{self.name}:") for pattern in spec.patterns)
        if more:
            raise SettingError(f"--input: {self.name} is read from one table, got {len(spec.patterns)}")
        version, columns, live = self.live(place, spec.table_version)
        files = sorted(InputFile(path, size, tuple(parts.items())) for path, size, parts in live)
        return replace(spec, table_version=version, table=Table(f"{self.name}:{place}", columns)), files

    def called(self, place: str) -> str:
        """A table in messages."""
        return f"the {self.title.partition(' ')[2]} table '{place}'"

    def refused(self, place: str, why: str) -> InputError:
        """The error for a table that is not read."""
        return DataError(f"--input: {self.called(place)} {why}")

    @contextmanager
    def asking(self, place: str, what: str) -> Iterator[None]:
        """Makes an InputError of whatever a library raises: its own, of stores, of catalogs, without a common class."""
        try:
            yield
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise DataError(f"--input: cannot {what} {self.called(place)}: {reason}") from None
