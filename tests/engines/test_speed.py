"""What privacy costs over counting: CPU seconds of `dpbeam select` over those of DuckDB, by turns on the same pairs.

One thread each and the median of three turns, so that other work on the machine disturbs both alike. The limit is
twice what was measured: a quadratic step is seen, or a loop in Python over the pairs in place of one sum of a kernel
(7.3 in place of 3.6); a slow machine is not.
"""

import pathlib
import re
import subprocess

import pytest

pytestmark = pytest.mark.engines
ROOT = pathlib.Path(__file__).resolve().parents[2]
MEASURED = 2.6  # a million and a half synthetic pairs in random order, on 2 cores


def test_a_selection_costs_little_more_than_counting():
    command = [ROOT / "lab/scripts/bench_select", "--against=duckdb", "--only=mad2r", "--workers=1"]
    flags = ["--pairs=1.5", "--repetitions=3"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    ratio = re.search(r"\| beam mad2r / duckdb counts \| [\d.]+ \| ([\d.]+) \|", done.stdout)
    assert ratio is not None, done.stdout
    assert float(ratio[1]) < 2 * MEASURED, done.stdout
