"""No command changes a file that it was not told to replace: every flag of every parser that names one for writing."""

import importlib
import json
import os
import shutil
import stat
from collections.abc import Mapping, Sequence

import pytest

from dpbeam.cli import COMMANDS, main
from dpbeam.cli.flags import FlagParser
from dpbeam.errors import InputError, UnavailableError
from dpbeam.io.new_files import NewFile
from dpbeam.jobs.options import FOLDER, READ, WRITTEN, WRITTEN_PREFIX

PARSERS: dict[str, FlagParser] = {
    name: importlib.import_module(module).make_parser() for name, (module, _) in COMMANDS.items()
}
#: Metavars of values that are files or folders.
_PATHS = ("FILE", "PREFIX", "DIR", "FOLDER", "KEYFILE", "PATTERN", "LEDGER", "YAML")

BUDGET = ["--epsilon=2", "--delta=1e-5"]
JOB = ["--input=pairs.csv", "--user_column=u", "--item_column=i", *BUDGET, "--output=new"]
PACK = ["--agents=agents.csv", "--supplies=supplies.yaml", "--output=new", "--epsilon=2", "--delta=1e-6"]
#: A command line of each command that writes, all in order but for the flag under test.
GOOD = {
    "select": JOB,
    "top-k": [*JOB, "--k=1"],
    "hitting-set": [*JOB, "--k=1"],
    "count": [*JOB, "--domain=list.txt"],
    "pack": [*PACK, "--allow_small_supply"],
    "report": ["out.ledger.json"],
    "export": ["out.ledger.json"],
    "plan": BUDGET,
    "series": ["open", "--folder=series", "--nights=2", *BUDGET],
    "series result_file": ["run", "--folder=opened", "--night=1", "--input=pairs.csv", *JOB[1:3]],
}
#: Prefixes that nothing is written to.
NEVER_WRITTEN = {("clean", "output"), ("check", "output")}


def flags_of(role, parsers: Mapping[str, FlagParser] = PARSERS) -> list[tuple[str, str]]:
    """(command, flag) of those that name files of a role."""
    flags = [
        (command, action.dest)
        for command, parser in parsers.items()
        for action in parser._actions
        if action.type is role
    ]
    return [flag for flag in flags if flag not in NEVER_WRITTEN]


def check_roles(parser: FlagParser) -> None:
    """Every flag that names files says what becomes of them."""
    for action in parser._actions:
        names_files = any(word in str(action.metavar).upper() for word in _PATHS)
        roles = (READ, WRITTEN, WRITTEN_PREFIX, FOLDER)
        assert names_files == (action.type in roles), action.dest


@pytest.mark.parametrize("command", PARSERS)
def test_every_flag_that_names_files_says_what_becomes_of_them(command):
    check_roles(PARSERS[command])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Inputs, and a release with its ledger."""
    folder = tmp_path_factory.mktemp("made")
    pairs = "u,i\n" + "".join(f"u{n},a\n" for n in range(400))
    (folder / "pairs.csv").write_text(pairs)
    (folder / "agents.csv").write_text("agent,value,r0\n" + "".join(f"a{n},0.5,0.5\n" for n in range(400)))
    (folder / "supplies.yaml").write_text("r0: 100\n")
    (folder / "list.txt").write_text("a\n")
    argv = ["select", f"--input={folder}/pairs.csv", *JOB[1:-1], f"--output={folder}/out", "--quiet"]
    assert main([*argv, "--insecure_test_key=07"]) == 0
    window = [f"--folder={folder}/opened", f"--output={folder}/night", "--nights=2", *BUDGET, "--quiet"]
    assert main(["series", "open", *window]) == 0
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    foreign = tmp_path / "place" / "foreign.json"
    foreign.write_text('{"somebody": "else"}\n')
    os.symlink("foreign.json", "link.json")
    os.symlink("nowhere", "dangling.json")
    os.symlink("loop", "loop")
    os.mkfifo("pipe")
    return tmp_path / "place"


def everything() -> dict[str, object]:
    """Names and contents, links as what they say."""
    contents: dict[str, object] = {}
    for name in sorted(os.listdir()):
        mode = os.lstat(name).st_mode
        if stat.S_ISLNK(mode):
            contents[name] = ("link", os.readlink(name))
        elif stat.S_ISREG(mode):
            with open(name, "rb") as file:
                contents[name] = file.read()
        else:
            contents[name] = stat.S_IFMT(mode)
    return contents


#: Targets that stay as they are, with --overwrite too: for every flag, and for one of them all that are refused alike.
NEVER = ("link.json", "pipe", "-", "out.ledger.json", "pairs.csv/below")
REFUSED_ALIKE = (
    *("dangling.json", "loop", ".", "", "/dev/null", "s3://bucket/x", "\0", "x" * 300),
    *("out-00000-of-00001.parquet", "./out-00000-of-00001.parquet"),
)


def good(command: str, flag: str) -> list[str]:
    words = GOOD.get(f"{command} {flag}") or GOOD.get(command)
    assert words, f"GOOD has no command line of {command} that is in order: add one"
    return words


def reads_of(words: list[str]) -> list[str]:
    """Files that a command line of GOOD reads."""
    parts = [word.partition("=") for word in words]
    named = [value or flag for flag, _, value in parts if not flag.startswith("--") or value]
    return [name for name in named if os.path.isfile(name)]


def check_file(command: str, words: list[str], flag: str, capsys, more: Sequence[str] = ()) -> None:
    """No foreign file is touched by a flag that names a file, nor one of these further targets."""
    before = everything()
    cases = [(target, ["--overwrite"]) for target in (*NEVER, *more, *reads_of(words))]
    cases += [(target, []) for target in ("foreign.json", "link.json", *reads_of(words))]
    for target, more in cases:
        code = main([*command.split(), *words, f"--{flag}={target}", *more])
        err = capsys.readouterr().err
        assert code == 2 and f"--{flag}" in err and err.count("\n") == 1, (target, code, err)
        assert everything() == before, target


@pytest.mark.parametrize("command,flag", flags_of(WRITTEN))
def test_no_foreign_file_is_touched(command, flag, place, capsys):
    more = REFUSED_ALIKE if (command, flag) == ("select", "result_file") else ()
    check_file(command, good(command, flag), flag, capsys, more)


def check_prefix(
    command: str, words: list[str], flag: str, ends: Sequence[str], capsys, *, overwrites: bool = True
) -> None:
    """No foreign file is touched by a flag that names a prefix, of which names of files end so."""
    for end in ends:
        os.symlink("foreign.json", f"linked{end}")
        shutil.copy("foreign.json", f"taken{end}")
    before = everything()
    argv = [*command.split(), *words]
    cases = [("linked", []), ("linked", ["--overwrite"]), ("taken", [])]
    cases += [("-", ["--overwrite"]), ("/dev/null", ["--overwrite"]), ("pipe", [])]
    if not overwrites:
        cases = [(target, []) for target, _ in cases]
    for target, more in cases:
        code = main([*argv, f"--{flag}={target}", *more])
        err = capsys.readouterr().err
        assert code == 2 and f"--{flag}" in err and err.count("\n") == 1, (target, code, err)
        assert everything() == before, target


@pytest.mark.parametrize("command,flag", flags_of(WRITTEN_PREFIX))
def test_no_foreign_file_of_a_prefix_is_touched(command, flag, place, capsys):
    ends = (".ledger.json", "-00000-of-00001.parquet")[: 1 if command == "series" else 2]
    # Of a series it is for results alone.
    overwrites = command != "series" and any(a.dest == "overwrite" for a in PARSERS[command]._actions)
    check_prefix(command, GOOD[command], flag, ends, capsys, overwrites=overwrites)


def test_files_appear_with_their_folder(place, capsys):
    assert main(["select", *JOB, "--not_private_counts=a/b/c.json", "--result_file=d/r.json"]) == 0
    assert json.loads((place / "a/b/c.json").read_text())["not_private"] is True
    assert (place / "a/b/c.json").stat().st_mode & 0o777 == 0o600
    assert json.loads((place / "d/r.json").read_text())["status"] == "released"
    assert main(["report", "out.ledger.json", "--output=e/f.html"]) == 0
    assert (place / "e/f.html").exists()


def test_two_flags_do_not_name_one_file(place, capsys):
    assert main(["select", *JOB, "--not_private_counts=same", "--result_file=./same"]) == 2
    assert "is named for another file too" in capsys.readouterr().err


def test_a_file_that_appears_during_the_run_stays(tmp_path):
    file = NewFile(str(tmp_path / "late"), "--plot")
    file.check(overwrite=False)
    (tmp_path / "late").write_text("mine")
    with pytest.raises(InputError, match=r"--plot: cannot write '.*late': File exists"):
        file.write(b"ours", overwrite=False)
    assert (tmp_path / "late").read_text() == "mine" and os.listdir(tmp_path) == ["late"]
    file.write(b"ours", overwrite=True)
    assert (tmp_path / "late").read_text() == "ours" and os.listdir(tmp_path) == ["late"]


def test_a_full_disk_may_have_room_later(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NewFile, "_put", full)
    with pytest.raises(UnavailableError, match=r"--plot: cannot write '.*': No space left"):
        NewFile(str(tmp_path / "x"), "--plot").write(b"", overwrite=False)
    assert os.listdir(tmp_path) == []


def test_an_extra_file_of_a_release_is_known(tmp_path):
    ledger = {"parameters": {"output": {"format": "csv", "shards": 1, "extras": ["prices.parquet"]}}}
    (tmp_path / "m.ledger.json").write_text(json.dumps(ledger))
    (tmp_path / "m.prices.parquet").write_text("x")
    with pytest.raises(InputError, match="belongs to the release of"):
        NewFile(f"{tmp_path}/m.prices.parquet", "--plot").check(overwrite=True)
    (tmp_path / "m.not_for_publication-00000-of-00001.csv").write_text("x")
    with pytest.raises(InputError, match="belongs to the release of"):
        NewFile(f"{tmp_path}/m.not_for_publication-00000-of-00001.csv", "--plot").check(overwrite=True)
    NewFile(f"{tmp_path}/m.report.html", "--plot").check(overwrite=True)
