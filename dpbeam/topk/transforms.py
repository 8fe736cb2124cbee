"""`TopKItems`: the public PTransform of top-k."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from typing_extensions import Unpack

from dpbeam.accounting.arguments import instance
from dpbeam.counts.gathered import public_domain
from dpbeam.kernels.canonical import Kinds
from dpbeam.selection.pipeline_run import RunArguments
from dpbeam.selection.sizes import choose_sizes
from dpbeam.selection.transforms import ProgramTransform, check_sizes, listed
from dpbeam.topk.config import TopKConfig, plan_topk
from dpbeam.topk.program import topk_program


class TopKItems(ProgramTransform):
    """The (at most) k items that most users hold, in rank order, under (epsilon, delta)-differential privacy.

    PCollection of (user, item) tuples or record batches -> PCollection of one `pyarrow.RecordBatch` (rank, item:
    canonical bytes, noisy_count) with the kinds in its metadata; see `SelectPartitions` for input and `run`.

    `beam.io.WriteToParquet(path, schema)` takes dictionaries; for a record batch it writes nulls.

    Guarantee: add/remove one user; users may hold any number of items, of which all count. Replacing a user costs
    2 epsilon and (1 + e^epsilon) delta.

    Memory per worker: one block or one shard, and in one worker 24 bytes and the item itself per item of the domain.

    Args:
      config: settings.
      domain: a public domain, canonical bytes of its items with their kinds; exactly where the settings say
        `public_domain`. Other items are left out before anything is counted.
      num_shards, pairs, item_bytes, complete, run: as in `SelectPartitions`.

    Raises:
      InputError: settings are out of range, or the input's items are of another kind than the domain's.
      ValueError: settings and domain disagree; or as in `SelectPartitions`.
    """

    family = "top-k"

    def __init__(
        self,
        config: TopKConfig,
        *,
        domain: tuple[pa.Array, Kinds] | None = None,
        num_shards: int | None = None,
        pairs: int | None = None,
        item_bytes: float | None = None,
        complete: bool = False,
        **run: Unpack[RunArguments],
    ):
        plan = plan_topk(instance("config", config, TopKConfig))
        check_sizes(num_shards=num_shards, pairs=pairs, item_bytes=item_bytes)
        super().__init__(
            plan,
            topk_program(plan, None if domain is None else public_domain(*listed("domain", domain))),
            choose_sizes(pairs, num_shards, item_bytes),
            complete=complete,
            domain=domain,
            **run,
        )

    def display_data(self) -> dict[str, Any]:
        config = self.plan.config
        return {**super().display_data(), "k": config.k, "mechanism": config.mechanism}
