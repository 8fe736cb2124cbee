"""`CountItems`: the public PTransform of counts of a public list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import Unpack

from dpbeam.counting.config import plan_count
from dpbeam.counting.family import CountConfig
from dpbeam.errors import SettingError, naming_arguments
from dpbeam.rows.elements import Field, PairFields
from dpbeam.rows.lists import ListedItems
from dpbeam.selection.columns import arrow_fields
from dpbeam.selection.pipeline_run import RunArguments
from dpbeam.selection.sizes import choose_sizes
from dpbeam.selection.transforms import ProgramTransform, asked_for, check_sizes


class CountItems(ProgramTransform):
    """A noisy number of users of every item of a public list, under (epsilon, delta)-differential privacy.

        counted = rows | dpbeam.CountItems(epsilon=1, delta=1e-8, domain=["tea"], user="user_id", item="query")

    Input and arguments that are not explained here: see `SelectPartitions`. Returns rows with a schema: the item
    under its own name, `noisy_count` and `noisy_count_sd`. Items that nobody holds are counted like all others.

    Guarantee: add/remove one user; users may hold any number of items.

    Memory per worker: one block or one shard, and in one worker 24 bytes and the item itself per item of the list.

    Args:
      config: epsilon and delta in one object.
      domain: the list, given as `public_items` of `SelectPartitions`; other items are left out.

    Raises:
      InputError: settings are out of range, or the input's items are of another kind than the list's.
      ValueError: as in `SelectPartitions`.
    """

    family = "count"

    def __init__(
        self,
        config: CountConfig | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        user: Field = "user",
        item: Field | Sequence[str] = "item",
        item_type: Any = None,
        on_null: str = "error",
        domain: Any = None,
        num_shards: int | None = None,
        pairs: int | None = None,
        item_bytes: float | None = None,
        as_batches: bool = False,
        **run: Unpack[RunArguments],
    ):
        with naming_arguments():
            plan = plan_count(asked_for(CountConfig, CountConfig, config, epsilon=epsilon, delta=delta))
            if domain is None:
                raise SettingError("domain is required: the items to count, which must be public")
            check_sizes(num_shards=num_shards, pairs=pairs, item_bytes=item_bytes)
            fields = PairFields.of(user, item, item_type, on_null)
            super().__init__(
                plan,
                plan.program,
                choose_sizes(pairs, num_shards, item_bytes),
                fields=fields,
                released=arrow_fields(plan.config.columns()),
                as_batches=as_batches,
                domain=ListedItems.of("domain", domain, fields),
                **run,
            )
