"""Floors of dpbeam: nothing imports upwards or in a circle, nothing below Beam imports it, nothing knows of the lab."""

import ast
import functools
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import setuptools

import dpbeam

ROOT = Path(__file__).resolve().parent.parent

# From the ground up, packages and single modules of dpbeam. A module may import from its own package and from lower
# floors; what stands on one floor knows nothing of each other.
FLOORS = (
    ("errors", "signals", "version", "data", "disk"),
    ("plugins",),
    ("accounting", "storage", "room", "figures"),
    ("randomness", "budget"),  # accounts of budget over runs know accounting alone
    ("kernels",),
    ("engine",),
    ("selectors", "runners"),
    # Users per item, for selections and top-k; elements and rows of somebody's own pipeline; what a kind of release is.
    ("counts", "rows", "families"),
    ("selection",),
    ("topk",),
    (
        "hitting",
        "packing",
        "series",
        "counting",
    ),  # the domain and the budget of hitting sets are those of top-k
    ("in_memory", "review"),  # the public functions; what a ledger proves
    ("io",),
    ("jobs",),  # checked, paid, whole or not at all
    ("cli",),
    ("testing",),  # what a contribution must do; no release imports it
    ("pipelines", "dpbeam_lab"),  # thin modules to run, and the lab; nothing imports them
)
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}
# What may import Beam. The rest imports neither it nor anything of these.
WITH_BEAM = (
    # Files elsewhere, which know Beam's flags; the front asks for them where a path has a scheme.
    "dpbeam.storage.azure",
    "dpbeam.storage.cloud",
    "dpbeam.storage.elsewhere",
    "dpbeam.storage.google",
    "dpbeam.storage.hdfs",
    "dpbeam.storage.objects",
    "dpbeam.storage.remote",
    "dpbeam.storage.s3",
    "dpbeam.engine.beam",
    "dpbeam.runners",
    "dpbeam.rows",
    "dpbeam.selection.pipeline_run",
    "dpbeam.selection.public_items",
    "dpbeam.selection.transforms",
    "dpbeam.topk.transforms",
    "dpbeam.hitting.transforms",
    "dpbeam.packing.transforms",
    "dpbeam.counting.transforms",
    "dpbeam.series.transforms",
    "dpbeam.io",
    "dpbeam.jobs",
    "dpbeam.cli",
    "dpbeam.testing",
    "pipelines",
    "dpbeam_lab.cli",
    "dpbeam_lab.experiments",
    "dpbeam_lab.synth",
    "dpbeam_lab.synth_market",
)
#: Where a command is found by the name of its module; two of the commands ask it for all commands.
DISPATCH = "dpbeam.cli"
#: Package -> the folder that it lies in.
PACKAGES = {"dpbeam": ".", "pipelines": ".", "dpbeam_lab": "lab"}
_ENTRY = re.compile(rf"""(?P<quote>["'])(?P<module>({"|".join(PACKAGES)})(\.\w+)+)(:\w+)?(?P=quote)""")
#: Where a statement holds others.
_STATEMENTS = ("body", "orelse", "handlers", "finalbody", "cases")


@functools.cache
def modules(root: Path = ROOT) -> dict[str, Path]:
    """Name of every module -> its file."""
    return {
        ".".join(_parts(path.relative_to(root / folder))): path
        for package, folder in PACKAGES.items()
        for path in sorted((root / folder / package).rglob("*.py"))
    }


def _parts(path: Path) -> tuple[str, ...]:
    return path.parts[:-1] if path.stem == "__init__" else path.with_suffix("").parts


@functools.cache
def imports(path: Path) -> set[str]:
    """Modules and names that a file imports anywhere, also inside functions; not those for type checking only."""
    return set(_imported(ast.parse(path.read_text(encoding="utf-8"))))


def _imported(part: ast.AST) -> Iterator[str]:
    """Only statements are gone through: no expression imports."""
    if isinstance(part, ast.Import):
        yield from (alias.name for alias in part.names)
    elif isinstance(part, ast.ImportFrom) and part.module:
        yield from (f"{part.module}.{alias.name}" for alias in part.names)
    for field in _STATEMENTS:
        if field == "body" and isinstance(part, ast.If) and getattr(part.test, "id", "") == "TYPE_CHECKING":
            continue
        inner = getattr(part, field, ())
        for statement in inner if isinstance(inner, list) else ():
            yield from _imported(statement)


@functools.cache
def entries(path: Path) -> set[str]:
    """Modules that a file names by strings, `module` or `module:class`, to load them later."""
    return {match["module"] for match in _ENTRY.finditer(path.read_text(encoding="utf-8"))}


def faults(name: str, path: Path) -> Iterator[str]:
    """What is wrong with the imports of one module."""
    own = room(name)
    if own is None:
        if name != "dpbeam":
            yield f"{name} has no floor: list it in FLOORS"
        return
    for imported in sorted(imports(path)):
        if imported.split(".")[0] == "apache_beam" and not _is_of(name, WITH_BEAM):
            yield f"{name} lies below Beam and imports it"
        if imported.split(".")[0] not in PACKAGES:
            continue
        other = room(imported)
        if other is None:
            yield f"{name} imports {imported} from the package's face, which is for users"
        elif other != own and FLOOR[other] >= FLOOR[own]:
            yield f"{name} (floor {FLOOR[own]}) imports {imported} (floor {FLOOR[other]})"
        if _is_of(imported, WITH_BEAM) and not _is_of(name, WITH_BEAM):
            yield f"{name} lies below Beam and imports {imported}"


def room(name: str) -> str | None:
    """The package or module of FLOORS that a dotted name lies in."""
    top, _, rest = name.partition(".")
    own = top if top != "dpbeam" else rest.partition(".")[0]
    return own if own in FLOOR else None


def _is_of(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def circle(root: Path = ROOT) -> list[str]:
    """Modules that import or name one another in a circle, the packages around them included; empty if none."""
    known = modules(root)
    graph = {}
    for name, path in known.items():
        named = entries(path) & set(known) - {name} if name != DISPATCH else set()
        graph[name] = set(_loaded(name, imports(path) | named, set(known)))
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def _loaded(name: str, imported: set[str], known: set[str]) -> Iterator[str]:
    """The modules that names come from, and the packages around them that are not around the importer too."""
    for wanted in imported:
        parts = wanted.split(".")
        prefixes = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
        around = [prefix for prefix in prefixes if prefix in known]
        yield from (p for p in around if p == around[-1] or not f"{name}.".startswith(f"{p}."))


def test_imports_respect_the_floors():
    assert [fault for name, path in modules().items() for fault in faults(name, path)] == []


def test_no_circles():
    assert not circle()


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        (
            "kernels.pairs",
            "def f():\n    from dpbeam.engine import program",
            "(floor 4) imports dpbeam.engine.program",
        ),
        ("packing.config", "from dpbeam.series.state import X", "imports dpbeam.series.state.X"),
        ("topk.config", "import apache_beam.io", "lies below Beam and imports it"),
        (
            "topk.config",
            "from dpbeam.selection import transforms",
            "below Beam and imports dpbeam.selection.transforms",
        ),
        (
            "cli.select",
            "from dpbeam_lab.evaluation import quality",
            "(floor 14) imports dpbeam_lab.evaluation.quality (floor 16)",
        ),
        ("budget.store", "from dpbeam import __version__", "the package's face"),
        ("upstairs", "", "has no floor"),
    ],
)
def test_a_violation_is_seen(name, text, wrong, tmp_path):
    path = tmp_path / "bad.py"
    path.write_text(text)
    (fault,) = faults(f"dpbeam.{name}", path)
    assert wrong in fault


@pytest.mark.parametrize(
    "files",
    [
        {"a": "def f():\n    from dpbeam.b import B", "b": "from dpbeam.a import A"},
        {"a/__init__": "from dpbeam.b import B", "a/inner": "", "b": "from dpbeam.a import inner"},
        {"a": '_KINDS = {"b": "dpbeam.b:B"}', "b": "from dpbeam.a import kinds"},
        {"a": "class A:\n    command = 'dpbeam.b'", "b": "from dpbeam.a import A"},
    ],
)
def test_a_circle_is_seen(files, tmp_path):
    for name, text in files.items():
        path = tmp_path / "dpbeam" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert {"dpbeam.a", "dpbeam.b"} <= set(circle(tmp_path))


def test_imports_for_types_alone_do_not_count(tmp_path):
    path = tmp_path / "typed.py"
    path.write_text("if TYPE_CHECKING:\n    from dpbeam.cli import main\nimport os")
    assert imports(path) == {"os"}


def test_no_module_hides_a_public_name():
    """Its import would make `dpbeam.NAME` the module: hence `dpbeam/hitting`, beside the function `hitting_set`."""
    assert not {f"dpbeam.{name}" for name in dpbeam.__all__} & set(modules())


def test_nothing_of_dpbeam_names_the_lab():
    """But for the command line, which says what to install; and no test of dpbeam needs it."""
    named = {
        path.relative_to(ROOT).as_posix(): set(re.findall("dpbeam[_-]lab", path.read_text(encoding="utf-8")))
        for folder in ("dpbeam", "pipelines")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {path: names for path, names in named.items() if names} == {
        "dpbeam/cli/__init__.py": {"dpbeam-lab"}
    }
    tests = (
        path for path in (ROOT / "tests").rglob("*.py") if "dpbeam_lab" in path.read_text(encoding="utf-8")
    )
    assert [path for path in tests if any("dpbeam_lab" in name for name in imports(path))] == []


@pytest.mark.parametrize("folder,package", [(".", "dpbeam"), ("lab", "dpbeam_lab")])
def test_one_package_is_installed(folder, package):
    """A top-level package `pipelines` in site-packages would be taken for anybody's."""
    include = re.search(
        r"\[tool\.setuptools\.packages\.find\]\ninclude = \[(.*)\]",
        (ROOT / folder / "pyproject.toml").read_text(),
    )
    patterns = re.findall(r'"([^"]+)"', include[1])
    packages = set(setuptools.find_namespace_packages(str(ROOT / folder), include=patterns))
    assert {name.split(".")[0] for name in packages} == {package}
    holding = {name.rpartition(".")[0] for name, path in modules().items() if path.stem != "__init__"}
    assert {name for name in holding if _is_of(name, (package,))} <= packages


def test_pipelines_hold_no_logic():
    for path in (ROOT / "pipelines").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)], path
