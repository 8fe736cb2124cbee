"""Nights that version 1.0.0 has made, with its own digests: the same again, others refused, the next one goes on.

`version-1.0.0` is the folder of a series of three nights as that version left it after two, by

    dpbeam series open --folder=f --output=out/x --nights=3 --epsilon=8 --delta=1e-2 --preset=late \\
        --max_items_per_user=8 --insecure_test_key=ab
    dpbeam series run --folder=f --night=N --input=nN.csv --user_column=user --item_column=item

with the files of `write`. What it released stands below, also of the third night, which it made from the same folder.
"""

import json
import os
import pathlib
import shutil

import pyarrow.parquet as pq
import pytest

from dpbeam.accounting.versions import versions
from dpbeam.cli import main
from dpbeam.series.window import SeriesWindow

FOLDER = pathlib.Path(__file__).parent / "version-1.0.0"
RELEASED = {
    1: {1, 5},
    2: {2, 4},
    3: {0, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 21},
}
ENGINE = ["--runner=FnApiRunner", "--num_shards=2"]


def write(night: int) -> None:
    rows = [f"u{user},i{(user * k + night) % 23}" for user in range(60) for k in (0, 1, 7)]
    pathlib.Path(f"n{night}.csv").write_text("\n".join(["user,item", *rows]) + "\n")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder as if this installation had the libraries of the one that opened it, and were a later dpbeam."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpbeam.accounting.versions.__version__", "2.3.4")
    shutil.copytree(FOLDER, "f")
    settings = json.loads(pathlib.Path("f/series.json").read_text())
    settings["made_with"] |= {name: versions()[name] for name in ("numpy", "scipy")}
    settings["settings"]["output"] = str(tmp_path / "out" / "x")
    pathlib.Path("f/series.json").write_text(json.dumps(settings))
    for night in RELEASED:
        write(night)


def run(night: int, *more: str, pairs: int | None = None) -> int:
    came = [f"--input=n{pairs or night}.csv", "--user_column=user", "--item_column=item"]
    return main(["series", "run", "--folder=f", f"--night={night}", *came, "--quiet", *more])


def items(night: int) -> set[int]:
    released = pq.read_table(f"out/x-{night}-00000-of-00001.parquet")["item"].to_pylist()
    assert len(released) == len(set(released))
    return {int(item.removeprefix("i")) for item in released}


def test_the_folder_is_of_that_version():
    digests = SeriesWindow.load(str(FOLDER)).snapshot.digests
    assert [len(digest) for digest in digests] == [32, 32]  # later ones have 33 bytes


def test_the_same_night_again_is_served_and_other_pairs_are_refused(place, capsys):
    before = {path.name: path.read_bytes() for path in pathlib.Path("f").iterdir()}
    for night in (1, 2):
        assert run(night) == 0 and items(night) == RELEASED[night]
        for other in {1, 2, 3} - {night}:
            assert run(night, pairs=other) == 2
            assert "was made from other pairs" in capsys.readouterr().err
        lines = pathlib.Path(f"n{night}.csv").read_text().splitlines()
        pathlib.Path("n9.csv").write_text("\n".join(lines[:-1]) + "\n")  # one pair less
        assert run(night, pairs=9) == 2
        pathlib.Path("n9.csv").write_text("\n".join([lines[0], *lines[:0:-1], lines[1]]) + "\n")
        assert run(night, pairs=9) == 0  # the same pairs in another order, one of them twice
    after = {name: data for name, data in before.items() if name != "lock"}
    assert {name: pathlib.Path("f", name).read_bytes() for name in after} == after


def test_an_engine_says_what_to_do(place, capsys):
    for pairs in (1, 2):
        assert run(1, *ENGINE, pairs=pairs) == 2
        assert capsys.readouterr().err.splitlines()[-1] == (
            "dpbeam series: error: --night 1 is out, and was made before nights could be made on an engine: "
            "only one process can compare its pairs, so give it without an engine (--runner)"
        )
    assert not any(name.startswith(("work-", "part-")) for name in os.listdir("f"))
    assert not os.path.exists("out")


@pytest.mark.parametrize("engine", [[], ENGINE], ids=["process", "engine"])
def test_the_next_night_goes_on(place, capsys, engine):
    """It releases what that version did; afterwards each night is compared with the digest that it was made with."""
    assert run(3, *engine) == 0
    assert items(3) == RELEASED[3]
    assert run(1) == 0 and run(2) == 0 and run(3, *ENGINE) == 0 and run(3) == 0
    for night, other in ((1, 2), (3, 1)):
        assert run(night, pairs=other) == 2
        assert "was made from other pairs" in capsys.readouterr().err
    digests = SeriesWindow.load("f").snapshot.digests
    assert [len(digest) for digest in digests] == [32, 32, 33]
