"""Matrices of planted faults: what an extension can get wrong, and which inherited check refuses it.

A matrix is the `MATRIX` of a module `faults.py` below tests. `tests/test_faults.py` runs all of them, and
`scripts/faults` prints them.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.plugins import Edit, installed, put

TESTS = Path(__file__).resolve().parents[1]
#: Name of a check, and the check; checks come in the order in which a contributor's tests run.
Checks = Iterable[tuple[str, Callable[[], object]]]


@dataclass(frozen=True)
class Fault:
    """One mistake of an author.

    Attributes:
      name: the mistake, in words.
      refused_by: the check that refuses it; `PASSES` where none does.
      edits: of the sound example: file of its package, a text that stands there once, what stands in its place.
    """

    name: str
    refused_by: str
    edits: Sequence[Edit]


PASSES = "-"


@dataclass(frozen=True)
class Matrix:
    """The faults of one example.

    Attributes:
      of: what the example is, for the heading.
      package: its folder, or its one module; entries: its entry points.
      checks: what its author runs, made once the package with the fault is installed.
      faults: one row each.
    """

    of: str
    package: Path
    entries: str
    checks: Callable[[], Checks]
    faults: tuple[Fault, ...]

    def refusal(self, edits: Sequence[Edit] = ()) -> tuple[str, str]:
        """The first check that refuses the example with these edits, and its message; `PASSES` and "" if none does."""
        with tempfile.TemporaryDirectory() as folder:
            put(Path(folder), self.package, self.entries, edits)
            with installed(Path(folder), self.package.stem):
                try:
                    checks = list(self.checks())
                except Exception as error:
                    return "import", _words(error)
                for name, check in checks:
                    try:
                        check()
                    except Exception as error:
                        return name, _words(error)
        return PASSES, ""


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n", 1)[0]


def matrices() -> list[Matrix]:
    """All that there are, by the names of their modules."""
    paths = sorted(
        path.relative_to(TESTS.parent) for path in TESTS.rglob("faults.py") if path.parent.name != "support"
    )
    return [importlib.import_module(".".join(path.with_suffix("").parts)).MATRIX for path in paths]


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/faults", description=__doc__)
    parser.add_argument("example", nargs="?", default="", help="part of its name")
    wanted = parser.parse_args().example
    for matrix in matrices():
        if wanted not in matrix.of:
            continue
        refused = 0
        print(matrix.of)
        for fault in matrix.faults:
            check, message = matrix.refusal(fault.edits)
            refused += check != PASSES
            print(f"  {fault.name}\n      {check}  {message}")
        print(f"  {refused} of {len(matrix.faults)} are refused\n")


if __name__ == "__main__":
    main()
