"""Partitions: folders such as `day=2026-11-01/`, whose names are columns, and filters on them (`--partition`).

A filter decides by names alone, so nothing of other folders is opened.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from dpbeam.errors import DataError, SettingError

if TYPE_CHECKING:
    from dpbeam.io.formats.base import InputFile

_NULL = "__HIVE_DEFAULT_PARTITION__"
_FILTER = re.compile(r"([^=!<>]+)(>=|<=|!=|=|>|<)([^=].*)", re.DOTALL)
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Filter:
    """One comparison of a partition with a value: of integers where both are, else of texts, as dates are."""

    name: str
    compare: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Of `day>=2026-11-01`. Raises InputError."""
        parts = _FILTER.fullmatch(text)
        if parts is None:
            raise SettingError(f"--partition: expected a comparison such as 'day>=2026-11-01', got '{text}'")
        return cls(parts[1].strip(), parts[2], parts[3].strip())

    def keeps(self, value: str | None) -> bool:
        """Whether files of a partition stay; those of the null partition never do."""
        if value is None:
            return False
        if _INTEGER.fullmatch(value) and _INTEGER.fullmatch(self.value):
            return _COMPARED[self.compare](int(value), int(self.value))
        return _COMPARED[self.compare](value, self.value)


def in_path(path: str) -> dict[str, str | None]:
    """The partitions that a file's folders name, None for the null one."""
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    return {name: None if value == _NULL else unquote(value) for name, mark, value in pairs if name and mark}


def with_partitions(
    files: Sequence[InputFile], columns: Sequence[str], filters: Sequence[str], *, of_table: bool = False
) -> list[InputFile]:
    """The files that all filters keep, each with those of its partitions that are asked for as columns.

    Args:
      of_table: the table has said what the partitions of its files are; their names prove nothing.

    Raises:
      InputError: a file has no such partition, or none is left.
    """
    wanted = [Filter.parse(text) for text in filters]
    kept = []
    for file in files:
        partitions = dict(file.constants) if of_table else in_path(file.path)
        for one in wanted:
            if one.name not in partitions:
                raise DataError(f"--partition: {file.path} lies in no partition {one.name}=...")
        if all(one.keeps(partitions[one.name]) for one in wanted):
            constants = tuple((name, value) for name, value in partitions.items() if name in columns)
            kept.append(replace(file, constants=constants))
    if not kept and wanted:
        raise DataError(f"--partition: no file is left of {len(files)}")
    return kept
