"""The examples of the documents run, and leave the files that the documents name (tests/support/examples.py)."""

import re

import pytest

from dpbeam.selectors.gsu import settings as gsu_settings
from tests.support.examples import ROOT, Workspace, blocks, dpbeam_commands, prints

DOCUMENTS = [
    "README.md",
    "lab/README.md",
    *sorted(p.relative_to(ROOT).as_posix() for d in ("docs", "lab/docs") for p in (ROOT / d).rglob("*.md")),
]
#: Each block is a pipeline of its own, some of four transforms: of the default method's rounds here two, elsewhere all.
PIPELINES = ("docs/how-to/beam.md", "docs/how-to/budget.md", "docs/how-to/sums_and_means.md")
MARKED = [name for name in DOCUMENTS if re.search(r"<!--\s*run\s*-->", (ROOT / name).read_text())]


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return Workspace(tmp_path)


@pytest.mark.parametrize("name", MARKED)
def test_the_examples_run(name, workspace, monkeypatch):
    if name in PIPELINES:
        monkeypatch.setattr(gsu_settings, "DEFAULT_ROUNDS", 2)
    text, printed = (ROOT / name).read_text(), ""
    for block in blocks(text):
        if block.mark == "run":
            done = workspace.run(block)
            assert done.returncode == 0, f"{name}:{block.line}\n{block.code}\n{done.stdout}\n{done.stderr}"
            printed = done.stdout
        elif block.mark == "output":
            assert prints(block.code, printed), f"{name}:{block.line} shows\n{block.code}\nand not\n{printed}"
    for path in re.findall(r"`(out/[\w./-]+)`", text):
        assert (workspace.folder / path).exists(), f"{name} names {path}, and no example wrote it"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_marks_are_well_formed(name):
    blocks((ROOT / name).read_text())


def test_every_block_of_the_readme_runs_or_says_why_not():
    unmarked = [block.line for block in blocks((ROOT / "README.md").read_text()) if block.mark is None]
    assert not unmarked, f"README.md, lines {unmarked}: put <!-- run --> or <!-- not run: REASON --> above"
    assert "README.md" in MARKED


def test_every_block_of_commands_runs_or_says_why_not():
    """Those of add_a_selector.md run in their own test; scripts of benchmarks say how tables were made."""
    unmarked = [
        f"{name}:{block.line}"
        for name in DOCUMENTS
        for block in blocks((ROOT / name).read_text())
        if block.mark is None and re.search(r"^dpbeam ", block.code, re.M)
    ]
    assert [place for place in unmarked if "add_a_selector" not in place] == []


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

<!-- output -->

    total 0

<!-- not run: needs a cluster -->

    dpbeam check --runner=FlinkRunner

    unmarked
"""
    snippets = blocks(text)
    assert [(b.language, b.mark) for b in snippets] == [
        ("python", "run"),
        ("shell", "run"),
        ("shell", "output"),
        ("shell", "not run: needs a cluster"),
    ]
    assert snippets[0].code == "import math\n\nmath.pi\n"
    assert text.splitlines()[snippets[0].line - 1] == "    import math"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- run -->\n\nno code\n",
        "<!-- run -->",
        "<!-- run: all -->\n\n    ls\n",
        "<!-- not run -->\n\n    ls\n",
        "<!-- output: some -->\n\n    ls\n",
        "<!-- output -->\n\n    an output that nothing wrote, which must run\n",
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


def test_what_is_shown_must_be_printed():
    assert prints("items: 3\n...\nepsilon 1\n", "items:  3\nnoise\nepsilon 1\n")
    assert not prints("items: 3\n...\nepsilon 1\n", "items:  4\nnoise\nepsilon 1\n")
    assert not prints("items: 3\n", "items: 3\nmore\n")


@pytest.mark.parametrize(
    "code,commands",
    [
        (
            "# a\n\ndpbeam plan --epsilon 1 \\\n  --delta 1e-5  # b\n",
            [["plan", "--epsilon", "1", "--delta", "1e-5"]],
        ),
        ("dpbeam x 'a b'\ndpbeam y\n", [["x", "a b"], ["y"]]),
        ("dpbeam x; ls\n", None),
        ("dpbeam x | head\n", None),
        ("dpbeam x > y\n", None),
        ("dpbeam x $HOME\n", None),
        ("scripts/demo\n", None),
    ],
)
def test_lines_of_dpbeam_alone(code, commands):
    assert dpbeam_commands(code) == commands
