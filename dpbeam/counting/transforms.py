"""`CountItems`: the public PTransform of counts of a public list."""

from __future__ import annotations

import pyarrow as pa
from typing_extensions import Unpack

from dpbeam.accounting.arguments import instance
from dpbeam.counting.config import CountConfig, plan_count
from dpbeam.counts.gathered import public_domain
from dpbeam.kernels.canonical import Kinds
from dpbeam.selection.pipeline_run import RunArguments
from dpbeam.selection.sizes import choose_sizes
from dpbeam.selection.transforms import ProgramTransform, check_sizes, listed


class CountItems(ProgramTransform):
    """A noisy number of users of every item of a public list, under (epsilon, delta)-differential privacy.

    PCollection of (user, item) tuples or record batches -> PCollection of one `pyarrow.RecordBatch` (item: canonical
    bytes, noisy_count, noisy_count_sd) with the kinds in its metadata, none where the list is empty; see
    `SelectPartitions` for input and `run`. Items that nobody holds are counted like all others.

    `beam.io.WriteToParquet(path, schema)` takes dictionaries; for a record batch it writes nulls.

    Guarantee: add/remove one user; users may hold any number of items.

    Memory per worker: one block or one shard, and in one worker 24 bytes and the item itself per item of the list.

    Args:
      config: settings.
      domain: canonical bytes of the items of the list with their kinds; other items are left out.
      num_shards, pairs, item_bytes, complete, run: as in `SelectPartitions`.

    Raises:
      InputError: settings are out of range, or the input's items are of another kind than the list's.
      ValueError: as in `SelectPartitions`.
    """

    family = "count"

    def __init__(
        self,
        config: CountConfig,
        *,
        domain: tuple[pa.Array, Kinds],
        num_shards: int | None = None,
        pairs: int | None = None,
        item_bytes: float | None = None,
        complete: bool = False,
        **run: Unpack[RunArguments],
    ):
        plan = plan_count(instance("config", config, CountConfig))
        check_sizes(num_shards=num_shards, pairs=pairs, item_bytes=item_bytes)
        super().__init__(
            plan,
            plan.program(public_domain(*listed("domain", domain))),
            choose_sizes(pairs, num_shards, item_bytes),
            complete=complete,
            domain=domain,
            **run,
        )
