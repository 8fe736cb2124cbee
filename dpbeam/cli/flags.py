"""Command line flags: snake_case with two dashes, a YAML file for any of them, and misspellings caught.

Flags that are not ours belong to Beam's pipeline options. A flag that is neither, and looks like one of ours, is
an error: a misspelt --epsilon must not vanish among Beam's options.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from dpbeam import __version__
from dpbeam.errors import InputError
from dpbeam.selectors.base import Selector, Setting
from dpbeam.selectors.registry import DEFAULT_METHOD, all_settings, find, selectors

_GIVEN_BY_BEAM = ("runner", "temp_location", "job_name")


class FlagParser(argparse.ArgumentParser):
    """An argument parser that raises InputError, reads --config, and returns only the flags that were given.

    Args:
      command: the subcommand, for messages.
      beam: whether flags that are not ours go to Beam.
    """

    def __init__(self, command: str, description: str, *, beam: bool = True):
        super().__init__(
            prog=f"dpbeam {command}",
            description=description,
            epilog="Other flags go to Beam's pipeline options (--runner, --temp_location, ...)."
            if beam
            else None,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        self._beam = beam
        self._beam_flags: set[str] | None = None
        self.add_argument("--version", action="version", version=f"dpbeam {__version__}")
        self.add_argument("--config", metavar="FILE.yaml", help="flags from a file; the command line wins")

    def error(self, message: str):
        raise InputError(message)

    def add_switch(self, name: str, text: str) -> None:
        """A boolean flag: --name and --no_name."""
        self.add_argument(f"--{name}", dest=name, action="store_true", help=text)
        self.add_argument(f"--no_{name}", dest=name, action="store_false", help=argparse.SUPPRESS)

    def parse(self, argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Flags given on the command line or in --config, and the arguments for Beam.

        Raises:
          InputError: an unknown, misspelt or malformed flag, or a bad config file.
        """
        given, rest = self._split(list(argv), "")
        path = given.pop("config", None)
        if path is None:
            return given, rest
        from_file, file_rest = self._split(config_arguments(path), f"{path}: ")
        if "config" in from_file:
            raise InputError(f"{path}: a config file cannot name another one (config)")
        return {**from_file, **given}, [*file_rest, *rest]

    def _split(self, argv: list[str], where: str) -> tuple[dict[str, Any], list[str]]:
        try:
            given, rest = self.parse_known_args(argv)
        except InputError as error:
            raise InputError(f"{where}{error}") from None
        self._check_rest(rest, where)
        return vars(given), rest

    def _check_rest(self, rest: list[str], where: str) -> None:
        """Refuse leftovers that are no Beam flags: misspellings of ours and stray values."""
        value_may_follow = False
        for token in rest:
            if not token.startswith("-") or _is_number(token):
                if not value_may_follow:
                    raise InputError(f"{where}unexpected argument '{token}'")
                value_may_follow = False
                continue
            name = token.split("=", 1)[0]
            value_may_follow = "=" not in token
            if name in self._known_to_beam():
                continue
            close = self._nearest(name)
            if close:
                raise InputError(f"{where}unknown flag {name}; did you mean {close}?")
            if not self._beam or not name.startswith("--"):
                raise InputError(f"{where}unknown flag {name}; see dpbeam {self.prog.split()[-1]} --help")

    def _nearest(self, name: str) -> str | None:
        ours = [option for option in self._option_string_actions if option.startswith("--")]
        spelled = "--" + name.lstrip("-").replace("-", "_").lower()
        found = difflib.get_close_matches(spelled, ours, n=1, cutoff=0.8)
        return found[0] if found else None

    def _known_to_beam(self) -> set[str]:
        if not self._beam:
            return set()
        if self._beam_flags is None:
            self._beam_flags = beam_flags()
        return self._beam_flags


def beam_flags() -> set[str]:
    """Every flag that Beam's pipeline options define."""
    from apache_beam.options import pipeline_options

    found: set[str] = {f"--{name}" for name in _GIVEN_BY_BEAM}
    for cls in pipeline_options.PipelineOptions.__subclasses__():
        parser = pipeline_options._BeamArgumentParser(allow_abbrev=False)
        cls._add_argparse_args(parser)
        found.update(parser._option_string_actions)
    return found - {"-h", "--help"}


def config_arguments(path: str) -> list[str]:
    """The flags of a YAML file as command line arguments.

    Scalars become --key=value, lists --key a b ..., booleans --key or --no_key; keys may be ours or Beam's.

    Raises:
      InputError: the file cannot be read or is not a flat mapping.
    """
    try:
        with open(path, encoding="utf-8") as file:
            values = yaml.safe_load(file)
    except OSError as error:
        raise InputError(f"--config: cannot read '{path}': {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise InputError(f"--config: '{path}' is not valid YAML") from None
    if values is None:
        return []
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise InputError(f"--config: '{path}' must map flag names to values")
    arguments: list[str] = []
    for key, value in values.items():
        arguments += _as_arguments(path, key.removeprefix("--"), value)
    return arguments


def _as_arguments(path: str, key: str, value: Any) -> list[str]:
    if value is None:
        raise InputError(f"{path}: {key} has no value")
    if isinstance(value, bool):
        return [f"--{key}" if value else f"--no_{key}"]
    if isinstance(value, list):
        if not value or not all(
            isinstance(item, str | int | float) and not isinstance(item, bool) for item in value
        ):
            raise InputError(f"{path}: {key} must be a value or a list of values")
        if all(isinstance(item, int | float) for item in value):
            return [f"--{key}={','.join(map(repr, value))}"]
        return [f"--{key}", *map(str, value)]
    if isinstance(value, dict):
        raise InputError(f"{path}: {key} must be a value or a list of values")
    return [f"--{key}={value}"]


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True


def number_list(text: str) -> tuple[float, ...]:
    """Comma-separated numbers, as in --budget_split 0.1,0.9."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected comma-separated numbers, got '{text}'") from None


def add_input_flags(parser: FlagParser) -> None:
    """Flags that say what to read."""
    group = parser.add_argument_group("input")
    group.add_argument(
        "--input",
        nargs="+",
        action="extend",
        metavar="PATTERN",
        help="files, globs, or - for stdin; repeatable",
    )
    group.add_argument(
        "--input_format", metavar="FORMAT", help="parquet, jsonl, csv, tsv, text (default: extension)"
    )
    group.add_argument(
        "--input_layout", metavar="LAYOUT", help="pairs (default) or grouped: a list of items per row"
    )
    group.add_argument("--user_column", metavar="NAME", help="column of users")
    group.add_argument(
        "--item_column", action="append", metavar="NAME", help="column of items; repeat for composite items"
    )
    group.add_argument(
        "--text_layout", metavar="LAYOUT", help="line (default) or file: what is one user's document"
    )
    group.add_argument("--tokenizer", metavar="NAME", help="words, whitespace or regex")
    group.add_argument("--token_pattern", metavar="REGEX", help="what a token is, for --tokenizer=regex")
    group.add_argument("--ngrams", metavar="N or N:M", help="items are sequences of this many tokens")
    group.add_argument(
        "--item_type",
        action="append",
        metavar="TYPE",
        help="string (default), int or bytes, where the input declares none; repeat for composite items",
    )
    group.add_argument(
        "--on_null", metavar="ACTION", help="rows without a user or item: error (default) or drop"
    )
    group.add_argument("--on_bad_row", metavar="ACTION", help="error (default) or skip")
    parser.add_switch("csv_multiline", "quoted values of CSV may hold line breaks; needs a well-formed file")
    parser.add_switch("lowercase", "map text to lower case before tokenising")


def add_budget_flags(parser: FlagParser) -> None:
    """The budget of the whole job and the bound per user."""
    group = parser.add_argument_group("privacy")
    group.add_argument("--epsilon", type=float, metavar="EPS", help="total epsilon of the job; required")
    group.add_argument("--delta", type=float, metavar="DELTA", help="total delta of the job; required")
    group.add_argument("--max_items_per_user", type=int, metavar="D0", help="items of a user that count")


def add_output_flags(parser: FlagParser) -> None:
    """Where results go, and how the job talks."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "--output", metavar="PREFIX", help="shards PREFIX-00000-of-000NN, ledger PREFIX.ledger.json"
    )
    group.add_argument("--output_format", metavar="FORMAT", help="parquet (default), text, csv or jsonl")
    group.add_argument(
        "--num_output_shards",
        type=int,
        metavar="N",
        help="default: one per 5 million released items or 256 MB of them",
    )
    parser.add_switch("overwrite", "replace earlier output of the same prefix")
    group.add_argument(
        "--num_shards", type=int, metavar="N", help="partitions of the items (default: from the input)"
    )
    group.add_argument("--public_items", metavar="FILE", help="items, one per line, released without budget")
    group.add_argument(
        "--insecure_test_key", metavar="HEX", help="fixed key for tests; the output is NOT PRIVATE"
    )
    group.add_argument(
        "--not_private_counts",
        metavar="FILE",
        help="write exact counts of dropped rows and tokens there; NOT PRIVATE, keep it with the input",
    )
    parser.add_switch("dry_run", "check everything, print the plan, read no data")
    parser.add_switch("quiet", "print nothing but errors")
    parser.add_switch("verbose", "show Beam's log")


def add_method_flags(parser: FlagParser, *, choose: bool = True) -> None:
    """Settings of partition selection: what every selector has, and the settings of all of the registry.

    Args:
      choose: whether --method is a flag here.
    """
    group = parser.add_argument_group("method")
    if choose:
        names = [_method_help(selector) for selector in selectors().values()]
        group.add_argument("--method", metavar="NAME", help=", ".join(names))
    group.add_argument("--preset", metavar="NAME", help="published: every setting of the method's paper")
    parser.add_switch("noisy_weights", "report the noisy weight of released items")
    for name, by_method in all_settings().items():
        described = next(iter(by_method.values()))
        text = _setting_help(name, by_method)
        if described.kind is bool:
            parser.add_switch(name, text)
        else:
            kind = number_list if described.kind is tuple else described.kind
            group.add_argument(f"--{name}", type=kind, metavar=described.metavar, help=text)


def _method_help(selector: Selector) -> str:
    marks = [*selector.aliases, *(["default"] if selector.name == DEFAULT_METHOD else [])]
    return f"{selector.name} ({', '.join(marks)})" if marks else selector.name


def _setting_help(name: str, by_method: Mapping[str, Setting]) -> str:
    """What a setting is, its default, and the methods that have it."""
    described = next(iter(by_method.values()))
    defaults = {repr(getattr(find(method).settings_type(), name)) for method in by_method}
    default = defaults.pop() if len(defaults) == 1 else "None"
    marks = [] if default == "None" or described.kind is bool else [f"default {default.strip(chr(39))}"]
    text = described.help.replace("%", "%%")
    return f"{text} ({'; '.join([*marks, ', '.join(by_method)])})"


def require(given: dict[str, Any], *names: str) -> None:
    """Raise InputError for the first flag that is missing."""
    for name in names:
        if name not in given:
            raise InputError(f"--{name} is required")
