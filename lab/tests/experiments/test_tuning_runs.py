"""Tuning in several processes: the figures of one."""

import json

import numpy as np
import pytest

from dpbeam.selectors.registry import selectors
from dpbeam_lab.evaluation.population import Model
from dpbeam_lab.evaluation.tuning import choices, tune
from dpbeam_lab.experiments import tuning_runs
from dpbeam_lab.experiments.tuning_runs import ParallelRuns

MODEL = Model(users=400, mean_items_per_user=6.0, item_exponent=1.0)
METHODS = list(selectors())[::2]


def population(number: int):
    return MODEL.draw(np.random.default_rng([1, number]))


def tuned(jobs, population=population, **options):
    tried = choices(1.0, 1e-4, METHODS, {"max_items_per_user": (10,)})
    with ParallelRuns(jobs) as runs:
        tuning = tune(population, tried, repetitions=3, seed=4, runs=runs, **options)
        return tuning, runs.started


def said(tuning) -> str:
    """The report's bytes, but for times."""
    report = tuning.report(1.0, 1e-4)
    for facts in (report["best"], report["pick"], *report["choices"]):
        assert facts.pop("cpu_seconds") >= 0
    return json.dumps(report)


@pytest.mark.engines  # two more processes
def test_two_processes_find_what_one_finds_and_leave_nothing(tmp_path, monkeypatch):
    """Two repetitions on one population, as data are, and one on another; each is written once."""
    monkeypatch.setattr(tuning_runs.tempfile, "tempdir", str(tmp_path))
    drawn = [population(0), population(1)]
    written: list[int] = []
    save = tuning_runs.PairData.save

    def noted(data, folder):
        written.append(data.size)
        save(data, folder)

    monkeypatch.setattr(tuning_runs.PairData, "save", noted)

    def source(number):
        return drawn[number // 2]

    one, count = tuned(1, source)
    assert count == 1 and not written
    done = []
    two, count = tuned(2, source, advance=lambda _: done.append(len(list(tmp_path.glob("*/[!o]*")))))
    assert set(done) == {1} and not list(tmp_path.iterdir())
    assert count == 2 and written == [drawn_data.pairs for drawn_data in drawn]
    for mine, others in zip(one.estimates, two.estimates):
        assert (mine.items, mine.pairs) == (others.items, others.pairs)
        assert len(others.seconds) == others.repetitions
    assert said(one) == said(two)
    assert len(done) == sum(estimate.repetitions for estimate in two.estimates)
    assert max(estimate.repetitions for estimate in two.estimates) == 3


def test_little_to_do_starts_no_process(monkeypatch):
    assert tuned(None)[1] == 1
    monkeypatch.setattr(tuning_runs, "WORTH_PROCESSES", 1)
    monkeypatch.setattr(tuning_runs, "processes", lambda pairs, jobs: 2)
    asked = []
    monkeypatch.setattr(tuning_runs, "started", lambda work, count: asked.append(count) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tuned(None)
    assert asked == [2]


def test_choices_of_one_sample_stay_together():
    tried = sorted(choices(1.0, 1e-4, ["basic", "gsu"]), key=lambda choice: choice.plan.program.cap)
    lots = list(tuning_runs._lots(tried, 6))
    assert [place for lot in lots for place in lot] == list(range(len(tried)))
    assert all(len({tried[place].plan.program.cap for place in lot}) == 1 for lot in lots)
    assert max(map(len, lots)) == 5 and max(map(len, tuning_runs._lots(tried, 4))) == 4
