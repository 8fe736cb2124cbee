"""A filesystem that is soon full."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def small_disk(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Make `folder` a filesystem of 64 kB; skips the test where none may be mounted."""
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    mounted = subprocess.run(argv, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small filesystem here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: pathlib.Path) -> None:
    """Leave about 4 kB of a small disk."""
    (folder / "filler").write_bytes(b"\0" * 60_000)
