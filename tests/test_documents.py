"""What the documents list is what there is."""

import importlib
import json
import re

import pytest

from dpbeam.cli import commands, main
from dpbeam.io.formats import formats
from dpbeam.io.formats.base import Format
from dpbeam.io.spec import InputSpec
from dpbeam.jobs import beam_flags
from dpbeam.runners import worker
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selectors.registry import DEFAULT_METHOD, selectors
from tests.support.examples import ROOT


def rows(document: str, head: str) -> list[list[str]]:
    """Cells of the table whose header line begins with `head`."""
    text = (ROOT / document).read_text()
    table = text[text.index(f"\n{head}") + 1 :].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


#: Options that let a format read a file whole which it reads in ranges otherwise.
READ_WHOLE = {
    "csv_multiline": InputSpec((), "csv", csv_multiline=True),
    "text_layout=file": InputSpec((), "text", text_layout="file"),
}


def splits(form: Format) -> bool:
    return form.splits(InputSpec((), form.name))


def default(name: str) -> SelectionPlan:
    """Of few items a user, on whose number neither rounds nor trips depend."""
    return make_plan(SelectionConfig(1.0, 1e-5, name, max_items_per_user=10))


def test_the_guide_lists_the_methods():
    """Name, aliases, default, summary and rounds of every selector, in the order of help."""
    expected = []
    for name, selector in selectors().items():
        notes = [f"`{alias}`" for alias in selector.aliases] + ["default"] * (name == DEFAULT_METHOD)
        cell = f"`{name}`" + (f" ({', '.join(notes)})" if notes else "")
        expected.append([cell, selector.summary, str(len(default(name).rounds))])
    assert rows("docs/how-to/choose.md", "| `--method` |") == expected


def test_the_table_of_trips():
    """Every method, its trips, and whether values come back."""
    stated = rows("docs/architecture.md", "| method | trips |")
    assert [row[0].strip("`") for row in stated] == list(selectors())
    for name, trips, back in ((row[0].strip("`"), *row[1:]) for row in stated):
        program = default(name).program
        assert int(trips) == program.trips, name
        assert bool(back) == bool(program.reply_columns), name


def test_the_table_of_formats():
    """Every format of files, as the registry has it, in the order of help."""
    expected = []
    for form in formats():
        if form.is_table:
            continue
        extra = f" (`dpbeam[{form.extra}]`)" if form.extra else ""
        without = [
            f"`--{flag}`"
            for flag, spec in READ_WHOLE.items()
            if spec.format == form.name and not form.splits(spec)
        ]
        ranges = f"yes, but for {', '.join(without)}" if without else "yes" if splits(form) else "no"
        said = (form.compressible, form.pipes, ranges, form.has_columns, form.has_lists)
        suffixes = ", ".join(f"`.{suffix}`" for suffix in form.suffixes)
        cells = [cell if isinstance(cell, str) else "yes" if cell else "no" for cell in said]
        expected.append([f"`{form.name}`{extra}", suffixes, *cells])
    assert rows("docs/reference/input.md", "| `--input_format` |") == expected


def test_the_table_of_tables():
    stated = rows("docs/reference/input.md", "| `--input` | reads |")
    expected = {(form.name, f"`dpbeam[{form.extra}]`") for form in formats() if form.is_table}
    assert {(row[0].strip("`").partition(":")[0], row[2]) for row in stated} == expected


def test_the_page_of_the_command_line_lists_the_commands():
    assert sorted(
        row[0].strip("`") for row in rows("docs/reference/cli.md", "| command | what it does |")
    ) == sorted(commands())


#: Modules of what a command does besides.
ALSO_COMMANDS = ("dpbeam_lab.cli.evaluate_run",)
#: All pages.
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("docs", "lab/docs")
    for path in (ROOT / folder).rglob("*.md")
)


def known_flags() -> set[str]:
    """Of all commands, of Beam and its job servers, of dpbeam-worker, and of the scripts."""
    flags = {f"--{name}" for name in beam_flags.names()}
    flags.update(worker.make_parser()._option_string_actions)
    modules = [f"dpbeam.cli.{path.stem}" for path in (ROOT / "dpbeam" / "cli").glob("[!_]*.py")]
    for name in [*modules, *(module for module, _ in commands().values()), *ALSO_COMMANDS]:
        make_parser = getattr(importlib.import_module(name), "make_parser", None)
        if make_parser:
            flags.update(make_parser()._option_string_actions)
    for folder in ("scripts", "lab/scripts"):
        for path in (ROOT / folder).iterdir():
            if path.is_file():
                flags.update(re.findall(r"--[a-z][a-z_]+", path.read_text()))
    return flags


def test_flags_that_the_documents_name_exist():
    """But for that of the selector of lab/docs/how-to/add_a_selector.md, a flag in general, and one that is refused."""
    known = known_flags() | {"--flag", "--no_flag", "--eps"}
    known |= {"--archives", "--deploy", "--master", "--py"}  # of spark-submit
    named = {
        (path.name, flag)
        for path in [ROOT / "README.md", *(ROOT / page for page in PAGES)]
        for line in path.read_text().replace("\\\n", " ").splitlines()
        if not (path.name == "from_1_to_2.md" and line.startswith("|"))
        if not re.search(
            r"\b(airflow|apache_beam\.[.\w]+|chromium|dagster|docker|pip|spark-submit|venv-pack) ", line
        )
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z_]*\b", line)
    }
    assert len(named) > 100
    assert sorted((name, flag) for name, flag in named if flag not in known) == []


@pytest.mark.parametrize("document", PAGES)
def test_the_readme_names_every_document(document):
    assert f"({document})" in (ROOT / "README.md").read_text()


OLD = [row[0] for row in rows("docs/how-to/from_1_to_2.md", "| 1.x | 2.0 |")]


@pytest.mark.parametrize("command", re.findall(r"`dpbeam ([\w -]+ --\w+.*?)`", " ".join(OLD)))
def test_what_the_page_of_migration_calls_old_is_refused_by_name(command, capsys):
    assert main(command.split()) == 2
    flag = re.search(r"--\w+", command)[0]
    constant = flag.removeprefix("--").removeprefix("no_")
    instead = rf"{flag} is no flag: give the constant of [\w, -]+ as --set {constant}=VALUE"
    assert re.search(rf"(unknown flag {flag}\b|{instead})", capsys.readouterr().err)


def test_every_flag_of_version_1_0_0_exists_or_the_page_of_migration_names_it(capsys):
    """But for constants of methods, each of which is refused with what to write; and commands that the lab has now."""
    before = json.loads((ROOT / "tests" / "cli" / "flags-1.0.0.json").read_text())
    constants = {name for selector in selectors().values() for name in selector.settings_type.described()}
    page = set(re.findall(r"(?<![\w-])--(?:no_)?([a-z][a-z_]+)", " ".join(OLD)))
    gone = set()
    for command, flags in before.items():
        main([command, "--help"]), main([command, "--help_all"])
        now = re.findall(r"(?<![\w-])--([a-z][a-z_]*)", capsys.readouterr().out)
        gone |= {name for name in flags.split() if name not in now}
    assert len(gone & constants) >= 10 and sorted(gone - constants - page) == []


def test_the_page_of_migration_names_what_is_new():
    """Flags of the second column exist."""
    new = " ".join(row[1] for row in rows("docs/how-to/from_1_to_2.md", "| 1.x | 2.0 |"))
    flags = set(
        re.findall(r"(?<![\w-])--[a-z][a-z_]+\b", new.replace("chromium --headless --print-to-pdf", ""))
    )
    assert len(flags) >= 8 and flags - known_flags() == set()
