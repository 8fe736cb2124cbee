"""Every flag of every command with hostile values, a third of a flag's; what is bad is printed by the script."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.engines


def test_the_grid():
    done = subprocess.run(
        [ROOT / "scripts" / "hostile", "--turns", "--sample=3"], capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    cases = int(done.stdout.splitlines()[-1].split()[0])
    assert cases > 1000, done.stdout[-500:]  # 1,205 with the flags of today
