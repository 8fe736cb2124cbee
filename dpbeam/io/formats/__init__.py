"""The formats of the input: one line each. Everything else that speaks of formats walks this registry.

A module is imported when its format is asked for, and none of them imports Beam: what a spec refuses needs none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dpbeam.errors import SettingError
from dpbeam.io.compressions import without_compression
from dpbeam.io.paths import is_pipe, name_of, scheme_of
from dpbeam.io.patterns import check_no_folder, in_folder_of_store, local_files, no_file
from dpbeam.plugins import FORMATS, added, load

if TYPE_CHECKING:
    from dpbeam.io.formats.base import Format

#: Name of every format -> module:class, in the order of help.
_FORMATS = {
    "parquet": "dpbeam.io.formats.parquet:Parquet",
    "jsonl": "dpbeam.io.formats.jsonl:JsonLines",
    "csv": "dpbeam.io.formats.delimited:Csv",
    "tsv": "dpbeam.io.formats.delimited:Tsv",
    "avro": "dpbeam.io.formats.avro:Avro",
    "orc": "dpbeam.io.formats.orc:Orc",
    "text": "dpbeam.io.formats.text:Text",
    "delta": "dpbeam.io.formats.delta:Delta",
    "iceberg": "dpbeam.io.formats.iceberg:Iceberg",
    "wet": "dpbeam.io.formats.crawl:Wet",
    "warc": "dpbeam.io.formats.crawl:Warc",
}


@functools.cache
def _installed() -> dict[str, str]:
    """dpbeam's own, and what other distributions add."""
    return _FORMATS | added(FORMATS, _FORMATS)


def names() -> tuple[str, ...]:
    """All names, without importing a format."""
    return tuple(_installed())


@functools.cache
def find(name: str) -> Format:
    """The format of a name. Raises InputError if there is none."""
    if name not in names():
        raise SettingError(f"--input_format: expected one of {', '.join(names())}, got '{name}'")
    form: Format = load(_installed()[name])()
    return form


def formats() -> Iterator[Format]:
    """All formats, in the order of help."""
    return map(find, names())


def infer_format(patterns: Sequence[str], flag: str = "--input") -> str:
    """The format that the extensions agree on: of the patterns, or where one has none, of the files it matches here.

    Raises:
      InputError: an extension is unknown, two disagree, or a pattern matches a folder or nothing.
    """
    example: dict[str, str] = {}
    for pattern in patterns:
        check_no_folder(pattern, flag)
        if table := table_format(pattern):
            example.setdefault(table, pattern)
            continue
        for path in [pattern] if format_of(pattern) else _files_or_none(pattern, flag) or [pattern]:
            format = format_of(path)
            if format is None:
                raise SettingError(f"{flag}: cannot tell the format of '{path}'; pass --input_format")
            example.setdefault(format, path)
    if len(example) > 1:
        one, two = list(example.items())[:2]
        raise SettingError(
            f"{flag}: '{one[1]}' is {one[0]} and '{two[1]}' is {two[0]}; one job reads one format, "
            "or pass --input_format"
        )
    return next(iter(example))


def table_format(pattern: str) -> str | None:
    """The format of the table that `NAME:PLACE` names; None for other patterns."""
    name = pattern.partition(":")[0]
    return next((format.name for format in formats() if format.is_table and format.name == name), None)


def files_to_see(pattern: str) -> tuple[str, ...]:
    """The files by which to tell whether an input can be seen: the pattern itself, but of tables."""
    table = table_format(pattern)
    return find(table).files_to_see(pattern) if table else (pattern,)


def format_of(path: str) -> str | None:
    """The format that an extension names, below one of compression; None if it names none."""
    _, dot, suffix = name_of(without_compression(path)).rpartition(".")
    return next((form.name for form in formats() if dot and suffix.lower() in form.suffixes), None)


def _files_or_none(pattern: str, flag: str) -> list[str]:
    if scheme_of(pattern) is not None:
        return in_folder_of_store(pattern)
    if is_pipe(pattern):
        return []
    files = sorted(local_files(pattern))
    if not files:
        raise no_file(pattern, flag)
    return files
