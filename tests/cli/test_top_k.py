"""`dpbeam top-k` as its users meet it: rankings, ledgers, and one-line errors."""

import glob
import json
import math
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.accounting.ledger import Ledger
from dpbeam.engine.program import Keys
from dpbeam.randomness import RunKey, fingerprints
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from tests.support.commands import COLUMNS, key_warning, run_job
from tests.support.instances import popular_table
from tests.support.ledgers import without_times

pytestmark = pytest.mark.usefixtures("own_temp")

BUDGET = ["--epsilon=2", "--delta=1e-3", "--users_at_least=100"]
KEY = "--insecure_test_key=00ff"
KEY_WARNING = key_warning("top-k")
QUICK = "--selector=basic"  # one trip; the default takes eight


def table(users=1_111, seed=0):
    """Counts of at least three digits for the items on top."""
    return popular_table(users, seed)


def true_counts():
    return Counter(item for _, item in {tuple(row.values()) for row in table().to_pylist()})


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.parquet"
    pq.write_table(table(), path)
    return str(path)


def top_k(capsys, *arguments):
    return run_job(capsys, "top-k", *arguments)


def read(prefix):
    [path] = glob.glob(f"{prefix}-*.parquet")
    return pq.read_table(path)


def ledger_of(prefix):
    return Ledger.from_json(Path(f"{prefix}.ledger.json").read_text())


def fails(capsys, message, *arguments, output):
    code, _, err = top_k(capsys, *arguments, f"--output={output}")
    assert code == 2, err
    assert re.fullmatch(rf"dpbeam top-k: error: {message}\n", err), err
    assert not glob.glob(f"{output}*"), "a failed run left output"


def public_reference(counts, settings):
    """Items in rank order, and noisy counts, of a public domain under KEY."""
    plan = plan_topk(settings)
    names = np.array(sorted(counts))
    values = np.array([counts[name] for name in names], np.int64)
    key = RunKey.insecure_fixed("00ff")
    strings = pa.array([name.encode() for name in names], pa.large_binary())
    fp = fingerprints(Keys(key).pairs.item, strings)
    chosen = plan.mechanism.at_most(len(names)).select(values, fp, key)
    noisy = plan.counts.release(values[chosen], fp[chosen], key).tolist() if plan.counts else None
    return names[chosen].tolist(), noisy


class TestOutput:
    @pytest.mark.parametrize("mechanism", ["cdp-peel", "limited-domain"])
    def test_ranking_and_ledger(self, mechanism, pairs, tmp_path, capsys):
        out = str(tmp_path / "out" / "top")
        flags = [f"--mechanism={mechanism}", "--k=5", f"--output={out}"]
        code, told, err = top_k(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags)
        assert (code, err) == (0, "")
        assert sorted(os.listdir(tmp_path / "out")) == ["top-00000-of-00001.parquet", "top.ledger.json"]
        ranking = read(out)
        assert ranking.schema.names == ["rank", "item"]
        assert ranking["rank"].to_pylist() == list(range(1, ranking.num_rows + 1))
        items = ranking["item"].to_pylist()
        # Counts fall from 1,100 by tenths, noise is a few dozen at most.
        assert 3 <= len(items) <= 5 and items[0] in ("i1", "i2") and set(items) <= set(true_counts())
        ledger = ledger_of(out)
        assert ledger.private and ledger.method == "top-k"
        assert ledger.neighbouring_relation == "add/remove one user"
        spent = ledger.verify()
        assert spent.epsilon <= 2.0 * (1 + 1e-12) and spent.delta <= 1e-3 * (1 + 1e-12)
        assert f"ledger: {out}.ledger.json" in told
        budgets = ledger.parameters["choice_budget"]
        assert ledger.accounting == max(budgets, key=budgets.get)
        if mechanism == "cdp-peel":
            assert set(budgets) == {"basic", "zcdp"} and ledger.accounting == "zcdp"
            assert ledger.parameters["selector"] == "gsu" and ledger.parameters["selector_share"] == 0.5

    @pytest.mark.parametrize("flags", [["--k=5", QUICK], ["--k=5", "--mechanism=limited-domain"]])
    def test_no_exact_count_in_ledger_or_stdout(self, flags, pairs, tmp_path, capsys):
        """Noisy counts are off by dozens; exact ones, and the numbers of users and rows, appear nowhere."""
        out = str(tmp_path / "top")
        flags = [*flags, "--noisy_counts", KEY, f"--output={out}"]
        code, told, err = top_k(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags)
        assert code == 0
        values = without_times(f"{out}.ledger.json")
        values.pop("code_revision")  # digits of its own, as has the digest of the output
        values["release"]["outputs"][0].pop("sha256")
        ledger = json.dumps(values)
        said = (told + err).replace(out, "")  # as has the test's folder
        numbers = set(re.findall(r"(?<![\d.])\d+(?![\d.])", said + ledger))
        exact = {str(count) for count in true_counts().values() if count > 99} | {"1111", "6666"}
        assert len(exact) > 8 and not numbers & exact

    def test_noisy_counts(self, pairs, tmp_path, capsys):
        out = str(tmp_path / "top")
        flags = [
            "--k=5",
            "--noisy_counts",
            "--noisy_count_share=0.5",
            "--selector_share=0.3",
            f"--output={out}",
        ]
        assert top_k(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags)[0] == 0
        ranking, parameters = read(out), json.loads(Path(f"{out}.ledger.json").read_text())["parameters"]
        assert ranking.schema.names == ["rank", "item", "noisy_count"]
        assert parameters["noisy_count_share"] == 0.5
        deviation = parameters["noisy_count_deviation"]
        # Correlated Gaussian noise: beyond 25 deviations with probability below e^-300.
        assert 4 < deviation < 5
        true = true_counts()
        errors = [
            n - true[i] for i, n in zip(ranking["item"].to_pylist(), ranking["noisy_count"].to_pylist())
        ]
        assert max(map(abs, errors)) < 25 * deviation
        assert any(errors)

    def test_text_in_rank_order(self, pairs, tmp_path, capsys):
        rows = []
        for form in ("parquet", "text"):
            out = str(tmp_path / form)
            flags = [
                KEY,
                QUICK,
                "--k=6",
                "--noisy_counts",
                f"--output_format={form}",
                "--quiet",
                f"--output={out}",
            ]
            assert top_k(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags) == (0, "", KEY_WARNING)
        expected = zip(*read(str(tmp_path / "parquet")).to_pydict().values())
        rows = Path(tmp_path / "text-00000-of-00001.txt").read_text().splitlines()
        assert [tuple(row.split("\t")) for row in rows] == [tuple(map(str, row)) for row in expected]
        assert len(rows) == 6

    def test_dry_run_reads_and_writes_nothing(self, pairs, tmp_path, capsys):
        out = str(tmp_path / "top")
        plan = ("gauss-rank", "under gaussian composition (used)", "Choice and noise", "rank off by")
        flags = ["--k=5", "--dry_run", f"--output={out}"]
        code, told, err = top_k(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags)
        assert (code, err) == (0, "") and "{" not in told
        for words in (*plan, "limit of any", "nothing was read or written"):
            assert words in told
        assert not glob.glob(f"{out}*")

    def test_ledgers_of_neighbours_are_identical(self, tmp_path, capsys):
        """One user more, with 900 items of its own: not a byte of the ledger may tell, but for its times."""
        ledgers = []
        for number in range(2):
            path, rows = tmp_path / str(number) / "in.parquet", table(300)
            path.parent.mkdir()
            new = pa.table({"user": ["new"] * 900, "item": [f"n{i}" for i in range(900)]})
            pq.write_table(pa.concat_tables([rows, new]) if number else rows, path)
            out = str(tmp_path / str(number) / "out")
            top_k(capsys, "--input", str(path), *COLUMNS, *BUDGET, KEY, QUICK, "--k=5", f"--output={out}")
            ledgers.append(without_times(f"{out}.ledger.json"))
        assert ledgers[0] == ledgers[1]


class TestDomain:
    def test_public_domain(self, pairs, tmp_path, capsys):
        """Chosen from the list alone, with items that nobody holds; the ranking of the mechanism itself."""
        domain = tmp_path / "domain.txt"
        listed = [f"i{n}" for n in range(5, 15)] + ["nobody 1", "nobody 2"]
        domain.write_text("\n".join(listed) + "\n")
        out = str(tmp_path / "top")
        flags = [
            f"--domain={domain}",
            "--k=11",
            "--noisy_counts",
            "--mechanism=cdp-peel",
            KEY,
            f"--output={out}",
        ]
        code, _, err = top_k(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags)
        assert (code, err) == (0, KEY_WARNING)
        true = true_counts()
        settings = TopKConfig(2.0, 1e-3, 11, mechanism="cdp-peel", public_domain=True, noisy_counts=True)
        items, noisy = public_reference({item: true[item] for item in listed}, settings)
        ranking = read(out).to_pydict()
        assert ranking == {"rank": list(range(1, 12)), "item": items, "noisy_count": noisy}
        assert any(item.startswith("nobody") for item in items)
        parameters = ledger_of(out).parameters
        assert parameters["public_domain"] is True and parameters["selection"] is None

    def test_grouped_rows(self, tmp_path, capsys):
        path, domain = tmp_path / "grouped.jsonl", tmp_path / "domain.txt"
        rows = [{"items": ["x", "y", "x", f"own {n}"][: 1 + n % 4]} for n in range(400)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        domain.write_text("y\nx\nz\n")
        out = str(tmp_path / "top")
        flags = ["--input_layout=grouped", "--item_column=items", f"--domain={domain}", "--k=2"]
        assert top_k(capsys, "--input", str(path), *flags, *BUDGET, KEY, f"--output={out}")[0] == 0
        assert read(out)["item"].to_pylist() == ["x", "y"]  # 400 and 300 holders, noise of scale 3
        assert "one row" in ledger_of(out).privacy_unit

    def test_integer_users_and_composite_items(self, tmp_path, capsys):
        path, domain = tmp_path / "wide.parquet", tmp_path / "domain.parquet"
        users = list(range(300)) + list(range(200))
        hosts, ports = ["a"] * 300 + ["b"] * 200, [80] * 300 + [443] * 200
        pq.write_table(pa.table({"user": users, "host": hosts, "port": ports}), path)
        pq.write_table(pa.table({"host": ["b", "a", "c"], "port": [443, 80, 1]}), domain)
        columns = ["--user_column=user", "--item_column=host", "--item_column=port", "--k=2"]
        for name, more in (("unknown", [QUICK]), ("listed", [f"--domain={domain}"])):
            out = str(tmp_path / name)
            assert top_k(capsys, "--input", str(path), *columns, *BUDGET, *more, f"--output={out}")[0] == 0
            assert read(out).to_pydict() == {"rank": [1, 2], "host": ["a", "b"], "port": [80, 443]}

    def test_fewer_than_k_says_so(self, pairs, tmp_path, capsys):
        domain = tmp_path / "domain.txt"
        domain.write_text("i1\ni2\n")
        out = str(tmp_path / "top")
        flags = [f"--domain={domain}", "--k=5", f"--output={out}"]
        code, told, _ = top_k(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags)
        assert code == 0 and read(out).num_rows == 2
        assert "the domain has only 2 items, fewer than --k=5\n" in told
        code, told, _ = top_k(
            capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags[:1], "--k=2", "--overwrite", f"--output={out}"
        )
        assert code == 0 and "fewer than" not in told
        for flag, what in ((QUICK, "the selection"), ("--mechanism=limited-domain", "limited-domain")):
            flags = [flag, "--k=500", f"--output={out}", "--overwrite"]
            code, told, _ = top_k(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags)
            assert code == 0
            assert f"only {read(out).num_rows} items passed {what}, fewer than --k=500\n" in told


class TestEdges:
    def test_no_data_is_an_empty_valid_output(self, tmp_path, capsys):
        path, out = tmp_path / "empty.parquet", str(tmp_path / "top")
        pq.write_table(pa.table({"user": pa.array([], pa.string()), "item": pa.array([], pa.string())}), path)
        flags = [QUICK, "--k=5", "--noisy_counts", f"--output={out}", "--allow_empty"]
        code, told, err = top_k(capsys, "--input", str(path), *COLUMNS, *BUDGET, *flags)
        assert code == 0 and "0 items released" in told
        assert err.startswith("dpbeam top-k: warning: 0 items released: ") and "needs about 14 users" in err
        assert read(out).schema.names == ["rank", "item", "noisy_count"] and read(out).num_rows == 0
        assert ledger_of(out).private

    @pytest.mark.parametrize("kbar", [25, 0])
    def test_limited_domain(self, kbar, pairs, tmp_path, capsys):
        out = str(tmp_path / "top")
        flags = ["--mechanism=limited-domain", "--k=5", f"--kbar={kbar}", f"--output={out}"]
        assert top_k(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags)[0] == 0
        assert 1 <= read(out).num_rows <= 5
        ledger = ledger_of(out)
        assert ledger.parameters["kbar"] == kbar
        text = Path(f"{out}.ledger.json").read_text()
        assert f'"max_changed": {kbar or 100}' in text and math.isfinite(ledger.verify().delta)


class TestBadInput:
    @pytest.mark.parametrize(
        "flags,message",
        [
            (
                ["--mechanism=limited-domain", "--selector=gsu"],
                r"--selector belongs to a selection stage, and .* leaves none: drop one of them",
            ),
            (
                ["--mechanism=limited-domain", "--set=rounds=4"],
                r"--set rounds belongs to a selection stage, and .* leaves none: drop one of them",
            ),
            (
                ["--domain=x", "--max_items_per_user=4"],
                r"--max_items_per_user belongs to a selection stage, and .* leaves none: drop one of them",
            ),
            (["--domain=/none"], r"--domain: .*/none.*"),
            (["--method=gsu"], r"--method does not apply to top-k; use --selector"),
            (["--public_items=x"], r"--public_items does not apply to top-k"),
            (["--noisy_weights"], r"--noisy_weights does not apply to top-k"),
            (["--num_output_shards=2"], r"--num_output_shards does not apply to top-k"),
        ],
    )
    def test_flags(self, flags, message, pairs, tmp_path, capsys):
        """Settings out of range are in tests/topk/test_config.py."""
        fails(capsys, message, "--input", pairs, *COLUMNS, *BUDGET, "--k=3", *flags, output=tmp_path / "x")

    @pytest.mark.parametrize("name", ["input", "epsilon", "delta", "k", "output"])
    def test_required(self, name, capsys):
        given = ["--input=x.csv", *COLUMNS, *BUDGET, "--k=3", "--output=x"]
        flags = [flag for flag in given if not flag.startswith(f"--{name}=")]
        code, _, err = top_k(capsys, *flags)
        assert (code, err) == (2, f"dpbeam top-k: error: --{name} is required\n")

    def test_an_item_column_named_like_the_rankings(self, tmp_path, capsys):
        path = tmp_path / "wide.parquet"
        pq.write_table(pa.table({"user": ["u"], "host": ["a"], "rank": ["b"]}), path)
        columns = ["--user_column=user", "--item_column=host", "--item_column=rank", "--k=3"]
        message = r"--item_column: 'rank' is a column of the output; rename yours"
        fails(capsys, message, "--input", str(path), *columns, *BUDGET, output=tmp_path / "x")
