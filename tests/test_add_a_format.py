"""docs/how-to/add_a_format.md shows what stands in the sources, whose tests are those of every format."""

import pyarrow as pa
from pyarrow import orc

from dpbeam.cli import main
from tests.support.examples import ROOT, blocks


def test_its_code_is_that_of_the_sources():
    shown = 0
    for block in blocks((ROOT / "docs" / "how-to" / "add_a_format.md").read_text()):
        head, _, code = block.code.partition("\n")
        if block.language == "python":
            assert code.strip("\n") in (ROOT / head.rpartition(" ")[2]).read_text(), head
            shown += 1
    assert shown == 3


def test_the_command_reads_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    orc.write_table(pa.table({"user": [f"u{n}" for n in range(300)], "item": ["tea"] * 300}), "a.orc")
    assert (
        main(["select", "--input=a.orc", "--output=out.txt", "--epsilon=3", "--delta=1e-3", "--quiet"]) == 0
    )
    assert (tmp_path / "out.txt").read_text() == "tea\n"
