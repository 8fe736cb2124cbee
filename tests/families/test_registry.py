"""What every family says of itself, and that nobody else keeps a list of families."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

from dpbeam.cli import COMMANDS, main
from dpbeam.cli.plan import planned
from dpbeam.engine.program import Program
from dpbeam.families.registry import families, family_of

ROOT = Path(__file__).resolve().parents[2]
BUDGET = ["--epsilon=1", "--delta=1e-5"]


def test_each_has_a_command():
    for name, family in families().items():
        assert family.name == name and COMMANDS[name][1] == family.summary
        command = importlib.import_module(COMMANDS[name][0])
        assert command.make_parser() and callable(command.main) and command.COMMAND.family.name == name
    assert set(planned()) == set(families())


def test_no_two_write_the_same_ledgers():
    methods = [family.writes for family in families().values() if family.writes]
    assert (
        len(methods) == len(set(methods)) == len(families()) - 1
    )  # ledgers of selections name their selector
    assert family_of("mad2r").name == "select" and family_of("top-k").name == "top-k"
    assert family_of("of another version") is None


def test_the_hubs_that_choose():
    """They alone have the key of the run; each has an audit of its own (lab/tests/audit)."""
    kinds, whole = [Program], set()
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if kind.__module__.startswith("dpbeam.") and kind.__dict__.get("chooses") is True:
            whole.add(kind.__name__)
    assert whole == {"TopKProgram", "HittingSetProgram"}


def test_flags_of_others_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "supplies.yaml").write_text("r: 100\n")
    for name, flags, reason in (
        (
            "pack",
            ["--supplies=supplies.yaml", "--num_agents=4", "--method=mad"],
            "--method does not apply to pack",
        ),
        ("series", ["--nights=4", "--set=rounds=2"], "--set does not apply to series"),
        ("top-k", ["--k=3", "--degrees=1"], "--degrees is of select: drop it"),
        ("top-k", ["--k=3", "--nights=3"], "--nights is of series: "),
        ("select", ["--alpha=.1"], "--alpha is of pack: give --family=pack too, or drop it"),
    ):
        assert main(["plan", *BUDGET, f"--family={name}", *flags]) == 2
        assert f"dpbeam plan: error: {reason}" in capsys.readouterr().err


def test_they_load_quickly():
    """`dpbeam --help` and wrong flags answer before anything heavy is there."""
    code = (
        "import sys; from dpbeam.families.registry import families; families(); "
        "print(sorted({'numpy', 'scipy', 'pyarrow', 'apache_beam'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_nobody_else_lists_them():
    """Two names of families in one module are a list; the public face has one, and audits and experiments theirs."""
    names = {*families(), *(family.writes for family in families().values() if family.writes)}
    for path in (ROOT / "dpbeam").rglob("*.py"):
        if sum(f'"{name}"' in (text := path.read_text()) for name in names) < 2:
            continue
        constants = [n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)]
        own = {family_of(name).name if family_of(name) else name for name in names & {*map(str, constants)}}
        where = str(path.relative_to(ROOT / "dpbeam"))
        assert len(own) < 2 or where == "__init__.py" or where.startswith("lab/"), (where, own)
