"""What is published: sdist and wheel, built as by a stranger and used from an empty environment, away from the sources.

Needs a package index; skipped without one, except where CI is set.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest

from dpbeam import __version__

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 900

pytestmark = [pytest.mark.engines, pytest.mark.slow]


def run(argv, cwd, **more):
    """A command in a stranger's shell; its output."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **_index()}
    return subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=SECONDS,
        **more,
    )


def _index() -> dict[str, str]:
    """How this machine reaches its package index and keeps what it fetched."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    kept.setdefault("PIP_CACHE_DIR", os.path.expanduser("~/.cache/pip"))
    return {**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def pip(environment, *arguments, cwd):
    """Install into an environment, or say what is missing."""
    done = run(
        [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile", *arguments], cwd
    )
    if done.returncode and re.search("Could not find a version|connection|resolve", done.stderr, re.I):
        message = "needs a package index"
        pytest.fail(f"{message}: {done.stderr[-2000:]}") if os.environ.get("CI") else pytest.skip(message)
    assert done.returncode == 0, done.stderr[-4000:]


def new_environment(folder):
    venv.create(folder, with_pip=True)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(sdist, wheel), the wheel built from the sdist, as `python -m build` does."""
    folder = tmp_path_factory.mktemp("build")
    source = folder / "source"
    left_out = shutil.ignore_patterns(".git", ".venv", "__pycache__", "build", "*.egg-info", ".*_cache")
    shutil.copytree(ROOT, source, ignore=left_out)
    builder = new_environment(folder / "builder")
    pip(builder, "build>=1.2,<2", cwd=folder)
    done = run([builder / "bin" / "python", "-m", "build", "--outdir", folder / "dist", source], folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """An empty environment with the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("installed")
    environment = new_environment(folder / "venv")
    pip(environment, built[1], cwd=folder)
    return environment


def test_the_wheel_holds_the_package_and_its_data_alone(built):
    names = set(zipfile.ZipFile(built[1]).namelist())
    files = [
        path for path in (ROOT / "dpbeam").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    assert {path.relative_to(ROOT).as_posix() for path in files} <= names
    others = {name.split("/")[0] for name in names} - {"dpbeam"}
    assert others == {f"dpbeam-{__version__}.dist-info"}
    assert {"LICENSE", "WORDNET_LICENSE"} <= {name.rsplit("/")[-1] for name in names if "/licenses/" in name}


def test_the_sdist_can_be_built_from(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO", "dpbeam/data/report.html.j2"} <= names


def test_it_runs_without_extras(installed, tmp_path):
    program = installed / "bin" / "dpbeam"
    assert run([program, "--version"], tmp_path).stdout == f"dpbeam {__version__}\n"
    (tmp_path / "pairs.csv").write_text("user,item\n" + "".join(f"u{u},i{u % 3}\n" for u in range(300)))
    columns = ["--user_column=user", "--item_column=item", "--epsilon=2", "--delta=1e-3"]
    for command in (
        ["select", "--input=pairs.csv", *columns, "--output=out/x", "--output_format=text"],
        ["verify", "out/x.ledger.json", "--contents"],
        ["report", "out/x.ledger.json"],
        ["plan", "--epsilon=1", "--delta=1e-8"],
    ):
        done = run([program, *command], tmp_path)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert sorted((tmp_path / "out" / "x-00000-of-00001.txt").read_text().split()) == ["i0", "i1", "i2"]
    assert (tmp_path / "out" / "x.report.html").stat().st_size > 10_000
    found = run(
        [installed / "bin" / "python", "-m", "pip", "list", "--format=freeze"], tmp_path
    ).stdout.lower()
    assert "dpbeam==" in found and not re.search("^(pandas|matplotlib|pytest|hypothesis)==", found, re.M)
    checked = run([installed / "bin" / "python", "-m", "pip", "check"], tmp_path)
    assert checked.returncode == 0, checked.stdout


def test_an_extra_comes_on_top(built, installed, tmp_path):
    pip(installed, f"{built[1]}[plots]", cwd=tmp_path)
    script = "import matplotlib, dpbeam; print(dpbeam.__file__)"
    done = run([installed / "bin" / "python", "-c", script], tmp_path)
    assert done.stdout.startswith(str(installed)) and sys.prefix not in done.stdout, done.stderr
