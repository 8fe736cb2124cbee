"""Sequential oracles and bounds in experiments: the same numbers as their functions, and marked for what they are."""

import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from dpbeam.errors import InputError
from dpbeam.selectors.registry import find, variants
from dpbeam_lab.evaluation.bounds import (
    Masses,
    Wgm,
    best_law,
    missing_mass_floor,
    rare_items,
    theorem_3_3,
    theorem_3_6,
)
from dpbeam_lab.evaluation.data import Repetition
from dpbeam_lab.evaluation.oracles import greedy_update, policy_gaussian
from dpbeam_lab.evaluation.registry import methods
from dpbeam_lab.experiments.sources import SynthPairs
from lab.tests.experiment_files import experiment

SYNTH = {"users": 600, "items": 300, "mean_items_per_user": 8, "seed": 1}
EXPERIMENT = experiment(
    title="'Oracles'",
    datasets="{'zipf': synth(users=600, items=300, mean_items_per_user=8, seed=1), 'elsewhere': folder('no-such-set')}",
    budgets="[(2, 1e-3)]",
    repetitions="2",
    methods="[Run(method='basic'), Run('policy-gaussian', name='policy', excess=3), "
    "Run('greedy-update', name='greedy'), Run('greedy-update', name='one item', single=True)]",
    sweep="{'max_items_per_user': [3, 20]}",
    tables="[Table('released', rows=['dataset', 'max_items_per_user']), "
    "Table('released', rows=['method'], columns='max_items_per_user')]",
    plots="[Plot('sizes', x='max_items_per_user'), "
    "Plot('others', x='max_items_per_user', where={'dataset': ['elsewhere']})]",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oracles")
    (folder / "file.py").write_text(EXPERIMENT)
    assert main(["evaluate", "run", str(folder / "file.py"), f"--output={folder / 'out'}", "--jobs=1"]) == 0
    return folder


def numbers(finished, measure: str) -> dict[tuple, float]:
    rows = pq.read_table(finished / "out.parquet").to_pylist()
    return {
        (row["method"], row["max_items_per_user"], row["repetition"]): row["value"]
        for row in rows
        if row["measure"] == measure
    }


@pytest.fixture(scope="module")
def indexed():
    data = SynthPairs({**SYNTH, "mean_items_per_user": 8}).load()
    return data.indexed


def test_oracles_release_what_their_functions_mark(finished, indexed):
    released = numbers(finished, "released")
    runs = {
        "policy": (policy_gaussian, {"excess": 3}),
        "greedy": (greedy_update, {}),
        "one item": (greedy_update, {"single": True}),
    }
    for label, (oracle, options) in runs.items():
        for cap in (3, 20):
            for number in (0, 1):
                marks = oracle(
                    indexed.sets,
                    indexed.num_items,
                    2.0,
                    1e-3,
                    rng=Repetition(1, number).rng(),
                    max_items_per_user=cap,
                    **options,
                )
                assert released[label, cap, number] == marks.sum() > 0


def test_reports_mark_what_cannot_run_on_a_cluster(finished):
    text = (finished / "out.md").read_text()
    assert "Not parallel, for comparison only: policy, greedy, one item." in text
    assert "| policy (not parallel) | greedy (not parallel) | one item (not parallel) |" in text
    assert "\n| policy (not parallel) | " in text
    assert "basic (not parallel)" not in text
    plot = (finished / "out.sizes.svg").read_text()
    assert "one item (not parallel)" in plot and "policy (not parallel)" in plot
    assert "basic" in plot and "basic (not parallel)" not in plot


def test_bounds_are_those_of_the_budget_and_d0(finished, indexed):
    masses = Masses.of(indexed)
    measured = numbers(finished, "missing_mass_1")
    expected = {
        "bound_1": rare_items,
        "bound_inf": theorem_3_6,
        "bound_1_zipf": lambda masses, wgm: theorem_3_3(masses, wgm, best_law(masses, wgm)),
        "zipf_exponent": lambda masses, wgm: best_law(masses, wgm).exponent,
        "zipf_factor": lambda masses, wgm: best_law(masses, wgm).factor,
    }
    for cap in (3, 20):
        wgm = Wgm.of(2.0, 1e-3, cap)
        for name, function in expected.items():
            assert numbers(finished, name)["basic", cap, 0] == pytest.approx(function(masses, wgm))
        floor = numbers(finished, "missing_mass_floor_1")["basic", cap, 0]
        assert floor == pytest.approx(missing_mass_floor(masses, 2.0, 1e-3))
        assert floor < measured["basic", cap, 0]


def test_absent_data_are_left_out_and_named(finished, tmp_path, capsys):
    assert "Not at hand, and left out: elsewhere." in (finished / "out.md").read_text()
    assert sorted(path.name for path in finished.glob("*.svg")) == ["out.sizes.svg"]
    path = tmp_path / "file.py"
    path.write_text(EXPERIMENT)
    assert main(["evaluate", "run", str(path), f"--data={tmp_path}", "--dry_run"]) == 0
    said = capsys.readouterr()
    expected = f"elsewhere is left out: there is no '{tmp_path}/no-such-set/entries.parquet'"
    assert expected in said.out + said.err
    quiet = [f"--data={tmp_path}", "--dry_run", "--quiet"]
    assert main(["evaluate", "run", str(path), *quiet]) == 0
    assert "left out" not in "".join(capsys.readouterr())
    path.write_text(experiment(datasets="{'zipf2': folder('gone')}"))
    assert main(["evaluate", "run", str(path), f"--data={tmp_path}", "--dry_run"]) == 2
    assert "datasets.zipf2: there is no" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line,message",
    [
        ("excess=-1", "excess must be a finite number that is not negative"),
        ("excess='much'", "excess must be a finite number that is not negative, got 'much'"),
        ("max_items_per_user=0", "max_items_per_user must be a whole number of at least 1, got 0"),
        ("max_items_per_user='many'", "max_items_per_user must be a whole number of at least 1, got 'many'"),
        ("rounds=3", "unknown setting 'rounds'"),
        ("single=True", "unknown setting 'single'"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(tmp_path, capsys, line, message):
    path = tmp_path / "file.py"
    path.write_text(experiment(methods=f"[Run('policy-gaussian', {line})]"))
    assert main(["evaluate", "run", str(path), "--dry_run"]) == 2
    said = capsys.readouterr().err
    assert f"{path}: methods" in said and message in said


@pytest.mark.parametrize("name", ["policy-gaussian", "greedy-update"])
def test_no_command_releases_with_an_oracle(name, tmp_path, capsys):
    assert not methods()[name].parallel
    assert name not in variants()
    with pytest.raises(InputError):
        find(name)
    path = tmp_path / "pairs.csv"
    path.write_text("user,item\na,x\n")
    flags = ["--epsilon=1", "--delta=1e-5", f"--input={path}", f"--output={tmp_path / 'out'}"]
    columns = ["--user_column=user", "--item_column=item"]
    assert main(["select", f"--method={name}", *flags, *columns]) == 2
    assert name in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pairs.csv"]
