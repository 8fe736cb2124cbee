"""`dpbeam.top_k`: the ranking and the ledger of the command, from data in memory."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbeam
from dpbeam.accounting.ledger import Ledger
from dpbeam.cli import main
from dpbeam.errors import InputError
from tests.support.instances import popular_table

BUDGET = {"epsilon": 2.0, "delta": 1e-3}
KEY = "00FF"
TABLE = popular_table(300, 0)
LISTED = ["--domain=domain.txt"]
DOMAIN = [*dict.fromkeys(TABLE["item"].to_pylist()[:40]), "nobody holds it"]
pytestmark = pytest.mark.filterwarnings("ignore:NOT PRIVATE")


def top_k(data=TABLE, **arguments):
    return dpbeam.top_k(data, **{**BUDGET, "k": 5, "insecure_test_key": KEY, **arguments})


@pytest.mark.parametrize(
    "arguments,flags",
    [
        ({}, []),
        ({"mechanism": "cdp-peel", "noisy_counts": True}, ["--mechanism=cdp-peel", "--noisy_counts"]),
        (
            {"selector": "mad2r", "selector_share": 0.4, "max_items_per_user": 20},
            ["--selector=mad2r", "--selector_share=0.4", "--max_items_per_user=20"],
        ),
        ({"mechanism": "limited-domain", "kbar": 40}, ["--mechanism=limited-domain", "--kbar=40"]),
        (
            {"mechanism": "limited-domain", "max_items_per_user": 2},
            ["--mechanism=limited-domain", "--max_items_per_user=2"],
        ),
        ({"domain": DOMAIN}, LISTED),
        (
            {"domain": DOMAIN, "mechanism": "pnf-peel", "delta": 0.0, "noisy_counts": True},
            [*LISTED, "--mechanism=pnf-peel", "--delta=0", "--noisy_counts"],
        ),
        ({"domain": DOMAIN, "mechanism": "joint", "delta": 0.0}, [*LISTED, "--mechanism=joint", "--delta=0"]),
    ],
)
def test_equals_the_command(arguments, flags, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(TABLE, "pairs.parquet")
    Path("domain.txt").write_text("\n".join(DOMAIN) + "\n")
    argv = [
        "--input=pairs.parquet",
        "--user_column=user",
        "--item_column=item",
        "--epsilon=2",
        "--delta=1e-3",
        "--k=5",
    ]
    assert main(["top-k", *argv, f"--insecure_test_key={KEY}", *flags, "--output=out", "--quiet"]) == 0
    written = pq.read_table("out-00000-of-00001.parquet")
    ranking = top_k(**arguments)
    assert ranking.table.to_pydict() == written.to_pydict() and len(ranking) == 5
    assert ranking.items == written["item"].to_pylist()
    mine, theirs = (
        json.loads(text) for text in (ranking.ledger.to_json(), Path("out.ledger.json").read_text())
    )
    Ledger.from_json(ranking.ledger.to_json()).verify()
    assert not ranking.ledger.private
    for name in ("method", "epsilon", "delta", "accounting", "events", "privacy_unit", "key_source"):
        assert mine[name] == theirs[name], name
    same = {name: value for name, value in theirs["parameters"].items() if name not in ("input", "output")}
    assert {name: value for name, value in mine["parameters"].items() if name != "input"} == same


def test_a_fresh_key_and_several_columns():
    data = {"user": TABLE["user"], "a": TABLE["item"], "b": TABLE["item"]}
    ranking = dpbeam.top_k(data, item=["a", "b"], k=3, noisy_counts=True, **BUDGET)
    assert ranking.table.schema.names == ["rank", "a", "b", "noisy_count"] and ranking.ledger.private
    assert all(a == b for a, b in ranking.items) and len(ranking.items) == 3
    assert (
        dpbeam.top_k({"user": pa.array([], "string"), "item": pa.array([], "string")}, k=3, **BUDGET).items
        == []
    )


@pytest.mark.parametrize(
    "arguments,message",
    [
        ({"mechanism": "best"}, "^mechanism must be one of"),
        (
            {"domain": ["x"], "selector": "gsu"},
            "^selector belongs to a selection stage, and domain leaves none",
        ),
        (
            {"domain": ["x"], "preset": "published"},
            "preset belongs to a selection stage, and domain leaves none",
        ),
        (
            {"mechanism": "limited-domain", "rounds": 3},
            "^rounds belongs to a selection.* limited-domain leaves none",
        ),
        ({"domain": ["x"], "max_items_per_user": 3}, "^max_items_per_user belongs to a selection stage"),
        ({"kbar": 3}, "^kbar applies to mechanism=limited-domain alone"),
        ({"noisy_count_share": 0.2}, "^noisy_count_share needs noisy_counts"),
        ({"delta": 0.0}, "^delta must lie strictly between 0 and 1"),
        ({"domain": [1, 2]}, "item_type|holds int values"),
        (
            {"item": ["item", "rank"], "data": {"user": ["a"], "item": ["b"], "rank": ["c"]}},
            "'rank' is the column",
        ),
    ],
)
def test_refusals_name_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        top_k(**arguments)
