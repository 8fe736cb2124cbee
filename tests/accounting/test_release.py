"""The section `release` of a ledger: kept exactly, and refused where it is not what it says."""

import json
from dataclasses import replace

import pytest

from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.release import InputDigest, Release, Shard, as_text
from tests.support.releases import RELEASE, ledger_of

FULL = replace(RELEASE, input_digest=InputDigest("01" * 32, "cd" * 32))


@pytest.mark.parametrize("release", [FULL, RELEASE, replace(RELEASE, inputs=None, release_id=None)])
def test_read_back_as_written(release):
    ledger = ledger_of(release=release)
    text = ledger.to_json()
    assert Ledger.from_json(text) == ledger and Ledger.from_json(text).to_json() == text
    assert Ledger.from_json(text).release == release


def test_a_ledger_without_it_says_nothing_of_it():
    """So ledgers before the commit, which `--checkpoint` compares, and old ones hold no time."""
    text = ledger_of(release=None).to_json()
    assert "release" not in json.loads(text) and Ledger.from_json(text).release is None


def test_items_of_all_files():
    shards = tuple(Shard(f"x-{n}", n, "0" * 64) for n in (2, 5))
    assert replace(RELEASE, outputs=shards).items_released == 7 and RELEASE.items_released == 3


def test_files_that_are_not_released_as_a_whole_have_no_contents():
    release = replace(RELEASE, outputs=(Shard("x", None, None),))
    ledger = ledger_of(release=release)
    assert Ledger.from_json(ledger.to_json()) == ledger and release.items_released is None
    for half in ((3, None), (None, "ab" * 32)):
        with pytest.raises(ValueError):
            Shard("x", *half)


@pytest.mark.parametrize(
    "name,value",
    [
        ("date", "31.1.2026"),
        ("date", "2026-02-30"),
        ("started", "2026-01-31"),
        ("started", ""),
        ("command", 3),
        ("release_id", ["a"]),
        ("inputs", "logs"),
        ("inputs", [1]),
        ("outputs", {"name": "x"}),
        ("outputs", [{"name": "../x", "rows": 1, "sha256": "ab" * 32}]),
        ("outputs", [{"name": "..", "rows": 1, "sha256": "ab" * 32}]),
        ("outputs", [{"name": "x", "rows": -1, "sha256": "ab" * 32}]),
        ("outputs", [{"name": "x", "rows": True, "sha256": "ab" * 32}]),
        ("outputs", [{"name": "x", "rows": 1, "sha256": "AB" * 32}]),
        ("outputs", [{"name": "x", "rows": 1}]),
        ("input_digest", {"nonce": "01" * 32}),
        ("input_digest", {"nonce": "01" * 32, "hmac_sha256": "x" * 64}),
        ("operator", "somebody"),
    ],
)
def test_what_is_not_a_release_is_refused(name, value):
    values = json.loads(ledger_of(release=FULL).to_json())
    values["release"][name] = value
    with pytest.raises(ValueError):
        Ledger.from_json(json.dumps(values))


def test_fields_may_not_be_missing():
    values = json.loads(ledger_of().to_json())
    del values["release"]["started"]
    with pytest.raises(ValueError, match="fields"):
        Ledger.from_json(json.dumps(values))


@pytest.mark.parametrize(
    "field,value", [("epsilon", None), ("events", 3), ("parameters", [1]), ("delta", [])]
)
def test_values_of_wrong_types_are_no_ledger(field, value):
    values = json.loads(ledger_of().to_json())
    values[field] = value
    with pytest.raises(ValueError):
        Ledger.parse(json.dumps(values))


def test_nesting_without_end_is_no_ledger():
    with pytest.raises(ValueError, match="not a ledger"):
        Ledger.parse("[" * 100_000)


def test_names_that_are_no_text():
    assert as_text("a\udcffb") == "a\ufffdb" and as_text("é/ß") == "é/ß"
    assert Release("select", "2026-01-31T02:00:00Z", inputs=(as_text("\udc80"),)).inputs == ("\ufffd",)
