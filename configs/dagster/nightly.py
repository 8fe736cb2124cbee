"""Dagster: select, top-k and their reports as assets of a day, each night on the day before (docs/how-to/schedule.md).

Places come from the environment, as for configs/airflow/dpbeam_nightly.py. dpbeam lives in an environment apart from
Dagster's. Everything that a run reads, writes and is called follows from the day, so a retry pays once and draws noise
once.
"""

import json
import os
import subprocess
from typing import Any

import dagster as dg

PROGRAM = os.environ.get("DPBEAM_BIN", "/opt/dpbeam/bin") + "/dpbeam"
CONFIGS = os.environ.get("DPBEAM_CONFIGS", "/opt/dpbeam/src/configs/nightly")
INPUT = os.environ.get("DPBEAM_INPUT", "/srv/logs")
OUTPUT = os.environ.get("DPBEAM_OUTPUT", "/srv/releases")
BUDGET = os.environ.get("DPBEAM_BUDGET", "/srv/budget.db")
DATASET = os.environ.get("DPBEAM_DATASET", "logs")
RETRY_SECONDS = float(os.environ.get("DPBEAM_RETRY_SECONDS", "300"))

REFUSED = 2
#: Of the result: public values, beside the asset.
SHOWN = ("status", "release_id", "charge", "items_released", "outputs", "ledger")
DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01")
RETRIES = dg.RetryPolicy(max_retries=3, delay=RETRY_SECONDS)


def run(argv: list[str]) -> None:
    """Run dpbeam to its end; stopped from outside, it cancels its job and cleans up.

    Raises:
      Failure: it was refused, and would be again, which no retry follows; or it failed.
    """
    with subprocess.Popen(argv) as process:
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            raise
    if code:
        raise dg.Failure(f"dpbeam ended with {code}; its log says why", allow_retries=code != REFUSED)


def check_complete(day: str) -> None:
    """Refuse half a day's input, whose release would be out for good.

    Raises:
      Failure: the day's folder is not complete yet.
    """
    if not os.path.exists(f"{INPUT}/{day}/_SUCCESS"):
        raise dg.Failure(f"the input of {day} is not complete")


def shown(result_file: str) -> dict[str, Any]:
    """What a run that ended with 0 says of itself.

    Raises:
      Failure: the file tells of another run; the next try finds the release out, and writes it.
    """
    with open(result_file, encoding="utf-8") as file:
        result = json.load(file)
    if result["exit_code"] != 0:
        raise dg.Failure(f"'{result_file}' tells of another run")
    return {field: result[field] for field in SHOWN}


def release(command: str, day: str) -> dict[str, Any]:
    """One release of one day, and what it says of itself."""
    check_complete(day)
    name = command.replace("-", "_")
    folder = f"{OUTPUT}/dagster/{day}"
    os.makedirs(folder, exist_ok=True)
    result_file = f"{folder}/{name}.result.json"
    flags = {
        "config": f"{CONFIGS}/{name}.yaml",
        "input": f"{INPUT}/{day}/*.txt.gz",
        "output": f"{folder}/{name}",
        "budget": BUDGET,
        "dataset": DATASET,
        "release_id": f"dagster.{name}.{day}",
        "budget_period": day,
        "result_file": result_file,
    }
    run([PROGRAM, command, *(f"--{flag}={value}" for flag, value in flags.items())])
    return shown(result_file)


def assets_of(command: str) -> list[dg.AssetsDefinition]:
    """A release, and the report of it."""
    name = command.replace("-", "_")

    @dg.asset(name=name, partitions_def=DAYS, retry_policy=RETRIES)
    def released(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata=release(command, context.partition_key))

    @dg.asset(name=f"report_{name}", partitions_def=DAYS, retry_policy=RETRIES, deps=[released])
    def report(context: dg.AssetExecutionContext) -> None:
        ledger = f"{OUTPUT}/dagster/{context.partition_key}/{name}.ledger.json"
        run([PROGRAM, "report", ledger, "--contents", "--overwrite"])

    return [released, report]


NIGHTLY = dg.define_asset_job("nightly", selection="*", partitions_def=DAYS)
defs = dg.Definitions(
    assets=[asset for command in ("select", "top-k") for asset in assets_of(command)],
    jobs=[NIGHTLY],
    schedules=[dg.build_schedule_from_partitioned_job(NIGHTLY)],
    executor=dg.in_process_executor,  # dpbeam is a process of its own anyhow
)
