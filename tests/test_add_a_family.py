"""docs/how-to/add_a_family.md shows the code of a real family as it is, and counts its lines."""

import pytest

from dpbeam.cli import COMMANDS
from dpbeam.families.registry import families
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
    assert len(rows) >= 6
    for _, path, lines in rows:
        assert len((ROOT / path.strip(" `")).read_text().splitlines()) == int(lines), path


def test_it_is_a_family():
    assert families()["count"].name == "count" and COMMANDS["count"][0] == "dpbeam.cli.count"
