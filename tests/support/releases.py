"""Ledgers as committed runs leave them, made without running anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.release import Release, Shard
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.ledger import one_value_of, selection_ledger
from dpbeam.selection.plan import make_plan

RELEASE = Release(
    command="select",
    started="2026-01-31T02:00:00Z",
    date="2026-01-31",
    outputs=(Shard("items-00000-of-00001.parquet", 3, "ab" * 32),),
    release_id="nightly-31",
    inputs=("logs-*.parquet",),
)


def ledger_of(
    method: str = "basic",
    release: Release | None = RELEASE,
    settings: Mapping[str, Any] = MappingProxyType({}),
    **changes: Any,
) -> Ledger:
    """The ledger of a selection with epsilon 1 and delta 1e-6, as committed; `changes` are made to the ledger."""
    plan = make_plan(SelectionConfig(1.0, 1e-6, method, **settings))
    ledger = selection_ledger(plan, input_parameters=None, fixed_key=False, privacy_unit=one_value_of("user"))
    shards = 1 if release is None else len(release.outputs)
    ledger.parameters["output"] = {"format": "parquet", "shards": shards}
    return replace(ledger, release=release, **changes)
