"""`--output x.parquet` gives x.parquet and its ledger, from every command, and what reads releases takes it."""

import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from dpbeam.engine.beam import owner
from dpbeam.io.new_files import NewFile
from dpbeam.io.output import OutputTarget
from tests.support.instances import popular_table

KEY = "--insecure_test_key=0a"
BUDGET = ["--epsilon=4", "--delta=1e-3", "--quiet"]
SELECT = ["select", "--input=in.parquet", *BUDGET]


@pytest.fixture
def place(tmp_path, monkeypatch, own_temp):
    monkeypatch.chdir(tmp_path)
    pq.write_table(popular_table(300), "in.parquet")
    Path("list.txt").write_text("item 1\nitem 2\n")
    Path("agents.csv").write_text("agent,value,beds\na,1,1\nb,0.5,1\n")
    Path("supplies.yaml").write_text("beds: 300\n")


def written(stem: str = "x") -> list[str]:
    return sorted(name for name in os.listdir() if name.startswith(stem))


def refused(capsys, *argv: str) -> str:
    capsys.readouterr()
    assert main(list(argv)) == 2
    return capsys.readouterr().err.partition("error: ")[2].rstrip("\n")


def test_the_extension_is_the_format(place):
    assert main([*SELECT, KEY, "--output=x.txt"]) == 0
    assert main([*SELECT, KEY, "--output=y", "--output_format=text"]) == 0
    assert written() == ["x.ledger.json", "x.txt"]
    assert Path("x.txt").read_bytes() == Path("y-00000-of-00001.txt").read_bytes()
    stated = json.loads(Path("x.ledger.json").read_text())
    assert stated["parameters"]["output"]["one_file"] is True
    assert stated["release"]["outputs"][0]["name"] == "x.txt"


@pytest.mark.parametrize(
    ("command", "further"),
    [
        (["top-k", "--k=3", "--input=in.parquet", "--selector=basic"], []),
        (["hitting-set", "--k=3", "--input=in.parquet", "--selector=basic"], []),
        (["count", "--domain=list.txt", "--input=in.parquet"], []),
        (
            ["pack", "--agents=agents.csv", "--supplies=supplies.yaml", "--alpha=0.5", "--start_rounds=4"],
            ["x.prices.parquet"],
        ),
    ],
)
def test_every_command(command, further, place, capsys):
    assert main([*command, *BUDGET, "--output=x.csv", "--num_blocks=2"][: -1 if further == [] else None]) == 0
    assert written() == sorted(["x.csv", "x.ledger.json", *further])
    assert main(["verify", "x.ledger.json", "--contents"]) == 0
    said = capsys.readouterr().out
    assert "one file in place" in said
    # What belongs to agents has no digest that guesses could be tried at.
    assert ("digests and numbers of rows are those of the ledger" in said) != (command[0] == "pack")


def test_nights(place):
    opened = ["series", "open", "--folder=f", "--nights=2", *BUDGET, "--output=x.csv"]
    night = ["series", "run", "--folder=f", "--night=1", "--input=in.parquet", "--quiet"]
    assert main(opened) == 0 and main(night) == 0
    names = ["x-1.csv", "x-1.ledger.json", "x-1.released.parquet", "x.csv", "x.ledger.json"]
    assert written() == names
    os.remove("x-1.csv")
    assert main([*night, "--result_file=r.json"]) == 0 and written() == names
    assert json.loads(Path("r.json").read_text())["outputs"][0].endswith("x-1.csv")
    assert main([*night, "--result_file=x-1.csv"]) == 2


def test_contradictions(place, capsys):
    fix = "drop it, or give a prefix such as --output=x"
    one = [*SELECT, "--output=x.parquet"]
    assert refused(capsys, *one, "--output_format=text") == (
        f"--output_format=text is not the format of --output=x.parquet: {fix}"
    )
    assert refused(capsys, *one, "--num_output_shards=3") == (
        f"--num_output_shards=3: --output=x.parquet is one file: {fix}"
    )
    assert main([*one, "--output_format=parquet", "--num_output_shards=1"]) == 0
    assert written() == ["x.ledger.json", "x.parquet"]


def test_what_is_in_the_way(place, capsys):
    one = [*SELECT, "--output=x.csv"]
    Path("x.csv").write_text("mine")
    for more in ([], ["--overwrite"]):
        assert "'x.csv' is in the way, and no ledger of dpbeam names it" in refused(capsys, *one, *more)
    os.remove("x.csv")
    os.mkdir("x.csv")
    assert "'x.csv' is a folder" in refused(capsys, *one)
    os.rmdir("x.csv")
    assert "--result_file: 'x.csv' is a file of --output" in refused(capsys, *one, "--result_file=x.csv")
    shutil.copy("in.parquet", "x.parquet")
    same = ["select", "--input=x.parquet", *BUDGET, "--output=x.parquet", "--overwrite"]
    assert "'x.parquet' is an input of this run" in refused(capsys, *same)
    assert main(one) == 0
    assert "'x.ledger.json' exists; pass --overwrite" in refused(capsys, *SELECT, "--output=x.jsonl")
    with pytest.raises(ValueError, match=r"belongs to the release of '.*x\.ledger\.json'"):
        NewFile("x.csv", "--plot").check(overwrite=True)
    NewFile("x.svg", "--plot").check(overwrite=True)


def test_it_replaces_shards_and_they_replace_it(place):
    for output, files in (
        ("x", ["x-00000-of-00001.parquet"]),
        ("x.csv", ["x.csv"]),
        ("x.parquet", ["x.parquet"]),
        ("x", ["x-00000-of-00001.parquet"]),
    ):
        assert main([*SELECT, f"--output={output}", "--overwrite"]) == 0
        assert written() == sorted([*files, "x.ledger.json"])


def test_a_later_selection_knows_it(place, capsys):
    assert main([*SELECT, "--output=x.txt"]) == 0
    for number, name in enumerate(("x", "x.txt", "x.ledger.json")):
        assert main([*SELECT, f"--output=y{number}.csv", f"--known={name}"]) == 0
        assert (
            ",False" in Path(f"y{number}.csv").read_text() or ",false" in Path(f"y{number}.csv").read_text()
        )
    Path("x.csv").write_text("item\nother\n")
    said = refused(capsys, *SELECT, "--output=z", "--known=x.csv")
    assert said == "--known: 'x.csv' is not the file of 'x.ledger.json'"
    assert main(["top-k", "--k=2", "--input=in.parquet", *BUDGET, KEY, "--output=t.txt"]) == 0
    assert main([*SELECT, "--output=w", "--public_items=t.txt"]) == 0  # a rank stands before its items
    items = pq.read_table("w-00000-of-00001.parquet")["item"].to_pylist()
    assert {line.split("\t")[1] for line in Path("t.txt").read_text().splitlines()} <= set(items)


def test_an_old_prefix_that_ends_so_is_known_too(place):
    target = OutputTarget("x.csv")
    assert target.path == "x.csv" and target.ledger_path == "x.csv.ledger.json"
    assert main([*SELECT, "--output=x"]) == 0
    shutil.copy("x-00000-of-00001.parquet", "x.csv-00000-of-00001.parquet")
    values = json.loads(Path("x.ledger.json").read_text())
    values["release"]["outputs"][0]["name"] = "x.csv-00000-of-00001.parquet"
    Path("x.csv.ledger.json").write_text(json.dumps(values))
    assert main([*SELECT, "--output=y", "--known=x.csv"]) == 0


def test_clean_finds_what_was_staged(place, capsys, monkeypatch):
    target = OutputTarget.asked("x.csv", None)
    target.prepare()
    monkeypatch.setattr(owner.Owner, "state", property(lambda self: "gone"))
    assert main(["clean", "--output=x.csv"]) == 0
    assert not os.path.exists(target.staging) and "removed" in capsys.readouterr().out
