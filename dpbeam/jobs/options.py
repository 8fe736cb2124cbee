"""Options of a command: a class whose fields are its flags, each declared once, with its type.

    class CountOptions(InputOptions, OutputOptions):
        domain: str | None = flag("FILE", "the public list; required", type=READ)

A mistyped name is an error of mypy, as of any attribute, and code that takes options says by their class which flags it
reads. What was not said on the command line or in a file is None, False for a switch; `said` tells these apart. The
parser of a command (`dpbeam.cli.flags`) is made from its class.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from dpbeam.errors import SettingError
from dpbeam.families.base import Release
from dpbeam.io import formats
from dpbeam.io.new_files import NewFile
from dpbeam.jobs.console import tell

MAX_FOLDERS = 500


class PathOf:
    """Type of a flag that names files: what becomes of them. A test holds every such flag to one of these."""

    def __init__(self, role: str):
        self.role = role

    def __call__(self, text: str) -> str:
        if "\0" in text:
            raise argparse.ArgumentTypeError("a path holds no NUL character")
        if text.count("/") > MAX_FOLDERS:  # Python makes and finds them one within the other
            raise argparse.ArgumentTypeError(f"a path has at most {MAX_FOLDERS} folders one within the other")
        return text

    def __repr__(self) -> str:
        return self.role


#: Files that the command reads; a file that it writes, guarded by `NewFile`; a prefix of such; a folder of its own.
READ, WRITTEN, WRITTEN_PREFIX, FOLDER = map(PathOf, ("read", "written", "written prefix", "folder"))


@dataclass
class Flag:
    """How one flag is written and explained; on an instance of `Options` it stands for its value.

    Attributes:
      help: a line; metavar: what the value is called, "" for a switch.
      value: where the flag is not said.
      how: further arguments of argparse.
      common: whether `--help` shows it where a command has many flags.
      operational: whether it changes nothing of what is released, or only how a run is done. Any other flag is part of
        what a run is (`dpbeam.jobs.identity`).
    """

    help: str
    metavar: str
    value: Any
    how: dict[str, Any]
    name: str = ""
    common: bool = False
    operational: bool = False

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, options: Options | None, owner: type) -> Any:
        if options is None:
            return self
        value = options.said.get(self.name, self.value)
        if value is _NEEDED:
            raise SettingError(f"--{self.name} is required")
        return value


class LeftOut(NamedTuple):
    """Stands where a part of a command has a flag that the command has no use for; its value is None.

    Attributes:
      instead: what to do, for the message.
    """

    instead: str

    def __get__(self, options: Options | None, owner: type) -> Any:
        return self if options is None else None


class SettingFlags(NamedTuple):
    """The settings of a kind of release as flags.

    Attributes:
      kind: of release.
      alone: of a selection, whether the settings that only one with a release of its own has, or the others.
    """

    kind: type[Release]
    alone: bool = False

    def flags(self) -> Iterator[Flag]:
        """A flag for each."""
        for name, own in self.kind.described().items():
            if own.alone == self.alone:
                metavar = "" if own.kind is bool else own.metavar or name.upper()
                how = {"type": own.kind} if own.kind in (int, float) else {}
                yield Flag(own.help, metavar, None, how, name, own.common)


_NEEDED = object()


def flag(
    metavar: str,
    help: str,
    *,
    value: Any = None,
    needed: bool = False,
    common: bool = False,
    operational: bool = False,
    **how: Any,
) -> Any:
    """A field for a flag with a value: its type follows from the annotation, or from `type`.

    Args:
      value: where the flag is not said.
      needed: who reads the field cannot do without; where it is not said that is an InputError.
      common, operational: see `Flag`.
      how: further arguments of argparse: `type`, `nargs`, `choices`; `positional`: it has no dashes.
    """
    default = _NEEDED if needed else value
    return Flag(help, metavar, default, how, common=common or needed, operational=operational)


def switch(help: str, value: bool = False, *, common: bool = False, operational: bool = False) -> Any:
    """A field for --name and --no_name; `value`: where neither is said."""
    return Flag(help, "", value, {}, common=common, operational=operational)


def left_out(instead: str = "") -> Any:
    """A field for a flag of a part that this command refuses; `instead` goes into the message."""
    return LeftOut(instead)


class Options:
    """The flags of a command as they were said.

    Attributes:
      group: the title in the help of the flags that a class itself declares; "" for none.
      release: settings that are flags too, before those that the class itself declares.
    """

    group: ClassVar[str] = ""
    release: ClassVar[SettingFlags | None] = None

    config: list[str] | None = flag(
        "FILE.yaml",
        "flags from a file; the command line wins",
        type=READ,
        common=True,
        operational=True,
    )
    quiet: bool = switch("print nothing but errors and warnings", operational=True)
    verbose: bool = switch("show Beam's log, and the trace of an error", operational=True)

    def __init__(self, said: Mapping[str, Any]):
        vars(self)["said"] = dict(said)
        for name, value in said.items():
            if not isinstance(getattr(type(self), name, None), Flag):
                vars(self)[name] = value  # of a command that has the flag

    #: Flags that were said -> their values, in the order of the command line after that of config files.
    said: dict[str, Any]

    if not TYPE_CHECKING:  # which would let any name be set

        def __setattr__(self, name: str, value: Any) -> NoReturn:
            raise AttributeError(f"{name}: what a flag says is changed in `said` alone")

    def say(self, text: str) -> None:
        """A line for the person at the terminal, unless --quiet."""
        if not self.quiet:
            tell(text)

    def require(self, *names: str) -> None:
        """Raise InputError for the first flag that is missing."""
        for name in names:
            if name not in self.said:
                raise SettingError(f"--{name} is required")

    @property
    def identifying(self) -> dict[str, Any]:
        """The flags that were said and are part of what a run is."""
        fields = {name: getattr(type(self), name, None) for name in self.said}
        return {
            name: self.said[name] for name, own in fields.items() if not getattr(own, "operational", False)
        }

    @classmethod
    def own_flags(cls) -> Iterator[Flag]:
        """The flags that this class itself declares, or a kind of release for it, with their types."""
        if (settings := vars(cls).get("release")) is not None:
            yield from settings.flags()
        has_flags = any(isinstance(field, Flag) for field in vars(cls).values())
        hints = _hints(cls) if has_flags else {}  # type: ignore[arg-type]  # mypy: hash of a class
        for name, field in vars(cls).items():
            if isinstance(field, Flag):
                how = {**_how(hints[name]), **field.how}
                yield dataclasses.replace(field, how=how, name=name)

    @classmethod
    def parts(cls) -> Iterator[type[Options]]:
        """This class and those that it is made of, in the order of the help."""
        for base in cls.__bases__:
            if issubclass(base, Options):
                yield from base.parts()
        yield cls

    @classmethod
    def declared(cls) -> Iterator[tuple[str, Flag]]:
        """(group, flag) of each flag, in the order of the help.

        A class that declares a flag of one of its parts anew, or leaves it out, replaces it.
        """
        for part in dict.fromkeys(cls.parts()):
            before = cls.__mro__[: cls.__mro__.index(part)]
            for own in part.own_flags():
                if not any(own.name in vars(other) for other in before):
                    yield vars(part).get("group", ""), own

    @classmethod
    def names(cls) -> list[str]:
        """Of all flags of this class and those that it is made of."""
        return [declared.name for part in cls.parts() for declared in part.own_flags()]


@functools.cache
def _hints(options: type[Options]) -> dict[str, Any]:
    return typing.get_type_hints(options)


def _how(hint: Any) -> dict[str, Any]:
    """Of argparse, for a field of this type."""
    inner = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    kind = inner[0] if inner else hint
    if typing.get_origin(kind) is list:
        return {"action": "append", **_how(typing.get_args(kind)[0])}
    return {"type": kind} if kind in (int, float) else {}


class JobOptions(Options):
    """What a job looks at whatever its command is, also where that has no such flag."""

    input: list[str] | None = None
    item_column: list[str] | None = None
    num_shards: int | None = None
    overwrite: bool = False
    insecure_test_key: str | None = None
    dry_run: bool = False
    result_file: NewFile | None = None
    users_at_least: int | None = None
    encrypt_intermediates: bool = False
    checkpoint: str | None = None
    passes_per_job: int | None = None


class SourceOptions(JobOptions):
    """Where to read."""

    group = "input"
    input: list[str] | None = flag(
        "PATTERN",
        "files, globs, a folder, - for stdin, delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE; repeatable",
        type=READ,
        nargs="+",
        action="extend",
        common=True,
    )
    input_format: str | None = flag(
        "FORMAT", f"{', '.join(formats.names())} (default: extension)", common=True
    )
    input_layout: str | None = flag("LAYOUT", "pairs (default) or grouped: a list of items per row")


class ColumnOptions(JobOptions):
    """What users and items are called."""

    group = "input"
    user_column: str | None = flag("NAME", "column of users (default user)", common=True)
    item_column: list[str] | None = flag(
        "NAME", "column of items (default item); repeat for composite items", common=True
    )
    item_type: list[str] | None = flag(
        "TYPE", "string (default), int or bytes, where the input declares none; repeat for composite items"
    )


class InputOptions(SourceOptions, ColumnOptions):
    """What to read."""

    group = "input"
    text_layout: str | None = flag("LAYOUT", "line (default) or file: what is one user's document")
    user: str | None = flag(
        "WHO", "of wet and warc: page (default), host or domain; or record, where no page occurs twice"
    )
    language: list[str] | None = flag("CODE", "pages of wet to read, such as eng; repeatable")
    http_status: list[int] | None = flag("N", "responses of warc to read (default 200); repeatable")
    tokenizer: str | None = flag("NAME", "words, whitespace or regex", common=True)
    token_pattern: str | None = flag("REGEX", "what a token is, for --tokenizer=regex")
    ngrams: str | None = flag("N or N:M", "items are sequences of this many tokens")
    on_null: str = flag("ACTION", "rows without a user or item: error (default) or drop", value="error")
    on_bad_row: str = flag("ACTION", "error (default) or skip", value="error")
    csv_multiline: bool = switch("quoted values of CSV may hold line breaks; needs a well-formed file")
    csv_delimiter: str | None = flag("CHARACTER", "between two fields of CSV (default: comma), such as ';'")
    partition: list[str] | None = flag(
        "COMPARISON",
        "read files in folders such as day=2026-11-01 alone, as in 'day>=2026-11-01'; repeatable",
    )
    table_version: int | None = flag("N", "version or snapshot of a table (default: the current one)")
    lowercase: bool = switch("map text to lower case before tokenising")


class BudgetOptions(JobOptions):
    """The budget of the whole job."""

    group = "privacy"
    epsilon: float = flag("EPS", "total epsilon of the job; required", needed=True)
    delta: float = flag("DELTA", "total delta of the job; required", needed=True)


class OutputOptions(JobOptions):
    """Where results go, and how the job talks."""

    group = "output"
    output: str = flag(
        "PREFIX",
        "shards PREFIX-00000-of-000NN, ledger PREFIX.ledger.json; or one file, such as x.parquet",
        type=WRITTEN_PREFIX,
        needed=True,
        operational=True,  # its place is part of what a run is, however it is written
    )
    output_format: str | None = flag("FORMAT", "parquet (default), text, csv or jsonl", common=True)
    num_output_shards: int | None = flag("N", "default: one per 5 million released items or 256 MB of them")
    overwrite: bool = switch("replace earlier output of the same prefix", common=True, operational=True)
    allow_empty: bool = switch(
        "an input without a single row, or of which every row is dropped, is no error", operational=True
    )
    num_shards: int | None = flag("N", "partitions of the items (default: from the input)", operational=True)
    public_items: str | None = flag(
        "FILE", "items, one per line, released without budget", type=READ, common=True
    )
    insecure_test_key: str | None = flag("HEX", "fixed key for tests; the output is NOT PRIVATE")
    not_private_counts: NewFile | None = flag(
        "FILE",
        "write exact counts of dropped rows and tokens there; NOT PRIVATE, keep it with the input",
        type=WRITTEN,
        operational=True,
    )
    result_file: NewFile | None = flag(
        "FILE", "what the run has released, as JSON: outputs, ledger, counts", type=WRITTEN, operational=True
    )
    users_at_least: int | None = flag(
        "N", "a public number of users (default 1000), for --delta", common=True, operational=True
    )
    dry_run: bool = switch("check everything, print the plan, read no data", common=True, operational=True)
    encrypt_intermediates: bool = switch(
        "encrypt the run's private folder, under the key DPBEAM_FOLDER_KEY in the environment of launcher and"
        " workers",
        operational=True,
    )


class StoreOptions(JobOptions):
    """Which account."""

    group = "account of the budget"
    budget: str = flag(
        "URL", "accounts: SQLite file or postgresql://HOST/NAME", needed=True, operational=True
    )
    dataset: str = flag("NAME", "whose account is charged", needed=True)


class ReleaseIdOptions(StoreOptions):
    """Which release of an account."""

    group = "account of the budget"
    release_id: str = flag("ID", "of the release; a retry with it pays nothing", needed=True)


class AccountOptions(ReleaseIdOptions):
    """The account that a run is charged to; every command that releases has them."""

    group = "what an account is told of the data"
    budget_period: str | None = flag(
        "DAY or FIRST:LAST", "days of the data that are read, where the budget renews"
    )
    charge_test_key: bool = switch("charge a run with --insecure_test_key too", operational=True)


class RunnerOptions(JobOptions):
    """On what a release may run; every command that releases has them."""

    untested_runner: bool = switch("take a --runner that dpbeam was never tested on", operational=True)


class ReleaseOptions(OutputOptions, AccountOptions, RunnerOptions):
    """What every command has that releases once."""


class CheckpointOptions(JobOptions):
    """Going on with a run that was killed."""

    group = "going on after a failure"
    checkpoint: str | None = flag(
        "DIR",
        "keep the run's private state there: killed, the same command goes on from its last checkpoint",
        type=FOLDER,
        operational=True,
    )
    passes_per_job: int | None = flag("N", "passes between two checkpoints (default 32)", operational=True)
