"""PySparkRunner without Spark: the stages that it makes, its bundles, and what it refuses."""

import ast
import os

import apache_beam as beam
import pytest
from apache_beam.io.iobase import Read
from apache_beam.transforms.userstate import BagStateSpec
from apache_beam.transforms.window import FixedWindows, GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from dpbeam.engine.beam.store import RunFolder
from dpbeam.errors import InputError
from dpbeam.randomness import RunKey
from dpbeam.runners.pyspark import PySparkRunner, session
from dpbeam.runners.pyspark.bundle import partition_of, run_bundle
from dpbeam.runners.pyspark.stages import kind_of, make_graph
from tests.engine.beam import test_stages
from tests.support.staged import StagedRunner


class _Weighted(beam.DoFn):
    """Reads four side inputs, sends to a tag, and more at the end of the bundle; notes what is called."""

    def __init__(self, log):
        self._log = log

    def _note(self, what):
        with open(self._log, "a") as file:
            file.write(f"{what}\n")

    def setup(self):
        self._note("setup")

    def start_bundle(self):
        self._note("start")

    def process(self, x, total, several, by_name, groups):
        yield x % 3, x + total + sum(several) + by_name["five"] + sum(groups[x % 2])
        if x == 4:
            yield beam.pvalue.TaggedOutput("even", x)
        if x < 0:
            raise ValueError("below zero")

    def finish_bundle(self):
        self._note("finish")
        yield WindowedValue((9, 1), 0, (GlobalWindow(),))

    def teardown(self):
        self._note("teardown")


def _lines(path):
    with open(path) as file:
        return file.read().splitlines()


def _write(element, path):
    with open(path, "a") as file:
        file.write(f"{element!r}\n")


def _sorted_group(pair):
    return pair[0], sorted(pair[1])


def _plus_one(pair):
    return pair[0], pair[1] + 1


def _everything(pipeline, folder, numbers=range(12)):
    """Every primitive that the runner knows."""
    spread = pipeline | beam.Create(list(numbers)) | beam.Reshuffle()
    total = beam.pvalue.AsSingleton(spread | beam.CombineGlobally(sum))
    several = beam.pvalue.AsList(pipeline | "Several" >> beam.Create([1, 2]))
    by_name = beam.pvalue.AsDict(pipeline | "ByName" >> beam.Create([("five", 5)]))
    groups = beam.pvalue.AsMultiMap(pipeline | "Groups" >> beam.Create([(1, 100), (1, 200)]))
    fn = beam.ParDo(_Weighted(f"{folder}/calls"), total, several, by_name, groups)
    sent = spread | fn.with_output_types(tuple[int, int]).with_outputs("even", main="odd")
    more = pipeline | "More" >> beam.Create([(0, 0), (7, 7)])
    grouped = (sent.odd, more) | beam.Flatten() | beam.GroupByKey() | beam.Map(_sorted_group)
    summed = sent.odd | "PlusOne" >> beam.Map(_plus_one) | beam.CombinePerKey(max)
    _ = grouped | "WriteGroups" >> beam.Map(_write, f"{folder}/groups")
    _ = sent.even | "WriteEven" >> beam.Map(_write, f"{folder}/even")
    _ = summed | "WriteSums" >> beam.Map(_write, f"{folder}/sums")


@pytest.mark.parametrize("partitions", [1, 4])
def test_every_primitive(partitions, tmp_path):
    with beam.Pipeline(runner=StagedRunner(partitions)) as pipeline:
        _everything(pipeline, str(tmp_path))
    base = 66 + 3 + 5
    groups = {r: [x + base + 300 * (x % 2) for x in range(12) if x % 3 == r] for r in range(3)}
    expected = {r: sorted(values + [0] * (r == 0)) for r, values in groups.items()}
    expected |= {7: [7], 9: [1] * partitions}
    assert sorted(_lines(tmp_path / "groups")) == sorted(map(repr, expected.items()))
    sums = {r: max(values) + 1 for r, values in groups.items()} | {9: 2}
    assert sorted(_lines(tmp_path / "sums")) == sorted(map(repr, sums.items()))
    assert _lines(tmp_path / "even") == ["4"]
    assert _lines(tmp_path / "calls") == ["setup", "start", "finish", "teardown"] * partitions


def test_a_bundle_that_fails_is_torn_down(tmp_path):
    with pytest.raises(ValueError, match="below zero"), beam.Pipeline(runner=StagedRunner(1)) as pipeline:
        _everything(pipeline, str(tmp_path), [-2])
    assert _lines(tmp_path / "calls") == ["setup", "start", "teardown"]


class _Reader(beam.io.iobase.BoundedSource):
    """The numbers below 10, which split in two."""

    def __init__(self, start=0, stop=10):
        self._start, self._stop = start, stop

    def estimate_size(self):
        return self._stop - self._start

    def split(self, desired_bundle_size, start_position=None, stop_position=None):
        for start in (0, 5):
            yield beam.io.iobase.SourceBundle(5, _Reader(start, start + 5), start, start + 5)

    def get_range_tracker(self, start, stop):
        return beam.io.range_trackers.OffsetRangeTracker(self._start, self._stop)

    def read(self, tracker):
        for number in range(self._start, self._stop):
            if not tracker.try_claim(number):
                return
            yield number


def test_bounded_sources_are_read_in_their_parts(tmp_path):
    runner = StagedRunner(2)
    with beam.Pipeline(runner=runner) as pipeline:
        _ = pipeline | Read(_Reader()) | beam.Map(_write, f"{tmp_path}/out")
    assert sorted(_lines(tmp_path / "out")) == [str(number) for number in range(10)]


_SEEN = beam.DoFn.StateParam(BagStateSpec("seen", beam.coders.VarIntCoder()))


class _Stateful(beam.DoFn):
    def process(self, pair, seen=_SEEN):
        seen.add(1)
        yield pair


class _Finalizing(beam.DoFn):
    def process(self, pair, finalizer=beam.DoFn.BundleFinalizerParam):
        finalizer.register(lambda: None)
        yield pair


REFUSED = {
    "state or timers": beam.ParDo(_Stateful()),
    "finalisation of bundles": beam.ParDo(_Finalizing()),
    "windows other than the global one": beam.WindowInto(FixedWindows(5)),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_it_does_not_do_is_refused_by_name(why, tmp_path):
    pipeline = beam.Pipeline(runner=PySparkRunner())
    pairs = pipeline | beam.Create([("a", 1)]).with_output_types(tuple[str, int])
    _ = pairs | "Odd one" >> REFUSED[why] | "Write" >> beam.Map(_write, f"{tmp_path}/out")
    with pytest.raises(InputError, match=f"Odd one.*{why}"):
        pipeline.run()
    assert not os.path.exists(tmp_path / "out")


@pytest.mark.parametrize("name, attempts", [("mad2r", 1), ("gsu2", 3)])
def test_it_releases_what_the_in_process_run_releases(name, attempts, tmp_path):
    """Also where bundles run several times, and of some the first attempt counts, of others a later one."""
    plan, (users, items) = test_stages.plan_of(name), test_stages.sample_pairs()
    with (
        RunFolder(str(tmp_path), RunKey.insecure_fixed(test_stages.KEY)) as run,
        beam.Pipeline(runner=StagedRunner(3, attempts)) as pipeline,
    ):
        rows = test_stages.release(pipeline, plan, users, items, run) | beam.FlatMap(test_stages._rows)
        _ = rows | beam.combiners.ToList() | beam.Map(_write, f"{tmp_path}/out")
    expected = test_stages.in_process(plan, users, items)
    released = [sorted(ast.literal_eval(line)) for line in _lines(tmp_path / "out")]  # by each attempt
    assert released == [expected] * attempts and len(expected) > 10


def test_elements_go_where_their_bytes_say():
    """Small integers in turns; the same place in every process for anything else."""
    numbers = [beam.coders.VarIntCoder().encode(number) for number in range(100)]
    assert [partition_of(number) % 7 for number in numbers] == [number % 7 for number in range(100)]
    assert partition_of(b"a longer key than eight") == 1486177678
    many = {partition_of(beam.coders.VarIntCoder().encode(number)) % 64 for number in range(10_000)}
    assert len(many) == 64


def test_a_reshuffle_keeps_windows_and_no_random_key():
    pipeline = beam.Pipeline(runner=PySparkRunner())
    _ = pipeline | beam.Create([1, 2], reshuffle=True) | "Spread" >> beam.Reshuffle() | beam.Map(print)
    graph = make_graph(pipeline.to_runner_api(default_environment=PySparkRunner().default_environment(None)))
    assert [kind_of(stage.source[1]) for stage in graph.stages] == ["impulse", "reshuffle", "reshuffle"]
    first = list(run_bundle(graph.stages[0], [b""], {}))
    assert first == list(run_bundle(graph.stages[0], [b""], {})) and len(first) == 2


class TestSession:
    def test_settings(self):
        assert session.parse(["spark.a=1", "spark.b=c=d"]) == {"spark.a": "1", "spark.b": "c=d"}

    @pytest.mark.parametrize("setting", ["spark.a", "a=1", "spark.master=yarn"])
    def test_wrong_settings_are_refused(self, setting):
        with pytest.raises(InputError, match="--spark_conf"):
            session.parse([setting])

    @pytest.mark.parametrize("variable", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
    def test_spark_connect_is_refused_with_the_reason(self, variable, monkeypatch):
        monkeypatch.setenv(variable, "sc://localhost")
        with pytest.raises(InputError, match="Spark Connect, which has no RDDs"):
            session.standing()

    @pytest.mark.parametrize(
        ("master", "here"),
        [
            ("local", True),
            ("local[2]", True),
            ("local[*, 4]", True),
            ("local-cluster[2,1,1024]", True),
            ("yarn", False),
            ("spark://localhost:7077", False),
            ("localhost", False),
        ],
    )
    def test_which_spark_is_on_this_machine(self, master, here):
        assert session.is_on_this_machine(master) == here


class TestJob:
    """What Spark is told, without Spark's Java."""

    @pytest.fixture
    def job(self):
        return pytest.importorskip("dpbeam.runners.pyspark.job")

    def test_only_constants_are_dealt_in_turns(self, job):
        """The order of anything else may differ when a task runs again, and elements would be lost or doubled."""
        pipeline = beam.Pipeline(runner=PySparkRunner())
        dealt = pipeline | beam.Create(range(9), reshuffle=True) | "Again" >> beam.Reshuffle()
        _ = dealt | "Third" >> beam.Reshuffle() | beam.Map(_one_key) | beam.GroupByKey() | beam.Map(print)
        environment = PySparkRunner().default_environment(None)
        graph = make_graph(pipeline.to_runner_api(default_environment=environment))
        made = job.SparkJob(None, graph, "{}", "group")
        assert [made._comes_in_order(stage) for stage in graph.stages] == [True, True, False, False, False]

    def test_in_turns_every_partition_gets_as_many(self, job):
        """Those of one task are spread over six partitions, and a second time likewise."""
        first = list(job._in_turns(1, 0, range(60)))
        parts = [[element for key, element in first if key % 6 == part] for part in range(6)]
        again = [pair for part, elements in enumerate(parts) for pair in job._in_turns(6, part, elements)]
        for dealt in (first, again):
            assert sorted(element for _, element in dealt) == list(range(60))
            assert [sum(key % 6 == part for key, _ in dealt) for part in range(6)] == [10] * 6

    def test_groups_are_whole(self, job):
        pairs = [(b"%d" % (n % 7), b"%d" % n) for n in range(70)]
        groups = {key: sorted(values) for key, values in job._groups(512, iter(pairs))}
        assert groups == {b"%d" % k: sorted(b"%d" % n for n in range(70) if n % 7 == k) for k in range(7)}


def _one_key(element):
    return 0, element
