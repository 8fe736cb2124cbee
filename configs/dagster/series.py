"""Dagster: a night of a series as an asset of its day, one budget for all nights of a month, and the night's report.

The counterpart of configs/airflow/dpbeam_series.py, with its environment; docs/how-to/schedule.md says when to take
it in place of the independent releases of nightly.py, which lies beside this file and has what both share.

Nights are made in their order. A backfill is one run, of whatever kind it is, and makes its nights one after the other;
what is out already is left as it is, so a backfill that failed is given again as it was. And each partition depends on
the one before. A night given out of order is refused, which no retry follows.
"""

import calendar
import os
from datetime import date

import dagster as dg
from nightly import (
    BUDGET,
    CONFIGS,
    DATASET,
    DAYS,
    INPUT,
    OUTPUT,
    PROGRAM,
    RETRIES,
    check_complete,
    run,
    shown,
)

SERIES = os.environ.get("DPBEAM_SERIES", "/srv/series")


def places(day: str) -> tuple[str, str]:
    """Private folder of the month's window, and the prefix of its output."""
    return f"{SERIES}/dagster/{day[:7]}", f"{OUTPUT}/dagster_series/{day[:7]}/items"


def open_window(day: str) -> None:
    """Open the window of a day's month; where it is open already, this says so."""
    folder, prefix = places(day)
    month, nights = day[:7], calendar.monthrange(*map(int, day.split("-")[:2]))[1]
    first, last = date.fromisoformat(f"{month}-01"), date.fromisoformat(f"{month}-{nights}")
    flags = {
        "config": f"{CONFIGS}/series.yaml",
        "folder": folder,
        "output": prefix,
        "first_night": first,
        "nights": nights,
        "budget": BUDGET,
        "dataset": DATASET,
        "release_id": f"dagster.series.{month}",
        "budget_period": f"{first}:{last}",
    }
    run([PROGRAM, "series", "open", *(f"--{flag}={value}" for flag, value in flags.items())])


def make_night(day: str) -> str:
    """Make the night of a day; where its result is."""
    folder, prefix = places(day)
    files = f"{INPUT}/{day}"
    # What the folder holds when it is complete says it, not what is in the files.
    came = any(name.endswith(".parquet") for name in os.listdir(files))
    result_file = f"{prefix}-{day}.result.json"
    flags = {
        "config": f"{CONFIGS}/series_night.yaml",
        "folder": folder,
        "night": day,
        "result_file": result_file,
    }
    what = f"--input={files}/*.parquet" if came else "--empty"
    run([PROGRAM, "series", "run", *(f"--{flag}={value}" for flag, value in flags.items()), what])
    return result_file


#: Runs of single days would start at the same time, in no order.
IN_ORDER = dg.BackfillPolicy.single_run()
BEFORE = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


@dg.asset(
    name="series_night",
    partitions_def=DAYS,
    retry_policy=RETRIES,
    backfill_policy=IN_ORDER,
    deps=[dg.AssetDep("series_night", partition_mapping=BEFORE)],
)
def series_night(context: dg.AssetExecutionContext) -> None:
    window = ""
    for day in sorted(context.partition_keys):
        check_complete(day)
        if window != (window := day[:7]):
            open_window(day)
        context.add_asset_metadata(shown(make_night(day)), partition_key=day)


@dg.asset(
    name="report_series_night",
    partitions_def=DAYS,
    retry_policy=RETRIES,
    backfill_policy=IN_ORDER,
    deps=[series_night],
)
def report_series_night(context: dg.AssetExecutionContext) -> None:
    for day in context.partition_keys:
        run([PROGRAM, "report", f"{places(day)[1]}-{day}.ledger.json", "--contents", "--overwrite"])


NIGHTS = dg.define_asset_job("series", selection="*", partitions_def=DAYS)
defs = dg.Definitions(
    assets=[series_night, report_series_night],
    jobs=[NIGHTS],
    schedules=[dg.build_schedule_from_partitioned_job(NIGHTS)],
    executor=dg.in_process_executor,  # dpbeam is a process of its own anyhow
)
