"""`CountItems`: the public PTransform of counts of a public list."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection

from dpbeam.counting.config import CountConfig, plan_count
from dpbeam.counts.gathered import public_domain
from dpbeam.engine.beam.graph import RunProgram
from dpbeam.engine.beam.store import RunFolder
from dpbeam.kernels.canonical import Kinds
from dpbeam.selection.sizes import choose_sizes
from dpbeam.selection.transforms import (
    CompleteBatches,
    PairsOrBatches,
    UserBlocks,
    check_batch_input,
    own_folder,
)


class CountItems(beam.PTransform):
    """A noisy number of users of every item of a public list, under (epsilon, delta)-differential privacy.

    PCollection of (user, item) tuples or record batches -> PCollection of one `pyarrow.RecordBatch` (item: canonical
    bytes, noisy_count, noisy_count_sd) with the kinds in its metadata, none where the list is empty; see
    `SelectPartitions` for input and `run`. Items that nobody holds are counted like all others.

    Guarantee: add/remove one user; users may hold any number of items.

    Memory per worker: one block or one shard, and in one worker 24 bytes and the item itself per item of the list.

    Args:
      config: settings.
      domain: canonical bytes of the items of the list with their kinds; other items are left out.
      run, num_shards, pairs, item_bytes, complete: as in `SelectPartitions`.

    Raises:
      InputError: settings are out of range.
      ValueError: as in `SelectPartitions`.
    """

    def __init__(
        self,
        config: CountConfig,
        *,
        domain: tuple[pa.Array, Kinds],
        run: RunFolder | None = None,
        num_shards: int | None = None,
        pairs: int | None = None,
        item_bytes: float | None = None,
        complete: bool = False,
    ):
        super().__init__()
        self.plan = plan_count(config)
        self._program = self.plan.program(public_domain(*domain))
        self._run, self._domain = run, domain
        self._sizes = choose_sizes(pairs, num_shards, item_bytes)
        self._complete = complete
        self.with_input_types(CompleteBatches if complete else PairsOrBatches)  # type: ignore[no-untyped-call]
        self.with_output_types(pa.RecordBatch)  # type: ignore[no-untyped-call]

    def expand(self, pcoll: PCollection) -> PCollection:
        check_batch_input(pcoll)
        store = (self._run or own_folder(pcoll)).claim()
        blocks = UserBlocks(
            store, self._program, self._sizes, complete=self._complete, domain=self._domain[0]
        )
        return (
            pcoll
            | "UserBlocks" >> blocks
            | "Rounds"
            >> RunProgram(store, self._program, one_step=self._sizes.one_step, relays=self._sizes.relays)
        )

    def display_data(self) -> dict[str, Any]:
        return {"epsilon": self.plan.config.epsilon, "delta": self.plan.config.delta}
