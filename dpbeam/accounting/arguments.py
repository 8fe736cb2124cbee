"""What callers in Python hand over, held to the declared types; numbers of numpy become those of Python.

A message names the type of a wrong value, never the value: somebody may have mistaken an argument for another, and the
value be private data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from numbers import Integral, Real
from typing import Any

from dpbeam.errors import SettingError, param

_OR_NONE = " | None"


def check_fields(settings: Any) -> None:
    """Hold the fields of a frozen dataclass to their annotations, where these are of `as_declared`.

    Raises:
      InputError: naming the first field of another type.
    """
    for field in fields(settings):
        value = as_declared(field.name, getattr(settings, field.name), str(field.type))
        object.__setattr__(settings, field.name, value)


def as_declared(name: str, value: Any, kind: str) -> Any:
    """The value as `int`, `float`, `bool` or `str`, with ` | None` or without; of other kinds as it is.

    Raises:
      InputError: it is something else, naming the argument.
    """
    if value is None and kind.endswith(_OR_NONE):
        return None
    convert = _CONVERT.get(kind.removesuffix(_OR_NONE))
    return value if convert is None else convert(name, value)


def integer(name: str, value: Any, named: Callable[[str], str] = param) -> int:
    """Any integer but a bool. Raises InputError."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise SettingError(f"{named(name)} must be an integer, got {_shown(value)}")
    return int(value)


def number(name: str, value: Any, named: Callable[[str], str] = param) -> float:
    """Any real number but a bool, perhaps NaN or infinite. Raises InputError."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SettingError(f"{named(name)} must be a number, got {_shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise SettingError(
            f"{named(name)} must be a number, got one beyond all that can be computed with"
        ) from None


def numbers(name: str, value: Any, named: Callable[[str], str] = param) -> tuple[int | float, ...]:
    """A sequence of real numbers. Raises InputError."""
    array = not isinstance(value, str | bytes) and (isinstance(value, Sequence) or hasattr(value, "tolist"))
    parts = value.tolist() if array and hasattr(value, "tolist") else value
    if not isinstance(parts, Sequence):
        raise SettingError(f"{named(name)} must be several numbers, got {_shown(value)}")
    return tuple(
        integer(name, part, named) if isinstance(part, Integral) else number(name, part, named)
        for part in parts
    )


def truth(name: str, value: Any, named: Callable[[str], str] = param) -> bool:
    """A bool, also of numpy. Raises InputError."""
    if isinstance(value, bool) or type(value).__name__ in (
        "bool",
        "bool_",
    ):  # of numpy, which is not imported here
        return bool(value)
    raise SettingError(f"{named(name)} must be true or false, got {_shown(value)}")


def text(name: str, value: Any, named: Callable[[str], str] = param) -> str:
    """A string that UTF-8 can hold. Raises InputError."""
    if not isinstance(value, str):
        raise SettingError(f"{named(name)} must be a string, got {_shown(value)}")
    if not value.isascii() and any(0xD800 <= ord(character) < 0xE000 for character in value):
        raise SettingError(f"{named(name)} holds a surrogate, which is no character")
    return str(value)


def file_path(name: str, value: Any) -> str:
    """A string that can be a path. Raises InputError."""
    if "\0" in text(name, value):
        raise SettingError(f"{param(name)}: a path holds no NUL character")
    return str(value)


def instance(name: str, value: Any, *kinds: type, optional: bool = False) -> Any:
    """The value, of one of these classes, or None if it is `optional`.

    Raises:
      InputError: it is something else.
    """
    if (value is None and optional) or isinstance(value, kinds):
        return value
    wanted = " or ".join(kind.__name__ for kind in kinds)
    raise SettingError(f"{param(name)} must be a {wanted}, got {_shown(value)}")


def _shown(value: Any) -> str:
    """A wrong value in a message: a float itself, of anything else the class."""
    return f"{value}" if isinstance(value, float) and math.isfinite(value) else type(value).__name__


_CONVERT: Mapping[str, Callable[[str, Any], Any]] = {
    "int": integer,
    "float": number,
    "bool": truth,
    "str": text,
}
