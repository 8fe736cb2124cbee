"""Noisy counts of a series: what one user adds to all of them, their noise, and what they cost."""

import warnings
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from scipy import stats

import dpbeam
from dpbeam.accounting.accountant import account
from dpbeam.accounting.noise import NoiseMismatchError
from dpbeam.errors import InputError
from dpbeam.kernels.grid import UNITS
from dpbeam.series.config import plan_series
from dpbeam.series.counts import SeriesCounts
from dpbeam.series.family import SeriesConfig
from dpbeam.series.state import SeriesState
from tests.series import faulty
from tests.series.streams import arrays, keys_of, plan_of, released, run_night
from tests.support.statistics import FALSE_ALARM, correlation_p, distribution_p, variance_p

D0, NIGHTS = 7, 4


@dataclass(frozen=True)
class Recorder(SeriesCounts):
    """Remembers exact counts, each of them once."""

    exact: dict[bytes, int] = field(default_factory=dict)

    def release(self, users, fp, keys):
        for name, number in zip(map(bytes, fp), users.tolist()):
            assert name not in self.exact
            self.exact[name] = number
        return super().release(users, fp, keys)


def stream(newcomer: bool) -> list[list[tuple[str, str]]]:
    """On each night others bring D0 popular items; the newcomer all of them, old ones too."""
    nights = []
    for night in range(NIGHTS):
        items = [f"night {night} item {i}" for i in range(D0)]
        nights.append([(f"user {night} {u}", item) for u in range(80) for item in items])
        if newcomer:
            old = [f"night {n} item {i}" for n in range(night) for i in range(D0)]
            nights[-1] += [("newcomer", item) for item in [*items, *old]]
    return nights


def added(build: faulty.Honest, monkeypatch) -> list[int]:
    """What the newcomer adds to the count of each item."""
    plan = plan_of(NIGHTS, epsilon=6.0, delta=0.01, max_items_per_user=D0)
    seen, outs = [], []
    for newcomer in (False, True):
        counts, keys, state = Recorder(1.0, D0, 99), keys_of(3), SeriesState.empty()
        monkeypatch.setattr(faulty, "run_night", lambda *arguments, c=counts: run_night(*arguments, c))
        for pairs in stream(newcomer):
            state = build.run(build.program(plan), state, *arrays(pairs), keys)
            state = build.erase(state, arrays([("newcomer", "")])[0], keys)
        seen.append(counts.exact)
        outs.append(released(state))
    assert outs[0] == outs[1] and len(outs[0]) == NIGHTS * D0
    return [seen[1][name] - number for name, number in seen[0].items()]


def test_a_user_adds_one_to_at_most_d0_counts_of_all_nights(monkeypatch):
    moved = added(faulty.Honest(), monkeypatch)
    assert set(moved) == {0, 1} and sum(moved) == D0


@pytest.mark.parametrize("fault", [faulty.SetResetEachNight, faulty.FreshRanksOnReturn])
def test_planted_faults_move_more(fault, monkeypatch):
    assert sum(added(fault(), monkeypatch)) > D0


@pytest.mark.parametrize("items", [1, 2, 7, 300, 10_000])
def test_what_a_user_gives_has_norm_at_most_one(items):
    unit = SeriesCounts(3.0, items, 5).unit
    assert items * unit**2 <= UNITS**2 < items * (unit + 1) ** 2


def test_counts_are_exact_but_for_their_noise():
    fp = np.arange(2000, dtype=np.uint64).reshape(-1, 2)
    users = np.arange(1000) * 1000
    assert np.array_equal(SeriesCounts(1e-6, 300, 9).release(users, fp, keys_of(1)), users)


@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (0.7, False), (1.3, False)])
def test_their_noise_has_the_stated_deviation(factor, fits):
    fp = np.arange(40_000, dtype=np.uint64).reshape(-1, 2)
    counts = SeriesCounts(4.0, 300, 9)
    noise = counts.release(np.zeros(len(fp), np.int64), fp, keys_of(2)).astype(np.float64)
    deviation = counts.deviation * factor
    assert counts.deviation == pytest.approx(4 * 300**0.5, rel=1e-8)
    # Rounding to whole numbers adds a twelfth to a variance of 4,800, far below what is seen here.
    assert (variance_p(noise, deviation**2) > FALSE_ALARM) == fits
    spread = noise + np.random.default_rng(1).random(len(noise)) - 0.5
    assert (distribution_p(spread, stats.norm(0, deviation)) > FALSE_ALARM) == fits


def test_it_is_no_noise_of_a_round():
    plan = plan_of(noisy_counts=True, noisy_count_share=0.3)
    fp, keys = np.arange(40_000, dtype=np.uint64).reshape(-1, 2), keys_of(4)
    drawn = plan.counts.release(np.zeros(len(fp), np.int64), fp, keys).astype(np.float64)
    for noise in plan.program.noises():
        assert noise.round != plan.counts.round
        assert correlation_p(drawn, keys.noise(noise, fp).astype(np.float64)) > FALSE_ALARM


@pytest.mark.parametrize("nights", [1, 4, 64])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.9])
def test_all_together_cost_the_budget(nights, share):
    plan = plan_series(SeriesConfig(1.0, 1e-5, nights, noisy_counts=True, noisy_count_share=share))
    assert 0.99e-5 < account(plan.event, 1.0).delta <= 1e-5
    alone = plan_series(SeriesConfig(1.0, 1e-5, nights))
    assert plan.calibration.sigma > alone.calibration.sigma
    assert alone.counts is None and "noisy_counts" not in alone.config.stated()


def test_a_plan_is_held_to_the_items_of_a_user():
    plan = plan_of(noisy_counts=True, noisy_count_share=0.2)
    with pytest.raises(NoiseMismatchError, match="another number of items per user"):
        replace(plan, counts=replace(plan.counts, items=1))
    with pytest.raises(NoiseMismatchError):
        replace(plan, counts=replace(plan.counts, round=1))
    values = plan.config.stated()
    assert SeriesConfig.of_parameters(4.0, 0.1, values) == plan.config


def series(**settings) -> dpbeam.Series:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dpbeam.Series(epsilon=6, delta=0.01, nights=NIGHTS, insecure_test_key="1", **settings)


def test_by_the_front_door(tmp_path):
    one = series(noisy_counts=True, max_items_per_user=D0, folder=str(tmp_path / "s"))
    nights = [one.run({"user": [u for u, _ in n], "item": [i for _, i in n]}) for n in stream(False)]
    out = one.released()
    assert out.column_names == ["item", "night", "noisy_count", "noisy_count_sd"] and out.num_rows == 28
    for name in ("item", "noisy_count", "noisy_count_sd"):
        assert [value for night in nights for value in night.table[name].to_pylist()] == out[name].to_pylist()
    assert [item for night in nights for item in night.items] == out["item"].to_pylist()
    deviation = one.ledger.parameters["noisy_count_sd"]
    assert set(out["noisy_count_sd"].to_pylist()) == {deviation}
    # 28 counts of 80 users; a correct program fails once in 10^12 runs.
    assert all(abs(count - 80) < 7.5 * deviation for count in out["noisy_count"].to_pylist())
    assert one.ledger.parameters["noisy_counts"] and one.ledger.verify().delta <= 0.01
    one.close()
    assert dpbeam.Series.load(str(tmp_path / "s")).released() == out
    plain = series(max_items_per_user=D0)
    plain.run({"user": ["a"], "item": ["b"]})
    assert plain.released().column_names == ["item", "night"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noisy_count_share": 0.1}, "^noisy_count_share needs noisy_counts"),
        ({"noisy_counts": True, "noisy_count_share": 1.5}, "^noisy_count_share must lie strictly between"),
    ],
)
def test_shares_out_of_range_name_themselves(settings, message):
    with pytest.raises(InputError, match=message):
        series(**settings)


def test_an_item_column_that_counts_need_is_refused_before_the_folder_is_taken(tmp_path):
    with pytest.raises(InputError, match="'noisy_count' is the column that noisy_counts adds"):
        series(noisy_counts=True, item=["a", "noisy_count"], folder=str(tmp_path / "s"))
    assert not list(tmp_path.iterdir())


def test_a_state_from_before_there_were_counts_is_read():
    plan, state = plan_of(NIGHTS, epsilon=6.0, delta=0.01, max_items_per_user=D0), SeriesState.empty()
    state = run_night(plan.program, state, *arrays(stream(False)[0]), keys_of(3))
    columns = {name: values for name, values in state.to_columns().items() if name != "released_count"}
    again = SeriesState.from_columns(columns)
    assert released(again) == released(state) and len(again.released_count) == len(again.released) > 0
