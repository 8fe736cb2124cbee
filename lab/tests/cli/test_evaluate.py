"""What `dpbeam evaluate` compares with the data: outputs of runs, by every name and in every format."""

import glob
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dpbeam_lab.evaluation.quality import evaluate_release
from tests.support.commands import COLUMNS, run

pytestmark = pytest.mark.usefixtures("own_temp")

BUDGET = ["--epsilon=2", "--delta=1e-3", "--insecure_test_key=00ff"]


@pytest.fixture
def compared(monkeypatch):
    """The lists of items that are compared with the data, sorted."""
    seen = []

    def watched(batches, released, **settings):
        seen.append(sorted(item.decode() for item in released.to_pylist()))
        return evaluate_release(batches, released, **settings)

    monkeypatch.setattr("dpbeam_lab.evaluation.quality.evaluate_release", watched)
    return seen


@pytest.mark.parametrize("format, extension", [("text", "txt"), ("parquet", "parquet")])
def test_an_output_reads_back(format, extension, pairs, compared, tmp_path, capsys):
    base = ["select", f"--input={pairs}", *COLUMNS, *BUDGET]
    assert run(capsys, *base, f"--output={tmp_path}/ref")[0] == 0
    reference = pq.read_table(f"{tmp_path}/ref-00000-of-00001.parquet")["item"].to_pylist()
    out = f"{tmp_path}/out"
    assert run(capsys, *base, f"--output_format={format}", "--noisy_weights", f"--output={out}")[0] == 0
    evaluate = ["evaluate", f"--input={pairs}", *COLUMNS, f"--ledger={out}.ledger.json"]
    every_name = (f"{out}-00000-of-00001.{extension}", f"{out}-*", out)
    for released in every_name if format == "parquet" else every_name[2:]:
        assert run(capsys, *evaluate, f"--released={released}")[0] == 0
        assert compared.pop() == sorted(reference)


@pytest.mark.parametrize("format", ["text", "csv"])
def test_a_ranking_reads_back(format, pairs, compared, tmp_path, capsys):
    out = f"{tmp_path}/top"
    flags = [*COLUMNS, *BUDGET, "--k=3", f"--output_format={format}", "--noisy_counts", f"--output={out}"]
    assert run(capsys, "top-k", f"--input={pairs}", *flags)[0] == 0
    code, _, err = run(capsys, "evaluate", f"--input={pairs}", *COLUMNS, *BUDGET[:2], f"--released={out}")
    assert (code, err) == (0, "")
    assert len(compared[0]) == 3 and set(compared[0]) <= set(pq.read_table(pairs)["item"].to_pylist())
    if format == "csv":
        (path,) = glob.glob(f"{out}-*")
        assert Path(path).read_text().splitlines()[0] == "rank,item,noisy_count"
