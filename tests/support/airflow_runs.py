"""Runs DAGs to their end in one process of Airflow's own environment: `python airflow_runs.py FOLDER RUNS`.

RUNS is JSON, a list of [dag id, logical date]. Prints, as its last line, JSON: import errors, and of every run its
state and of every task the state, the number of tries, and what it has returned.
"""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session


def returned(task: Any) -> Any:
    """What a task has pushed to XCom."""
    of = {name: getattr(task, name) for name in ("dag_id", "run_id", "task_id")}
    with create_session() as session:
        value = session.scalar(sa.select(XComModel.value).filter_by(**of, key="return_value"))
    return json.loads(value) if isinstance(value, str) else value


def run(dag: Any, day: str) -> dict[str, Any]:
    """One run, with the retries that the tasks have."""
    done = dag.test(logical_date=datetime.fromisoformat(day))
    tasks = {
        task.task_id: {"state": task.state, "tries": task.try_number, "returned": returned(task)}
        for task in done.get_task_instances()
    }
    return {"dag": dag.dag_id, "day": day, "state": done.state, "tasks": tasks}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    bag = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder")
    wanted = [] if bag.import_errors else json.loads(sys.argv[2])
    runs = [run(bag.dags[dag_id], day) for dag_id, day in wanted]
    print(json.dumps({"errors": bag.import_errors, "dags": sorted(bag.dags), "runs": runs}, default=str))
