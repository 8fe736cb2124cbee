"""Changes of the trusted base, one at a time, and whether its tests pass all the same: scripts/mutants."""

from __future__ import annotations

import argparse
import difflib
import functools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

from tests.test_layers import ROOT
from tests.test_trusted_base import base

#: `|` stands in annotations alone; the others of these say nothing of a place.
_LEFT_OUT = ("core/ReplaceBinaryOperator_BitOr", "core/Variable")
_OF_ALL = ("tests/families", "tests/review", "tests/in_memory", "tests/cli/test_golden.py")
_SECONDS = 900  # a change may make a loop without end


@dataclass(frozen=True)
class Mutant:
    """A change of a module.

    Attributes:
      module: its path from the root; before, after: its text; passes: whether its tests pass.
    """

    module: str
    before: str
    after: str
    passes: bool

    def __str__(self) -> str:
        before, after = self.before.splitlines(), self.after.splitlines()
        lines = list(difflib.unified_diff(before, after, lineterm="", n=0))
        return "\n".join([f"{self.module}:{lines[2].split()[1][1:].partition(',')[0]}", *lines[3:]])


def tried(modules: str, places: int, seed: int) -> Iterator[Mutant]:
    """So many changes, each at a place of its own, drawn by a seed, of modules whose names begin so."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder, "copy")
        subprocess.run(["git", "clone", "--quiet", ROOT, copy], check=True)
        paths = [path.relative_to(ROOT) for name, path in sorted(base().items()) if name.startswith(modules)]
        changes = _changes(Path(folder), copy, [str(path) for path in paths])
        chance = random.Random(seed)
        for place in chance.sample(sorted(changes), min(places, len(changes))):
            module, operator, occurrence = chance.choice(changes[place])
            yield _tried(copy, module, operator, occurrence)


def _changes(
    folder: Path, copy: Path, paths: list[str]
) -> dict[tuple[str, int, int], list[tuple[str, str, int]]]:
    """Place -> the changes that can be made there: module, operator, the number of its occurrence."""
    config, session = folder / "config.toml", folder / "session.sqlite"
    config.write_text(
        f"[cosmic-ray]\nmodule-path = {paths}\ntimeout = 1.0\nexcluded-modules = []\n"
        'test-command = "true"\n[cosmic-ray.distributor]\nname = "local"\n'
    )
    command = [sys.executable, "-m", "cosmic_ray.cli"]
    subprocess.run([*command, "init", config, session], cwd=copy, check=True)
    dump = subprocess.run([*command, "dump", session], cwd=copy, check=True, capture_output=True, text=True)
    changes: dict[tuple[str, int, int], list[tuple[str, str, int]]] = {}
    for line in dump.stdout.splitlines():
        [change] = json.loads(line)[0]["mutations"]
        module, operator = change["module_path"], change["operator_name"]
        if not operator.startswith(_LEFT_OUT):
            where = (module, *change["start_pos"])
            changes.setdefault(where, []).append((module, operator, change["occurrence"]))
    return {where: sorted(some) for where, some in changes.items()}


def _tried(copy: Path, module: str, operator: str, occurrence: int) -> Mutant:
    package = f"tests/{Path(module).parts[1]}"
    _check_unchanged(copy, package)
    before = (copy / module).read_text()
    after = mutate_code(before, get_operator(operator)(), occurrence)
    assert after is not None
    (copy / module).write_text(after)
    try:
        return Mutant(module, before, after, _pass(copy, package))
    finally:
        (copy / module).write_text(before)


def _pass(copy: Path, package: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-n0", "-p", "no:cacheprovider", package, *_OF_ALL]
    sources = f"{copy}{os.pathsep}{copy / 'lab'}"
    environment = {**os.environ, "PYTHONPATH": sources, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


@functools.cache
def _check_unchanged(copy: Path, package: str) -> None:
    """Raises AssertionError if the tests fail without a change: each would count as seen."""
    assert _pass(copy, package), package


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("modules", nargs="?", default="dpbeam.", help="how their names begin")
    parser.add_argument("--places", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="that draws them (default: %(default)s)")
    options = parser.parse_args()
    number = passed = 0
    for number, mutant in enumerate(tried(options.modules, options.places, options.seed), 1):
        passed += mutant.passes
        if mutant.passes:
            print(f"{number}. {mutant}", flush=True)
    print(f"{passed} of {number} pass")


if __name__ == "__main__":
    main()
