"""`SelectPartitions`: the public PTransform of partition selection."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import apache_beam as beam
import cloudpickle
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsList, PCollection
from typing_extensions import Unpack

from dpbeam.accounting.arguments import file_path, instance, integer, number, truth
from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.release import Others
from dpbeam.counts.gathered import public_domain
from dpbeam.engine.beam.blocks import SubsamplePerUser
from dpbeam.engine.beam.graph import RunProgram
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.engine.beam.trip_files import last_broadcast
from dpbeam.engine.program import Program, replies_by_link
from dpbeam.errors import DataError, SettingError, naming_arguments, param
from dpbeam.families.registry import families
from dpbeam.rows.elements import Field, PairFields, check_batch_input, to_batches
from dpbeam.rows.lists import ListedItems
from dpbeam.rows.released import ReleasedFields
from dpbeam.selection.columns import arrow_fields
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.known import KNOWN, known_release
from dpbeam.selection.ledger import one_value_of, others_in
from dpbeam.selection.pipeline_run import PipelineRun, RunArguments, of_run
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selection.public_items import FilterItems, ListedBeside, store_items
from dpbeam.selection.sizes import Sizes, choose_sizes
from dpbeam.storage import FileSystems

_MOST = 10**18  # pairs, bytes, parts
_DOMAIN = "domain"
ConfigT = TypeVar("ConfigT")


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
            raise SettingError(f"{name} must be from {least} to {_MOST:g}, got {number(name, value):g}")


def asked_for(
    make: Callable[..., ConfigT], kind: type[ConfigT], config: ConfigT | None, **settings: Any
) -> ConfigT:
    """The settings of a transform: its config object, or one made of keyword arguments.

    Args:
      make: makes a `kind` of the arguments that are given: neither None nor False.

    Raises:
      InputError: one that every release needs is missing, or there are two ways to the same setting.
    """
    chosen = {name: value for name, value in settings.items() if value is not None and value is not False}
    if config is not None:
        instance("config", config, kind)
        if chosen:
            raise SettingError(
                f"{', '.join(chosen)}: the config says all settings; give them there, or no config"
            )
        return config
    for name in ("epsilon", "delta", "k"):
        if name in settings and name not in chosen:
            raise SettingError(f"{param(name)} is required")
    return make(**chosen)


class ProgramTransform(beam.PTransform):
    """The frame of a kind's PTransform: pairs of any elements, blocks of whole users, and a program upon them.

    Args:
      plan: calibrated; its `config` has epsilon and delta.
      program: makes what runs, of a public domain or None.
      fields: where users and items lie in an element.
      released: what stands beside the items in the output.
      domain: a public domain; other items are left out before anything is counted.
      as_batches: see `SelectPartitions`; run: of `RunArguments`.

    Raises:
      InputError: on `expand`: elements of the input's type hold no pairs.
      ValueError: on `expand`: the input is unbounded or windowed.

    Attributes:
      family: name of the kind of release.
    """

    family: ClassVar[str]

    def __init__(
        self,
        plan: Any,
        program: Callable[..., Program],
        sizes: Sizes,
        *,
        fields: PairFields,
        released: Sequence[pa.Field],
        as_batches: bool,
        domain: ListedItems | None = None,
        **run: Unpack[RunArguments],
    ):
        super().__init__()
        self._with_lists: Callable[[RunStore, dict[str, ListedItems]], Program]
        self._with_lists = functools.partial(_of_domain, program)
        self.plan, self.sizes = plan, sizes
        self.program = program(None if domain is None else public_domain(domain.items))
        self._run, self._domain, self._as_batches = (
            PipelineRun(**run),
            domain,
            truth("as_batches", as_batches),
        )
        self._fields, self._typed, self._released = fields, fields, tuple(released)
        self._lists = {} if domain is None else {"domain": domain}
        ReleasedFields("item", fields.names, (), self._released)  # names that clash are refused here

    def expand(self, pcoll: PCollection) -> PCollection:
        check_batch_input(pcoll)
        with naming_arguments():
            kinds = {argument: listed.kinds for argument, listed in self._lists.items()}
            self._typed = fields = self._fields.typed(pcoll.element_type, kinds)
            output = ReleasedFields("item", fields.names, fields.kinds, self._released)
        run = self._run.begin(pcoll, self.ledger, self.family)
        self._wait_for_lists(pcoll.pipeline, run.store, fields)
        pairs = to_batches(pcoll, fields.of_batch, fields.of_rows)
        released = run.end(self._rounds(pairs, run.store), self.program)
        return run.labelled(output.of(released, as_batches=self._as_batches))

    def _wait_for_lists(self, pipeline: beam.Pipeline, store: RunStore, fields: PairFields) -> None:
        """Let all stages wait until the lists that are PCollections are in the run's folder."""
        sources = {name: AsList(one.source) for name, one in self._lists.items() if one.source is not None}
        if sources:
            where = store.where or pipeline | "RunFolder" >> beam.Create([store.path])
            known = {name: one for name, one in self._lists.items() if one.source is None}
            put = beam.ParDo(
                _PutLists(store, fields, known, tuple(sources), self._with_lists), *sources.values()
            )
            store.where = where | "PutLists" >> put.with_output_types(str)

    def _rounds(self, pairs: PCollection, store: RunStore) -> PCollection:
        """What the program makes of record batches of pairs: record batches with canonical bytes of items."""
        listed_alone = families()[self.family].listed_alone
        domain = self._domain.items if self._domain is not None and listed_alone else None
        blocks = UserBlocks(store, self.program, self.sizes, domain=domain)
        rounds = RunProgram(store, self.program, one_step=self.sizes.one_step, relays=self.sizes.relays)
        return pairs | "UserBlocks" >> blocks | "Rounds" >> rounds

    @property
    def ledger(self) -> Ledger:
        """What the run costs, for `Ledger.verify` and `dpbeam.export_event`; `Ledger.to_json` is for a file."""
        return families()[self.family].ledger(
            self.plan,
            input_parameters=self._typed.stated,
            fixed_key=self._run.fixed_key,
            privacy_unit=self._privacy_unit,
            **self.about,
        )

    @property
    def _privacy_unit(self) -> str:
        user = self._fields.user
        return one_value_of(user if isinstance(user, str) else None)

    @property
    def about(self) -> dict[str, Any]:
        """What the family's ledger says besides."""
        return {}

    def display_data(self) -> dict[str, Any]:
        config = self.plan.config
        return {"epsilon": config.epsilon, "delta": config.delta}


class SelectPartitions(ProgramTransform):
    """Releases the items that many users hold, under (epsilon, delta)-differential privacy.

        rows = pipeline | beam.io.ReadFromParquet("logs/*.parquet", columns=["user_id", "query"])
        released = rows | dpbeam.SelectPartitions(epsilon=1, delta=1e-8, user="user_id", item="query")
        released | beam.io.WriteToParquet("out/queries")

    Takes a bounded PCollection of rows with a schema, dictionaries, (user, item) tuples, `pyarrow.RecordBatch` or
    `pyarrow.Table` (much faster). Returns rows with a schema: the item under its own name and of its own type, then
    what was asked for: `noisy_weight`, or `noisy_count` and `noisy_count_sd`, and `new`. Elements that Beam knows to be
    of another type are refused when the pipeline is built, others when they come.

    Users and items are strings, integers or bytes. UUIDs, dates, timestamps and decimals are taken too and released
    as the strings that they are written as.

    Guarantee: privacy unit one user, that is one value of `user`; neighbours differ by one user; see
    docs/explanation/privacy.md. The released items are a function of the data, the settings and the run's key alone.

    Memory per worker: one block or one shard (see `dpbeam.selection.sizes`).

    Args:
      config: all settings in one object, in place of those that follow.
      epsilon, delta, method, max_items_per_user, min_users, preset: see `dpbeam.select`.
      noisy_weights, noisy_counts, noisy_count_share, others: see `dpbeam.select`.
      user, item: names of fields or columns, by dots where they are nested, or functions of an element. Several item
        names make composite items. Of tuples the user is the first, and `item` names the released field.
      item_type: "string", "int" or "bytes" (or the types of Python), one for all item fields or one for each, where
        neither a schema nor a hint says the type: strings otherwise. It is the type of the output.
      on_null: what becomes of a null or an empty item: "error", or "drop".
      public_items: items that are always released, without budget, and are counted where others are: a list, an Arrow
        array, a table with the item columns, or a PCollection of items; tuples for composite items.
      known: items of earlier releases, as `public_items`; the field `new` says which items are not among them.
      known_ledgers: ledgers of the releases that `known` comes from, or paths of theirs: the ledger of this run names
        them, and otherwise says that the list was declared public.
      only_new: leave known items out of the output.
      num_blocks, num_shards: partitions of users and items; None: from `pairs`.
      pairs: roughly how many pairs there are.
      item_bytes: roughly how long an item is; None: not much longer than a word or a web address.
      as_batches: return record batches of the same columns, in place of rows.
      more: settings of the method, and `RunArguments`; the pipeline itself makes the private folder of its run, and
        removes it.

    Raises:
      InputError: settings are out of range; on `expand` a field is missing or of another type.
      TypeError: no method has such a setting.
      ValueError: on `expand`, the input is unbounded or windowed: a user split over windows would count several times.
    """

    family = "select"

    def __init__(
        self,
        config: SelectionConfig | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        method: str | None = None,
        max_items_per_user: int | None = None,
        min_users: int | None = None,
        preset: str | None = None,
        noisy_weights: bool = False,
        noisy_counts: bool = False,
        noisy_count_share: float | None = None,
        others: bool = False,
        user: Field = "user",
        item: Field | Sequence[str] = "item",
        item_type: Any = None,
        on_null: str = "error",
        public_items: Any = None,
        known: Any = None,
        known_ledgers: Ledger | str | Sequence[Ledger | str] = (),
        only_new: bool = False,
        num_blocks: int | None = None,
        num_shards: int | None = None,
        pairs: int | None = None,
        item_bytes: float | None = None,
        as_batches: bool = False,
        **more: Any,
    ):
        run, settings = of_run(more)
        with naming_arguments():
            config = asked_for(
                SelectionConfig,
                SelectionConfig,
                config,
                epsilon=epsilon,
                delta=delta,
                method=method,
                max_items_per_user=max_items_per_user,
                min_users=min_users,
                preset=preset,
                noisy_weights=noisy_weights,
                noisy_counts=noisy_counts,
                noisy_count_share=noisy_count_share,
                others=others,
                **settings,
            )
            plan = make_plan(config)
            check_sizes(num_blocks=num_blocks, num_shards=num_shards, pairs=pairs, item_bytes=item_bytes)
            fields = PairFields.of(user, item, item_type, on_null)
            lists = {
                name: ListedItems.of(name, items, fields)
                for name, items in (("public_items", public_items), ("known", known))
                if items is not None
            }
            if truth("only_new", only_new) and known is None:
                raise SettingError("only_new needs known")
            self._only_new = only_new
            self._beside = _beside(plan, lists, only_new)
            sizes = choose_sizes(pairs, num_shards, item_bytes)
            if num_blocks is not None:
                sizes = Sizes(num_blocks, sizes.num_shards)
            super().__init__(
                plan,
                lambda _: self._beside.program,
                sizes,
                fields=fields,
                released=arrow_fields(config.columns(*([KNOWN] if known is not None else []))),
                as_batches=as_batches,
                **run,
            )
            self._lists = lists
            self._with_lists = functools.partial(_of_lists, plan, only_new)
            named = self._named(known_ledgers)
            if known is None and named:
                raise SettingError("known_ledgers needs known")
            self._known = None if known is None else named

    def _named(self, ledgers: Ledger | str | Sequence[Ledger | str]) -> list[dict[str, Any]]:
        """Known releases, for the ledger. Raises InputError."""
        named = []
        instance("known_ledgers", ledgers, Ledger, str, list, tuple)
        for one in ledgers if isinstance(ledgers, list | tuple) else (ledgers,):
            ledger, text = instance("known_ledgers", one, Ledger, str), None
            try:
                if isinstance(one, str):
                    file_path("known_ledgers", one)
                    text = FileSystems.read(one).decode()
                    ledger = Ledger.from_json(text)
            except (OSError, ValueError) as error:
                raise DataError(f"known_ledgers: '{one}' is no ledger: {error}") from None
            run = (self._privacy_unit, self._run.dataset)
            named.append(known_release(ledger, text, *run, insecure=self._run.fixed_key))
        return named

    def _rounds(self, pairs: PCollection, store: RunStore) -> PCollection:
        self._beside.put(store)
        pairs = self._beside.leave_out(pairs, store, complete=False)
        return self._beside.add_to(super()._rounds(pairs, store), store)

    @property
    def about(self) -> dict[str, Any]:
        declared = "public_items" in self._lists or self._known == []
        return {"public_items": declared, "known": self._known, "only_new": self._only_new}

    def display_data(self) -> dict[str, Any]:
        config, sizes = self.plan.config, self.sizes
        own = {"method": config.method, "max_items_per_user": config.max_items_per_user}
        return {
            **super().display_data(),
            **own,
            "num_blocks": sizes.num_blocks,
            "num_shards": sizes.num_shards,
        }


class _PutLists(beam.DoFn):
    """Path of the run's folder, and lists -> the path, once the lists and the program that knows them are there.

    Args:
      known: lists that are there already; names: of the others.
      make: puts the lists into the folder, and makes the program.
    """

    def __init__(
        self,
        store: RunStore,
        fields: PairFields,
        known: dict[str, ListedItems],
        names: tuple[str, ...],
        make: Callable[[RunStore, dict[str, ListedItems]], Program],
    ):
        self._store, self._fields, self._known = store, fields, known
        self._names, self._make = names, make

    def process(self, path: str, *lists: list[Any]) -> Iterator[str]:
        self._store.path = path
        listed = dict(self._known)
        with naming_arguments():
            for name, values in zip(self._names, lists):
                listed[name] = ListedItems.of(name, values, self._fields)
                self._fields.typed(Any, {name: listed[name].kinds})
            program = cloudpickle.dumps(self._make(self._store, listed))
        for file in self._store.names("program-"):
            self._store.write_bytes(file, program)
        yield path


def _of_domain(make: Callable[..., Program], store: RunStore, lists: dict[str, ListedItems]) -> Program:
    """The program of a public domain, which is put into the folder."""
    store_items(store, _DOMAIN, lists["domain"].items)
    return make(public_domain(lists["domain"].items))


def _of_lists(plan: SelectionPlan, only_new: bool, store: RunStore, lists: dict[str, ListedItems]) -> Program:
    """The program of a selection beside its lists, which are put into the folder."""
    beside = _beside(plan, lists, only_new)
    beside.put(store)
    return beside.program


def _beside(plan: SelectionPlan, lists: dict[str, ListedItems], only_new: bool) -> ListedBeside:
    """A selection beside the items of its lists."""
    if not lists:
        return ListedBeside(plan, None)
    items = pc.unique(pa.concat_arrays([listed.items for listed in lists.values()]))
    known = lists["known"].items if "known" in lists else None
    return ListedBeside(plan, items, known, only_new)


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
      complete: the input is (block id, record batch) whose users are whole; else record batches of pairs.
      domain: canonical bytes of a public domain; other items are left out before anything is counted.
    """

    def __init__(
        self,
        store: RunStore,
        program: Program,
        sizes: Sizes,
        *,
        complete: bool = False,
        domain: pa.Array | None = None,
    ):
        super().__init__()
        self._store, self._complete, self._domain = store, complete, domain
        self._sample = SubsamplePerUser(
            store,
            num_blocks=sizes.num_blocks,
            num_shards=sizes.num_shards,
            cap=program.cap,
            complete=complete,
            ranges=replies_by_link(program),
        )

    def expand(self, batches: PCollection) -> PCollection:
        if self._domain is not None:
            store_items(self._store, _DOMAIN, self._domain)
            inside = FilterItems(self._store, _DOMAIN, keep=True, complete=self._complete)
            batches = batches | "KeepDomain" >> inside
        return batches | "SubsamplePerUser" >> self._sample
