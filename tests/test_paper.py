"""The paper builds, and neither figure nor theorem stands in it that the pages and the proofs do not state."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typst

ROOT = Path(__file__).resolve().parents[1]
RESULTS = "lab/docs/reference/results.md"


def pages(root: Path) -> list[bytes]:
    paper = root / "docs" / "paper" / "paper.typ"
    return typst.compile(paper, root=root, format="png", ppi=40, ignore_system_fonts=True)


@pytest.fixture
def copy(tmp_path) -> Path:
    """What the paper is built from."""
    for folder in ("docs", "proofs", "lab/docs", "lab/experiments", "lab/scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def change(root: Path, page: str, old: str, new: str) -> None:
    text = (root / page).read_text()
    assert old in text
    (root / page).write_text(text.replace(old, new))


def test_it_has_eight_pages():
    assert len(pages(ROOT)) == 8


def test_the_script_writes_it_the_same_each_time(tmp_path):
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "venv" / ".installed-test").touch()
    environment = os.environ | {
        "DPBEAM_VENV": str(tmp_path / "venv"),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    for name in ("one", "other"):
        subprocess.run(
            [ROOT / "scripts" / "paper", tmp_path / f"{name}.pdf"], env=environment, check=True, timeout=60
        )
    written = (tmp_path / "one.pdf").read_bytes()
    assert written.startswith(b"%PDF-") and written == (tmp_path / "other.pdf").read_bytes()


def test_a_table_shows_what_its_page_states(copy):
    change(copy, RESULTS, "| Basic | 213 ± 4 | 574 ± 11 |", "| Basic | 999 ± 4 | 574 ± 11 |")
    before, after = pages(ROOT), pages(copy)
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


@pytest.mark.parametrize(
    ("page", "old", "new", "message"),
    [
        (RESULTS, "22 to 61 %", "23 to 61 %", "results.md does not state: 22 to 61 %"),
        (RESULTS, "| MAD2R, bit |", "| MAD2R with the bit |", "results.md has no row: MAD2R, bit"),
        (RESULTS, "| as printed |", "| in print |", "results.md has no column: as printed"),
        ("proofs/Vote.v", "Theorem one_count ", "Lemma one_count ", "proofs/ has no theorem Vote.one_count"),
        ("docs/explanation/proof.md", "`wt_cap`", "`wt_top`", "proof.md does not state: `wt_cap`"),
    ],
)
def test_what_is_not_stated_is_an_error(page, old, new, message, copy):
    change(copy, page, old, new)
    with pytest.raises(typst.TypstError, match=re.escape(message)):
        pages(copy)


def test_a_source_that_is_gone_is_an_error(copy):
    (copy / "lab" / "experiments" / "coverage.py").unlink()
    with pytest.raises(typst.TypstError, match="not found"):
        pages(copy)


def test_no_measured_figure_is_written_by_hand():
    """Prose has figures of pages by `stated` alone: texts in quotes, formulas and code are taken out here."""
    text = (ROOT / "docs" / "paper" / "paper.typ").read_text()
    prose = re.sub(r'"[^"]*"|\$[^$]*\$|`[^`]*`|(Theorem|Corollary) \d+\.\d+|//.*', "", text)
    assert len(prose) > 20_000
    assert re.findall(r"\d[\d.]* ?%|\d,\d{3}|\d*\.\d+", prose) == []
