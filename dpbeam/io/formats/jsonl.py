"""Reading JSON lines: one object per line, parsed by orjson.

A whole chunk is parsed and checked at once; only if something in it is wrong are its lines looked at one by one, to
name or skip the bad ones. A missing field is a null. true, 1.0 or a nested value makes a bad row, and so does an item
of another type than the declared one: a row must not decide what type the others are written as. Users are never
written, so the type of their column is that of its first value; but a string among integers, or the reverse, is an
error even where bad rows are skipped, for a chance first row must not decide which part of the data is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa

from dpbeam.errors import DataError
from dpbeam.io.formats.base import Format, Look, Piece
from dpbeam.io.lines import Chunk, chunks, count_lines
from dpbeam.io.rows import NOT_UTF_8, Counts, Rows, refuse_row
from dpbeam.io.streams import open_input
from dpbeam.kernels.canonical import BYTES, INT, STRING, Kinds, invalid_utf8
from dpbeam.kernels.pair_rules import BAD_ROWS
from dpbeam.rows.nested import NoObjectError, depth_of, getter

if TYPE_CHECKING:
    from dpbeam.io.spec import InputSpec

CHUNK_BYTES = 4 << 20

NUMBER = "number"  # of what is no id, such as the demands of an agent
_PYTHON: dict[str, tuple[type, ...]] = {STRING: (str,), INT: (int,), BYTES: (str,), NUMBER: (int, float)}
_ARROW = {STRING: pa.large_string(), INT: pa.int64(), BYTES: pa.large_string(), NUMBER: pa.float64()}
_WANTED = {STRING: "a string", INT: "an integer", BYTES: "a string", NUMBER: "a number"}
_JSON = {
    str: "a string",
    int: "an integer",
    float: "a number that is no 64-bit integer",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
_LOOK_AT = 1_000
_HEAD_BYTES = 256


class JsonLines(Format):
    """A JSON object on each line."""

    name, title, suffixes = "jsonl", "a JSON lines", ("jsonl", "ndjson", "json")
    bytes_per_pair = 40
    compressible = True
    pipes = True
    has_lists = True

    def splits(self, spec: InputSpec) -> bool:
        return True

    def count_rows(self, path: str, spec: InputSpec) -> int:
        return count_lines(path)

    def look(self, piece: Piece, spec: InputSpec) -> Look:
        """As `Format`; at the first thousand rows at most, or further on to the first user. Bad lines are left to
        the reader."""
        with open_input(piece.path) as file:
            return _look_at(piece.path, file, spec)

    def read(
        self, piece: Piece, file: BinaryIO, spec: InputSpec, kinds: Kinds, counts: Counts
    ) -> Iterator[Rows]:
        reader = _Reader(spec, kinds, counts)
        for chunk in chunks(piece.path, file, piece.start, piece.end, CHUNK_BYTES):
            rows = reader.rows(chunk)
            if rows is not None:
                yield rows


class _Reader:
    def __init__(self, spec: InputSpec, kinds: Kinds, counts: Counts):
        self._spec = spec
        self._user = kinds.user
        self._items = (NUMBER,) * len(spec.numbers) or kinds.item
        self._counts = counts
        self._get = {name: getter(name) for name in spec.columns}

    def rows(self, chunk: Chunk) -> Rows | None:
        lines = chunk.data.split(b"\n")
        numbers = [i for i, line in enumerate(lines) if line and not line.isspace()]
        if len(numbers) < len(lines):
            lines = [lines[i] for i in numbers]
        try:
            columns = self._columns([orjson.loads(line) for line in lines])
        except (ValueError, TypeError, AttributeError, OverflowError):
            good = [i for i, line in enumerate(lines) if self._is_good(line, chunk, numbers[i])]
            numbers = [numbers[i] for i in good]
            columns = self._columns([orjson.loads(lines[i]) for i in good])
        if not numbers:
            return None
        user, items = columns
        return Rows(user, items, lambda row: _where(chunk, numbers[row]), utf8=True)

    def _columns(self, rows: list[dict[str, Any]]) -> tuple[pa.Array | None, list[pa.Array]]:
        """Arrow columns of parsed rows; raises (TypeError, ...) if any row is not as it should be."""
        spec = self._spec
        user = None
        if spec.user_column is not None and self._user is not None:
            user = _scalars(list(map(self._get[spec.user_column], rows)), self._user)
        items = []
        for name, kind in zip(spec.item_columns, self._items):
            make = self._lists if name in spec.lists else _scalars
            items.append(make(list(map(self._get[name], rows)), kind))
        return user, items

    def _lists(self, values: list[list | None], kind: str) -> pa.Array:
        values = [self._as_list(value) for value in values]
        if not set(map(type, values)) <= {list, type(None)}:
            raise TypeError
        missing = np.array([value is None for value in values], bool)
        lengths = np.fromiter((0 if value is None else len(value) for value in values), np.int64, len(values))
        flat = _scalars([item for value in values if value for item in value], kind)
        offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int64))
        return pa.LargeListArray.from_arrays(offsets, flat, mask=pa.array(missing) if missing.any() else None)

    def _as_list(self, value: Any) -> Any:
        # With a tokeniser a row may hold one text instead of a list of texts.
        return [value] if self._spec.tokenizer is not None and type(value) is str else value

    def _is_good(self, line: bytes, chunk: Chunk, number: int) -> bool:
        """Whether a line can be used; a bad one is an error or counted."""
        try:
            problem = self._problem(line)
        except _MixedTypes as mixed:
            raise DataError(f"{_where(chunk, number)}: {mixed}") from None
        if problem is None:
            return True
        refuse_row(self._spec, _where(chunk, number), problem)
        self._counts[BAD_ROWS] += 1
        return False

    def _problem(self, line: bytes) -> str | None:
        try:
            row = orjson.loads(line)
        except ValueError:
            is_text = not len(invalid_utf8(pa.array([line], pa.large_binary())))
            return "not a JSON value" if is_text else NOT_UTF_8
        if type(row) is not dict:
            return f"{_JSON[type(row)]} where an object is expected"
        spec = self._spec
        try:
            values = {name: get(row) for name, get in self._get.items()}
        except NoObjectError as no_object:
            return f"column '{no_object.at}' holds {_JSON[type(no_object.value)]} where an object is expected"
        if spec.user_column is not None and self._user is not None:
            user = values[spec.user_column]
            if fault := _fault(spec.user_column, user, self._user):
                if type(user) in (str, int) and type(user) not in _PYTHON[self._user]:
                    raise _MixedTypes(f"{fault}; ids must have one type throughout, convert them")
                return fault
        for name, kind in zip(spec.item_columns, self._items):
            value, listed = self._as_list(values[name]), name in spec.lists
            if listed and value is not None and type(value) is not list:
                return f"column '{name}' holds {_JSON[type(value)]} where a list is expected"
            for item in (value or ()) if listed else (value,):
                if fault := _fault(name, item, kind):
                    return fault
        return None


class _MixedTypes(Exception):
    """A user that is a string where others are integers, or the reverse."""


def _where(chunk: Chunk, number: int) -> str:
    return f"{chunk.path}:{chunk.line_number(0) + number}"


def _scalars(values: list, kind: str) -> pa.Array:
    if not set(map(type, values)) <= {*_PYTHON[kind], type(None)}:
        raise TypeError
    if kind == NUMBER:  # an integer that no double holds is rounded, as in every format
        values = [None if value is None else float(value) for value in values]
    array = pa.array(values, _ARROW[kind])
    return array.cast(pa.large_binary()) if kind == BYTES else array


def _fault(column: str, value: Any, kind: str) -> str | None:
    """What is wrong with a value; None if it is null or of the kind."""
    if value is None:
        return None
    if type(value) not in _PYTHON[kind]:
        return f"column '{column}' holds {_JSON[type(value)]} where {_WANTED[kind]} is expected"
    if kind == INT and not -(2**63) <= value < 2**63:
        return f"column '{column}' holds {_JSON[float]}"
    return None


def _look_at(path: str, file: BinaryIO, spec: InputSpec) -> Look:
    values: dict[str, set[str]] = {name: set() for name in spec.item_columns}
    user: str | None = None
    seen = 0
    names: set[str] = set()
    common: set[str] = set()
    depths = dict.fromkeys(spec.columns, 0)
    getters = {name: getter(name) for name in spec.columns}

    def kinds_at(row: dict, name: str) -> set[str]:
        try:
            return _kinds(getters[name](row))
        except NoObjectError:  # a bad row
            return set()

    for row in _objects(path, file):
        seen += 1
        if seen <= _LOOK_AT:
            names.update(row)
            common = set(row) if seen == 1 else common & set(row)
            depths = {name: max(depth, depth_of(row, name)) for name, depth in depths.items()}
            for name, kinds in values.items():
                kinds.update(kinds_at(row, name))
        if spec.user_column is not None:
            user = user or next(iter(kinds_at(row, spec.user_column)), None)
        if seen >= _LOOK_AT or all(STRING in kinds for kinds in values.values()):
            if seen == _LOOK_AT:
                _check_present(path, spec, names, common, depths)
            if user or spec.user_column is None:
                break
    if seen:
        # The keys of one row alone may be its content.
        _check_present(path, spec, names, common if seen > 1 else set(), depths)
    return Look(user, values=values)


def _check_present(
    path: str, spec: InputSpec, names: set[str], common: set[str], depths: Mapping[str, int]
) -> None:
    """Refuse a file whose first rows have nothing at a name.

    Args:
      names, common: keys of any of the rows, and of all; depths: levels of each name that some row has.
    """
    missing = [name for name, depth in depths.items() if depth <= name.count(".")]
    if not missing:
        return
    *above, level = missing[0].split(".")[: depths[missing[0]] + 1]
    hint = f"; '{'.'.join(above)}' has no field '{level}'" if above else ""
    reached = names | (depths.keys() - set(missing))
    raise spec.no_columns(path, sorted(reached), sorted(common), hint)


def _objects(path: str, file: BinaryIO) -> Iterator[dict]:
    for number, chunk in enumerate(chunks(path, file, 0, 1 << 62, 1 << 18)):
        if not number:
            _check_lines(path, chunk.data[:_HEAD_BYTES].lstrip())
        for line in chunk.data.split(b"\n"):
            with suppress(ValueError):  # of blank lines too
                if type(row := orjson.loads(line)) is dict:
                    yield row


def _check_lines(path: str, start: bytes) -> None:
    """Refuse a file that begins as one JSON value does: every line of it, or its only one, would be a bad row."""
    if re.match(rb"\[\s*[{\n\r]", start):
        what, fix = "a JSON array", "jq -c '.[]'"
    elif re.match(rb"\{\s*[\n\r]", start):
        what, fix = "JSON whose objects stand on several lines each", "jq -c ."
    else:
        return
    raise DataError(f"{path}: is {what}, not JSON lines with an object on each; convert it, as {fix} does")


def _kinds(value: Any) -> set[str]:
    values = value if type(value) is list else [value]
    return {kind for kind in ({str: STRING, int: INT}.get(type(item)) for item in values) if kind}
