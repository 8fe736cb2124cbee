"""`HittingSet`: the public PTransform of k-hitting set."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from apache_beam.pvalue import PCollection

from dpbeam.errors import naming_arguments
from dpbeam.hitting.config import plan_hitting_set
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.hitting.program import GATHERED_PAIRS, HittingSetProgram
from dpbeam.rows.elements import Field, PairFields
from dpbeam.rows.lists import ListedItems
from dpbeam.selection.columns import arrow_fields
from dpbeam.selection.pipeline_run import of_run
from dpbeam.selection.sizes import choose_sizes
from dpbeam.selection.transforms import ProgramTransform, asked_for, check_sizes

#: A job of more trips than this may be too deep for an engine; `dpbeam hitting-set` runs a chain of jobs.
TRIPS_IN_ONE_JOB = 128


class HittingSet(ProgramTransform):
    """At most k items that as many users as possible hold one of, under (epsilon, delta)-differential privacy.

        chosen = rows | dpbeam.HittingSet(epsilon=1, delta=1e-8, k=50, user="user_id", item="query", pairs=1_000_000)

    Input and arguments that are not explained here: see `SelectPartitions`. Returns rows with a schema: the item
    under its own name, and `rank`, the order of the choice, from 1.

    Guarantee: add/remove one user; users may hold any number of items, of which all count. Replacing a user costs
    2 epsilon and (1 + e^epsilon) delta.

    Memory per worker: one block or one shard. Where there are no more than `GATHERED_PAIRS` pairs, one worker holds the
    sets of users restricted to the domain, equal ones once, and the rounds run there; else each round is a trip.

    Args:
      config: all settings in one object, in place of those that follow.
      epsilon, delta, k, selector, selector_share, max_items_per_user, preset: see `dpbeam.hitting_set`.
      domain: see `TopKItems`.
      num_shards: with it each round is a trip.

    Raises:
      InputError: settings are out of range, or the input's items are of another kind than the domain's.
      ValueError: settings and domain disagree; or as in `SelectPartitions`.
    """

    family = "hitting-set"

    def __init__(
        self,
        config: HittingSetConfig | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        k: int | None = None,
        selector: str | None = None,
        selector_share: float | None = None,
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
                HittingSetConfig.of_arguments,
                HittingSetConfig,
                config,
                epsilon=epsilon,
                delta=delta,
                k=k,
                selector=selector,
                selector_share=selector_share,
                public_domain=config is None and domain is not None,
                max_items_per_user=max_items_per_user,
                preset=preset,
                **settings,
            )
            plan = plan_hitting_set(config)
            check_sizes(num_shards=num_shards, pairs=pairs, item_bytes=item_bytes)
            gather = num_shards is None and pairs is not None and pairs <= GATHERED_PAIRS
            fields = PairFields.of(user, item, item_type, on_null)
            super().__init__(
                plan,
                functools.partial(HittingSetProgram, plan, gather=gather),
                choose_sizes(pairs, num_shards, item_bytes),
                fields=fields,
                released=arrow_fields(config.columns()),
                as_batches=as_batches,
                domain=None if domain is None else ListedItems.of("domain", domain, fields),
                **run,
            )

    def expand(self, pcoll: PCollection) -> PCollection:
        trips = self.program.trips
        if trips > TRIPS_IN_ONE_JOB and not self.sizes.one_step:
            raise ValueError(
                f"{trips} trips are too many for one job: say how many pairs there are (pairs=), take a smaller k, or "
                "use `dpbeam hitting-set`, which runs a chain of jobs"
            )
        return super().expand(pcoll)

    def display_data(self) -> dict[str, Any]:
        return {**super().display_data(), "k": self.plan.config.k}
