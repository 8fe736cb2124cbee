"""Interpreters on this machine, by version: those of DPBEAM_PYTHONS, of PATH and of pyenv."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_ASK = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2], sys.prefix == sys.base_prefix)"


def candidates(version: str) -> Iterator[Path]:
    """Where a Python of this version may be. DPBEAM_PYTHONS holds interpreters, separated by colons."""
    yield from map(Path, filter(None, os.environ.get("DPBEAM_PYTHONS", "").split(":")))
    yield from (Path(folder, f"python{version}") for folder in os.environ.get("PATH", "").split(os.pathsep))
    roots = {os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv"), "/opt/pyenv"}
    for root in sorted(roots):
        yield from sorted(Path(root).glob(f"versions/{version}.*/bin/python"))


@functools.cache
def find_python(version: str) -> str | None:
    """An interpreter of a version, as "3.12", that can make environments; None if there is none."""
    for path in candidates(version):
        if not os.access(path, os.X_OK):
            continue
        try:
            asked = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            continue
        # An environment's own Python is left out: its packages are not those of an empty one.
        if asked.returncode == 0 and asked.stdout.split() == [version, "True"]:
            return str(path)
    return None
