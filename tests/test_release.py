"""Before scripts/release builds anything: what it refuses. tests/engines/test_packaging.py has a whole release."""

import re
import subprocess
from pathlib import Path

import pytest

from dpbeam import __version__

ROOT = Path(__file__).resolve().parent.parent
VERSION = '__version__ = "2.3.4"\n'
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n{news}## [2.3.4] - {date}\n\n- News.\n"
LAB = '[project]\nversion = "{}"      # as dpbeam\ndependencies = ["dpbeam=={}"]\n'


def git(folder, *arguments):
    identity = [
        "-c",
        "user.name=x",
        "-c",
        "user.email=x",
        "-c",
        "commit.gpgsign=false",
        "-c",
        "tag.gpgsign=false",
    ]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path):
    """As much of a clone as is looked at; its scripts/lock ends the release with exit code 7."""
    files = {
        "dpbeam/version.py": VERSION,
        "lab/pyproject.toml": LAB.format("2.3.4", "2.3.4"),
        "CITATION.cff": "cff-version: 1.2.0\nversion: 2.3.4\n",
        "CHANGELOG.md": CHANGELOG.format(news="", date="2026-11-23"),
        "scripts/lock": "#!/bin/sh\nexit 7\n",
        "scripts/release": (ROOT / "scripts" / "release").read_text(),
    }
    root = tmp_path / "tree"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    git(root.parent, "init", "-q", "tree")
    return root


def release(tree, *arguments, commit=True):
    if commit:
        git(tree, "add", "-A")
        git(tree, "commit", "-q", "-m", "all")
    return subprocess.run(
        [tree / "scripts" / "release", *arguments],
        cwd=tree.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_what_is_ready_goes_on_to_the_locks(tree):
    assert release(tree).returncode == 7


@pytest.mark.parametrize(
    "name,text,message",
    [
        ("dpbeam/version.py", '__version__ = "2.4.0.dev1"\n', "dpbeam/version.py holds no version X.Y.Z"),
        ("dpbeam/version.py", '__version__ = "2.3.5"\n', "CITATION.cff is of another version than 2.3.5"),
        *(
            (
                "lab/pyproject.toml",
                LAB.format(*versions),
                "lab/pyproject.toml is of another version than 2.3.4",
            )
            for versions in (("2.3.5", "2.3.4"), ("2.3.4", "2.3.5"))
        ),
        ("CITATION.cff", "version: 2.3.40\n", "CITATION.cff is of another version than 2.3.4"),
        (
            "CHANGELOG.md",
            CHANGELOG.format(news="- More.\n\n", date="2026-11-23"),
            "CHANGELOG.md has unreleased changes",
        ),
        (
            "CHANGELOG.md",
            CHANGELOG.format(news="", date="soon"),
            "CHANGELOG.md has no section [2.3.4] with its date",
        ),
    ],
)
def test_versions_that_disagree_are_refused(tree, name, text, message):
    (tree / name).write_text(text)
    done = release(tree)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr == f"scripts/release: error: {message}\n"
    assert not (tree / "dist").exists()


def test_a_tag_is_made_once(tree):
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "all")
    git(tree, "tag", "v2.3.4")
    done = release(tree, commit=False)
    assert done.returncode == 2 and done.stderr.endswith("error: v2.3.4 is tagged\n")


def test_changes_that_are_not_committed_are_refused(tree):
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "all")
    (tree / "CITATION.cff").write_text("version: 2.3.4\n")
    done = release(tree, commit=False)
    assert done.returncode == 2 and done.stderr.endswith(
        "error: the tree has changes that are not committed\n"
    )


def test_nothing_of_another_release_is_touched(tree):
    (tree.parent / "out").mkdir()
    (tree.parent / "out" / "notes.md").write_text("kept")
    done = release(tree, "--checked", "out")
    assert done.returncode == 2 and done.stderr.endswith("/out is not empty\n")
    assert (tree.parent / "out" / "notes.md").read_text() == "kept"


def test_flags_that_are_typed_wrong_are_refused(tree):
    assert release(tree, "--check").returncode != 0 and release(tree, "--help", commit=False).returncode == 0
    assert not (tree / "dist").exists()


def test_the_documents_name_this_version():
    """Wheels and images, as a reader would copy them."""
    named = re.compile(r"\bdpbeam(?:-flink)?[-:](\d+\.\d+\.\d+)\b")
    paths = [ROOT / "README.md", *(ROOT / "configs").rglob("*")]
    paths += [path for folder in ("docs", "lab") for path in (ROOT / folder).rglob("*.md")]
    texts = [path.read_text("utf-8") for path in paths if path.is_file() and path.suffix != ".pyc"]
    seen = {version for text in texts for version in named.findall(text)}
    assert seen == {__version__}
