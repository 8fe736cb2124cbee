"""Lower layers never import upper ones, and nothing below the Beam layer imports Beam."""

import ast
import re
from pathlib import Path

import pytest
import setuptools

ROOT = Path(__file__).resolve().parent.parent

# From the bottom up; a module may import from its own rank and from lower ones.
RANKS = {
    "dpbeam": 0,  # the package itself: its public names, loaded when used
    "dpbeam.errors": 0,
    "dpbeam.signals": 0,
    "dpbeam.room": 0,
    "dpbeam.data": 0,
    "dpbeam.accounting": 1,
    "dpbeam.randomness": 2,
    "dpbeam.budget": 2,  # accounts of budget over runs; knows accounting alone
    "dpbeam.families": 3,  # what a family says of itself; the families stand beside their settings
    "dpbeam.kernels": 3,
    "dpbeam.in_memory.frames": 4,  # columns in memory, for the front door
    "dpbeam.engine": 4,
    "dpbeam.selectors": 5,
    "dpbeam.selection.sizes": 5,
    "dpbeam.counts.counted": 5,  # what programs of both commands count and clip
    "dpbeam.counts.items_per_user": 5,
    "dpbeam.counts.user_rounds": 5,
    "dpbeam.counts.selection": 6,
    "dpbeam.selection.config": 6,
    "dpbeam.selection.plan": 7,
    "dpbeam.selection.family": 8,
    "dpbeam.selection.report": 8,
    "dpbeam.selection.ledger": 8,
    "dpbeam.in_memory.select": 8,  # `dpbeam.select`: above plans and the in-process engine, below all that knows Beam
    "dpbeam.topk": 8,
    "dpbeam.hitting": 9,  # its domain and its budget are those of top-k
    "dpbeam.packing": 9,
    "dpbeam.series": 9,
    "dpbeam.review": 9,  # what a ledger proves, and the report of it
    "dpbeam.lab.evaluation": 9,
    "dpbeam.storage": 10,  # files elsewhere, as Beam's filesystems
    "dpbeam.engine.beam": 10,
    "dpbeam.topk.transforms": 11,
    "dpbeam.hitting.transforms": 11,
    "dpbeam.packing.transforms": 11,
    "dpbeam.selection": 11,
    "dpbeam.io": 12,
    "dpbeam.runners": 12,
    "dpbeam.lab.experiments": 12,  # reads files, runs methods in process, writes results
    "dpbeam.counts": 8,
    "dpbeam.in_memory": 9,
    "dpbeam.jobs": 13,
    "dpbeam.lab": 12,
    "dpbeam.lab.audit": 9,
    "dpbeam.cli": 13,
    "dpbeam.lab.audit.end_to_end": 14,  # runs the command itself
    "pipelines": 14,  # thin modules to run; nothing imports them
}
FIRST_WITH_BEAM = 10


def rank(module: str) -> int | None:
    """Rank of the longest listed prefix of a module's name; None for other packages."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in RANKS and (length > 1 or len(parts) == 1 or parts[0] != "dpbeam"):
            return RANKS[name]
    return None


def modules() -> list[tuple[str, Path]]:
    found = []
    for package in ("dpbeam", "pipelines"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.append((name, path))
    return found


def imports(path: Path) -> set[str]:
    """Modules that a file imports anywhere, also inside functions; not those for type checking only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            skipped.update(ast.walk(node))
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("name,path", modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_imports_respect_layers(name, path):
    own = rank(name)
    assert own is not None, f"{name} has no layer: list it in RANKS"
    for imported in imports(path):
        other = rank(imported)
        assert other is None or other <= own, f"{name} (layer {own}) imports {imported} (layer {other})"
        if own < FIRST_WITH_BEAM:
            assert imported.split(".")[0] != "apache_beam", (
                f"{name} lies below the Beam layer and imports Beam"
            )


def test_a_violation_is_seen(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from dpbeam.engine.beam import stages\n    import apache_beam.io\n")
    assert {"dpbeam.engine.beam", "apache_beam.io"} <= imports(bad)
    assert rank("dpbeam.engine.beam.trips") > rank("dpbeam.kernels.pairs")


def test_only_dpbeam_is_installed():
    """A top-level package `pipelines` in site-packages would be taken for anybody's."""
    include = re.search(
        r"\[tool\.setuptools\.packages\.find\]\ninclude = \[(.*)\]", (ROOT / "pyproject.toml").read_text()
    )
    patterns = re.findall(r'"([^"]+)"', include[1])
    found = set(setuptools.find_namespace_packages(str(ROOT), include=patterns))
    assert {name.split(".")[0] for name in found} == {"dpbeam"}
    assert {name.rpartition(".")[0] for name, path in modules() if path.stem != "__init__"} - found == {
        "pipelines"
    }


def test_pipelines_hold_no_logic():
    for path in (ROOT / "pipelines").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)], path
