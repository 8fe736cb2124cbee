"""Constants of methods on the command line (`--set NAME=VALUE`) and in config files (`settings:`)."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from dpbeam.cli import config_file
from dpbeam.cli.numbers import decimal, integer, nearest, number_list
from dpbeam.errors import SettingError
from dpbeam.selectors.registry import all_settings

#: The key of a config file that maps names of constants to values.
CONFIG_KEY = "settings"
_SWITCH = {"true": True, "false": False}


class SetConstant(argparse.Action):
    """Collects `--set NAME=VALUE` in a mapping; the last value of a name counts."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        name, equals, text = str(values).partition("=")
        if not equals:
            raise argparse.ArgumentError(self, f"expected NAME=VALUE, got '{name}'")
        try:
            value = _value(name, text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentError(self, f"{name}: {error}") from None
        setattr(namespace, self.dest, {**getattr(namespace, self.dest, {}), name: value})


def methods_of(name: str) -> list[str]:
    """The methods that have a constant of this name."""
    return list(all_settings().get(name, ()))


def from_config(at: str, values: Any) -> list[str]:
    """The mapping under `settings:` as arguments of the command line.

    Args:
      at: file and line, for messages.

    Raises:
      InputError: no mapping of names of constants to values.
    """
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise SettingError(f"{at}: {CONFIG_KEY} must map names of constants to values")
    arguments = []
    for name, value in values.items():
        if isinstance(value, bool):
            text = str(value).lower()
        else:
            (argument,) = config_file.arguments(f"{at}: {CONFIG_KEY}", name, value, "numbers")
            text = argument.partition("=")[2]
        arguments.append(f"--set={name}={text}")
    return arguments


def _value(name: str, text: str) -> Any:
    """A value in the type of its constant.

    Raises:
      ArgumentTypeError: no method has such a constant, or the text is no value of it.
    """
    known = all_settings()
    if name not in known:
        close = nearest(name, known)
        hint = f"did you mean {close}?" if close else "see dpbeam methods"
        raise argparse.ArgumentTypeError(f"no method has such a constant; {hint}")
    kind = next(iter(known[name].values())).kind
    if kind is bool:
        if text not in _SWITCH:
            raise argparse.ArgumentTypeError(f"expected true or false, got '{text}'")
        return _SWITCH[text]
    return {int: integer, float: decimal, tuple: number_list}.get(kind, str)(text)
