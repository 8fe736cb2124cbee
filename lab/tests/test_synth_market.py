"""Synthetic markets."""

import json

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from dpbeam.errors import InputError
from dpbeam_lab.synth_market import write_market


def test_a_market_is_what_it_says(tmp_path):
    paths = write_market(
        str(tmp_path / "m"), agents=10_001, resources=3, filled=0.25, supply_share=0.2, shards=2
    )
    assert [path.rsplit("/", 1)[1] for path in paths] == [
        "m-00000-of-00002.parquet",
        "m-00001-of-00002.parquet",
        "m.supplies.yaml",
    ]
    table = pa.concat_tables([pq.read_table(path) for path in paths[:2]])
    assert table["agent"].to_pylist() == [f"agent-{i}" for i in range(10_001)]
    assert json.loads((tmp_path / "m.supplies.yaml").read_text()) == dict.fromkeys(["r0", "r1", "r2"], 2000.2)
    demands = table["r1"].to_numpy()
    # 10,001 coins of 0.25: five deviations, false alarm 6e-7.
    assert abs((demands > 0).mean() - 0.25) < 5 * (0.25 * 0.75 / 10_001) ** 0.5
    assert 0 <= demands.min() <= demands.max() < 1 and 0 <= table["value"].to_numpy().max() < 1


def test_the_same_seed_writes_the_same_bytes(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_market(str(tmp_path / name), agents=100, resources=2, seed=seed, format="csv")
    a, b, c = ((tmp_path / f"{name}-00000-of-00001.csv").read_bytes() for name in "abc")
    assert a == b != c
    assert pacsv.read_csv(tmp_path / "a-00000-of-00001.csv").column_names == ["agent", "value", "r0", "r1"]


def test_the_command_makes_pairs_or_a_market(tmp_path, capsys):
    flags = ["synth", f"--output={tmp_path / 'm'}"]
    assert main([*flags, "--agents=10", "--resources=2", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main([*flags, "--agents=10", "--resources=2"]) == 2
    assert "exists; pass --overwrite" in capsys.readouterr().err
    assert main([*flags, "--agents=10", "--overwrite"]) == 2
    assert "--resources is required" in capsys.readouterr().err
    assert main([*flags, "--agents=10", "--resources=2", "--users=3", "--overwrite"]) == 2
    assert "--users is of pairs, --agents of a market" in capsys.readouterr().err


@pytest.mark.parametrize(
    "bad,flag",
    [({"agents": 0}, "--agents"), ({"filled": 0.0}, "--filled"), ({"supply_share": 2.0}, "--supply_share")],
)
def test_values_out_of_range(tmp_path, bad, flag):
    with pytest.raises(InputError, match=f"^{flag}: must"):
        write_market(str(tmp_path / "m"), **{"agents": 10, "resources": 1, **bad})
    with pytest.raises(InputError, match=r"^--output_format: expected one of parquet, csv"):
        write_market(str(tmp_path / "m"), agents=10, resources=1, format="jsonl")
