"""The formats of the input: one line each. Everything else that speaks of formats walks this registry.

A module is imported when its format is asked for, and none of them imports Beam: what a spec refuses needs none.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpbeam.errors import InputError

if TYPE_CHECKING:
    from dpbeam.io.formats.base import Format

#: Name of every format -> module:class, in the order of help.
_FORMATS = {
    "parquet": "dpbeam.io.formats.parquet:Parquet",
    "jsonl": "dpbeam.io.formats.jsonl:JsonLines",
    "csv": "dpbeam.io.formats.delimited:Csv",
    "tsv": "dpbeam.io.formats.delimited:Tsv",
    "avro": "dpbeam.io.formats.avro:Avro",
    "text": "dpbeam.io.formats.text:Text",
    "delta": "dpbeam.io.formats.delta:Delta",
    "iceberg": "dpbeam.io.formats.iceberg:Iceberg",
    "wet": "dpbeam.io.formats.crawl:Wet",
    "warc": "dpbeam.io.formats.crawl:Warc",
}


def names() -> tuple[str, ...]:
    """All names, without importing a format."""
    return tuple(_FORMATS)


@functools.cache
def find(name: str) -> Format:
    """The format of a name. Raises InputError if there is none."""
    if name not in _FORMATS:
        raise InputError(f"--input_format: expected one of {', '.join(_FORMATS)}, got '{name}'")
    module, kind = _FORMATS[name].split(":")
    form: Format = getattr(importlib.import_module(module), kind)()
    return form


def formats() -> Iterator[Format]:
    """All formats, in the order of help."""
    return map(find, _FORMATS)
