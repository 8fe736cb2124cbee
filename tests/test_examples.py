"""The examples of the documents run, and leave the files that the documents name (tests/support/examples.py)."""

import re

import pytest

from tests.support.examples import ROOT, Workspace, blocks

DOCUMENTS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
MARKED = [name for name in DOCUMENTS if re.search(r"<!--\s*run", (ROOT / name).read_text())]


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return Workspace(tmp_path)


@pytest.mark.parametrize("name", MARKED)
def test_the_examples_run(name, workspace):
    text = (ROOT / name).read_text()
    for block in blocks(text):
        if block.mark == "run":
            done = workspace.run(block)
            assert done.returncode == 0, f"{name}:{block.line}\n{block.code}\n{done.stdout}\n{done.stderr}"
    for path in re.findall(r"`(out/[\w./-]+)`", text):
        assert (workspace.folder / path).exists(), f"{name} names {path}, and no example wrote it"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_marks_are_well_formed(name):
    blocks((ROOT / name).read_text())


def test_every_block_of_the_readme_runs_or_says_why_not():
    unmarked = [block.line for block in blocks((ROOT / "README.md").read_text()) if block.mark is None]
    assert not unmarked, f"README.md, lines {unmarked}: put <!-- run --> or <!-- not run: REASON --> above"
    assert "README.md" in MARKED


def test_blocks_are_found():
    text = """
<!-- run -->

    import math

    math.pi

Text.

<!-- run -->
```sh
ls -l
```

<!-- not run: needs a cluster -->

    dpbeam check --runner=FlinkRunner

    unmarked
"""
    found = blocks(text)
    assert [(b.language, b.mark) for b in found] == [
        ("python", "run"),
        ("shell", "run"),
        ("shell", "not run: needs a cluster"),
    ]
    assert found[0].code == "import math\n\nmath.pi\n"
    assert text.splitlines()[found[0].line - 1] == "    import math"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- run -->\n\nno code\n",
        "<!-- run -->",
        "<!-- run: all -->\n\n    ls\n",
        "<!-- not run -->\n\n    ls\n",
    ],
)
def test_a_mark_that_marks_nothing_is_refused(text):
    with pytest.raises(ValueError, match="run"):
        blocks(text)


def test_a_failing_example_is_seen(workspace):
    for text in (
        "false\n    true",
        "dpbeam plan --no_such_flag",
        "import no_such_module",
        "raise SystemExit(3)",
    ):
        (block,) = blocks(f"<!-- run -->\n\n    {text}\n")
        assert workspace.run(block).returncode != 0, text
