"""Command line flags: snake_case with two dashes, YAML files for any of them, and nothing swallowed.

A flag is ours, or Beam's pipeline options know it, or it is an error: a misspelt --epsilon must not vanish among Beam's
options. Nothing here imports Beam or numpy, so that a wrong flag is refused at once.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpbeam.accounting.release import INPUT_NAMES
from dpbeam.cli import config_file
from dpbeam.errors import InputError
from dpbeam.io import formats
from dpbeam.io.new_files import NewFile
from dpbeam.jobs import beam_flags
from dpbeam.jobs.console import emit, set_verbosity
from dpbeam.selectors.base import Selector, Setting
from dpbeam.selectors.registry import DEFAULT_METHOD, all_settings, find, selectors
from dpbeam.version import __version__

#: Never from a file: a key would be forgotten there, and a file is shared; a help text would stand for a run.
_COMMAND_LINE_ONLY = ("insecure_test_key", "help", "version")
_SIMILAR = 0.75
_EXPLICIT = re.compile(r"argument (--\w+): ignored explicit argument (.*)", re.DOTALL)
_LONGEST_NUMBER = 400

BeamFlags = dict[str, list[str]]
"""Name of a Beam flag -> its arguments, `--name` or `--name=value`, several for a list."""


class PathOf:
    """Type of a flag that names files: what becomes of them. A test holds every such flag to one of these."""

    def __init__(self, role: str):
        self.role = role

    def __call__(self, text: str) -> str:
        if "\0" in text:
            raise argparse.ArgumentTypeError("a path holds no NUL character")
        return text

    def __repr__(self) -> str:
        return self.role


#: Files that the command reads; a file that it writes, guarded by `NewFile`; a prefix of such; a folder of its own.
READ, WRITTEN, WRITTEN_PREFIX, FOLDER = map(PathOf, ("read", "written", "written prefix", "folder"))


class FlagParser(argparse.ArgumentParser):
    """An argument parser that raises InputError, reads --config, and returns only the flags that were given.

    Args:
      command: the subcommand, for messages.
      beam: whether flags that are not ours may be Beam's.
    """

    def __init__(self, command: str, description: str, *, beam: bool = True):
        super().__init__(
            prog=f"dpbeam {command}",
            description=description,
            epilog="Beam's own flags (--runner, --temp_location, ...) go to Beam; any other flag is an error."
            if beam
            else None,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        self.beam = beam
        self._negative_number_matcher = re.compile(r"-\.?[0-9]")  # of argparse, which takes -1e-5 for a flag
        self.register("type", int, _integer)
        self.register("type", float, _decimal)
        self._discarded: dict[str, str] = {}
        self.add_argument("--version", action="version", version=f"dpbeam {__version__}")
        self.add_argument(
            "--config",
            metavar="FILE.yaml",
            type=READ,
            action="append",
            help="flags from a file; repeatable, later files win, and the command line wins over all",
        )
        self.add_switch("quiet", "print nothing but errors and warnings")
        self.add_switch("verbose", "show Beam's log, and the trace of an error")

    def error(self, message: str):
        told = _EXPLICIT.fullmatch(message)
        raise InputError(f"{told[1]} takes no value, got {told[2]}" if told else message)

    def _print_message(self, message: str, file=None) -> None:
        emit(message.removesuffix("\n"))  # help and version; errors raise

    def add_switch(self, name: str, text: str) -> None:
        """A boolean flag: --name and --no_name."""
        self.add_argument(f"--{name}", dest=name, action="store_true", help=text)
        self.add_argument(f"--no_{name}", dest=name, action="store_false", help=argparse.SUPPRESS)

    def discard(self, *names: str, instead: str = "") -> None:
        """Take flags back that a group added and this command has no use for; `instead` goes into the message."""
        for name in names:
            for option in (f"--{name}", f"--no_{name}"):
                action = self._option_string_actions.pop(option, None)
                if action is None:
                    continue
                self._discarded[option] = instead
                for actions in (self._actions, *(group._group_actions for group in self._action_groups)):
                    if action in actions:
                        actions.remove(action)

    def refuse_discarded(self, given: dict[str, Any]) -> None:
        """Refuse flags, parsed elsewhere, that were taken back here.

        Raises:
          InputError: naming the first.
        """
        for name in given:
            if f"--{name}" in self._discarded:
                raise InputError(self._unknown(f"--{name}"))

    @property
    def options(self) -> frozenset[str]:
        """All options, with their dashes."""
        return frozenset(self._option_string_actions)

    def adopt(self, other: FlagParser, only: Sequence[str] | None = None) -> None:
        """Take over the flags of another parser that are not here yet, or these of them alone, in their groups."""
        for group in other._action_groups:
            own = next((own for own in self._action_groups if own.title == group.title), None)
            for action in group._group_actions:
                known = any(option in self._option_string_actions for option in action.option_strings)
                if known or (only is not None and action.dest not in only):
                    continue
                own = own or self.add_argument_group(group.title)
                own._add_action(action)

    def parse(
        self, argv: Sequence[str], *, files: FlagParser | None = None
    ) -> tuple[dict[str, Any], list[str]]:
        """Flags given on the command line or in --config, and the arguments for Beam.

        Args:
          files: the parser of the config files, where they may hold more than the command line.

        Raises:
          InputError: an unknown, misspelt or malformed flag, or a bad config file.
        """
        given, beam = self._split(list(argv), "")
        merged: dict[str, Any] = {}
        merged_beam: BeamFlags = {}
        configs = given.pop("config", [])
        for path in configs:
            found, found_beam = (files or self)._from_file(path)
            merged |= found
            merged_beam |= found_beam
        merged |= given
        merged_beam |= beam
        self._guard(merged, configs)
        set_verbosity(verbose=merged.get("verbose", False))
        return merged, [argument for arguments in merged_beam.values() for argument in arguments]

    def _guard(self, given: dict[str, Any], configs: list[str]) -> None:
        """Paths of files to write know their flag and what the command reads."""
        reads = list(configs)
        for action in self._actions:
            if action.type is READ and action.dest in given:
                value = given[action.dest]
                reads += [value] if isinstance(value, str) else value
        for action in self._actions:
            if action.type is WRITTEN and action.dest in given:
                given[action.dest] = NewFile(given[action.dest], f"--{action.dest}", reads)

    def _from_file(self, path: str) -> tuple[dict[str, Any], BeamFlags]:
        values = config_file.read(path)
        if "config" in values:
            raise InputError(f"{path}: a config file cannot name another one (config)")
        return self._from_values(path, values)

    def parse_values(self, where: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Flags of ours from a mapping of names to values, as a file has them.

        Args:
          where: for messages.

        Raises:
          InputError: an unknown, misspelt or malformed flag.
        """
        return self._from_values(where, values)[0]

    def _from_values(self, where: str, values: Mapping[str, Any]) -> tuple[dict[str, Any], BeamFlags]:
        arguments: list[str] = []
        beam: BeamFlags = {}
        lines = getattr(values, "lines", {})
        for name, value in values.items():
            at = f"{where}:{lines[name]}" if name in lines else where
            if name in _COMMAND_LINE_ONLY:
                raise InputError(f"{at}: {name} belongs on the command line, never in a file")
            action = self._option_string_actions.get(f"--{name}")
            kind = beam_flags.kind_of(name) if action is None and self.beam else None
            if action is not None:
                arguments += config_file.arguments(at, name, value, config_file.shape_of(action))
            elif kind == "switch" and value is False:
                beam[name] = []
            elif kind is not None:
                beam |= self._split(config_file.arguments(at, name, value, kind), f"{at}: ")[1]
            else:
                raise InputError(f"{at}: {self._unknown(f'--{name}')}")
        given, _ = self._split(arguments, f"{where}: ")
        return given, beam

    def _split(self, argv: list[str], where: str) -> tuple[dict[str, Any], BeamFlags]:
        try:
            given, rest = self.parse_known_args(argv)
            return vars(given), self._beam_arguments(rest)
        except InputError as error:
            raise InputError(f"{where}{error}") from None

    def _beam_arguments(self, rest: list[str]) -> BeamFlags:
        """What is left of a command line: Beam's flags with their values, and nothing else."""
        found: BeamFlags = {}
        tokens = iter(rest)
        for token in tokens:
            if not token.startswith("-") or _is_number(token):
                raise InputError(f"unexpected argument '{token}'")
            option, equals, value = token.partition("=")
            name = option.removeprefix("--")
            kind = beam_flags.kind_of(name) if self.beam and option.startswith("--") else None
            if kind is None:
                raise InputError(self._unknown(option))
            if name in beam_flags.SECRETS:
                raise InputError(
                    f"{option}: credentials are not taken as flags, which engines store and show; launcher and workers "
                    "find them in their environment or profile"
                )
            if kind == "switch":
                if equals:
                    raise InputError(f"{option} takes no value, got '{value}'")
                found[name] = [option]
                continue
            value = value if equals else next(tokens, "")
            if not value or (not equals and value.startswith("-") and not _is_number(value)):
                raise InputError(f"{option} needs a value")
            beam_flags.check_value(name, value)
            found[name] = [*(found.get(name, []) if kind == "list" else []), f"{option}={value}"]
        return found

    def _unknown(self, option: str) -> str:
        if option in self._discarded:
            instead = self._discarded[option]
            return f"{option} does not apply to {self.prog.split()[-1]}" + (f"; {instead}" if instead else "")
        ours = [name for name in self._option_string_actions if name.startswith("--")]
        beams = [f"--{name}" for name in beam_flags.names()] if self.beam else []
        close = nearest("--" + option.lstrip("-").replace("-", "_").lower(), ours, beams)
        if close:
            return f"unknown flag {option}; did you mean {close}?"
        return f"unknown flag {option}; see {self.prog} --help"


def nearest(word: str, *choices: Iterable[str]) -> str | None:
    """The choice that was probably meant, None if none is close; earlier lists come first."""
    for names in map(list, choices):
        begins = [name for name in names if len(word) > 4 and name.startswith(word)]
        found = begins or difflib.get_close_matches(word, names, n=1, cutoff=_SIMILAR)
        if found:
            return found[0]
    return None


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True


def _integer(text: str) -> int:
    """As int, of ASCII digits alone: no underscores, no blanks, none of thousands of digits."""
    if not re.fullmatch(r"[-+]?[0-9]+", text) or len(text) > _LONGEST_NUMBER:
        raise argparse.ArgumentTypeError(f"expected an integer, got '{_short(text)}'")
    return int(text)


def _decimal(text: str) -> float:
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
        return tuple(map(_decimal, text.split(",")))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"expected comma-separated numbers, got '{_short(text)}'") from None


def add_input_flags(parser: FlagParser) -> None:
    """Flags that say what to read."""
    group = parser.add_argument_group("input")
    group.add_argument(
        "--input",
        nargs="+",
        action="extend",
        metavar="PATTERN",
        type=READ,
        help="files, globs, - for stdin, delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE; repeatable",
    )
    group.add_argument(
        "--input_format",
        metavar="FORMAT",
        help=f"{', '.join(formats.names())} (default: extension)",
    )
    group.add_argument(
        "--input_layout", metavar="LAYOUT", help="pairs (default) or grouped: a list of items per row"
    )
    group.add_argument("--user_column", metavar="NAME", help="column of users (default user)")
    group.add_argument(
        "--item_column",
        action="append",
        metavar="NAME",
        help="column of items (default item); repeat for composite items",
    )
    group.add_argument(
        "--text_layout", metavar="LAYOUT", help="line (default) or file: what is one user's document"
    )
    group.add_argument(
        "--user",
        metavar="WHO",
        help="of wet and warc: page (default), host or domain; or record, where no page occurs twice",
    )
    group.add_argument(
        "--language", action="append", metavar="CODE", help="pages of wet to read, such as eng; repeatable"
    )
    group.add_argument(
        "--http_status",
        action="append",
        type=int,
        metavar="N",
        help="responses of warc to read (default 200); repeatable",
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
    group.add_argument(
        "--csv_delimiter", metavar="CHARACTER", help="between two fields of CSV (default: comma), such as ';'"
    )
    group.add_argument(
        "--partition",
        action="append",
        metavar="COMPARISON",
        help="read files in folders such as day=2026-11-01 alone, as in 'day>=2026-11-01'; repeatable",
    )
    group.add_argument(
        "--table_version",
        type=int,
        metavar="N",
        help="version or snapshot of a table (default: the current one)",
    )
    parser.add_switch("lowercase", "map text to lower case before tokenising")


def add_budget_flags(parser: FlagParser) -> None:
    """The budget of the whole job and the bound per user."""
    group = parser.add_argument_group("privacy")
    group.add_argument("--epsilon", type=float, metavar="EPS", help="total epsilon of the job; required")
    group.add_argument("--delta", type=float, metavar="DELTA", help="total delta of the job; required")
    group.add_argument("--max_items_per_user", type=int, metavar="D0", help=_max_items_help())


def _max_items_help() -> str:
    """With the default of each method."""
    by_default: dict[int, list[str]] = {}
    for selector in selectors().values():
        by_default.setdefault(selector.default_max_items, []).append(selector.name)
    defaults = [f"{value} of {', '.join(names)}" for value, names in by_default.items()]
    return f"items of a user that count (default {'; '.join(defaults)})"


def add_output_flags(parser: FlagParser) -> None:
    """Where results go, and how the job talks."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "--output",
        metavar="PREFIX",
        type=WRITTEN_PREFIX,
        help="shards PREFIX-00000-of-000NN, ledger PREFIX.ledger.json",
    )
    group.add_argument("--output_format", metavar="FORMAT", help="parquet (default), text, csv or jsonl")
    group.add_argument(
        "--num_output_shards",
        type=int,
        metavar="N",
        help="default: one per 5 million released items or 256 MB of them",
    )
    parser.add_switch("overwrite", "replace earlier output of the same prefix")
    parser.add_switch("allow_empty", "an input without a single row is no error")
    group.add_argument(
        "--num_shards", type=int, metavar="N", help="partitions of the items (default: from the input)"
    )
    group.add_argument(
        "--public_items", metavar="FILE", type=READ, help="items, one per line, released without budget"
    )
    group.add_argument(
        "--insecure_test_key", metavar="HEX", help="fixed key for tests; the output is NOT PRIVATE"
    )
    group.add_argument(
        "--not_private_counts",
        metavar="FILE",
        type=WRITTEN,
        help="write exact counts of dropped rows and tokens there; NOT PRIVATE, keep it with the input",
    )
    group.add_argument(
        "--result_file",
        metavar="FILE",
        type=WRITTEN,
        help="what the run has released, as JSON: outputs, ledger, counts",
    )
    group.add_argument(
        "--lineage_file",
        metavar="FILE",
        type=WRITTEN,
        help="the run as events of OpenLineage, one JSON a line",
    )
    group.add_argument(
        "--input_names",
        metavar="HOW",
        choices=INPUT_NAMES,
        help="how the ledger names --input: base, the last part of what is given (default), full, or none",
    )
    group.add_argument(
        "--input_digests",
        metavar="KEYFILE",
        type=READ,
        help="put a digest of the input into the ledger, under the secret key in this file, made if absent",
    )
    group.add_argument(
        "--users_at_least",
        type=int,
        metavar="N",
        help="how many users there publicly are; --delta is held against it",
    )
    parser.add_switch("dry_run", "check everything, print the plan, read no data")
    parser.add_switch(
        "encrypt_intermediates",
        "encrypt the run's private folder, under the key DPBEAM_FOLDER_KEY in the environment of launcher and workers",
    )
    add_account_flags(parser)


def add_store_flags(parser: FlagParser) -> None:
    """Which account."""
    group = parser.add_argument_group("account of the budget")
    group.add_argument(
        "--budget", metavar="URL", help="store of accounts: a file of SQLite, or postgresql://HOST/NAME"
    )
    group.add_argument("--dataset", metavar="NAME", help="whose account is charged")
    group.add_argument(
        "--release_id", metavar="ID", help="name of the release; a retry gives the same one and pays nothing"
    )


def add_account_flags(parser: FlagParser) -> None:
    """The account that a run is charged to; every command that releases has them."""
    add_store_flags(parser)
    group = parser.add_argument_group("what an account is told of the data")
    group.add_argument(
        "--budget_cohort", metavar="NAME", help="the cohort that all users of the input belong to"
    )
    group.add_argument(
        "--budget_period",
        metavar="DAY or FIRST:LAST",
        help="days of the data that are read, where the budget renews",
    )
    parser.add_switch("charge_test_key", "charge a run with --insecure_test_key too")


def add_checkpoint_flags(parser: FlagParser) -> None:
    """Going on with a run that was killed."""
    group = parser.add_argument_group("going on after a failure")
    group.add_argument(
        "--checkpoint",
        metavar="DIR",
        type=FOLDER,
        help="keep the run's private state there: killed, the same command goes on from its last checkpoint",
    )
    group.add_argument(
        "--passes_per_job", type=int, metavar="N", help="passes between two checkpoints (default 32)"
    )


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
    group.add_argument(
        "--min_users", type=int, metavar="K", help="release no item of fewer users, whatever the noise"
    )
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


def take_verb(
    command: str, given: dict[str, Any], verbs: Mapping[str, tuple[Iterable[str], str]], *common: str
) -> str:
    """Take the verb of a command out of its flags.

    Args:
      verbs: the flags of each and what it does.
      common: flags of every verb.

    Raises:
      InputError: there is none, it is unknown, or a flag belongs to another one.
    """
    verb = given.pop("verb", None)
    if verb not in verbs:
        close = nearest(verb, verbs) if verb else None
        fix = f"did you mean {close}?" if close else f"one of {', '.join(verbs)}"
        raise InputError(f"unknown verb '{verb}'; {fix}" if verb else f"give a verb: {fix}")
    for name in given:
        if name not in (*verbs[verb][0], *common, "quiet", "verbose"):
            raise InputError(f"--{name} does not apply to {command} {verb}")
    return verb


def require(given: dict[str, Any], *names: str) -> None:
    """Raise InputError for the first flag that is missing."""
    for name in names:
        if name not in given:
            raise InputError(f"--{name} is required")
