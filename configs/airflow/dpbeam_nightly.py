"""Two DAGs for one job, each night on the day before: select, top-k, and a report of each to sign. Take one of them.

`dpbeam_nightly` runs the commands, `dpbeam_nightly_beam` the modules of `pipelines/` through the Apache Beam provider.
docs/how-to/schedule.md sets them up. Places come from the environment:

    DPBEAM_BIN        folder of `dpbeam` and its `python`, an environment apart from Airflow's
    DPBEAM_PIPELINES  the folder `pipelines` of dpbeam's sources; for the second DAG
    DPBEAM_CONFIGS    select.yaml and top_k.yaml: method and budget of a night
    DPBEAM_INPUT      a folder for each day, 2026-11-01/, with its input and then _SUCCESS
    DPBEAM_OUTPUT     a folder for each day, made by the run
    DPBEAM_BUDGET, DPBEAM_DATASET   the account that pays

Everything that a run reads, writes and is called follows from the day. A retry, a cleared task and a backfill over days
that are out all give the same command, which pays once and draws noise once.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, BaseOperator, CronDataIntervalTimetable, task
from dpbeam_operators import DpbeamBeamOperator, DpbeamOperator

BIN = os.environ.get("DPBEAM_BIN", "/opt/dpbeam/bin")
PIPELINES = os.environ.get("DPBEAM_PIPELINES", "/opt/dpbeam/src/pipelines")
CONFIGS = os.environ.get("DPBEAM_CONFIGS", "/opt/dpbeam/src/configs/nightly")
INPUT = os.environ.get("DPBEAM_INPUT", "/srv/logs")
OUTPUT = os.environ.get("DPBEAM_OUTPUT", "/srv/releases")
BUDGET = os.environ.get("DPBEAM_BUDGET", "/srv/budget.db")
DATASET = os.environ.get("DPBEAM_DATASET", "logs")
RETRY_SECONDS = float(os.environ.get("DPBEAM_RETRY_SECONDS", "300"))

PROGRAM = f"{BIN}/dpbeam"
# The day of the data: the start of the interval, in UTC. A run without a logical date has none, and fails.
DAY = "{{ ds }}"
# Command -> its module.
JOBS = {"select": "select_items", "top-k": "top_k"}


def flags(dag_id: str, command: str) -> dict[str, Any]:
    """Of one run: what changes them changes what its release id stands for, and is refused."""
    name = command.replace("-", "_")
    return {
        "config": f"{CONFIGS}/{name}.yaml",
        "input": f"{INPUT}/{DAY}/*.txt.gz",
        "output": f"{OUTPUT}/{dag_id}/{DAY}/{name}",
        "budget": BUDGET,
        "dataset": DATASET,
        "release_id": f"{dag_id}.{name}.{DAY}",
        "budget_period": DAY,
    }


def result_file(dag_id: str, command: str) -> str:
    return f"{flags(dag_id, command)['output']}.result.json"


def plain(dag_id: str, command: str) -> BaseOperator:
    """The command, as a program."""
    given = [f"--{name}={value}" for name, value in flags(dag_id, command).items()]
    return DpbeamOperator(
        task_id=command.replace("-", "_"),
        program=PROGRAM,
        arguments=[command, *given],
        result_file=result_file(dag_id, command),
    )


def by_beam(dag_id: str, command: str) -> BaseOperator:
    """The same by the Apache Beam provider; for a cluster, another `runner` and its options."""
    return DpbeamBeamOperator(
        task_id=command.replace("-", "_"),
        py_file=f"{PIPELINES}/{JOBS[command]}.py",
        py_interpreter=f"{BIN}/python",
        runner="FnApiRunner",
        pipeline_options={**flags(dag_id, command), "result_file": result_file(dag_id, command)},
    )


def report(dag_id: str, command: str) -> BaseOperator:
    """Verifies ledger and output, and makes the page to sign."""
    output = flags(dag_id, command)["output"]
    return DpbeamOperator(
        task_id=f"report_{command.replace('-', '_')}",
        program=PROGRAM,
        arguments=["report", f"{output}.ledger.json", "--contents", "--overwrite"],
    )


@task.sensor(poke_interval=60, timeout=timedelta(hours=6).total_seconds(), mode="reschedule")
def input_is_complete(ds: str) -> bool:
    """A release of half a day's input would be out for good."""
    return os.path.exists(f"{INPUT}/{ds}/_SUCCESS")


for DAG_ID, RELEASE in {"dpbeam_nightly": plain, "dpbeam_nightly_beam": by_beam}.items():
    with DAG(
        DAG_ID,
        schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        default_args={
            "retries": 3,
            "retry_delay": timedelta(seconds=RETRY_SECONDS),
            "execution_timeout": timedelta(hours=6),
        },
        tags=["dpbeam"],
    ) as dag:
        ready = input_is_complete()
        for name in JOBS:
            ready >> RELEASE(DAG_ID, name) >> report(DAG_ID, name)
    globals()[DAG_ID] = dag
