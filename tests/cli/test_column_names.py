"""Columns of the input named like a column of the output: refused before a run, by commands and functions."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbeam
from dpbeam.errors import InputError
from tests.support.commands import run_job

BUDGET = {"epsilon": 1.0, "delta": 1e-5}
FLAGS = [*(f"--{name}={value}" for name, value in BUDGET.items()), "--user_column=user"]
NOISY = ["noisy_count", "noisy_count_sd"]
COMMANDS = {
    ("select", "--noisy_weights"): ["noisy_weight"],
    ("select", "--noisy_counts"): NOISY,
    ("count", "--domain=domain.parquet"): NOISY,
    ("top-k", "--k=3"): ["rank"],
    ("top-k", "--k=3", "--noisy_counts"): ["rank", "noisy_count"],
    ("hitting-set", "--k=3"): ["rank"],
}
CASES = [(words, name) for words, names in COMMANDS.items() for name in names]


@pytest.fixture
def place(tmp_path, monkeypatch, own_temp):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_pairs(name: str) -> None:
    pq.write_table(pa.table({"user": ["u", "v"], "host": ["a", "b"], name: ["x", "y"]}), "pairs.parquet")
    pq.write_table(pa.table({"host": ["a"], name: ["x"]}), "domain.parquet")


@pytest.mark.parametrize("more", [[], ["--dry_run"]])
@pytest.mark.parametrize(("words", "name"), CASES)
def test_commands_refuse_them(words, name, more, place, capsys):
    write_pairs(name)
    columns = [
        "--item_column=host",
        f"--item_column={name}",
        "--input=pairs.parquet",
        "--output=out/x",
        *more,
    ]
    code, out, err = run_job(capsys, *words, *FLAGS, *columns)
    message = f"--item_column: '{name}' is a column of the output; rename yours"
    assert (code, out, err) == (2, "", f"dpbeam {words[0]}: error: {message}\n")
    assert not Path("out").exists()


@pytest.mark.parametrize("more", [[], ["--dry_run"]])
def test_known_items_add_a_column(more, place, capsys):
    for name in ("more", "new"):
        write_pairs(name)
        known = ["--known=out/more"] if name == "new" else []
        columns = [
            "--item_column=host",
            f"--item_column={name}",
            "--input=pairs.parquet",
            f"--output=out/{name}",
        ]
        code, _, err = run_job(capsys, "select", *FLAGS, *columns, *known, *(more if known else []))
        assert code == (2 if known else 0)
    assert err.endswith("error: --item_column: 'new' is a column of the output; rename yours\n")


@pytest.mark.parametrize("more", [[], ["--dry_run"]])
def test_pack_refuses_them(more, place, capsys):
    Path("supplies.yaml").write_text(json.dumps({"beds": 500}))
    pq.write_table(pa.table({"allocation": ["a", "b"], "value": [1.0, 1], "beds": [1.0, 1]}), "a.parquet")
    words = ["--agents=a.parquet", "--agent_column=allocation", "--supplies=supplies.yaml", "--output=out/x"]
    code, out, err = run_job(capsys, "pack", *FLAGS[:2], *words, "--allow_small_supply", *more)
    message = "--agent_column: 'allocation' is a column of the output; rename yours"
    assert (code, out) == (2, "") and err.endswith(f"dpbeam pack: error: {message}\n")
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("name", "more"), [("night", []), ("night", ["--dry_run"]), ("noisy_count_sd", ["--noisy_counts"])]
)
def test_a_series_is_not_opened_with_them(name, more, place, capsys):
    words = [
        "--folder=f",
        "--nights=3",
        "--output=out/x",
        "--item_column=host",
        f"--item_column={name}",
        *more,
    ]
    code, out, err = run_job(capsys, "series", "open", *FLAGS, *words)
    message = f"--item_column: '{name}' is a column of the output; rename yours"
    assert (code, out, err) == (2, "", f"dpbeam series: error: {message}\n")
    assert not Path("out").exists() and not Path("f").exists()


def test_a_night_is_not_made_with_them(place, capsys):
    write_pairs("night")
    assert run_job(capsys, "series", "open", *FLAGS, "--folder=f", "--nights=3", "--output=out/x")[0] == 0
    words = ["--folder=f", "--night=1", "--input=pairs.parquet", "--item_column=host", "--item_column=night"]
    code, _, err = run_job(capsys, "series", "run", "--user_column=user", *words)
    message = "--item_column: 'night' is a column of the output; rename yours"
    assert (code, err) == (2, f"dpbeam series: error: {message}\n")
    assert dpbeam.Series.load("f").nights_made == 0


@pytest.mark.parametrize(
    ("function", "name", "more"),
    [
        ("select", "noisy_weight", {"noisy_weights": True}),
        ("select", "noisy_count_sd", {"noisy_counts": True}),
        ("count", "noisy_count", {"domain": {"host": ["a"], "noisy_count": ["x"]}}),
        ("top_k", "rank", {"k": 3}),
        ("top_k", "noisy_count", {"k": 3, "noisy_counts": True}),
        ("hitting_set", "rank", {"k": 3}),
    ],
)
def test_functions_refuse_them(function, name, more):
    data = {"user": ["u", "v"], "host": ["a", "b"], name: ["x", "y"]}
    with pytest.raises(InputError, match=f"^item: '{name}' is the column that .* rename yours$"):
        getattr(dpbeam, function)(data, item=["host", name], **BUDGET, **more)


def test_functions_refuse_the_column_of_new_items():
    first = dpbeam.select({"user": ["u"], "host": ["a"], "new": ["x"]}, item=["host", "new"], **BUDGET)
    with pytest.raises(InputError, match=r"^item: 'new' is the column that known adds"):
        dpbeam.select(
            {"user": ["u"], "host": ["a"], "new": ["x"]}, item=["host", "new"], known=first, **BUDGET
        )


def test_a_series_in_memory_refuses_its_nights_column():
    with pytest.raises(InputError, match=r"^item: 'night' is the column that released adds"):
        dpbeam.Series(**BUDGET, nights=3, item=["host", "night"])
