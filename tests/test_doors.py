"""Every kind of release through every door: for a fixed key the same rows and the same ledger."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.yaml import main as beam_yaml

import dpbeam
from dpbeam.accounting.ledger import Ledger
from dpbeam.cli import main
from dpbeam.families.registry import families
from dpbeam.selectors.gsu import settings as gsu_settings
from tests.support.pipelines import kept, outcome

PROVIDERS = Path(dpbeam.__file__).parent / "yaml/providers.yaml"
KEY = {"insecure_test_key": "d00f"}
BUDGET = {"epsilon": 4.0, "delta": 1e-4}
PAIRS = [(f"u{u}", f"i{n}") for n, holders in enumerate((60, 45, 30, 2)) for u in range(holders)]
LOGS = pa.table(dict(zip(("who", "what"), zip(*PAIRS))))
AGENTS = pa.table(
    {
        "patient": [f"a{n}" for n in range(300)],
        "value": [0.25 + n % 3 / 4 for n in range(300)],
        "beds": [1.0] * 300,
        "nurses": [n % 2 / 1.0 for n in range(300)],
    }
)
#: What ledgers of one release may differ in: the release itself, where its files went, how files are read, and the name
#: that a series draws.
BY_NATURE = ("release", "output", "input", "series")
#: Of what is said of the input: what every door says.
OF_INPUT = ("layout", "on_null", "item_types", "agent_column", "value_column", "demand_columns")


@dataclass(frozen=True)
class Kind:
    """How a kind is asked for.

    Attributes:
      name: of its command.
      function, transform: names in `dpbeam`.
      settings: all arguments but the budget and those of columns.
      columns: which arguments say where users and items lie; data: what goes in.
    """

    name: str
    function: str
    transform: str
    settings: dict[str, Any]
    columns: tuple[tuple[str, str], ...] = (("user", "who"), ("item", "what"))

    @property
    def data(self) -> pa.Table:
        return AGENTS if self.name == "pack" else LOGS

    @property
    def arguments(self) -> dict[str, Any]:
        return {**BUDGET, **KEY, **dict(self.columns), **self.settings}


LISTED = ["i0", "i2", "nobody's"]
QUICK = {"start_rounds": 4, "alpha": 0.3, "allow_small_supply": True}
ROWS = [
    Kind(
        "select", "select", "SelectPartitions", {"method": "basic", "noisy_weights": True, "on_null": "drop"}
    ),
    Kind(
        "select",
        "select",
        "SelectPartitions",
        {"public_items": LISTED, "noisy_counts": True, "method": "mad"},
    ),
    Kind("top-k", "top_k", "TopKItems", {"k": 2, "noisy_counts": True}),
    Kind("top-k", "top_k", "TopKItems", {"k": 2, "domain": LISTED}),
    Kind("hitting-set", "hitting_set", "HittingSet", {"k": 2, "selector": "basic"}),
    Kind("count", "count", "CountItems", {"domain": LISTED}),
    Kind(
        "pack",
        "pack",
        "Packing",
        {"supplies": {"beds": 250, "nurses": 200}, "num_agents": 300, **QUICK},
        (("agent", "patient"),),
    ),
    Kind("series", "Series", "SeriesNight", {"nights": 2, "max_items_per_user": 6, "preset": "steady"}),
]
Outcome = tuple[list[dict[str, Any]], Ledger]


def flags(kind: Kind, folder: Path) -> list[str]:
    """The arguments as they are typed; lists and supplies are files."""
    typed = []
    for name, value in kind.arguments.items():
        if isinstance(value, list | dict):
            text = "\n".join(value) if isinstance(value, list) else json.dumps(value)
            (value := folder / name).write_text(text)
        flag = f"--{name}_column" if name in dict(kind.columns) else f"--{name}"
        typed.append(flag if value is True else f"{flag}={value}")
    return typed


def files(prefix: Path | str) -> list[dict[str, Any]]:
    paths = Path(prefix).parent.glob(f"{Path(prefix).name}*-of-00001*")
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def command(kind: Kind, folder: Path) -> Outcome:
    data = "agents" if kind.name == "pack" else "input"
    job = [kind.name, f"--{data}={folder}/in.parquet", f"--output={folder}/out", "--quiet"]
    assert main([*job, *flags(kind, folder)]) == 0
    return files(folder / "out"), Ledger.from_json((folder / "out.ledger.json").read_text())


def function(kind: Kind, folder: Path) -> Outcome:
    result = getattr(dpbeam, kind.function)(kind.data, **kind.arguments)
    assert "budget spent: epsilon 4, delta 0.0001" in result._repr_html_()
    return result.table.to_pylist(), result.ledger


def pipeline(kind: Kind, folder: Path) -> Outcome:
    path = folder / "ledger.json"
    transform = getattr(dpbeam, kind.transform)(
        **kind.arguments, run_folder=str(folder / "private"), ledger=str(path)
    )
    rows = [beam.Row(**row) for row in kind.data.to_pylist()]
    released = []

    def build(of: beam.Pipeline) -> beam.PCollection:
        released.append(of | beam.Create(rows) | transform)
        return kept(released[0])

    came = [row._asdict() for row in outcome(build)]
    written = Ledger.from_json(path.read_text())
    for ledger in (transform.ledger, released[0].ledger):
        assert differing(ledger) == differing(written)
    assert os.listdir(folder / "private") == []
    return came, written


def of_yaml(kind: Kind, folder: Path) -> Outcome:
    path = folder / "yaml.json"
    config = {**kind.arguments, "run_folder": str(folder / "private"), "ledger": str(path)}
    steps = [
        {"type": "ReadFromParquet", "config": {"path": str(folder / "in.parquet")}},
        {"type": kind.transform, "config": config},
        {"type": "WriteToParquet", "config": {"path": str(folder / "yaml")}},
    ]
    providers = [{"include": str(PROVIDERS)}]
    text = yaml.safe_dump({"pipeline": {"type": "chain", "transforms": steps}, "providers": providers})
    beam_yaml.run([f"--yaml_pipeline={text}", "--runner=FnApiRunner"])
    return files(folder / "yaml"), Ledger.from_json(path.read_text())


def nights_of_command(kind: Kind, folder: Path) -> Outcome:
    series = ["--folder", str(folder / "series"), "--quiet"]
    assert main(["series", "open", *series, f"--output={folder}/out", *flags(kind, folder)]) == 0
    columns = [f"--{argument}_column={column}" for argument, column in kind.columns]
    assert main(["series", "run", *series, "--night=1", f"--input={folder}/in.parquet", *columns]) == 0
    return files(folder / "out"), Ledger.from_json((folder / "out.ledger.json").read_text())


def nights_in_memory(kind: Kind, folder: Path) -> Outcome:
    series = dpbeam.Series(**kind.arguments)
    result = series.run(kind.data)
    assert "budget spent: epsilon 4, delta 0.0001" in result._repr_html_()
    return result.table.to_pylist(), series.ledger


def nights_of_pipeline(kind: Kind, folder: Path) -> Outcome:
    dpbeam.Series(**kind.arguments, folder=str(folder / "series"))
    with dpbeam.SeriesNight(str(folder / "series"), **dict(kind.columns)) as night:
        outcome(lambda of: of | beam.Create([beam.Row(**row) for row in kind.data.to_pylist()]) | night)
        night.commit()
    series = dpbeam.Series.load(str(folder / "series"))
    return series.released().select(["item"]).to_pylist(), series.ledger


DOORS: dict[str, Callable[[Kind, Path], Outcome]] = {
    "command": command,
    "function": function,
    "pipeline": pipeline,
    "yaml": of_yaml,
}
#: Cells that are not as their column: another way, or the reason why there is no such door.
CELLS: dict[tuple[str, str], Callable[[Kind, Path], Outcome] | str] = {
    ("series", "command"): nights_of_command,
    ("series", "function"): nights_in_memory,
    ("series", "pipeline"): nights_of_pipeline,
    (
        "series",
        "yaml",
    ): "a night is committed after its pipeline, by the process that launched it",
}


def released(rows: list[dict[str, Any]]) -> list[bytes]:
    """Rows as bytes, without their order; items and agents under one name."""
    names = {"item": "what", "agent": "patient"}
    named = [{names.get(name, name): value for name, value in row.items()} for row in rows]
    return sorted(json.dumps(row, sort_keys=True).encode() for row in named)


def differing(ledger: Ledger) -> dict[str, Any]:
    """What a ledger says, without what may differ by nature."""
    values = json.loads(ledger.to_json())
    of_input = values["parameters"].pop("input", None) or {}
    for part in (values, values["parameters"]):
        for name in BY_NATURE:
            part.pop(name, None)
    return {**values, "input": {name: of_input[name] for name in OF_INPUT if name in of_input}}


@pytest.mark.parametrize("name", families())
def test_every_kind_has_a_row(name):
    if name not in {kind.name for kind in ROWS}:
        pytest.fail(f"{name} goes through no door of this table")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: f"{kind.name} {' '.join(kind.settings)}")
def test_every_door_releases_the_same(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(gsu_settings, "DEFAULT_ROUNDS", 2)
    outcomes = {}
    for door, through in DOORS.items():
        cell = CELLS.get((kind.name, door), through)
        if isinstance(cell, str):
            continue
        folder = tmp_path / door
        folder.mkdir()
        pq.write_table(kind.data, folder / "in.parquet")
        outcomes[door] = cell(kind, folder)
    rows, ledger = outcomes["function"]
    assert len(rows) >= 2 and not ledger.private
    for door, (came, stated) in outcomes.items():
        assert released(came) == released(rows), f"{kind.name} through {door}: other rows"
        assert differing(stated) == differing(ledger), f"{kind.name} through {door}: another ledger"
