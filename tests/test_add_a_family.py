"""docs/how-to/add_a_family.md shows the code of a real family as it is, and counts its lines and its faults."""

import pytest

from tests.families.faults import MATRIX
from tests.support.examples import ROOT, blocks

PAGE = (ROOT / "docs" / "how-to" / "add_a_family.md").read_text()


@pytest.mark.parametrize(
    "block",
    [block for block in blocks(PAGE) if block.language == "python"],
    ids=lambda block: block.code[:40],
)
def test_the_code_stands_in_the_sources(block):
    head, _, code = block.code.partition("\n")
    assert code.rstrip("\n") in (ROOT / head.removeprefix("# ")).read_text()


def test_lines_are_counted():
    rows = [row.split("|")[1:-1] for row in PAGE.splitlines() if row.startswith("| ") and ".py`" in row]
    assert {path.strip(" `") for _, path, _ in rows} == {
        str(path.relative_to(ROOT)) for path in MATRIX.package.glob("[!_]*.py")
    }
    for _, path, lines in rows:
        assert len((ROOT / path.strip(" `")).read_text().splitlines()) == int(lines), path


def test_its_entry_point_is_that_of_the_tests():
    (line,) = (line for line in PAGE.splitlines() if line.startswith("frequency = "))
    assert MATRIX.entries.split("\n")[1] == line.replace('"', "")


def test_faults_are_counted():
    assert f"plants {len(MATRIX.faults)} faults" in PAGE
    assert len({fault.name for fault in MATRIX.faults if fault.refused_by != "-"}) == len(MATRIX.faults)
