"""The tested matrix as data, and that the scripts fetch what it says."""

import pathlib
import subprocess

import pytest

from dpbeam.runners import matrix

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_scripts_fetch_the_tested_versions():
    shell = 'REPO=$0; set -a; . "$REPO/scripts/_engines/versions.sh"; env'
    printed = subprocess.run(["bash", "-c", shell, ROOT], check=True, capture_output=True, text=True).stdout
    versions = dict(line.partition("=")[::2] for line in printed.splitlines())
    tested = {
        "FLINK_VERSION": matrix.FLINK,
        "FLINK_MINOR": matrix.minor(matrix.FLINK),
        "SPARK_VERSION": matrix.SPARK,
        "RUNNER_VERSION": matrix.RUNNER_LIBRARIES,
        "JOB_SERVICE_VERSION": matrix.JOB_SERVICE,
        "PRISM_VERSION": matrix.BEAM,
    }
    assert tested.items() <= versions.items()


def test_the_docs_show_the_tested_matrix():
    text = (ROOT / "docs/reference/runners.md").read_text()
    for row in matrix.TESTED:
        assert f"| {row.runner} | {row.version} | {row.mode} | {row.workers} |" in text


@pytest.mark.parametrize(
    ("verdict", "level"),
    [
        (matrix.flink("1.19.0"), "ok"),
        (matrix.flink("1.19.3"), "ok"),
        (matrix.flink("1.20.1"), "warn"),
        (matrix.flink("2.2.0"), "warn"),
        (matrix.flink("1.18.1"), "refuse"),
        (matrix.flink("1.1.19"), "refuse"),
        (matrix.pyspark("3.5.6"), "ok"),
        (matrix.pyspark("4.0.0.dev1"), "ok"),
        (matrix.pyspark("4.7.1"), "warn"),
        (matrix.pyspark("3.3.4"), "refuse"),
        (matrix.java(17), "ok"),
        (matrix.java(21), "warn"),
        (matrix.java(8), "refuse"),
        (matrix.beam(matrix.BEAM), "ok"),
        (matrix.beam("2.70.0"), "warn"),
        (matrix.python("3.11"), "ok"),
        (matrix.python("3.13"), "warn"),
    ],
)
def test_verdicts(verdict, level):
    assert verdict.level == level
    assert bool(verdict.fix) == (level != "ok")
