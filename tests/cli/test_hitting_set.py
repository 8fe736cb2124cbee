"""`dpbeam hitting-set` as its users meet it: rankings, ledgers, and one-line errors."""

import glob
import json
import os
import pathlib
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.accounting.ledger import Ledger
from tests.support.commands import COLUMNS, key_warning, run_job
from tests.support.instances import popular_table
from tests.support.ledgers import without_times

pytestmark = pytest.mark.usefixtures("own_temp")

BUDGET = ["--epsilon=2", "--delta=1e-3", "--users_at_least=100"]
KEY = "--insecure_test_key=00ff"
QUICK = "--selector=basic"  # one trip; the default takes eight


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.parquet"
    pq.write_table(popular_table(700), path)
    return str(path)


def hitting_set(capsys, *arguments):
    return run_job(capsys, "hitting-set", *arguments)


def read(prefix):
    (path,) = glob.glob(f"{prefix}-*.parquet")
    return pq.read_table(path)


def test_ranking_and_ledger(pairs, tmp_path, capsys):
    out = str(tmp_path / "out" / "set")
    code, told, err = hitting_set(capsys, "--input", pairs, *COLUMNS, *BUDGET, "--k=25", f"--output={out}")
    assert (code, err) == (0, "")
    assert sorted(os.listdir(tmp_path / "out")) == ["set-00000-of-00001.parquet", "set.ledger.json"]
    ranking = read(out).to_pydict()
    assert list(ranking) == ["rank", "item"] and ranking["rank"] == list(range(1, 26))
    # Three of five users hold the first, and noise is a few users: it comes first.
    assert ranking["item"][0] == "i1" and len(set(ranking["item"])) == 25
    ledger = Ledger.from_json(pathlib.Path(f"{out}.ledger.json").read_text())
    assert (ledger.private, ledger.method, ledger.accounting) == (True, "hitting-set", "first-hit")
    assert ledger.parameters["selector"] == "gsu" and ledger.parameters["selector_share"] == 0.3
    assert "25 items released" in told and "first-hit composition" in told


def test_trips_and_chains_of_jobs_release_the_same(pairs, tmp_path, capsys):
    """Rounds between blocks and hub, in one job and in several with checkpoints."""
    outs = {"whole": [], "trips": ["--num_shards=3"], "chain": ["--num_shards=2", "--passes_per_job=3"]}
    outs["chain"].append(f"--checkpoint={tmp_path / 'kept'}")
    rankings = []
    for name, more in outs.items():
        out = str(tmp_path / name)
        flags = [KEY, QUICK, "--k=4", "--quiet", f"--output={out}", *more]
        assert hitting_set(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags) == (
            0,
            "",
            key_warning("hitting-set"),
        )
        rankings.append(read(out).to_pydict())
    assert rankings[0] == rankings[1] == rankings[2]
    assert os.listdir(tmp_path / "kept") == []


def test_a_public_domain_of_composite_items(tmp_path, capsys):
    path, domain, out = tmp_path / "wide.parquet", tmp_path / "domain.parquet", str(tmp_path / "set")
    users = list(range(300)) + list(range(200, 400))
    hosts, ports = ["a"] * 300 + ["b"] * 200, [80] * 300 + [443] * 200
    pq.write_table(pa.table({"user": users, "host": hosts, "port": ports}), path)
    pq.write_table(pa.table({"host": ["b", "a", "c"], "port": [443, 80, 1]}), domain)
    flags = ["--user_column=user", "--item_column=host", "--item_column=port", f"--domain={domain}", "--k=5"]
    code, told, _ = hitting_set(capsys, f"--input={path}", *flags, *BUDGET, f"--output={out}")
    assert code == 0 and "the domain has only 3 items, fewer than --k=5\n" in told
    ranking = read(out).to_pydict()
    assert ranking == {"rank": [1, 2, 3], "host": ["a", "b", "c"], "port": [80, 443, 1]}


def test_whole_users_in_rows(tmp_path, capsys):
    path, out = tmp_path / "grouped.jsonl", str(tmp_path / "set")
    rows = [{"items": ["x", "y"] if n % 2 else ["z"]} for n in range(400)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--input_layout=grouped", "--item_column=items", "--k=2", QUICK]
    assert hitting_set(capsys, f"--input={path}", *flags, *BUDGET, f"--output={out}")[0] == 0
    items = read(out)["item"].to_pylist()
    assert "z" in items and len(items) == 2  # of x and y, the second adds nobody
    assert "one row" in json.loads(pathlib.Path(f"{out}.ledger.json").read_text())["privacy_unit"]


def test_nothing_released_says_what_it_needs(tmp_path, capsys):
    path, out = tmp_path / "own.parquet", str(tmp_path / "set")
    pq.write_table(
        pa.table({"user": [f"u{n}" for n in range(99)], "item": [f"i{n}" for n in range(99)]}), path
    )
    flags = ["--k=4", QUICK, "--epsilon=1", "--delta=1e-9", f"--output={out}"]
    code, told, err = hitting_set(capsys, f"--input={path}", *COLUMNS, *flags)
    assert code == 0 and "0 items released" in told and "warning" in err
    assert read(out).num_rows == 0


def test_dry_run_reads_and_writes_nothing(pairs, tmp_path, capsys):
    out = str(tmp_path / "set")
    flags = ["--k=50", "--dry_run", f"--output={out}"]
    code, told, err = hitting_set(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags)
    assert (code, err) == (0, "") and not glob.glob(f"{out}*")
    for words in (
        "under first-hit composition (used)",
        "limit of any",
        "loses to noise",
        "nothing was read or",
    ):
        assert words in told


def test_ledgers_of_neighbours_are_identical(tmp_path, capsys):
    """One user more, with 900 items of its own: not a byte of the ledger, or of what is said, may tell."""
    shown = []
    for number in range(2):
        path, rows = tmp_path / str(number) / "in.parquet", popular_table(300)
        path.parent.mkdir()
        new = pa.table({"user": ["new"] * 900, "item": [f"n{i}" for i in range(900)]})
        pq.write_table(pa.concat_tables([rows, new]) if number else rows, path)
        out = str(tmp_path / "out")
        flags = [KEY, QUICK, "--k=5", f"--output={out}", "--overwrite"]
        _, told, err = hitting_set(capsys, f"--input={path}", *COLUMNS, *BUDGET, *flags)
        told = re.sub("elapsed: .*", "", told)
        ledger = without_times(f"{out}.ledger.json")
        assert [shard.pop("sha256") for shard in ledger["release"]["outputs"]]  # of what is released
        shown.append((told, err, ledger, sorted(glob.glob(f"{out}*"))))
    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    "flags, message",
    [
        ([], "--k is required"),
        (["--k=0"], "--k must be an integer from 1 to 10000, got 0"),
        (["--k=3", "--selector_share=1"], "--selector_share must lie strictly between 0 and 1, got 1.0"),
        (["--k=3", "--selector=nosuch"], ".*nosuch.*"),
        (
            ["--k=3", "--domain=DOMAIN", "--selector=gsu"],
            "--selector belongs to a selection stage.*drop one of them",
        ),
        (
            ["--k=3", "--domain=DOMAIN", "--max_items_per_user=9"],
            "--max_items_per_user belongs to a selection.*",
        ),
        (["--k=3", "--domain=nowhere.txt"], "--domain: .*nowhere.txt.*"),
        (["--k=3", "--method=gsu"], "--method does not apply to hitting-set; use --selector"),
        (["--k=3", "--noisy_weights"], ".*--noisy_weights.*"),
        (["--k=3", "--mechanism=joint"], ".*--mechanism.*"),
        (["--k=3", "--delta=0"], "--delta.*"),
    ],
)
def test_errors_are_one_line(flags, message, pairs, tmp_path, capsys):
    (tmp_path / "domain.txt").write_text("i1\n")
    flags = [flag.replace("DOMAIN", str(tmp_path / "domain.txt")) for flag in flags]
    out = str(tmp_path / "set")
    code, told, err = hitting_set(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags, f"--output={out}")
    assert (code, told) == (2, "") and re.fullmatch(rf"dpbeam hitting-set: error: {message}\n", err), err
    assert not glob.glob(f"{out}*"), "a failed run left output"
