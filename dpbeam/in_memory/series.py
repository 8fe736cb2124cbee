"""`dpbeam.Series`: releases night by night from data in memory, without Beam, for one budget.

The same window, program and ledger as `dpbeam series`. A series that the command opened can go on here; one that was
opened here has no output, so the command does not go on with it.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dpbeam.accounting import arguments
from dpbeam.accounting.ledger import Ledger
from dpbeam.engine.in_process import Released
from dpbeam.errors import DataError, naming_arguments
from dpbeam.in_memory.frames import column
from dpbeam.in_memory.select import (
    Selection,
    check_names,
    declared_types,
    input_pairs,
    listed_items,
    released_table,
    run_key,
    several_names,
    warn_of_budget,
)
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import METADATA_KEY, STRING, Kinds
from dpbeam.series.family import SeriesConfig
from dpbeam.series.folder import Folder
from dpbeam.series.schedule import DEFAULT_PRESET
from dpbeam.series.state import kinds_of
from dpbeam.series.window import NIGHT_COLUMN, SeriesWindow


class Series:
    """Releases that grow from night to night, under one (epsilon, delta) for all nights together.

        series = dpbeam.Series(nights=30, epsilon=1, delta=1e-5)
        new = series.run(frame)          # the pairs of the first night
        new.items, series.released()     # what is new, and all so far with its night

    Guarantee: privacy unit one user with all its data of all nights; neighbours differ by one user; it holds against
    whoever sees all releases and chooses data and erasures by them (docs/explanation/series.md). Nothing else of a
    series may be shown before it is closed: not its key, its folder, or how many items are open.

    Runs in one thread, on users' open pairs that fit memory; `dpbeam.SeriesNight` makes a night on an engine. Without a
    folder it belongs to the process that opened it: a forked one is refused.

    Args:
      epsilon, delta: the budget of the whole window.
      nights: how many nights it has.
      preset: "steady", "balanced", "toward-end" or "last-night": when most of the budget is spent.
      max_items_per_user: items of a user that count over the whole window.
      first_night: a day such as 2026-11-01; nights are then days from this one on, and numbers from 1 without it.
      known: items that are out already, as those of an earlier window: a column, or a frame with the item columns. They
        are not released again and take nothing from anybody's share.
      noisy_counts: with every released item, a noisy number of the users that held it on that night, at
        `noisy_count_share` (default 0.2) of the budget.
      user, item, item_type: see `dpbeam.select`; with `known`, items are strings unless `item_type` says otherwise.
      folder: where the series lives, private: a path of this machine, or a `dpbeam.RemoteFolder`, which needs Beam;
        without it, in memory.
      encrypt_intermediates: encrypt the folder under the key that DPBEAM_FOLDER_KEY of the environment holds, then and
        whenever the series is loaded.
      insecure_test_key: see `dpbeam.select`.

    Raises:
      InputError: settings are out of range, or the folder is not empty.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        nights: int,
        preset: str = DEFAULT_PRESET,
        max_items_per_user: int = 300,
        first_night: str | None = None,
        known: Any = None,
        noisy_counts: bool = False,
        noisy_count_share: float | None = None,
        user: str = "user",
        item: str | Sequence[str] = "item",
        item_type: str | Sequence[str] | None = None,
        folder: Folder | str | None = None,
        encrypt_intermediates: bool = False,
        insecure_test_key: str | None = None,
    ):
        key = run_key(insecure_test_key)
        names = several_names("item", item)
        with naming_arguments():
            arguments.text("user", user)
            if not isinstance(folder, Folder | None):
                arguments.file_path("folder", folder)
            arguments.truth("encrypt_intermediates", encrypt_intermediates)
            config = SeriesConfig(
                epsilon,
                delta,
                nights,
                preset,
                max_items_per_user=max_items_per_user,
                first_night=first_night,
                noisy_counts=noisy_counts,
                noisy_count_share=noisy_count_share,
            )
            warn_of_budget(epsilon, delta, config.doubts())
            check_names(names, (NIGHT_COLUMN, *config.columns()))
            kinds = tuple(kind or STRING for kind in declared_types(item_type, names))
            listed = None if known is None else listed_items(known, names, kinds, "known")
            declared = None if item_type is None and known is None else list(kinds)
            settings = {"user": user, "item": list(names), "item_type": declared}
            settings["known_kinds"] = None if listed is None else list(kinds)
            self._window = SeriesWindow.open(
                config, key, listed, folder, settings, encrypt=encrypt_intermediates
            )

    @classmethod
    def load(cls, folder: Folder | str) -> Series:
        """The series that lives in a folder.

        Raises:
          InputError: there is none, or it is encrypted and its key is not in the environment.
        """
        series = cls.__new__(cls)
        with naming_arguments():
            series._window = SeriesWindow.load(folder)
        return series

    @property
    def nights_made(self) -> int:
        """How many nights were made."""
        return self._window.snapshot.state.night

    @property
    def closed(self) -> bool:
        """Whether the series was ended."""
        return self._window.snapshot.closed

    @property
    def ledger(self) -> Ledger:
        """The ledger of the whole window, verified."""
        return self._ledger(None)

    def run(
        self,
        data: Any,
        *,
        night: str | int | None = None,
        on_null: str = "error",
        not_private_counts: MutableMapping[str, int] | None = None,
    ) -> Selection:
        """Make the next night from the pairs that came with it, and return what it releases.

        A night that is made already gives what it gave, if the pairs are the same.

        Args:
          data: the pairs of this night, in any form that `dpbeam.select` takes; pairs of earlier nights may repeat and
            change nothing.
          night: its name, checked against the order of nights; by default the next one.
          on_null, not_private_counts: see `dpbeam.select`.

        Raises:
          InputError: see `dpbeam.select`; or the night is not the next one, or is out and was made from other pairs; or
            the series is in the memory of another process.
          UnavailableError: another process or thread makes a night of this series.
        """
        window, names = self._window, tuple(self._window.settings["item"])
        pairs = input_pairs(
            data,
            window.settings["user"],
            names,
            window.settings["item_type"],
            on_null,
            not_private_counts,
            window.plan.config.columns(),
        )
        # Users of a column without a type and a value fit any type of other nights.
        user, *held = pairs.types
        types = [of or kind for of, kind in zip(held, pairs.kinds)]
        kinds = b"" if user is None else Kinds.of_types(user, types).metadata()[METADATA_KEY]
        with naming_arguments():
            number = self.nights_made + 1 if night is None else window.plan.config.number_of(str(night))
            state = window.run(number, pairs.users, pairs.items, kinds)
        now = state.released_night == number
        items, counts = state.released.filter(pa.array(now)), window.plan.counts
        numbers = np.zeros(len(items))
        if counts is not None:
            noisy = state.released_count[now].astype(np.float64)
            numbers = np.stack((noisy, np.full(len(items), counts.deviation)), axis=1)
        table = released_table(
            Released(items, numbers),
            None,
            names,
            _item_kinds(state.kinds, names),
            window.plan.config.columns(),
        )
        return Selection(table, self._ledger(number))

    def released(self) -> pa.Table:
        """Everything released so far: the item columns, and `night`, the name of the night that released it.

        A series with noisy counts adds these and their standard deviation.
        """
        state, names = self._window.snapshot.state, tuple(self._window.settings["item"])
        columns = names if len(names) > 1 else ("item",)
        return self._window.released_so_far(state, state.night, columns, _item_kinds(state.kinds, names))

    def erase(self, users: Any) -> None:
        """Take users out of all nights that are still to come.

        What they gave to items before stays in sums that nobody sees; ranks that they have used stay used.

        Args:
          users: a column of users. Who is not in the series changes nothing.

        Raises:
          InputError: the column holds a null or another type than the users have.
        """
        ids, kind = canonical.encode(column(users, "users").values, "users")
        if ids.null_count:
            raise DataError("users holds a null; remove it")
        known = self._window.snapshot.state.kinds
        if known and len(ids) and kind != kinds_of(known).user:
            raise DataError(
                f"users holds {kind} values, but the users of the series are {kinds_of(known).user}"
            )
        with naming_arguments():
            self._window.erase(canonical.plain(ids))

    def close(self) -> None:
        """End the series; what its users brought is forgotten. Budget that no night has used is not given back."""
        with naming_arguments():
            self._window.close()

    def _ledger(self, night: int | None) -> Ledger:
        ledger = self._window.ledger(night)
        ledger.verify()
        return ledger


def _item_kinds(metadata: bytes, names: tuple[str, ...]) -> tuple[str, ...]:
    """Kinds of the item columns; strings before the first pairs."""
    return kinds_of(metadata).item if metadata else (STRING,) * len(names)
