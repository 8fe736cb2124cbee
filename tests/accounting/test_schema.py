"""The published schema of ledgers: it is the one of the classes, and takes every ledger there is and no other."""

import copy
import json
import runpy
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.release import InputDigest, Others, Release, Shard
from tests.families.contracts import LEDGERS

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "ledger.schema.json").read_text())
OLD = sorted((Path(__file__).parent / "ledgers").glob("*.ledger.json"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def faults(values) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(values)]


def test_it_is_the_schema_of_the_classes():
    """`scripts/ledger_schema >docs/reference/ledger.schema.json` renews it."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert runpy.run_path(str(ROOT / "scripts" / "ledger_schema"))["schema"]() == SCHEMA


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.name.split(".")[0])
def test_old_ledgers(path):
    assert faults(json.loads(path.read_text())) == []


@pytest.mark.parametrize("family", LEDGERS)
def test_ledgers_of_every_family(family):
    """In memory, and as a command completes it."""
    ledger = LEDGERS[family]()
    assert faults(json.loads(ledger.to_json())) == []
    for rows, digest in ((3, "0" * 64), (None, None)):
        shard = Shard("x-00000-of-00001.parquet", rows, digest)
        release = Release("select", "2026-11-01T02:03:04Z", "2026-11-01", (shard,), "id", ("logs",))
        release = replace(release, input_digest=InputDigest("1" * 64, "2" * 64), others=Others(3, 1.5))
        assert faults(json.loads(replace(ledger, release=release).to_json())) == []


def broken(values: dict):
    """Changes after which `Ledger.parse` takes the ledger no more."""
    first = values["events"]["parts"][0]
    yield values, {"more": 1}
    yield values, {"format_version": 2}
    yield values, {"neighbouring_relation": "whatever"}
    yield values, {"delta": 1.0}
    yield values, {"public_items": "no"}
    yield values["events"], {"kind": "unknown"}
    yield values["events"], {"parts": []}
    yield first, {"event": "UnknownEvent"}
    yield first, {"more": 1}


@pytest.mark.parametrize("number", range(9))
def test_what_is_no_ledger_is_refused(number):
    values = json.loads(OLD[0].read_text())
    place, change = list(broken(values))[number]
    place.update(change)
    assert faults(copy.deepcopy(values))
    with pytest.raises(ValueError):
        Ledger.parse(json.dumps(values))


@pytest.mark.parametrize("name", ["epsilon", "events", "parameters", "key_source"])
def test_what_is_missing_is_seen(name):
    values = json.loads(OLD[0].read_text())
    del values[name]
    assert faults(values)
    with pytest.raises(ValueError):
        Ledger.parse(json.dumps(values))
