"""YAML files of flags (`--config`): a flat mapping of names to values, no key twice."""

from __future__ import annotations

import argparse
from typing import Any

from dpbeam.errors import InputError


def load(path: str, flag: str) -> Any:
    """What a YAML (or JSON) file holds; no mapping in it may name a key twice.

    Raises:
      InputError: naming the flag and the file.
    """
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        node = yaml.compose(text, yaml.SafeLoader)
        values = yaml.safe_load(text)
    except OSError as error:
        raise InputError(f"{flag}: cannot read '{path}': {error.strerror}") from None
    except (yaml.YAMLError, ValueError, TypeError):
        raise InputError(f"{flag}: '{path}' is not valid YAML") from None
    _refuse_twice(path, node)
    return values


def _refuse_twice(path: str, node: Any) -> None:
    """Refuse a key that a mapping names again; the parser would take the last."""
    lines: dict[str, int] = {}
    if node is None or isinstance(node.value, str):
        return
    for part in node.value:
        for child in part if isinstance(part, tuple) else (part,):
            _refuse_twice(path, child)
        if isinstance(part, tuple) and isinstance(part[0].value, str):
            name, line = _name(part[0].value), part[0].start_mark.line + 1
            if name in lines:
                raise InputError(f"{path}:{line}: {name} is there twice, first on line {lines[name]}")
            lines[name] = line


def read(path: str) -> dict[str, Any]:
    """Name of a flag -> its value, as the file has it.

    Raises:
      InputError: the file cannot be read, is no flat mapping, or names a key twice.
    """
    values = load(path, "--config")
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise InputError(f"--config: '{path}' must map flag names to values")
    return {_name(key): value for key, value in values.items()}


def _name(key: str) -> str:
    return key.removeprefix("--")


def shape_of(action: argparse.Action) -> str:
    """ "switch", "list", "numbers" (comma-separated) or "text": what values a flag of ours takes."""
    if action.nargs == 0:
        return "switch"
    if isinstance(action, argparse._AppendAction):  # extend is one too
        return "list"
    return "text" if action.type in (None, int, float) else "numbers"


def arguments(path: str, name: str, value: Any, shape: str) -> list[str]:
    """A key and its value as command line arguments; a switch of Beam's that is false has none.

    Raises:
      InputError: the value does not fit the flag.
    """
    if value is None:
        raise InputError(f"{path}: {name} has no value")
    if shape == "switch":
        if not isinstance(value, bool):
            raise InputError(f"{path}: {name} must be true or false, got {value!r}")
        return [f"--{name}" if value else f"--no_{name}"]
    if isinstance(value, bool):
        raise InputError(
            f"{path}: {name} needs a value, not {str(value).lower()}; quote a word such as yes, no, on or off"
        )
    if not isinstance(value, list):
        if isinstance(value, dict):
            raise InputError(f"{path}: {name} must be a value or a list of values")
        return [f"--{name}={value}"]
    if not value or not all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in value):
        raise InputError(f"{path}: {name} must be a value or a list of values")
    if shape == "list":
        return [f"--{name}={item}" for item in value]
    if shape == "numbers" and all(isinstance(item, int | float) for item in value):
        return [f"--{name}={','.join(map(repr, value))}"]
    raise InputError(f"{path}: {name} takes one value, got {len(value)}")
