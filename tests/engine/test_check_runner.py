"""`dpbeam.testing.check_runner` passes Beam's in-process runner, and names what a broken one loses."""

from types import SimpleNamespace

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner

from dpbeam.testing import check_runner
from tests.support.hostile import Steps


class Broken(PipelineRunner):
    """Beam's in-process runner, with other functions in some steps."""

    def run_pipeline(self, pipeline, options):
        steps = Steps()
        pipeline.visit(steps)
        self.spoil(steps)
        return FnApiRunner().run_pipeline(pipeline, options)

    def spoil(self, steps):
        """Nothing."""


class Changed(beam.DoFn):
    def __init__(self, fn):
        self.fn = fn

    def start_bundle(self):
        self.fn.start_bundle()

    def process(self, element, *sides):
        return self.fn.process(element, *sides)

    def finish_bundle(self):
        return self.fn.finish_bundle()


class Nothing(Changed):
    def process(self, element, *sides):
        return None


class NoEnds(Changed):
    def finish_bundle(self):
        return None


class NoSides(Changed):
    def process(self, element, *sides):
        return self.fn.process(element, *([], 0)[: len(sides)])


class Swallows(Changed):
    def process(self, element, *sides):
        try:
            yield from self.fn.process(element, *sides) or ()
        except RuntimeError:
            return


class DropsLeaves(Broken):
    def spoil(self, steps):
        for node in steps.leaves[:-1]:
            node.transform.fn = Nothing(node.transform.fn)


class Spoils(Broken):
    def __init__(self, label, kind):
        self.label, self.kind = label, kind

    def spoil(self, steps):
        for node in steps.all:
            if node.full_label == self.label:
                node.transform.fn = self.kind(node.transform.fn)


class NoMetrics(Broken):
    def run_pipeline(self, pipeline, options):
        result = super().run_pipeline(pipeline, options)
        empty = SimpleNamespace(query=lambda wanted: {"counters": []})
        return SimpleNamespace(wait_until_finish=result.wait_until_finish, metrics=lambda: empty)


def test_beam_s_own_passes(tmp_path):
    check_runner("FnApiRunner", str(tmp_path))
    check_runner(NoMetrics(), str(tmp_path), metrics=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "runner, message",
    [
        (DropsLeaves(), "^first leaf: 40 of 40 elements are lost.*; side inputs: 20 of 20 elements"),
        (Spoils("AtTheEnd", NoEnds), "^ends of bundles: 40 of 40 elements are lost, 0 are others$"),
        (Spoils("Beside", NoSides), "^side inputs: 20 of 20 elements are lost, 20 are others$"),
        (
            Spoils("More/Map(decode)", Nothing),
            "^flattened: 20 of 60 elements are lost.*; groups of flattened: 7",
        ),
        (Spoils("Fail", Swallows), "^a bundle that failed: 1 of 7 elements are lost, 1 are others$"),
        (NoMetrics(), "^metrics: the counter of 'first leaf' is None, not 40"),
    ],
    ids=["leaves", "ends", "sides", "branch", "retry", "metrics"],
)
def test_what_is_broken_is_named(runner, message, tmp_path):
    with pytest.raises(AssertionError, match=message):
        check_runner(runner, str(tmp_path))
