"""PySparkRunner as launcher, flags and preflight see it; Spark itself is stood in for."""

import importlib.util
import threading

import pytest
from apache_beam.options.pipeline_options import PipelineOptions, S3Options
from apache_beam.runners.runner import PipelineState

from dpbeam.errors import InputError
from dpbeam.jobs import beam_flags
from dpbeam.runners import check, options
from dpbeam.runners.pyspark import bundle, session
from dpbeam.runners.pyspark.runner import (
    PySparkOptions,
    PySparkResult,
    PySparkRunner,
    master_of,
    options_text,
)

RUNNER = "--runner=PySparkRunner"


class _Job:
    """Runs until it is told to end."""

    def __init__(self, error=None):
        self.go, self.cancelled, self._error = threading.Event(), False, error

    def run(self):
        assert self.go.wait(10)
        if self._error:
            raise self._error

    def cancel(self):
        self.cancelled = True
        self._error = RuntimeError("Job 1 cancelled part of cancelled job group")
        self.go.set()


class _JavaError(Exception):
    """What Py4J raises: its own words around those of Java."""

    class java_exception:
        @staticmethod
        def getMessage():
            return "Traceback\nValueError: boom"


class TestResult:
    def test_it_ends_as_its_job_does(self):
        job = _Job()
        result = PySparkResult(job)
        assert result.wait_until_finish(duration=1) == result.state == PipelineState.RUNNING
        job.go.set()
        assert result.wait_until_finish() == result.state == PipelineState.DONE
        assert result.cancel() == PipelineState.DONE and not job.cancelled

    def test_a_failure_is_told_in_sparks_words_alone(self):
        job = _Job(_JavaError("An error occurred while calling o57.collect"))
        job.go.set()
        result = PySparkResult(job)
        with pytest.raises(RuntimeError, match=r"^Traceback\nValueError: boom$"):
            result.wait_until_finish()
        assert result.state == PipelineState.FAILED

    def test_a_cancelled_job_is_no_failure(self):
        job = _Job()
        result = PySparkResult(job)
        assert result.cancel() == PipelineState.CANCELLED and job.cancelled
        assert result.wait_until_finish() == PipelineState.CANCELLED


class TestFlags:
    @pytest.mark.parametrize("name", ["PySparkRunner", "pysparkrunner", "pyspark"])
    def test_beam_gets_the_runners_place(self, name):
        argv = [f"--runner={name}", "--spark_conf=spark.a=1", "--spark_conf", "spark.b=2"]
        completed = options.complete(argv)
        assert completed == [*argv, "--runner=dpbeam.runners.pyspark.PySparkRunner"]
        assert options.read(completed).runner == "PySparkRunner"
        assert options.read(completed).spark_conf == ["spark.a=1", "spark.b=2"]
        options.check_runner_name(options.read(completed))

    @pytest.mark.parametrize(
        ("master", "embedded", "remote"),
        [
            (None, True, False),
            ("local[2]", True, False),
            ("local-cluster[2,1,1024]", True, False),
            ("spark://localhost:7077", False, False),
            ("spark://elsewhere:7077", False, True),
            ("yarn", False, True),
            ("k8s://https://localhost:6443", False, True),
        ],
    )
    def test_where_workers_run(self, master, embedded, remote):
        flags = options.read([RUNNER, *([f"--spark_master_url={master}"] if master else [])])
        assert (flags.embedded, flags.remote_workers) == (embedded, remote)

    def test_the_master_is_the_users_or_sparks(self):
        """Beam's own default, four cores, is not what a user has asked for, unless it is."""
        assert master_of(PipelineOptions([])) is None
        assert master_of(PipelineOptions(["--spark_master_url=local[4]"])) == "local[4]"
        assert master_of(PipelineOptions(["--spark_master_url=yarn"])) == "yarn"

    def test_the_command_knows_its_flag(self):
        assert beam_flags.kind_of("spark_conf") == "list" and "spark_conf" in beam_flags.names()

    def test_workers_know_the_options_of_the_job(self, monkeypatch):
        """Where the store answers, for one."""
        flags = ["--s3_endpoint_url=http://127.0.0.1:9", "--spark_conf=spark.a=1", "--temp_location=s3://b/t"]
        known = []
        monkeypatch.setattr(bundle.FileSystems, "set_options", known.append)
        bundle.use_options(options_text(PipelineOptions(flags)))
        (at_worker,) = known
        assert at_worker.view_as(S3Options).s3_endpoint_url == "http://127.0.0.1:9"
        assert at_worker.view_as(PySparkOptions).spark_conf == ["spark.a=1"]

    def test_streaming_is_refused(self):
        with pytest.raises(InputError, match="batch pipelines alone"):
            PySparkRunner().run_portable_pipeline(None, PipelineOptions(["--streaming"]))


class _Context:
    def __init__(self, master, **conf):
        self.master, self._conf = master, conf

    def getConf(self):
        return self._conf


class TestSession:
    def test_a_session_that_stands_is_taken_as_it_is(self, monkeypatch):
        context = _Context("yarn", **{"spark.a": "1"})
        monkeypatch.setattr(session, "standing", lambda: context)
        assert session.open_session(None, [], "x") is context
        assert session.open_session("yarn", ["spark.a=1"], "x") is context
        with pytest.raises(InputError, match="has the master yarn"):
            session.open_session("local[2]", [], "x")
        with pytest.raises(InputError, match=r"another spark\.a"):
            session.open_session(None, ["spark.a=2"], "x")

    def test_where_it_stands_decides_where_workers_run(self, monkeypatch):
        monkeypatch.setattr(options, "standing", lambda: _Context("spark://elsewhere:7077"))
        flags = options.read([RUNNER, "--job_name=elsewhere"])
        assert flags.remote_workers and flags.cluster_host == "elsewhere"


def rows(*argv):
    return {row.what: row for row in check.preflight([RUNNER, *argv])}


class TestPreflight:
    def test_without_pyspark(self, monkeypatch):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        row = rows()["PySpark"]
        assert not row.ok and "dpbeam[pyspark]" in row.fix

    @pytest.mark.parametrize("setting", ["a=1", "spark.master=yarn"])
    def test_wrong_settings(self, setting):
        pytest.importorskip("pyspark")
        assert not rows(f"--spark_conf={setting}")["Spark"].ok

    def test_spark_connect(self, monkeypatch):
        pytest.importorskip("pyspark")
        monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
        checked = rows()
        assert [row.finding for row in checked.values() if not row.ok and "Spark Connect" in row.finding]

    def test_a_cluster_that_does_not_answer(self):
        pytest.importorskip("pyspark")
        checked = rows("--spark_master_url=spark://127.0.0.1:1")
        assert not checked["Spark cluster"].ok and checked["workers"].ok
