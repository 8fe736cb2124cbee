"""The pattern of dpbeam's rounds gives the same bytes on every engine, and survives what breaks on clusters."""

import json
import os
import pathlib
import signal
import urllib.request

import pytest

from tests.engines.conftest import tagged_processes
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


@pytest.mark.parametrize("name", ["prism", "pyspark-local-cluster"])
def test_same_bytes_where_nothing_breaks(name, rounds_job, expected):
    """Clusters of their own: below, and in test_pipelines."""
    job = rounds_job(name)
    before = job.engine.python_workers()
    assert_same(job, job.run(), expected)
    no_new_workers(job, before)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("flink-cluster", "raise"),  # killed ones: test_pipelines
        ("spark-cluster-uncached", "raise"),
    ],
)
def test_a_fault_of_one_worker_does_not_change_the_result(name, fault, rounds_job, expected):
    job = rounds_job(name)
    before = job.engine.python_workers()
    assert_same(job, job.run(f"--fault={fault}"), expected)
    assert (job.state / "struck").exists(), "the fault never happened"
    no_new_workers(job, before)


def test_flink_survives_a_task_manager(rounds_job, expected, flink_cluster):
    job = rounds_job("flink-cluster")
    process = job.start("--fault=hold")
    worker = job.reached()
    os.kill(parent(worker), signal.SIGKILL)
    wait_until(lambda: "down" in flink_cluster.call("status").stdout, 20, "the end of the task manager")
    repaired = flink_cluster.call("up")
    assert repaired.returncode == 0, repaired.stderr
    job.go_on()
    assert_same(job, job.finish(process), expected)
    wait_until(
        lambda: not pathlib.Path(f"/proc/{worker}").exists(), 20, "the end of the lost manager's worker"
    )


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


def test_pyspark_survives_an_executor_and_its_shuffle_files(rounds_job, expected):
    job = rounds_job("pyspark-cluster")
    before = job.engine.python_workers()
    process = job.start("--fault=hold")
    worker = job.reached()
    executor = parent(parent(worker))
    assert "CoarseGrainedExecutorBackend" in tagged_processes(job.engine.tag)[executor]
    os.kill(executor, signal.SIGKILL)
    job.go_on()
    assert_same(job, job.finish(process), expected)
    no_new_workers(job, before)


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


def test_ctrl_c_cancels_the_job_on_the_cluster(rounds_job, flink_cluster):
    job = rounds_job("flink-cluster")
    before = job.engine.python_workers()
    process = job.start("--fault=hold", "--job_name=cancelled-by-test")
    job.reached()
    process.send_signal(signal.SIGINT)
    run = job.finish(process)
    assert run.code == 130, run.log[-4000:]
    assert f"job: http://{flink_cluster.address}/#/job/running/" in run.log
    with urllib.request.urlopen(f"http://{flink_cluster.address}/jobs/overview", timeout=10) as answer:
        states = [j["state"] for j in json.load(answer)["jobs"] if j["name"] == "cancelled-by-test"]
    assert states == ["CANCELED"]
    assert not job.output.exists()
    # The function that holds never ends by itself: its worker must go all the same.
    no_new_workers(job, before)
