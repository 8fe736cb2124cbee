"""Command line flags: snake_case with two dashes, YAML files for any of them, and nothing swallowed.

A flag is ours, or Beam's pipeline options know it, or it is an error: a misspelt --epsilon must not vanish among Beam's
options. Nothing here imports Beam or numpy, so that a wrong flag is refused at once.
"""

from __future__ import annotations

import argparse
import functools
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

from dpbeam.cli import config_file, constants
from dpbeam.cli.numbers import decimal, integer, is_number, nearest
from dpbeam.errors import InputError, SettingError
from dpbeam.io.new_files import NewFile
from dpbeam.jobs import beam_flags
from dpbeam.jobs.console import emit, run_command, set_verbosity
from dpbeam.jobs.options import (
    FOLDER,
    READ,
    WRITTEN,
    BudgetOptions,
    Flag,
    InputOptions,
    JobOptions,
    LeftOut,
    Options,
    ReleaseOptions,
    SettingFlags,
    flag,
    left_out,
)
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.domain import DEFAULT_SELECTOR
from dpbeam.version import __version__

#: Never from a file: a key would be forgotten there, and a file is shared; a help text would stand for a run.
_COMMAND_LINE_ONLY = ("insecure_test_key", "help", "version")
#: More flags than this are listed by `--help_all` alone, but for the common ones.
MAX_FLAGS_IN_HELP = 25
_OF_BEAM = "Beam's own flags (--runner, --temp_location, ...) go to Beam; any other flag is an error."
_EXPLICIT = re.compile(r"argument (--\w+): ignored explicit argument (.*)", re.DOTALL)

OptionsT = TypeVar("OptionsT", bound=Options)
BeamFlags = dict[str, list[str]]
"""Name of a Beam flag -> its arguments, `--name` or `--name=value`, several for a list."""


class _Help(argparse.Action):
    """Prints the common flags, or all of them, and ends."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any):
        super().__init__(option_strings, dest, nargs=0, **more)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, FlagParser)
        emit(parser.help_text(all_flags=self.const).removesuffix("\n"))
        parser.exit()


class FlagParser(argparse.ArgumentParser, Generic[OptionsT]):
    """An argument parser that raises InputError, reads --config, and returns what was said as `Options`.

    Args:
      command: the subcommand, for messages.
      options: its flags.
      beam: whether flags that are not ours may be Beam's.
    """

    def __init__(self, command: str, description: str, options: type[OptionsT], *, beam: bool = True):
        # argparse makes one for each flag: each would ask how wide the terminal is.
        formatter = functools.partial(
            argparse.HelpFormatter, max_help_position=30, width=shutil.get_terminal_size().columns - 2
        )
        super().__init__(
            prog=f"dpbeam {command}",
            description=description,
            usage="%(prog)s [flags]",
            formatter_class=formatter,
            add_help=False,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        self.add_argument("-h", "--help", action=_Help, help="the flags that most runs need")
        self.add_argument("--help_all", action=_Help, const=True, help="all flags")
        self._common = {"help", "help_all"}
        self.beam = beam
        self._negative_number_matcher = re.compile(r"-\.?[0-9]")  # of argparse, which takes -1e-5 for a flag
        self.register("type", int, integer)
        self.register("type", float, decimal)
        self._left_out = {
            f"--{negated}{name}": own.instead
            for name in dir(options)
            if isinstance(own := getattr(options, name), LeftOut)
            for negated in ("", "no_")
        }
        self.add_argument("--version", action="version", version=f"dpbeam {__version__}")
        self.kind = options
        for group, declared in options.declared():
            self._add(group, declared)

    def _add(self, title: str, declared: Flag) -> None:
        """A flag in its group of the help; switches stand together, without one."""
        name, how = declared.name, dict(declared.how)
        if declared.common:
            self._common.add(name)
        if not declared.metavar:
            self.add_argument(f"--{name}", dest=name, action="store_true", help=declared.help)
            self.add_argument(f"--no_{name}", dest=name, action="store_false", help=argparse.SUPPRESS)
            return
        group: argparse._ActionsContainer = self
        if title:
            same = (own for own in self._action_groups if own.title == title)
            group = next(same, None) or self.add_argument_group(title)
        option = name if how.pop("positional", False) else f"--{name}"
        group.add_argument(option, metavar=declared.metavar, help=declared.help, **how)

    def error(self, message: str) -> NoReturn:
        switched = _EXPLICIT.fullmatch(message)
        raise SettingError(f"{switched[1]} takes no value, got {switched[2]}" if switched else message)

    def _print_message(self, message: str, file: Any = None) -> None:
        emit(message.removesuffix("\n"))  # help and version; errors raise

    def help_text(self, *, all_flags: bool) -> str:
        """The help: the common flags, or all; all of them where they are few."""
        shown = [one for one in self._actions if one.option_strings and one.help is not argparse.SUPPRESS]
        if all_flags or len(shown) <= MAX_FLAGS_IN_HELP:
            hidden, more = [], ""
        else:
            hidden = [action for action in shown if action.dest not in self._common]
            more = f"--help_all lists all {len(shown)} flags. "
        self.epilog = more + (_OF_BEAM if self.beam else "")
        texts = [action.help for action in hidden]
        for action in hidden:
            action.help = argparse.SUPPRESS
        try:
            return self.format_help()
        finally:
            for action, text in zip(hidden, texts):
                action.help = text

    def refuse_left_out(self, said: Iterable[str]) -> None:
        """Refuse flags, parsed elsewhere, that the command has no use for.

        Raises:
          InputError: naming the first.
        """
        for name in said:
            if f"--{name}" in self._left_out:
                raise SettingError(self._unknown(f"--{name}"))

    @property
    def flags(self) -> frozenset[str]:
        """All flags, with their dashes."""
        return frozenset(self._option_string_actions)

    def adopt(self, other: FlagParser, only: Sequence[str] | None = None, common: Iterable[str] = ()) -> None:
        """Take over the flags of another parser that are not here yet, or these of them alone, in their groups.

        Args:
          common: flags that `--help` shows here too.
        """
        self._common.update(common)
        for group in other._action_groups:
            own = next((own for own in self._action_groups if own.title == group.title), None)
            for action in group._group_actions:
                known = any(option in self._option_string_actions for option in action.option_strings)
                if known or (only is not None and action.dest not in only):
                    continue
                own = own or self.add_argument_group(group.title)
                own._add_action(action)

    def parse(
        self, argv: Sequence[str], *, files: Callable[[], FlagParser] | None = None
    ) -> tuple[OptionsT, list[str]]:
        """What the command line and --config say, and the arguments for Beam.

        Args:
          files: makes the parser of the config files, where they may hold more than the command line.

        Raises:
          InputError: an unknown, misspelt or malformed flag, or a bad config file.
        """
        of_line, beam_of_line = self._split([self._underscored(word) for word in argv], "")
        said: dict[str, Any] = {}
        beam: BeamFlags = {}
        configs = of_line.pop("config", [])
        of_files = files() if configs and files else self
        for path in configs:
            of_file, beam_of_file = of_files._from_file(path)
            said = merged(said, of_file)
            beam |= beam_of_file
        said = merged(said, of_line)
        beam |= beam_of_line
        self._guard(said, configs)
        set_verbosity(verbose=said.get("verbose", False))
        return self.kind(said), [argument for arguments in beam.values() for argument in arguments]

    def _guard(self, said: dict[str, Any], configs: list[str]) -> None:
        """Paths of files to write know their flag and what the command reads."""
        reads = list(configs)
        for action in self._actions:
            if action.type is READ and action.dest in said:
                value = said[action.dest]
                reads += [value] if isinstance(value, str) else value
        for action in self._actions:
            if action.type is WRITTEN and action.dest in said:
                said[action.dest] = NewFile(said[action.dest], f"--{action.dest}", reads)

    def _from_file(self, path: str) -> tuple[dict[str, Any], BeamFlags]:
        values = config_file.read(path)
        if "config" in values:
            raise SettingError(f"{path}: a config file cannot name another one (config)")
        return self._from_values(path, values)

    def parse_values(self, where: str, values: Mapping[str, Any]) -> OptionsT:
        """Flags of ours from a mapping of names to values, as a file has them.

        Args:
          where: for messages.

        Raises:
          InputError: an unknown, misspelt or malformed flag.
        """
        return self.kind(self._from_values(where, values)[0])

    def _from_values(self, where: str, values: Mapping[str, Any]) -> tuple[dict[str, Any], BeamFlags]:
        arguments: list[str] = []
        beam: BeamFlags = {}
        lines = getattr(values, "lines", {})
        for name, value in values.items():
            at = f"{where}:{lines[name]}" if name in lines else where
            if name in _COMMAND_LINE_ONLY:
                raise SettingError(f"{at}: {name} belongs on the command line, never in a file")
            if name == "set":
                raise SettingError(
                    f"{at}: constants of a method stand under '{constants.CONFIG_KEY}:' in a file"
                )
            if name == constants.CONFIG_KEY and "--set" in self.flags:
                arguments += constants.from_config(at, value)
                continue
            action = self._option_string_actions.get(f"--{name}")
            kind = beam_flags.kind_of(name) if action is None and self.beam else None
            if action is not None:
                arguments += config_file.arguments(at, name, value, config_file.shape_of(action))
            elif kind == "switch" and value is False:
                beam[name] = []
            elif kind is not None:
                beam |= self._split(config_file.arguments(at, name, value, kind), f"{at}: ")[1]
            else:
                raise SettingError(f"{at}: {self._unknown(f'--{name}')}")
        said, _ = self._split(arguments, f"{where}: ")
        return said, beam

    def _underscored(self, word: str) -> str:
        """A flag that is typed with dashes, as --max-items-per-user, as it is called; other words as they are."""
        option, equals, value = word.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or f"--{name}" == option:
            return word
        known = f"--{name}" in self.flags or f"--{name}" in self._left_out
        return f"--{name}{equals}{value}" if known or (self.beam and beam_flags.kind_of(name)) else word

    def _split(self, argv: list[str], where: str) -> tuple[dict[str, Any], BeamFlags]:
        try:
            said, rest = self.parse_known_args(argv)
            return vars(said), self._beam_arguments(rest)
        except InputError as error:
            raise type(error)(f"{where}{error}") from None

    def _beam_arguments(self, rest: list[str]) -> BeamFlags:
        """What is left of a command line: Beam's flags with their values, and nothing else."""
        beam: BeamFlags = {}
        tokens = iter(rest)
        for token in tokens:
            if not token.startswith("-") or is_number(token):
                raise SettingError(f"unexpected argument '{token}'")
            option, equals, value = token.partition("=")
            name = option.removeprefix("--")
            kind = beam_flags.kind_of(name) if self.beam and option.startswith("--") else None
            if kind is None:
                raise SettingError(self._unknown(option))
            if name in beam_flags.SECRETS:
                raise SettingError(
                    f"{option}: credentials are not taken as flags, which engines store and show; launcher and workers "
                    "find them in their environment or profile"
                )
            if kind == "switch":
                if equals:
                    raise SettingError(f"{option} takes no value, got '{value}'")
                beam[name] = [option]
                continue
            value = value if equals else next(tokens, "")
            if not value or (not equals and value.startswith("-") and not is_number(value)):
                raise SettingError(f"{option} needs a value")
            beam_flags.check_value(name, value)
            if name == "temp_location":
                try:
                    FOLDER(value)
                except argparse.ArgumentTypeError as error:
                    raise SettingError(f"argument {option}: {error}") from None
            beam[name] = [*(beam.get(name, []) if kind == "list" else []), f"{option}={value}"]
        return beam

    def _unknown(self, option: str) -> str:
        if option in self._left_out:
            instead = self._left_out[option]
            return f"{option} does not apply to {self.prog.split()[-1]}" + (f"; {instead}" if instead else "")
        ours = [name for name in self._option_string_actions if name.startswith("--")]
        name = option.removeprefix("--").removeprefix("no_")
        methods = constants.methods_of(name)
        if methods and "--set" in ours:
            return f"{option} is no flag: give the constant of {', '.join(methods)} as --set {name}=VALUE"
        beams = [f"--{name}" for name in beam_flags.names()] if self.beam else []
        close = nearest("--" + option.lstrip("-").replace("-", "_").lower(), ours, beams)
        if close:
            return f"unknown flag {option}; did you mean {close}?"
        return f"unknown flag {option}; see {self.prog} --help"


def merged(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Flags of both; later ones win, and constants of `--set` one by one."""
    both = {**earlier, **later}
    if "set" in both:
        both["set"] = {**earlier.get("set", {}), **later.get("set", {})}
    return both


def entry_point(
    command: str, make_parser: Callable[[], FlagParser[OptionsT]]
) -> Callable[[Callable[[OptionsT], int]], Callable[[Sequence[str]], int]]:
    """Makes the entry point of a command without Beam's flags of what it does: from an argv to the exit code."""

    def decorate(body: Callable[[OptionsT], int]) -> Callable[[Sequence[str]], int]:
        return lambda argv: run_command(command, lambda: body(make_parser().parse(argv)[0]))

    return decorate


#: Verb -> (whose flags it takes beside those of all, one line of help).
Verbs = Mapping[str, tuple[tuple[type[Options], ...], str]]


def take_verb(command: str, options: Options, verbs: Verbs, common: type[Options]) -> str:
    """Take the verb of a command out of its flags.

    Args:
      common: the flags of every verb.

    Raises:
      InputError: there is none, it is unknown, or a flag belongs to another one.
    """
    verb = options.said.pop("verb", None)
    if verb not in verbs:
        close = nearest(verb, verbs) if verb else None
        fix = f"did you mean {close}?" if close else f"one of {', '.join(verbs)}"
        raise SettingError(f"unknown verb '{verb}'; {fix}" if verb else f"give a verb: {fix}")
    own = {name for kind in (common, *verbs[verb][0]) for name in kind.names()}
    for name in options.said:
        if name not in own:
            raise SettingError(f"--{name} does not apply to {command} {verb}")
    return verb


class AdviceOptions(JobOptions):
    """What is publicly known of the users, by which a method is recommended."""

    group = "method"
    items_per_user: float | None = flag(
        "X",
        "items that users typically hold, publicly known and never from the data: chooses a method",
        common=True,
    )
    rare_items_of_holder: float | None = flag(
        "X",
        "think of an item that fewer than about a hundred users hold, and of one of them: how many such items that "
        "user holds, likewise; the choice goes by it",
    )


class SelectionOptions(JobOptions):
    """Settings of partition selection: what every selector has, and the constants of each."""

    group = "method"
    release = SettingFlags(SelectionConfig)
    method: str | None = None
    set: dict[str, Any] | None = flag(
        "NAME=VALUE",
        "a constant of the method, repeatable; `dpbeam methods` lists them",
        action=constants.SetConstant,
        common=True,
    )


class ChoiceOptions(InputOptions, BudgetOptions, SelectionOptions, ReleaseOptions):
    """What items are chosen from, by commands that choose some."""

    group = "items to choose from"
    public_domain: bool = False  # of `dpbeam plan` alone: elsewhere the file of --domain says it
    selector: str | None = flag(
        "NAME", f"method of the domain's selection (default {DEFAULT_SELECTOR})", common=True
    )
    domain: str | None = flag(
        "FILE", "a public domain, one item per line or Parquet; no selection", type=READ, common=True
    )
    method = left_out("use --selector")
    public_items = noisy_weights = num_output_shards = left_out()
