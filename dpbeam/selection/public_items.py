"""Items that are public anyway: released without budget, whoever holds them, and removed from the selection."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from dpbeam.errors import InputError
from dpbeam.io.canonical import STRING, Kinds, encode, encode_parts
from dpbeam.transforms.store import RunStore

_FILE = "public-items"
_BATCH = 1_000_000
_ESCAPES = {"\\\\": "\\", "\\t": "\t", "\\n": "\n", "\\r": "\r"}


def read_public_items(path: str, kinds: tuple[str, ...]) -> pa.Array:
    """Distinct items of a text file, one a line, composite items with tabs between their parts.

    Backslash, tab, newline and carriage return are written as in the text output: \\\\, \\t, \\n, \\r.

    Args:
      kinds: kinds of the item columns, as in the input.

    Returns:
      (n,) large_binary canonical bytes.

    Raises:
      InputError: the file cannot be read, is not UTF-8, or a line does not fit the kinds.
    """
    try:
        with FileSystems.open(path, compression_type="auto") as file:
            text = file.read().decode("utf-8")
    except (OSError, BeamIOError, ValueError) as error:
        kind = "is not valid UTF-8" if isinstance(error, UnicodeDecodeError) else "cannot be read"
        raise InputError(f"--public_items: '{path}' {kind}") from None
    rows = [_parts(path, number, line, kinds) for number, line in enumerate(text.split("\n"), start=1) if line]
    columns = [encode(pa.array([row[c] for row in rows], _ARROW[kind]))[0] for c, kind in enumerate(kinds)]
    canonical = columns[0] if len(columns) == 1 else encode_parts(columns)
    return canonical.unique()


_ARROW = {"string": pa.large_string(), "int": pa.int64(), "bytes": pa.large_binary()}


def _parts(path: str, number: int, line: str, kinds: tuple[str, ...]) -> list:
    parts = line.removesuffix("\r").split("\t")
    if len(parts) != len(kinds):
        raise InputError(f"--public_items: {path}:{number}: expected {len(kinds)} tab-separated columns")
    return [_value(path, number, _unescape(part), kind) for part, kind in zip(parts, kinds)]


def _value(path: str, number: int, text: str, kind: str):
    if kind == STRING:
        return text
    if kind == "bytes":
        return text.encode()
    try:
        value = int(text)
    except ValueError:
        value = 1 << 63
    if not -(1 << 63) <= value < 1 << 63:
        raise InputError(f"--public_items: {path}:{number}: items of the input are 64-bit integers, this is not")
    return value


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    pieces, at = [], 0
    while at < len(text):
        pair = text[at : at + 2]
        pieces.append(_ESCAPES.get(pair, text[at]))
        at += 2 if pair in _ESCAPES else 1
    return "".join(pieces)


def store_public_items(store: RunStore, items: pa.Array) -> None:
    """Put the items where the workers find them."""
    store.write(_FILE, {"items": items})


class _Remove(beam.DoFn):
    """Drops the public items from batches; keyed elements keep their key."""

    def __init__(self, store: RunStore):
        self._store = store
        self._public = None

    def setup(self) -> None:
        self._public = self._store.read(_FILE)["items"]

    def process(self, element) -> Iterator:
        key, batch = element if isinstance(element, tuple) else (None, element)
        items = batch.column("item")
        if pa.types.is_dictionary(items.type):
            known = pc.is_in(items.dictionary, value_set=self._public).take(items.indices)
        else:
            known = pc.is_in(items, value_set=self._public)
        if pc.any(known).as_py():
            batch = batch.filter(pc.invert(known))
        yield batch if key is None else (key, batch)


class RemovePublicItems(beam.PTransform):
    """Takes the public items out of every user's set before anything is counted."""

    def __init__(self, store: RunStore, *, complete: bool):
        super().__init__()
        self._store = store
        self._complete = complete

    def expand(self, pcoll):
        element = tuple[int, pa.RecordBatch] if self._complete else pa.RecordBatch
        return pcoll | "Filter" >> beam.ParDo(_Remove(self._store)).with_output_types(element)


class _Emit(beam.DoFn):
    def __init__(self, store: RunStore, kinds: Kinds):
        self._store, self._kinds = store, kinds

    def process(self, _) -> Iterator[pa.RecordBatch]:
        items = self._store.read(_FILE)["items"]
        schema = pa.schema(
            [("item", pa.large_binary()), ("noisy_weight", pa.float64())], metadata=self._kinds.metadata()
        )
        for start in range(0, len(items), _BATCH):
            part = items.slice(start, _BATCH)
            yield pa.RecordBatch.from_arrays([part, pa.nulls(len(part), pa.float64())], schema=schema)


class ReleasePublicItems(beam.PTransform):
    """All public items as released batches, also those that nobody holds; they have no noisy weight."""

    def __init__(self, store: RunStore, kinds: Kinds):
        super().__init__()
        self._store, self._kinds = store, kinds

    def expand(self, pipeline):
        emit = _Emit(self._store, self._kinds)
        return pipeline | beam.Create([None]) | "Emit" >> beam.ParDo(emit).with_output_types(pa.RecordBatch)
