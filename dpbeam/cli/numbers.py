"""Values of flags: numbers as people type them, and which word was probably meant."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable

_LEAST_SIMILARITY = 0.75
_MAX_DIGITS = 400


def nearest(word: str, *choices: Iterable[str]) -> str | None:
    """The choice that was probably meant, None if none is close; earlier lists come first."""
    for names in map(list, choices):
        begins = [name for name in names if len(word) > 4 and name.startswith(word)]
        close = begins or difflib.get_close_matches(word, names, n=1, cutoff=_LEAST_SIMILARITY)
        if close:
            return close[0]
    return None


def is_number(token: str) -> bool:
    """Whether Python reads a word as a number."""
    try:
        float(token)
    except ValueError:
        return False
    return True


def integer(text: str) -> int:
    """As int, of ASCII digits alone: no underscores, no blanks, none of thousands of digits."""
    if not re.fullmatch(r"[-+]?[0-9]+", text) or len(text) > _MAX_DIGITS:
        raise argparse.ArgumentTypeError(f"expected an integer, got '{_short(text)}'")
    return int(text)


def decimal(text: str) -> float:
    """As float, without underscores, blanks or other scripts' digits."""
    try:
        if text.isascii() and not set(text) & set("_ \t\n\r\f\v"):
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"expected a number, got '{_short(text)}'")


def _short(text: str) -> str:
    return text if len(text) <= 50 else f"{text[:50]}..."


def number_list(text: str) -> tuple[float, ...]:
    """Comma-separated numbers, as in --budget_split 0.1,0.9."""
    try:
        return tuple(map(decimal, text.split(",")))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"expected comma-separated numbers, got '{_short(text)}'") from None


def integer_list(text: str) -> list[int]:
    """Comma-separated integers, as in --degrees 1,10."""
    try:
        return list(map(integer, text.split(",")))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"expected comma-separated integers, got '{_short(text)}'") from None
