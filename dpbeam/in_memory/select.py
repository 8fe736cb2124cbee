"""`dpbeam.select`: partition selection on data in memory, in this process, without Beam.

The same plan, program, kernels and ledger as on Beam: for one key the items are those of `dpbeam select`. What it
returns holds released items and the ledger alone; neither pairs nor key outlive the call.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.accounting import arguments
from dpbeam.accounting.budget import doubts
from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.release import Others
from dpbeam.counts.gathered import public_domain
from dpbeam.engine.in_process import Released, build_blocks, output_batches, run_trips
from dpbeam.engine.program import Keys, Program
from dpbeam.errors import DataError, SettingError, naming_arguments
from dpbeam.families.base import OutputColumn
from dpbeam.families.registry import family_of
from dpbeam.in_memory.frames import Column, column, frame_columns, has_column, is_frame, same_length
from dpbeam.in_memory.shown import ReleasedTable
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import ID_KINDS, STRING, Kinds
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.kept import KeptItems
from dpbeam.kernels.pair_rules import EMPTY_ITEMS, NULL_ROWS, PairRules, Pairs, not_utf8, refusing
from dpbeam.randomness import RunKey
from dpbeam.selection.columns import released_columns
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.known import KNOWN, NEW, known_release
from dpbeam.selection.ledger import one_value_of, others_in, selection_ledger
from dpbeam.selection.sizes import choose_sizes
from dpbeam.selectors.registry import DEFAULT_METHOD

_ROWS_PER_BATCH = 1_000_000


@dataclass(frozen=True, repr=False)
class Selection(ReleasedTable):
    """Released items and what they cost.

    Attributes:
      table: columns `item` (or the names of several item columns) and, where asked for, `noisy_weight`, or
        `noisy_count` and `noisy_count_sd`, and `new` beside known releases; sorted by the bytes of the items.
      ledger: the ledger of the run, verified.
      others: if asked for, the noisy number of `users` that hold nothing of the table, and its deviation `sd`.
    """

    table: pa.Table
    ledger: Ledger
    others: Others | None = None

    @property
    def items(self) -> list[Any]:
        """The released items; tuples where there are several item columns."""
        family = family_of(self.ledger.method)
        assert family is not None
        added = family.columns_of(self.ledger.parameters)
        before = sum(one.before for one in added)
        names = self.table.schema.names[before : self.table.num_columns - len(added) + before]
        columns = [self.table[name].to_pylist() for name in names]
        return columns[0] if len(columns) == 1 else list(zip(*columns))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


def select(
    data: Any,
    *,
    epsilon: float,
    delta: float,
    user: str = "user",
    item: str | Sequence[str] = "item",
    method: str = DEFAULT_METHOD,
    max_items_per_user: int | None = None,
    min_users: int | None = None,
    preset: str | None = None,
    noisy_weights: bool = False,
    noisy_counts: bool = False,
    noisy_count_share: float | None = None,
    others: bool = False,
    public_items: Any = None,
    known: Selection | Sequence[Selection] = (),
    item_type: str | Sequence[str] | None = None,
    on_null: str = "error",
    not_private_counts: MutableMapping[str, int] | None = None,
    insecure_test_key: str | None = None,
    **settings: Any,
) -> Selection:
    """Releases the items that many users hold, under (epsilon, delta)-differential privacy.

        result = dpbeam.select(frame, user="user", item="query", epsilon=1, delta=1e-8)
        result.items, result.ledger, result.to_pandas()

    Guarantee: privacy unit one user, that is one value of `user`; neighbours differ by one user; see
    docs/explanation/privacy.md. It covers what is returned, not errors, which speak of the data: a null, a type.

    Runs in one thread, on data that fit memory.

    Args:
      data: a frame of pandas or polars, a pyarrow table or record batch, anything that exports an Arrow stream, a
        mapping of columns, or a tuple (users, items) of two columns. Users and items are strings, integers or
        bytes; dictionaries and chunks are welcome, and pairs may repeat.
      epsilon, delta: the budget of this call.
      user, item: names of the columns; several item columns make composite items.
      method: a selector of `dpbeam.selectors.registry`, as `--method` of the command.
      max_items_per_user: how many items of a user count; a larger set is sampled.
      min_users: no item of fewer users is released, whatever the noise; public items are.
      preset: "published" takes every setting of the method's paper.
      noisy_weights: return the noisy weight of released items.
      noisy_counts: return a noisy number of users of each released item, `noisy_count`, and its standard deviation,
        `noisy_count_sd`; bought with `noisy_count_share` of the budget, 0.2 unless given.
      others: with noisy counts, also a noisy number of users that hold nothing of what is returned.
      public_items: items that are released always, without budget, and taken out of the selection: a column, or a frame
        with the item columns. `noisy_counts` counts them too, also those that nobody holds.
      known: results of earlier calls. Their items are treated as public ones, and the column `new` of the table says
        which items none of them has; each has its own budget.
      item_type: "string", "int" or "bytes", one for all item columns or one for each, where a column does not declare
        its type: lists and arrays of Python objects are of strings otherwise. The type is that of the output, so it
        must not follow from the values.
      on_null: what becomes of rows with a null or an empty item: "error", or "drop".
      not_private_counts: takes the numbers of rows that were dropped, `null_rows` and `empty_items`; they are NOT
        PRIVATE.
      insecure_test_key: a fixed key for tests instead of a fresh one; the result is then NOT PRIVATE, and its ledger
        says so. The command releases the same for the same `--insecure_test_key`.
      settings: of the method, by the names of its flags.

    Raises:
      InputError: settings are out of range; a column is missing, of another type, or holds a null. The message names
        the argument or column, never a value of the data.
      TypeError: no method has such a setting.
    """
    key = run_key(insecure_test_key)
    values = {
        "epsilon": epsilon,
        "delta": delta,
        "method": method,
        "max_items_per_user": max_items_per_user,
        "min_users": min_users,
        "preset": preset,
        "noisy_weights": noisy_weights,
        "noisy_counts": noisy_counts,
        "noisy_count_share": noisy_count_share,
        "others": others,
        "settings": settings,
    }
    with naming_arguments():
        plan = SelectionConfig.asked(values).plan()
    warn_of_budget(epsilon, delta, plan.config.doubts())
    with naming_arguments():
        earlier = tuple(arguments.instance("known", result, Selection) for result in _listed_results(known))
    added = plan.config.columns(*([KNOWN] if earlier else []))
    pairs = input_pairs(data, user, item, item_type, on_null, not_private_counts, added)
    names, kinds = pairs.names, pairs.kinds
    listed = None if public_items is None else public_list(public_items, data, user, pairs, "public_items")
    releases = [
        known_release(result.ledger, None, pairs.privacy_unit, None, insecure=key.insecure)
        for result in earlier
    ]
    ledger = selection_ledger(
        plan,
        input_parameters=pairs.parameters,
        fixed_key=key.insecure,
        privacy_unit=pairs.privacy_unit,
        public_items=listed is not None,
        known=releases or None,
    )
    ledger.verify()
    known_items = None
    if earlier:
        known_items = pc.unique(pa.concat_arrays([_items_of(result, names, kinds) for result in earlier]))
        listed = known_items if listed is None else pc.unique(pa.concat_arrays([known_items, listed]))
    program = plan.program
    if listed is not None and plan.config.noisy_counts:
        program, listed = plan.program_beside(public_domain(listed)), None
    private = pairs if listed is None else pairs.filtered(listed, keep=False)
    released, broadcast = released_by(program, private, key)
    table = released_table(released, listed, names, kinds, added, known_items)
    return Selection(table, ledger, others_in(plan, broadcast))


def _items_of(result: Selection, names: tuple[str, ...], kinds: tuple[str, ...]) -> pa.Array:
    """Canonical bytes of the items of a result, for a call with these item columns."""
    names = names if len(names) > 1 else ("item",)
    return listed_items(result.table, names, kinds, "known")


def run_program(program: Program, pairs: InputPairs, key: RunKey) -> tuple[list[pa.RecordBatch], Columns]:
    """What a program releases, and what its hub last said.

    Raises:
      ValueError: the key has served a run.
    """
    key.spend()
    keys = Keys(key)
    sizes = choose_sizes(len(pairs.items), item_bytes=pairs.item_bytes)
    numbers, kept = {"num_blocks": sizes.num_blocks, "num_shards": sizes.num_shards}, KeptItems()
    blocks = build_blocks(pairs.batches(), keys, program.cap, **numbers, kept=kept)
    finished = run_trips(program, list(blocks), keys, kept=kept)
    return list(output_batches(program, finished)), finished.broadcast


def released_by(program: Program, pairs: InputPairs, key: RunKey) -> tuple[Released, Columns]:
    """Items and numbers that a program releases, and what its hub last said."""
    (batches, broadcast), names = run_program(program, pairs, key), program.released_names
    items = [pa.array([], pa.large_binary()), *(batch.column("item") for batch in batches)]
    numbers = [np.zeros((0, len(names)))]
    numbers += [np.stack([batch.column(name).to_numpy() for name in names], axis=1) for batch in batches]
    return Released(pa.concat_arrays(items), np.concatenate(numbers)), broadcast


def _listed_results(known: Selection | Sequence[Selection]) -> Sequence[Selection]:
    """Results of earlier calls, one or several. Raises InputError."""
    return (known,) if isinstance(known, Selection) else arguments.instance("known", known, Sequence)


def warn_of_budget(epsilon: float, delta: float, more: Iterable[str] = (), users: int | None = None) -> None:
    """Say what a budget is worth where it is worth little, and what `more` there is, as the command does."""
    for doubt in (*doubts(epsilon, delta, users), *more):
        warnings.warn(doubt, stacklevel=3)


def run_key(text: str | None) -> RunKey:
    """A fresh key, or a fixed one of tests, as the command derives it."""
    if text is None:
        return RunKey.fresh()
    with naming_arguments():
        text = arguments.text("insecure_test_key", text)
    if not text:
        raise SettingError("insecure_test_key is empty")
    warnings.warn(
        "NOT PRIVATE: insecure_test_key fixes the key of this run; never release its output", stacklevel=3
    )
    return RunKey.insecure_fixed(text.lower())


@dataclass(frozen=True)
class InputPairs:
    """The (user, item) pairs of a call, without nulls or empty items.

    Attributes:
      names, kinds: of the item columns.
      users, items: (n,) canonical bytes.
      parameters: public settings of the input, for the ledger; privacy_unit: what one user is.
      types: of the user column, None for a column of nulls, and of the item columns.
      num_rows: how many rows were handed over; row: (n,) of each pair, None where all of them make pairs.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    users: pa.Array
    items: pa.Array
    parameters: dict[str, Any]
    privacy_unit: str
    types: tuple[str | None, ...] = ()
    num_rows: int = 0
    row: np.ndarray | None = None

    def batches(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """The pairs in batches of bounded length."""
        starts = range(0, len(self.items), _ROWS_PER_BATCH)
        return ((self.users.slice(n, _ROWS_PER_BATCH), self.items.slice(n, _ROWS_PER_BATCH)) for n in starts)

    def filtered(self, listed: pa.Array, *, keep: bool) -> InputPairs:
        """The pairs whose items are listed, or are not."""
        inside = canonical.is_listed(self.items, listed)
        kept = inside if keep else pc.invert(inside)
        return replace(self, users=self.users.filter(kept), items=self.items.filter(kept))

    def items_are(self, column: pa.Array) -> bool:
        """Whether a column, of canonical bytes, is the items that were handed over, with or without dropped rows."""
        if self.row is not None and len(column) == self.num_rows:
            column = column.take(pa.array(self.row))
        return len(column) == len(self.items) and canonical.plain(self.items).equals(column)

    @property
    def item_bytes(self) -> float:
        """Bytes of an item, on average."""
        values = self.items.dictionary if pa.types.is_dictionary(self.items.type) else self.items
        return values.nbytes / max(len(values), 1)


def input_pairs(
    data: Any,
    user: str,
    item: str | Sequence[str],
    item_type: str | Sequence[str] | None,
    on_null: str,
    counts: MutableMapping[str, int] | None = None,
    added: Iterable[OutputColumn] = (),
) -> InputPairs:
    """The pairs that a caller hands over; for arguments see `select`.

    Args:
      added: columns of the result besides the items.

    Raises:
      InputError: see `select`.
    """
    if counts is not None and not isinstance(counts, MutableMapping):
        raise SettingError(f"not_private_counts must be a dictionary, got {type(counts).__name__}")
    with naming_arguments():
        arguments.text("user", user)
        if arguments.text("on_null", on_null) not in ("error", "drop"):
            raise SettingError(f"on_null must be error or drop, got {on_null!r}")
    names = several_names("item", item)
    check_names(names, added)
    declared = declared_types(item_type, names)
    users, *items = _columns(data, user, names)
    kinds = tuple(_kind_of(c, kind) for c, kind in zip(items, declared))
    pairs = _pairs(users, items, kinds, on_null, counts)
    parameters = {"layout": "pairs", "on_null": on_null, "item_types": list(kinds)}
    unit = one_value_of(None if isinstance(data, tuple) else user)
    return InputPairs(
        names,
        kinds,
        canonical.plain(pairs.users_of_items()),
        pairs.items,
        parameters,
        unit,
        tuple(canonical.type_of(c.values.type, f"column '{c.name}'") for c in (users, *items)),
        pairs.num_rows,
        pairs.row,
    )


def several_names(argument: str, value: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several. Raises InputError naming the argument."""
    with naming_arguments():
        names = (value,) if isinstance(value, str) else tuple(arguments.instance(argument, value, Sequence))
        return tuple(arguments.text(argument, name) for name in names)


def check_names(names: tuple[str, ...], added: Iterable[OutputColumn]) -> None:
    """Refuse names of item columns that do not differ, or that the result needs. Raises InputError."""
    if not names or len(set(names)) < len(names):
        raise SettingError("item names one column or several different ones")
    for other in added:
        if other.name in names and len(names) > 1:
            what = other.setting or "the result"
            raise SettingError(f"item: '{other.name}' is the column that {what} adds; rename yours")


def declared_types(item_type: str | Sequence[str] | None, names: tuple[str, ...]) -> tuple[str | None, ...]:
    """The type that the caller declares for each item column, if any; one stands for all. Raises InputError."""
    if item_type is None:
        return (None,) * len(names)
    declared = several_names("item_type", item_type)
    if len(declared) == 1:
        declared *= len(names)
    if len(declared) != len(names):
        raise SettingError(f"item_type: {len(declared)} types for {len(names)} item columns")
    for kind in declared:
        if kind not in ID_KINDS:
            raise SettingError(f"item_type must be one of {', '.join(ID_KINDS)}, got {kind!r}")
    return declared


def _columns(data: Any, user: str, names: tuple[str, ...]) -> list[Column]:
    """The user column and the item columns."""
    if not isinstance(data, tuple):
        return frame_columns(data, (user, *names))
    if len(data) != 2 or len(names) > 1:
        raise DataError(
            "a tuple holds two columns, (users, items); pairs are turned into columns by tuple(zip(*pairs)), and "
            "several item columns make a mapping or a frame"
        )
    return same_length([column(values, name) for values, name in zip(data, (user, *names))])


def _kind_of(item: Column, declared: str | None) -> str:
    """The kind of an item column, never from its values."""
    held = canonical.kind_of(item.values.type, f"column '{item.name}'")
    if declared is None and not item.declared and held not in (None, STRING):
        raise DataError(
            f"column '{item.name}' holds Python values that are no strings and declares no type; pass "
            f"item_type='{held}', or an array of Arrow or numpy"
        )
    kind = declared or held or STRING
    if held not in (None, kind):
        raise DataError(f"column '{item.name}' holds {held} values, but item_type says {declared}")
    return kind


def public_list(values: Any, data: Any, user: str, pairs: InputPairs, where: str) -> pa.Array:
    """Distinct canonical bytes of a list that a caller says is public.

    Args:
      data, user: of the call.
      pairs: of the data.
      where: the argument, for messages.

    Raises:
      InputError: it is the data themselves, a column is missing, of another type or holds a null.
    """
    listed = _listed(values, pairs.names, pairs.kinds, where)
    same = values is data or (isinstance(data, tuple) and any(values is part for part in data))
    distinct = pc.unique(listed)
    if len(distinct) < len(listed):
        same = same or pairs.items_are(listed)
    if same:
        raise SettingError(f"{where} is the data of this call; a public list must not come from the data")
    if is_frame(values) and user not in pairs.names and has_column(values, user):
        warnings.warn(
            f"{where} has the column '{user}' of users beside its items; all its items are taken as public, so it must "
            "not come from the data",
            stacklevel=3,
        )
    return distinct.filter(pa.array(~canonical.empty_items(distinct, pairs.kinds)))


def listed_items(values: Any, names: tuple[str, ...], kinds: tuple[str, ...], where: str) -> pa.Array:
    """Distinct canonical bytes of a list of items that no data stand beside; `where`: the argument, for messages."""
    distinct = pc.unique(_listed(values, names, kinds, where))
    return distinct.filter(pa.array(~canonical.empty_items(distinct, kinds)))


def _listed(values: Any, names: tuple[str, ...], kinds: tuple[str, ...], where: str) -> pa.Array:
    """Canonical bytes of a list of items; `where`: the argument, for messages."""
    if is_frame(values):
        columns = frame_columns(values, names, where)
    elif len(names) == 1:
        columns = [column(values, where)]
    else:
        raise DataError(f"{where} of several columns are a mapping or a frame with these columns")
    parts = []
    for item, name, wanted in zip(columns, names, kinds):
        part, kind = canonical.encode(item.values, where)
        if kind not in (wanted, None):
            raise DataError(f"{where} holds {kind} values, but column '{name}' holds {wanted} values")
        if part.null_count:
            raise DataError(f"{where} holds a null; remove it")
        if kind == STRING and len(canonical.invalid_utf8(part)):
            raise not_utf8(where)
        parts.append(canonical.plain(part))
    return parts[0] if len(parts) == 1 else canonical.encode_parts(parts)


def _pairs(
    users: Column,
    items: list[Column],
    kinds: tuple[str, ...],
    on_null: str,
    counts: MutableMapping[str, int] | None,
) -> Pairs:
    """The pairs of the columns, without nulls or empty items."""

    (user, kind), *parts = (
        canonical.encode(side.values, f"column '{side.name}'") for side in (users, *items)
    )
    dropped = {NULL_ROWS: 0, EMPTY_ITEMS: 0}
    rules = PairRules(
        users.name, [side.name for side in items], Kinds(kind, kinds), refusing(on_null), dropped
    )
    pairs = rules.pairs(user, [values for values, _ in parts], num_rows=len(user))
    rules.drop_empty(pairs)
    if counts is not None:
        counts.update(dropped)
    if len(user) and not len(pairs.items):
        raise DataError(
            "on_null='drop' leaves not a single row of the data; without that, the first is an error that says what "
            "is wrong"
        )
    return pairs


def released_table(
    released: Released,
    public: pa.Array | None,
    names: tuple[str, ...],
    kinds: tuple[str, ...],
    added: Sequence[OutputColumn],
    known: pa.Array | None = None,
) -> pa.Table:
    """The released and the public items, in the order of their bytes: as the command writes them.

    Args:
      added: the columns beside the items.
      known: items that are not new, where a column says so; None: there is none.
    """
    items, weights = released.items, released.noisy_weight
    if public is not None:
        items = pa.concat_arrays([items, public])
        weights = np.concatenate([weights, np.full((len(public), *weights.shape[1:]), np.nan)])
    numbers = [one.name for one in added if one.name != NEW]
    width = -1 if len(items) else max(1, len(numbers))
    beside = dict(zip(numbers, weights.reshape(len(items), width).T))
    if known is not None:
        beside[NEW] = ~canonical.is_listed(items, known).to_numpy(zero_copy_only=False)
    names = names if len(names) > 1 else ("item",)
    columns = released_columns(items, beside, kinds, added)
    return pa.Table.from_arrays(columns, names=[*names, *(one.name for one in added)])
