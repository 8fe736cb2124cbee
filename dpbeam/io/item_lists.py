"""Lists of items: public ones (`--public_items`, `--domain`), or those of an earlier run (`--released`).

A list has the form of the output, so that the items of one run can be the public items of the next: the item columns
by name, in any format of the input with columns, else text with an item a line, escaped, composite parts separated by
tabs. Text has no header: where an output of ours has a rank, a noisy weight or a noisy count beside the item, its
ledger says so. The prefix of a finished output stands for its files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.errors import DataError, InputError, SettingError
from dpbeam.families.registry import family_of
from dpbeam.io.files import identity, match_files
from dpbeam.io.formats.base import InputFile
from dpbeam.io.lists import ListSpec, faults_of, list_format, list_kinds, list_rows, whole_column
from dpbeam.io.new_files import output_named
from dpbeam.io.output import read_ledger, shards_named
from dpbeam.io.output_formats import SHARD_NAME, unescape, unescape_bytes
from dpbeam.io.paths import is_pipe, local_path
from dpbeam.io.patterns import is_wild
from dpbeam.io.rows import Rows
from dpbeam.io.sinks import OutputColumns
from dpbeam.io.spool import Spool
from dpbeam.io.streams import open_input
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import BYTES, INT, STRING
from dpbeam.storage import FileSystems

_SHARD_PATH = re.compile(rf"(.+)-{SHARD_NAME.pattern}")
_BLOCK = 8 << 20


def read_items(path: str, columns: OutputColumns, flag: str) -> pa.Array:
    """Distinct canonical items of a list.

    Args:
      path: files, by a name or glob, or the prefix of a finished output. The format follows from the extension.
      columns: names and kinds of the item columns of the job.
      flag: names the option in errors, for example `--public_items`.

    Returns:
      (n,) large_binary, in the order of first occurrence; what is no item (`canonical.empty_items`) is left out.

    Raises:
      InputError: the file cannot be read, a column is missing or has another kind, a value is null or no item.
    """
    spool = Spool()
    parts = [pa.array([], pa.large_binary())]
    try:
        for name in list_files(path, flag):
            form = list_format(name)
            (file,) = spool.replace([name], form.name, flag)
            # Only formats that declare types have bytes; in others they are text, escaped.
            types = (
                columns.kinds
                if form.declares_types
                else [STRING if kind == BYTES else kind for kind in columns.kinds]
            )
            with faults_of(flag):
                parts += _items(ListSpec.of(file, form, flag, columns.names, types), columns)
    finally:
        spool.remove()
    items = pa.chunked_array(parts).unique()
    return items.filter(pa.array(~canonical.empty_items(items, columns.kinds)))


def list_files(path: str, flag: str) -> list[str]:
    """The files of a list, as `read_items` takes it. Raises InputError if there are none."""
    path = local_path(path, flag)
    if not (is_wild(path) or is_pipe(path)):
        try:
            ledger = None if FileSystems.exists(path) else read_ledger(path)
        except (OSError, ValueError, ImportError):
            ledger = None  # looking up the file says what is wrong
        if ledger is not None:
            return shards_named(path, ledger)
    return [file.path for file in match_files([path], flag, pipes=True)]


def refuse_input(path: str, flag: str, patterns: Sequence[str], inputs: Sequence[InputFile]) -> None:
    """Refuse a list that is said to be public and is the private input itself: all of it would be released.

    Args:
      path: of the list, as `read_items` takes it.
      patterns: of the input.
      inputs: its files.

    Raises:
      InputError: a file of the list is one of the input, by whatever name, or a copy of one.
    """
    taken = {identity(file.path) for file in inputs} | {identity(p) for p in patterns if is_pipe(p)}
    sizes = {file.size for file in inputs if file.size}
    for name in list_files(path, flag):
        same = identity(name) in taken - {None}
        if not (same or is_pipe(name)) and _size(name, flag) in sizes:
            digest = _digest(name)
            same = any(_digest(file.path) == digest for file in inputs if file.size == _size(name, flag))
        if same:
            raise SettingError(
                f"{flag}: '{name}' is the input of this run, or a copy of it; a public list must not come from the data"
            )


def _size(path: str, flag: str) -> int:
    return sum(file.size for file in match_files([path], flag))


def _digest(path: str) -> bytes:
    digest = hashlib.blake2b()
    with open_input(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.digest()


def has_column(path: str, flag: str, name: str) -> bool:
    """Whether a file of the list has a column of this name, of a type that ids have, besides its items.

    Raises:
      InputError: there is no such list.
    """
    return any(_has_column(file, flag, name) for file in list_files(path, flag) if not is_pipe(file))


def _has_column(path: str, flag: str, name: str) -> bool:
    form = list_format(path)
    try:
        list_kinds(ListSpec.of(path, form, flag, [name], [STRING]))
    except InputError:
        return False  # whoever reads the list says what else is wrong with it
    return form.has_columns


def _items(spec: ListSpec, columns: OutputColumns) -> Iterator[pa.Array]:
    """The items of a file: large_binary arrays."""
    form, path, kinds = spec.file_format, spec.patterns[0], list_kinds(spec)
    beside = (0, 0) if form.has_columns else _beside_items(path)
    if form.declares_types:
        for name, kind, wanted in zip(columns.names, kinds.item, columns.kinds):
            if kind != wanted:
                raise DataError(
                    f"{path}: column '{name}' holds {kind} values, but the items of the input are {wanted}"
                )
    for rows in list_rows(spec, kinds):
        fields = rows if form.has_columns else _fields(rows, len(columns.kinds), beside)
        parts = [whole_column(spec, fields, place) for place in range(len(columns.kinds))]
        if not form.declares_types:
            parts = [
                _plain(part, kind, fields, escaped=not form.has_columns)
                for part, kind in zip(parts, columns.kinds)
            ]
        yield parts[0] if len(parts) == 1 else canonical.encode_parts(parts)


def _fields(lines: Rows, count: int, beside: tuple[int, int]) -> Rows:
    """The `count` fields of each line that is not empty, without those before and after them."""
    kept = np.flatnonzero(pc.greater(pc.binary_length(lines.items[0]), 0))
    fields = pc.split_pattern(lines.items[0].take(pa.array(kept)), "\t")
    sizes, width = pc.list_value_length(fields).to_numpy(), beside[0] + count + beside[1]
    if (bad := sizes != width).any():
        row = int(bad.argmax())
        raise DataError(
            f"{lines.where(int(kept[row]))}: {sizes[row]} fields separated by tabs, expected {width}"
        )
    columns = [pc.list_element(fields, beside[0] + place) for place in range(count)]
    return Rows(None, columns, lambda row: lines.where(int(kept[row])))


def _plain(values: pa.Array, kind: str, rows: Rows, *, escaped: bool) -> pa.Array:
    """Canonical bytes (n,) of values that are text in their file; integers may be parsed already.

    Args:
      escaped: integers stand as text, and strings are escaped too.
    """
    if kind == INT:
        if not escaped:
            return values
        numbers, _ = canonical.parse_int64(values)
        if numbers.null_count:
            row = pc.index(numbers.is_null(), True).as_py()
            raise DataError(f"{rows.where(row)}: not a 64-bit integer, as the items of the input are")
        return canonical.encode_int64(numbers)
    if kind == STRING and not (escaped and pc.any(pc.match_substring(values, b"\\")).as_py()):
        return values
    undo: Callable[[str], Any] = unescape_bytes if kind == BYTES else unescape
    plain = []
    for row, text in enumerate(values.cast(pa.large_string()).to_pylist()):
        try:
            plain.append(undo(text))
        except ValueError as complaint:
            raise DataError(f"{rows.where(row)}: {complaint}") from None
    return pa.array(plain, pa.large_binary())


def _beside_items(path: str) -> tuple[int, int]:
    """How many fields come before and after the item in a text output of ours; none in other files."""
    shard = _SHARD_PATH.fullmatch(path)
    prefix = shard[1] if shard else output_named(path)[0]
    ledger = read_ledger(prefix)
    if ledger is None or not (shard or path in shards_named(prefix, ledger)):
        return 0, 0
    family = family_of(ledger["method"])
    added = () if family is None else family.columns_of(ledger["parameters"])
    before = sum(column.before for column in added)
    return before, len(added) - before
