"""Tasks in processes: each result once, also where a process dies; errors name their task."""

import os
import signal
from pathlib import Path

import pytest

from dpbeam.errors import InputError
from dpbeam_lab.experiments.workers import TaskError, WorkerDiedError, run_tasks


def work(task):
    """Doubles a number; a task (folder, number, deaths) first kills its process that many times."""
    if isinstance(task, int):
        return 2 * task
    folder, number, deaths = task
    tried = len(list(Path(folder).glob(f"{number}-*")))
    Path(folder, f"{number}-{tried}").touch()
    if tried < deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def refuse(task):
    if task == 3:
        raise InputError("three is refused")
    if task == 4:
        raise ZeroDivisionError("four is too much")
    return task


def test_a_process_that_dies_loses_and_doubles_nothing(tmp_path):
    tasks = [(str(tmp_path), number, int(number in (0, 3))) for number in range(6)]
    results = list(run_tasks(work, tasks, 2))
    assert sorted(results) == [(number, 2 * number) for number in range(6)]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*(f"{number}-0" for number in range(6)), "0-1", "3-1"]
    )


def test_a_task_that_kills_every_process_is_named(tmp_path):
    tasks = [(str(tmp_path), 7, 99), 1]
    with pytest.raises(
        WorkerDiedError, match=r"process of the task of 7 died 2 times \(killed: out of memory"
    ):
        list(run_tasks(work, tasks, 2, lambda task: f"the task of {task[1]}"))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "tasks, error, text",
    [
        ([1, 3], InputError, "task 3: three is refused"),
        ([1, 4], TaskError, "task 4: ZeroDivisionError: four"),
    ],
)
def test_errors_name_their_task(count, tasks, error, text):
    with pytest.raises(error, match=text):
        list(run_tasks(refuse, tasks, count, lambda task: f"task {task}"))


def test_tasks_begin_in_their_order(tmp_path):
    assert list(run_tasks(work, [5, 1, 3], 1)) == [(0, 10), (1, 2), (2, 6)]
    assert list(run_tasks(work, [], 3)) == []
