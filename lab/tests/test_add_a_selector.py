"""add_a_selector.md and test_a_selector.md of lab/docs/how-to do what they say: their files, put into a copy of the
tree, make a selector that all tests of selectors accept, that runs, and whose lies a plan refuses.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.examples import ROOT, blocks

PAGES = ("lab/docs/how-to/add_a_selector.md", "lab/docs/how-to/test_a_selector.md")


def page() -> dict[str, str]:
    """First line, without its comment sign, -> the rest of each block of Python, in order."""
    sections = {}
    for block in [block for name in PAGES for block in blocks((ROOT / name).read_text())]:
        head, _, rest = block.code.partition("\n")
        if block.language == "python":
            assert head.startswith("# "), (
                f"{block.code[:40]}: a block begins with the file that it stands for"
            )
            sections[head[2:]] = rest
    return sections


#: What ends the list that a line of the page is added to, by the folder of the file.
ENDS = {"selectors": "\n)\n_added", "methods": "\n}\n"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the sources with the page's files, and its lines of the registries."""
    folder = tmp_path_factory.mktemp("tree")
    for name in ("dpbeam", "lab", "tests"):
        shutil.copytree(ROOT / name, folder / name)  # what is compiled too
    for name in ("pyproject.toml", "scripts", "pipelines"):
        (folder / name).symlink_to(ROOT / name)
    for name, code in page().items():
        if name.startswith("line of "):
            path = folder / name.removeprefix("line of ")
            text = path.read_text()
            before, closing, after = text.partition(ENDS[path.parent.name])
            assert closing
            path.write_text(before + "\n" + code.rstrip("\n") + closing + after)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(code)
    return folder


def run(tree: Path, *argv: str) -> str:
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=tree,
        # A place of its own, as it would remove at its end what earlier runs of tests left.
        env={
            "PYTHONPATH": f"{tree}:{tree / 'lab'}",
            "PATH": "/usr/bin:/bin",
            "PYTEST_DEBUG_TEMPROOT": str(tree.parent),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.engines  # a run of tests of its own
def test_the_selector_passes_the_tests_that_it_inherits_and_the_registry_stays_the_only_list(tree):
    chosen = "sift or test_registry"
    said = run(
        tree,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-vv",
        "-k",
        chosen,
        "tests/selectors",
        "test_my_sift.py",
    )
    assert len(re.findall(r"sift.* PASSED", said)) >= 8, said
    assert "test_registry.py" in said


PROGRAMS = """
import runpy, sys
from dpbeam.cli import main
for program in ("audited.py", "replayed.py", "tried.py", "refused.py"):
    print("##", program)
    runpy.run_path(program, run_name="__main__")
print("## dpbeam")
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def said(tree) -> dict[str, str]:
    """What the page's programs and its command print, one after another in one process."""
    text = (ROOT / PAGES[0]).read_text()
    (block,) = [block for block in blocks(text) if block.code.startswith("dpbeam ")]
    argv = block.code.split()
    assert argv[0] == "dpbeam"
    parts = run(tree, "-c", PROGRAMS, *argv[1:]).split("## ")
    return dict(part.split("\n", 1) for part in parts[1:])


def test_the_audit_passes_it_and_refutes_its_faults(said):
    table = said["audited.py"]
    assert table.count("| passes |") == 1 and table.count("| refuted |") >= 5, table


def test_a_plan_refuses_what_contradicts_itself(said):
    """Else the program, which expects it, would have ended all."""
    assert "refused.py" in said


def test_it_runs(said):
    counts = {
        method: int(items) for method, items in re.findall(r"^(\S+) (\d+) items", said["tried.py"], re.M)
    }
    assert counts["sift"] > 0.5 * counts["basic"] > 0, said


def test_the_command_line_knows_it(said):
    assert "sift" in said["dpbeam"]
