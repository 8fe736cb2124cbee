"""`dpbeam pack` as its users meet it: allocations, prices, ledgers, and one-line errors."""

import glob
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.accounting.ledger import Ledger
from dpbeam.cli import main
from dpbeam.io import sources
from dpbeam.io.formats.parquet import Parquet
from dpbeam.packing.posted import Posted
from tests.support.commands import key_warning
from tests.support.markets import random_rows

pytestmark = pytest.mark.usefixtures("own_temp")

ROOT = Path(__file__).resolve().parents[2]
AGENTS, RESOURCES = 300, ("beds", "nurses", "hours")
SUPPLIES = {"beds": 40, "nurses": 60, "hours": {"supply": 400, "max_demand": 8}}
QUICK = ["--epsilon=8", "--delta=1e-4", "--alpha=0.5", "--start_rounds=4", "--allow_small_supply"]
KEY = "--insecure_test_key=00ff"


def columns(agents=AGENTS):
    values, demands = random_rows(agents, 3, 1)
    demands = demands * [1, 1, 8]
    return {"agent": [f"a{i}" for i in range(agents)], "value": values, **dict(zip(RESOURCES, demands.T))}


def write(folder: Path) -> Path:
    (folder / "supplies.yaml").write_text(json.dumps(SUPPLIES))
    pq.write_table(pa.table(columns()), folder / "agents.parquet")
    return folder


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path)


def pack(folder, *arguments, agents="agents.parquet", output="out"):
    return main(
        [
            "pack",
            f"--agents={folder / agents}",
            f"--supplies={folder / 'supplies.yaml'}",
            f"--output={folder / output}",
            *QUICK,
            KEY,
            "--quiet",
            *arguments,
        ]
    )


@pytest.fixture(scope="module")
def once(tmp_path_factory) -> Path:
    """What `pack` wrote of these agents, without a flag more."""
    folder = write(tmp_path_factory.mktemp("once"))
    assert pack(folder) == 0
    return folder


@pytest.fixture
def packed(folder, once) -> Path:
    """A copy of that, of its own."""
    return shutil.copytree(once, folder, dirs_exist_ok=True)


def allocations(folder, output="out") -> dict:
    rows = [
        row
        for path in glob.glob(f"{folder / output}.not_for_publication-*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]
    return {row["agent"]: row["allocation"] for row in rows}


def refused(capsys, folder, *arguments, **more) -> str:
    assert pack(folder, *arguments, **more) == 2
    error = capsys.readouterr().err.removeprefix(key_warning("pack")).strip()
    assert "\n" not in error and error.startswith("dpbeam pack: error: "), error
    assert not glob.glob(str(folder / "out*"))
    return error.removeprefix("dpbeam pack: error: ")


def test_allocations_prices_and_ledger(packed):
    shares = allocations(packed)
    assert 0 < np.mean(list(shares.values())) < 1
    posted = Posted.from_table(pq.read_table(packed / "out.prices.parquet"))
    data = columns()
    again = posted.allocate(data["value"], np.column_stack([data[name] for name in RESOURCES]))
    assert [shares[agent] for agent in data["agent"]] == again.tolist()
    ledger = json.loads((packed / "out.ledger.json").read_text())
    assert ledger["neighbouring_relation"] == "replace the row of one agent"
    assert "shown to that agent and to nobody else" in ledger["guarantee_note"]
    assert ledger["parameters"]["output"]["extras"] == ["prices.parquet"]
    assert Ledger.from_json((packed / "out.ledger.json").read_text()).verify().delta <= 1e-4


def test_its_settings_are_calibrated_anew(packed, capsys):
    assert main(["verify", str(packed / "out.ledger.json"), "--json"]) == 1  # for its key
    (answer,) = json.loads(capsys.readouterr().out)
    holding = dict.fromkeys(("guarantee", "noise", "sensitivity", "settings", "output"), True)
    said = {s["name"]: s["holds"] for s in answer["statements"]}
    assert said == {**holding, "key": False, "contents": None, "other settings": None}


@pytest.mark.parametrize("form, ending", [("parquet", "parquet"), ("text", "txt")])
def test_the_file_of_shares_is_its_owners_and_says_so_by_its_name(form, ending, folder):
    """The prices beside it are everybody's."""
    before = os.umask(0o022)
    try:
        assert pack(folder, f"--output_format={form}") == 0
    finally:
        os.umask(before)
    (path,) = glob.glob(str(folder / "out*0000*"))
    assert os.path.basename(path) == f"out.not_for_publication-00000-of-00001.{ending}"
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(folder / "out.prices.parquet").st_mode & 0o777 == 0o644
    ledger = json.loads((folder / "out.ledger.json").read_text())
    assert [shard["name"] for shard in ledger["release"]["outputs"]] == [os.path.basename(path)]
    if form == "parquet":
        assert b"own agent alone" in pq.ParquetFile(path).metadata.metadata[b"dpbeam"]


def test_output_of_before_such_names_is_replaced(packed):
    (path,) = glob.glob(str(packed / "out.not_for_publication-*"))
    os.rename(path, packed / "out-00000-of-00001.parquet")
    ledger = json.loads((packed / "out.ledger.json").read_text())
    del ledger["parameters"]["output"]["public"]
    (packed / "out.ledger.json").write_text(json.dumps(ledger))
    assert pack(packed, "--overwrite") == 0
    assert [os.path.basename(p) for p in glob.glob(str(packed / "out*0000*"))] == [os.path.basename(path)]


def test_output_is_replaced_whole_prices_included(packed, capsys):
    assert pack(packed) == 2
    assert "pass --overwrite" in capsys.readouterr().err
    before = (packed / "out.prices.parquet").read_bytes()
    assert pack(packed, "--overwrite", "--insecure_test_key=11") == 0
    assert (packed / "out.prices.parquet").read_bytes() != before
    (packed / "out.ledger.json").unlink()
    assert pack(packed, "--overwrite") == 2
    assert "is in the way" in capsys.readouterr().err


def test_formats_and_lists_are_read_alike(packed):
    data = columns()
    rows = [dict(zip(data, row)) for row in zip(*data.values())]
    (packed / "a.csv").write_text(
        ",".join(data) + "\n" + "".join(",".join(map(str, row.values())) + "\n" for row in rows)
    )
    rows = [{k: float(v) if k != "agent" else v for k, v in row.items()} for row in rows]
    lists = [
        {"agent": row["agent"], "value": row["value"], "wants": [row[name] for name in RESOURCES]}
        for row in rows
    ]
    (packed / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (packed / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lists))
    pq.write_table(pa.Table.from_pylist(lists), packed / "b.parquet", row_group_size=100)
    for number, (agents, more) in enumerate(
        [
            ("a.csv", ["--demand_column=hours", "--demand_column=beds", "--demand_column=nurses"]),
            ("a.jsonl", []),
            ("b.jsonl", ["--demand_column=wants"]),
            ("b.parquet", ["--demand_column=wants"]),
        ]
    ):
        assert pack(packed, *more, agents=agents, output=f"other{number}") == 0
        assert allocations(packed, f"other{number}") == allocations(packed)


def test_several_blocks_and_jobs_give_the_same(packed):
    kept = packed / "kept"
    flags = ["--num_blocks=3", "--passes_per_job=8", f"--checkpoint={kept}"]
    assert pack(packed, *flags, output="more") == 0 and os.listdir(kept) == []
    assert allocations(packed, "more") == allocations(packed)
    prices = [(packed / f"{name}.prices.parquet").read_bytes() for name in ("out", "more")]
    assert prices[0] == prices[1]


def test_integers_stay_integers(folder):
    data = columns()
    data["agent"] = list(range(AGENTS))
    pq.write_table(pa.table(data), folder / "i.parquet")
    assert pack(folder, "--integral", agents="i.parquet") == 0
    shares = allocations(folder)
    assert sorted(shares) == list(range(AGENTS)) and set(shares.values()) == {0.0, 1.0}


#: Column, row, what it holds there, and what is said of it.
BAD_ROWS = [
    ("value", 4, 1.5, "column 'value' holds no number in [0, 1]"),
    ("value", 4, None, "column 'value' holds no number in [0, 1]"),
    ("beds", 2, -0.25, "column 'beds' holds no number in [0, 1]"),
    ("hours", 2, 9.0, "column 'hours' holds no number in [0, 8]"),
    ("beds", 3, float("nan"), "column 'beds' holds no number in [0, 1]"),
    ("agent", 6, None, "column 'agent' is empty: every row needs its agent"),
]


@pytest.mark.parametrize(
    "form,column,row,bad,message",
    [*(("csv", *bad) for bad in BAD_ROWS), ("parquet", *BAD_ROWS[-2]), ("jsonl", *BAD_ROWS[-1])],
)
def test_bad_rows_are_named_and_their_values_are_not(folder, capsys, form, column, row, bad, message):
    data = {name: list(values) for name, values in columns(20).items()}
    data[column][row] = bad
    path = folder / f"bad.{form}"
    if form == "parquet":
        pq.write_table(pa.table(data), path)
        where = f"row {row + 1}"
    elif form == "csv":
        rows = zip(*data.values())
        cells = [",".join("" if cell is None else str(cell) for cell in line) for line in rows]
        path.write_text(",".join(data) + "\n" + "\n".join(cells) + "\n")
        where = f":{row + 2}:"
    else:
        rows = [dict(zip(data, line)) for line in zip(*data.values())]
        path.write_text("".join(json.dumps(line) + "\n" for line in rows))
        where = f":{row + 1}:"
    error = refused(capsys, folder, agents=path.name)
    assert message in error and where in error and path.name in error
    assert "1.5" not in error and "0.25" not in error and "9.0" not in error


@pytest.mark.parametrize("wants", ["beds", "wants"])
def test_json_integers_that_no_double_holds_are_rounded(folder, capsys, wants):
    """As in CSV: so they are numbers, if too large ones, and no message prints them."""
    number = 2**53 + 1
    rows = [dict(zip(columns(20), line)) for line in zip(*columns(20).values())]
    rows = [{name: v if name == "agent" else float(v) for name, v in row.items()} for row in rows]
    more = ["--demand_column=wants"] if wants == "wants" else []
    rows = [{**row, "wants": [row[name] for name in RESOURCES]} for row in rows]
    rows[3] |= {"beds": number} if wants == "beds" else {"wants": [number, 0, 0]}
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    error = refused(capsys, folder, *more, agents="a.jsonl")
    assert error == f"{folder / 'a.jsonl'}:4: column '{wants}' holds no number in [0, 1]"
    rows[3] |= {"beds": 0, "wants": [0, 0, 0], "value": number}
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert pack(folder, *more, "--max_value=1e17", agents="a.jsonl") == 0


def test_agents_that_a_reader_loses_end_the_run(folder, capsys, monkeypatch):
    """Also where several workers read ranges of one file, of which none knows how many rows the others have."""
    pq.write_table(pa.table(columns()), folder / "agents.parquet", row_group_size=20)
    read = Parquet.read
    monkeypatch.setattr(sources, "MIN_SPLIT_BYTES", 1_000)
    monkeypatch.setattr(
        Parquet, "read", lambda self, piece, *more: iter(list(read(self, piece, *more))[piece.start > 0 :])
    )
    assert pack(folder) == 1
    assert "not as many rows of the input were read as its files say they have" in capsys.readouterr().err
    assert not glob.glob(str(folder / "out*"))


def test_agents_of_two_types(folder, capsys):
    """A date and a timestamp of one day would be two agents."""
    days = pa.array(range(3), pa.date32())
    demands = {name: [0.0] * 3 for name in ("value", "beds", "nurses", "hours")}
    for name, agents in (("a", days), ("b", days.cast(pa.timestamp("ms")))):
        pq.write_table(pa.table({"agent": agents, **demands}), folder / f"day-{name}.parquet")
    first, second = (folder / f"day-{name}.parquet" for name in "ab")
    assert refused(capsys, folder, agents="day-*.parquet") == (
        f"{second}: column 'agent' holds timestamp values where {first} holds date values; ids must have one type "
        "throughout, convert them"
    )
    assert pack(folder, "--agent_type=string", agents="day-a.parquet") == 0


@pytest.mark.parametrize(
    ("form", "cells", "more", "message"),
    [
        ("csv", b"a,\xff1,0,0,0", [], "column 'value' holds no number"),
        ("tsv", b"a,1,0,\xff,0", [], "column 'nurses' holds no number"),
        ("csv", b",1,0,0,0", ["--agent_type=int"], "column 'agent' is empty: every row needs its agent"),
        ("tsv", b"\xff,1,0,0,0", ["--agent_type=int"], "column 'agent' holds no 64-bit integer"),
    ],
)
def test_cells_that_are_no_text_and_agents_that_are_none(folder, capsys, form, cells, more, message):
    mark = {"csv": b",", "tsv": b"\t"}[form]
    text = b"agent,value,beds,nurses,hours\n7,1,0,0,0\n" + cells + b"\n"
    path = folder / f"bad.{form}"
    path.write_bytes(text.replace(b",", mark))
    assert refused(capsys, folder, *more, agents=path.name) == f"{path}:3: {message}"


def test_an_agent_twice_is_refused_without_saying_who(folder, capsys):
    data = columns(50)
    data["agent"][40] = "a7"
    pq.write_table(pa.table(data), folder / "twice.parquet", row_group_size=10)
    for blocks in ([], ["--num_blocks=4"]):
        error = refused(capsys, folder, *blocks, agents="twice.parquet")
        assert error == "column 'agent' holds an agent twice; every agent is one row"


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["--value_column=worth"], "--value_column: {agents} has no column 'worth', only agent, value"),
        (["--agent_column=who"], "--agent_column: {agents} has no column 'who'"),
        (["--demand_column=beds"], "has type double, expected a list of numbers"),
        (
            ["--demand_column=beds", "--demand_column=rooms"],
            "--supplies: no supply for --demand_column 'rooms'",
        ),
        (
            ["--demand_column=beds", "--demand_column=nurses"],
            "--demand_column: 'hours' has a supply, but no column",
        ),
        (["--value_column=agent"], "must name different columns"),
        (["--num_agents=200"], "--num_agents=200: the input holds more agents, 300"),
        (["--num_agents=0"], "--num_agents must be from 1"),
        (["--max_resources_per_agent=1"], "--max_resources_per_agent=1: an agent demands more resources"),
        (["--max_value=0.5"], "column 'value' holds no number in [0, 0.5]"),
        (["--alpha=0"], "--alpha must be a number from 0.005 to 1, got 0"),
        (["--no_allow_small_supply", "--epsilon=0.1"], "--supplies: 40 of 'beds' are too few"),
        (["--num_blocks=0"], "--num_blocks must be from 1 to 65536"),
        (["--mechanism=published"], "--mechanism: 'published' has no guarantee with constants"),
        (["--mechanism=x"], "--mechanism must be filter, got 'x'"),
        (["--max_items_per_user=3"], "--max_items_per_user does not apply to pack; an agent is one row"),
        (["--agent_type=float"], "--agent_type: expected one of string, int, bytes"),
        (["--epsilon=0"], "--epsilon"),
        (["--agents=nothing-*.parquet"], "nothing-*.parquet"),
    ],
)
def test_wrong_usage_is_one_line(folder, capsys, arguments, message):
    error = refused(capsys, folder, *arguments)
    assert message.format(agents=folder / "agents.parquet") in error


@pytest.mark.parametrize(
    "text,message",
    [
        ("beds: -3\nnurses: 1\nhours: 1\n", "the supply of 'beds' must be a positive number, got -3"),
        ("beds: many\nnurses: 1\nhours: 1\n", "the supply and max_demand of 'beds' must be numbers"),
        ("{", "is not valid YAML"),
        ("3\n", "must map resources to supplies"),
        ("", "must map resources to supplies"),
    ],
)
def test_wrong_supplies_are_one_line(folder, capsys, text, message):
    (folder / "supplies.yaml").write_text(text)
    columns = [] if "hours" in text else ["--demand_column=beds"]
    assert message in refused(capsys, folder, *columns)


def test_no_supplies_no_agents(folder, capsys):
    (folder / "supplies.yaml").unlink()
    assert "--supplies: cannot read" in refused(capsys, folder)
    (folder / "supplies.yaml").write_text(json.dumps(SUPPLIES))
    pq.write_table(pa.table(columns()).slice(0, 0), folder / "none.parquet")
    assert refused(capsys, folder, agents="none.parquet") == (
        "--agents: there are no agents; pass --allow_empty if that may be so"
    )


def test_a_plan_needs_no_data(folder, capsys):
    flags = ["plan", "--family=pack", f"--supplies={folder / 'supplies.yaml'}", "--num_agents=300", *QUICK]
    assert main([*flags, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["supply"] == 40 and report["suffices"] is (report["supply_needed"] <= 40)
    assert main(flags) == 0
    assert "supply that alpha needs" in capsys.readouterr().out
    assert main(["plan", "--epsilon=1", "--delta=1e-6", "--alpha=0.2"]) == 2
    assert "--alpha is of pack: give --family=pack too" in capsys.readouterr().err
    assert main(["plan", "--family=pack", "--epsilon=1", "--delta=1e-6"]) == 2
    assert "--supplies is required" in capsys.readouterr().err


def test_the_example_config_is_one(folder, capsys):
    config = [f"--config={ROOT / 'configs' / 'pack.yaml'}", "--agent_column=agent", "--value_column=value"]
    assert pack(folder, *config, "--dry_run", "--no_quiet") == 0
    assert "dry run" in capsys.readouterr().out


def test_a_dry_run_writes_nothing(folder, capsys):
    assert pack(folder, "--dry_run", "--no_quiet") == 0
    assert "supply that alpha needs" in capsys.readouterr().out
    assert not glob.glob(str(folder / "out*"))


def test_a_run_is_charged_to_its_account(folder, capsys):
    store = f"--budget={folder / 'accounts.db'}"
    assert main(["budget", "create", store, "--dataset=d", "--epsilon=8", "--delta=1e-4", "--quiet"]) == 0
    account = [store, "--dataset=d", "--charge_test_key"]
    assert pack(folder, *account, "--release_id=r") == 0
    before = Path(f"{folder / 'out'}.prices.parquet").stat().st_mtime_ns
    assert pack(folder, *account, "--release_id=r") == 0  # out already, and left as it is
    assert Path(f"{folder / 'out'}.prices.parquet").stat().st_mtime_ns == before
    assert pack(folder, *account, "--release_id=other", output="out2") == 2
    assert "this run needs epsilon 8, and 0 of 8 is left" in capsys.readouterr().err
