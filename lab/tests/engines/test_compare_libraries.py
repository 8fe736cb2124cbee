"""lab/scripts/compare_libraries, on a small sample, with dpbeam and the one library that is quick to install."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from dpbeam_lab.synth import write_synthetic

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "compare_libraries"

pytestmark = [pytest.mark.engines, pytest.mark.slow]


def test_dpbeam_beside_thresholds_by_dp_accounting(tmp_path):
    [pairs] = write_synthetic(
        str(tmp_path / "pairs"), users=2000, items=500, mean_items_per_user=10, item_exponent=1.0
    )
    output = tmp_path / "comparison.json"
    environment = {**os.environ, "DPBEAM_COMPARE_VENV": str(tmp_path / "venv")}
    libraries = ["--library=dpbeam", "--library=dp_accounting"]
    limits = ["--sizes", "10", "30", "--repetitions=1"]
    done = subprocess.run(
        [SCRIPT, f"--input={pairs}", *libraries, *limits, f"--output={output}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    [rows] = json.loads(output.read_text())["datasets"].values()
    released = {row["row"]: row["counted"][0]["released"] for row in rows}
    assert len(released) == 5
    best = max(count for row, count in released.items() if row.startswith("dpbeam"))
    assert best > max(count for row, count in released.items() if row.startswith("dp_accounting")) > 10
    assert "| dpbeam select | default |" in done.stdout and "dp-accounting 0.6.0" in done.stdout
