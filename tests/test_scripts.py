"""The scripts run as the documents show them: from any folder, outside the virtual environment."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from dpbeam.selectors.registry import selectors

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"


# Every case is a process: one, which `--also` adds, shows that the script works.
LEFT_OUT = ["beam", "elementwise", *selectors()]
#: what a script is run with; the others print their help
SMALL = {
    "bench_select": [
        "--pairs=0.001",
        "--repetitions=1",
        "--also=gsu2",
        *(f"--skip={word}" for word in LEFT_OUT),
    ],
    "bench_rows": ["--pairs=1000", "--repetitions=1"],
    "bench_scaling": ["relays", "--links=100"],
    "bench_hitting_set": ["rounds", "--users=1e3", "--domain=100", "--k=5"],
    "bench_topk": ["time", "--items=1e3", "--k=10", "--repetitions=1"],
}


def scripts() -> list[Path]:
    """All that start by themselves, of dpbeam and of the lab."""
    files = (path for folder in (SCRIPTS, ROOT / "lab" / "scripts") for path in sorted(folder.iterdir()))
    return [path for path in files if path.is_file() and path.name != "_venv"]


def python_scripts() -> list[str]:
    """Those that Python reads, by their first line, as paths from the root."""
    read = (path for path in scripts() if "python" in path.read_text().split("\n", 1)[0])
    return [path.relative_to(ROOT).as_posix() for path in read]


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """A stranger's shell: the system's programs only, and a .venv whose Python leaves a mark when it runs."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\ntouch "{tmp_path}/ran"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "venv" / ".installed-test").touch()
    return {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "DPBEAM_VENV": str(tmp_path / "venv")}


def run(argv: list[str], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        argv,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


# tests/test_docs_review.py runs all of check_docs.
@pytest.mark.parametrize("name", [name for name in python_scripts() if name != "scripts/check_docs"])
def test_it_runs_from_any_folder(name, tmp_path, monkeypatch, capsys):
    script = ROOT / name
    monkeypatch.setattr(sys, "argv", [str(script), *SMALL.get(script.name, ["--help"])])
    monkeypatch.chdir(tmp_path)
    ended = None
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        ended = end.code
    assert not ended
    assert capsys.readouterr().out


def test_it_runs_in_the_environment_of_the_sources(environment, tmp_path):
    """All start alike, as the next test says."""
    done = run([str(SCRIPTS / "ledger_schema"), "--help"], environment, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    assert (tmp_path / "ran").exists(), "another Python than that of the environment"


def test_every_script_is_executable_and_starts_in_one_of_two_ways():
    assert {"lab/scripts/audit", "lab/scripts/bench_select", "scripts/check_docs"} <= set(python_scripts())
    for path in scripts():
        first, way = path.read_text().split("\n", 1)[0], "" if path.parent == SCRIPTS else "../../scripts/"
        assert os.access(path, os.X_OK), path.name
        by_python = f"""-S bash -c 'exec "${{0%/*}}/{way}_python" "$0" "$@"'"""
        assert first in ("#!/usr/bin/env bash", f"#!/usr/bin/env {by_python}")


def test_the_sources_beside_the_script_win(environment, tmp_path):
    probe = tmp_path / "probe.py"
    probe.write_text(
        "import dpbeam, dpbeam_lab, sys; print(dpbeam.__file__, dpbeam_lab.__file__, *sys.argv[1:])"
    )
    done = run([str(SCRIPTS / "_python"), str(probe), "two words"], environment, tmp_path)
    ours = (ROOT / "dpbeam" / "__init__.py", ROOT / "lab" / "dpbeam_lab" / "__init__.py")
    assert done.stdout.strip() == f"{ours[0]} {ours[1]} two words", done.stderr


@pytest.mark.parametrize("lacking", ["nothing", "uv"])
def test_an_environment_of_a_newer_project_file_is_made_anew(lacking, environment, tmp_path):
    """By uv, or by pip where uv does not get what it asks for."""
    os.utime(tmp_path / "venv" / ".installed-test", (0, 0))
    python = tmp_path / "venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >>"{tmp_path}/asked"\n[ "$2" != {lacking} ]\n')
    script = str(SCRIPTS / "_python")
    assert run([script, "probe"], environment, tmp_path).stderr == "installing dpbeam into venv\n"
    assert run([script, "probe"], environment, tmp_path).stderr == ""
    asked = (tmp_path / "asked").read_text().splitlines()
    pip = "-m pip install --quiet --disable-pip-version-check"
    by_uv = f"-m uv pip install --quiet --compile-bytecode --python {python} -e {ROOT} -e {ROOT}/lab"
    by_pip = [f"{pip} -e {ROOT} -e {ROOT}/lab"] if lacking == "uv" else []
    assert asked == [f"{pip} uv", by_uv, *by_pip, "probe", "probe"]
