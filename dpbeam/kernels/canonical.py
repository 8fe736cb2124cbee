"""Canonical bytes: the one representation of users and items inside the pipelines.

A value becomes bytes, and its *kind* (string, int or bytes) is a property of the whole column, carried in the
schema metadata of every record batch. Within a kind the mapping is injective, and one job has one kind per
column, so equality of bytes is equality of values: the string "1", the integer 1 and the byte 0x31 never meet.
Types whose values are written as strings are told apart too, though they are of one kind: the date `2026-11-01` and the
timestamp `2026-11-01T00:00:00` would be two ids of one person.

- string: its UTF-8 bytes, valid and unnormalised; of the types below a text that is one for all who write the value:
  - date: `2026-11-01`;
  - timestamp: `2026-11-01T09:30:00.25`, without zeros at the end of the fraction, whatever the unit; with a time zone
    the time is that of UTC and `Z` follows;
  - decimal: `-12.5`, without zeros at the end, whatever the scale;
  - UUID: lower case, with hyphens;
- int: 8 bytes, big-endian two's complement;
- bytes: themselves;
- items of several columns: for each part 4 bytes of length, big-endian, and the part.

Everything is vectorised over Arrow buffers. Booleans, floats, times of day and nested values are refused: whether True
is 1, or 0.1 + 0.2 is 0.3, must be settled before identity decides about privacy.
"""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.errors import DataError

STRING, INT, BYTES = "string", "int", "bytes"
ID_KINDS = (STRING, INT, BYTES)
METADATA_KEY = b"dpbeam"

_LENGTH_BYTES = 4
_LAST_ASCII = 0x7F
_CONVERT = "users and items are strings, integers or bytes; convert the column to one of these"
_FRACTION = (r"(\.\d*?)0+$", r"\1"), (r"\.$", "")
# Valid UTF-8, byte by byte: neither longer than need be, nor a surrogate, nor above U+10FFFF.
_UTF_8 = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|"
    r"\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)


@dataclass(frozen=True)
class Kinds:
    """Kinds of the user column (None where rows are users) and of each item column.

    Attributes:
      written: types (`type_of`) of the user and item columns, where one of them is written as strings; else empty.
    """

    user: str | None
    item: tuple[str, ...]
    written: tuple[str | None, ...] = ()

    @classmethod
    def of_types(cls, user: str | None, items: Sequence[str]) -> Kinds:
        """From the types of the columns."""
        kinds = cls(None if user is None else kind_of_type(user), tuple(map(kind_of_type, items)))
        return kinds if kinds.types == (user, *items) else replace(kinds, written=(user, *items))

    @property
    def types(self) -> tuple[str | None, ...]:
        """Of the user column and of each item column."""
        return self.written or (self.user, *self.item)

    def __post_init__(self) -> None:
        for kind in self.item + (() if self.user is None else (self.user,)):
            if kind not in ID_KINDS:
                raise ValueError(f"a kind is one of {', '.join(ID_KINDS)}, got {kind!r}")
        if not self.item:
            raise ValueError("item needs at least one kind")

    def metadata(self) -> dict[bytes, bytes]:
        """Schema metadata that carries the kinds."""
        values: dict[str, Any] = {"user": self.user, "item": list(self.item)}
        if self.written:
            values["types"] = self.written
        return {METADATA_KEY: json.dumps(values, separators=(",", ":")).encode()}

    @classmethod
    def of(cls, schema: pa.Schema) -> Kinds:
        """Kinds in the metadata of a schema. Raises ValueError if there are none."""
        text = (schema.metadata or {}).get(METADATA_KEY)
        if text is None:
            raise ValueError("the record batch does not carry kinds in its schema metadata ('dpbeam')")
        kinds = json.loads(text)
        return cls(kinds["user"], tuple(kinds["item"]), tuple(kinds.get("types", ())))


def kind_of(data_type: pa.DataType, where: str) -> str | None:
    """The kind of an Arrow type, or of the values that it encodes; None for the null type, which fits every kind.

    Args:
      where: names file and column in the error, for example "a.parquet: column 'user'".

    Raises:
      InputError: for types that are no identity.
    """
    name = type_of(data_type, where)
    return None if name is None else kind_of_type(name)


def kind_of_type(name: str) -> str:
    """The kind of a type."""
    return STRING if name in _WRITTEN else name


def type_of(data_type: pa.DataType, where: str) -> str | None:
    """As `kind_of`; but of a type whose values are written as strings, its own name."""
    value = data_type
    while pa.types.is_dictionary(value) or pa.types.is_run_end_encoded(value):
        value = value.value_type
    if _is_string(value):
        return STRING
    for name, (is_of, _) in _WRITTEN.items():
        if is_of(value):
            return name
    if pa.types.is_integer(value):
        return INT
    if pa.types.is_binary(value) or pa.types.is_large_binary(value) or pa.types.is_binary_view(value):
        return BYTES
    if pa.types.is_fixed_size_binary(value) and not pa.types.is_decimal(value):
        return BYTES
    if pa.types.is_null(value):
        return None
    raise DataError(f"{where} has type {data_type}; {_CONVERT}")


def is_list(data_type: pa.DataType) -> bool:
    """Whether a column holds lists."""
    types = pa.types
    return types.is_list(data_type) or types.is_large_list(data_type) or types.is_fixed_size_list(data_type)


def encode(array: pa.Array | pa.ChunkedArray, where: str = "the column") -> tuple[pa.Array, str | None]:
    """Canonical bytes of a column, and its kind (None for the null type).

    A dictionary-encoded column stays so, with canonical bytes in one dictionary. Nulls stay null.

    Args:
      array: (n,) strings, integers, bytes, or these encoded in dictionaries (also nested ones) or as runs.
      where: names file and column in errors.

    Returns:
      (n,) large_binary or dictionary<int32, large_binary>, and the kind.

    Raises:
      InputError: the type is not supported, or an unsigned integer exceeds 2^63 - 1.
    """
    kind = kind_of(array.type, where)
    if isinstance(array, pa.ChunkedArray):
        chunks = [_wide(one_level(chunk)) for chunk in array.chunks]
        array = (
            pa.chunked_array(chunks).unify_dictionaries().combine_chunks()
            if chunks
            else array.combine_chunks()
        )
    array = _wide(one_level(array))
    if kind is None:
        return pa.nulls(len(array), pa.large_binary()), None
    if pa.types.is_dictionary(array.type):
        return _encode_dictionary(array, kind, where), kind
    return _encode_plain(array, kind, where), kind


def from_values(values: Sequence[Any], name: str) -> pa.Array:
    """An Arrow array of Python values that all have one type; 1, True and "1" are different things.

    Args:
      values: str, int, bytes, UUID, date, datetime or Decimal; None is a null.
      name: what they are ids of, for errors.

    Raises:
      InputError: the types differ or are others, or Arrow cannot hold a value.
    """
    types = {type(value) for value in values} - {type(None)}
    zones = (
        {value.tzinfo is not None for value in values if value is not None} if types == {_TIME} else {False}
    )
    if len(types) > 1 or len(zones) > 1:
        mixed = (
            sorted(t.__name__ for t in types) if len(types) > 1 else ["datetime with and without a time zone"]
        )
        raise DataError(f"{name} ids mix types ({', '.join(mixed)}); use one type")
    if not types:
        return pa.nulls(len(values))
    of = types.pop()
    if of not in _HELD:
        raise DataError(f"{name} ids must be str, int or bytes, got {of.__name__}")
    if of is uuid.UUID:
        values = [None if value is None else value.bytes for value in values]
    try:
        return pa.array(values, pa.timestamp("us", "UTC") if True in zones else _HELD[of])
    except (OverflowError, pa.ArrowInvalid, UnicodeEncodeError):
        raise DataError(
            f"{name} ids: an integer above 2^63 - 1 or a string that is not valid Unicode"
        ) from None


_TIME = datetime.datetime
#: Of Python values: the Arrow type that holds them; of decimals it follows from their digits.
_HELD = {
    str: pa.large_string(),
    int: pa.int64(),
    bytes: pa.large_binary(),
    uuid.UUID: pa.uuid(),
    datetime.date: pa.date32(),
    _TIME: pa.timestamp("us"),
    decimal.Decimal: None,
}


def one_level(array: pa.Array) -> pa.Array:
    """The same values: those in nested dictionaries or runs in one dictionary or plain, others as they are."""
    while True:
        if pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        elif pa.types.is_dictionary(array.type) and not _is_plain(array.type.value_type):
            array = one_level(array.dictionary).take(array.indices)
        else:
            return array


def _wide(array: pa.Array) -> pa.Array:
    """A dictionary with indices that hold the dictionaries of all chunks in one; other arrays as they are."""
    if not pa.types.is_dictionary(array.type) or pa.types.is_int32(array.indices.type):
        return array
    return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), array.dictionary)


def _is_plain(data_type: pa.DataType) -> bool:
    return not (pa.types.is_dictionary(data_type) or pa.types.is_run_end_encoded(data_type))


def _encode_dictionary(array: pa.DictionaryArray, kind: str, where: str) -> pa.Array:
    values = _encode_plain(array.dictionary, kind, where)
    if values.null_count:
        return values.take(array.indices)
    return pa.DictionaryArray.from_arrays(array.indices, values)


def _encode_plain(array: pa.Array, kind: str, where: str) -> pa.Array:
    if kind == INT:
        try:
            return encode_int64(array.cast(pa.int64()))
        except pa.ArrowInvalid:
            raise DataError(f"{where} has integers above 2^63 - 1; convert the column to strings") from None
    if kind == STRING:
        written = _WRITTEN.get(type_of(array.type, where) or "")
        texts = array.cast(pa.large_string()) if written is None else written[1](array)
        return texts.cast(pa.large_binary())
    return array.cast(pa.large_binary())


def _is_string(data_type: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(data_type) or types.is_large_string(data_type) or types.is_string_view(data_type)


def _timestamp_texts(array: pa.Array) -> pa.Array:
    unit, zone = array.type.unit, array.type.tz
    texts = array.cast(pa.int64()).cast(pa.timestamp(unit)).cast(pa.large_string())
    texts = pc.replace_substring(texts, " ", "T")
    for pattern, replacement in _FRACTION:
        texts = pc.replace_substring_regex(texts, pattern, replacement)
    mark = pa.scalar("Z" if zone else "", pa.large_string())
    return pc.binary_join_element_wise(texts, mark, pa.scalar("", pa.large_string()))


def _each_distinct(array: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    """(n,) large_string: the text of every value."""
    encoded = array.dictionary_encode()
    return pa.array(map(text, encoded.dictionary.to_pylist()), pa.large_string()).take(encoded.indices)


def decimal_text(value: decimal.Decimal) -> str:
    """A number without exponent and without zeros at the end."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


#: Types whose values are written as strings: which Arrow types they are, and what writes each value as its one text.
_WRITTEN: dict[str, tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]]] = {
    "date": (pa.types.is_date, lambda array: array.cast(pa.date32()).cast(pa.large_string())),
    "timestamp": (lambda of: pa.types.is_timestamp(of) and of.tz is None, _timestamp_texts),
    "timestamp with a time zone": (
        lambda of: pa.types.is_timestamp(of) and of.tz is not None,
        _timestamp_texts,
    ),
    "decimal": (pa.types.is_decimal, lambda array: _each_distinct(array, decimal_text)),
    "UUID": (
        lambda of: getattr(of, "extension_name", "") == "arrow.uuid",
        lambda array: _each_distinct(array.storage, lambda value: str(uuid.UUID(bytes=value))),
    ),
}


def encode_int64(array: pa.Array) -> pa.Array:
    """(n,) int64, nulls allowed -> (n,) large_binary of 8 big-endian bytes each."""
    values = array.fill_null(0) if array.null_count else array
    data = pa.py_buffer(values.to_numpy(zero_copy_only=False).astype(">i8"))
    offsets = pa.py_buffer(np.arange(len(array) + 1, dtype=np.int64) * 8)
    encoded = pa.Array.from_buffers(pa.large_binary(), len(array), [None, offsets, data])
    if array.null_count:
        encoded = pc.if_else(array.is_valid(), encoded, pa.scalar(None, pa.large_binary()))
    return encoded


def parse_int64(texts: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Integers written in decimal, with or without a sign.

    Args:
      texts: (n,) large_binary or large_string without nulls.

    Returns:
      (n,) int64, null where the text is empty or no integer of 64 bits; ascending positions of the latter.
    """
    texts = texts.view(pa.large_binary())
    decimal = pc.match_substring_regex(texts, r"\A[+-]?[0-9]{1,19}\z")
    empty = pc.equal(pc.binary_length(texts), 0)
    bad = np.flatnonzero(~pc.or_(decimal, empty).to_numpy(zero_copy_only=False))
    texts = pc.if_else(decimal, texts, pa.scalar(None, pa.large_binary())).view(pa.large_string())
    texts = pc.replace_substring_regex(texts, r"\A\+", "")
    try:
        return texts.cast(pa.int64()), bad
    except pa.ArrowInvalid:  # 19 digits may be too many
        values = [None if text is None else int(text) for text in texts.to_pylist()]
        large = [i for i, value in enumerate(values) if value is not None and not -(2**63) <= value < 2**63]
        for i in large:
            values[i] = None
        return pa.array(values, pa.int64()), np.union1d(bad, np.array(large, np.int64))


def decode(array: pa.Array, kinds: Sequence[str]) -> list[pa.Array]:
    """Columns for output: one Arrow array (large_string, int64 or large_binary) per kind.

    Args:
      array: (n,) large_binary canonical bytes without nulls; a composite where there are several kinds.
    """
    parts = decode_parts(array, len(kinds)) if len(kinds) > 1 else [array]
    return [_decode_part(part, kind) for part, kind in zip(parts, kinds)]


def _decode_part(array: pa.Array, kind: str) -> pa.Array:
    if kind == STRING:
        return array.cast(pa.large_string())
    if kind == BYTES:
        return array
    offsets, data = bytes_views(array)
    if len(array) and not (np.diff(offsets) == 8).all():
        raise ValueError("canonical bytes of integers have 8 bytes")
    return pa.array(data.view(">i8").astype(np.int64), pa.int64())


def encode_parts(parts: Sequence[pa.Array]) -> pa.Array:
    """Composite items: an injective, self-delimiting encoding of several canonical columns.

    Args:
      parts: arrays of (n,) large_binary or dictionaries of it. A row with a null part becomes null.

    Returns:
      (n,) large_binary.
    """
    pieces: list[pa.Array] = []
    for part in parts:
        part = plain(part)
        lengths = pc.binary_length(part).fill_null(0).to_numpy(zero_copy_only=False)
        header = pa.py_buffer(lengths.astype(">u4"))
        offsets = pa.py_buffer(np.arange(len(part) + 1, dtype=np.int64) * _LENGTH_BYTES)
        pieces += [pa.Array.from_buffers(pa.large_binary(), len(part), [None, offsets, header]), part]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))


def decode_parts(array: pa.Array, count: int) -> list[pa.Array]:
    """The inverse of `encode_parts`, for arrays without nulls."""
    offsets, data = bytes_views(array)
    ends = [offsets[:-1]]
    for _ in range(count):
        at = ends[-1]
        if len(at) and int((at + _LENGTH_BYTES).max()) > len(data):
            raise ValueError("malformed composite item")
        length = np.zeros(len(at), np.int64)
        for byte in range(_LENGTH_BYTES):
            length = length << 8 | data[at + byte]
        ends += [at + _LENGTH_BYTES, at + _LENGTH_BYTES + length]
    if not np.array_equal(ends[-1], offsets[1:]):
        raise ValueError("malformed composite item")
    # The buffer seen as header, part, header, part, ... : every second slice is a part.
    bounds = np.column_stack(ends[:-1]).reshape(-1) if len(array) else np.empty(0, np.int64)
    bounds = np.append(bounds, offsets[-1:])
    slices = slices_of(bounds, data)
    step = 2 * count
    return [slices.take(pa.array(np.arange(2 * p + 1, step * len(array), step))) for p in range(count)]


def slices_of(offsets: np.ndarray, data: np.ndarray, data_type: pa.DataType | None = None) -> pa.Array:
    """Consecutive slices data[offsets[i]:offsets[i + 1]] as one array, large_binary by default; zero-copy."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(data_type or pa.large_binary(), len(offsets) - 1, buffers)


def plain(array: pa.Array) -> pa.Array:
    """The large_binary array that a dictionary-encoded one stands for."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def empty_items(array: pa.Array, kinds: Sequence[str]) -> np.ndarray:
    """(n,) bool: which items are empty, that is no items; of a composite all parts must be empty.

    Args:
      array: (n,) large_binary canonical bytes or a dictionary of it, without nulls.
      kinds: of the item columns.
    """
    if INT in kinds:
        return np.zeros(len(array), bool)
    nothing = 0 if len(kinds) == 1 else _LENGTH_BYTES * len(kinds)
    if not pa.types.is_dictionary(array.type):
        return np.diff(bytes_views(array)[0]) <= nothing
    short = pc.less_equal(pc.binary_length(array.dictionary), nothing).to_numpy(zero_copy_only=False)
    return short[array.indices.to_numpy()] if short.any() else np.zeros(len(array), bool)


def is_listed(array: pa.Array, listed: pa.Array) -> pa.Array:
    """(n,) Arrow booleans: which values are in a list.

    Args:
      array: (n,) large_binary or a dictionary of it.
      listed: (m,) large_binary.
    """
    if pa.types.is_dictionary(array.type):
        return pc.is_in(array.dictionary, value_set=listed).take(array.indices)
    return pc.is_in(array, value_set=listed)


def invalid_utf8(array: pa.Array) -> np.ndarray:
    """Ascending positions of the values that are not valid UTF-8, int64; fastest where there are none.

    Args:
      array: (n,) large_binary or a dictionary of it; nulls are valid.
    """
    if pa.types.is_dictionary(array.type):
        bad = invalid_utf8(array.dictionary)
        if not len(bad):
            return bad
        return np.flatnonzero(np.isin(array.indices.fill_null(-1).to_numpy(zero_copy_only=False), bad))
    if _is_utf8(array):
        return np.empty(0, np.int64)
    valid = pc.match_substring_regex(array, _UTF_8).fill_null(True)
    return np.flatnonzero(~valid.to_numpy(zero_copy_only=False))


def _is_utf8(array: pa.Array) -> bool:
    if not array.null_count and bytes_views(array)[1].max(initial=0) <= _LAST_ASCII:
        return True
    try:
        array.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def bytes_views(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (n + 1,) int64 from 0, and bytes (m,) uint8, of a large_binary or large_string array."""
    _, offset_buffer, data = array.buffers()
    if not len(array):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return offsets - offsets[0], raw[int(offsets[0]) : int(offsets[-1])]
