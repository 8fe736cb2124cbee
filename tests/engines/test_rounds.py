"""The pattern of dpbeam's rounds gives the same bytes on every engine, and survives what breaks on clusters."""

import os
import pathlib
import signal

import pytest

from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def parent(process: int) -> int:
    return int(pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1].split()[1])


def assert_same(job, run, expected):
    assert run.code == 0, run.log[-4000:]
    assert job.result() == expected


def no_new_workers(job, before):
    """Wait until the workers of an ended job are gone; an engine may keep them for some seconds."""
    wait_until(lambda: not job.engine.python_workers().keys() - before.keys(), 60, "end of the job's workers")


def test_same_bytes_where_nothing_breaks(rounds_job, expected):
    """Other engines: below, and in test_pipelines."""
    job = rounds_job("pyspark-local-cluster")
    before = job.engine.python_workers()
    assert_same(job, job.run(), expected)
    no_new_workers(job, before)


@pytest.mark.parametrize("name", ["flink-cluster", "pyspark-cluster"])
def test_a_fault_of_one_worker_does_not_change_the_result(name, rounds_job, expected):
    """Killed ones: test_pipelines; killed with their host: test_hosts."""
    job = rounds_job(name)
    before = job.engine.python_workers()
    assert_same(job, job.run("--fault=raise"), expected)
    assert (job.state / "struck").exists(), "the fault never happened"
    no_new_workers(job, before)


def test_spark_survives_an_executor(rounds_job, expected):
    job = rounds_job("spark-cluster-kept")
    process = job.start("--fault=hold")
    worker = job.reached()
    os.kill(parent(worker), signal.SIGKILL)
    job.go_on()
    assert_same(job, job.finish(process), expected)
    wait_until(
        lambda: not pathlib.Path(f"/proc/{worker}").exists(), 20, "the end of the lost executor's worker"
    )


def test_pyspark_runs_a_task_twice_at_once(rounds_job, expected):
    """Speculation: the copy that holds and a second one run side by side, and either may win."""
    job = rounds_job("pyspark-twice")
    process = job.start("--fault=hold")
    job.reached()
    wait_until(
        lambda: len(list(job.state.glob("reached.*"))) > 1, 120, "a second copy of the task that holds"
    )
    job.go_on()
    assert_same(job, job.finish(process), expected)
