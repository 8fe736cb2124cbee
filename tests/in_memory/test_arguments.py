"""Every argument of every public function, config and PTransform, given what it is not: one line, or it works.

A function may not know an argument at all, which is a TypeError; what happens inside of one must not be.
"""

import decimal
import inspect
import warnings

import numpy as np
import pyarrow as pa
import pytest

import dpbeam
from dpbeam.errors import InputError
from dpbeam.hitting import transforms as hitting
from dpbeam.packing.family import PackingConfig
from dpbeam.selection import transforms as selection
from dpbeam.selectors.registry import DEFAULT_METHOD, find
from dpbeam.topk import transforms as topk
from tests.support.plans import remembered

BUDGET = {"epsilon": 1.0, "delta": 1e-5}
DATA = {
    "user": ["a", "b"],
    "item": ["x", "y"],
    "agent": ["a", "b"],
    "value": [1.0, 0.5],
    "beds": [1.0, 1.0],
}
#: Of packing, which takes a hundred rounds otherwise.
SHORT = {"start_rounds": 2, "max_rounds": 4}
MARKET = dpbeam.Market((dpbeam.Resource("beds", 1e9),), 10)
SECRET = "private value"
HOSTILE = [
    *(None, True, -1, 2.5, 10**400, 2**70, float("nan"), float("inf"), 1e308, 5e-324, 1j),
    *("", "\0", "\ud800", SECRET, b"x", [None], [[1]], {"x": 1}, dict, object(), lambda: 0),
    *(np.array([1, 2]), decimal.Decimal("0.5"), pa.array([SECRET]), dpbeam.SelectionConfig(**BUDGET)),
]


def selected(**settings):
    return dpbeam.SelectPartitions(dpbeam.SelectionConfig(**settings))


def ranked(**settings):
    return dpbeam.TopKItems(dpbeam.TopKConfig(**settings))


def hit(**settings):
    return dpbeam.HittingSet(dpbeam.HittingSetConfig(**settings), pairs=10)


def counted(**settings):
    return dpbeam.CountItems(dpbeam.CountConfig(**settings), domain=["x"])


def packed(**settings):
    return dpbeam.Packing(PackingConfig(**settings), MARKET)


def market(**settings):
    return dpbeam.Packing(PackingConfig(**BUDGET), dpbeam.Market(**settings))


def resource(**settings):
    return market(resources=(dpbeam.Resource(**settings),), num_agents=10)


#: Name -> what is called, whose parameters it has, and arguments with which it works.
CALLS = {
    "select": (dpbeam.select, None, {"data": DATA, **BUDGET}),
    "top_k": (dpbeam.top_k, None, {"data": DATA, "k": 1, **BUDGET}),
    "hitting_set": (dpbeam.hitting_set, None, {"data": DATA, "k": 1, **BUDGET}),
    "count": (dpbeam.count, None, {"data": DATA, "domain": ["x"], **BUDGET}),
    "pack": (dpbeam.pack, None, {"data": DATA, "supplies": {"beds": 1e9}, **SHORT, **BUDGET}),
    "Series": (dpbeam.Series, None, {"nights": 2, **BUDGET}),
    "SelectionConfig": (selected, dpbeam.SelectionConfig, BUDGET),
    "TopKConfig": (ranked, dpbeam.TopKConfig, {"k": 1, **BUDGET}),
    "HittingSetConfig": (hit, dpbeam.HittingSetConfig, {"k": 1, **BUDGET}),
    "CountConfig": (counted, dpbeam.CountConfig, BUDGET),
    "PackingConfig": (packed, PackingConfig, BUDGET),
    "Market": (market, dpbeam.Market, {"resources": MARKET.resources, "num_agents": 10}),
    "Resource": (resource, dpbeam.Resource, {"name": "beds", "supply": 1e9}),
    "SelectPartitions": (dpbeam.SelectPartitions, None, BUDGET),
    "TopKItems": (dpbeam.TopKItems, None, {"k": 1, **BUDGET}),
    "HittingSet": (dpbeam.HittingSet, None, {"k": 1, **BUDGET}),
    "CountItems": (dpbeam.CountItems, None, {"domain": ["x"], **BUDGET}),
    "Packing": (dpbeam.Packing, None, {"supplies": {"beds": 1e9}, "num_agents": 10, **BUDGET}),
    "RunFolder": (dpbeam.RunFolder, None, {"temp_location": "tmp"}),
}


def parameters(name: str) -> list[str]:
    call, of, _ = CALLS[name]
    named = [p.name for p in inspect.signature(of or call).parameters.values() if p.kind != p.VAR_KEYWORD]
    if name in ("select", "SelectionConfig"):
        named += find(DEFAULT_METHOD).settings_type.described()
    return named


@pytest.fixture(autouse=True, scope="module")
def calibrated_once(tmp_path_factory):
    """Plans of transforms; and the folder in which calls that take a wrong name make theirs is one for all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("calls"))
        for module, name in ((selection, "make_plan"), (topk, "plan_topk"), (hitting, "plan_hitting_set")):
            patch.setattr(module, name, remembered(getattr(module, name)))
        yield


@pytest.mark.parametrize(("name", "argument"), [(name, one) for name in CALLS for one in parameters(name)])
def test_a_wrong_argument_is_one_line(name, argument):
    call, _, good = CALLS[name]
    for value in HOSTILE:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                call(**{**good, argument: value})
            except InputError as error:
                assert "\n" not in str(error) and len(str(error)) < 500
                assert argument not in ("data", "known", "domain") or SECRET not in str(error)
            except ValueError as error:  # as documented: settings and list disagree
                assert "domain" in str(error) and argument in ("public_domain", "domain", "config"), error


def test_integers_of_numpy_are_integers():
    for k in (np.int64(1), np.uint8(1)):
        assert dpbeam.TopKConfig(1.0, 1e-5, k=k).k == 1 and type(dpbeam.TopKConfig(1.0, 1e-5, k=k).k) is int
    result = dpbeam.select(
        DATA, **BUDGET, max_items_per_user=np.int64(20), rounds=np.int32(4), noisy_weights=np.bool_(True)
    )
    text = result.ledger.to_json()
    assert dpbeam.Ledger.from_json(text).parameters["max_items_per_user"] == 20
    assert dpbeam.top_k(DATA, k=np.int64(1), **BUDGET).ledger.verify()


@pytest.mark.parametrize(
    ("function", "wrong", "message"),
    [
        ("select", {"max_items_per_user": 3.0}, "max_items_per_user must be an integer, got 3.0"),
        ("select", {"epsilon": 10**400}, "epsilon must be a number, got one beyond all"),
        ("top_k", {"epsilon": 1e308}, r"epsilon=1e\+308 and delta=1e-05 cannot be calibrated"),
        ("select", {"insecure_test_key": 7}, "insecure_test_key must be a string, got int"),
        ("select", {"budget_split": 7, "method": "dp-sips"}, "budget_split must be several numbers, got int"),
        ("top_k", {"k": "1"}, "k must be an integer, got str"),
        ("hitting_set", {"k": 2.5}, "k must be an integer, got 2.5"),
    ],
)
def test_what_is_said(function, wrong, message):
    settings = {"k": 1} if function != "select" else {}
    with pytest.raises(InputError, match=f"^{message}"):
        getattr(dpbeam, function)(DATA, **{**BUDGET, **settings, **wrong})


@pytest.mark.parametrize(
    "transform", ["SelectPartitions", "TopKItems", "HittingSet", "CountItems", "Packing"]
)
def test_a_config_is_one(transform):
    call, _, good = CALLS[transform]
    with pytest.raises(InputError, match=r"config must be a .*Config, got type"):
        call(**{**good, "config": dict})
