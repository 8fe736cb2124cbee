"""`SelectPartitions`: the public PTransform of partition selection."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import Unpack

from dpbeam.accounting.arguments import instance, integer, number, truth
from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.release import Others
from dpbeam.counts.selection import DEVIATION, NOISY_COUNT
from dpbeam.engine.beam.blocks import SubsamplePerUser
from dpbeam.engine.beam.graph import RunProgram
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.engine.beam.trip_files import last_broadcast
from dpbeam.engine.program import Program, replies_by_link
from dpbeam.errors import InputError
from dpbeam.families.registry import families
from dpbeam.kernels.canonical import METADATA_KEY, STRING, Kinds, decode, encode, from_values, plain, type_of
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.ledger import ONE_OF_A_BATCH, one_value_of, others_in
from dpbeam.selection.pipeline_run import PipelineRun, RunArguments
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selection.public_items import FilterItems, ListedBeside, store_items
from dpbeam.selection.sizes import Sizes, choose_sizes

_ROWS_PER_BATCH = 100_000
_MOST = 10**18  # pairs, bytes, parts
_DOMAIN = "domain"
_Id = str | int | bytes
#: Elements that `SelectPartitions` and `TopKItems` take; Beam checks what it can infer when the pipeline is built.
PairsOrBatches = tuple[_Id, _Id] | list[_Id] | pa.RecordBatch
CompleteBatches = tuple[int, pa.RecordBatch]


def no_mapping(row: Any, value: object) -> bool:
    """The `in` of a row: refused for a string.

    `beam.io.WriteToParquet(path, schema)` takes dictionaries and asks `name in row`; where that is false it writes a
    null, after the budget is spent.

    Raises:
      TypeError: `value` is a string.
    """
    if isinstance(value, str):
        raise TypeError(
            f"{type(row).__name__} has the fields {', '.join(row._fields)} and is no dictionary; where one is needed "
            "pass it through beam.Map(lambda row: row._asdict())"
        )
    return value in tuple(row)


class ReleasedItem(NamedTuple):
    """A released item, a tuple if it has several parts, and, where asked for, the noisy weight that released it."""

    item: str | int | bytes | tuple[str | int | bytes, ...]
    noisy_weight: float | None

    def __contains__(self, value: object) -> bool:
        return no_mapping(self, value)


class CountedItem(NamedTuple):
    """A released item with a noisy number of its users, and the standard deviation of that."""

    item: str | int | bytes | tuple[str | int | bytes, ...]
    noisy_count: int
    noisy_count_sd: float

    def __contains__(self, value: object) -> bool:
        return no_mapping(self, value)


class _ToBatches(beam.DoFn):
    """Rows and record batches -> checked record batches; rows of a bundle are taken together.

    Args:
      of_batch, of_rows: make a checked record batch of one that came, and of rows.
    """

    def __init__(
        self,
        of_batch: Callable[[pa.RecordBatch], pa.RecordBatch],
        of_rows: Callable[[list[Any]], pa.RecordBatch],
    ):
        self._of_batch, self._of_rows = of_batch, of_rows
        self._held: list[Any] = []

    def start_bundle(self) -> None:
        self._held = []

    def process(self, element: Any) -> Iterator[pa.RecordBatch]:
        if isinstance(element, pa.RecordBatch):
            yield self._of_batch(element)
            return
        self._held.append(element)
        if len(self._held) >= _ROWS_PER_BATCH:
            yield self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._held:
            window = GlobalWindow()
            yield WindowedValue(self._flush(), window.max_timestamp(), (window,))

    def _flush(self) -> pa.RecordBatch:
        held, self._held = self._held, []
        return self._of_rows(held)


def canonical_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A record batch with columns `user` and `item` of strings, integers or bytes, as canonical bytes.

    Both columns may be dictionaries; the result has one for the items alone, whose values cost most.

    Raises:
      InputError: a column is missing, has another type, or holds a null.
    """
    if (batch.schema.metadata or {}).get(METADATA_KEY):
        return batch
    columns, types = [], []
    for name in ("user", "item"):
        if name not in batch.schema.names:
            raise InputError(f"record batches need columns 'user' and 'item', got {batch.schema.names}")
        where = f"column '{name}'"
        column, _ = encode(batch.column(name), where)
        if column.null_count:
            raise InputError(f"column '{name}' holds a null; filter nulls before SelectPartitions")
        columns.append(plain(column) if name == "user" else column)
        types.append(type_of(batch.column(name).type, where) or STRING)
    schema = pa.schema(
        [("user", columns[0].type), ("item", columns[1].type)],
        metadata=Kinds.of_types(types[0], types[1:]).metadata(),
    )
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def batch_of_pairs(rows: Iterable[Any]) -> pa.RecordBatch:
    """(user, item) tuples as a record batch of canonical bytes.

    Raises:
      InputError: a row is something else, or ids are not all strings, all integers or all bytes.
    """
    users, items = [], []
    for row in rows:
        if not (isinstance(row, tuple | list) and len(row) == 2):
            raise InputError("SelectPartitions takes (user, item) tuples or pyarrow.RecordBatch elements")
        users.append(row[0])
        items.append(row[1])
    columns = [from_values(users, "user"), from_values(items, "item")]
    return canonical_batch(pa.RecordBatch.from_arrays(columns, ["user", "item"]))


class _ToItems(beam.DoFn):
    """Record batches of released canonical items -> ReleasedItem or CountedItem."""

    def __init__(self, noisy_weights: bool):
        self._noisy_weights = noisy_weights

    def process(self, batch: pa.RecordBatch) -> Iterator[ReleasedItem | CountedItem]:
        columns = decode(batch.column("item"), Kinds.of(batch.schema).item)
        items = [column.to_pylist() for column in columns]
        if NOISY_COUNT in batch.schema.names:
            numbers = (batch.column(name).to_pylist() for name in (NOISY_COUNT, DEVIATION))
            for *values, count, deviation in zip(*items, *numbers):
                yield CountedItem(values[0] if len(values) == 1 else tuple(values), int(count), deviation)
            return
        weights = batch.column("noisy_weight").to_pylist() if self._noisy_weights else [None] * batch.num_rows
        for row, weight in enumerate(weights):
            weight = None if weight is None or math.isnan(weight) else weight  # public items have none
            parts = tuple(column[row] for column in items)
            yield ReleasedItem(parts[0] if len(parts) == 1 else parts, weight)


def check_sizes(**sizes: Any) -> None:
    """Hold what PTransforms are told of their input to its type.

    Raises:
      InputError: naming the argument.
    """
    for name, value in sizes.items():
        if value is None:
            continue
        least, held = (0, number) if name == "item_bytes" else (0 if name == "pairs" else 1, integer)
        held(name, value)
        if not least <= number(name, value) <= _MOST:
            raise InputError(f"{name} must be from {least} to {_MOST:g}, got {number(name, value):g}")


def listed(name: str, value: Any) -> tuple[pa.Array, Kinds]:
    """A list of items as PTransforms take it.

    Raises:
      InputError: it is something else than canonical bytes and their kinds, naming the argument.
    """
    if isinstance(value, tuple) and len(value) == 2:
        items, kinds = value
        if isinstance(items, pa.Array | pa.ChunkedArray) and isinstance(kinds, Kinds):
            return items, kinds
    raise InputError(f"{name} must be a pair of an array of canonical bytes and their Kinds")


class ProgramTransform(beam.PTransform):
    """The frame of a family's PTransform: blocks of whole users, and the rounds of a program upon them.

    Args:
      plan: calibrated; its `config` has epsilon and delta.
      program: what runs.
      domain: a public domain, canonical bytes of its items with their kinds; other items are left out before anything
        is counted.
      complete: as of `SelectPartitions`.
      run: of `RunArguments`.

    Raises:
      ValueError: on `expand`: the input is unbounded or windowed.

    Attributes:
      family: name of the kind of release.
    """

    family: ClassVar[str]

    def __init__(
        self,
        plan: Any,
        program: Program,
        sizes: Sizes,
        *,
        complete: bool,
        domain: tuple[pa.Array, Kinds] | None = None,
        **run: Unpack[RunArguments],
    ):
        super().__init__()
        truth("complete", complete)
        self.plan, self.program, self.sizes = plan, program, sizes
        self._run, self._complete, self._domain = PipelineRun(**run), complete, domain
        self.with_input_types(CompleteBatches if complete else PairsOrBatches)  # type: ignore[no-untyped-call]
        self.with_output_types(pa.RecordBatch)  # type: ignore[no-untyped-call]

    def expand(self, pcoll: PCollection) -> PCollection:
        check_batch_input(pcoll)
        run = self._run.begin(pcoll, self.ledger, self.family)
        return run.labelled(self.elements(run.end(self.rounds(pcoll, run.store))))

    def rounds(self, pcoll: PCollection, store: RunStore) -> PCollection:
        """What the program makes of the input."""
        rounds = RunProgram(store, self.program, one_step=self.sizes.one_step, relays=self.sizes.relays)
        return pcoll | "UserBlocks" >> self.blocks(store) | "Rounds" >> rounds

    def elements(self, batches: PCollection) -> PCollection:
        """What leaves the transform, of the record batches of the result."""
        return batches

    def blocks(self, store: RunStore) -> beam.PTransform:
        """The input as blocks of whole users, PCollection[(int, Block)], for `dpbeam.engine.beam.driver`."""
        domain, kinds = self._domain or (None, None)
        return UserBlocks(
            store, self.program, self.sizes, complete=self._complete, domain=domain, kinds=kinds
        )

    @property
    def ledger(self) -> Ledger:
        """What the run costs, for `Ledger.verify` and `dpbeam.export_event`; `Ledger.to_json` is for a file."""
        return families()[self.family].ledger(
            self.plan,
            input_parameters=None,
            fixed_key=self._run.fixed_key,
            privacy_unit=ONE_OF_A_BATCH if self._complete else one_value_of(None),
            **self.about,
        )

    @property
    def about(self) -> dict[str, Any]:
        """What the family's ledger says besides."""
        return {}

    def display_data(self) -> dict[str, Any]:
        config = self.plan.config
        return {"epsilon": config.epsilon, "delta": config.delta}


class SelectPartitions(ProgramTransform):
    """Releases the items that many users hold, under (epsilon, delta)-differential privacy.

    Takes a bounded PCollection of (user, item) tuples or of `pyarrow.RecordBatch` with columns `user` and `item`
    (strings, integers or bytes; much faster), and returns a PCollection of `ReleasedItem`, or of `CountedItem` where
    the settings ask for `noisy_counts`. Elements that Beam knows
    to be of another type are refused when the pipeline is built, others when they come:

        config = SelectionConfig(epsilon=1.0, delta=1e-6)
        with beam.Pipeline(options=options) as pipeline:
            released = pipeline | beam.Create([("ann", "x"), ("bob", "x")]) | SelectPartitions(config)

    Guarantee: privacy unit one user, that is one value of `user`; neighbours differ by one user; see
    docs/explanation/privacy.md. The released items are a function of the data, the settings and the run's key alone.

    Memory per worker: one block or one shard (see `dpbeam.selection.sizes`).

    Args:
      config: settings.
      num_blocks, num_shards: partitions of users and items; None: from `pairs`.
      pairs: roughly how many pairs there are.
      item_bytes: roughly how long an item is; None: not much longer than a word or a web address.
      complete: the input is (block id, record batch) whose users are whole, as `dpbeam.io` makes for grouped input.
      as_batches: return record batches (item: canonical bytes, the program's `released_names`) with the kinds in
        their metadata.
      public_items: distinct canonical bytes of items with their kinds, public ones or those of earlier releases. They
        cost no budget, take no weight, are always among the released items, and are counted where these are.
      run: of `RunArguments`; the pipeline itself makes the private folder of its run, and removes it.

    Raises:
      InputError: settings are out of range, or ids are not all strings, all integers or all bytes.
      ValueError: the input is unbounded or windowed: a user split over windows would count several times.
    """

    family = "select"

    def __init__(
        self,
        config: SelectionConfig,
        *,
        num_blocks: int | None = None,
        num_shards: int | None = None,
        pairs: int | None = None,
        item_bytes: float | None = None,
        complete: bool = False,
        as_batches: bool = False,
        public_items: tuple[pa.Array, Kinds] | None = None,
        **run: Unpack[RunArguments],
    ):
        plan = make_plan(instance("config", config, SelectionConfig))
        truth("as_batches", as_batches)
        check_sizes(num_blocks=num_blocks, num_shards=num_shards, pairs=pairs, item_bytes=item_bytes)
        items, kinds = (None, None) if public_items is None else listed("public_items", public_items)
        self._beside = ListedBeside(plan, items, kinds)
        sizes = choose_sizes(pairs, num_shards, item_bytes)
        if num_blocks is not None:
            sizes = Sizes(num_blocks, sizes.num_shards)
        super().__init__(plan, self._beside.program, sizes, complete=complete, **run)
        self._as_batches = as_batches
        self._element = CountedItem if config.noisy_counts else ReleasedItem
        if not as_batches:
            self.with_output_types(self._element)  # type: ignore[no-untyped-call]

    def rounds(self, pcoll: PCollection, store: RunStore) -> PCollection:
        batches = pcoll
        if self._beside.items is not None:
            self._beside.put(store)
            batches = pcoll if self._complete else to_batches(pcoll)
            batches = self._beside.leave_out(batches, store, complete=self._complete)
        return self._beside.add_to(super().rounds(batches, store), store)

    def elements(self, batches: PCollection) -> PCollection:
        if self._as_batches:
            return batches
        to_items = _ToItems(self.plan.config.noisy_weights)
        return batches | "ToItems" >> beam.ParDo(to_items).with_output_types(self._element)

    @property
    def about(self) -> dict[str, Any]:
        return {"public_items": self._beside.items is not None}

    def display_data(self) -> dict[str, Any]:
        config, sizes = self.plan.config, self.sizes
        own = {"method": config.method, "max_items_per_user": config.max_items_per_user}
        return {
            **super().display_data(),
            **own,
            "num_blocks": sizes.num_blocks,
            "num_shards": sizes.num_shards,
        }


def others_of(plan: SelectionPlan, program: Program, run: RunFolder) -> Others | None:
    """How many users hold nothing of the output, after a run of `program`; None where the plan does not ask for it."""
    if plan.others_deviation is None:
        return None
    return others_in(plan, last_broadcast(program, run.store, program.trips))


class UserBlocks(beam.PTransform):
    """Users of a program's input, grouped into blocks: PCollection[(int, Block)].

    Args:
      store: of the run, claimed.
      program: says how many items of a user count.
      complete: the input is (block id, record batch) whose users are whole; else tuples or record batches of pairs.
      domain: canonical bytes of a public domain; other items are left out before anything is counted.
      kinds: of the domain, where input of others is an error; None: nobody looks.
    """

    def __init__(
        self,
        store: RunStore,
        program: Program,
        sizes: Sizes,
        *,
        complete: bool = False,
        domain: pa.Array | None = None,
        kinds: Kinds | None = None,
    ):
        super().__init__()
        self._store, self._complete, self._domain, self._kinds = store, complete, domain, kinds
        self._sample = SubsamplePerUser(
            store,
            num_blocks=sizes.num_blocks,
            num_shards=sizes.num_shards,
            cap=program.cap,
            complete=complete,
            ranges=replies_by_link(program),
        )

    def expand(self, pcoll: PCollection) -> PCollection:
        batches = pcoll if self._complete else to_batches(pcoll)
        if self._domain is not None:
            store_items(self._store, _DOMAIN, self._domain)
            inside = FilterItems(self._store, _DOMAIN, keep=True, complete=self._complete, kinds=self._kinds)
            batches = batches | "KeepDomain" >> inside
        return batches | "SubsamplePerUser" >> self._sample


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


def to_batches(
    pcoll: PCollection,
    of_batch: Callable[[pa.RecordBatch], pa.RecordBatch] = canonical_batch,
    of_rows: Callable[[list[Any]], pa.RecordBatch] = batch_of_pairs,
) -> PCollection:
    """Rows and record batches -> PCollection[pa.RecordBatch], checked; by default pairs, as canonical bytes.

    Args:
      of_batch, of_rows: make a checked record batch of one that came, and of rows.
    """
    checked = beam.ParDo(_ToBatches(of_batch, of_rows)).with_output_types(pa.RecordBatch)
    return pcoll | "ToBatches" >> checked
