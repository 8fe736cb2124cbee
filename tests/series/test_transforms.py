"""Nights on an engine: the same bytes as in one process, mixed with such nights, and made once."""

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from dpbeam.kernels.canonical import METADATA_KEY, Kinds
from dpbeam.randomness import RunKey
from dpbeam.series.config import SeriesConfig
from dpbeam.series.schedule import Schedule
from dpbeam.series.transforms import SeriesNight
from dpbeam.series.window import SeriesWindow
from tests.series.streams import arrays, random_nights, released

KINDS = Kinds("string", ("string",)).metadata()
UNEVEN = Schedule((1, 2, 2, 2, 3, 4), (0.1, 0.1, 0.1, 0.1, 0.2, 0.4), (0.1, 0.1, 0.1, 0.1, 0.1, 0.5))


def config(**more) -> SeriesConfig:
    return SeriesConfig(4.0, 0.1, 4, **{"preset": None, "schedule": UNEVEN, "max_items_per_user": 6, **more})


def batches(pairs, size=50):
    users, items = arrays(pairs)
    schema = pa.schema([("user", users.type), ("item", items.type)], metadata=KINDS)
    whole = pa.RecordBatch.from_arrays([users, items], schema=schema)
    return [whole.slice(start, size) for start in range(0, len(users), size)]


def in_process(window, number, pairs):
    return window.run(number, *arrays(pairs), KINDS[METADATA_KEY])


def on_engine(folder, number, pairs, *, num_blocks=3, num_shards=2, commit=True):
    with SeriesNight(str(folder), night=number, num_blocks=num_blocks, num_shards=num_shards) as night:
        with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
            came = pipeline | beam.Create(batches(pairs)) if pairs else pipeline
            _ = came | "Night" >> night
        return night.commit() if commit else None


def same(state, other):
    for name, values in state.to_columns().items():
        assert np.array_equal(np.asarray(values), np.asarray(other.to_columns()[name])), name


@pytest.mark.parametrize("ways", ["eeee", "pepe", "eppe", "ppee"])
def test_nights_on_an_engine_and_in_a_process_are_the_same(tmp_path, ways):
    nights = random_nights(3)
    nights[1] = [] if ways == "eeee" else nights[1]
    memory = SeriesWindow.open(config(), RunKey.insecure_fixed("a"))
    SeriesWindow.open(config(), RunKey.insecure_fixed("a"), folder=str(tmp_path / "f"))
    for number, (way, pairs) in enumerate(zip(ways, nights), start=1):
        expected = in_process(memory, number, pairs)
        window = SeriesWindow.load(str(tmp_path / "f"))
        if way == "e":
            on_engine(tmp_path / "f", number, pairs)
        else:
            in_process(window, number, pairs)
        state = window.whole(window.made)
        same(state, expected)
        assert window.made.digests == memory.made.digests
    assert len(released(state)) > 3
