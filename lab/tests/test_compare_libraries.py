"""The pure parts of lab/scripts/compare_libraries; tests/engines/test_compare_libraries.py runs it."""

import importlib.util
import math
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


def load(path: Path):
    loader = SourceFileLoader(path.stem, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.stem, loader))
    sys.modules[path.stem] = module  # dataclasses look it up
    loader.exec_module(module)
    return module


compare = load(SCRIPTS / "compare_libraries")
case = load(SCRIPTS / "_compare" / "case.py")


class TestSweep:
    def one(self, figures):
        """Runs that release figures[d0], and note which ran; None is a failure, "late" one for lack of time."""
        self.ran = []

        def run(d0):
            self.ran.append(d0)
            figure = figures[d0]
            if isinstance(figure, int):
                return compare.Run(d0, figure, 1.0, 1.0, 1.0)
            return compare.Run(d0, failed="why", late=figure == "late")

        return run

    def test_the_best_runs_again_and_only_that_counts(self):
        tried, counted = compare.sweep(self.one({1: 5, 10: 9, 100: 7}), (1, 10, 100), 2)
        assert self.ran == [1, 10, 100, 10, 10]
        assert [run.d0 for run in tried] == [1, 10, 100] and [run.d0 for run in counted] == [10, 10]

    def test_a_refused_size_is_passed_over_and_a_late_one_ends_the_row(self):
        compare.sweep(self.one({1: None, 10: 9, 30: "late", 100: 99}), (1, 10, 30, 100), 1)
        assert self.ran == [1, 10, 30, 10]

    def test_of_a_single_size_the_first_run_counts(self):
        tried, counted = compare.sweep(self.one({10: 9}), (10,), 2)
        assert self.ran == [10, 10] and len(counted) == 2 and counted[0] is tried[0]
        assert compare.sweep(self.one({10: 9}), (10,), 1)[1] == [compare.Run(10, 9, 1.0, 1.0, 1.0)]

    def test_a_row_that_never_works_has_no_figures(self):
        assert compare.sweep(self.one({1: None, 10: None}), (1, 10), 3)[1] == []


class TestTable:
    def result(self, released, failed=None, private=True, swept=True):
        counted = [
            {"d0": 10, "released": n, "seconds": 3.0 + k, "cpu_seconds": 1.0 + k, "megabytes": 100 + k}
            for k, n in enumerate(released)
        ]
        tried = [{"d0": 10, "failed": None}, {"d0": 30, "failed": failed}]
        about = {"row": "who", "private": private, "swept": swept and private}
        return {**about, "counted": counted, "tried": tried, "failed": failed}

    def test_means_medians_and_the_largest_memory(self):
        assert compare.cells(self.result([10, 20, 30])) == ["who", "10", "20 ± 10", "2.0", "4.0", "102"]
        assert compare.cells(self.result([10], swept=False))[1:3] == ["default", "10"]

    def test_failures_and_what_is_not_private_are_said(self):
        assert compare.cells(self.result([], "no such module"))[:3] == ["who", "", "no such module"]
        assert compare.cells(self.result([9], "took more"))[0] == "who; at D0 30 took more"
        assert compare.cells(self.result([9], private=False))[1:3] == ["", "not private"]

    def test_every_line_has_as_many_cells_as_the_head(self):
        results = {
            "datasets": {"d": [self.result([1]), self.result([], "why")]},
            "versions": {"dpbeam": "1"},
            "left_out": {"opendp": "cannot be installed: no wheel"},
        }
        text = compare.tables(results)
        assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {7}
        assert "Versions: dpbeam 1." in text and "Left out: opendp: cannot be installed: no wheel." in text


def test_a_failure_is_its_last_line():
    assert compare.last_line("Traceback:\n  File x\nValueError: no\n\n") == "ValueError: no"
    assert compare.last_line("") == "no message"


def test_a_process_that_fails_or_takes_too_long_says_so(monkeypatch):
    def row(code: str):
        monkeypatch.setattr(compare.Row, "command", lambda *_: [sys.executable, "-c", code])
        return compare.run(compare.Row("x", "", ""), "", Path(), 7, 1)

    done = row("print('{\"released\": 5}')")
    assert (done.d0, done.released, done.failed) == (7, 5, None)
    assert done.megabytes > 1 and done.cpu_seconds < done.seconds + 1
    assert row("raise SystemExit('no such thing')").failed == "no such thing"
    late = row("while True: pass")
    assert late.late and late.failed == "took more than 1 CPU seconds"


class TestHittingSet:
    PAIRS = (("a", "x"), ("a", "y"), ("b", "y"), ("c", "z"), ("d", "z"), ("e", "w"))

    def entries(self, folder: Path) -> Path:
        path = folder / "pairs.parquet"
        pq.write_table(pa.table(dict(zip(("user", "item"), zip(*self.PAIRS)))), path)
        return path

    def test_users_missed_are_those_of_no_item_in_the_output(self, tmp_path):
        path, out = self.entries(tmp_path), tmp_path / "out"
        for chosen, missed in ((["y", "z"], 1), (["w"], 4), ([], 5), (["x", "y", "z", "w"], 0)):
            out.mkdir(exist_ok=True)
            table = pa.table({"rank": list(range(len(chosen))), "item": pa.array(chosen, pa.string())})
            pq.write_table(table, out / "out-00000-of-00001.parquet")
            assert compare.users_missed(path, str(out)) == missed

    def test_all_items_of_the_data_are_its_domain(self, tmp_path):
        place = tmp_path / "place"
        place.mkdir()
        path = compare.with_domain(self.entries(tmp_path), place)
        assert pq.read_table(path).num_rows == len(self.PAIRS)
        assert sorted(pq.read_table(place / compare.DOMAIN)["item"].to_pylist()) == ["w", "x", "y", "z"]

    def checkout(self, folder: Path) -> Path:
        """A package with the two functions of the peer that are called; their answers show what they were given."""
        package = folder / "checkout" / "dp_mm_domain"
        package.mkdir(parents=True)
        (package / "peeling_mechanisms.py").write_text(
            "def user_peeling_mechanism(input_data, domain, k, eps, delta):\n"
            "    assert sorted(map(sorted, input_data)) == [['w'], ['x', 'y'], ['y'], ['z'], ['z']]\n"
            "    assert (domain, k, eps, delta) == ({'w', 'x', 'y', 'z'}, 2, 1.0, 1e-5)\n"
            "    return {'w', 'z'}\n"
        )
        (package / "hitting_set_mechanisms.py").write_text(
            "def greedy_hitting_set(input_data, k):\n    assert len(input_data) == 5\n    return set('yz'[:k])\n"
        )
        return folder / "checkout"

    def test_the_peer_runs_from_where_it_lies(self, tmp_path):
        path, checkout = self.entries(tmp_path), self.checkout(tmp_path)
        assert compare.peer_folder(checkout) == compare.peer_folder(checkout / "dp_mm_domain") == checkout
        rows = [row for row in compare.ROWS if row.library == compare.PEER]
        results = compare.compare(path, rows, sys.executable, (2,), 1, 60, checkout)
        assert [compare.cells(result)[:3] for result in results] == [
            ["google-research, user peeling", "2", "2"],
            ["google-research, greedy: NOT PRIVATE", "2", "1"],
        ]
        text = compare.tables({"datasets": {"d": results}, "versions": {}, "left_out": {}})
        assert "| who | k | users missed |" in text and "released" not in text

    def test_a_checkout_that_is_none_and_a_library_without_a_row_are_refused(
        self, tmp_path, monkeypatch, capsys
    ):
        with pytest.raises(
            SystemExit, match=r"--dp_mm_domain: .* holds no dp_mm_domain/peeling_mechanisms.py"
        ):
            compare.peer_folder(tmp_path)
        for flags, message in (
            (
                ["--hitting_set=5", "--library=opendp"],
                "--library opendp has no row here: there are dpbeam, dp_mm_domain",
            ),
            (["--library=dp_mm_domain"], "--library dp_mm_domain has no row here"),
            (["--hitting_set=0"], "--hitting_set must be at least 1, got 0"),
        ):
            monkeypatch.setattr(sys, "argv", ["compare_libraries", *flags])
            with pytest.raises(SystemExit, match="2"):
                compare.main()
            assert message in capsys.readouterr().err


def test_every_row_has_a_library_with_packages_and_a_case():
    assert {row.library for row in compare.ROWS} == set(compare.PACKAGES)
    assert set(case.LIBRARIES) == set(compare.PACKAGES) - {"dpbeam"}
    pinned = (SCRIPTS / "_compare" / "constraints.txt").read_text()
    for packages in compare.PACKAGES.values():
        for package in packages:
            assert f"\n{package.partition('[')[0]}==" in pinned


def test_dpbeam_runs_as_its_command_does_and_the_others_at_every_size(monkeypatch):
    ran = []

    def run(row, python, path, d0, *_):
        ran.append((row.library, d0, " ".join(row.command(python, path, d0, "out"))))
        return compare.Run(d0, 5, 1.0, 1.0, 1.0)

    monkeypatch.setattr(compare, "run", run)
    rows = [
        row for row in compare.ROWS if row.library in ("dpbeam", "opendp") and row.measure == compare.RELEASED
    ]
    compare.compare(Path("d/entries.parquet"), rows, "python", (3, 30), 1, 60)
    assert [d0 for library, d0, _ in ran if library == "opendp"] == [3, 30, 3] * 2
    commands = [command for library, _, command in ran if library == "dpbeam"]
    assert len(commands) == 3 and not any("max_items_per_user" in command for command in commands)
    assert commands[0].endswith("--epsilon=1.0 --delta=1e-05 --quiet") and " select " in commands[0]


def test_the_formula_of_tumult():
    """The example of its docstring: threshold 50 at alpha 1 costs delta 3.83e-22. Of d rows it is d e^eps as much."""
    scale, threshold = case.tumult_threshold(1, 1.0, 3.8328565409781243e-22 * (1 + 1e-9))
    assert (scale, threshold) == (1.0, 50)
    for d0 in (1, 2, 10):
        scale, threshold = case.tumult_threshold(d0, 1.0, 1e-5)
        passes = [math.exp(-(t - 1) / scale) / (1 + math.exp(-1 / scale)) for t in (threshold, threshold - 1)]
        cost = [d0 * math.exp(1.0) ** (d0 > 1) * chance for chance in passes]
        assert scale == d0 and cost[0] <= 1e-5 < cost[1]


def test_the_formula_of_the_extension_of_duckdb():
    """Half of both for the keys; together D0 novel items of one user pass with half of delta."""
    from scipy import stats

    for d0 in (1, 3, 10):
        scale, threshold = case.duckdb_threshold(d0, 1.0, 1e-5)
        assert scale == 2 * d0
        assert 1 - stats.laplace.cdf(threshold, 1.0, scale) ** d0 == pytest.approx(5e-6, rel=1e-6)


@pytest.mark.parametrize("variant", ["tumult", "duckdb"])
def test_by_formula_items_of_many_users_are_selected_and_those_of_few_are_not(variant, tmp_path):
    table = {"user": [f"{u}" for u in range(300)] + ["0"], "item": ["many"] * 300 + ["few"]}
    pq.write_table(pa.table(table), tmp_path / "pairs.parquet")
    assert case.by_formula(variant, str(tmp_path / "pairs.parquet"), 2, 1.0, 1e-5) == 1


def test_of_every_user_at_most_d0_items_count(tmp_path):
    table = {"user": ["a"] * 9 + ["b"], "item": [f"{i}" for i in range(9)] + ["0"]}
    pq.write_table(pa.table(table), tmp_path / "pairs.parquet")
    counts = case.bounded_counts(str(tmp_path / "pairs.parquet"), 4, np.random.default_rng(1))
    assert counts.sum() == 5 and 4 <= len(counts) <= 5


def test_thresholds_by_dp_accounting():
    """One of d0 novel items passes with its share of delta; many Laplace counts compose below the sum."""
    from scipy import stats

    for d0 in (1, 4, 30):
        scale, threshold = case.calibrated("gaussian", d0, 1.0, 1e-5)
        assert scale == pytest.approx(
            3.8841 * d0**0.5, rel=1e-4
        )  # as that of `plan`: tests/cli/test_commands.py
        assert stats.norm.sf(threshold, 1.0, scale) == pytest.approx(5e-6 / d0, rel=1e-3)
        scale, threshold = case.calibrated("laplace", d0, 1.0, 1e-5)
        assert (scale == d0) if d0 < 30 else (scale < 0.9 * d0)
        share = 1e-5 if d0 < 30 else 5e-6
        assert stats.laplace.sf(threshold, 1.0, scale) == pytest.approx(share / d0, rel=1e-3)
