"""docs/how-to/add_a_format.md does what it says: its code, put into a copy of the tree, is a format that all tests of
formats accept and that the command reads.
"""

import re
import shutil
import subprocess
import sys

import pytest

from tests.support.examples import ROOT, blocks


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the sources with the page's file, its line of the registry and its entry of the tests."""
    folder = tmp_path_factory.mktemp("tree")
    for name in ("dpbeam", "tests"):
        shutil.copytree(ROOT / name, folder / name)  # what is compiled too
    (folder / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    for block in blocks((ROOT / "docs" / "how-to" / "add_a_format.md").read_text()):
        if block.language != "python":
            continue
        head, _, code = block.code.partition("\n")
        path = folder / head.rpartition(" ")[2]
        if head.startswith("# line of "):
            text = path.read_text()
            before, closing, after = text.partition("\n}\n")
            assert closing
            path.write_text(before + "\n" + code.rstrip("\n") + closing + after)
        elif head.startswith("# to add to "):
            path.write_text(path.read_text() + "\n" + code)
        else:
            path.write_text(code)
    return folder


def run(tree, *argv):
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=tree,
        env={"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin", "PYTEST_DEBUG_TEMPROOT": str(tree.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.engines  # a run of tests of its own
def test_the_format_passes_the_tests_that_it_inherits(tree):
    chosen = "logfmt or registry or folder"
    said = run(tree, "-m", "pytest", "-p", "no:cacheprovider", "-k", chosen, "tests/io/test_formats.py")
    assert int(re.search(r"(\d+) passed", said)[1]) >= 20, said


def test_the_command_reads_it(tree):
    lines = [f"user=u{n} item=tea\n" for n in range(300)]
    (tree / "a.logfmt").write_text("".join(lines))
    flags = ["--user_column=user", "--item_column=item", "--epsilon=3", "--delta=1e-3"]
    flags.append("--output_format=text")
    run(tree, "-m", "dpbeam.cli", "select", "--input", "a.logfmt", "--output", "out", *flags)
    assert (tree / "out-00000-of-00001.txt").read_text() == "tea\n"
