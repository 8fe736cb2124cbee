"""A DAG that releases night by night for one budget a month: `dpbeam series`, in place of independent releases.

docs/explanation/series.md says what a series is, docs/how-to/schedule.md when to take it. A month is a window: its
first night opens it, which charges the account once; each night adds the day's input and releases what is new.
Places come from the environment, as for dpbeam_nightly.py, and

    DPBEAM_CONFIGS    series.yaml: preset and budget of a month; series_night.yaml: columns of the input
    DPBEAM_INPUT      a folder for each day, 2026-11-01/, with Parquet files and then _SUCCESS
    DPBEAM_SERIES     private folders of the windows, on a disk of the machine that runs the tasks

Nights are made in their order, one at a time, from the first of the month: a day that fails holds the next ones back. A
day without data has a folder with _SUCCESS alone, and its rounds are run all the same.
"""

from __future__ import annotations

import calendar
import os
from datetime import UTC, date, datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable, task
from dpbeam_operators import DpbeamOperator

PROGRAM = os.environ.get("DPBEAM_BIN", "/opt/dpbeam/bin") + "/dpbeam"
CONFIGS = os.environ.get("DPBEAM_CONFIGS", "/opt/dpbeam/src/configs/nightly")
INPUT = os.environ.get("DPBEAM_INPUT", "/srv/logs")
OUTPUT = os.environ.get("DPBEAM_OUTPUT", "/srv/releases")
SERIES = os.environ.get("DPBEAM_SERIES", "/srv/series")
BUDGET = os.environ.get("DPBEAM_BUDGET", "/srv/budget.db")
DATASET = os.environ.get("DPBEAM_DATASET", "logs")
RETRY_SECONDS = float(os.environ.get("DPBEAM_RETRY_SECONDS", "300"))

DAY, MONTH = "{{ ds }}", "{{ ds[:7] }}"
PREFIX = f"{OUTPUT}/dpbeam_series/{MONTH}"


def last_day(day: str) -> date:
    """Of the month of a day."""
    first = date.fromisoformat(day)
    return first.replace(day=calendar.monthrange(first.year, first.month)[1])


def files_of(day: str) -> str:
    """The flag for a day's input. What the folder holds when it is complete says it, not what is in the files."""
    folder = f"{INPUT}/{day}"
    found = any(name.endswith(".parquet") for name in os.listdir(folder))
    return f"--input={folder}/*.parquet" if found else "--empty"


@task.sensor(poke_interval=60, timeout=timedelta(hours=6).total_seconds(), mode="reschedule")
def input_is_complete(ds: str) -> bool:
    """A night is made once, of what is there."""
    return os.path.exists(f"{INPUT}/{ds}/_SUCCESS")


with DAG(
    "dpbeam_series",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    user_defined_macros={"last_day": last_day, "files_of": files_of},
    default_args={
        "depends_on_past": True,
        "retries": 3,
        "retry_delay": timedelta(seconds=RETRY_SECONDS),
        "execution_timeout": timedelta(hours=6),
    },
    tags=["dpbeam"],
) as dag:
    # Every night gives the same command: from the second on it says that the window is open.
    opened = DpbeamOperator(
        task_id="open",
        program=PROGRAM,
        arguments=[
            *("series", "open", f"--config={CONFIGS}/series.yaml", f"--folder={SERIES}/{MONTH}"),
            *(f"--output={PREFIX}/items", f"--first_night={MONTH}-01", "--nights={{ last_day(ds).day }}"),
            *(f"--budget={BUDGET}", f"--dataset={DATASET}", f"--release_id=dpbeam_series.{MONTH}"),
            f"--budget_period={MONTH}-01:{{{{ last_day(ds) }}}}",
        ],
    )
    night = DpbeamOperator(
        task_id="night",
        program=PROGRAM,
        arguments=[
            *("series", "run", f"--config={CONFIGS}/series_night.yaml", f"--folder={SERIES}/{MONTH}"),
            *(f"--night={DAY}", "{{ files_of(ds) }}"),
        ],
        result_file=f"{PREFIX}/items-{DAY}.result.json",
    )
    report = DpbeamOperator(
        task_id="report",
        program=PROGRAM,
        arguments=["report", f"{PREFIX}/items-{DAY}.ledger.json", "--contents", "--overwrite"],
    )
    input_is_complete() >> opened >> night >> report
