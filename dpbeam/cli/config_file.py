"""YAML files of flags (`--config`): a flat mapping of names to values, no key twice."""

from __future__ import annotations

import argparse
from typing import Any

from dpbeam.errors import SettingError
from dpbeam.io.yaml_files import Number, load


def read(path: str) -> dict[str, Any]:
    """Name of a flag -> its value, as the file has it, with the line of each.

    Raises:
      InputError: the file cannot be read, is no flat mapping, or names a key twice.
    """
    values = load(path, "--config")
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise SettingError(f"--config: '{path}' must map flag names to values")
    return values


def shape_of(action: argparse.Action) -> str:
    """ "switch", "list", "numbers" (comma-separated) or "text": what values a flag of ours takes."""
    if action.nargs == 0:
        return "switch"
    if isinstance(action, argparse._AppendAction):  # extend is one too
        return "list"
    several = action.type not in (None, int, float) and not hasattr(action.type, "role")
    return "numbers" if several else "text"


def arguments(path: str, name: str, value: Any, shape: str) -> list[str]:
    """A key and its value as command line arguments; a switch of Beam's that is false has none.

    Raises:
      InputError: the value does not fit the flag.
    """
    if value is None:
        raise SettingError(f"{path}: {name} has no value")
    if shape == "switch":
        if not isinstance(value, bool):
            raise SettingError(f"{path}: {name} must be true or false, got {value!r}")
        return [f"--{name}" if value else f"--no_{name}"]
    if isinstance(value, bool):
        raise SettingError(
            f"{path}: {name} needs a value, not {str(value).lower()}; quote it if it is a name"
        )
    if not isinstance(value, list):
        if isinstance(value, dict):
            raise SettingError(f"{path}: {name} must be a value or a list of values")
        return [f"--{name}={_text(value)}"]
    if not value:
        raise SettingError(f"{path}: {name} is an empty list; drop it, or name a value")
    if not all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in value):
        raise SettingError(f"{path}: {name} must be a value or a list of values")
    if shape == "list":
        return [f"--{name}={_text(item)}" for item in value]
    if shape == "numbers" and all(isinstance(item, int | float) for item in value):
        return [f"--{name}={','.join(map(_text, value))}"]
    raise SettingError(f"{path}: {name} takes one value, not a list")


def _text(value: Any) -> str:
    """A value as it is written."""
    return value.text if isinstance(value, Number) else str(value)
