"""`SeriesNight`: a night of a series on an engine.

Users live in blocks and open items in shards, files in the series' folder (`dpbeam.series.parts`). A night's pairs go
to the blocks of their users, blocks take them in, and the night's rounds run between blocks and shards as any program.
Every part that comes of it is written under a name of this attempt alone, and none counts before the launcher makes the
state that names them: so a night that was killed leaves nothing behind but files that the next one removes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PBegin, PCollection

from dpbeam.engine.beam import coders as _coders  # noqa: F401  (registers the coders)
from dpbeam.engine.beam.block_stages import WeightPerUser
from dpbeam.engine.beam.blocks import BuildsBlocks, PartitionByUser
from dpbeam.engine.beam.graph import RunTrips
from dpbeam.engine.beam.messages import receive
from dpbeam.engine.beam.receipts import RESULT, taken_for_lost
from dpbeam.engine.beam.relays import RelayReplies, RelaySums
from dpbeam.engine.beam.run import RunDoFn, StoredProgram, TripDoFn, bind_settings
from dpbeam.engine.beam.shard_stages import GroupByItem, RerouteExcess
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.engine.beam.trip_files import load_block
from dpbeam.engine.program import Keys
from dpbeam.errors import DataError, RunnerError, SettingError, UnavailableError, naming_arguments, param
from dpbeam.kernels.canonical import METADATA_KEY
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import Block, build_block, encode_dictionary, one_kind, rows_in, unpack_pairs
from dpbeam.kernels.shards import Shard, shard_slices
from dpbeam.randomness import fingerprints
from dpbeam.rows.elements import Field, PairFields, check_batch_input, to_batches
from dpbeam.selection.sizes import Sizes, choose_sizes
from dpbeam.series.folder import WORK, Folder
from dpbeam.series.night_program import ARRIVAL, NightProgram, gathered_block
from dpbeam.series.parts import PartFiles, Parts, next_part_count, with_released
from dpbeam.series.program import energy_of
from dpbeam.series.state import TWICE, SeriesState, Users, among, pairs_digest
from dpbeam.series.store import SeriesStore
from dpbeam.series.window import OTHER_KINDS, SeriesWindow, Snapshot

_OUT = "out"
_KINDS = "kinds-"
_ANY_PAIRS = "any-pairs"
_YOUR_TURN = b""


class _SeriesFiles:
    """What workers need of the series' folder: picklable, opened by each of them."""

    def __init__(self, folder: Folder, attempt: str, parts: Parts | None, kinds: bytes):
        self.folder, self.attempt, self.parts, self.kinds = folder, attempt, parts, kinds

    def open(self) -> PartFiles:
        return PartFiles(SeriesStore.load(self.folder), self.attempt)


class _LeaveOut(RunDoFn):
    """Record batches (user, item) -> those without items that are known or were released before."""

    def __init__(self, store: RunStore, kinds: bytes):
        super().__init__(store)
        self._earlier_kinds, self._last_kinds, self._has_pairs = kinds, b"", False

    def setup(self) -> None:
        super().setup()
        self._out = self._store.read(_OUT)["fp"]

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._see((batch.schema.metadata or {}).get(METADATA_KEY, b""))
        if not batch.num_rows:
            yield batch
            return
        if not self._has_pairs:
            self._store.write(_ANY_PAIRS, {})
            self._has_pairs = True
        index, dictionary = encode_dictionary(batch.column("item"))
        out = among(fingerprints(self._keys.pairs.item, dictionary), self._out)
        yield batch.filter(pa.array(~out[index])) if out.any() else batch

    def _see(self, kinds: bytes) -> None:
        """Remember of what type ids are, by the schema; nothing to be kept from the launcher."""
        if not kinds:
            return
        if self._earlier_kinds and kinds != self._earlier_kinds:
            raise DataError(OTHER_KINDS)
        if kinds != self._last_kinds:
            name = _KINDS + hashlib.sha256(kinds).hexdigest()[:16]
            self._store.write(name, {"kinds": pa.array([kinds], pa.large_binary())})
            self._last_kinds = kinds


class _Extend(BuildsBlocks):
    """(block, messages with the night's pairs, and its turn) -> (block, Block), and the block's part of the state.

    Args:
      number: of the night; again: it is made, and only its digest is wanted.
    """

    def __init__(
        self,
        store: RunStore,
        files: _SeriesFiles,
        sizes: Sizes,
        cap: int,
        pairs_label: str,
        number: int,
        again: bool,
    ):
        super().__init__(store)
        self._files, self._sizes, self._cap, self._again = files, sizes, cap, again
        self._label, self._night = pairs_label, number

    def setup(self) -> None:
        super().setup()
        self._pairs_key = self._store.run_key().derive(self._label)
        self._out = self._store.read(_OUT)["fp"]
        self._parts = self._files.open()

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, Block]]:
        number, elements = element
        messages = list(receive(self._store, (e for e in elements if e != _YOUR_TURN), unpack_pairs))
        night = build_block(number, messages, self._keys.pairs, 1, TWICE * self._cap) if messages else None
        rows = sum(map(rows_in, messages))
        del messages
        told: Columns = {"pairs": pairs_digest(self._pairs_key, night)}
        if self._again:
            self.built(number, rows, None)
            self._store.write(_report_name(number), told)
            return
        users = Users.nobody()
        if (parts := self._files.parts) is not None:
            users = self._parts.users(parts, number, self._sizes.num_blocks, self._out)
        users = users.arrived(night, self._night, self._keys.pairs, self._cap)
        kinds = self._files.kinds or (b"" if night is None else night.kinds)
        block = users.block(number, self._sizes.num_shards, kinds)
        told |= {
            "name": pa.array([self._parts.write_users(number, users).encode()], pa.large_binary()),
            "open": np.array([len(users.links)], np.int64),
            "shards": np.array([shard for shard, _ in shard_slices(block)], np.int64),
        }
        self._store.write(_report_name(number), told)
        self.built(number, rows, block if block.num_items else None)
        if block.num_items:
            yield number, block


def _report_name(block: int) -> str:
    """File of what a block tells the launcher."""
    return f"extended-{block}"


def _gathered(shard: int) -> str:
    """File that says how many items of a shard were open before."""
    return f"gathered-{shard}"


def _released(shard: int) -> str:
    """File of what a shard tells the launcher."""
    return f"released-{shard}"


def _spent(block: int) -> str:
    """File that says where the energies of a block are."""
    return f"spent-{block}"


class _Gathered(BuildsBlocks):
    """shard -> (block, Block) with what its open items have gathered on earlier nights."""

    def __init__(self, store: RunStore, files: _SeriesFiles, sizes: Sizes):
        super().__init__(store)
        self._files, self._sizes = files, sizes

    def setup(self) -> None:
        super().setup()
        self._parts = self._files.open()

    def process(self, number: int) -> Iterator[tuple[int, Block]]:
        assert self._files.parts is not None
        blocks, shards = self._sizes.num_blocks, self._sizes.num_shards
        items = self._parts.items(self._files.parts, number, shards)
        self._store.write(_gathered(number), {"items": np.array([len(items.fp)], np.int64)})
        if len(items.fp):
            block = gathered_block(items, number, blocks, shards, self._files.kinds)
            self.built(block.id, None, block)
            yield block.id, block


class _Arrive(TripDoFn):
    """(shard, Shard with the sums of the arrival) -> (shard, Shard in the state before the first round)."""

    _program: NightProgram

    def process(self, element: tuple[int, Shard]) -> Iterator[tuple[int, Shard]]:
        number, shard = element
        self._keys.bind(f"arrival-{number}", [{"fp": shard.fp, **shard.sums}])
        # Noise of earlier rounds for items that nobody held: the rounds' own places are for what they add up.
        yield number, replace(shard, state=self._program.arrived(shard, Keys(self._store.run_key())))


class _KeepShard(TripDoFn):
    """(shard, Shard after the last round) -> shard; keeps what stays open, and tells what is released."""

    _program: NightProgram

    def __init__(self, stored: StoredProgram, trip: int, files: _SeriesFiles):
        super().__init__(stored, trip)
        self._files = files

    def setup(self) -> None:
        super().setup()
        self._parts = self._files.open()

    def process(self, element: tuple[int, Shard]) -> Iterator[int]:
        number, shard = element
        items, released = self._program.end(shard, self._keys)
        name = self._parts.write_items(number, items).encode()
        self._store.write(_released(number), {**released, "name": pa.array([name], pa.large_binary())})
        self.receipt(RESULT, number, len(released["fp"]))
        yield number


class _KeepEnergy(TripDoFn):
    """block -> block, after the last round; keeps what its users have left, which only the committed state names."""

    _program: NightProgram

    def __init__(self, stored: StoredProgram, trip: int, files: _SeriesFiles):
        super().__init__(stored, trip)
        self._files = files

    def setup(self) -> None:
        super().setup()
        self._parts = self._files.open()

    def process(self, number: int) -> Iterator[int]:
        with taken_for_lost("a block of the night"):
            told = self._store.read(_report_name(number))
        if len(told["shards"]):  # else it had no part in the rounds
            with taken_for_lost("a block of the night"):
                block = load_block(self._store, self._program, number, self._trip, self._keys)
            name = self._parts.write_energy(number, energy_of(block))
            self._store.write(_spent(number), {"name": pa.array([name.encode()], pa.large_binary())})
        yield number


class SeriesNight(beam.PTransform):
    """One night of a series, made by a pipeline from a bounded PCollection of its (user, item) pairs.

        with SeriesNight("november") as night:
            with beam.Pipeline(options=options) as pipeline:
                _ = pipeline | ReadPairs() | night
            night.commit()
        released = dpbeam.Series.load("november").released()

    Takes what `dpbeam.SelectPartitions` takes; of a night on which nothing came, the pipeline itself. Nothing of the
    night can be seen before `commit`, and nothing comes out of the transform but the numbers of shards that are done.
    In the context the series is held alone; left without `commit`, also where the process is killed, it stands as
    before, and the same night may be made again. A night that is made already is looked up: its pairs are compared.

    Guarantee: that of the series (docs/explanation/series.md); the same items, to the byte, as `dpbeam.Series.run`.

    Memory: of a worker one block or one shard, and 16 bytes for every item that is known or released; of the launcher
    what was released so far, and where the night before was made in one process the whole state.

    Args:
      series: its private folder, which every worker can reach: a path, or a `dpbeam.RemoteFolder`; or its window.
      night: its name; None: the next one.
      user, item, on_null: see `SelectPartitions`.
      pairs: roughly how many pairs come with it.
      item_bytes: roughly how long an item is; None: not much longer than a word or a web address.
      num_blocks, num_shards: parts of users and items, where `pairs` is not to decide; they never become fewer.

    Raises:
      InputError: on entering or `commit`, as `dpbeam.Series.run`.
      UnavailableError: another process makes a night of this series.
      ValueError: on `expand`: outside of the context, a second time, or of unbounded or windowed input.
    """

    def __init__(
        self,
        series: Folder | str | SeriesWindow,
        *,
        night: str | int | None = None,
        user: Field = "user",
        item: Field | Sequence[str] = "item",
        on_null: str = "error",
        pairs: int | None = None,
        item_bytes: float | None = None,
        num_blocks: int | None = None,
        num_shards: int | None = None,
    ):
        super().__init__()
        with naming_arguments():
            self._fields = PairFields.of(user, item, None, on_null)
        self._series, self._night, self._pairs, self._item_bytes = series, night, pairs, item_bytes
        self._num_blocks, self._num_shards = num_blocks, num_shards
        self._entered = contextlib.ExitStack()
        self._folder: RunFolder | None = None
        self._built = False

    def __enter__(self) -> SeriesNight:
        with contextlib.ExitStack() as entered:
            window = (
                self._series if isinstance(self._series, SeriesWindow) else SeriesWindow.load(self._series)
            )
            if window.store is None:
                raise SettingError(
                    f"{param('folder')}: a series in memory is out of reach of an engine's workers"
                )
            entered.enter_context(window.alone())
            config = window.plan.config
            self._window = window
            snapshot = window.snapshot
            self._number = (
                min(snapshot.state.night + 1, config.nights)
                if self._night is None
                else config.number_of(str(self._night))
            )
            self._snapshot = snapshot = window.begin(self._number, b"")
            if self._night is None and snapshot.state.night == config.nights:
                window.begin(config.nights + 1, b"")
            self._again = self._number <= snapshot.state.night
            if self._again:
                window.check_summed(snapshot, self._number)
            self._sizes, self._parts = self._state_in_parts(window.store, snapshot)
            self._files = _SeriesFiles(
                window.store.folder, PartFiles.new_attempt(), self._parts, snapshot.state.kinds
            )
            folder = RunFolder.of_part(window.store.folder.path, WORK, window.key, encrypt=window.encrypted)
            self._folder = folder
            entered.callback(folder.remove)  # not as its context, which asks for a whole night
            keys, before = Keys(window.key), snapshot.state.released_night < self._number
            known = fingerprints(keys.pairs.item, window.known)
            folder.store.write(_OUT, {"fp": np.concatenate([known, snapshot.state.released_fp[before]])})
            self._entered = entered.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Leave the night.

        Raises:
          UnavailableError: it failed because another process has taken the series over, and what it worked on away.
        """
        overtaken = (
            isinstance(error, Exception) and not isinstance(error, UnavailableError) and self._is_gone()
        )
        self._folder = None
        self._entered.close()
        if overtaken:
            assert self._window.store is not None
            raise self._window.store.faster() from error

    def _is_gone(self) -> bool:
        """Whether somebody else has removed the folder of this night, as far as the store tells."""
        with contextlib.suppress(OSError):
            return self._folder is not None and not self._folder.store.has_key
        return False

    def _state_in_parts(self, store: SeriesStore, snapshot: Snapshot) -> tuple[Sizes, Parts | None]:
        """How many parts there are to be, and what stands, in parts."""
        before = snapshot.parts
        held = len(snapshot.state.links) if before is None else before.pairs
        wanted = choose_sizes(
            None if self._pairs is None else self._pairs + held, self._num_shards, self._item_bytes
        )
        blocks, shards = self._num_blocks or wanted.num_blocks, wanted.num_shards
        if before is not None:
            blocks, shards = (
                next_part_count(len(before.blocks), blocks),
                next_part_count(len(before.shards), shards),
            )
        elif not self._again and (len(snapshot.state.user_fp) or len(snapshot.state.item_fp)):
            before = PartFiles(store, PartFiles.new_attempt()).split(snapshot.state, blocks, shards)
        return Sizes(blocks, shards), before

    def expand(self, pcoll: PCollection | PBegin) -> PCollection:
        if self._folder is None:
            raise ValueError(
                "a SeriesNight makes its night inside of its context: with SeriesNight(...) as night"
            )
        store, pipeline = self._folder.claim(), pcoll.pipeline
        self._built = True
        bind_settings(store, "night", (self._number, self._sizes))
        if isinstance(pcoll, PCollection):
            check_batch_input(pcoll)
            batches = self._batches(pcoll)
        else:
            batches = pipeline | "Nothing" >> beam.Create([]).with_output_types(pa.RecordBatch)
        files, sizes, plan = self._files, self._sizes, self._window.plan
        cap = plan.program.cap
        fresh = _LeaveOut(store, files.kinds)
        extend = _Extend(store, files, sizes, cap, SeriesWindow.PAIRS_LABEL, self._number, self._again)
        pairs = (
            batches
            | "LeaveOutKnown" >> beam.ParDo(fresh).with_output_types(pa.RecordBatch)
            | "Partition" >> PartitionByUser(store, sizes.num_blocks, TWICE * cap)
        )
        turns = pipeline | "Blocks" >> beam.Create(
            [(number, _YOUR_TURN) for number in range(sizes.num_blocks)]
        ).with_output_types(tuple[int, bytes])
        blocks = (
            (pairs, turns)
            | "PairsAndTurns" >> beam.Flatten()
            | "GroupByUser" >> beam.GroupByKey()
            | "ExtendBlocks" >> beam.ParDo(extend).with_output_types(tuple[int, Block])
        )
        if self._again:
            return blocks | "Done" >> beam.Keys()
        return self._rounds(store, blocks)

    def _batches(self, pcoll: PCollection) -> PCollection:
        """The pairs as record batches of canonical bytes."""
        with naming_arguments():
            self._fields.hinted(pcoll.element_type)
        return to_batches(pcoll, self._fields.of_batch, self._fields.of_rows)

    def _rounds(self, store: RunStore, blocks: PCollection) -> PCollection:
        files, sizes, plan = self._files, self._sizes, self._window.plan
        shards = list(range(sizes.num_shards)) if self._parts is not None else []
        gathered = (
            blocks.pipeline
            | "Shards" >> beam.Create(shards).with_output_types(int)
            | "Spread" >> beam.Reshuffle()
            | "Gathered" >> beam.ParDo(_Gathered(store, files, sizes)).with_output_types(tuple[int, Block])
        )
        program = NightProgram(plan.program, self._number, plan.counts)
        stored = StoredProgram.put(store, program, sizes.relays)
        flowing = (blocks, gathered) | "AllBlocks" >> beam.Flatten()
        flowing = flowing | "Trip1WeightPerUser" >> WeightPerUser(stored, ARRIVAL)
        if stored.relays is not None:
            flowing = flowing | "Trip1RelaySums" >> RelaySums(stored, ARRIVAL)
        flowing = (
            flowing
            | "Trip1GroupByItem" >> GroupByItem(stored, ARRIVAL)
            | "Arrive" >> beam.ParDo(_Arrive(stored, ARRIVAL)).with_output_types(tuple[int, Shard])
            | "Trip1RerouteExcess" >> RerouteExcess(stored, ARRIVAL)
        )
        if stored.relays is not None:
            flowing = flowing | "Trip1RelayReplies" >> RelayReplies(stored, ARRIVAL)
        keep = beam.ParDo(_KeepShard(stored, program.trips - 1, files)).with_output_types(int)
        done = flowing | "Rounds" >> RunTrips(stored, program, ARRIVAL + 1, release=keep)
        if plan.program.saving is None:
            return done
        left = _KeepEnergy(stored, program.trips, files)
        return (
            done
            | "Together" >> beam.Map(lambda shard: (0, shard)).with_output_types(tuple[int, int])
            | "AllDone" >> beam.GroupByKey()
            | "EachBlock" >> beam.FlatMap(lambda _: range(sizes.num_blocks)).with_output_types(int)
            | "SpreadBlocks" >> beam.Reshuffle()
            | "KeepEnergy" >> beam.ParDo(left).with_output_types(int)
        )

    def commit(self) -> SeriesState:
        """Make the night that the pipeline has come to the end of, and return what stands.

        Raises:
          InputError: the night is made, from other pairs; ids have other types than on earlier nights.
          UnavailableError: another process was faster, or the store does not answer.
          RunnerError: the runner has lost a part of the night, or the pipeline has not run to its end.
          ValueError: there was no pipeline.
        """
        if self._folder is None:
            raise ValueError("a SeriesNight commits inside of its context")
        store, window, number = self._folder.store, self._window, self._number
        snapshot = window.snapshot
        # Whoever made the night meanwhile has taken its folder away.
        if snapshot.number != self._snapshot.number:
            assert window.store is not None
            raise window.store.faster()
        self._folder.check()
        try:
            told = [store.read(_report_name(block)) for block in range(self._sizes.num_blocks)]
            released = {shard: store.read(_released(shard)) for shard in self._reached(store, told)}
            energies = [self._energy(store, *of_block) for of_block in enumerate(told)]
        except FileNotFoundError:
            if self._built:
                raise RunnerError("the runner lost a part of the night") from None
            raise ValueError("the pipeline of the night has not run to its end") from None
        kinds = self._kinds(store)
        pairs = np.array([part["pairs"] for part in told], np.uint64).sum(axis=0)
        digest = window.digest(number, pairs, kinds)
        window.check_night(snapshot, number, kinds)
        if self._again:
            window.check_same(snapshot, number, digest)
            return snapshot.state
        parts = Parts(
            tuple(_name(part) for part in told),
            tuple(_name(released.get(shard)) for shard in range(self._sizes.num_shards)),
            tuple(energies),
            sum(int(part["open"][0]) for part in told),
        )
        columns = [released[shard] for shard in sorted(released)]
        public = replace(snapshot.state.public(), kinds=kinds or snapshot.state.kinds)
        rounds = window.plan.program.schedule.of_night(number).stop
        state = with_released(public, columns, number, rounds)
        window.commit(replace(snapshot, state=state, parts=parts, digests=(*snapshot.digests, digest)))
        return state

    @property
    def store(self) -> RunStore:
        """The private folder of the night, inside of its context."""
        if self._folder is None:
            raise ValueError("a SeriesNight has a folder inside of its context")
        return self._folder.store

    @property
    def any_pairs(self) -> bool:
        """Whether a pair has come, once the pipeline has run. Raises RunnerError where the runner has lost some."""
        if self._folder is None:
            return False
        self._folder.check()
        return self._folder.store.exists(_ANY_PAIRS)

    @staticmethod
    def _kinds(store: RunStore) -> bytes:
        """Of the night's ids; empty where nothing says so."""
        return one_kind(store.read(name)["kinds"][0].as_py() for name in store.names(_KINDS))

    def _reached(self, store: RunStore, told: list[Columns]) -> set[int]:
        """The shards that have an item."""
        if self._again:
            return set()
        shards = {int(shard) for part in told for shard in part["shards"]}
        if self._parts is None:
            return shards
        every = range(self._sizes.num_shards)
        return shards | {s for s in every if int(store.read(_gathered(s))["items"][0])}

    def _energy(self, store: RunStore, block: int, told: Columns) -> str:
        """The file of what the users of a block have left; "" where nothing is saved, or they took no part."""
        saves = self._window.plan.program.saving is not None and not self._again
        return _name(store.read(_spent(block))) if saves and len(told["shards"]) else ""

    def display_data(self) -> dict[str, Any]:
        config = self._window.plan.config if self._folder is not None else None
        return {} if config is None else {"epsilon": config.epsilon, "delta": config.delta}


def _name(part: Columns | None) -> str:
    return "" if part is None else part["name"][0].as_py().decode()
