"""The report as one HTML page that needs nothing else: no script, no font, no picture, no address.

Safe side: every value is escaped by the template engine, characters that would hide or turn text are shown as their
codes, and the page's own policy forbids whatever could still be loaded or run. The page is well-formed XML besides.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from importlib import resources
from typing import Any

from dpbeam.accounting.ledger import Ledger
from dpbeam.review import facts
from dpbeam.review.disclosure import hazards
from dpbeam.review.verification import Statement, not_proved
from dpbeam.version import __version__

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def render(
    text: str, ledger: Ledger, statements: Sequence[Statement], *, name: str, prepared_by: str = ""
) -> str:
    """The page, the same for the same arguments.

    Args:
      text: of the ledger's file, whose digest the page carries.
      statements: what was checked, on which the page claims nothing more.
      name: of the output, without folder.
      prepared_by: goes beside the first signature.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_finalize, trim_blocks=True, lstrip_blocks=True
    )
    contents = any(statement.name == "contents" and statement.holds for statement in statements)
    values: dict[str, Any] = {
        "name": name,
        "prepared_by": prepared_by,
        "ledger": ledger,
        "ledger_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "guarantee": facts.guarantee(ledger),
        "statements": statements,
        "not_proved": not_proved(ledger, contents=contents),
        "number": facts.number,
        "shares_budget": facts.shares_budget(ledger),
        "rounds": facts.rounds(ledger.events),
        "stages": facts.stages(ledger.events),
        "glossary": facts.glossary(ledger.events),
        "keeping": facts.keeping(ledger),
        "settings": facts.settings(ledger.parameters),
        "hazards": hazards(ledger),
        "weaknesses": [_inline(text) for text in known_weaknesses()],
        "version": __version__,
        "style": Markup(_data("report.css")),
    }
    return environment.from_string(_data("report.html.j2")).render(values)


def known_weaknesses() -> list[str]:
    """Those of docs/explanation/privacy.md, one text each, in its Markdown."""
    return [
        " ".join(item.split()) for item in re.split(r"^- ", _data("known_weaknesses.txt"), flags=re.M)[1:]
    ]


def _inline(markdown: str) -> list[tuple[bool, str]]:
    """(whether it is code, text) of a line; links are left as their text."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return [(index % 2 == 1, part) for index, part in enumerate(plain.split("`")) if part]


def _data(name: str) -> str:
    return resources.files("dpbeam.data").joinpath(name).read_text(encoding="utf-8")


def _finalize(value: Any) -> Any:
    """Values as they go to be escaped: without characters that XML forbids or that change how others read."""
    if value is None:
        return ""
    if type(value) is not str:  # markup of our own, numbers
        return value
    return "".join(map(_visible, value))


def _visible(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _HIDDEN:
        return character
    return f"\\u{ord(character):04x}"
