"""Items of known weight are released as often as sigma and the thresholds say: Phi((weight - rho)/sigma).

Users hold one item each, so an item of k users weighs k. False-alarm rate below 1e-9 a check; a weight, sigma or
threshold that is wrong by a tenth fails.
"""

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dpbeam.engine.in_process import run_in_process
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from tests.support.running import key
from tests.support.statistics import FALSE_ALARM, binomial_p

ITEMS = 20_000
EPSILON, DELTA = 2.0, 1e-3


def released_count(program, holders: int, text: str) -> int:
    users = np.arange(ITEMS * holders)
    batch = (pa.array(users.astype("U")), pa.array((users % ITEMS).astype("U")))
    return len(run_in_process(program, [batch], key(text), num_blocks=2, num_shards=2))


def check(count: int, probability: float, wrong: list[float]) -> None:
    assert 0.02 < probability < 0.98
    assert binomial_p(count, ITEMS, probability) > FALSE_ALARM
    for other in wrong:
        assert binomial_p(count, ITEMS, other) < FALSE_ALARM


@pytest.mark.parametrize("method", ["basic", "mad"])
@pytest.mark.parametrize("holders", [5, 8])
def test_one_round(method, holders):
    plan = make_plan(SelectionConfig(EPSILON, DELTA, method=method))
    sigma, rho = plan.rounds[0].sigma, plan.rounds[0].threshold

    def keep(weight, sigma, rho):
        return float(stats.norm.cdf((weight - rho) / sigma))

    wrong = [keep(holders, sigma * f, rho) for f in (0.8, 1.25)] + [
        keep(holders * f, sigma, rho) for f in (0.9, 1.1)
    ]
    check(released_count(plan.program, holders, f"{method} {holders}"), keep(holders, sigma, rho), wrong)


@pytest.mark.parametrize(
    ("method", "accounting"), [("dp-sips", "basic"), ("dp-sips", "gaussian"), ("mad2r", "basic")]
)
def test_several_rounds(method, accounting):
    """Independent rounds: kept unless every one misses. For mad2r no item may be heavy, biased or hopeless."""
    options = {"lower_confidence": 10.0, "upper_confidence": 10.0} if method == "mad2r" else {}
    plan = make_plan(SelectionConfig(EPSILON, DELTA, method=method, accounting=accounting, **options))
    rounds = [(r.sigma, r.threshold) for r in plan.rounds]

    def keep(weight, rounds):
        return 1 - float(np.prod([stats.norm.sf((rho - weight) / -sigma) for sigma, rho in rounds]))

    wrong = [keep(7 * f, rounds) for f in (0.9, 1.1)] + [keep(7, [(s * 0.8, rho) for s, rho in rounds])]
    check(released_count(plan.program, 7, f"{method} {accounting}"), keep(7, rounds), wrong)


def test_group_sequential_final_checkpoint():
    """gsu without score that tests at the end alone: drift cap(1) holders G_R against rho_R with noise sigma."""
    plan = make_plan(
        SelectionConfig(EPSILON, DELTA, method="gsu", rounds=4, gsu_score=False, gsu_final_spending=1.0)
    )
    program, holders = plan.program, 8
    assert np.isinf(program.thresholds[:-1]).all()

    def keep(holders, sigma=program.sigma):
        drift = min(1.0, float(program.caps[1])) * holders * program.drifts[-1]
        return float(stats.norm.cdf((drift - program.thresholds[-1]) / sigma))

    wrong = [keep(holders * 0.9), keep(holders * 1.1), keep(holders, program.sigma * 0.8)]
    check(released_count(program, holders, "gsu"), keep(holders), wrong)
