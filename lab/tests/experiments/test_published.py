"""The experiment files of the repository: each can be run, on whatever data a reader has."""

import ast
import re
import runpy
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from dpbeam_lab.evaluation import released_bit
from dpbeam_lab.experiments.define import NAME
from dpbeam_lab.experiments.sources import Named

FOLDER = Path(__file__).resolve().parents[2] / "experiments"
SLOW = ("hitting_set", "topk", "epsilon")  # plans of many budgets: too long to calibrate here
FILES = sorted(file for file in FOLDER.glob("*.py") if not file.stem.startswith(SLOW))


def datasets_of(file: Path) -> list:
    return list(runpy.run_path(str(file))[NAME].datasets.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small dataset and histogram under every name that a file asks for."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(1)
    entries = pa.table({name: [f"{i}" for i in rng.integers(0, 40, 300)] for name in ("user", "item")})
    counts = pa.table({"item": [f"{i}" for i in range(300)], "count": np.arange(1, 301)})
    for file in FILES:
        for dataset in datasets_of(file):
            if isinstance(dataset, Named):
                (root / dataset.name).mkdir(exist_ok=True)
                table = counts if dataset.file.startswith("histogram") else entries
                pq.write_table(table, root / dataset.name / dataset.file)
    return root


@pytest.fixture
def straight_curves(monkeypatch):
    """In place of the curves of released bits, which have tests of their own and take most of the time."""
    caches = (released_bit.weighted_curve, released_bit.stages)
    for cached in caches:
        cached.cache_clear()
    monkeypatch.setattr(released_bit, "_curve", lambda *_: np.linspace(0.0, 1.0, 65))
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_an_experiment(path, folder, straight_curves, capsys):
    assert main(["evaluate", "run", str(path), f"--data={folder}", "--dry_run"]) == 0
    said = "".join(capsys.readouterr())
    assert "left out" not in said
    assert int(said.split(" runs")[0].split()[-1]) >= 4
    assert not any("/" in dataset.name for dataset in datasets_of(path) if isinstance(dataset, Named))
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_bounds_run(folder, tmp_path):
    path = next(file for file in FILES if file.stem == "bounds")
    flags = [f"--data={folder}", f"--output={tmp_path / 'out'}", "--jobs=1", "--quiet"]
    assert main(["evaluate", "run", str(path), *flags]) == 0
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    measured = {row["measure"]: row["value"] for row in rows if row["dataset"] == "steam-200k"}
    assert measured["missing_mass_floor_1"] <= measured["missing_mass_1"] <= measured["bound_1"] <= 1
    assert measured["missing_mass_inf"] <= measured["bound_inf"]


def test_the_page_lists_every_file_and_the_documents_show_it():
    """Each file is in the table of lab/docs/reference/experiments.md, and the page that the table links to names it."""
    lines = (FOLDER.parent / "docs" / "reference" / "experiments.md").read_text().splitlines()
    head = next(n for n, line in enumerate(lines) if line.startswith("| file in `lab/experiments` |"))
    shown = {}
    for line in lines[head + 2 :]:
        if not line.startswith("|"):
            break
        files, _, place = (cell.strip() for cell in line.strip("|").split("|"))
        for name in re.findall(r"`(\w+)\.py`", files):
            shown[name] = re.search(r"\]\(([\w./-]*)", place)[1]
    assert sorted(shown) == sorted(file.stem for file in FOLDER.glob("*.py"))
    for name, page in shown.items():
        text = (FOLDER.parent / "docs" / "reference" / page).read_text()
        assert re.search(rf"experiments/{name}\.py|`{name}(\.py)?`", text), (name, page)
