"""A wrong experiment is refused before anything runs: one line that names file and part, exit code 2."""

import runpy
from pathlib import Path

import pytest

from dpbeam.cli import main
from dpbeam.selectors.registry import variants
from dpbeam_lab.experiments import define
from dpbeam_lab.experiments.define import read_experiment
from dpbeam_lab.experiments.sources import Named
from lab.tests.experiment_files import GOOD, IMPORTS, experiment

LAB = Path(__file__).resolve().parents[2]
FILES = sorted((LAB / "experiments").glob("*.py"))
MARKET = "{'market': synth_market(agents=100, resources=2)}"
PLOT = "[Plot('a', x='epsilon', {})]"
WRONG = {
    ":3: Experiment.__init__() missing 1 required positional argument: 'methods'": {"methods": None},
    ":3: Experiment.__init__() got an unexpected keyword argument 'method'": {"method": "[]"},
    ": datasets: there is none": {"datasets": "{}"},
    ":3: synth() missing 1 required keyword-only argument: 'users'": {"datasets": "{'z': synth(items=3)}"},
    ":3: uniform: there are 3 items, and items_per_user is 4": {
        "datasets": "{'z': uniform(users=5, items=3, items_per_user=4)}"
    },
    ":3: uniform: users must be at least 1, got 0": {
        "datasets": "{'z': uniform(users=0, items=3, items_per_user=2)}"
    },
    ":3: uniform: common_items must be at least 0, got -1": {
        "datasets": "{'z': uniform(users=5, items=3, items_per_user=2, common_items=-1)}"
    },
    ": datasets.z: there is no '": {"datasets": "{'z': folder('nowhere')}"},
    ":3: input: unknown flag --user_colum; did you mean --user_column?": {
        "datasets": "{'z': files(input=['x.parquet'], user_colum='u')}"
    },
    ":3: --user_column": {"datasets": "{'z': files(input=['x.parquet'], user_column='')}"},
    ": methods[0]: unknown method 'selct'; did you mean select?": {"methods": "[Run('selct')]"},
    ": methods[0] (basik): method must be one of": {"methods": "[Run(method='basik')]"},
    ": methods[0] (basic): unknown setting 'rounds'": {"methods": "[Run(method='basic', rounds=3)]"},
    ": methods (gsu): rounds must be one of 2, 4, 8, 16": {"methods": "[Run(method='gsu', rounds=0)]"},
    ": methods (gsu rounds=-1): rounds must be": {
        "methods": "[Run(method='gsu', sweep={'rounds': [2, -1]})]"
    },
    ": methods (basic): epsilon must": {"budgets": "[(1, 1e-5), (-1, 1e-5)]"},
    ": methods[0].sweep.rounds: is set and swept": {
        "methods": "[Run(method='gsu', rounds=2, sweep={'rounds': [1]})]"
    },
    ": methods[0].sweep.method: give a line of methods for each": {
        "methods": "[Run(sweep={'method': ['gsu', 'basic']})]"
    },
    ": methods: two are named 'basic'": {"methods": "[Run(method='basic'), Run(method='basic')]"},
    ": methods[0]: these are several methods": {"methods": "[Run(method='all', name='x')]"},
    ": methods (gauss-rank): k is missing": {"methods": "[Run('top-k')]"},
    ": methods (pack): needs a dataset of market": {"methods": "[Run('pack')]"},
    ": methods (pack): alpha must be a number from": {
        "datasets": MARKET,
        "methods": "[Run('pack', alpha=7)]",
    },
    ": methods (pack): ": {"datasets": MARKET, "methods": "[Run('pack', alpha='x')]"},
    ": sweep.rounds: no method has this setting": {"sweep": "{'rounds': [1]}"},
    ": repetitions: must be at least 1, got 0": {"repetitions": "0"},
    ": measures: unknown measure 'relased'; did you mean released?": {"measures": "['relased']"},
    ": measures: none of them applies to basic": {"measures": "['welfare']"},
    ":3: Table.__init__() got an unexpected keyword argument 'row'": {
        "tables": "[Table('t', row='dataset')]"
    },
    ": tables[0]: unknown column 'rounds'": {"tables": "[Table('t', rows=['rounds'])]"},
    ": tables[0]: unknown measure 'welfare'": {"tables": "[Table('t', value='welfare')]"},
    ": tables[0]: unknown statistic 'mode'": {"tables": "[Table('t', statistic='mode')]"},
    ": tables[0]: unknown column 'colour'": {"tables": "[Table('t', where={'colour': [1]})]"},
    ": tables[0].where: unknown dataset 'steem'": {"tables": "[Table('t', where={'dataset': ['steem']})]"},
    ": plots[0].where: unknown method 'x'; one of basic": {
        "plots": PLOT.format("where={'method': ['basic', 'x']}")
    },
    ": best: unknown setting 'rounds'": {"best": "'rounds'", "repetitions": "2"},
    ": best: the last repetition chooses": {
        "best": "'max_items_per_user'",
        "sweep": "{'max_items_per_user': [1, 2]}",
    },
    ": tables[0].best: the last repetition chooses": {
        "tables": "[Table('t', best='max_items_per_user')]",
        "sweep": "{'max_items_per_user': [1, 2]}",
    },
    ": plots[0]: its name must be of letters": {"plots": "[Plot('a/b', x='epsilon')]"},
    ": plots[0].x: unknown column 'colour'": {"plots": "[Plot('a', x='colour')]"},
    ": plots[0]: unknown kind 'pie'": {"plots": PLOT.format("kind='pie'")},
    ": plots[0]: unknown axis 'z'": {"plots": PLOT.format("log=['z']")},
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named(text, tmp_path, capsys):
    path = tmp_path / "wrong.py"
    path.write_text(experiment(**WRONG[text]))
    output = tmp_path / "out" / "x"
    assert main(["evaluate", "run", str(path), f"--output={output}", f"--data={tmp_path}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dpbeam evaluate run: error: {path}{text}")
    assert not output.parent.exists()


@pytest.mark.parametrize(
    "flags, text",
    [
        ([], "--output is required"),
        (["--output=x", "--jobs=0"], "--jobs must be at least 1, got 0"),
        (["--output=x", "--jbos=1"], "unknown flag --jbos; did you mean --jobs?"),
    ],
)
def test_wrong_flags(flags, text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "good.py"
    path.write_text(experiment())
    assert main(["evaluate", "run", str(path), *flags]) == 2
    assert text in capsys.readouterr().err
    assert main(["evaluate", "run"]) == 2


@pytest.mark.parametrize(
    "text, said",
    [
        (None, "cannot read '{path}'"),
        ("x = 3\n", "{path}: defines no EXPERIMENT; see lab/docs/how-to/evaluate.md"),
        ("title: Mine\n", "{path}:1: name 'Mine' is not defined"),
        ("x = 1\ny =\n", "{path}:2: invalid syntax"),
        ("x = 1\n\nraise KeyError\n", "{path}:3: KeyError"),
        (f"{IMPORTS}def f():\n    return synth(users=1)\nf()\n", "{path}:4: synth() missing 1"),
    ],
)
def test_a_file_that_is_none(text, said, tmp_path, capsys):
    path = tmp_path / "none.py"
    if text is not None:
        path.write_text(text)
    assert main(["evaluate", "run", str(path), "--output=x"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dpbeam evaluate run: error: {said.format(path=path)}")


def test_a_file_of_an_earlier_version(capsys):
    assert main(["evaluate", "run", "old.yaml", "--output=x"]) == 2
    assert "error: old.yaml: an experiment is a file of Python; see " in capsys.readouterr().err


def read(tmp_path, **parts):
    path = tmp_path / "good.py"
    path.write_text(experiment(**parts))
    return read_experiment(str(path), "")


def test_cells_are_the_grid(tmp_path):
    """Every dataset of the right kind, repetition, method, setting and budget once."""
    cells = read(
        tmp_path,
        datasets=f"{GOOD['datasets']} | {MARKET}",
        budgets="[(1, 1e-5), (2, 1e-5)]",
        methods="[Run(method='basic', max_items_per_user=7), "
        "Run(name='few', method='gsu', sweep={'rounds': [2, 4]}), Run('pack')]",
        sweep="{'max_items_per_user': [3, None, 5]}",
        repetitions="2",
    ).cells()
    seen = [
        (
            c.dataset,
            c.label,
            c.settings.get("rounds"),
            c.settings.get("max_items_per_user"),
            c.epsilon,
            c.delta,
        )
        for c in cells
        if c.repetition.number == 1
    ]
    budgets = [(1.0, 1e-5), (2.0, 1e-5)]
    expected = [("zipf", "basic", None, 7, *b) for b in budgets]
    expected += [("zipf", "few", r, d, *b) for r in (2, 4) for d in (3, None, 5) for b in budgets]
    expected += [("market", "pack", None, None, *b) for b in budgets]
    assert sorted(seen, key=str) == sorted(expected, key=str)
    assert len(cells) == 2 * len(expected) and [c.number for c in cells] == list(range(len(cells)))
    digests = {cell.digest("data") for cell in cells}
    assert len(digests) == len(cells)


def test_all_stands_for_every_variant(tmp_path):
    found = read(tmp_path, methods="[Run(method='all')]")
    assert {v.label: v.settings["method"] for v in found.variants} == {
        name: settings["method"] for name, settings in variants().items()
    }


def test_a_grid_of_generators(tmp_path):
    each = "each('m', synth_market, agents=100, resources=[1, 2], supply_share=[0.1, 0.2])"
    names = list(read(tmp_path, datasets=each, methods="[Run('pack')]").datasets)
    assert names == [f"m resources={m} supply_share={b}" for m in (1, 2) for b in (0.1, 0.2)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_experiments_that_are_here(path, tmp_path, monkeypatch):
    """Columns, measures and names of settings; to calibrate all of them takes a minute."""
    for dataset in runpy.run_path(str(path))[define.NAME].datasets.values():
        if isinstance(dataset, Named):
            (tmp_path / dataset.name).mkdir(exist_ok=True)
            (tmp_path / dataset.name / dataset.file).touch()
    monkeypatch.setattr(define, "prepared", lambda *_: None)
    found = read_experiment(str(path), str(tmp_path))
    assert found.cells() and (found.tables or found.plots)


def test_the_document_shows_the_small_one():
    page = (LAB / "docs" / "how-to" / "evaluate.md").read_text()
    assert (LAB / "experiments" / "small.py").read_text().split('"""')[2].strip() in page
