"""Beam's options of a run."""

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dpbeam.jobs.engine import pipeline_options


@pytest.mark.parametrize(
    "name",
    [
        "",
        "FnApiRunner",
        "DirectRunner",
        "direct",
        "SwitchingDirectRunner",
        "BundleBasedDirectRunner",
        "apache_beam.runners.direct.DirectRunner",
    ],
)
def test_the_runner_in_this_process_is_one_whatever_its_name(name):
    """Others of Beam would look for Prism, run a job twice, or hide an error behind another attempt."""
    arguments = [f"--runner={name}"] if name else []
    assert type(beam.Pipeline(options=pipeline_options(arguments)).runner) is FnApiRunner


def test_other_runners_keep_their_names():
    assert pipeline_options(["--runner=FlinkRunner"]).get_all_options()["runner"] == "FlinkRunner"
