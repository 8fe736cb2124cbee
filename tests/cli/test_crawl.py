"""The commands on crawls of the web."""

import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq

from dpbeam.cli import main
from tests.cli.test_golden import SAMPLE
from tests.support.crawls import wet

FLAGS = [
    "--epsilon=6",
    "--delta=1e-5",
    "--lowercase",
    "--max_items_per_user=200",
    "--insecure_test_key=ca11",
    "--quiet",
]


def items(prefix: Path) -> list[str]:
    return pq.read_table(f"{prefix}-00000-of-00001.parquet")["item"].to_pylist()


def test_pages_release_what_the_same_lines_of_text_do(tmp_path):
    """From a list of paths: pages and records, where each page is one, and domains that hold ten each."""
    lines = gzip.decompress(SAMPLE.read_bytes()).decode().splitlines()[:2_000]
    ten = [" ".join(lines[at : at + 10]) for at in range(0, len(lines), 10)]
    (tmp_path / "lines.txt").write_text("\n".join(ten))
    named = [(f"https://p{at % 10}.site{at // 10}.example/{at}", line) for at, line in enumerate(lines)]
    for part in range(2):
        (tmp_path / f"CC-{part}.warc.wet.gz").write_bytes(wet(named[part::2]))
    config = tmp_path / "inputs.yaml"
    config.write_text("input:\n" + "".join(f"- {tmp_path}/CC-{part}.warc.wet.gz\n" for part in range(2)))
    assert main(["select", f"--input={tmp_path}/lines.txt", f"--output={tmp_path}/lines", *FLAGS]) == 0
    assert main(["select", f"--config={config}", "--user=domain", f"--output={tmp_path}/sites", *FLAGS]) == 0
    assert items(tmp_path / "sites") == items(tmp_path / "lines") and len(items(tmp_path / "sites")) > 50
    for who in ("page", "record"):
        assert (
            main(["select", f"--config={config}", f"--user={who}", f"--output={tmp_path}/{who}", *FLAGS]) == 0
        )
    assert items(tmp_path / "page") == items(tmp_path / "record") != items(tmp_path / "sites")
    ledger = json.loads((tmp_path / "sites.ledger.json").read_text())
    assert ledger["privacy_unit"] == "one user: all pages of one registered domain"
    assert ledger["parameters"]["input"]["user"] == "domain"


def test_a_damaged_file_ends_the_job_in_one_line(tmp_path, capsys):
    data = wet([("https://one.example/", "secret words")])
    (tmp_path / "x.wet.gz").write_bytes(data[:-20])
    assert main(["select", f"--input={tmp_path}/x.wet.gz", f"--output={tmp_path}/out", *FLAGS]) == 2
    error = capsys.readouterr().err
    assert "x.wet.gz: not a whole gzip file" in error and error.count("\n") == 1 and "secret" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.wet.gz"]
