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

from dpbeam.errors import InputError

MAX_BYTES = 8 << 20
MAX_DEPTH = 32
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
        raise InputError(f"{flag}: '{path}' is not valid YAML{line}: {error.problem}") from None
    except (yaml.YAMLError, UnicodeError):
        raise InputError(
            f"{flag}: '{path}' is not valid YAML: it holds characters that no text has"
        ) from None


def _read(path: str, flag: str) -> str:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError(f"{flag}: '{path}' is no regular file")
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{flag}: cannot read '{path}': {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{flag}: '{path}' is larger than {MAX_BYTES >> 20} MB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{flag}: '{path}' is not valid UTF-8") from None


class _Builder:
    """Makes values of events, without recursion.

    Args:
      path: for messages.
    """

    def __init__(self, path: str):
        self._path = path

    def build(self, events: Iterator[Any]) -> Any:
        """The value of the only document."""
        import yaml

        top: list[Any] = []
        open_ones: list[Any] = [top]
        keys: list[Any] = [_NONE]  # of each mapping that is open: the key that waits for its value
        for event in events:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent) and top:
                self._refuse(line, "a second document; give one file for each")
            if isinstance(event, yaml.AliasEvent):
                self._refuse(line, "aliases (*name) are not read; write the value out")
            if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                open_ones.pop()
                keys.pop()
                continue
            if not isinstance(event, (yaml.ScalarEvent, yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                continue
            if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
                self._refuse(line, "tags (!name) are not read")
            value = self._value(event, line)
            self._put(open_ones[-1], keys, value, line)
            if isinstance(value, dict | list):
                open_ones.append(value)
                keys.append(_NONE)
                if len(open_ones) > MAX_DEPTH:
                    self._refuse(line, f"lists and mappings are nested more than {MAX_DEPTH} deep")
        return top[0] if top else None

    def _put(self, into: Any, keys: list[Any], value: Any, line: int) -> None:
        """Add a value where it belongs, or keep it as the key of the next one."""
        if isinstance(into, list):
            into.append(value)
        elif keys[-1] is not _NONE:
            into[keys[-1]] = value
            keys[-1] = _NONE
        elif isinstance(value, dict | list):
            self._refuse(line, "a key must be a name")
        else:
            key = value.removeprefix("--") if isinstance(value, str) else value
            if key == "<<":
                self._refuse(line, "merge keys (<<) are not read; write the values out")
            if key in into.lines:
                self._refuse(line, f"{key} is there twice, first on line {into.lines[key]}")
            into.lines[key] = line
            keys[-1] = key

    def _value(self, event: Any, line: int) -> Any:
        import yaml

        if isinstance(event, yaml.SequenceStartEvent):
            return []
        if isinstance(event, yaml.MappingStartEvent):
            entries = Entries()
            entries.lines = {}
            return entries
        text: str = event.value
        if event.tag is not None or event.style:  # quoted, or a block of text
            return text
        return self._plain(text, line)

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
        raise InputError(f"{self._path}:{line}: {message}")


_NONE = object()


def _number(value: float, text: str) -> Number:
    made = Number(value)
    made.text = text
    return made
