"""`dpbeam series`: a window from open to close, what a retry finds, and what is refused."""

import functools
import itertools
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbeam
from dpbeam.accounting.ledger import Ledger
from dpbeam.budget.store import BudgetStore
from dpbeam.cli import main, series, series_open, series_output
from dpbeam.engine.seal import FOLDER_KEY
from dpbeam.errors import InputError
from dpbeam.series.store import SeriesStore
from dpbeam.series.window import SeriesWindow
from tests.support.forks import in_fork

OPEN = [
    *("open", "--folder=f", "--output=out/items", "--nights=3", "--epsilon=4", "--delta=1e-3"),
    "--users_at_least=100",
    *("--preset=toward-end", "--first_night=2026-11-01", "--quiet"),
]
COLUMNS = ["--user_column=user", "--item_column=item"]


def write_night(path: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [f"u{user},i{item % 50}" for user in range(200) for item in rng.zipf(1.5, 3)]
    Path(path).write_text("\n".join(["user,item", *rows]) + "\n")


@pytest.fixture
def place(tmp_path, monkeypatch, own_temp):
    monkeypatch.chdir(tmp_path)
    for night in (1, 2, 3):
        write_night(f"n{night}.csv", night)


def run(night: int, *more: str, files: str | None = None) -> int:
    data = [f"--input={files or f'n{night}.csv'}", *COLUMNS] if files != "" else ["--empty"]
    return main(["series", "run", "--folder=f", f"--night=2026-11-0{night}", "--quiet", *data, *more])


def refused(capsys, *argv: str) -> str:
    capsys.readouterr()
    assert main(["series", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err.removeprefix("dpbeam series: error: ").rstrip("\n")


def items(night: int) -> list[str]:
    return pq.read_table(f"out/items-2026-11-0{night}-00000-of-00001.parquet")["item"].to_pylist()


def shown(capsys) -> dict:
    capsys.readouterr()
    assert main(["series", "show", "--folder=f", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_window_from_open_to_close(place, capsys):
    assert main(["series", *OPEN]) == 0
    assert run(1) == run(2, files="") == run(3) == 0
    so_far = pq.read_table("out/items-2026-11-03.released.parquet").to_pydict()
    assert so_far["item"] == items(1) + items(2) + items(3) and len(so_far["item"]) > 3
    assert set(so_far["night"]) <= {"2026-11-01", "2026-11-02", "2026-11-03"}
    assert len(items(1)) > 0 and len(items(3)) > 0
    window = shown(capsys)
    assert (window["nights_made"], window["next_night"], window["open"]) == (3, None, True)
    assert window["items_released"] == len(so_far["item"]) and window["noise_spent"] == 1.0
    ledgers = ["out/items.ledger.json", *(f"out/items-2026-11-0{n}.ledger.json" for n in (1, 2, 3))]
    assert main(["verify", "--contents", "--json", *ledgers]) == 0
    for one in json.loads(capsys.readouterr().out):
        held = {statement["name"]: statement["holds"] for statement in one["statements"]}
        assert held["settings"] and held["thresholds"] and held["contents"] and held["guarantee"]
    night = Ledger.from_json(Path(ledgers[3]).read_text())
    window = Ledger.from_json(Path(ledgers[0]).read_text())
    assert night.events == window.events and night.parameters["series"] == window.parameters["series"]
    assert night.parameters["rounds"] == [7, 18]
    assert main(["report", ledgers[0], "--output=page.html", "--quiet"]) == 0
    assert main(["series", "close", "--folder=f", "--quiet"]) == 0
    assert shown(capsys)["closed"]
    assert "the series is closed" in refused(capsys, "erase", "--folder=f", "--users=" + str(_users("u1")))


def _users(*names: str) -> str:
    Path("users.txt").write_text("\n".join(names) + "\n")
    return "users.txt"


def test_a_night_again_leaves_what_is_out_and_brings_back_what_is_gone(place, capsys):
    main(["series", *OPEN])
    run(1), run(2)
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    assert run(1) == 0
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == before
    lines = Path("n1.csv").read_text().splitlines()
    Path("sorted.csv").write_text("\n".join([lines[0], *sorted(lines[1:])]) + "\n")
    os.remove("out/items-2026-11-01-00000-of-00001.parquet")
    assert run(1, files="sorted.csv") == 0
    for path, data in before.items():
        if not path.name.endswith("ledger.json"):  # it has the time of the run
            assert path.read_bytes() == data, path
    assert main(["verify", "--contents", "--quiet", "out/items-2026-11-01.ledger.json"]) == 0


def test_a_night_without_its_ledger_says_what_brings_it_back(place, capsys):
    main(["series", *OPEN])
    run(1)
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    ledger = Path("out/items-2026-11-01.ledger.json")
    ledger.unlink()
    night = ["run", "--folder=f", "--night=2026-11-01", "--input=n1.csv", *COLUMNS]
    said = refused(capsys, *night)
    assert said.startswith(f"--night 2026-11-01 is out, but its ledger '{ledger.absolute()}' is gone")
    assert shown(capsys)["nights_made"] == 1
    assert main(["verify", str(ledger)]) == 2 and f"cannot read '{ledger}'" in capsys.readouterr().err
    for path in Path("out").glob("items-2026-11-01*"):
        assert f"'{path.absolute()}'" in said and path.read_bytes() == before[path]
        path.unlink()
    assert run(1) == 0 and main(["verify", "--contents", "--quiet", str(ledger)]) == 0
    assert all(path.read_bytes() == data for path, data in before.items() if path != ledger)


def test_what_cannot_be_a_night_is_refused_and_changes_nothing(place, capsys):
    main(["series", *OPEN])
    run(1)
    before = {path: path.read_bytes() for folder in ("f", "out") for path in Path(folder).iterdir()}
    common = ["run", "--folder=f"]
    other = ["--input=n2.csv", *COLUMNS]
    assert "was made from other pairs" in refused(capsys, *common, "--night=2026-11-01", *other)
    assert "2026-11-02 comes next" in refused(capsys, *common, "--night=2026-11-03", *other)
    assert "2026-11-01 to 2026-11-03" in refused(capsys, *common, "--night=2026-12-01", *other)
    assert "--night must be a day" in refused(capsys, *common, "--night=2", *other)
    assert "--night is required" in refused(capsys, *common, *other)
    assert "--empty where nothing came" in refused(capsys, *common, "--night=2026-11-02")
    assert "--empty where nothing came" in refused(capsys, *common, "--night=2026-11-02", "--empty", *other)
    assert "--input" in refused(capsys, *common, "--night=2026-11-02", "--input=none.csv", *COLUMNS)
    assert "--epsilon does not apply to series run" in refused(
        capsys, *common, "--night=2026-11-02", "--epsilon=1", *other
    )
    Path("head.csv").write_text("user,item\n")
    assert "give --empty where nothing came" in refused(
        capsys, *common, "--night=2026-11-02", "--input=head.csv", *COLUMNS
    )
    Path("lines.txt").write_text("a b\n")
    assert "--user_column is required" in refused(
        capsys, *common, "--night=2026-11-02", "--input=lines.txt", "--tokenizer=whitespace"
    )
    Path("numbers.jsonl").write_text('{"user": 1, "item": "a"}\n')
    assert "other types than on earlier nights" in refused(
        capsys, *common, "--night=2026-11-02", "--input=numbers.jsonl", *COLUMNS
    )
    Path("out/items-2026-11-02-00000-of-00001.parquet").write_text("mine")
    assert "is in the way" in refused(capsys, *common, "--night=2026-11-02", *other)
    os.remove("out/items-2026-11-02-00000-of-00001.parquet")
    assert {p: p.read_bytes() for folder in ("f", "out") for p in Path(folder).iterdir()} == before
    assert run(2) == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--epsilon=0"], "--epsilon"),
        (["--nights=0"], "--nights must be an integer from 1 to 64"),
        (
            ["--preset=x"],
            "--preset must be one of steady, balanced, toward-end, last-night, early, early-flat",
        ),
        (["--first_night=tomorrow"], "--first_night must be a day"),
        (["--folder=dpx://b/f"], "--folder: 'dpx://b/f': no filesystem is known for dpx://"),
        (["--output=out/"], "--output"),
        (["--output_format=xml"], "--output_format"),
        (["--known=none.txt"], "--known"),
        (["--night=1"], "--night does not apply to series open"),
        (["--item_type=float", "--known=known.txt"], "--item_type must be string, int, bytes"),
        (["--insecure_test_key=xyz"], "--insecure_test_key must be hexadecimal digits"),
        (["--dataset=logs"], "--dataset is of an account of budget"),
        (
            ["--budget_period=2026-11-02:2026-11-03"],
            "must hold all nights of the window, 2026-11-01:2026-11-03",
        ),
    ],
)
def test_what_cannot_be_opened_leaves_nothing(place, capsys, changed, message):
    Path("known.txt").write_text("i1\n")
    before = sorted(os.listdir())
    assert message in refused(capsys, *OPEN, *changed)
    assert sorted(os.listdir()) == before


def test_verbs(place, capsys):
    assert "give a verb: one of open, run, erase, show, close" in refused(capsys)
    assert "did you mean open?" in refused(capsys, "opne")
    assert "--folder is required" in refused(capsys, "show")
    assert "holds no series" in refused(capsys, "show", "--folder=f")


def test_a_dry_run_opens_nothing(place, capsys):
    before = sorted(os.listdir())
    assert main(["series", *(word for word in OPEN if word != "--quiet"), "--dry_run"]) == 0
    assert "3 nights, 2026-11-01 to 2026-11-03; 18 rounds: 4, 2, 12" in capsys.readouterr().out
    assert sorted(os.listdir()) == before


ACCOUNT = ["--budget=acc.db", "--dataset=logs", "--release_id=november"]


def spent() -> float:
    account = BudgetStore("acc.db").account("logs")
    return float(sum(release.charge.amounts("basic")["epsilon"] for release in account.releases.values()
                     if release.state == "committed"))  # fmt: skip


def test_the_account_is_charged_once_for_all_nights(place, capsys):
    main(["budget", "create", "--budget=acc.db", "--dataset=logs", "--epsilon=5", "--delta=0.1", "--quiet"])
    assert main(["series", *OPEN, *ACCOUNT]) == 0
    assert spent() == 4
    assert main(["series", *OPEN, *ACCOUNT]) == 0  # a retry
    assert run(1) == run(2) == run(3) == 0
    assert spent() == 4
    assert "--release_id" in refused(capsys, *OPEN, *ACCOUNT, "--epsilon=3")
    os.rename("f", "elsewhere")
    assert "was charged for a series in another folder" in refused(capsys, *OPEN, *ACCOUNT)
    os.rename("elsewhere", "f")
    assert "holds a series of other settings" in refused(capsys, *OPEN, "--epsilon=3")
    again = [
        *OPEN,
        "--folder=g",
        "--output=out/more",
        "--budget=acc.db",
        "--dataset=logs",
        "--release_id=more",
    ]
    assert "epsilon" in refused(capsys, *again)
    assert main(["series", "show", "--folder=g", "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["open"]  # nobody has paid for it


@pytest.mark.parametrize("step", ["reserve", "publish", "mark"])
def test_an_opening_that_was_cut_short_goes_on(place, capsys, monkeypatch, step):
    main(["budget", "create", "--budget=acc.db", "--dataset=logs", "--epsilon=5", "--delta=0.1", "--quiet"])

    def dies(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if step == "mark":
            patch.setattr(series_open, "mark_open", dies)
        else:
            from dpbeam.jobs.charged import RunCharge

            patch.setattr(RunCharge, step, dies)
        assert main(["series", *OPEN, *ACCOUNT]) == 1
    assert "was cut short; give dpbeam series open again" in refused(
        capsys, "run", "--folder=f", "--night=2026-11-01", "--empty"
    )
    with pytest.raises(InputError, match=r"^folder: the opening of this series was cut short"):
        dpbeam.Series.load("f").run({"user": ["u"], "item": ["i"]})  # nor does another way in
    key = Path("f/key").read_bytes()
    assert main(["series", *OPEN, *ACCOUNT]) == 0
    assert Path("f/key").read_bytes() == key and spent() == 4
    assert run(1) == 0


def test_an_opening_goes_on_with_the_known_items_that_it_began_with(place, capsys, monkeypatch):
    def dies(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(series_open, "_publish_window", dies)
        Path("known.txt").write_text("i1\ni2\n")
        assert main(["series", *OPEN, "--known=known.txt"]) == 1
    Path("known.txt").write_text("i1\n")
    assert "--known: this opening began with other known items" in refused(capsys, *OPEN, "--known=known.txt")
    Path("known.txt").write_text("i2\ni1\n")
    assert main(["series", *OPEN, "--known=known.txt"]) == 0


def test_an_opening_that_began_without_an_account_is_not_taken_for_paid(place, capsys, monkeypatch):
    main(["budget", "create", "--budget=acc.db", "--dataset=logs", "--epsilon=5", "--delta=0.1", "--quiet"])

    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(series_open, "mark_open", dies)
        assert main(["series", *OPEN]) == 1
    assert "--budget: this opening began without an account" in refused(capsys, *OPEN, *ACCOUNT)
    assert spent() == 0
    assert main(["series", *OPEN]) == 0 and run(1) == 0


def test_a_night_that_was_cut_short_after_it_was_made_is_published_by_the_next_run(place, monkeypatch):
    main(["series", *OPEN])

    def dies(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(series_output, "stage", dies)
        assert run(1) == 1
    assert not list(Path("out").glob("items-2026*"))
    assert run(1, files="n2.csv") == 2  # it is made: of other pairs nothing is ever drawn
    assert run(1) == 0 and len(items(1)) > 0


def test_an_older_copy_of_the_folder_makes_no_night_again(place, capsys):
    main(["series", *OPEN])
    run(1)
    shutil.copytree("f", "backup")
    run(2)
    shutil.rmtree("f")
    shutil.move("backup", "f")
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    for files in ("n2.csv", "n3.csv"):
        words = ["run", "--folder=f", "--night=2026-11-02", f"--input={files}", *COLUMNS]
        assert "the folder does not know of it" in refused(capsys, *words)
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == before


def test_the_next_window_knows_what_the_last_one_released(place, capsys):
    main(["series", *OPEN])
    assert run(1) == run(2) == run(3) == 0
    out = set(pq.read_table("out/items-2026-11-03.released.parquet")["item"].to_pylist())
    following = [word for word in OPEN if not word.startswith(("--folder", "--output"))]
    known = "--known=out/items-2026-11-03.released.parquet"
    assert main(["series", *following, "--folder=g", "--output=out/next", known]) == 0
    for night in (1, 2, 3):
        words = [f"--night=2026-11-0{night}", f"--input=n{night}.csv", *COLUMNS, "--quiet"]
        assert main(["series", "run", "--folder=g", *words]) == 0
    new = set(pq.read_table("out/next-2026-11-03.released.parquet")["item"].to_pylist())
    assert not new & out
    assert set(pq.read_table("out/next-00000-of-00001.parquet")["item"].to_pylist()) == out
    assert main(["series", *following, "--folder=h", "--output=out/other", known]) == 0
    Path("numbers.jsonl").write_text('{"user": "u", "item": 1}\n')
    words = ["--folder=h", "--night=2026-11-01", "--input=numbers.jsonl", "--item_type=int", *COLUMNS]
    assert "another type than the known ones (string)" in refused(capsys, "run", *words)


def test_an_erased_user_gives_no_weight(place, capsys):
    main(["series", *OPEN])
    run(1)
    assert (
        main(
            ["series", "erase", "--folder=f", "--quiet", "--users=" + _users(*(f"u{n}" for n in range(200)))]
        )
        == 0
    )
    assert "--user_type must be string" in refused(
        capsys, "erase", "--folder=f", "--user_type=int", "--users=users.txt"
    )
    before = shown(capsys)["items_released"]
    assert run(2, files="") == 0 and shown(capsys)["items_released"] >= before


def test_other_formats_and_composite_items(place):
    Path("pairs.csv").write_text("who,a,b\n" + "".join(f"u{n},x,{n % 2}\n" for n in range(400)))
    words = [word for word in OPEN if not word.startswith("--first")]
    assert main(["series", *words, "--output_format=csv", "--item_column=a", "--item_column=b"]) == 0
    columns = ["--user_column=who", "--item_column=a", "--item_column=b"]
    assert main(["series", "run", "--folder=f", "--night=1", "--input=pairs.csv", *columns, "--quiet"]) == 0
    assert Path("out/items-1-00000-of-00001.csv").read_text().splitlines() == ["a,b", "x,0", "x,1"]
    assert main(["series", "run", "--folder=f", "--night=2", "--empty", "--quiet"]) == 0
    assert pq.read_table("out/items-2.released.parquet").num_rows == 2


def test_a_series_of_several_columns_goes_on_in_memory(place):
    """One --item_type stands for all columns, there too; and the command goes on again."""
    words = ["--item_column=a", "--item_column=b"]
    assert main(["series", *OPEN, *words, "--item_type=string"]) == 0
    rows = {"user": [f"u{n}" for n in range(400)], "a": ["x"] * 400, "b": [f"{n % 2}" for n in range(400)]}
    new = dpbeam.Series.load("f").run(rows, night="2026-11-01")
    assert new.items == [("x", "0"), ("x", "1")]
    assert run(2, files="") == 0
    assert pq.read_table("out/items-2026-11-02.released.parquet").num_rows == 2


def test_a_test_key_says_so(place, capsys):
    assert main(["series", *OPEN, "--insecure_test_key=ab"]) == 0
    assert run(1) == 0
    assert capsys.readouterr().err.count("NOT PRIVATE") == 2
    assert not Ledger.from_json(Path("out/items-2026-11-01.ledger.json").read_text()).private


def test_noisy_counts(place, capsys):
    assert "--noisy_count_share needs --noisy_counts" in refused(capsys, *OPEN, "--noisy_count_share=0.3")
    assert (
        main(["series", *OPEN, "--noisy_counts", "--noisy_count_share=0.3", "--max_items_per_user=20"]) == 0
    )
    assert "holds a series of other settings" in refused(capsys, *OPEN, "--max_items_per_user=20")
    assert run(1) == run(2) == run(3) == 0
    nights = [pq.read_table(f"out/items-2026-11-0{n}-00000-of-00001.parquet") for n in (1, 2, 3)]
    so_far = pq.read_table("out/items-2026-11-03.released.parquet")
    for name in ("item", "noisy_count", "noisy_count_sd"):
        assert [v for night in nights for v in night[name].to_pylist()] == so_far[name].to_pylist()
    ledger = Ledger.from_json(Path("out/items.ledger.json").read_text())
    assert ledger.verify().epsilon <= 4 and ledger.parameters["noisy_count_share"] == 0.3
    assert set(so_far["noisy_count_sd"].to_pylist()) == {ledger.parameters["noisy_count_sd"]}
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    os.remove("out/items-2026-11-02-00000-of-00001.parquet")
    assert run(2) == 0  # no noise is drawn anew
    for path, data in before.items():
        assert path.read_bytes() == data or path.name.endswith("ledger.json")
    ledgers = ["out/items.ledger.json", "out/items-2026-11-03.ledger.json"]
    assert main(["verify", "--contents", "--quiet", *ledgers]) == 0
    assert main(["report", ledgers[1], "--output=page.html", "--quiet"]) == 0
    values = json.loads(Path(ledgers[0]).read_text())
    assert values["events"]["parts"][-1]["label"] == "noisy counts"
    for place_of, name in (
        (values["events"]["parts"][-1], "sigma"),
        (values["parameters"], "noisy_count_sd"),
    ):
        place_of[name] /= 2
        Path("less.ledger.json").write_text(json.dumps(values))
        capsys.readouterr()
        main(["verify", "--json", "less.ledger.json"])
        (ledger,) = json.loads(capsys.readouterr().out)
        held = {statement["name"]: statement["holds"] for statement in ledger["statements"]}
        assert held["guarantee"] is (name != "sigma") and held["settings"] is not True
        place_of[name] *= 2
    following = [word for word in OPEN if not word.startswith(("--folder", "--output"))]
    known = "--known=out/items-2026-11-03.released.parquet"
    assert main(["series", *following, "--folder=g", "--output=out/next", known]) == 0
    known_items = pq.read_table("out/next-00000-of-00001.parquet")["item"].to_pylist()
    assert known_items == sorted(so_far["item"].to_pylist())


def test_an_item_column_that_counts_need_is_refused_before_the_night_is_made(place, capsys):
    Path("pairs.csv").write_text("user,a,noisy_count\nu,x,1\n")
    main(["series", *OPEN, "--noisy_counts"])
    words = ["--input=pairs.csv", "--user_column=user", "--item_column=a", "--item_column=noisy_count"]
    said = refused(capsys, "run", "--folder=f", "--night=2026-11-01", *words)
    assert said == "--item_column: 'noisy_count' is a column of the output; rename yours"
    assert shown(capsys)["nights_made"] == 0


def test_an_encrypted_folder(place, capsys, monkeypatch):
    flag = "--encrypt_intermediates"
    before = sorted(os.listdir())
    monkeypatch.delenv(FOLDER_KEY, raising=False)
    for more in ([], ["--dry_run"]):
        assert f"{FOLDER_KEY} is not in the environment" in refused(capsys, *OPEN, flag, *more)
    assert sorted(os.listdir()) == before
    monkeypatch.setenv(FOLDER_KEY, "5e" * 32)
    assert main(["series", *OPEN, flag]) == 0
    assert run(1) == run(2, flag) == 0
    column = b"released_night"  # as the state names it
    assert column not in Path("f/state-00000002").read_bytes()
    assert "holds a series of other settings" in refused(capsys, *OPEN)
    verbs = {
        "run": ["--night=2026-11-03", "--empty", "--result_file=r.json"],
        "show": [],
        "close": [],
        "erase": ["--users=" + _users("u1")],
    }
    monkeypatch.delenv(FOLDER_KEY)
    for verb, words in verbs.items():
        assert f"{FOLDER_KEY} is not in the environment" in refused(capsys, verb, "--folder=f", *words)
    assert result()["status"] == "refused"
    plain = [word.replace("out/items", "out/plain") for word in OPEN]
    assert main(["series", *plain, "--folder=g"]) == 0
    assert main(["series", "run", "--folder=g", "--night=2026-11-01", "--empty", "--quiet"]) == 0
    assert column in Path("g/state-00000001").read_bytes()
    monkeypatch.setenv(FOLDER_KEY, "5e" * 32)
    for verb, words in verbs.items():  # who can write there cannot turn encryption off
        assert "the series in 'g' is not encrypted" in refused(capsys, verb, "--folder=g", flag, *words)
    assert shown(capsys)["nights_made"] == 2


def result(path: str = "r.json") -> dict:
    return json.loads(Path(path).read_text())


class TestResultFile:
    FILE = "--result_file=r.json"

    def test_of_a_night_and_of_the_same_again(self, place):
        main(["series", *OPEN])
        assert run(1, self.FILE) == 0
        first = result()
        assert (first["command"], first["status"], first["exit_code"]) == ("series", "released", 0)
        assert first["items_released"] == len(items(1)) > 0 and first["private"]
        assert (first["epsilon"], first["delta"], first["charge"]) == (4, 1e-3, None)
        assert (first["parameters"]["night"], first["method"]) == ("2026-11-01", "series")
        assert [Path(path).name for path in first["outputs"]] == ["items-2026-11-01-00000-of-00001.parquet"]
        assert run(1, self.FILE) == 0
        assert result() == {**first, "status": "already_released"}
        os.remove(first["outputs"][0])
        assert run(1, self.FILE) == 0
        assert result() == first

    def test_another_night_has_another_file(self, place, capsys):
        main(["series", *OPEN])
        run(1, self.FILE)
        first = result()
        words = ["run", "--folder=f", "--night=2026-11-02", "--empty", self.FILE]
        assert "tells of another release" in refused(capsys, *words)
        assert result() == first and shown(capsys)["nights_made"] == 1
        out = {path: path.read_bytes() for path in Path("out").iterdir()}
        assert main(["series", *words, "--overwrite", "--quiet"]) == 0
        assert result()["parameters"]["night"] == "2026-11-02"
        assert out.items() <= {path: path.read_bytes() for path in Path("out").iterdir()}.items()

    def test_of_a_refusal(self, place, capsys):
        main(["series", *OPEN])
        run(1)
        for words, error in (
            (["--night=2026-11-03", "--empty"], "--night: night 2026-11-02 comes next"),
            (["--night=2026-11-02", "--input=none.csv"], "--input is refused; the run's stderr says why"),
            (["--night=2026-11-02", "--input=n2.csv", "--user_column=SECRET"], "--user_column is refused"),
            (["--night=2026-11-02", "--empty", "--bogus=1"], "unknown flag --bogus"),
            (["--night=2026-11-02", "--empty", "--epsilon=1"], "--epsilon does not apply to series run"),
        ):
            refused(capsys, "run", "--folder=f", self.FILE, *words)
            said = result()
            assert (said["status"], said["exit_code"], said["outputs"]) == ("refused", 2, [])
            assert said["error"].startswith(error) and said["parameters"] is None
        assert run(2, self.FILE) == 0 and result()["status"] == "released"  # nobody misses a refusal

    def test_it_never_tells_of_an_earlier_run(self, place, monkeypatch):
        main(["series", *OPEN])
        run(1, self.FILE)
        monkeypatch.setattr(series_output, "published", lambda *_: None)

        def dies(*_, **__):
            assert not os.path.exists("r.json")
            raise KeyboardInterrupt

        monkeypatch.setattr("dpbeam.io.output.OutputTarget.check", lambda *_: None)
        monkeypatch.setattr(series_output, "stage", dies)
        assert run(1, self.FILE) == 1
        assert (result()["status"], result()["error"]) == ("failed", "interrupted")

    def test_a_file_of_the_output_or_the_input_is_refused(self, place, capsys):
        main(["series", *OPEN])
        words = ["run", "--folder=f", "--night=2026-11-01", "--input=n1.csv", *COLUMNS]
        for name in ("ledger.json", "released.parquet"):
            said = refused(capsys, *words, f"--result_file=out/items-2026-11-01.{name}")
            assert "is a file of --output" in said
        assert "'n1.csv'" in refused(capsys, *words, "--result_file=n1.csv")
        assert "--result_file does not apply to series show" in refused(
            capsys, "show", "--folder=f", self.FILE
        )
        assert shown(capsys)["nights_made"] == 0

    def test_where_the_folder_holds_no_series_there_is_none(self, place, capsys):
        refused(capsys, "run", "--folder=f", "--night=1", "--empty", self.FILE)
        assert not os.path.exists("r.json")


ON_ENGINE = ("--runner=FnApiRunner", "--num_shards=2")


def test_no_file_of_a_command_is_put_into_the_folder(place, capsys):
    main(["series", *OPEN])
    assert run(1) == 0
    os.symlink("f", "link")
    before = files_of("f")
    for name in ("key", "known", "series.json", "opened", "state-00000001", "new", "sub/new"):
        common = ["--folder=f", f"--result_file=link/{name}", "--overwrite", "--input=n2.csv", *COLUMNS]
        for night in ("2026-11-02", "2026-11-09"):  # the second is none of the window: the file would say so
            said = refused(capsys, "run", f"--night={night}", *common)
            assert night == "2026-11-09" or said.endswith(
                "the private folder of a series; name another place"
            )
            assert files_of("f") == before and not Path("f/sub").exists()
        capsys.readouterr()
        other = ["--output=other", "--epsilon=1", "--delta=1e-3", "--method=basic"]
        assert main(["select", *other, *common[1:]]) == 2
        assert "lies in" in capsys.readouterr().err and files_of("f") == before
    assert run(2) == 0


@pytest.mark.parametrize("more", [[], ["--dry_run"]])
def test_no_output_is_put_into_the_folder(place, capsys, more):
    for prefix in ("f/items", "f/out/items", "out/../f/items"):
        argv = [f"--output={prefix}" if word.startswith("--output") else word for word in OPEN]
        assert refused(capsys, *argv, *more).startswith(f"--output: '{prefix}' lies in --folder")
    assert not os.path.lexists("f") and not os.path.lexists("out")
    assert main(["series", *OPEN, *more]) == 0


def opened_meanwhile(monkeypatch, owner, name: str, argv: list[str]) -> None:
    """Another process opens the series whole, just before this one goes on with the answer to its first call."""
    real = getattr(owner, name)

    def call(*arguments):
        monkeypatch.setattr(owner, name, staticmethod(real) if owner is SeriesStore else real)
        answer = real(*arguments)
        assert in_fork(lambda: main(["series", *argv])) == "" and Path("f/opened").exists()
        return answer

    monkeypatch.setattr(owner, name, staticmethod(call) if owner is SeriesStore else call)


@pytest.mark.parametrize("pays", [False, True])
@pytest.mark.parametrize("cut_short", [False, True])
def test_of_several_openings_at_once_one_opens_and_pays(place, capsys, monkeypatch, pays, cut_short):
    argv = OPEN
    if pays:
        argv = [*OPEN, "--budget=b.sqlite", "--dataset=logs", "--release_id=november"]
        budget = ["--budget=b.sqlite", "--dataset=logs", "--epsilon=4", "--delta=1e-3"]
        assert main(["budget", "create", *budget]) == 0
    if cut_short:
        with monkeypatch.context() as patch:
            patch.setattr(series_open, "_publish_window", lambda *arguments: 1 / 0)
            assert main(["series", *argv]) == 1
        opened_meanwhile(monkeypatch, SeriesWindow, "alone", argv)
    else:
        opened_meanwhile(monkeypatch, SeriesStore, "exists", argv)
    capsys.readouterr()
    assert main(["series", *argv]) == (0 if cut_short else 1)
    assert cut_short or capsys.readouterr().err.endswith("another run of the series in 'f' is under way\n")
    assert main(["series", *argv]) == run(1) == 0


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "other": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "nested": lambda path: path.write_bytes(b"[" * 100_000),
    "gone": os.remove,
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "loop": lambda path: (path.unlink(), path.symlink_to(path.name)),
    "device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("name", ["series.json", "key", "known", "state-00000001"])
def test_a_damaged_folder_is_one_line(place, capsys, name):
    main(["series", *OPEN])
    assert run(1) == 0
    shutil.copytree("f", "whole")
    out = files_of("out")
    night = ["run", "--night=2026-11-02", "--empty"]
    for damage, spoil in DAMAGE.items():
        shutil.rmtree("f"), shutil.copytree("whole", "f")
        spoil(Path("f", name))
        before = files_of("f")
        verbs = [night]
        if damage == "half":
            verbs += [["show"], ["erase", "--users=" + _users("u1")], ["close"]]
        if (name, damage) == ("state-00000001", "gone"):  # an older copy, which may be closed
            verbs = [["run", "--night=2026-11-01", "--input=n2.csv", *COLUMNS]]
        for verb, *words in verbs:
            said = refused(capsys, verb, "--folder=f", *words)
            assert (said.startswith("--folder: ") and "'f" in said) or "2026-11-01 is out" in said
        assert files_of("f") == before and files_of("out") == out


@pytest.mark.parametrize("where", [(), ("settings",), ("parameters",), ("parameters", "score")])
def test_damaged_settings_are_one_line(place, capsys, where):
    main(["series", *OPEN])
    path = Path("f/series.json")
    before = path.read_text()
    names = list(functools.reduce(dict.get, where, json.loads(before)))
    for name, value in itertools.product(names, [None, [], {}, 10**400, "gone"]):
        values = json.loads(before)
        within = functools.reduce(dict.get, where, values)
        if within[name] == value or (name, value) == ("first_night", None):
            continue
        within[name] = value
        if value == "gone":
            del within[name]
        path.write_text(json.dumps(values))
        said = refused(capsys, "run", "--folder=f", "--night=2026-11-01", "--input=n1.csv", *COLUMNS)
        assert said.startswith("--folder: "), (name, value)
    path.write_text(before)
    assert run(1) == 0


def files_of(folder: str) -> dict[str, bytes]:
    """Files below a folder, less ledgers' times of runs."""
    return {
        path.name: b"\n".join(line for line in path.read_bytes().splitlines() if b'"started"' not in line)
        for path in Path(folder).iterdir()
        if path.is_file() and path.suffix != ".sqlite"
    }


@pytest.mark.parametrize(
    "more, first",
    [
        (["--noisy_counts", "--encrypt_intermediates"], ON_ENGINE),
        ([], ()),  # mixed: night 3 goes on from night 2 in one process
    ],
)
def test_nights_on_an_engine_give_the_same_bytes(place, capsys, monkeypatch, more, first):
    monkeypatch.setenv(FOLDER_KEY, "ab" * 32)
    opening = ["series", *OPEN, "--insecure_test_key=ab", *more]
    assert main(opening) == 0
    assert run(1) == run(2, files="") == run(3) == 0
    expected, before = files_of("out"), shown(capsys)["series"]
    shutil.rmtree("f"), shutil.rmtree("out")
    assert main(opening) == 0
    assert run(1, *first) == run(2, *ON_ENGINE, files="") == 0
    assert sorted(os.listdir("f"))[-1].startswith("state-") and any("-block-" in n for n in os.listdir("f"))
    assert run(3, *first) == 0
    ours, series = files_of("out"), shown(capsys)["series"]
    assert {n: d.replace(series.encode(), before.encode()) for n, d in ours.items()} == expected
    # Again: nothing changes, and other pairs are refused, on the engine and here.
    held = files_of("f")
    for how in {first, ()}:
        assert run(1, *how) == 0
        capsys.readouterr()
        assert run(1, *how, files="n2.csv") == 2
        assert "was made from other pairs" in capsys.readouterr().err
    assert files_of("f") == held and files_of("out") == ours
    assert not any(name.startswith("work-") for name in os.listdir("f"))


@pytest.mark.parametrize("first, then", [((), ON_ENGINE), (ON_ENGINE, ())])
def test_dates_are_no_timestamps_on_any_night(place, capsys, first, then):
    """In one process, on an engine and in Python alike: as strings they would be two ids of one person."""
    days = pa.array(range(99), pa.date32())
    for name, users in (("days", days), ("moments", days.cast(pa.timestamp("ms")))):
        pq.write_table(pa.table({"user": users, "item": ["a"] * 99}), f"{name}.parquet")
    main(["series", *OPEN])
    assert run(1, *first, files="days.parquet") == 0
    again = ["run", "--folder=f", "--night=2026-11-02", *COLUMNS, "--input=moments.parquet", "--quiet", *then]
    assert "other types than on earlier nights" in refused(capsys, *again)
    assert run(2, *then, files="days.parquet") == 0
    in_python = dpbeam.Series(epsilon=1, delta=1e-6, nights=1)
    in_python.run(pq.read_table("days.parquet"))
    states = [SeriesWindow.load("f").snapshot.state, in_python._window.snapshot.state]
    assert len({state.kinds for state in states}) == 1


def test_what_an_engine_cannot_make_is_refused(place, capsys):
    main(["series", *OPEN])
    before = files_of("f")
    common = ["run", "--folder=f", "--night=2026-11-01"]
    other = ["--input=n1.csv", *COLUMNS]
    assert "--parallelism needs --runner" in refused(capsys, *common, *other, "--parallelism=2")
    assert "--num_shards needs --runner" in refused(capsys, *common, *other, "--num_shards=2")
    assert "--runner does not apply to series show" in refused(
        capsys, "show", "--folder=f", "--runner=FlinkRunner"
    )
    assert "unknown runner" in refused(capsys, *common, *other, "--runner=FlikRunner")
    assert "must be from 1 to 65536" in refused(capsys, *common, *other, *ON_ENGINE, "--num_shards=0")
    Path("none.csv").write_text("user,item\n")
    assert "give --empty" in refused(capsys, *common, "--input=none.csv", *COLUMNS, *ON_ENGINE)
    Path("nulls.csv").write_text("user,item\n,a\n")
    nulls = ["--input=nulls.csv", *COLUMNS, "--on_null=drop", "--quiet"]
    assert "give --empty" in refused(capsys, *common, *nulls, *ON_ENGINE)
    assert "2026-11-01 comes next" in refused(
        capsys, "run", "--folder=f", "--night=2026-11-02", *other, *ON_ENGINE
    )
    left = {name: data for name, data in files_of("f").items() if not name.startswith("part-")}
    assert left == before and not Path("out/items-2026-11-01.ledger.json").exists()


def test_a_copy_of_the_folder_at_the_same_moment(place, monkeypatch, capsys):
    """One of both publishes its night; the other one draws nothing, then or later."""
    assert main(["series", *OPEN]) == 0
    shutil.copytree("f", "copy")
    copy = ["series", "run", "--folder=copy", "--night=2026-11-01", "--input=n2.csv", *COLUMNS, "--quiet"]
    codes, publish = [], series.publish_night

    def copy_comes(*arguments):
        monkeypatch.setattr(series, "publish_night", publish)
        codes.append(main(copy))
        return publish(*arguments)

    monkeypatch.setattr(series, "publish_night", copy_comes)
    assert run(1) == 0 and codes == [1]
    assert "--output: another run is under way that writes '" in capsys.readouterr().err
    assert main(["verify", "--contents", "out/items-2026-11-01.ledger.json"]) == 0
    states = [name for name in os.listdir("copy") if name.startswith("state-")]
    assert main(copy) == 2 and "an older copy of a folder" in capsys.readouterr().err
    assert [name for name in os.listdir("copy") if name.startswith("state-")] == states
    assert len(states) <= 1 and run(2) == 0
