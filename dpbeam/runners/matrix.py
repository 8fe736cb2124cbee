"""Which engines, in which versions, dpbeam has run on: the tested matrix as data, and what to do outside it.

Tested means that tests/engines ran the whole round pattern and its faults there. A version that Beam publishes a
runner for but that was not tested is allowed with a warning; one that Beam publishes no runner for is refused, since
the job would fail after minutes with a message about serialisation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from apache_beam.options.pipeline_options import FlinkRunnerOptions

#: Beam and Prism; CONTRIBUTING.md says what a newer one asks for.
BEAM = "2.77.0"
PYTHON = ("3.11",)
JAVA = (17,)
JAVA_MINIMUM = 11

#: Beam's Java runner libraries that the job servers of scripts/flink and scripts/spark are put together from.
RUNNER_LIBRARIES = "2.70.0"
#: beam-runners-java-job-service, one of these libraries.
JOB_SERVICE = "2.65.0"
FLINK = "1.19.3"
SPARK = "3.5.0"
#: Releases of PySpark that our own runner has run on; tests/engines takes one of them.
PYSPARK = ("3.4", "3.5", "4.0", "4.3")
PYSPARK_MINIMUM = (3, 4)


@dataclass(frozen=True)
class Engine:
    """One tested row: engine, version, and how the Python workers were started."""

    runner: str
    version: str
    mode: str
    workers: str


TESTED = (
    Engine("FnApiRunner", BEAM, "in the launcher", "threads; 2 processes"),
    Engine("PrismRunner", BEAM, "local process", "LOOPBACK"),
    Engine("FlinkRunner", FLINK, "embedded [local]", "LOOPBACK, PROCESS"),
    Engine("FlinkRunner", FLINK, "standalone cluster", "PROCESS, LOOPBACK"),
    Engine("PySparkRunner", "4.3", "local[N], local-cluster, standalone cluster, YARN 3.4.1", "Spark's"),
    Engine("SparkRunner", SPARK, "embedded local[N]", "LOOPBACK, PROCESS"),
    Engine("SparkRunner", SPARK, "standalone cluster", "PROCESS"),
)


RUNNERS = tuple(dict.fromkeys(engine.runner for engine in TESTED))


@dataclass(frozen=True)
class Verdict:
    """Whether to go on. `level` is "ok", "warn" or "refuse"; `reason` is one sentence, `fix` what to do."""

    level: str
    reason: str
    fix: str = ""


def runner(name: str) -> Verdict:
    """Judge a runner: one that loses data does not say so."""
    if name in RUNNERS:
        return Verdict("ok", name)
    fix = f"take one of {', '.join(RUNNERS)}; to release all the same: --untested_runner"
    return Verdict("warn", f"{name} is not tested with dpbeam", fix)


def minor(version: str) -> str:
    """ "1.19.3" -> "1.19"."""
    return ".".join(version.split(".")[:2])


def flink(version: str) -> Verdict:
    """Judge a Flink cluster's version."""
    if minor(version) == minor(FLINK):
        return Verdict("ok", f"Flink {version}")
    published = FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS
    if minor(version) in published:
        return Verdict(
            "warn",
            f"Flink {version} is not tested with dpbeam",
            f"use Flink {minor(FLINK)}, or give Beam's job server for it: --flink_version={minor(version)}",
        )
    return Verdict(
        "refuse", f"Beam has no runner for Flink {version}", f"use one of Flink {', '.join(published)}"
    )


def pyspark(version: str) -> Verdict:
    """Judge the PySpark of this machine, which is that of the session."""
    if minor(version) in PYSPARK:
        return Verdict("ok", f"PySpark {version}")
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if release < PYSPARK_MINIMUM:
        return Verdict("refuse", f"PySpark {version} is too old", f"use PySpark {PYSPARK[-1]}")
    return Verdict(
        "warn", f"PySpark {version} is not tested with dpbeam", f"use PySpark {', '.join(PYSPARK)}"
    )


def java(major: int) -> Verdict:
    """Judge the Java that runs the job server."""
    if major in JAVA:
        return Verdict("ok", f"Java {major}")
    if major < JAVA_MINIMUM:
        return Verdict("refuse", f"Java {major} is too old", "install Java 17 and set JAVA_HOME")
    return Verdict("warn", f"Java {major} is not tested with dpbeam", "install Java 17 and set JAVA_HOME")


def beam(version: str) -> Verdict:
    """Judge the installed Beam."""
    if version == BEAM:
        return Verdict("ok", f"Beam {version}")
    return Verdict("warn", f"Beam {version} is not tested with dpbeam", f"pip install apache-beam=={BEAM}")


def python(version: str) -> Verdict:
    """Judge the Python release, as "3.11"."""
    if version in PYTHON:
        return Verdict("ok", f"Python {version}")
    return Verdict("warn", f"Python {version} is not tested on clusters", f"use Python {', '.join(PYTHON)}")
