"""The one reader of YAML (and so of JSON) files: configs, supplies, experiments.

A file is data, so what makes YAML a language is refused: aliases, which let a kilobyte stand for gigabytes, tags and
merge keys. So are YAML 1.1's surprises: 010 is 8 there, 1:30 is 90, 1_0 is 10 and `no` is false; and keys that are
there twice, of which others take the last. `1e-5`, a text in YAML 1.1, is a number. Size and depth are bounded.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import Any, NoReturn

from dpbeam.errors import SettingError

MAX_BYTES = 8 << 20
MAX_DEPTH = 32
_TOO_DEEP = f"lists and mappings are nested more than {MAX_DEPTH} deep"
_MAX_DIGITS = 400
_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_WORDS = re.compile(r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_ODD_FLOATS = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
# What YAML 1.1 takes for a number besides: octal, hexadecimal, binary, underscores, base 60.
_SURPRISES = re.compile(
    r"[-+]?(0[0-9_]+|0x[0-9a-fA-F_]+|0b[01_]+|[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)"
)


class Number(float):
    """A number with a fraction or exponent, and how it is written: `1.10` may be meant as a text."""

    text: str


class Entries(dict[Any, Any]):
    """A mapping, and the line of each key."""

    lines: dict[Any, int]


def load(path: str, flag: str) -> Any:
    """What a file holds: `Entries`, lists, strings, integers, floats, booleans and None.

    Args:
      flag: names the file in errors.

    Raises:
      InputError: naming flag, file and where it can line.
    """
    text = _read(path, flag)
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder(path).build(yaml.parse(text, loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        if "nesting depth" in str(error.problem):  # libyaml has a bound of its own, and reads ahead
            raise SettingError(f"{path}:{mark.line + 1 if mark else 1}: {_TOO_DEEP}") from None
        raise SettingError(f"{flag}: '{path}' is not valid YAML{line}: {error.problem}") from None
    except (yaml.YAMLError, UnicodeError):
        raise SettingError(
            f"{flag}: '{path}' is not valid YAML: it holds characters that no text has"
        ) from None


def _read(path: str, flag: str) -> str:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SettingError(f"{flag}: '{path}' is no regular file")
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingError(f"{flag}: cannot read '{path}': {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise SettingError(f"{flag}: '{path}' is larger than {MAX_BYTES >> 20} MB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SettingError(f"{flag}: '{path}' is not valid UTF-8") from None


class _Builder:
    """Makes values of events.

    Args:
      path: for messages.
    """

    def __init__(self, path: str):
        self._path = path

    def build(self, events: Iterator[Any]) -> Any:
        """The value of the only document."""
        import yaml

        documents: list[Any] = []
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if documents:
                    self._refuse(_line(event), "a second document; give one file for each")
                documents.append(self._value(next(events), events, 1))
        return documents[0] if documents else None

    def _value(self, event: Any, events: Iterator[Any], depth: int, *, is_key: bool = False) -> Any:
        """What begins with an event; takes the events to its end."""
        import yaml

        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            self._refuse(line, "aliases (*name) are not read; write the value out")
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            self._refuse(line, "tags (!name) are not read")
        if isinstance(event, yaml.ScalarEvent):
            quoted = event.tag is not None or event.style  # or a block of text
            return event.value if quoted else self._plain(event.value, line)
        if is_key:
            self._refuse(line, "a key must be a name")
        if depth >= MAX_DEPTH:
            self._refuse(line, _TOO_DEEP)
        if isinstance(event, yaml.MappingStartEvent):
            return self._entries(events, depth)
        values = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            values.append(self._value(event, events, depth + 1))
        return values

    def _entries(self, events: Iterator[Any], depth: int) -> Entries:
        import yaml

        entries = Entries()
        entries.lines = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            line = _line(event)
            key = self._value(event, events, depth, is_key=True)
            key = key.removeprefix("--") if isinstance(key, str) else key
            if key == "<<":
                self._refuse(line, "merge keys (<<) are not read; write the values out")
            if key in entries.lines:
                self._refuse(line, f"{key} is there twice, first on line {entries.lines[key]}")
            entries.lines[key] = line
            entries[key] = self._value(next(events), events, depth + 1)
        return entries

    def _plain(self, text: str, line: int) -> Any:
        """What is not quoted."""
        if text in _NULLS:
            return None
        if text in _BOOLS:
            return _BOOLS[text]
        if _WORDS.fullmatch(text):
            self._refuse(line, f"{text} is true or false to some readers; write true or false, or quote it")
        if len(text) > _MAX_DIGITS:
            return text
        if _INT.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return _number(float(text), text)
        if _ODD_FLOATS.fullmatch(text):
            return _number(float(text.replace(".", "").lower()), text)
        if _SURPRISES.fullmatch(text):
            self._refuse(line, f"{text} is another number to some readers; write it in decimal, or quote it")
        return text

    def _refuse(self, line: int, message: str) -> NoReturn:
        raise SettingError(f"{self._path}:{line}: {message}")


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _number(value: float, text: str) -> Number:
    made = Number(value)
    made.text = text
    return made
