"""`ItemFrequencies`: the PTransform of shares of users."""

from __future__ import annotations

from typing import Any

from frequency.family import FrequencyConfig
from typing_extensions import Unpack

from dpbeam.rows.elements import PairFields
from dpbeam.rows.lists import ListedItems
from dpbeam.selection.columns import arrow_fields
from dpbeam.selection.pipeline_run import RunArguments
from dpbeam.selection.sizes import choose_sizes
from dpbeam.selection.transforms import ProgramTransform


class ItemFrequencies(ProgramTransform):
    """A noisy share of all users for every item of a public list, under (epsilon, delta)-differential privacy.

    Elements and arguments as of `dpbeam.CountItems`; users without an item of the list are among all users.
    """

    family = "frequency"

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        domain: Any,
        clip: int = 4,
        users_share: float = 0.1,
        user: Any = "user",
        item: Any = "item",
        num_shards: int | None = None,
        pairs: int | None = None,
        as_batches: bool = False,
        **run: Unpack[RunArguments],
    ):
        plan = FrequencyConfig(epsilon, delta, clip, users_share).plan()
        fields = PairFields.of(user, item, None, "error")
        super().__init__(
            plan,
            plan.program,
            choose_sizes(pairs, num_shards),
            fields=fields,
            released=arrow_fields(plan.config.columns()),
            as_batches=as_batches,
            domain=ListedItems.of("domain", domain, fields),
            **run,
        )
