"""A selection in a chain of jobs that can be killed and run again: FOLDER [--die] [Beam options].

It runs as `__main__`, so that workers of an engine need nothing of the tests.
"""

from __future__ import annotations

import glob
import os
import signal
import sys

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from dpbeam.engine.beam.blocks import SubsamplePerUser
from dpbeam.engine.beam.driver import run_in_jobs
from dpbeam.engine.beam.store import RunFolder
from dpbeam.runners.job import run_and_wait
from dpbeam.runners.options import complete
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from tests.support.instances import batches, random_pairs
from tests.support.running import key

KEY = "resumed"
PAIRS = random_pairs(3, users=150)
TRIPS_PER_JOB = 2


def program():
    return make_plan(SelectionConfig(2.0, 1e-2, "gsu", rounds=4, max_items_per_user=8)).program


def save(items, path: str) -> None:
    rows = sorted(row["item"] for batch in items for row in batch.to_pylist())
    with open(f"{path}.part", "w") as file:
        file.write(repr(rows))
    os.replace(f"{path}.part", path)


def main(folder: str, flags: list[str]) -> None:
    die = "--die" in flags
    arguments = complete([flag for flag in flags if flag != "--die"])
    folders = glob.glob(os.path.join(folder, "dpbeam-run-*"))
    run = RunFolder.resume(folders[0]) if folders else RunFolder(folder, key(KEY))
    chosen, out = program(), os.path.join(folder, "out")
    schema = pa.schema([("user", pa.large_string()), ("item", pa.large_string())])
    rows = [pa.RecordBatch.from_arrays(list(columns), schema=schema) for columns in batches(PAIRS)]
    started = 0

    def read(pipeline):
        pairs = pipeline | beam.Create(rows).with_output_types(pa.RecordBatch)
        return pairs | SubsamplePerUser(run.store, num_blocks=3, num_shards=2, cap=chosen.cap)

    def execute(build) -> None:
        nonlocal started
        if die and started:
            os.kill(os.getpid(), signal.SIGKILL)
        started += 1
        pipeline = beam.Pipeline(options=PipelineOptions(arguments))
        build(pipeline)
        run_and_wait(pipeline, arguments, lambda text: None)

    run_in_jobs(
        run.store,
        chosen,
        read=read,
        write=lambda result: result | beam.combiners.ToList() | "Save" >> beam.Map(save, out),
        run=execute,
        trips_per_job=TRIPS_PER_JOB,
    )
    run.remove()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
