"""`TopKItems`: the public PTransform of top-k."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from dpbeam.errors import naming_arguments
from dpbeam.rows.elements import Field, PairFields
from dpbeam.rows.lists import ListedItems
from dpbeam.selection.columns import arrow_fields
from dpbeam.selection.pipeline_run import of_run
from dpbeam.selection.sizes import choose_sizes
from dpbeam.selection.transforms import ProgramTransform, asked_for, check_sizes
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.program import topk_program


class TopKItems(ProgramTransform):
    """The (at most) k items that most users hold, with their ranks, under (epsilon, delta)-differential privacy.

        top = rows | dpbeam.TopKItems(epsilon=1, delta=1e-8, k=100, user="user_id", item="query")

    Input and arguments that are not explained here: see `SelectPartitions`. Returns rows with a schema: the item
    under its own name, `rank` from 1, and where asked for `noisy_count`. A PCollection has no order: sort by `rank`.

    Guarantee: add/remove one user; users may hold any number of items, of which all count. Replacing a user costs
    2 epsilon and (1 + e^epsilon) delta.

    Memory per worker: one block or one shard, and in one worker 24 bytes and the item itself per item of the domain.

    Args:
      config: all settings in one object, in place of those that follow.
      epsilon, delta, k, mechanism, selector, selector_share, kbar: see `dpbeam.top_k`.
      noisy_counts, noisy_count_share, max_items_per_user, preset: see `dpbeam.top_k`.
      domain: a public domain, given as `public_items` of `SelectPartitions`; there is then no selection. Other items
        are left out before anything is counted.

    Raises:
      InputError: settings are out of range, or the input's items are of another kind than the domain's.
      ValueError: settings and domain disagree; or as in `SelectPartitions`.
    """

    family = "top-k"

    def __init__(
        self,
        config: TopKConfig | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        k: int | None = None,
        mechanism: str | None = None,
        selector: str | None = None,
        selector_share: float | None = None,
        kbar: int | None = None,
        noisy_counts: bool = False,
        noisy_count_share: float | None = None,
        max_items_per_user: int | None = None,
        preset: str | None = None,
        user: Field = "user",
        item: Field | Sequence[str] = "item",
        item_type: Any = None,
        on_null: str = "error",
        domain: Any = None,
        num_shards: int | None = None,
        pairs: int | None = None,
        item_bytes: float | None = None,
        as_batches: bool = False,
        **more: Any,
    ):
        run, settings = of_run(more)
        with naming_arguments():
            config = asked_for(
                TopKConfig.of_arguments,
                TopKConfig,
                config,
                epsilon=epsilon,
                delta=delta,
                k=k,
                mechanism=mechanism,
                selector=selector,
                selector_share=selector_share,
                public_domain=config is None and domain is not None,
                kbar=kbar,
                noisy_counts=noisy_counts,
                noisy_count_share=noisy_count_share,
                max_items_per_user=max_items_per_user,
                preset=preset,
                **settings,
            )
            plan = plan_topk(config)
            check_sizes(num_shards=num_shards, pairs=pairs, item_bytes=item_bytes)
            fields = PairFields.of(user, item, item_type, on_null)
            super().__init__(
                plan,
                functools.partial(topk_program, plan),
                choose_sizes(pairs, num_shards, item_bytes),
                fields=fields,
                released=arrow_fields(config.columns()),
                as_batches=as_batches,
                domain=None if domain is None else ListedItems.of("domain", domain, fields),
                **run,
            )

    def display_data(self) -> dict[str, Any]:
        config = self.plan.config
        return {**super().display_data(), "k": config.k, "mechanism": config.mechanism}
