"""Docstrings that describe several parameters in one entry, `epsilon, delta: the budget`, with an entry for each.

An extension of griffe (mkdocs.yml), which reads docstrings in Google's style and knows one name for an entry.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_SECTION = re.compile(r"^( *)(?:Args|Attributes):\n((?:\1 +\S.*\n?|\n)+)", re.M)
_NAMES = re.compile(r"\w+(?:, \w+)+(?=: )")


class EntryForEachName(griffe.Extension):
    """Repeats the text of an entry for each of its names."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called by griffe for every module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = _SECTION.sub(lambda match: separated(match[0]), obj.docstring.value)


def separated(section: str) -> str:
    """A section with one name for each entry; entries are the least indented lines below its title.

    >>> print(separated("Args:\\n  a, b: both,\\n    of them.\\n  c: one."))
    Args:
      a: both,
        of them.
      b: both,
        of them.
      c: one.
    """
    title, _, body = section.partition("\n")
    indents = [len(line) - len(line.lstrip()) for line in body.splitlines() if line.strip()]
    paragraphs = []
    for entry in re.split(rf"^(?= {{{min(indents)}}}\S)", body.rstrip("\n"), flags=re.M):
        names = _NAMES.match(entry.strip())
        each = names[0].split(", ") if names else []
        paragraphs += (
            [entry.replace(names[0], name, 1).rstrip("\n") for name in each]
            if names
            else [entry.rstrip("\n")]
        )
    return "\n".join([title, *filter(None, paragraphs)]) + body[len(body.rstrip("\n")) :]
