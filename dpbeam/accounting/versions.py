"""Versions and code revision for the ledger."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import platform
import subprocess
from pathlib import Path

from dpbeam.version import __version__

#: End of a revision whose files were changed.
MODIFIED = "+modified"
_DISTRIBUTIONS = ("apache-beam", "numpy", "scipy", "pyarrow", "cryptography")


def versions() -> dict[str, str]:
    """Versions of dpbeam, Python and the libraries that compute the result."""
    return {"dpbeam": __version__, "python": platform.python_version(), **_of_libraries()}


@functools.cache
def _of_libraries() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in _DISTRIBUTIONS}


@functools.cache
def code_revision() -> str:
    """The commit of dpbeam that runs, "+modified" appended where files differ from it; empty if unknown.

    As it is when it is first asked for: later changes of the files are not in the modules of this process.
    """
    root = Path(__file__).resolve().parents[1]  # dpbeam
    if (root.parent / ".git").exists():
        commit = _git(root.parent, "rev-parse", "HEAD")
        if commit:
            changed = _git(root.parent, "status", "--porcelain", "--", "dpbeam")
            return commit + (MODIFIED if changed else "")
    return _installed_commit()


def _git(folder: Path, *arguments: str) -> str:
    # `status` would write the index again where it can, and whoever works in the checkout meanwhile meets its lock.
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _installed_commit() -> str:
    """Commit of an installation from version control (PEP 610)."""
    try:
        text = importlib.metadata.distribution("dpbeam").read_text("direct_url.json")
        return json.loads(text or "{}").get("vcs_info", {}).get("commit_id", "")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""
