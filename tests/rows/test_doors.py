"""Every kind of release with every kind of element and of list: for a fixed key the same rows."""

import dataclasses
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pytest

import dpbeam
from tests.support.pipelines import kept, outcome

PAIRS = [(f"u{u}", f"i{n}") for n, holders in enumerate((60, 45, 30, 2)) for u in range(holders)]
BUDGET = {"epsilon": 4.0, "delta": 1e-3, "insecure_test_key": "doors"}
LISTED = ["i0", "i2", "nobody's"]


class Search(NamedTuple):
    who: str
    what: str


@dataclasses.dataclass
class Visit:
    who: str
    what: str


TABLE = pa.table(dict(zip(("who", "what"), zip(*PAIRS))))
NESTED = [{"who": user, "of": {"what": item}} for user, item in PAIRS]
#: Elements, the hint of their type, and where the item lies in them.
ELEMENTS: dict[str, tuple[list[Any], Any, Any]] = {
    "tuples": (PAIRS, tuple[str, str], "what"),
    "tuples of anything": (PAIRS, tuple[Any, ...], "what"),
    "dictionaries": ([{"who": user, "what": item} for user, item in PAIRS], None, "what"),
    "nested": (NESTED, dict[str, Any], "of.what"),
    "rows": ([beam.Row(who=user, what=item) for user, item in PAIRS], None, "what"),
    "named tuples": ([Search(*pair) for pair in PAIRS], Search, "what"),
    "dataclasses": ([Visit(*pair) for pair in PAIRS], Visit, "what"),
    "batches": (TABLE.to_batches(max_chunksize=50), pa.RecordBatch, "what"),
    "tables": ([TABLE.slice(0, 70), TABLE.slice(70)], Any, "what"),
}
KINDS: dict[str, tuple[type, dict[str, Any]]] = {
    "select": (dpbeam.SelectPartitions, {"method": "basic", "noisy_weights": True}),
    "top-k": (dpbeam.TopKItems, {"k": 2, "noisy_counts": True}),
    "hitting-set": (dpbeam.HittingSet, {"k": 2, "pairs": 200}),
    "count": (dpbeam.CountItems, {"domain": LISTED}),
}


def released(kind, tmp_path, elements, hint=None, **more):
    transform, settings = KINDS[kind]
    made = transform(**BUDGET, **{**settings, **more}, user="who", run_folder=str(tmp_path))
    source = beam.Create(elements)
    source = source if hint is None else source.with_output_types(hint)
    return sorted(outcome(lambda pipeline: kept(pipeline | source | made)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_element_gives_the_same_rows(kind, tmp_path):
    wanted = released(kind, tmp_path, *ELEMENTS["tuples"][:2], item="what")
    assert len(wanted) >= 2 and wanted[0]._fields[0] == "what"
    for name, (elements, hint, item) in ELEMENTS.items():
        assert released(kind, tmp_path, elements, hint, item=item) == wanted, name


@pytest.mark.parametrize("argument", ["public_items", "known"])
@pytest.mark.parametrize("counts", [True, False])
def test_a_list_beside_a_selection_may_be_a_pcollection(argument, counts, tmp_path):
    more = {"noisy_weights": False, "noisy_counts": counts, "item": "what"}
    wanted = released("select", tmp_path, PAIRS, **more, **{argument: LISTED})
    assert {row.what for row in wanted} >= set(LISTED)

    def build(pipeline):
        listed = pipeline | "List" >> beam.Create(LISTED)
        made = dpbeam.SelectPartitions(
            **BUDGET,
            method="basic",
            noisy_counts=counts,
            item="what",
            run_folder=str(tmp_path),
            **{argument: listed},
        )
        return kept(pipeline | beam.Create(PAIRS) | made)

    assert sorted(outcome(build)) == wanted


@pytest.mark.parametrize("kind", ["top-k", "hitting-set", "count"])
def test_a_domain_may_be_a_pcollection(kind, tmp_path):
    wanted = released(kind, tmp_path, PAIRS, item="what", domain=LISTED)
    transform, settings = KINDS[kind]

    def build(pipeline):
        listed = pipeline | "List" >> beam.Create(LISTED)
        more = {**settings, "domain": listed}
        made = transform(**BUDGET, **more, item="what", run_folder=str(tmp_path))
        return kept(pipeline | beam.Create(PAIRS) | made)

    assert sorted(outcome(build)) == wanted


def test_also_in_a_folder_that_the_caller_holds(tmp_path):
    """Its stages wait for the list too; one of another type stops the run."""
    budget = {"epsilon": 4.0, "delta": 1e-3}

    def build(pipeline, run, listed):
        domain = pipeline | "List" >> beam.Create(listed).with_output_types(Any)
        return kept(pipeline | beam.Create(PAIRS) | dpbeam.CountItems(**budget, domain=domain, run=run))

    with dpbeam.RunFolder(str(tmp_path)) as run:
        assert {row.item for row in outcome(lambda pipeline: build(pipeline, run, LISTED))} == set(LISTED)
    with (
        pytest.raises(Exception, match="domain holds int values, and 'item' is string"),
        dpbeam.RunFolder(str(tmp_path)) as run,
    ):
        outcome(lambda pipeline: build(pipeline, run, [1, 2]))
