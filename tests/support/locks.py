"""The locks of the image (`locks/*.txt`), read for one Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCKS = Path(__file__).resolve().parents[2] / "locks"
PYTHONS = ("3.11", "3.12", "3.13")


def environment(python: str | None = None) -> dict[str, str]:
    """Values of markers on this machine, with another Python's version where one is given."""
    here = {name: str(value) for name, value in default_environment().items()}
    return (
        here if python is None else {**here, "python_version": python, "python_full_version": f"{python}.0"}
    )


def entries(name: str, python: str | None = None) -> Iterator[tuple[Requirement, list[str]]]:
    """(requirement, hashes) of what a lock installs."""
    text = re.sub(r"\\\n", " ", (LOCKS / f"{name}.txt").read_text())
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            requirement, *hashes = re.split(r"\s+--hash=", line.rstrip())
            wanted = Requirement(requirement)
            if wanted.marker is None or wanted.marker.evaluate(environment(python)):
                yield wanted, hashes


def pins(name: str, python: str | None = None) -> dict[str, str]:
    """Project -> release.

    Raises:
      ValueError: a project that is there twice, or not pinned to one release.
    """
    versions: dict[str, str] = {}
    for requirement, _ in entries(name, python):
        project, (only,) = canonicalize_name(requirement.name), requirement.specifier
        if project in versions or only.operator != "==":
            raise ValueError(f"{name}: {requirement}")
        versions[project] = only.version
    return versions
