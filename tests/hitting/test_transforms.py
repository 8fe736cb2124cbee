"""`HittingSet` on Beam gives what the in-process run gives, wherever the rounds run."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import dpbeam
from dpbeam.engine.beam.driver import run_in_jobs
from dpbeam.engine.beam.store import RunFolder
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.hitting.program import HittingSetProgram
from dpbeam.hitting.transforms import GATHERED_PAIRS, TRIPS_IN_ONE_JOB, HittingSet
from dpbeam.randomness import RunKey
from dpbeam.rows.elements import PairFields
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.transforms import UserBlocks
from tests.support.instances import random_pairs
from tests.support.pipelines import kept, outcome

KEY = RunKey.insecure_fixed("hitting set")
PAIRS = random_pairs(3, users=200)
WAYS = {"one step": {"pairs": 900}, "gathered": {"pairs": 2_000_000}, "trips": {"num_shards": 2}}


def config(k=4, method="basic", public=False):
    selection = None if public else SelectionConfig(4.0, 1e-2, method, max_items_per_user=6)
    return HittingSetConfig(4.0, 1e-2, k, selection, public_domain=public)


def _rows(batch):
    assert batch.schema.names == ["rank", "item"]
    return [(row["rank"], row["item"].decode()) for row in batch.to_pylist()]


def on_beam(tmp_path, settings, rows=PAIRS, **arguments):
    with RunFolder(str(tmp_path), KEY) as folder:
        transform = HittingSet(settings, run=folder, **arguments)
        ranking = sorted(
            (row.rank, row.item) for row in outcome(lambda p: kept(p | beam.Create(rows) | transform))
        )
    return [ranking] if ranking else []


def ranked(items):
    return [list(enumerate(items, start=1))] if items else []


@pytest.mark.parametrize("way", WAYS)
def test_beam_equals_in_process(way, tmp_path, tools):
    program = HittingSet(config(), **WAYS[way]).program
    assert program.gather == (way != "trips")
    expected = tools.run_program(program, PAIRS)
    assert len(expected) == 4
    assert on_beam(tmp_path, config(), **WAYS[way]) == ranked(expected)


@pytest.mark.usefixtures("beams_runner")
def test_a_public_domain_on_beam(tmp_path):
    names = ["item 2", "item 0", "nobody"]
    (ranking,) = on_beam(tmp_path, config(5, public=True), domain=names, **WAYS["trips"])
    assert [rank for rank, _ in ranking] == [1, 2, 3]
    assert sorted(item for _, item in ranking) == sorted(names)
    frame = {"user": [user for user, _ in PAIRS], "item": [item for _, item in PAIRS]}
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        result = dpbeam.hitting_set(
            frame, epsilon=4.0, delta=1e-2, k=5, domain=names, insecure_test_key="hitting set"
        )
    assert result.items == [item for _, item in ranking]


@pytest.mark.parametrize("way", ["gathered", "trips"])
def test_where_there_is_nobody(way, tmp_path):
    assert on_beam(tmp_path, config(3), [], **WAYS[way]) == []


def test_a_chain_of_jobs_gives_the_same(tmp_path, tools):
    """Jobs of two trips each: the domain is met in one and the rounds run in others."""
    transform, jobs = HittingSet(config(4), num_shards=2), []
    with RunFolder(str(tmp_path), KEY) as folder:
        store = folder.claim()
        blocks = UserBlocks(store, transform.program, transform.sizes)
        fields = PairFields()
        run_in_jobs(
            store,
            transform.program,
            read=lambda pipeline: pipeline | beam.Create([fields.of_rows(PAIRS)]) | blocks,
            write=lambda result: kept(result | beam.Map(_rows)),
            run=lambda build: jobs.append(outcome(build)),
            trips_per_job=2,
        )
    assert len(jobs) == 3
    assert jobs[-1] == ranked(tools.run_program(transform.program, PAIRS))


def test_the_rounds_are_gathered_by_the_size_of_the_input_alone():
    assert HittingSet(config(), pairs=GATHERED_PAIRS).program.gather
    for sizes in ({"pairs": GATHERED_PAIRS + 1}, {}, {"pairs": 10, "num_shards": 1}):
        assert not HittingSet(config(), **sizes).program.gather


def test_a_job_of_too_many_trips_is_refused(tmp_path):
    transform = HittingSet(config(TRIPS_IN_ONE_JOB + 5))
    assert isinstance(transform.program, HittingSetProgram)
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
    with pytest.raises(ValueError, match="trips are too many for one job: say how many pairs there are"):
        _ = pipeline | beam.Create(PAIRS) | transform


def test_display_data_carries_the_settings():
    assert HittingSet(config()).display_data() == {"k": 4, "epsilon": 4.0, "delta": 1e-2}
