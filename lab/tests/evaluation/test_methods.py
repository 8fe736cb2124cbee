"""Methods of experiments give what the front doors give under the same key; baselines are what they say."""

import numpy as np
import pyarrow as pa
import pytest

import dpbeam
from dpbeam.errors import InputError
from dpbeam_lab.evaluation.data import HistogramData, MarketData, PairData, Repetition
from dpbeam_lab.evaluation.hitting_methods import _all_users, _composed, _plan
from dpbeam_lab.evaluation.indexed import index_pairs
from dpbeam_lab.evaluation.measures import Case
from dpbeam_lab.evaluation.methods import Method
from dpbeam_lab.evaluation.registry import measures_of, methods, register, run

BUDGET = (3.0, 1e-3)
KEY = "evaluate 4 2"
AT = Repetition(4, 2)


@pytest.fixture(scope="module")
def columns() -> tuple[list, list]:
    rng = np.random.default_rng(8)
    users = rng.integers(0, 400, 6000)
    items = (200 ** rng.random(6000)).astype(int)
    return [f"user {u}" for u in users], [f"item {i}" for i in items]


@pytest.fixture(scope="module")
def data(columns) -> PairData:
    encoded = tuple(pa.array(column).cast(pa.large_binary()) for column in columns)
    return PairData(index_pairs([encoded]))


def items(name: str, data, **settings) -> list[str]:
    outcome, seconds = run(methods()[name].prepare(*BUDGET, settings), data, AT)
    assert seconds > -1e-3
    return [item.decode() for item in data.items.take(pa.array(outcome.items)).to_pylist()]


@pytest.mark.parametrize(
    "settings",
    [{}, {"method": "gsu", "rounds": 4, "max_items_per_user": 7}, {"method": "dp-sips"}, {"method": "bits"}],
)
def test_select(settings, columns, data):
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        expected = dpbeam.select(columns, epsilon=3, delta=1e-3, insecure_test_key=KEY, **settings)
    assert len(expected) > 5
    for _ in range(2):  # the second time with blocks that have been used
        assert sorted(items("select", data, **settings)) == expected.items


@pytest.mark.parametrize("settings", [{"k": 9}, {"k": 5, "selector": "basic", "selector_share": 0.7}])
def test_hitting_set(settings, columns, data):
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        expected = dpbeam.hitting_set(columns, epsilon=3, delta=1e-3, insecure_test_key=KEY, **settings)
    assert items("hitting-set", data, **settings) == expected.items and len(expected) > 3
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        public = dpbeam.hitting_set(
            columns, epsilon=3, delta=1e-3, k=9, domain=sorted(set(columns[1])), insecure_test_key=KEY
        )
    assert items("hitting-set", data, k=9, public_domain=True) == public.items


def test_greedy_takes_what_hits_most(columns, data):
    held: dict[str, set] = {}
    for user, item in zip(*columns):
        held.setdefault(item, set()).add(user)
    covered: set = set()
    for item in items("greedy", data, k=6):
        gains = {name: len(users - covered) for name, users in held.items()}
        assert gains[item] == max(gains.values())
        covered |= held[item]


def test_every_method_runs_and_is_measured(data):
    """On settings of its own where it needs some; what ranks finds mostly the most frequent items."""
    rng = np.random.default_rng(5)
    market = MarketData(rng.random(300), rng.random((300, 2)), 60.0)
    of_kind = {"pairs": data, "histogram": data, "market": market}
    for name, method in methods().items():
        settings = {"k": 4} if "k" in method.settings({}) else {}
        outcome, _ = run(method.prepare(*BUDGET, settings), of_kind[method.data], AT)
        case = Case(of_kind[method.data], outcome, *BUDGET, settings)
        figures = {m.name: m.compute(case) for m in measures_of(method.kind)}
        assert figures, name
        if method.kind == "top-k":
            assert figures["released"] == 4 and figures["topk_missing_mass"] < 0.05, name
        if method.kind == "hitting-set":
            assert figures["released"] == 4 and figures["users_missed"] < 100, name
        if method.kind == "packing":
            assert figures["rounds"] > 1 and 0 <= figures["feasible_welfare"] <= 1 + 1e-9, name


def test_the_parts_of_a_hitting_set(data):
    """Composed as any k choices are, choices have less; the baseline of the paper is another selection too."""
    settings = {"k": 100, "max_items_per_user": 20}
    plan = _plan(*BUDGET, settings)
    assert 0 < _composed(plan) < 0.5 * _all_users(plan)
    assert plan.epsilon0 > _all_users(plan)
    items_by_choice = [
        items("hitting-set-parts", data, choices=choices, **settings) for choices in ("all-users", "composed")
    ]
    assert set(items_by_choice[0]) == set(items_by_choice[1])  # all of the domain
    published = items("hitting-set-parts", data, choices="published", **settings)
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        half = dpbeam.select(
            _named(data),
            epsilon=1.5,
            delta=5e-4,
            method="basic",
            max_items_per_user=20,
            insecure_test_key=KEY,
        )
    assert set(published) == set(half.items)
    with pytest.raises(InputError, match="choices must be"):
        methods()["hitting-set-parts"].prepare(*BUDGET, {"k": 3, "choices": "none"})


def _named(data) -> tuple[list, list]:
    pairs = [part for batch in data.batches() for part in zip(*(column.to_pylist() for column in batch))]
    return tuple([value.decode() for value in side] for side in zip(*pairs))


def test_known_counts_of_pairs_and_of_their_histogram(data):
    histogram = HistogramData(data.items, np.asarray(data.holders))
    for mechanism in ("cdp-peel", "pnf-peel", "joint", "fast-joint"):
        settings = {"k": 8, "mechanism": mechanism}
        assert items("top-k-known", data, **settings) == items("top-k-known", histogram, **settings)
    with pytest.raises(InputError, match="mechanism must be one of"):
        methods()["top-k-known"].prepare(*BUDGET, {"k": 3, "mechanism": "gauss-rank"})


def test_top_k_of_each_stage(data):
    """With the whole domain public and much budget the k most frequent items come out, in order."""
    counts = data.holders
    best = counts[np.argsort(-counts)[:5]]
    for settings in ({}, {"mechanism": "cdp-peel"}, {"public_domain": True, "mechanism": "fast-joint"}):
        outcome, _ = run(methods()["top-k"].prepare(40.0, 1e-3, {"k": 5, **settings}), data, AT)
        assert counts[outcome.items].tolist() == best.tolist()
    with pytest.raises(InputError, match="there is no selection stage"):
        methods()["top-k"].prepare(*BUDGET, {"k": 5, "public_domain": True, "rounds": 2})


def test_literature_takes_the_rounds_of_pack():
    rng = np.random.default_rng(5)
    market = MarketData(rng.random(300), rng.random((300, 2)), 60.0)
    ours, _ = run(methods()["pack"].prepare(*BUDGET, {"alpha": 0.3}), market, AT)
    for name in ("pack-gradient", "pack-fixed-steps"):
        theirs, _ = run(methods()[name].prepare(*BUDGET, {"alpha": 0.3}), market, AT)
        assert theirs.facts["rounds"] == ours.facts["rounds"]
        few, _ = run(methods()[name].prepare(*BUDGET, {"rounds": 3}), market, AT)
        assert few.facts["rounds"] == 3


def test_a_method_of_ones_own(monkeypatch):
    from dpbeam_lab.evaluation import registry as module

    class Own(Method):
        name = "own"
        kind = "selection"

        def settings(self, settings):
            return ()

        def prepare(self, epsilon, delta, settings):
            return None

    monkeypatch.setattr(module, "_added", {})
    assert register(Own()) is methods()["own"]
    with pytest.raises(ValueError, match="a method is named 'own' already"):
        register(Own())
