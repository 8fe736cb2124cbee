"""A wrong experiment file is refused before anything runs: one line that names file and key, exit code 2."""

import pytest
import yaml
from dpbeam.cli.evaluate_run import read_experiment

from dpbeam.cli import main
from dpbeam_lab.experiments import schema
from tests.support.examples import ROOT

GOOD = {
    "datasets": {"zipf": {"synth": {"users": 50, "items": 20}}},
    "budgets": {"epsilon": 1, "delta": 1e-5},
    "methods": [{"method": "basic"}],
}
MARKET = {"market": {"synth": {"agents": 100, "resources": 2}}}


def changed(**parts) -> dict:
    return {name: part for name, part in {**GOOD, **parts}.items() if part is not None}


WRONG = {
    "methods: is missing": changed(methods=None),
    "file: unknown key 'method'; did you mean methods?": changed(method=[]),
    "datasets: there is none": changed(datasets={}),
    "datasets.zipf: synth: users is missing": changed(datasets={"zipf": {"synth": {"items": 3}}}),
    "datasets.zipf: synth.users: must be an integer, got 2.5": changed(
        datasets={"zipf": {"synth": {"users": 2.5, "items": 3}}}
    ),
    "datasets.zipf: synth: unknown key 'colour'": changed(
        datasets={"zipf": {"synth": {"users": 5, "items": 3, "colour": 1}}}
    ),
    "datasets.zipf: synth goes with no other key": changed(
        datasets={"zipf": {"synth": {"users": 5, "items": 3}, "folder": "x"}}
    ),
    "datasets.zipf: uniform: users is missing": changed(datasets={"zipf": {"uniform": {}}}),
    "datasets.zipf: uniform maps settings to values": changed(datasets={"zipf": {"uniform": 3}}),
    "datasets.zipf: uniform.items: takes no list": changed(
        datasets={"zipf": {"uniform": {"users": 5, "items": [3, 4], "items_per_user": 2}}}
    ),
    "datasets.zipf: uniform.items_per_user: there are 3 items, got 4": changed(
        datasets={"zipf": {"uniform": {"users": 5, "items": 3, "items_per_user": 4}}}
    ),
    "datasets.zipf: uniform.users: must be at least 1, got 0": changed(
        datasets={"zipf": {"uniform": {"users": 0, "items": 3, "items_per_user": 2}}}
    ),
    "datasets.zipf: uniform.common_items: must be at least 0, got -1": changed(
        datasets={"zipf": {"uniform": {"users": 5, "items": 3, "items_per_user": 2, "common_items": -1}}}
    ),
    "datasets.zipf: there is no '": changed(datasets={"zipf": {"folder": "nowhere"}}),
    "datasets.zipf: input: unknown flag --user_colum; did you mean --user_column?": changed(
        datasets={"zipf": {"input": ["x.parquet"], "user_colum": "u"}}
    ),
    "datasets.zipf: --user_column": changed(datasets={"zipf": {"input": ["x.parquet"], "user_column": ""}}),
    "budgets: delta is missing": changed(budgets={"epsilon": 1}),
    "budgets[1].epsilon: must be a number, got 'one'": changed(
        budgets=[{"epsilon": 1, "delta": 0.1}, {"epsilon": "one", "delta": 0.1}]
    ),
    "methods: must be a list": changed(methods={"method": "basic"}),
    "methods[0].run: unknown method 'selct'; did you mean select?": changed(methods=[{"run": "selct"}]),
    "methods[0] (basik): method must be one of": changed(methods=[{"method": "basik"}]),
    "methods[0] (basic): unknown setting 'rounds'": changed(methods=[{"method": "basic", "rounds": 3}]),
    "methods (gsu): rounds must be one of 2, 4, 8, 16": changed(methods=[{"method": "gsu", "rounds": 0}]),
    "methods (gsu rounds=-1): rounds must be": changed(
        methods=[{"method": "gsu", "sweep": {"rounds": [2, -1]}}]
    ),
    "methods (basic): epsilon must": changed(budgets={"epsilon": [1, -1], "delta": 1e-5}),
    "methods[0].sweep.rounds: is set and swept": changed(
        methods=[{"method": "gsu", "rounds": 2, "sweep": {"rounds": [1]}}]
    ),
    "methods[0].sweep.method: is no setting to sweep": changed(
        methods=[{"sweep": {"method": ["gsu", "basic"]}}]
    ),
    "methods: two are named 'basic'": changed(methods=[{"method": "basic"}, {"method": "basic"}]),
    "methods[0].name: these are several methods": changed(methods=[{"method": "all", "name": "x"}]),
    "methods (gauss-rank): k is missing": changed(methods=[{"run": "top-k"}]),
    "methods (pack): needs a dataset of market": changed(methods=[{"run": "pack"}]),
    "methods (pack): alpha must be from": changed(datasets=MARKET, methods=[{"run": "pack", "alpha": 7}]),
    "methods (pack): ": changed(datasets=MARKET, methods=[{"run": "pack", "alpha": "x"}]),
    "sweep.rounds: no method has this setting": changed(sweep={"rounds": [1]}),
    "sweep.max_items_per_user: must be a list, got 3": changed(sweep={"max_items_per_user": 3}),
    "repetitions: must be an integer from 1": changed(repetitions=0),
    "seed: must be an integer": changed(seed="x"),
    "measures: unknown measure 'relased'; did you mean released?": changed(measures=["relased"]),
    "measures: none of them applies to basic": changed(measures=["welfare"]),
    "tables[0]: unknown key 'row'; did you mean rows?": changed(tables=[{"row": "dataset"}]),
    "tables[0]: unknown column 'rounds'": changed(tables=[{"rows": "rounds"}]),
    "tables[0].value: unknown measure": changed(tables=[{"value": "welfare"}]),
    "tables[0].statistic: unknown statistic": changed(tables=[{"statistic": "mode"}]),
    "tables[0].where: unknown column": changed(tables=[{"where": {"colour": 1}}]),
    "tables[0].where.dataset: unknown dataset 'steem'": changed(tables=[{"where": {"dataset": "steem"}}]),
    "plots[0].where.method: unknown method 'x'; one of basic": changed(
        plots=[{"name": "a", "x": "epsilon", "where": {"method": ["basic", "x"]}}]
    ),
    "tables[0].best: the first repetition chooses": changed(
        tables=[{"best": "max_items_per_user"}], sweep={"max_items_per_user": [1, 2]}
    ),
    "plots[0].name: must be of letters": changed(plots=[{"name": "a/b", "x": "epsilon"}]),
    "plots[0].x: must be a text": changed(plots=[{"name": "a"}]),
    "plots[0].x: unknown column": changed(plots=[{"name": "a", "x": "colour"}]),
    "plots[0].kind: unknown kind 'pie'": changed(plots=[{"name": "a", "x": "epsilon", "kind": "pie"}]),
    "plots[0].log: unknown axis 'z'": changed(plots=[{"name": "a", "x": "epsilon", "log": "z"}]),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named(text, tmp_path, capsys):
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(WRONG[text]))
    output = tmp_path / "out" / "x"
    assert main(["evaluate", "run", str(path), f"--output={output}", f"--data={tmp_path}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dpbeam evaluate run: error: {path}: {text}")
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
    path = tmp_path / "good.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    assert main(["evaluate", "run", str(path), *flags]) == 2
    assert text in capsys.readouterr().err
    assert main(["evaluate", "run"]) == 2


def test_a_file_that_is_none(tmp_path, capsys):
    path = tmp_path / "none.yaml"
    assert main(["evaluate", "run", str(path), "--output=x"]) == 2
    path.write_text("- 3")
    assert main(["evaluate", "run", str(path), "--output=x"]) == 2
    path.write_text("title: a\ntitle: b\n")
    assert main(["evaluate", "run", str(path), "--output=x"]) == 2
    first, second, third = capsys.readouterr().err.splitlines()
    assert "cannot read" in first
    assert "an experiment maps datasets, budgets and methods" in second
    assert f"{path}:2: title is there twice" in third


def test_cells_are_the_grid(tmp_path):
    """Every dataset of the right kind, repetition, method, setting and budget once; exponents are numbers."""
    path = tmp_path / "good.yaml"
    methods = [
        {"method": "basic", "max_items_per_user": 7},
        {"name": "few", "method": "gsu", "sweep": {"rounds": [2, 4]}},
        {"run": "pack"},
    ]
    parts = changed(
        datasets={**GOOD["datasets"], **MARKET},
        budgets=[{"epsilon": [1, 2], "delta": "1e-5"}, {"epsilon": 1, "delta": "1e-5"}],
        methods=methods,
        sweep={"max_items_per_user": [3, None, 5]},
        repetitions=2,
    )
    path.write_text(yaml.safe_dump(parts))
    cells = read_experiment(str(path), "").cells()
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
    from dpbeam.selectors.registry import variants

    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump(changed(methods=[{"method": "all"}])))
    experiment = read_experiment(str(path), "")
    assert {v.label: v.settings["method"] for v in experiment.variants} == {
        name: settings["method"] for name, settings in variants().items()
    }


def test_a_grid_of_generators(tmp_path):
    path = tmp_path / "grid.yaml"
    synth = {"agents": 100, "resources": [1, 2], "supply_share": [0.1, 0.2]}
    path.write_text(yaml.safe_dump(changed(datasets={"m": {"synth": synth}}, methods=[{"run": "pack"}])))
    names = list(read_experiment(str(path), "").datasets)
    assert names == [f"m resources={m} supply_share={b}" for m in (1, 2) for b in (0.1, 0.2)]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "lab" / "experiments").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_experiments_that_are_here(path, tmp_path, monkeypatch):
    """Keys, columns, measures and names of settings; to calibrate all of them takes a minute."""
    for about in yaml.safe_load(path.read_text())["datasets"].values():
        for key, name in (("folder", "entries.parquet"), ("histogram", "histogram.parquet")):
            if key in about:
                (tmp_path / about[key]).mkdir(exist_ok=True)
                (tmp_path / about[key] / name).touch()
    monkeypatch.setattr(schema, "prepared", lambda *_: None)
    experiment = read_experiment(str(path), str(tmp_path))
    assert experiment.cells() and (experiment.tables or experiment.plots)


def test_the_document_shows_the_small_one():
    shown = (
        (ROOT / "lab" / "docs" / "how-to" / "evaluate.md").read_text().split("```yaml\n")[1].split("```")[0]
    )
    file = (ROOT / "lab" / "experiments" / "small.yaml").read_text()
    assert yaml.safe_load(shown) == yaml.safe_load(file)
