"""What is published: sdist and wheel, made by scripts/release and used from empty environments, away from the sources.

Of the Pythons that dpbeam supports and this machine has (tests/support/pythons.py) two get the wheel and run part of
the tests: the oldest with the oldest releases that pyproject.toml allows, the newest with the newest. The locked ones
are installed by test_image.py. Needs a package index; skipped without one, except where CI is set.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from importlib.metadata import metadata

import pytest

from dpbeam import __version__
from tests.support.examples import Workspace, blocks, prints
from tests.support.locks import PYTHONS
from tests.support.pythons import find_python

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 900
EXTRAS = sorted(set(metadata("dpbeam").get_all("Provides-Extra")) - {"test"})
# Published as sources of half a gigabyte; no test of PART uses it.
LARGE = "pyspark"
OLDEST, NEWEST = PYTHONS[0], PYTHONS[-1]
# What differs between versions of Python: Beam's type hints and pickles, argparse, arrays; released bytes must not.
PART = (
    "tests/cli/test_golden.py",
    "tests/cli/test_flags.py",
    "tests/engine/beam/test_seal.py",
    "tests/engine/beam/test_messages.py",
    "tests/io/test_sinks.py",
    "tests/io/test_tables.py",
    "tests/kernels",
    "tests/selectors/test_registry.py",
    "tests/storage",
)
TOOLS = (
    "pytest",
    "hypothesis",
    "mpmath",
    "pandas<2.4",  # as the tests take it; newer ones would bring a numpy that the oldest scipy does not know
    "polars",
    "warcio",
    "pyiceberg[sql-sqlite]",
    "markdown-it-py",
    "fsspec",
)

pytestmark = [pytest.mark.engines, pytest.mark.slow]


def run(argv, cwd, **more):
    """A command in a stranger's shell."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **_index(), **more}
    return subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=SECONDS,
    )


def _index() -> dict[str, str]:
    """How this machine reaches its package index and keeps what it fetched; uv does not read pip's settings."""
    here = os.environ
    names = {
        "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
        "PIP_EXTRA_INDEX_URL": "UV_INDEX",
        "PIP_CERT": "SSL_CERT_FILE",
    }
    kept = {new: here[old] for old, new in names.items() if old in here}
    kept |= {
        name: value for name, value in here.items() if re.match("UV_|SSL_|HTTPS?_PROXY|NO_PROXY", name, re.I)
    }
    return {"UV_CACHE_DIR": os.path.expanduser("~/.cache/uv"), **kept}


def uv(*arguments, cwd):
    """Run uv, or say that there is no index."""
    done = run([sys.executable, "-m", "uv", "--quiet", *arguments], cwd)
    if done.returncode and re.search("error sending request|dns error|Failed to fetch", done.stderr):
        message = "needs a package index"
        pytest.fail(f"{message}: {done.stderr[-2000:]}") if os.environ.get("CI") else pytest.skip(message)
    assert done.returncode == 0, (arguments, done.stderr[-4000:])
    return done.stdout


def new_environment(folder, python=sys.executable):
    uv("venv", "--no-python-downloads", "--python", python, folder, cwd=folder.parent)
    return folder


def install(environment, *arguments):
    uv("pip", "install", "--python", environment / "bin" / "python", *arguments, cwd=environment.parent)
    uv("pip", "check", "--python", environment / "bin" / "python", cwd=environment.parent)


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("needs git and a clone, to know which files are part of the sources")
    return listed.stdout.splitlines()


def _left_out(folder, names):
    made = {".git", ".venv", "build", "dist"} if pathlib.Path(folder) == ROOT else set()
    return {
        name for name in names if name in made or re.fullmatch(r"__pycache__|\..*_cache|.*\.egg-info", name)
    }


#: Stands in the tree of a release for what other tests run, and leaves its name.
STUB = """#!/bin/sh
echo "$0 $*" >>../ran
for folder; do :; done
case $0 in *site) mkdir "$folder" && echo site >"$folder/index.html" ;; esac
"""


def build(folder):
    """scripts/release on a commit of the tree: its sdist and wheel. The environment is that of the tests, unchanged."""
    source, venv = folder / "source", folder / "venv"
    shutil.copytree(ROOT, source, ignore=_left_out)
    for name in (".ci/run", "scripts/lock", "scripts/site"):
        (source / name).write_text(STUB)
    sections = ["Unreleased]", f"{__version__}] - 2026-01-01\n\n- News.", "0.0.1] - 2025-01-01\n\n- Old."]
    (source / "CHANGELOG.md").write_text("\n\n## [".join(["# Changelog", *sections]) + "\n")
    identity = ["-c", "user.name=x", "-c", "user.email=x", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=source, check=True)
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (venv / "bin" / "python").chmod(0o755)
    (venv / ".installed-test").touch()
    script = [source / "scripts" / "release", folder / "dist"]
    done = run(script, folder, DPBEAM_VENV=str(venv), SOURCE_DATE_EPOCH="1700000000")
    if done.returncode and re.search("error sending request|dns error|Failed to fetch", done.stderr):
        pytest.skip("needs a package index")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("PASSED") == 4, done.stdout
    (wheel,) = (folder / "dist").glob("dpbeam-*.whl")
    return folder / "dist" / f"dpbeam-{__version__}.tar.gz", wheel


def unpacked(sdist, folder):
    """The sources in an sdist."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder / f"dpbeam-{__version__}"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(sdist, wheel), the wheel built from the sdist."""
    return build(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def lab(built):
    """(sdist, wheel) of the lab."""
    (wheel,) = built[0].parent.glob("dpbeam_lab-*.whl")
    return built[0].with_name(f"dpbeam_lab-{__version__}.tar.gz"), wheel


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """An empty environment with the wheel and what it requires."""
    environment = new_environment(tmp_path_factory.mktemp("installed") / "venv")
    install(environment, built[1])
    return environment


def test_a_release_is_checked_and_ready_to_be_tagged(built, lab):
    folder = built[0].parent
    ran = (folder.parent / "ran").read_text().splitlines()
    assert [line.split()[0] for line in ran] == ["./scripts/lock", "./.ci/run", "./scripts/site"]
    assert ran[0].split()[1:] == ["--check"]
    assert (folder / "notes.md").read_text().split() == ["dpbeam", __version__, "-", "News."]
    sums = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    docs = f"dpbeam-{__version__}-docs.tar.gz"
    assert set(sums) == {*(path.name for path in (*built, *lab)), docs, "notes.md"}
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    with tarfile.open(folder / docs) as archive:
        assert f"{docs.removesuffix('.tar.gz')}/index.html" in archive.getnames()


def test_the_wheel_holds_the_package_and_its_data_alone(built):
    names = set(zipfile.ZipFile(built[1]).namelist())
    files = [
        path for path in (ROOT / "dpbeam").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    assert {path.relative_to(ROOT).as_posix() for path in files} <= names
    assert "dpbeam/py.typed" in names
    others = {name.split("/")[0] for name in names} - {"dpbeam"}
    assert others == {f"dpbeam-{__version__}.dist-info"}
    assert {"LICENSE", "WORDNET_LICENSE"} <= {name.rsplit("/")[-1] for name in names if "/licenses/" in name}


def test_the_sdist_holds_the_sources_and_nothing_else(built):
    with tarfile.open(built[0]) as archive:
        files = {member.name.partition("/")[2] for member in archive if member.isfile()}
    made = {name for name in files if name in ("PKG-INFO", "setup.cfg") or ".egg-info/" in name}
    assert files - made == set(tracked())


def test_the_same_sources_make_the_same_wheel(built, tmp_path):
    """Also from the tree itself, and whenever its files were written."""
    source = tmp_path / "source"
    unpacked(built[0], tmp_path).rename(source)
    for path in source.rglob("*"):
        if path.is_file():
            os.utime(path, (1.6e9, 1.6e9))
    shutil.rmtree(source / "dpbeam.egg-info")
    done = run(
        [
            sys.executable,
            "-m",
            "uv",
            "build",
            "-q",
            "--wheel",
            "--build-constraints",
            "locks/build.txt",
            "-o",
            tmp_path,
        ],
        source,
        SOURCE_DATE_EPOCH="1700000000",
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert hashlib.sha256(wheel.read_bytes()).digest() == hashlib.sha256(built[1].read_bytes()).digest()


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
    installed_packages = uv("pip", "freeze", "--python", installed / "bin" / "python", cwd=tmp_path)
    assert not re.search("^(pandas|matplotlib|pytest|hypothesis|sqlalchemy)==", installed_packages, re.M)
    missing = run([program, "budget", "show", "--budget=sqlite:///x"], tmp_path)
    assert missing.returncode == 2 and "dpbeam[budget]" in missing.stderr, missing.stderr


def test_the_examples_of_the_readme_run_without_extras_and_without_the_lab(installed, tmp_path):
    workspace = Workspace(tmp_path)
    for name in ("python", "python3", "dpbeam"):
        (tmp_path / ".venv" / "bin" / name).write_text(f'#!/bin/sh\nexec {installed}/bin/{name} "$@"\n')
    del workspace.environment["PYTHONPATH"]
    for block in blocks((ROOT / "README.md").read_text()):
        if block.mark == "run" and "scripts/demo" not in block.code:
            done = workspace.run(block, apart=True)
            assert done.returncode == 0, (block.line, done.stdout, done.stderr)


def test_the_lab_adds_its_commands(lab, installed, tmp_path):
    """The lab's wheel holds its package alone; without it each of its commands says what to install.

    After the tests above, whose environment gets it.
    """
    for command in ("tune", "evaluate", "synth"):
        done = run([installed / "bin" / "dpbeam", command, "--help"], tmp_path)
        said = f"dpbeam {command}: error: this command needs the lab: pip install dpbeam-lab\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    names = set(zipfile.ZipFile(lab[1]).namelist())
    files = {
        p for p in (ROOT / "lab" / "dpbeam_lab").rglob("*") if p.is_file() and "__pycache__" not in p.parts
    }
    assert {path.relative_to(ROOT / "lab").as_posix() for path in files} <= names
    assert {name.split("/")[0] for name in names} == {"dpbeam_lab", f"dpbeam_lab-{__version__}.dist-info"}
    install(installed, lab[1])
    program = installed / "bin" / "dpbeam"
    data = ["--input=s-*", "--user_column=user", "--item_column=item", "--epsilon=2", "--delta=1e-3"]
    for command in (
        ["synth", "--users=300", "--items=30", "--output=s"],
        ["select", *data, "--output=out/x"],
        ["evaluate", *data, "--released=out/x"],
        ["tune", *data, "--method=basic", "--repetitions=1"],
    ):
        done = run([program, *command], tmp_path)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    listed = run([program, "--help"], tmp_path).stdout
    assert all(re.search(rf"^  {name} ", listed, re.M) for name in ("tune", "evaluate", "synth"))


def test_the_demo_makes_an_environment_and_its_advice_can_be_followed(built, tmp_path):
    tree = unpacked(built[0], tmp_path)
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    done = run(["scripts/demo"], tree, **pip)
    if done.returncode and re.search("connection broken|No matching distribution", done.stderr):
        pytest.fail(done.stderr[-2000:]) if os.environ.get("CI") else pytest.skip("needs a package index")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (tree / "demo" / "words-00000-of-00001.txt").stat().st_size
    advice = re.findall(r"^    (.*)$", done.stdout, re.M)
    assert len(advice) == 4 and advice[0] == f"source {tree}/.venv/bin/activate"
    done = run(["bash", "-euc", "\n".join(advice)], tree)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def run_tutorial(tree: pathlib.Path, activate: str) -> None:
    """The page of these sources as it stands, in an environment."""
    printed = ""
    for block in blocks((tree / "docs" / "tutorials" / "tutorial.md").read_text()):
        if block.mark == "run":
            done = run(["bash", "-euc", f"{activate}\n{block.code}"], tree)
            assert done.returncode == 0, (block.line, done.stdout, done.stderr)
            printed = done.stdout
        elif block.mark == "output":
            assert prints(block.code, printed), (block.line, printed)


def required(wheel, extra: str) -> set[str]:
    """The packages that an extra of a wheel names."""
    with zipfile.ZipFile(wheel) as archive:
        about = Parser().parsestr(archive.read(f"dpbeam-{__version__}.dist-info/METADATA").decode())
    every = about.get_all("Requires-Dist")
    return {re.match(r"[\w.-]+", line)[0] for line in every if f'extra == "{extra}"' in line}


def install_releases(version, environment, wheel):
    """The oldest Python has the oldest releases of all requirements and extras (but LARGE), the newest the newest."""
    extras = [extra for extra in EXTRAS if extra != LARGE]
    if version == OLDEST:
        every = [f"--extra={extra}" for extra in extras]
        install(environment, "--resolution=lowest-direct", "-r", ROOT / "pyproject.toml", *every)
        install(environment, "--no-deps", wheel)
        return
    install(environment, f"{wheel}[{','.join(extras)}]")
    frozen = uv("pip", "freeze", "--python", environment / "bin" / "python", cwd=environment.parent)
    names = {line.partition("==")[0] for line in frozen.splitlines()}
    for extra in extras:
        assert (wanted := required(wheel, extra)) and wanted <= names, extra


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_oldest_and_the_newest_python_run_the_wheel(version, built, lab, tmp_path):
    """Part of the tests, on the oldest the tutorial, beside an unpacked sdist without the package: the wheel runs."""
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} here: name one in DPBEAM_PYTHONS, or install it for pyenv")
    environment = new_environment(tmp_path / "venv", python)
    install_releases(version, environment, built[1])
    assert run([environment / "bin" / "dpbeam", "--version"], tmp_path).stdout == f"dpbeam {__version__}\n"
    tree = unpacked(built[0], tmp_path)
    sample = tree / "dpbeam" / "data" / "wordnet_glosses.txt.gz"
    texts = sample.read_bytes()
    shutil.rmtree(tree / "dpbeam")
    install(environment, *TOOLS)
    tests = [environment / "bin" / "python", "-m", "pytest", "-m", "not slow", *PART]
    done = run(tests, tree, PATH=f"{environment}/bin:/usr/bin:/bin", PYTEST_DEBUG_TEMPROOT=str(tmp_path))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert re.search(r"^\d+ passed", done.stdout.splitlines()[-1]) or "[100%]" in done.stdout
    if version == OLDEST:
        install(environment, f"{built[1]}[budget]", lab[1])  # as its fourth step asks for, and its last
        sample.parent.mkdir(parents=True)
        sample.write_bytes(texts)
        run_tutorial(tree, f"source {environment}/bin/activate")
