"""Tuning: what is tried, that its figures are those of a run, and which choice it picks."""

import numpy as np
import pytest

from dpbeam.engine.in_process import run_in_process
from dpbeam.errors import InputError
from dpbeam.selectors.registry import selectors
from dpbeam_lab.evaluation import tuning
from dpbeam_lab.evaluation.data import Repetition
from dpbeam_lab.evaluation.population import Model
from dpbeam_lab.evaluation.tuning import Choice, Figures, choices, tune

MODEL = Model(users=1500, mean_items_per_user=6.0, item_exponent=1.0)


def population(number: int):
    return MODEL.draw(np.random.default_rng([1, number]))


class TestChoices:
    @pytest.mark.parametrize("name", selectors())
    def test_what_a_selector_declares_are_settings_of_it_and_they_work(self, name):
        selector = selectors()[name]
        known = {"max_items_per_user", *selector.settings_type.described()}
        assert set(selector.tunable) <= known and "max_items_per_user" in selector.tunable
        tried = choices(1.0, 1e-5, [name])
        assert len(tried) == np.prod([len(values) for values in selector.tunable.values()])
        assert len({str(choice.settings) for choice in tried}) == len(tried)

    def test_all_methods_and_what_one_refuses_is_left_out(self):
        tried = choices(1.0, 1e-5, tried={"max_items_per_user": (2,)})
        methods = {choice.method for choice in tried}
        assert {"basic", "vote"} <= methods and not {"mad", "mad2r"} & methods
        assert {choice.max_items for choice in tried} == {2}

    def test_a_method_that_refuses_everything_says_why(self):
        with pytest.raises(InputError, match="--max_items_per_user must be at least 4 for --method=mad2r"):
            choices(1.0, 1e-5, ["mad2r"], {"max_items_per_user": (2,)})
        with pytest.raises(InputError, match="--method must be one of"):
            choices(1.0, 1e-5, ["none"])

    def test_flags_are_those_of_the_command(self):
        flags = choices(1.0, 1e-5, ["bits"])[0].flags(1.0, 1e-5)
        assert flags["settings"]["budget_split"] == [0.05, 0.1, 0.2, 0.65]
        assert (flags["epsilon"], flags["delta"], flags["method"]) == (1.0, 1e-5, "bits")


class TestFigures:
    def test_they_are_those_of_a_run_on_the_same_key(self):
        tried = choices(1.0, 1e-4, ["basic", "dp-sips", "vote"], {"max_items_per_user": (20,)})
        tuned = tune(population, tried, repetitions=2, tolerance=0.5, seed=5)
        assert len(tuned.estimates) == len(tried)
        for estimate in tuned.estimates:
            for number, count in enumerate(estimate.items):
                drawn = population(number)
                key = Repetition(5, number).key
                released = run_in_process(estimate.choice.plan.program, drawn.data().batches(), key)
                assert len(released) == count
                numbers = [int.from_bytes(item, "big") for item in released.items.to_pylist()]
                share = drawn.holders[numbers].sum() / drawn.pairs
                assert estimate.pairs[number] == pytest.approx(share)
        assert max(estimate.mean("items") for estimate in tuned.estimates) > 10

    def test_the_same_seed_gives_the_same_figures(self):
        tried = choices(1.0, 1e-4, ["basic"], {"max_items_per_user": (10, 50)})
        first, second, other = (
            [estimate.items for estimate in tune(population, tried, repetitions=3, seed=seed).estimates]
            for seed in (1, 1, 2)
        )
        assert first == second != other


class Fake:
    """In place of runs: fixed figures, one list for each choice."""

    def __init__(self, monkeypatch, figures: dict[str, list[int]], trips: dict[str, int]):
        self.ran: list[tuple[str, int]] = []
        self.figures = figures
        monkeypatch.setattr(tuning, "run_choice", self._run)
        monkeypatch.setattr(Choice, "trips", property(lambda choice: trips[choice.settings["name"]]))
        plan = choices(1.0, 1e-5, ["basic"])[0].plan
        self.choices = [Choice("basic", {"name": name}, plan) for name in figures]

    def _run(self, choice, data, holders, repetition):
        name = choice.settings["name"]
        self.ran.append((name, repetition.number))
        count = self.figures[name][repetition.number]
        return Figures(count, count / 1e4, 0.0)

    def tune(self, **options):
        return tune(lambda number: POPULATION, self.choices, **options)


POPULATION = Model(3, 1.0, 1.0).draw(np.random.default_rng(0))


def picked(result) -> tuple[str, str]:
    return result.best.choice.settings["name"], result.chosen.choice.settings["name"]


class TestRace:
    def test_the_pick_has_fewest_trips_within_the_tolerance(self, monkeypatch):
        figures = {"best": [1000] * 4, "near": [985] * 4, "cheap": [981] * 4, "cheaper": [979] * 4}
        trips = {"best": 16, "near": 8, "cheap": 8, "cheaper": 1}
        fake = Fake(monkeypatch, figures, trips)
        assert picked(fake.tune(repetitions=4)) == ("best", "near")
        assert picked(fake.tune(repetitions=4, tolerance=0.03)) == ("best", "cheaper")
        assert picked(fake.tune(repetitions=4, tolerance=0.0)) == ("best", "best")

    def test_those_that_cannot_win_run_once_and_close_ones_go_on(self, monkeypatch):
        """From 10,000 items, three deviations of a difference are 4.2 % after one run, 3 % after two."""
        figures = {"a": [10_000] * 4, "b": [9_450] * 4, "c": [9_350] * 4, "d": [5_000] * 4}
        fake = Fake(monkeypatch, figures, dict.fromkeys(figures, 1))
        result = fake.tune(repetitions=4)
        assert [estimate.repetitions for estimate in result.estimates] == [4, 2, 1, 1]

    def test_a_lucky_first_run_does_not_decide(self, monkeypatch):
        figures = {"lucky": [1060, 900, 900, 900], "good": [1000] * 4}
        fake = Fake(monkeypatch, figures, {"lucky": 1, "good": 1})
        assert picked(fake.tune(repetitions=4)) == ("good", "good")

    def test_no_time_still_gives_an_answer_and_says_what_is_missing(self, monkeypatch):
        figures = {"a": [10] * 4, "b": [20] * 4, "c": [30] * 4}
        fake = Fake(monkeypatch, figures, dict.fromkeys(figures, 1))
        result = fake.tune(repetitions=4, time_limit=1e-9)
        assert len(fake.ran) == 1 and result.not_run == 2 and picked(result) == ("a", "a")

    def test_what_was_cut_short_is_compared_with_those_one_run_behind(self, monkeypatch):
        figures = {"a": [100] * 4, "b": [150] * 4}
        fake = Fake(monkeypatch, figures, dict.fromkeys(figures, 1))
        clock = iter(range(100))
        monkeypatch.setattr(tuning.time, "monotonic", lambda: float(next(clock)))
        result = fake.tune(
            repetitions=4, time_limit=2.5
        )  # the clock says 1 and 2 before the runs of b and of a again
        assert fake.ran == [("a", 0), ("b", 0), ("a", 1)]
        assert picked(result) == ("b", "b")

    def test_errors_need_three_runs(self, monkeypatch):
        fake = Fake(monkeypatch, {"a": [10, 12, 14, 12]}, {"a": 1})
        assert fake.tune(repetitions=2).best.error("items") is None
        assert fake.tune(repetitions=4).best.error("items") == pytest.approx(np.sqrt(8 / 3) / 2)

    def test_progress_ends_where_it_was_announced(self, monkeypatch):
        figures = {"a": [1000] * 4, "b": [10] * 4}
        fake = Fake(monkeypatch, figures, dict.fromkeys(figures, 1))
        begun, done = [], []
        fake.tune(repetitions=4, begin=lambda *numbers: begun.append(numbers), advance=done.append)
        assert begun == [(8, 0), (5, 2), (5, 3)] and len(done) == 5


def test_rivals_are_other_methods_near_the_pick():
    candidates = choices(1.0, 1e-5, ["gsu", "vote", "laplace", "basic"])
    means = {"gsu": 100, "vote": 90, "laplace": 79, "basic": 81}
    seen: dict[str, int] = {}

    def runs(population, repetition, wanted):
        for place, choice in enumerate(wanted):
            seen[choice.method] = seen.get(choice.method, 0) + 1
            # The largest of each method is its first; the others are less.
            yield place, Figures(means[choice.method] - (seen[choice.method] > 1), 0.5, 0.0)

    outcome = tune(lambda number: None, candidates, repetitions=1, tolerance=0.0, runs=runs)
    assert outcome.chosen.choice.method == "gsu"
    assert outcome.rivals(1.25) == {"vote": 90.0, "basic": 81.0}
    assert list(outcome.rivals(2)) == ["vote", "basic", "laplace"] and outcome.rivals(1.0) == {}
