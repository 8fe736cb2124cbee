"""Pairs of a user and an item in the elements of a pipeline: where they lie, and of what type the items are.

Elements are rows with a schema, dictionaries, tuples of two, `pyarrow` record batches or tables. What the pipeline says
of them is held against what is asked for when it is built, the rest when they come. The type of an item is that of a
schema, a hint or an argument and never follows from values: it is the type of what is released, and public.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import functools
import operator
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection, Row
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.typehints import native_type_compatibility, schemas, typehints
from apache_beam.typehints.trivial_inference import infer_return_type
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from dpbeam.accounting.arguments import instance, text
from dpbeam.errors import DataError, SettingError, naming_arguments
from dpbeam.kernels.canonical import (
    BYTES,
    ID_KINDS,
    INT,
    STRING,
    Kinds,
    encode,
    from_values,
    plain,
    type_of,
)
from dpbeam.kernels.pair_rules import PairRules, refusing
from dpbeam.rows.nested import column_at, type_at

#: Where a value lies in an element: the name of a field, dotted where it is nested, or what takes it out of an element.
Field = str | Callable[[Any], Any]
_ROWS_PER_BATCH = 100_000
_ROWS_AT_ONCE = 1_000  # a processor's cache holds them: dotted fields of 100,000 rows take half as long again
_BATCHES = (pa.RecordBatch, pa.Table)
_TAKES = (
    "rows with a schema, dictionaries, (user, item) tuples, pyarrow.RecordBatch or pyarrow.Table; beam.Map makes one "
    "of these"
)
_PYTHON_TYPES = {str: STRING, int: INT, bytes: BYTES}
_KINDS = (
    (bool, None),
    (str, STRING),
    (bytes, BYTES),
    ((int, np.integer), INT),
    ((uuid.UUID, datetime.date, decimal.Decimal, Timestamp), STRING),
)
_ANY = typehints.Any


@dataclasses.dataclass(frozen=True)
class Places:
    """Where the values of interest lie in an element.

    Attributes:
      fields: of each value; labels: their names in messages.
      shape: what a tuple holds; where these are as many as the fields, tuples are elements too.
    """

    fields: tuple[Field, ...]
    labels: tuple[str, ...]
    shape: str = "(user, item)"

    def hinted(self, hint: Any, place: int) -> Any:
        """The type of a value by the type of the elements, Any where it does not say so.

        Raises:
          InputError: elements of this type hold no such value.
        """
        field = self.fields[place]
        if hint in (_ANY, object) or isinstance(hint, typehints.TypeVariable):
            return _ANY
        if hint in _BATCHES:
            self._check_named()
            return _ANY
        if callable(field):
            return infer_return_type(field, [hint])
        if isinstance(hint, typehints.TupleConstraint):
            self._check_tuple(len(hint.tuple_types))
            return hint.tuple_types[place]
        if isinstance(hint, typehints.TupleSequenceConstraint | typehints.ListConstraint):
            self._check_tuple(None)
            return hint.inner_type
        for part in field.split("."):
            hint = _within(hint, part, field)
        return hint

    def _check_named(self) -> None:
        if any(map(callable, self.fields)):
            raise SettingError("record batches and tables have columns: name them, in place of a function")

    def _check_tuple(self, length: int | None) -> None:
        """Refuse tuples of this length, None for any."""
        wanted = self.shape.count(",") + 1
        if len(self.fields) != wanted or length not in (None, wanted):
            raise DataError(
                f"tuples are {self.shape}, got {length or wanted} parts for {len(self.fields)} fields; rows and "
                "dictionaries have names for more"
            )

    def columns(self, batch: pa.RecordBatch | pa.Table) -> list[pa.Array | pa.ChunkedArray]:
        """The values in a record batch or table. Raises InputError: a column is missing."""
        self._check_named()
        return [_column(batch, name) for name in self.labels]

    def read(self, rows: Sequence[Any]) -> list[list[Any]]:
        """The values in rows, dictionaries and tuples, those of elements of one class together.

        Raises:
          InputError: an element has no such field, or is no row.
        """
        columns: list[list[Any]] = [[] for _ in self.fields]
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            for kind in dict.fromkeys(map(type, some)):
                alike = [row for row in some if type(row) is kind]
                for place, column in enumerate(columns):
                    try:
                        column += self._values(place, alike)
                    except (KeyError, AttributeError):
                        if callable(self.fields[place]):
                            raise
                        raise DataError(
                            f"an element of the input has no field '{self.labels[place]}'"
                        ) from None
        return columns

    def _values(self, place: int, rows: list[Any]) -> Iterable[Any]:
        """A value of each of rows of one class."""
        field, first = self.fields[place], rows[0]
        if callable(field):
            return map(field, rows)
        if isinstance(first, Mapping) and (field in first or "." not in field):
            return map(operator.itemgetter(field), rows)
        if isinstance(first, Mapping) or is_row(first):
            return functools.reduce(_fields, field.split("."), rows)
        if not isinstance(first, tuple | list):
            raise DataError(f"an element of the input is a {type(first).__name__}; dpbeam takes {_TAKES}")
        for length in set(map(len, rows)):
            self._check_tuple(length)
        return map(operator.itemgetter(place), rows)


@dataclasses.dataclass(frozen=True)
class PairFields:
    """Where user and items lie in an element.

    Attributes:
      user: of the user; items: of each part of an item.
      kinds: of each part, as `dpbeam.kernels.canonical` calls them; None: not known yet, or whatever comes.
      on_null: see `dpbeam.select`.
    """

    user: Field = "user"
    items: tuple[Field, ...] = ("item",)
    kinds: tuple[str | None, ...] = (None,)
    on_null: str = "error"

    @classmethod
    def of(cls, user: Field, item: Field | Sequence[str], item_type: Any, on_null: str) -> PairFields:
        """From the arguments of a transform.

        Raises:
          InputError: naming the argument.
        """
        if not callable(user):
            text("user", user)
        single = isinstance(item, str) or callable(item)
        items = (item,) if single else tuple(instance("item", item, list, tuple))
        for one in () if callable(item) else items:
            text("item", one)
        kinds = item_type if isinstance(item_type, list | tuple) else [item_type]
        kinds = tuple(_PYTHON_TYPES.get(kind, kind) if isinstance(kind, type) else kind for kind in kinds)
        if len(kinds) == 1:
            kinds *= len(items)
        if len(kinds) != len(items):
            raise SettingError(f"item_type: {len(kinds)} types for {len(items)} item fields")
        if not all(kind is None or (isinstance(kind, str) and kind in ID_KINDS) for kind in kinds):
            raise SettingError(f"item_type is one of {', '.join(ID_KINDS)}, or of str, int, bytes")
        if text("on_null", on_null) not in ("error", "drop"):
            raise SettingError("on_null must be error or drop")
        fields = cls(user, items, kinds, on_null)
        if not items or len(set(fields.names)) < len(items):
            raise SettingError("item names one field or several different ones")
        return fields

    @property
    def names(self) -> tuple[str, ...]:
        """Of the items, as they are released: of a nested field its own name."""
        return tuple(_name(item, "item").rpartition(".")[2] for item in self.items)

    @property
    def stated(self) -> dict[str, Any]:
        """What a ledger states of the input."""
        return {"layout": "pairs", "on_null": self.on_null, "item_types": list(self.kinds)}

    @functools.cached_property
    def places(self) -> Places:
        """Of the user and of each part of the items."""
        labels = [_name(self.user, "user"), *(_name(item, "item") for item in self.items)]
        return Places((self.user, *self.items), tuple(labels))

    def typed(self, hint: Any, listed: Mapping[str, Sequence[str | None]] | None = None) -> PairFields:
        """With the kinds of the items: of the input's schema or hint, `item_type`, a list beside it, or else strings.

        Args:
          hint: what the pipeline says of its elements.
          listed: kinds of the items of lists, by the name of the argument.

        Raises:
          InputError: elements of this type hold no pairs, or the types disagree.
        """
        kinds = []
        for n, (label, hinted) in enumerate(zip(self.places.labels[1:], self.hinted(hint))):
            declared = self.kinds[n]
            if None not in (hinted, declared) and hinted != declared:
                raise DataError(f"item_type says {declared}, and the input's type that '{label}' is {hinted}")
            kind = hinted or declared
            for argument, of_list in (listed or {}).items():
                if len(of_list) != len(self.items):
                    raise DataError(
                        f"{argument} holds items of {len(of_list)} parts, and item names {len(self.items)}"
                    )
                if kind is not None and of_list[n] not in (None, kind):
                    raise DataError(f"{argument} holds {of_list[n]} values, and '{label}' is {kind}")
                kind = kind or of_list[n]
            kinds.append(kind or STRING)
        return dataclasses.replace(self, kinds=tuple(kinds))

    def hinted(self, hint: Any) -> tuple[str | None, ...]:
        """Kinds of the items where the type of the elements says so.

        Raises:
          InputError: elements of this type hold no pairs.
        """
        hint = native_type_compatibility.convert_to_beam_type(hint)
        if isinstance(hint, typehints.UnionConstraint):
            of_each = {self.hinted(member) for member in hint.inner_types()}
            return of_each.pop() if len(of_each) == 1 else (None,) * len(self.items)
        held = [self.places.hinted(hint, place) for place in range(1 + len(self.items))]
        return tuple(map(kind_of_hint, held, self.places.labels))[1:]

    def of_batch(self, batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
        """The pairs of a record batch or table, as canonical bytes.

        Columns may be dictionaries; the result has one for the items alone, whose values cost most.

        Raises:
          InputError: a column is missing, has another type, or holds a null.
        """
        return self._pairs(self.places.columns(batch), utf8=False)

    def of_rows(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """The pairs of rows, dictionaries and tuples, as canonical bytes.

        Raises:
          InputError: there is no such field, or users or items are not all of one type.
        """
        places = self.places
        arrays = [
            from_values(plain_values(values), label)
            for values, label in zip(places.read(rows), places.labels)
        ]
        return self._pairs(arrays, utf8=True)

    @property
    def item_places(self) -> Places:
        """Of the parts of the items alone."""
        return Places(self.places.fields[1:], self.places.labels[1:])

    def _pairs(self, columns: Sequence[pa.Array | pa.ChunkedArray], *, utf8: bool) -> pa.RecordBatch:
        encoded, types = [], []
        for column, label, wanted in zip(columns, self.places.labels, (None, *self.kinds)):
            values, kind = encode(column, f"column '{label}'")
            if wanted is not None and kind not in (None, wanted):
                raise DataError(
                    f"'{label}' holds {kind} values, and is taken for {wanted}: say item_type='{kind}'"
                )
            encoded.append(values)
            types.append(type_of(column.type, label))
        held = Kinds.of_types(types[0], [of or kind or STRING for of, kind in zip(types[1:], self.kinds)])
        user, *items = self.places.labels
        rules = PairRules(user, items, held, refusing(self.on_null), {})
        pairs = rules.pairs(encoded[0], encoded[1:], num_rows=len(encoded[0]), utf8=utf8)
        rules.drop_empty(pairs)
        users = plain(pairs.users_of_items())
        schema = pa.schema(
            [("user", users.type), ("item", pairs.items.type)],
            metadata=None if None in types else held.metadata(),  # of a column of nulls nothing says the type
        )
        return pa.RecordBatch.from_arrays([users, pairs.items], schema=schema)


def is_row(element: Any) -> bool:
    """Whether fields of an element are its attributes."""
    return hasattr(element, "_fields") or isinstance(element, Row) or dataclasses.is_dataclass(element)


def _name(field: Field, otherwise: str) -> str:
    return field if isinstance(field, str) else otherwise


def _fields(values: list[Any], name: str) -> list[Any]:
    """A field of each value; None where there is no value to look into."""
    of = {kind: _getter(kind, name) for kind in set(map(type, values))}
    if len(of) > 1:
        return [of[type(value)](value) for value in values]
    [get] = of.values()
    return list(map(get, values))


def _getter(kind: type, name: str) -> Callable[[Any], Any]:
    """What takes a field out of values of one class."""
    if kind is type(None):
        return lambda value: None
    return operator.itemgetter(name) if issubclass(kind, Mapping) else operator.attrgetter(name)


def _column(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
    """A column by its name, or by dots within a column of structs.

    Raises:
      InputError: there is none.
    """
    names = batch.schema.names
    if names.count(name) < 2 and type_at(batch.schema, name) is not None:
        return column_at(batch, name)
    first, dot, _ = name.partition(".")
    if dot and names.count(first) == 1 and name not in names:
        raise DataError(f"record batches have no column '{name}': '{first}' holds no such field")
    has = "several columns" if name in names else "no column"
    raise DataError(f"record batches have {has} '{name}'; their columns are {', '.join(names)}")


def plain_values(values: Sequence[Any]) -> Sequence[Any]:
    """The values, scalars of numpy and Beam's timestamps as Python's."""
    if not any(issubclass(of, np.generic | Timestamp) for of in set(map(type, values))):
        return values
    return [
        value.item()
        if isinstance(value, np.generic)
        else value.to_utc_datetime(has_tz=True)
        if isinstance(value, Timestamp)
        else value
        for value in values
    ]


def _within(hint: Any, part: str, field: str) -> Any:
    """The type of a field of an element or value of this type. Raises InputError."""
    hint, _ = _without_none(hint)
    if hint in (_ANY, object) or isinstance(hint, typehints.TypeVariable):
        return _ANY
    if hasattr(hint, "value_type"):  # of dictionaries and mappings
        return hint.value_type
    try:
        fields = dict(schemas.named_fields_from_element_type(hint))
    except TypeError:
        if not dataclasses.is_dataclass(hint):
            raise DataError(
                f"elements of the input are of type {_shown(hint)}; dpbeam takes {_TAKES}"
            ) from None
        fields = typing.get_type_hints(hint)
    if part not in fields:
        raise DataError(f"rows of the input have no field '{field}'; their fields are {', '.join(fields)}")
    return native_type_compatibility.convert_to_beam_type(fields[part])


def _without_none(hint: Any) -> tuple[Any, list[Any]]:
    """The type of what may be null, and all that it may be."""
    if not isinstance(hint, typehints.UnionConstraint):
        return hint, [hint]
    members = [member for member in hint.inner_types() if member is not type(None)]
    return (members[0] if len(members) == 1 else _ANY), members


def kind_of_hint(hint: Any, label: str) -> str | None:
    """The kind of values of a type of Python or Beam; None where it leaves that open.

    Raises:
      InputError: such values are no users and no items.
    """
    _, members = _without_none(hint)
    kinds: set[str | None] = set()
    for member in members:
        if member is _ANY or member is object or not isinstance(member, type):
            open_ = isinstance(member, typehints.TypeVariable) or member is _ANY or member is object
            kinds |= {None} if open_ else set()
            continue
        for types, kind in _KINDS:
            if issubclass(member, types):
                kinds |= set() if kind is None else {kind}
                break
    if not kinds:
        raise DataError(
            f"'{label}' is of type {', '.join(map(_shown, members))}; users and items are strings, integers or bytes: "
            "convert it"
        )
    return kinds.pop() if len(kinds) == 1 else None


def _shown(hint: Any) -> str:
    """A type in a message."""
    return hint.__name__ if isinstance(hint, type) else type(hint).__name__.removesuffix("Constraint")


def check_batch_input(pcoll: PCollection) -> None:
    """Refuse input whose users could be seen in parts.

    Raises:
      ValueError: unbounded, or in windows other than the global one.
    """
    if not pcoll.is_bounded:
        raise ValueError("dpbeam needs a bounded PCollection: a user's later data would not be accounted for")
    if not isinstance(pcoll.windowing.windowfn, GlobalWindows):
        raise ValueError(
            "dpbeam needs the global window: a user split over windows would count several times"
        )


class _ToBatches(beam.DoFn):
    """Rows, record batches and tables -> checked record batches; rows of a bundle are taken together.

    Args:
      of_batch, of_rows: make a checked record batch of one that came, and of rows.
    """

    def __init__(
        self,
        of_batch: Callable[[Any], pa.RecordBatch],
        of_rows: Callable[[list[Any]], pa.RecordBatch],
    ):
        self._of_batch, self._of_rows = of_batch, of_rows
        self._buffer: list[Any] = []

    def start_bundle(self) -> None:
        self._buffer = []

    def process(self, element: Any) -> Iterator[pa.RecordBatch]:
        if isinstance(element, _BATCHES):
            with naming_arguments():
                yield self._of_batch(element)
            return
        self._buffer.append(element)
        if len(self._buffer) >= _ROWS_PER_BATCH:
            yield self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._buffer:
            window = GlobalWindow()
            yield WindowedValue(self._flush(), window.max_timestamp(), (window,))

    def _flush(self) -> pa.RecordBatch:
        rows, self._buffer = self._buffer, []
        with naming_arguments():
            return self._of_rows(rows)


def to_batches(
    pcoll: PCollection,
    of_batch: Callable[[Any], pa.RecordBatch],
    of_rows: Callable[[list[Any]], pa.RecordBatch],
) -> PCollection:
    """Elements -> PCollection[pa.RecordBatch], checked.

    Args:
      of_batch, of_rows: make a checked record batch of one that came, and of rows.
    """
    checked = beam.ParDo(_ToBatches(of_batch, of_rows)).with_output_types(pa.RecordBatch)
    return pcoll | "ToBatches" >> checked
