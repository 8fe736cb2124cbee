"""A series on canonical pairs: nights, erasures and the end, in memory or with a private folder behind it.

A night is made once. The same night on the same pairs gives what it gave; on other pairs it is refused, since keyed
noise on other data would show the difference. Every change is committed before anything of it can be seen.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.accounting.events import event_to_dict
from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.versions import versions
from dpbeam.engine.program import Keys
from dpbeam.errors import DataError, SettingError, StoreError, UnavailableError, param
from dpbeam.families.base import OutputColumn
from dpbeam.kernels import canonical
from dpbeam.kernels.columns import decode, encode_map
from dpbeam.randomness import RunKey, fingerprints
from dpbeam.series.config import SeriesPlan, plan_series, series_ledger
from dpbeam.series.counts import with_counts
from dpbeam.series.family import SeriesConfig
from dpbeam.series.folder import Folder
from dpbeam.series.night import run_kept
from dpbeam.series.parts import PartFiles, Parts, names_of
from dpbeam.series.state import SeriesState, input_fingerprint, kinds_of, pairs_digest
from dpbeam.series.store import SeriesStore, unreadable

_KNOWN = "known"
#: Column of what is released so far, beside the items.
NIGHT = "night"
NIGHT_COLUMN = OutputColumn(NIGHT, str, "released")
#: Settings of callers that are lists of names; the others are one.
_LISTS = ("item", "item_type", "known_kinds")
OTHER_KINDS = (
    "user or item ids have other types than on earlier nights; convert them: the same user must have "
    "the same id on all nights"
)
_FIRST_DIGEST = 32  # bytes of the digests of a format before
#: The version from which on nights are computed alike, to the bit. Whoever changes noise, ranks or scores of a series
#: puts the version of the change here: windows that are open then end with the one before.
_COMPUTED_SINCE = "1.0.0"


def _made_with(plan: SeriesPlan) -> dict[str, str]:
    """What all nights must have in common: they compute noise and scores of earlier rounds anew, to the bit."""
    event = json.dumps(event_to_dict(plan.event), sort_keys=True)
    libraries = {name: version for name, version in versions().items() if name in ("numpy", "scipy")}
    calibration = hashlib.sha256(event.encode()).hexdigest()
    return {"dpbeam": _COMPUTED_SINCE, **libraries, "calibration": calibration}


def _folder(folder: Folder | str) -> Folder:
    if not isinstance(folder, str):
        return folder
    if "://" in folder:
        raise SettingError(f"{param('folder')} must be a folder of this machine, got '{folder}'")
    return Folder(folder)


def config_of(folder: Folder, values: Mapping[str, Any]) -> SeriesConfig:
    """What a series was asked to do when it was opened.

    Args:
      values: of `SeriesStore.settings_of`.

    Raises:
      InputError: naming the folder: a value is missing, out of range, or of another form.
    """
    try:
        kept = values["settings"]
        if kept and not {"user", *_LISTS, *(("format",) if "output" in kept else ())} <= set(kept):
            raise ValueError
        if not all(_as_kept(name, value) for name, value in kept.items()):
            raise ValueError
        return SeriesConfig.of_parameters(values["epsilon"], values["delta"], values["parameters"])
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        raise unreadable(folder) from None


def _as_kept(name: str, value: Any) -> bool:
    """Whether a setting of a caller has the form that callers give it: a name, or a list of names that may be None."""
    if name not in _LISTS:
        return isinstance(value, str)
    if value is None:
        return name != "item"
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


@dataclass(frozen=True)
class Snapshot:
    """What stands after so many changes.

    Attributes:
      state: in full, or where it is in parts without users and open items.
      digests: keyed, of each night's pairs.
      closed: whether the series ended.
      number: of changes.
      parts: where users and open items are; None: in `state`.
    """

    state: SeriesState = field(default_factory=SeriesState.empty)
    digests: tuple[bytes, ...] = ()
    closed: bool = False
    number: int = 0
    parts: Parts | None = None

    def to_bytes(self) -> bytes:
        """What its file holds."""
        digests = pa.array(self.digests, pa.large_binary())
        state = self.state.to_columns() if self.parts is None else self.state.public_columns()
        parts = {} if self.parts is None else self.parts.to_columns()
        return encode_map({**state, **parts, "digests": digests, "closed": np.array([self.closed])})

    @classmethod
    def from_bytes(cls, data: bytes, number: int) -> Snapshot:
        """Inverse of `to_bytes`; `number`: that of the file."""
        columns: dict[str, Any] = decode(data)
        digests = tuple(columns["digests"].to_pylist())
        closed, parts = bool(columns["closed"][0]), Parts.from_columns(columns)
        return cls(SeriesState.from_columns(columns), digests, closed, number, parts)


class _Memory:
    """What a series without a folder keeps, and who may change it: one thread at a time, of the process that opened it.

    Another process has nothing but a copy from when it was forked, key included, and would make the same night from
    other data.
    """

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self._process, self._busy = os.getpid(), threading.Lock()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """As `SeriesStore.locked`, but held once.

        Raises:
          InputError: this is another process.
          UnavailableError: another thread holds it.
        """
        if os.getpid() != self._process:
            raise SettingError(
                "a series in memory stays in the process that opened it, and this one was forked; "
                f"give {param('folder')}"
            )
        if not self._busy.acquire(blocking=False):
            raise UnavailableError(
                "another thread is at work on this series; the same call goes on from there"
            )
        try:
            yield
        finally:
            self._busy.release()

    def commit(self, snapshot: Snapshot) -> None:
        """As `SeriesWindow.commit`. For who holds it."""
        if snapshot.number != self.snapshot.number:
            raise UnavailableError(
                "another change of this series was faster; the same call goes on from there"
            )
        self.snapshot = replace(snapshot, number=snapshot.number + 1)


class SeriesWindow:
    """One series.

    Attributes:
      plan: the calibrated window.
      id: a random public name.
      key: of the window; serves this series alone.
      known: canonical bytes of items that were known when it was opened.
      settings: public values that the caller keeps with it; `known_kinds`, the kinds of known items, and `user`, the
        column of users, are looked at.
      store: the private folder, or None for a series in memory.
    """

    #: Under which workers derive `pairs_key` from the key.
    PAIRS_LABEL = "series/pairs"

    def __init__(
        self,
        plan: SeriesPlan,
        number: str,
        key: RunKey,
        known: pa.Array,
        settings: Mapping[str, Any],
        store: SeriesStore | None,
    ):
        self.plan = plan
        self.id = number
        self.key = key
        self.known = known
        self.settings = dict(settings)
        self.store = store
        self._memory = _Memory()

    @classmethod
    def open(
        cls,
        config: SeriesConfig,
        key: RunKey,
        known: pa.Array | None = None,
        folder: Folder | str | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        encrypt: bool = False,
    ) -> SeriesWindow:
        """A new series.

        Args:
          key: a fresh one; it is spent.
          known: distinct canonical bytes of items that are out already.
          folder: where it lives, one of this machine by its path; None for memory.
          settings: JSON values to keep with it.
          encrypt: the folder, under the folder key of the environment (`dpbeam.engine.seal`).

        Raises:
          InputError: settings are out of range, the folder is not free, or there is no folder key.
          ValueError: the key has served a run.
        """
        if encrypt and folder is None:
            raise SettingError(
                f"{param('encrypt_intermediates')}: a series in memory has nothing to encrypt; give {param('folder')}"
            )
        plan = plan_series(config)
        key.spend()
        known = pa.array([], pa.large_binary()) if known is None else known
        number, settings = secrets.token_hex(8), settings or {}
        store = None
        if folder is not None:
            values = {
                "series": number,
                "epsilon": config.epsilon,
                "delta": config.delta,
                "parameters": config.stated(),
                "made_with": _made_with(plan),
                "settings": dict(settings),
            }
            store = SeriesStore.create(
                _folder(folder), values, key, {_KNOWN: encode_map({"items": known})}, encrypt=encrypt
            )
        return cls(plan, number, key, known, settings, store)

    @classmethod
    def load(cls, folder: Folder | str) -> SeriesWindow:
        """A series that lies in a folder.

        Raises:
          InputError: there is none, or it was changed; or its folder key is not in the environment.
        """
        store = SeriesStore.load(_folder(folder))
        values = store.settings
        config = config_of(store.folder, values)
        try:
            known = decode(store.read_file(_KNOWN))["items"]
        except FileNotFoundError:
            raise unreadable(store.folder) from None
        if len(known) and values["settings"].get("known_kinds", ()) is None:
            raise unreadable(store.folder)
        plan = plan_series(config)
        return cls(plan, values["series"], store.key, known, values["settings"], store)

    @property
    def snapshot(self) -> Snapshot:
        """What stands."""
        if self.store is None:
            return self._memory.snapshot
        number, data = self.store.read()
        return Snapshot.from_bytes(data, number) if data else Snapshot()

    @property
    def encrypted(self) -> bool:
        """Whether its folder is."""
        return self.store is not None and self.store.encrypted

    def ledger(self, night: int | None = None) -> Ledger:
        """The ledger of the window, or of one of its nights; for callers who keep the column of users."""
        return series_ledger(
            self.plan,
            series_id=self.id,
            fixed_key=self.key.insecure,
            user_column=self.settings["user"],
            night=night,
            known_items=len(self.known) > 0,
        )

    def released_so_far(
        self, state: SeriesState, night: int, names: tuple[str, ...], kinds: tuple[str, ...]
    ) -> pa.Table:
        """All items that were released up to a night, with the night and the noisy count of each.

        Args:
          names, kinds: of the item columns.
        """
        items, nights, noisy = state.released_until(night)
        days = pa.array([self.plan.config.name_of(int(one)) for one in nights], pa.string())
        table = pa.Table.from_arrays([*canonical.decode(items, kinds), days], names=[*names, NIGHT])
        return with_counts(table, noisy, self.plan.counts)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Hold the series alone, for several steps.

        Raises:
          InputError: it is in the memory of another process.
          UnavailableError: another process or thread changes it.
        """
        return (self._memory if self.store is None else self.store).locked()

    def commit(self, snapshot: Snapshot) -> None:
        """The change that follows those that `made.number` counts, and no other one.

        Raises:
          UnavailableError: another process, or another call, has made it.
        """
        if self.store is None:
            self._memory.commit(snapshot)
        else:
            parts = names_of(snapshot.parts)
            self.store.check_there(parts)
            self.store.commit(snapshot.number + 1, snapshot.to_bytes())
            self.store.sweep(parts, snapshot.number + 1)

    def run(self, night: int, users: pa.Array, items: pa.Array, kinds: bytes) -> SeriesState:
        """Make a night, or look up one that is made.

        Args:
          night: its number, from 1.
          users, items: (n,) canonical bytes of the pairs that came with it, without nulls; they may repeat.
          kinds: what the canonical bytes stand for, by the schema, so also where no pair came: the same for all nights;
            empty where nothing says so.

        Returns:
          The state that stands; what the night has released is in it.

        Raises:
          InputError: the night is not the next one, was made from other pairs, or holds ids of other types; or the
            series is in the memory of another process.
          UnavailableError: another process or thread makes a night of this series.
        """
        with self.alone():
            snapshot, keys, cap = self.begin(night, kinds), Keys(self.key), self.plan.program.cap
            fresh = pc.invert(canonical.is_listed(items, self.known))
            kept = snapshot.state.kept(users.filter(fresh), items.filter(fresh), keys.pairs, cap, night)
            digest = self.digest(night, pairs_digest(self.pairs_key, kept), kinds)
            if night <= snapshot.state.night:
                if len(snapshot.digests[night - 1]) == _FIRST_DIGEST:
                    digest = self._first_digest(night, users, items, kinds, keys)
                self.check_same(snapshot, night, digest)
                return snapshot.state
            state = replace(self.whole(snapshot), kinds=kinds or snapshot.state.kinds)
            state = run_kept(self.plan.program, state, kept, keys, self.plan.counts)
            self.commit(replace(snapshot, state=state, parts=None, digests=(*snapshot.digests, digest)))
            return state

    def begin(self, night: int, kinds: bytes) -> Snapshot:
        """What stands before a night is made, or looked up if it is made, without what killed runs have left beside it.
        For who holds the series alone.

        Args and errors: see `check_night`.
        """
        snapshot = self._tidied()
        self.check_night(snapshot, night, kinds)
        return snapshot

    def check_night(self, snapshot: Snapshot, night: int, kinds: bytes) -> None:
        """Refuse a night that is neither made nor the next one, or ids of other types.

        Args:
          kinds: what the canonical bytes stand for; empty where nothing says so.

        Raises:
          InputError: see `run`, but for the pairs.
        """
        if kinds and snapshot.state.kinds and kinds != snapshot.state.kinds:
            raise DataError(OTHER_KINDS)
        self._check_known(kinds)
        if night <= snapshot.state.night:
            return
        self._check_open(snapshot)
        if night > self.plan.config.nights:
            raise StoreError(
                f"all {self.plan.config.nights} nights of the series are made; open the next one"
            )
        if night != snapshot.state.night + 1:
            raise StoreError(
                f"{param('night')}: night {self.plan.config.name_of(snapshot.state.night + 1)} comes next; "
                "nights are made in their order, each of them, also where nothing came"
            )

    def check_summed(self, snapshot: Snapshot, night: int) -> None:
        """Refuse to compare the pairs of a made night part by part where its digest is not a sum (`_first_digest`).

        Raises:
          InputError: the night was made before states could be in parts.
        """
        if len(snapshot.digests[night - 1]) == _FIRST_DIGEST:
            raise StoreError(
                f"{param('night')} {self.plan.config.name_of(night)} is out, and was made before nights could be made "
                "on an engine: only one process can compare its pairs, so give it without an engine "
                f"({param('runner')})"
            )

    def check_same(self, snapshot: Snapshot, night: int, digest: bytes) -> None:
        """Refuse other pairs for a night that is made.

        Raises:
          InputError: the digests differ.
        """
        if not hmac.compare_digest(digest, snapshot.digests[night - 1]):
            raise StoreError(
                f"{param('night')} {self.plan.config.name_of(night)} is out, and was made from "
                "other pairs; nothing was read into the series"
            )

    def whole(self, snapshot: Snapshot) -> SeriesState:
        """The state with all users and open items."""
        if snapshot.parts is None or self.store is None:
            return snapshot.state
        return PartFiles(self.store, "").joined(snapshot.parts, snapshot.state)

    def _tidied(self) -> Snapshot:
        """What stands, without what killed runs have left beside it."""
        snapshot = self.snapshot
        if self.store is not None:
            self.store.sweep(names_of(snapshot.parts), snapshot.number)
        return snapshot

    def erase(self, users: pa.Array) -> None:
        """Take users (canonical bytes) out of all nights that are still to come.

        Raises:
          InputError: the series is closed.
          UnavailableError: another process changes the series.
        """
        with self.alone():
            snapshot = self._tidied()
            self._check_open(snapshot)
            fp = fingerprints(Keys(self.key).pairs.user, pc.unique(users))
            if snapshot.parts is not None and self.store is not None:
                files = PartFiles(self.store, PartFiles.new_attempt())
                parts = files.without(snapshot.parts, fp, snapshot.state.released_fp)
                if parts != snapshot.parts:
                    self.commit(replace(snapshot, parts=parts))
                return
            state = snapshot.state.without_fp(fp)
            if len(state.links) < len(snapshot.state.links):
                self.commit(replace(snapshot, state=state))

    def close(self) -> None:
        """End the series: no night can be made any more, and what its users brought is removed.

        Raises:
          UnavailableError: another process changes the series.
        """
        with self.alone():
            snapshot = self._tidied()
            if not snapshot.closed:
                self.commit(replace(snapshot, state=snapshot.state.public(), parts=None, closed=True))

    def _check_known(self, kinds: bytes) -> None:
        if kinds and len(self.known) and list(kinds_of(kinds).item) != self.settings["known_kinds"]:
            raise DataError(
                f"items are of another type than the known ones ({', '.join(self.settings['known_kinds'])}), which "
                f"would not be recognised; open the series with {param('item_type')} as the input has it"
            )

    def check_paid(self) -> None:
        """Refuse a series of the command whose opening has not come to its end: no account may have paid for it.

        Raises:
          InputError: naming the folder.
        """
        if self.store is not None and "output" in self.settings and not self.store.opened:
            raise StoreError(
                f"{param('folder')}: the opening of this series was cut short; give dpbeam series open again"
            )

    def _check_open(self, snapshot: Snapshot) -> None:
        self.check_paid()
        if snapshot.closed:
            raise StoreError(
                "the series is closed; open another one, with what this one released as known items"
            )
        now = _made_with(self.plan)
        before = now if self.store is None else self.store.settings["made_with"]
        for name, value in now.items():
            if before.get(name) != value:
                raise StoreError(
                    f"{param('folder')}: the series was opened with another {name}; go on with the "
                    "software that opened it, or close it: a late item must get what it would have got from the start"
                )

    @property
    def pairs_key(self) -> bytes:
        """Of `pairs_digest`."""
        return self.key.derive(self.PAIRS_LABEL)

    def digest(self, night: int, pairs: np.ndarray, kinds: bytes) -> bytes:
        """Keyed, of the pairs of a night that can matter (`SeriesState.kept`).

        Args:
          pairs: of `pairs_digest`.
        """
        text = f"{night}\0pairs\0".encode() + (kinds if pairs[2] else b"") + b"\0" + pairs.tobytes()
        return b"2" + hmac.digest(self.key.derive("series/input"), text, hashlib.sha256)

    def _first_digest(self, night: int, users: pa.Array, items: pa.Array, kinds: bytes, keys: Keys) -> bytes:
        """As it was of nights that were made before a state could be in parts: of all distinct pairs."""
        digest = hmac.new(self.key.derive("series/input"), f"{night}\0".encode(), hashlib.sha256)
        digest.update(kinds if len(users) else b"")
        for part in input_fingerprint(users, items, keys.pairs):
            digest.update(part)
        return digest.digest()
