"""What mkdocs needs beside the files in docs: pages made from files elsewhere and from the code, and the order of all
pages.

Hooks of mkdocs (mkdocs.yml). The README's section "Documents" is the only list of pages: its headings and links are the
navigation. A page that it does not name is a warning of mkdocs, and so an error.
"""

from __future__ import annotations

import argparse
import html
import importlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
#: Page of the site -> file of the repository, for those outside docs.
OUTSIDE = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security.md": "SECURITY.md",
    "tests.md": "tests/README.md",
    "lab.md": "lab/README.md",
}
LAB = ROOT / "lab" / "docs"
OUTSIDE |= {
    path.relative_to(LAB).as_posix(): path.relative_to(ROOT).as_posix() for path in sorted(LAB.rglob("*.md"))
}
#: Kinds of pages, as Diataxis has them: folders of docs.
FOLDERS = ("tutorials", "how-to", "explanation", "reference")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.+?)\\[)\]]</\1>', re.S)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def navigation(readme: str) -> list[dict[str, Any]]:
    """The section "Documents": its headings, and the links that begin its list items, in order.

    Raises:
      PluginError: there is no such section, or an item stands above all headings.
    """
    _, separator, rest = readme.partition("\n## Documents\n")
    if not separator:
        raise PluginError('README.md: no section "Documents"')
    groups: list[dict[str, Any]] = []
    for heading, title, path in re.findall(
        r"^### (.+)$|^- \[([^\]]+)\]\(([^)#\s]+)\)", rest.partition("\n## ")[0], re.M
    ):
        if heading:
            groups.append({heading: []})
        elif not groups:
            raise PluginError(f'README.md: {path} stands above the headings of "Documents"')
        else:
            next(iter(groups[-1].values())).append({title: page_of(path)})
    return groups


def page_of(path: str) -> str:
    """The page made of a file of the repository, by its path there; the path itself if none is."""
    outside = {file: page for page, file in OUTSIDE.items()}
    return outside.get(path, path.removeprefix("lab/").removeprefix("docs/"))


def relinked(text: str, source: str, page: str, pages: set[str], titles: Mapping[str, str]) -> str:
    """Links of a file as links between pages; what is no page loses its link and keeps its text.

    Args:
      titles: of pages, for links whose text is the name of a file.
    """

    def replace(match: re.Match[str]) -> str:
        image, words, link, section = match.groups()
        path = os.path.normpath(os.path.join(os.path.dirname(source), link))
        if "://" in link or not (ROOT / path).exists():
            return match[0]
        target = page_of(path)
        if target not in pages:
            return words
        if words.endswith(".md"):
            words = titles.get(target, words)
        target = os.path.relpath(target, os.path.dirname(page) or ".")
        return f"{image}[{words}]({target}{section or ''})"

    return _LINK.sub(replace, text)


def commands_page() -> str:
    """The flags of every command, as its parser has them."""
    from dpbeam.cli import commands

    lines = [
        "# Flags",
        "",
        "Of every command, made from the code. What they have in common: [The command line](cli.md).",
        "",
    ]
    for name, (module, text) in commands().items():
        parser = importlib.import_module(module).make_parser()
        lines += [f"## dpbeam {name}", "", parser.description or text, ""]
        for title, rows in _flags(parser):
            lines += [f"**{title}**", ""] if title else []
            lines += ["| flag | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _flags(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    """(group, rows of its table); positional arguments have the title "", and the flags of no group come last."""
    positional, options, *groups = parser._action_groups
    options.title = "further" if groups else None
    positional.title = None
    for group in (positional, *groups, options):
        rows = []
        for action in group._group_actions:
            if action.help is argparse.SUPPRESS or "--help" in action.option_strings:
                continue
            words = action.option_strings[-1:]
            if action.nargs != 0:
                words.append(
                    str(action.metavar or action.dest.upper())
                    + (" ..." if action.nargs in ("+", "*") else "")
                )
            text = (action.help or "") % {**vars(action), "prog": parser.prog}
            cells = [f"`{' '.join(words)}`", text]
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        if rows:
            yield group.title or "", rows


def api_page() -> str:
    """The public names of dpbeam: functions first."""
    import dpbeam

    names = [name for name in dpbeam.__all__ if not name.startswith("__")]
    lines = ["# Python API", "", "The public names of `dpbeam`, from their docstrings.", ""]
    return "\n".join(lines + [f"::: dpbeam.{name}\n" for name in sorted(names, key=str.swapcase)])


def seams_page() -> str:
    """What lab/docs/how-to/add_a_selector.md and test_a_selector.md import of dpbeam, module by module."""
    pages = ("lab/docs/how-to/add_a_selector.md", "lab/docs/how-to/test_a_selector.md")
    guide = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    names: dict[str, set[str]] = {}
    for module, imported in re.findall(r"^ *from (dpbeam[\w.]+) import ([\w, ]+)$", guide, re.M):
        try:
            loaded = importlib.import_module(module)
        except ModuleNotFoundError:  # the guide itself makes it
            continue
        kept = [name for name in imported.split(", ") if callable(getattr(loaded, name))]
        names.setdefault(module, set()).update(kept)
    lines = [
        "# API of selectors",
        "",
        "What a method of your own imports: [Add a selector](../how-to/add_a_selector.md).",
        "",
    ]
    for module in sorted(name for name in names if names[name]):
        lines += [f"## {module}", ""]
        for name in sorted(names[module]):
            lines += [f"::: {module}.{name}", "    options:", "      heading_level: 3", ""]
    return "\n".join(lines)


#: Page made from the code -> its title and what makes it; after cli.md in the navigation.
MADE = {
    "reference/flags.md": ("Flags", commands_page),
    "reference/api.md": ("Python API", api_page),
    "reference/selector_api.md": ("API of selectors", seams_page),
}


def on_config(config: Any) -> Any:
    groups = navigation((ROOT / "README.md").read_text(encoding="utf-8"))
    made = [{title: page} for page, (title, _) in MADE.items()]
    for entries in (entries for group in groups for entries in group.values()):
        place = next((i for i, entry in enumerate(entries, 1) if "reference/cli.md" in entry.values()), None)
        if place is not None:
            entries[place:place] = made
    config.nav = [{"Start": "index.md"}, *groups]
    return config


def on_files(files: Any, config: Any) -> Any:
    for page, source in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for path in sorted(LAB.rglob("*.svg")):
        page = path.relative_to(LAB).as_posix()
        files.append(File.generated(config, page, abs_src_path=str(path)))
    for page, (_, make) in MADE.items():
        files.append(File.generated(config, page, content=make()))
    return files


def on_page_markdown(text: str, page: Any, config: Any, files: Any) -> str:
    name = page.file.src_uri
    if name in MADE:
        return text
    titles = {
        page: title
        for group in config.nav[1:]
        for row in next(iter(group.values()))
        for title, page in row.items()
    }
    return relinked(text, OUTSIDE.get(name, f"docs/{name}"), name, {file.src_uri for file in files}, titles)


def on_page_content(text: str, page: Any, config: Any, files: Any) -> str:
    return with_formulas(text, page.file.src_uri)


def with_formulas(text: str, page: str) -> str:
    """A page whose formulas, as pymdownx.arithmatex marks them, are MathML.

    Raises:
      PluginError: one cannot be set, or holds a command that is not known.
    """

    def replace(match: re.Match[str]) -> str:
        kind, tex = match.groups()
        tex = html.unescape(tex).strip()
        try:
            mathml = convert(tex, display="block" if kind == "div" else "inline")
        except Exception as error:  # of many kinds, all about the formula
            raise PluginError(f"{page}: cannot set {tex!r}: {error!r}") from error
        if tex.count("{") != tex.count("}"):  # which the converter forgives
            raise PluginError(f"{page}: {tex!r}: braces do not match")
        if unknown := re.search(r"\\\w+", mathml):
            raise PluginError(f"{page}: {tex!r}: {unknown[0]} is not known")
        return re.sub("<m([io])(?=>&#x02032;<)", r'<m\1 class="prime"', mathml)

    return _FORMULA.sub(replace, text)


#: Stands where a page was before it moved into a folder; the section that a link names goes along.
MOVED = """<!doctype html>
<meta charset="utf-8">
<title>Moved</title>
<link rel="canonical" href="{page}">
<meta name="robots" content="noindex">
<script>location.replace("{page}" + location.hash)</script>
<noscript><meta http-equiv="refresh" content="0; url={page}"></noscript>
<p>This page is now <a href="{page}">{page}</a>.</p>
"""


def on_post_build(config: Any) -> None:
    """Every page of a folder is reached by its bare name too, where it was before version 1.0."""
    site = Path(config.site_dir)
    for page in sorted(site.glob("*/*.html")):
        if page.parent.name in FOLDERS:
            moved = MOVED.format(page=page.relative_to(site).as_posix())
            (site / page.name).write_text(moved, encoding="utf-8")
