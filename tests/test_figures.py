"""Figures that documents repeat are those of their source: plans of docs/how-to/choose.md, results of the README."""

import json
import re
import runpy

import pytest

from dpbeam.cli import main
from tests.support.examples import ROOT

_PLAN = re.compile(r"<!-- plan: (.+) -->\n\n((?:\|.*\n)+)")


def cells(table: str) -> list[list[str]]:
    """Rows of a Markdown table, header first, the line below it left out."""
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [rows[0], *rows[2:]]


PLANS = _PLAN.findall((ROOT / "docs" / "how-to" / "choose.md").read_text())


def test_all_tables_of_numbers_are_compared():
    text = (ROOT / "docs" / "how-to" / "choose.md").read_text()
    tables = re.findall(r"\n\n((?:\|.*\n)+)", text)
    numbers = [table for table in tables if re.search(r"\| \d+ \| \d+ \|", table)]
    assert [table for _, table in PLANS] == numbers and len(numbers) == 3


@pytest.mark.parametrize("flags,table", PLANS)
def test_the_plan_prints_the_numbers_of_the_page(flags, table, capsys):
    """Each cell is the number of users for an even chance, as `dpbeam plan --json` prints it."""
    (_, *columns), *rows = cells(table)
    if flags.endswith("--degrees {column}"):
        columns = [",".join(columns)]  # one plan has all
    for name, *row in rows:
        needed = []
        for column in columns:
            assert main(["plan", "--json", *flags.format(row=name, column=column).split()]) == 0
            needed += json.loads(capsys.readouterr().out)["users_needed"]
        assert row == [str(users["users_0.5"]) for users in needed], name


def results() -> list[dict[str, dict[str, str]]]:
    """Dataset -> method -> mean, of released items and of pairs covered: the tables of results.md at the best D0."""
    page = (ROOT / "lab" / "docs" / "reference" / "results.md").read_text()
    text = page.partition("\n## At the best D0\n")[2].partition("\n## ")[0]
    made = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        (_, *datasets), *rows = cells(table)
        made.append(
            {name: {row[0]: row[at].split()[0] for row in rows} for at, name in enumerate(datasets, start=1)}
        )
    return made


#: Published methods that run in parallel.
PUBLISHED = ("Basic", "weighted Laplace", "DP-SIPS", "DP-SIPS, 3 rounds", "MAD", "MAD2R", "MAD2R, bit")


def number(cell: str) -> int:
    return int(cell.replace(",", ""))


def test_the_readme_repeats_the_results():
    text = (ROOT / "README.md").read_text()
    head = "| data | users | items per user |"
    _, *rows = cells(text[text.index(head) :].partition("\n\n")[0])
    sizes = {
        row[0]: [int(cell.replace(",", "")) for cell in row[1:4]]
        for row in cells(
            (ROOT / "lab" / "docs" / "reference" / "results.md")
            .read_text()
            .partition("| dataset |")[2]
            .partition("\n\n")[0]
        )[1:]
    }
    assert len(rows) >= 5
    released, covered = results()
    for name, users, items, *figures, by, pairs in rows:
        most = {
            of: max(methods, key=lambda method: number(released[name][method]))
            for of, methods in (("published", PUBLISHED), ("ours", ("gsu16", "vote", "bits")))
        }
        assert most["ours"] == {"`gsu`, 16 rounds": "gsu16", "`vote`": "vote", "`bits`": "bits"}[by], name
        shown = (most["published"], "default", most["ours"])
        assert figures == [released[name][method] for method in shown], name
        assert pairs == ", ".join(covered[name][method] for method in shown) + " %", name
        assert [users, items] == [f"{sizes[name][0]:,}", f"{sizes[name][2] / sizes[name][0]:.0f}"], name
    vote = released["amazon-magazine"]["vote"]
    page = (ROOT / "docs" / "explanation" / "vote.md").read_text()
    assert f"| amazon-magazine | 1.2 | **{vote} ± " in page


def test_the_readme_repeats_the_comparison_with_other_libraries():
    """Its rows are those of reddit-220k: dpbeam's default and, of each library, the one with most items."""
    text = (ROOT / "README.md").read_text()
    _, *rows = cells(text[text.index("| library | released items |") :].partition("\n\n")[0])
    page = (ROOT / "lab" / "docs" / "reference" / "comparison.md").read_text()
    _, *compared = cells(page.partition("\n### reddit-220k")[2].partition("\n| ")[2].partition("\n\n")[0])
    best: dict[str, list[str]] = {"default": next(row for row in compared if row[0] == "dpbeam select")}
    for row in sorted((row for row in compared if row[2][0].isdigit()), key=lambda row: number(row[2])):
        best[row[0].split()[0]] = row
    assert [number(row[1]) for row in rows] == sorted((number(row[2]) for row in best.values()), reverse=True)
    assert sorted(rows) == sorted([row[0], row[2], row[3], row[5]] for row in best.values())


def test_the_picture_of_a_run_is_what_its_terminal_showed():
    """docs/figures/plot_progress.py takes a recording apart; the picture moves without a script and loads nothing."""
    made = runpy.run_path(str(ROOT / "docs" / "figures" / "plot_progress.py"))
    live = [
        f"\x1b[2K\x1b[32m⠙\x1b[0m dpbeam select: reading \x1b[33m0:00:{n:02}\x1b[0m  {n}% " for n in range(60)
    ]
    recorded = "\r".join(
        ["Script started", *live, "\x1b[2K7 items released: <x>", *live[-2:], "elapsed: 1 min", "Script done"]
    )
    states, rest = made["moments"](recorded)
    assert len(states) == made["MOMENTS"] and states[0].endswith("0:00:00  0%") and states[-1].endswith("59%")
    assert rest == ["7 items released: <x>", "elapsed: 1 min"]
    assert "7 items released: &lt;x&gt;" in made["draw"]("c", states, rest)
    picture = (ROOT / "docs" / "figures" / "progress.svg").read_text(encoding="utf-8")
    assert picture.count('class="moment"') == made["MOMENTS"] and "round 1 of 8, weights" in picture
    assert not re.search(r"<script|href|url\(|@import", picture)


def test_the_bars_of_the_readme_are_those_of_its_table():
    """Their numbers, in the order of the rows (docs/figures/plot_released.py)."""
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| [\w-]+ \|(?:[^|]+\|){2}" + r" \**([\d,]+)\** \|" * 3, text, re.M)
    drawn = re.findall(r">([\d,]+)</text>", (ROOT / "docs" / "figures" / "released.svg").read_text())
    assert len(rows) >= 5 and drawn == [number for row in rows for number in row]
