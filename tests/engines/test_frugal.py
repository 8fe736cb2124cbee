"""What Beam is spared changes no answer: signatures and flags are those that it reads itself."""

import functools

import apache_beam as beam
import pytest
from apache_beam.transforms import core

from dpbeam.runners.frugal import own_formatter, remembering


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
    reads = []

    def read(function):
        reads.append(function)
        return core.get_function_args_defaults(function)

    found = remembering(read)
    found.reads = reads
    return found


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
        expected = core.get_function_args_defaults(function)
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
    from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser

    flags = ["--runner=FnApiRunner", "--direct_num_workers=2", "--experiments=a,b", "--temp_location=/x"]
    before = PipelineOptions(flags).get_all_options()
    monkeypatch.setattr(_BeamArgumentParser, "_get_formatter", own_formatter)
    assert PipelineOptions(flags).get_all_options() == before
    parser = _BeamArgumentParser()
    with pytest.raises(ValueError, match="length of metavar tuple"):
        parser.add_argument("--x", nargs=2, metavar=("a", "b", "c"))
