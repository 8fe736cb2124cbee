"""What a kind of release of somebody's own must do, as tests to inherit (docs/how-to/add_a_family.md).

They run its program on small data in memory, and once each on Beam and by its command. What one user more changes is
seen by a replay: the noisy numbers of a run are pinned while the same program runs with one user more. It may then
broadcast and release nothing else, and what noise is added to may move by no more than the events say.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import tempfile
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.options.pipeline_options import PipelineOptions

from dpbeam.accounting.events import event_to_dict, leaves
from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.noise import StatedNoise
from dpbeam.cli import main
from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.in_process import build_blocks, output_batches, run_trips
from dpbeam.engine.program import Decided, Draw, Keys, Program
from dpbeam.errors import InputError
from dpbeam.families.base import Release, Table
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard
from dpbeam.randomness import RunKey
from dpbeam.review.families import calibrated_anew

ITEMS = tuple(f"item {i}" for i in range(12))
_RARE = tuple(f"rare {i}" for i in range(8))
#: A public list: not all that is held, and what nobody holds.
LISTED = (*ITEMS[:10], "held by nobody")
#: Of one item each; items 2i and 2i + 1 have as many, so that one user more decides a ranking. Noise
#: decides on the rare.
PAIRS = (
    *((f"user {i} {u}", item) for i, item in enumerate(ITEMS) for u in range(10 * (i // 2 + 1))),
    *((f"rare {i} {u}", item) for i, item in enumerate(_RARE) for u in range(i + 1)),
)
#: What one user more holds, by a name for messages.
NEWCOMERS = {
    "all items": ITEMS,
    "one item": ITEMS[:1],
    "even items": ITEMS[::2],
    "odd items": ITEMS[1::2],
    "a listed item that nobody holds": LISTED[-1:],
    "an item of nobody else": ("new",),
}
BUDGET = {"epsilon": 4.0, "delta": 0.01}
_KEY, _OTHER_KEYS = "0a", [f"b{n}" for n in range(8)]


class KindContract:
    """Tests of a kind of release, for pytest: a class that inherits them says what they try.

    The release function, the PTransform and the command run on the same pairs of columns `user` and `item`.

    Attributes:
      kind: the kind of release.
      needed: the settings that have no default.
      others: settings with other values than their defaults, which go together; each setting stands in one of them.
      untried: setting -> where it is tried instead.
      listed: a public list; None where the kind has none.
      elsewhere: name of a test, without `test_` -> where another one stands for it, as for a hub that decides by exact
        numbers.
    """

    kind: ClassVar[type[Release]]
    needed: ClassVar[Mapping[str, Any]] = {}
    others: ClassVar[Sequence[Mapping[str, Any]]] = ()
    untried: ClassVar[Mapping[str, str]] = {}
    listed: ClassVar[Sequence[str] | None] = LISTED
    elsewhere: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in cls.elsewhere:
            setattr(cls, f"test_{name}", None)

    @abstractmethod
    def release(self, data: pa.Table, **arguments: Any) -> Any:
        """What the function for data in memory returns, which has `table` and `ledger`.

        Args:
          arguments: the budget, settings and `insecure_test_key`.
        """

    @abstractmethod
    def transform(self, **arguments: Any) -> Any:
        """The PTransform of the kind, which has a `ledger`.

        Args:
          arguments: those of `release`, and `as_batches` and `num_shards`.
        """

    @abstractmethod
    def program(self, plan: Any) -> Program:
        """What runs."""

    def plan(self, **settings: Any) -> Any:
        """The plan of the kind with these settings and the budget of the tests."""
        return self.config(**settings).plan()

    def config(self, **settings: Any) -> Release:
        """These settings."""
        return self.kind.asked({**BUDGET, **settings}, None if self.listed is None else "domain")

    def data(self, newcomer: Sequence[str] = ()) -> Any:
        """The data, and those with one user more, who holds these items."""
        pairs = _with(newcomer)
        return pa.table({"user": [user for user, _ in pairs], "item": [item for _, item in pairs]})

    def blocks(self, program: Program, keys: Keys, newcomer: Sequence[str] = ()) -> list[Block]:
        """The same as blocks, those of a public list alone where the kind keeps to it."""
        alone = self.listed is not None and self.kind.listed_alone
        pairs = [pair for pair in _with(newcomer) if not alone or pair[1] in (self.listed or ())]
        arrays = tuple(pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
        return list(build_blocks([arrays], keys, program.cap, num_blocks=2, num_shards=2))

    def command_line(self, folder: str) -> list[str]:
        """Flags of the command that read the data and the list, which it writes below a folder."""
        path = os.path.join(folder, "pairs.parquet")
        pq.write_table(self.data(), path)
        if self.listed is None:
            return [f"--input={path}"]
        with open(os.path.join(folder, "list.txt"), "w") as file:
            file.write("".join(f"{item}\n" for item in self.listed))
        return [f"--input={path}", f"--domain={file.name}"]

    def settings(self) -> list[dict[str, Any]]:
        """All that are tried; defaults first."""
        return [{**self.needed, **more} for more in ({}, *self.others)]

    def released(
        self, settings: Mapping[str, Any], newcomer: Sequence[str] = (), key: str | None = _KEY
    ) -> Any:
        """What is released of the data and a newcomer under these settings."""
        with _quiet():
            return self.release(self.data(newcomer), **BUDGET, **settings, insecure_test_key=key)

    def _outcome(self, settings: Mapping[str, Any]) -> Any:
        """What a setting may change, beside its value in the ledger; the message where the settings are refused."""
        try:
            released = self.released(settings)
        except InputError as error:
            return str(error)
        ledger = {**json.loads(released.ledger.to_json()), "parameters": None}
        return ledger, released.table.to_pydict(), getattr(released, "others", None)

    def test_a_ledger_leads_back_to_its_settings(self) -> None:
        for settings in self.settings():
            plan, ledger = self.plan(**settings), self.released(settings).ledger
            _same_plan(self.kind, plan, ledger)
            again = calibrated_anew(ledger)
            assert again is not None and again.same, f"{settings}: verify cannot make the plan again"
            again = calibrated_anew(replace(ledger, epsilon=ledger.epsilon / 2))
            assert again is not None and not again.same, f"{settings}: verify makes it of any budget"

    def test_a_plan_is_shown_whole(self) -> None:
        for settings in self.settings():
            parts = list(self.kind.shown(self.kind.report(self.plan(**settings))))
            assert any(isinstance(part, str) and part for part in parts), f"{settings}: no line is shown"
            for table in (part for part in parts if isinstance(part, Table)):
                assert table.rows and all(len(row) == len(table.columns) for row in table.rows), table.title
                assert all(isinstance(cell, str) for row in table.rows for cell in row), table.title

    def test_every_setting_changes_what_is_released(self) -> None:
        known = self.kind.described()
        tried = {name for settings in self.others for name in settings}
        missing = set(known) - tried - {*self.needed, *self.untried}
        assert not missing, f"others of {type(self).__name__} has no value of {', '.join(sorted(missing))}"
        for settings in self.others:
            whole = self._outcome({**self.needed, **settings})
            assert not isinstance(whole, str), whole
            for name in settings:
                rest = {other: value for other, value in settings.items() if other != name}
                assert self._outcome({**self.needed, **rest}) != whole, f"{name} changes nothing"

    def test_the_output_has_the_declared_columns(self) -> None:
        for settings in self.settings():
            released = self.released(settings)
            declared = [column.name for column in self.kind.columns_of(released.ledger.parameters)]
            names, read = released.table.schema.names, self.data().schema.names
            shown = [name for name in names if name not in read]
            assert shown == declared, f"{settings}: the output has {shown}, declared are {declared}"

    def test_noise_follows_from_the_key(self) -> None:
        for settings in self.settings():
            one, again = (self.released(settings).table for _ in range(2))
            assert one == again, f"{settings}: one key releases two things"
            others = (self.released(settings, key=key).table for key in _OTHER_KEYS)
            assert any(other != one for other in others), f"{settings}: all keys release one thing"

    def test_ledgers_of_neighbours_are_equal(self) -> None:
        for settings in self.settings():
            ledgers = [
                json.loads(self.released(settings, newcomer).ledger.to_json())
                for newcomer in ((), ITEMS, LISTED[-1:], ("new",))
            ]
            for ledger in ledgers:
                ledger.pop("release", None)
                assert ledger == ledgers[0], f"{settings}: the ledger depends on the data"

    def test_every_stated_round_matters(self) -> None:
        for settings in self.settings():
            program = self.program(self.plan(**settings))
            for number in sorted({spec.round for spec in program.noises()}):
                matters = any(
                    self._batches(program, Keys, key) != self._batches(program, _louder(number), key)
                    for key in _OTHER_KEYS
                )
                assert matters, f"{settings}: nothing depends on the noise of round {number}"

    def _batches(self, program: Program, kind: type[Keys], key: str) -> list[Any]:
        keys = kind(RunKey.insecure_fixed(key))
        finished = run_trips(program, self.blocks(program, keys), keys)
        return [batch.to_pydict() for batch in output_batches(program, finished)]

    def test_one_user_more_changes_nothing_under_the_same_noisy_numbers(self) -> None:
        for settings in self.settings():
            plan = self.plan(**settings)
            for name, newcomer in NEWCOMERS.items():
                wrong = self.replayed(self.program(plan), plan.event, newcomer)
                assert not wrong, f"{settings}, one user more of {name}: {', '.join(sorted(wrong))}"

    def replayed(self, program: Program, event: Any, newcomer: Sequence[str]) -> set[str]:
        """What one user more changes under the same noisy numbers that it must not."""
        replay, runs = _Replay(), []
        for more in ((), newcomer):
            pinned, keys = _Pinned(program, replay), Keys(RunKey.insecure_fixed(_KEY))
            finished = run_trips(pinned, self.blocks(program, keys, more), keys)
            runs.append((pinned.broadcasts, [b.to_pydict() for b in output_batches(pinned, finished)]))
            replay.end_run()
        one, two = runs
        wrong = replay.wrong
        if one[0] != two[0]:
            wrong.add("another broadcast")
        if one[1] != two[1]:
            wrong.add("another output")
        stated = {noise.round: (noise, leaf) for leaf in leaves(event) for noise in leaf.noises()}
        wrong |= {
            f"round {number} is drawn, and no event states it" for number in replay.moved.keys() - stated
        }
        for number, (noise, leaf) in stated.items():
            if number not in replay.moved:
                wrong.add(f"the noise of round {number} is not drawn")
            # An event without a sensitivity of its own is for sums of norm 1.
            elif _norm(noise, replay.moved[number]) > getattr(leaf, "sensitivity", 1.0) * (1 + 1e-6):
                wrong.add(f"more than the sensitivity of round {number}")
        return wrong

    def test_the_command_releases_what_memory_does(self) -> None:
        settings = self.settings()[-1]
        with tempfile.TemporaryDirectory() as folder, _quiet():
            prefix = os.path.join(folder, "out")
            flags = [*self.command_line(folder), *as_flags({**BUDGET, **settings}), f"--output={prefix}"]
            argv = [self.kind.name, *flags, f"--insecure_test_key={_KEY}", "--quiet"]
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                code = main(argv)
            assert code == 0, said.getvalue()
            with open(f"{prefix}.ledger.json") as file:
                _same_plan(self.kind, self.plan(**settings), Ledger.from_json(file.read()))
            shards = sorted(Path(folder).glob("out*-of-*.parquet"))
            released = pa.concat_tables([pq.read_table(shard) for shard in shards])
            assert _rows(released) == _rows(self.released(settings).table)

    def test_beam_releases_what_memory_does(self) -> None:
        """On three shards; the command makes one step of so few pairs."""
        settings = self.settings()[-1]
        with _quiet():
            arguments = {**BUDGET, **settings, "num_shards": 3, "as_batches": True}
            transform = self.transform(**arguments, insecure_test_key=_KEY)
            released = pa.Table.from_batches(_on_beam(self.data(), transform))
        assert _rows(released) == _rows(self.released(settings).table)
        _same_plan(self.kind, self.plan(**settings), transform.ledger)


class _Replay:
    """The noisy numbers of one run, and how far those of the next were from them before noise.

    Attributes:
      moved: round -> the moves of its numbers, in weight.
      wrong: what was seen on the way.
    """

    def __init__(self) -> None:
        self.moved: dict[int, list[float]] = {}
        self.wrong: set[str] = set()
        self._seen: dict[tuple[int, bytes], tuple[int, int]] = {}
        self._again: set[tuple[int, bytes]] = set()
        self._replaying = False

    def end_run(self) -> None:
        self._again.clear()
        self._replaying = True

    def pin(
        self,
        number: int,
        fp: np.ndarray,
        exact: np.ndarray,
        noisy: np.ndarray,
        alone: np.ndarray | None = None,
    ) -> np.ndarray:
        """The noisy numbers, those of the first run where it had them.

        Args:
          alone: the noise by itself, for items that only the newcomer holds.
        """
        noisy, moves = noisy.copy(), self.moved.setdefault(number, [])
        others = noisy if alone is None else alone
        for row, place in enumerate((number, one.tobytes()) for one in fp):
            if place in self._again:
                self.wrong.add(f"two numbers of round {number} have the same noise")
            self._again.add(place)
            if not self._replaying:
                self._seen[place] = int(exact[row]), int(noisy[row])
                continue
            before, pinned = self._seen.get(place, (0, int(others[row])))
            moves.append((int(exact[row]) - before) / UNITS)
            noisy[row] = pinned
        return noisy


class _Pinned(Forwarding):
    """A program whose noisy numbers are those of a replay."""

    def __init__(self, inner: Program, replay: _Replay):
        super().__init__(inner)
        self.replay = replay
        self.broadcasts: list[dict[str, Any]] = []

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        spec = self.noise(trip)
        assert spec is not None
        exact = self.exact(trip, shard).units
        noisy = self.replay.pin(spec.round, shard.fp, exact, noisy, spec.alone(noisy, exact))
        return super().observe(trip, shard, noisy, present)

    def decide(self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw) -> Decided:
        spec = self.hub_noise(trip)
        pinned = draw if spec is None else _PinnedDraw(draw, spec, self.replay)
        state, broadcast = super().decide(trip, state, summaries, pinned)
        self.broadcasts.append({name: np.asarray(values).tolist() for name, values in broadcast.items()})
        return state, broadcast


class _PinnedDraw(Draw):
    """What a hub draws, with the noisy numbers of a replay."""

    def __init__(self, inner: Draw, spec: StatedNoise, replay: _Replay):
        vars(self).update(vars(inner))
        self._inner, self._stated, self._replay = inner, spec, replay

    @property
    def spent(self) -> tuple[float, ...]:
        return self._inner.spent

    def noisy(self, exact: np.ndarray, fp: np.ndarray) -> np.ndarray:
        return self._replay.pin(self._stated.round, fp, exact, self._inner.noisy(exact, fp))


def _norm(noise: StatedNoise, moves: list[float]) -> float:
    """In which the noise protects what moves."""
    if noise.norm == "l2":
        return math.hypot(*moves)
    sizes = [abs(move) for move in moves]
    return math.fsum(sizes) if noise.norm == "l1" else max(sizes, default=0.0)


def _louder(number: int) -> type[Keys]:
    """Keys under which the noise of one round is 1000 times louder."""

    class Louder(Keys):
        def noise(self, spec: StatedNoise, fp: np.ndarray, place: str = "noise", **more: Any) -> np.ndarray:
            drawn = super().noise(spec, fp, place, **more)
            return drawn * 1000 if spec.round == number else drawn

    return Louder


def _with(newcomer: Sequence[str]) -> list[tuple[str, str]]:
    return [*PAIRS, *(("newcomer", item) for item in newcomer)]


def _same_plan(kind: type[Release], plan: Any, ledger: Ledger) -> None:
    """A ledger states the settings of a plan, and its events."""
    stated = {name: ledger.parameters.get(name) for name in kind.parameters(plan)}
    expected = json.loads(json.dumps(kind.parameters(plan)))
    assert json.loads(json.dumps(stated)) == expected, f"the ledger states {stated}, settings are {expected}"
    assert event_to_dict(ledger.events) == event_to_dict(plan.event), "the ledger has other events"


def as_flags(settings: Mapping[str, Any]) -> Iterator[str]:
    """Settings as flags of the command."""
    for name, value in settings.items():
        if isinstance(value, bool):
            yield f"--{name}" if value else f"--no_{name}"
        else:
            yield f"--{name}={value}"


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: str(sorted(row.items())))


_collected: list[pa.RecordBatch] = []


def _keep(batch: pa.RecordBatch) -> None:
    _collected.append(batch)


def _on_beam(table: pa.Table, transform: beam.PTransform) -> Iterable[pa.RecordBatch]:
    """The batches that come out of Beam's in-process runner."""
    _collected.clear()
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        batches = pipeline | beam.Create(table.to_batches(max_chunksize=100))
        _ = batches | transform | "Keep" >> beam.Map(_keep)
    return list(_collected)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that the key is fixed and the budget large."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
