"""`HittingSet`: the public PTransform of k-hitting set."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from apache_beam.pvalue import PCollection
from typing_extensions import Unpack

from dpbeam.accounting.arguments import instance
from dpbeam.counts.gathered import public_domain
from dpbeam.hitting.config import HittingSetConfig, plan_hitting_set
from dpbeam.hitting.program import GATHERED_PAIRS, HittingSetProgram
from dpbeam.kernels.canonical import Kinds
from dpbeam.selection.pipeline_run import RunArguments
from dpbeam.selection.sizes import choose_sizes
from dpbeam.selection.transforms import ProgramTransform, check_sizes, listed

#: A job of more trips than this may be too deep for an engine; `dpbeam hitting-set` runs a chain of jobs.
TRIPS_IN_ONE_JOB = 128


class HittingSet(ProgramTransform):
    """At most k items that as many users as possible hold one of, under (epsilon, delta)-differential privacy.

    PCollection of (user, item) tuples or record batches -> PCollection of at most one `pyarrow.RecordBatch` (rank,
    item: canonical bytes), in the order of the choice, with the kinds in its metadata; see `SelectPartitions` for
    input and `run`.

    `beam.io.WriteToParquet(path, schema)` takes dictionaries; for a record batch it writes nulls.

    Guarantee: add/remove one user; users may hold any number of items, of which all count. Replacing a user costs
    2 epsilon and (1 + e^epsilon) delta.

    Memory per worker: one block or one shard. Where there are no more than `GATHERED_PAIRS` pairs, one worker holds the
    sets of users restricted to the domain, equal ones once, and the rounds run there; else each round is a trip.

    Args:
      config: settings.
      domain: a public domain, canonical bytes of its items with their kinds; exactly where the settings say
        `public_domain`. Other items are left out before anything is counted.
      num_shards, pairs, item_bytes, complete, run: as in `SelectPartitions`; with `num_shards` each round is a trip.

    Raises:
      InputError: settings are out of range, or the input's items are of another kind than the domain's.
      ValueError: settings and domain disagree; or as in `SelectPartitions`.
    """

    family = "hitting-set"

    def __init__(
        self,
        config: HittingSetConfig,
        *,
        domain: tuple[pa.Array, Kinds] | None = None,
        num_shards: int | None = None,
        pairs: int | None = None,
        item_bytes: float | None = None,
        complete: bool = False,
        **run: Unpack[RunArguments],
    ):
        plan = plan_hitting_set(instance("config", config, HittingSetConfig))
        check_sizes(num_shards=num_shards, pairs=pairs, item_bytes=item_bytes)
        gather = num_shards is None and pairs is not None and pairs <= GATHERED_PAIRS
        super().__init__(
            plan,
            HittingSetProgram(
                plan, None if domain is None else public_domain(*listed("domain", domain)), gather=gather
            ),
            choose_sizes(pairs, num_shards, item_bytes),
            complete=complete,
            domain=domain,
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
