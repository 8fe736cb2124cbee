"""Distributions that are installed for the time of a test: a package of this repository, and what it adds to dpbeam."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpbeam import plugins
from dpbeam.accounting.events import EVENT_TYPES
from dpbeam.cli import COMMANDS, of_families
from dpbeam.cli.plan import planned
from dpbeam.errors import InputError
from dpbeam.families.registry import families
from dpbeam.io import formats
from dpbeam.selectors import registry

#: File of a package, a text that stands in it once, and what stands in its place.
Edit = tuple[str, str, str]
_CACHES = (plugins._entries, registry._installed, formats._installed, formats.find, families, planned)


def put(site: Path, package: Path, entries: str, edits: Sequence[Edit] = (), name: str | None = None) -> None:
    """A distribution of a package, or of a module, below a folder for `sys.path`.

    Args:
      entries: its entry points, in the words of `entry_points.txt`.
      edits: of its files; name: of the distribution, if not that of the package.
    """
    name = name or package.stem
    about = site / f"{name}-1.dist-info"
    target = site / package.name if package.is_dir() else site
    if package.is_dir():
        shutil.copytree(package, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    else:
        shutil.copy(package, target)
    for file, text, other in edits:
        source = (target / file).read_text()
        assert source.count(text) == 1, f"{file} has {text!r} {source.count(text)} times"
        (target / file).write_text(source.replace(text, other))
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(entries)


@contextlib.contextmanager
def installed(site: Path, package: str) -> Iterator[None]:
    """What was put below `site` is there, and is forgotten afterwards with its package."""
    before = [(known, dict(known)) for known in (EVENT_TYPES, COMMANDS)]
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    _forget(package)
    try:
        with contextlib.suppress(InputError):  # of what is refused, whoever asks for families is told
            COMMANDS.update(of_families())
        yield
    finally:
        sys.path.remove(str(site))
        _forget(package)
        for known, names in before:
            known.clear()
            known.update(names)


def _forget(package: str) -> None:
    for cache in _CACHES:
        cache.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
