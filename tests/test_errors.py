"""Errors name parameters as flags for a command and as arguments for a caller in Python."""

import ast
import contextlib
import importlib
import pickle
import pkgutil
from pathlib import Path

import apache_beam as beam
import pytest

import dpbeam
from dpbeam import BudgetError, DataError, InputError, SettingError, SetupError, StoreError, UnavailableError
from dpbeam.budget.account import OverLimitError
from dpbeam.cli import main
from dpbeam.errors import RunnerError, advice, naming_arguments, param, template_of
from dpbeam.hitting.config import plan_hitting_set
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.jobs.console import find_input_error, find_runner_error
from dpbeam.packing.family import PackingConfig
from dpbeam.selection.config import SelectionConfig
from dpbeam.selectors.registry import selectors
from dpbeam.series.family import SeriesConfig
from dpbeam.series.folder import Folder
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
PAIRS = (["a", "b", "c"], ["x", "x", "y"])
OF_EACH_KIND = pytest.mark.parametrize("kind", [InputError, UnavailableError])
KINDS = [SettingError, DataError, BudgetError, StoreError, SetupError]


@OF_EACH_KIND
def test_an_error_names_flags_and_its_arguments_have_no_dashes(kind):
    error = kind(f"{param('folder')}: '/data/a--b' is taken; see {param('k')}")
    assert str(error) == "--folder: '/data/a--b' is taken; see --k"
    assert error.of_arguments() == "folder: '/data/a--b' is taken; see k"


@OF_EACH_KIND
def test_the_problem_of_an_error_is_its_message_without_the_advice(kind):
    """Also of one that quotes another, and of one that gives none, whatever its text looks like."""
    error = kind(f"{param('input')}: no text; remove it{advice(', or leave it out of --input')}")
    assert str(error) == "--input: no text; remove it, or leave it out of --input"
    assert error.of_arguments() == "input: no text; remove it, or leave it out of --input"
    quoting = pickle.loads(pickle.dumps(kind(f"a.txt: {template_of(error)}")))
    assert quoting.problem == "a.txt: --input: no text; remove it"
    assert kind("b; pass --c").problem == "b; pass --c"


@OF_EACH_KIND
def test_an_error_survives_a_pickle(kind):
    error = pickle.loads(pickle.dumps(kind(f"{param('k')} is in '/a--b'")))
    assert type(error) is kind
    assert (str(error), error.of_arguments()) == ("--k is in '/a--b'", "k is in '/a--b'")


def subclasses(kind):
    return [kind, *(deeper for below in kind.__subclasses__() for deeper in subclasses(below))]


def test_every_error_of_the_product_is_made_of_its_text():
    """So that a pickle, and `naming_arguments`, make it again."""
    for module in pkgutil.walk_packages(dpbeam.__path__, "dpbeam."):
        if ".__main__" not in module.name:
            with contextlib.suppress(ImportError):  # what an extra brings is missing
                importlib.import_module(module.name)
    kinds = [
        kind
        for kind in subclasses(InputError) + subclasses(UnavailableError)
        if kind.__module__[:6] == "dpbeam"
    ]
    assert len(kinds) >= 5
    for kind in kinds:
        assert str(pickle.loads(pickle.dumps(kind("a file")))) == "a file"


@OF_EACH_KIND
def test_a_refusal_keeps_its_class_when_it_names_arguments(kind):
    class OwnError(kind):
        pass

    for error in (kind, OwnError):
        with pytest.raises(kind) as caught, naming_arguments(), naming_arguments():
            raise error(f"{param('folder')}: '--b' is taken")
        assert type(caught.value) is error
        assert str(caught.value) == caught.value.of_arguments() == "folder: '--b' is taken"


@OF_EACH_KIND
def test_a_quoted_error_keeps_its_names(kind):
    quoted = kind(f"no table for {param('k')}")
    error = InputError(f"{param('supplies')}: {template_of(quoted)}")
    assert str(error) == "--supplies: no table for --k"
    assert error.of_arguments() == "supplies: no table for k"
    assert template_of(ValueError("plain")) == "plain"


def test_only_an_input_error_is_made_one_line():
    assert str(InputError(f"a\n  b {param('k')}")) == "a b --k"
    assert str(UnavailableError("a\n  b")) == "a\n  b"


def test_a_path_stays_whole_in_memory(tmp_path):
    folder = tmp_path / "a--b"
    with pytest.raises(InputError) as caught:
        dpbeam.Series.load(str(folder))
    assert str(caught.value).startswith(f"folder: '{folder}' holds no series")


def test_another_run_of_a_series_names_the_argument(tmp_path):
    folder = str(tmp_path / "a--b")
    series = dpbeam.Series(**BUDGET, nights=2, folder=folder)
    with Folder(folder).alone(), pytest.raises(UnavailableError) as caught:
        series.run(PAIRS)
    assert str(caught.value) == f"folder: another run of the series in '{folder}' is under way"


def refused(call):
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


def of_selectors():
    for selector in selectors().values():
        for name, setting in selector.settings_type.described().items():
            if setting.high is not None:
                yield pytest.param(selector.name, name, setting.high + 1, id=f"{selector.name}-{name}")


@pytest.mark.parametrize("method, name, value", list(of_selectors()))
def test_a_setting_of_a_selector_out_of_range_is_named(method, name, value):
    flag = refused(lambda: SelectionConfig(**BUDGET, method=method, settings={name: value}).resolve())
    argument = refused(lambda: dpbeam.select(PAIRS, **BUDGET, method=method, **{name: value}))
    assert flag.startswith(f"--set {name} must be ")
    assert argument == flag.removeprefix("--set ")


def _select(**settings):
    return dpbeam.select(PAIRS, **settings)


def _top_k(**settings):
    return dpbeam.top_k(PAIRS, **{"k": 2, **settings})


def _hitting_set(**settings):
    return dpbeam.hitting_set(PAIRS, **{"k": 2, **settings})


def _pack(**settings):
    data = {"agent": ["a"], "value": [1.0], "x": [1.0]}
    return dpbeam.pack(data, supplies={"x": 1}, **settings)


def _series(**settings):
    return dpbeam.Series(**{"nights": 2, **settings})


@pytest.mark.parametrize(
    "in_memory, resolved, wrong",
    [
        (
            _select,
            lambda **more: SelectionConfig(**more).resolve(),
            [
                {"epsilon": 0.0},
                {"delta": 1.0},
                {"max_items_per_user": 0},
                {"min_users": 0},
                {"noisy_count_share": 1.0, "noisy_counts": True},
            ],
        ),
        (
            _top_k,
            lambda **more: plan_topk(TopKConfig(**{"k": 2, **more})),
            [{"epsilon": 0.0}, {"delta": 1.0}, {"k": 0}, {"selector_share": 1.0}],
        ),
        (
            _hitting_set,
            lambda **more: plan_hitting_set(HittingSetConfig(**{"k": 2, **more})),
            [{"epsilon": 0.0}, {"delta": 1.0}, {"k": 0}, {"selector_share": 1.0}],
        ),
        (
            _pack,
            PackingConfig,
            [
                {"epsilon": 0.0},
                {"delta": 1.0},
                {"alpha": 2},
                {"failure_probability": 1},
                {"start_share": 1},
                {"settle_share": 1},
                {"start_rounds": -1},
                {"max_rounds": 1},
                {"max_resources_per_agent": 0},
            ],
        ),
        (
            _series,
            lambda **more: SeriesConfig(**{"nights": 2, **more}),
            [
                {"epsilon": 0.0},
                {"delta": 1.0},
                {"nights": 0},
                {"max_items_per_user": 0},
                {"first_night": "soon"},
                {"preset": "none"},
            ],
        ),
    ],
)
def test_a_setting_of_a_family_out_of_range_is_named(in_memory, resolved, wrong):
    for change in wrong:
        name = next(iter(change))
        flag = refused(lambda change=change: resolved(**{**BUDGET, **change}))
        argument = refused(lambda change=change: in_memory(**{**BUDGET, **change}))
        assert flag.startswith(f"--{name} must "), change
        assert argument == flag[2:], change


def _charged(folder):
    """A release for which the account of its dataset has no room."""
    account = {"budget": f"{folder}/budget.db", "dataset": "d"}
    flags = [f"--{name}={value}" for name, value in account.items()]
    assert main(["budget", "create", *flags, "--epsilon=0.5", "--delta=1e-6", "--quiet"]) == 0
    release = dpbeam.SelectPartitions(**BUDGET, **account, release_id="r", run_folder=f"{folder}/runs")
    with beam.Pipeline() as pipeline:
        pipeline | beam.Create([("a", "x")]) | release


@pytest.mark.parametrize(
    "kind, call",
    [
        (SettingError, lambda folder: _select(epsilon=0.0, delta=1e-6)),
        (DataError, lambda folder: dpbeam.select({"user": ["a"]}, user="user", item="item", **BUDGET)),
        (DataError, lambda folder: dpbeam.select((["a", "b"], ["x", None]), **BUDGET)),
        (BudgetError, _charged),
        (StoreError, lambda folder: dpbeam.Series.load(folder)),
        (SetupError, lambda folder: _series(**BUDGET, folder=folder, encrypt_intermediates=True)),
    ],
)
def test_a_caller_catches_an_error_by_what_is_wrong(kind, call, tmp_path, monkeypatch):
    monkeypatch.delenv("DPBEAM_FOLDER_KEY", raising=False)
    with pytest.raises(InputError) as caught:
        call(str(tmp_path))
    assert [one for one in KINDS if isinstance(caught.value, one)] == [kind]


def test_each_error_of_input_is_raised_as_one_of_its_kinds():
    for source in Path(".").glob("*dpbeam*/**/*.py"), Path("lab").glob("dpbeam_lab/**/*.py"):
        for path in source:
            text = path.read_text()
            for node in ast.walk(ast.parse(text if "InputError(" in text else "")):
                if isinstance(node, ast.Call):
                    called = getattr(node.func, "attr", getattr(node.func, "id", None))
                    assert called != "InputError", f"{path}:{node.lineno}"


@pytest.mark.parametrize("kind", [InputError, *KINDS, OverLimitError])
def test_the_error_of_a_worker_is_known_by_its_class(kind):
    """As such among the causes; in the text of its trace, as portable runners pass it on, by the line of its class."""
    trace = f"Error received from SDK harness: Traceback:\n  File\n{kind.__module__}.{kind.__name__}: {{}}\n\n\tat"
    assert (
        find_input_error(RuntimeError(trace.format("a.csv:2: bad [while running 'Read']"))) == "a.csv:2: bad"
    )
    wrapped = RuntimeError("failed")
    wrapped.__cause__ = kind("a.csv:2: bad [while running 'Read']")
    assert find_input_error(wrapped) == "a.csv:2: bad"
    assert find_runner_error(wrapped) is None


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: got 'dpbeam.errors.DataError: a row'",
        "other.dpbeam.errors.DataError: a row",
        "InputError: of another library",
        "dpbeam.errors.DataErrors: a row",
    ],
)
def test_words_that_look_like_an_error_are_none(text):
    assert find_input_error(RuntimeError(f"Traceback:\n{text}")) is None


def test_a_runners_error_is_no_error_of_input():
    error = RuntimeError("Traceback:\ndpbeam.errors.RunnerError: a part is lost [while running 'x']")
    assert (find_runner_error(error), find_input_error(error)) == ("a part is lost", None)
    assert find_runner_error(RunnerError("a part is lost")) == "a part is lost"
