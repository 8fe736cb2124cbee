"""The documentation as a site: its pages, their order, and in a browser that nothing is loaded from elsewhere."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path

import markdown
import pytest
from markdown_it import MarkdownIt
from mkdocs.exceptions import PluginError

from dpbeam.cli import commands
from tests.support.chromium import DESK, PHONE, Chromium, find_chromium
from tests.support.examples import ROOT

PAGES = runpy.run_path(str(ROOT / "scripts" / "_site" / "pages.py"))
SOURCES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "tests/README.md",
    "lab/README.md",
    *(p.relative_to(ROOT).as_posix() for d in ("docs", "lab/docs") for p in sorted((ROOT / d).rglob("*.md"))),
]
needs_chromium = pytest.mark.skipif(
    find_chromium() is None, reason="needs Chromium (on Debian: apt-get install chromium)"
)


def _formulas(text: str) -> str:
    return PAGES["with_formulas"](
        markdown.markdown(
            text,
            extensions=["pymdownx.arithmatex", "pymdownx.superfences", "tables"],
            extension_configs={"pymdownx.arithmatex": {"generic": True}},
        ),
        "a.md",
    )


def test_formulas_become_mathml():
    page = _formulas(
        "Costs $5 and `$x$`, but $a_1 < 2$.\n\n$$\n\\sum_{r \\le k} f_r\n$$\n\n    echo $PWD $x$\n"
    )
    inline, block = re.findall("<math.*?</math>", page)
    assert (
        'display="inline"' in inline
        and "<msub><mi>a</mi><mn>1</mn></msub>" in inline
        and "&#x0003C;" in inline
    )
    assert 'display="block"' in block and "&#x02211;" in block
    assert 'class="prime"' in _formulas("A world $S'$.")
    assert "Costs $5" in page and "<code>$x$</code>" in page and "echo $PWD $x$" in page


@pytest.mark.parametrize("formula", [r"\nosuchcommand x", r"\frac", r"\frac{1"])
def test_a_formula_that_cannot_be_set_is_an_error(formula):
    with pytest.raises(PluginError, match=r"a\.md: .*(nosuchcommand|frac)"):
        _formulas(f"As ${formula}$ says.")


@pytest.mark.parametrize("name", SOURCES)
def test_every_formula_is_set(name):
    """All that stands between dollars outside code is a formula, and none is left as it was written."""
    text = (ROOT / name).read_text(encoding="utf-8")
    page = _formulas(text)
    assert "arithmatex" not in page
    prose = re.sub(r"<(pre|code|math)\b.*?</\1>", "", page, flags=re.S)
    assert not re.search(r"\\[a-z]{2}|\$\S+\$", prose), re.search(r".*(\\[a-z]{2}|\$\S+\$).*", prose)[0]


def test_the_readme_is_the_navigation():
    readme = "# x\n\n## Documents\n\n### A\n\n- [One](docs/one.md): text, [two](docs/two.md)\n\n"
    readme += "### B\n\n- [T](tests/README.md)\n\n## C\n\n- [no](no.md)\n"
    assert PAGES["navigation"](readme) == [{"A": [{"One": "one.md"}]}, {"B": [{"T": "tests.md"}]}]
    for wrong in ("# x\n", "\n## Documents\n\n- [One](docs/one.md)\n"):
        with pytest.raises(PluginError, match="Documents"):
            PAGES["navigation"](wrong)


def test_links_between_files_become_links_between_pages():
    cli = "reference/cli.md"
    pages = {"index.md", "tests.md", cli, "how-to/tune.md"}
    text = f"[a](docs/{cli}#flags), ![b](docs/{cli}), [c](LICENSE), [d](https://e.org/x), [e](no.md), [f](#g)"
    assert PAGES["relinked"](text, "README.md", "index.md", pages, {}) == (
        f"[a]({cli}#flags), ![b]({cli}), c, [d](https://e.org/x), [e](no.md), [f](#g)"
    )
    assert PAGES["relinked"](f"[a](../docs/{cli})", "tests/README.md", "tests.md", pages, {}) == f"[a]({cli})"
    text = "[a](../reference/cli.md)"
    assert PAGES["relinked"](text, "docs/how-to/tune.md", "how-to/tune.md", pages, {}) == text
    titles = {"tests.md": "Tests"}
    text = "[tests/README.md](../../tests/README.md#a), [cli.md](cli.md)"
    assert (
        PAGES["relinked"](text, f"docs/{cli}", cli, pages, titles)
        == "[Tests](../tests.md#a), [cli.md](cli.md)"
    )


@pytest.mark.parametrize("name", SOURCES)
def test_the_site_shows_a_file_as_other_viewers_do(name):
    """Lists, tables and code of Python-Markdown are those of CommonMark, which reads lists and breaks otherwise."""
    text = (ROOT / name).read_text(encoding="utf-8")
    common = MarkdownIt("commonmark").enable("table").render(text)
    ours = markdown.markdown(text, extensions=["tables", "pymdownx.superfences"])
    for tag in ("ul", "ol", "li", "table", "tr", "td", "h1", "h2", "h3", "h4", "a", "em", "strong"):
        count = [len(re.findall(rf"<{tag}[ >]", html)) for html in (common, ours)]
        assert count[0] == count[1], (
            f"{name}: {tag} (leave an empty line before a list, a table, a block of code)"
        )


def test_an_entry_of_a_docstring_for_several_names():
    result = doctest.testmod(importlib.import_module("scripts._site.docstrings"))
    assert result.attempted and not result.failed


def test_the_flags_of_every_command_are_on_the_page():
    page = PAGES["commands_page"]()
    for command, (module, _) in commands().items():
        __import__(module)
        assert f"## dpbeam {command}\n" in page
    for row in (
        "| `--epsilon EPS` | total epsilon of the job; required |",
        "| `--input PATTERN ...` |",
        "| `--quiet` |",
    ):
        assert row in page
    assert "--no_quiet" not in page and "%(" not in page


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [str(ROOT / "scripts" / "site"), str(folder)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.mark.engines
class TestBuilt:
    def test_a_page_in_no_navigation_and_a_link_to_no_section_are_errors(self, tmp_path):
        for name in (
            "dpbeam",
            "pyproject.toml",
            "LICENSE",
            "README.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "SECURITY.md",
            "tests",
            "configs",
            "lab",
        ):
            (tmp_path / name).symlink_to(ROOT / name)
        shutil.copy(ROOT / "mkdocs.yml", tmp_path)
        for name in ("scripts/_site", "docs"):
            shutil.copytree(ROOT / name, tmp_path / name)
        (tmp_path / "docs" / "forgotten.md").write_text(
            "# Forgotten\n\n[no](reference/cli.md#no-such-section), [gone](gone.md)\n"
        )
        argv = [sys.executable, "-m", "mkdocs", "build"]
        done = subprocess.run(
            argv, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300
        )
        assert done.returncode == 1, done.stderr[-4000:]
        assert 'not included in the "nav" configuration:\n  - forgotten.md' in done.stderr
        assert "does not contain an anchor '#no-such-section'" in done.stderr
        assert "'gone.md', but the target is not found" in done.stderr
        assert "Aborted with 3 warnings" in done.stdout + done.stderr

    def test_every_file_has_a_page_and_the_index_of_the_search(self, site):
        for name in SOURCES:
            assert (site / PAGES["page_of"](name)).with_suffix(".html").exists(), name
        entries = json.loads((site / "search" / "search_index.json").read_text())
        places = {entry["location"].partition("#")[0] for entry in entries["docs"]}
        assert len(places) >= len(SOURCES)
        names = {entry["location"] for entry in entries["docs"]}
        assert {
            "reference/api.html#dpbeam.select",
            "reference/selector_api.html#dpbeam.engine.program.Program",
        } <= names

    def test_no_page_names_a_resource_from_elsewhere(self, site):
        loads = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"?((?:https?:)?//[^\s\">]+)")
        resources = {name.name: loads.findall(name.read_text()) for name in site.rglob("*.html")}
        assert {name: links for name, links in resources.items() if links} == {}

    def test_a_page_is_still_where_it_was_before_it_moved(self, site):
        pages = [name for name in SOURCES if name.removeprefix("lab/").count("/") == 2]
        names = [*(Path(name).stem for name in pages), "flags", "api", "selector_api"]
        assert len(names) > 40
        for name in names:
            (page,) = re.findall(
                r'href="([\w/-]+\.html)"', (site / f"{name}.html").read_text().split("<p>")[1]
            )
            assert (site / page).stat().st_size > 5000 and Path(page).stem == name

    @needs_chromium
    def test_in_a_browser(self, site):
        """On a phone and a desk, light and dark: no request leaves the folder, nothing is cut off; the search finds."""
        home = site.as_uri()
        with Chromium() as browser:
            for page in (
                "index",
                "tutorials/tutorial",
                "explanation/gsu",
                "reference/api",
                "reference/flags",
            ):
                for screen in (PHONE, DESK):
                    shown = set()
                    for dark in (False, True):
                        browser.open(site / f"{page}.html", screen, dark=dark)
                        shown.add(browser.value("getComputedStyle(document.body).backgroundColor"))
                        far = [url for url in browser.requests if not url.startswith((home, "data:"))]
                        assert far == [] and browser.problems == [], (page, far)
                        assert browser.value("document.documentElement.scrollWidth") <= screen["width"]
                    assert len(shown) == 2, "dark and light"
            browser.open(site / "explanation" / "series.html")
            assert browser.value("document.querySelector('ol[start]').start") == 3, "its rules go on at 3"
            browser.open(site / "privacy.html")  # where it was before it moved
            for _ in range(100):
                if browser.value("location.href").endswith("explanation/privacy.html"):
                    break
                time.sleep(0.1)
            assert browser.value("document.querySelector('h1').textContent").startswith("What is guaranteed")
            browser.open(site / "index.html")
            browser.value("document.querySelector('label[for=__search]').click()")
            box = "document.querySelector('[data-md-component=search-query]')"
            typed = "e.focus(); e.value = 'hitting set'; e.dispatchEvent(new Event('keyup', {bubbles: true}))"
            browser.value(f"(e => {{ {typed} }})({box})")
            first = "document.querySelector('.md-search-result__link')?.href"
            for _ in range(100):
                if browser.value(first):
                    break
                time.sleep(0.1)
            assert "hitting_set.html" in browser.value(first)
            far = [url for url in browser.requests if not url.startswith((home, "data:"))]
            assert far == [] and browser.problems == []
