"""What Beam is spared changes no answer: signatures and flags are those that it reads itself."""

import functools
import sys

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, SetupOptions, StandardOptions
from apache_beam.runners.worker import statecache, statesampler
from apache_beam.transforms import core, userstate
from apache_beam.typehints.decorators import IOTypeHints

from dpbeam.runners.frugal import (
    SAMPLING_MS,
    own_formatter,
    own_size,
    remembering,
    remembering_flags,
    remembering_source,
    remembering_specs,
    sample_often,
    without_stack,
)


def beams_own(function):
    """`function`, also where this process has been made frugal."""
    return getattr(function, "__wrapped__", function)


def counted(function):
    """`function`, and a list of what it is asked."""
    asked = []

    def ask(about):
        asked.append(about)
        return function(about)

    return ask, asked


READ = beams_own(core.get_function_args_defaults)
SPECS = beams_own(userstate.get_dofn_specs)
CHECK = beams_own(core._check_fn_use_yield_and_return)
INIT = beams_own(PipelineOptions.__init__)


class Old(beam.DoFn):
    def process(self, element, window=beam.DoFn.WindowParam, *, more=1):
        yield element

    def finish_bundle(self):
        pass


class New(Old):
    def process(self, element, timestamp=beam.DoFn.TimestampParam, extra=3):
        yield element


def plain(a, b=2, *rest, c, **others):
    return a


@pytest.fixture
def recall():
    read, reads = counted(READ)
    known = remembering(read)
    known.reads = reads
    return known


FUNCTIONS = [
    *(
        getattr(fn, name)
        for fn in (Old(), New())
        for name in ("process", "finish_bundle", "setup", "teardown")
    ),
    *(
        Old.process,
        New.process,
        plain,
        lambda x, y=5: x,
        functools.partial(plain, 1),
        str.upper,
        len,
        dict.get,
    ),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: getattr(f, "__qualname__", "callable"))
def test_answers_are_those_of_beam(function, recall):
    try:
        expected = READ(function)
    except Exception as error:
        with pytest.raises(type(error)):
            recall(function)
        return
    assert recall(function) == recall(function) == expected


def test_bound_and_unbound_differ(recall):
    assert recall(Old.process)[0] == ["self", "element", "window"]
    assert recall(Old().process)[0] == ["element", "window"]
    assert recall(New().process)[0] == ["element", "timestamp", "extra"]


def test_each_is_read_once_and_the_caller_may_change_the_answer(recall):
    for _ in range(3):
        names, _ = recall(Old().process)
        names.append("changed")
    assert len(recall.reads) == 1 and recall(New().process)[0][-1] == "extra"


def test_functions_made_alike_are_kept_apart(recall):
    def make(default):
        return lambda x, y=default: x

    assert [recall(make(n))[1] for n in range(3)] == [[0], [1], [2]]


def test_flags_parse_as_before(monkeypatch):
    from apache_beam.options.pipeline_options import _BeamArgumentParser

    flags = ["--runner=FnApiRunner", "--direct_num_workers=2", "--experiments=a,b", "--temp_location=/x"]
    before = PipelineOptions(flags).get_all_options()
    monkeypatch.setattr(_BeamArgumentParser, "_get_formatter", own_formatter)
    assert PipelineOptions(flags).get_all_options() == before
    parser = _BeamArgumentParser()
    with pytest.raises(ValueError, match="length of metavar tuple"):
        parser.add_argument("--x", nargs=2, metavar=("a", "b", "c"))


STATE = userstate.ReadModifyWriteStateSpec("state", VarIntCoder())
TIMER = userstate.TimerSpec("timer", userstate.TimeDomain.REAL_TIME)
OF_STATE, OF_TIMER = beam.DoFn.StateParam(STATE), beam.DoFn.TimerParam(TIMER)


class Stateful(Old):
    def process(self, element, state=OF_STATE, timer=OF_TIMER):
        yield element

    @userstate.on_timer(TIMER)
    def expire(self):
        pass


class Computed(Old):
    @property
    def more(self):
        return self.borrowed


def test_states_and_timers_are_those_of_beam():
    read, reads = counted(SPECS)
    recall = remembering_specs(read)
    for _ in range(2):
        assert recall(Stateful()) == ({STATE}, {TIMER}) == SPECS(Stateful())
        recall(Stateful())[0].clear()
        assert recall(New()) == (set(), set())
    assert len(reads) == 2
    own, computed = New(), Computed()
    own.more = computed.borrowed = Stateful().process
    assert recall(own)[0] == recall(computed)[0] == {STATE}
    computed.borrowed = None
    assert recall(computed)[0] == set()


def test_sources_are_read_once():
    def both(element):
        yield element
        return [element]

    def make(text):
        return lambda x: (x, text)

    check, reads = counted(CHECK)
    recall = remembering_source(check)
    assert [recall(both), recall(both), recall(Old().process), recall(New().process)] == [
        True,
        True,
        False,
        False,
    ]
    assert [recall(make("a")), recall(make("b")), recall(len), recall(len)] == [False] * 4
    assert (
        len(reads) == 6
    )  # three functions of New, Old and here, one lambda; what has no code is asked again


def test_views_of_flags_are_as_before(monkeypatch):
    """The same values, of which each job has its own."""
    flags = [
        "--runner=FnApiRunner",
        "--experiments=a",
        "--save_main_session",
        "--direct_num_workers=2",
        "--x=1",
    ]
    views = (StandardOptions, DebugOptions, SetupOptions, PipelineOptions)
    monkeypatch.setattr(PipelineOptions, "__init__", INIT)
    before = [(o.get_all_options(), [vars(o.view_as(v)) for v in views]) for o in [PipelineOptions(flags)]]
    monkeypatch.setattr(PipelineOptions, "__init__", remembering_flags(INIT))
    for _ in range(3):
        options = PipelineOptions(flags)
        assert [(options.get_all_options(), [vars(options.view_as(v)) for v in views])] == before
        options.view_as(DebugOptions).add_experiment("b")
        options.view_as(StandardOptions).runner = "Other"
        assert options.view_as(DebugOptions).experiments == ["a", "b"]
        assert options.view_as(StandardOptions).runner == "Other"
        assert PipelineOptions(flags, runner="Third").view_as(StandardOptions).runner == "Third"
    assert PipelineOptions([*flags, "--experiments=c"]).view_as(DebugOptions).experiments == ["a", "c"]
    with pytest.raises(ValueError, match="not a single string"):
        PipelineOptions("--runner=x")
    assert PipelineOptions([]).view_as(DebugOptions).experiments is None


def test_type_hints_are_as_before_without_the_stack(monkeypatch):
    make = beams_own(IOTypeHints._make_origin)
    made = []
    for origin in (make, without_stack(make)):
        monkeypatch.setattr(IOTypeHints, "_make_origin", origin)
        assert IOTypeHints._make_origin([], msg=["said"])[0] == "said"
        made.append(IOTypeHints.empty().with_input_types(int).with_output_types(str))
    assert made[0] == made[1] and repr(made[0]) == repr(made[1])
    assert any(__file__ in line for line in made[0].origin) and made[1].origin == []


def test_a_remembered_value_weighs_its_own_bytes(monkeypatch):
    monkeypatch.setattr(statecache, "get_deep_size", own_size)
    cache = statecache.StateCache(1_000)
    cache.put("small", b"x")
    cache.put("large", bytes(900))
    assert cache.peek("large") == bytes(900)
    cache.put("larger", bytes(950))  # the others have to go
    assert cache.peek("larger") == bytes(950) and cache.peek("large") is cache.peek("small") is None
    assert own_size(len) == sys.getsizeof(len)  # and nothing of the module that it leads to


class _Period(beam.DoFn):
    """The sampling period of the bundle that it runs in."""

    def process(self, element):
        yield statesampler.get_current_tracker().sampling_period_ms


def test_no_bundle_waits_long_for_its_sampler(tmp_path):
    sample_often()
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        periods = pipeline | beam.Create([None]) | beam.ParDo(_Period())
        periods | beam.Map(str) | beam.io.WriteToText(f"{tmp_path}/period", shard_name_template="")
    assert (tmp_path / "period").read_text().split() == [str(SAMPLING_MS)]
