"""What to read: files, format, layout, columns, tokeniser, and what to do with bad rows.

`InputSpec` is plain data that travels to the workers. Everything that can be checked without opening a file
is checked by `validate`, and each message names the command-line flag that mends it.

Layouts:

- `pairs`: a row is one (user, item) pair, or one (user, text) pair with a tokeniser. Rows of a user may lie
  anywhere.
- `grouped`: a row is one user with a list of items, or with one text. Without a user column each row is, by
  declaration, one whole user; with one, rows of the same user are merged.
- text files: a line, or a whole file, is one whole user.
- crawls: a page is a text; its user is the page, its host or its registered domain, whose pages may lie anywhere, or
  the record itself, one whole user.

The type of the items is settled before any row is seen, for it shows in the output: the schema of Parquet declares it,
elsewhere `item_types` does, strings unless told otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

from dpbeam.errors import InputError
from dpbeam.io.paths import infer_format, local_path
from dpbeam.kernels.canonical import KINDS, STRING

FORMATS = ("parquet", "jsonl", "csv", "tsv", "text", "wet", "warc")
CRAWL_FORMATS = ("wet", "warc")
TEXT_FORMATS = ("text", *CRAWL_FORMATS)
LAYOUTS = ("pairs", "grouped")
TEXT_LAYOUTS = ("line", "file")
CRAWL_USERS = ("record", "page", "host", "domain")
TOKENIZERS = ("words", "whitespace", "regex")

MAX_NGRAM = 20
MAX_SHOWN = 30  # columns in a message


@dataclass(frozen=True)
class InputSpec:
    """A complete description of the input. `InputSpec.create` fills defaults and validates.

    Attributes:
      patterns: files or globs (`--input`).
      format: one of FORMATS (`--input_format`).
      layout: one of LAYOUTS (`--input_layout`); not used by text.
      user_column: name, or None where each row is a user (`--user_column`).
      item_columns: names; several make composite items (`--item_column`).
      text_layout: one of TEXT_LAYOUTS (`--text_layout`); text only.
      tokenizer: one of TOKENIZERS, or None: items are taken as they are (`--tokenizer`).
      token_pattern: regular expression of the `regex` tokeniser (`--token_pattern`).
      lowercase: map text to lower case before tokenising (`--lowercase`).
      ngrams: (lo, hi) lengths of the token sequences that are items (`--ngrams`).
      on_null: `error` or `drop` rows without a user or item, null or empty (`--on_null`).
      on_bad_row: `error` or `skip` rows that cannot be parsed (`--on_bad_row`).
      item_types: string, int or bytes for each item column, or None: not declared here (`--item_type`).
      csv_multiline: quoted values of CSV may hold line breaks (`--csv_multiline`).
      user: one of CRAWL_USERS (`--user`); crawls only.
      languages: ISO 639-3 codes of the first language of the pages to read; none: all (`--language`); wet only.
      http_statuses: of the responses to read (`--http_status`); warc only.
    """

    patterns: tuple[str, ...]
    format: str
    layout: str = "pairs"
    user_column: str | None = None
    item_columns: tuple[str, ...] = ()
    text_layout: str = "line"
    tokenizer: str | None = None
    token_pattern: str | None = None
    lowercase: bool = False
    ngrams: tuple[int, int] = (1, 1)
    on_null: str = "error"
    on_bad_row: str = "error"
    item_types: tuple[str, ...] | None = None
    csv_multiline: bool = False
    user: str = "page"
    languages: tuple[str, ...] = ()
    http_statuses: tuple[int, ...] = (200,)

    @classmethod
    def create(
        cls,
        patterns: Sequence[str],
        *,
        format: str | None = None,
        layout: str | None = None,
        user_column: str | None = None,
        item_columns: Sequence[str] = (),
        text_layout: str | None = None,
        tokenizer: str | None = None,
        token_pattern: str | None = None,
        lowercase: bool = False,
        ngrams: str | int | Sequence[int] | None = None,
        on_null: str = "error",
        on_bad_row: str = "error",
        item_types: Sequence[str] | None = None,
        csv_multiline: bool = False,
        user: str | None = None,
        languages: Sequence[str] = (),
        http_statuses: Sequence[int] = (),
    ) -> InputSpec:
        """Fill in what was left open (None), check everything, and return the spec.

        Defaults: the format from the extensions, layout `pairs`, text layout `line`, and for text, or where a
        token pattern is given, a tokeniser (`words`, `regex`). One item type stands for all item columns.

        Raises:
          InputError: naming the flag at fault.
        """
        patterns = tuple(local_path(pattern, "--input") for pattern in patterns)
        if not patterns:
            raise InputError("--input: no file or pattern given")
        format = format or infer_format(patterns)
        is_text = format in TEXT_FORMATS
        if is_text:
            instead, users = ("--text_layout", "each line or file is a user")
            if format in CRAWL_FORMATS:
                instead, users = ("--user", "use --user")
            _refuse(layout is not None, "--input_layout", f"{format} has no columns: use {instead}")
            _refuse(user_column is not None, "--user_column", f"{format} has no columns: {users}")
            _refuse(
                bool(item_columns),
                "--item_column",
                f"{format} has no columns: items are tokens (--tokenizer)",
            )
        if format != "text":
            _refuse(text_layout is not None, "--text_layout", f"is for --input_format=text, not {format}")
        if format not in CRAWL_FORMATS:
            _refuse(user is not None, "--user", f"is for --input_format=wet or warc, not {format}")
        if format != "wet":
            _refuse(
                bool(languages),
                "--language",
                f"is for --input_format=wet, whose records name their language, not {format}",
            )
        if format != "warc":
            _refuse(bool(http_statuses), "--http_status", f"is for --input_format=warc, not {format}")
        if tokenizer is None and token_pattern is not None:
            tokenizer = "regex"
        if tokenizer is None and is_text:
            tokenizer = "words"
        spec = cls(
            patterns=patterns,
            format=format,
            layout=layout or ("grouped" if is_text else "pairs"),
            user_column=user_column,
            item_columns=tuple(item_columns),
            text_layout=text_layout or "line",
            tokenizer=tokenizer,
            token_pattern=token_pattern,
            lowercase=lowercase,
            ngrams=parse_ngrams(ngrams),
            on_null=on_null,
            on_bad_row=on_bad_row,
            item_types=_each(item_types, max(len(item_columns), 1)),
            csv_multiline=csv_multiline,
            user=user or "page",
            languages=tuple(languages),
            http_statuses=tuple(http_statuses) or (200,),
        )
        spec.validate()
        return spec

    @property
    def complete_users(self) -> bool:
        """Whether each row, line or file is, by declaration, one whole user."""
        if self.format in CRAWL_FORMATS:
            return self.user == "record"
        return self.format == "text" or (self.layout == "grouped" and self.user_column is None)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read, without repetition."""
        names = (() if self.user_column is None else (self.user_column,)) + self.item_columns
        return tuple(dict.fromkeys(names))

    def flag_of(self, column: str) -> str:
        """The flag that names a column."""
        return "--user_column" if column == self.user_column else "--item_column"

    def no_column(self, path: str, column: str, there: Sequence[str]) -> InputError:
        """The error for a column that a file lacks or has several times, with those that there are."""
        if column in there:
            return InputError(f"{self.flag_of(column)}: {path} has several columns '{column}'")
        shown = [name for name in there if name][:MAX_SHOWN]
        more = f" and {len(there) - len(shown)} more" if len(there) > len(shown) else ""
        names = f", only {', '.join(shown)}{more}" if shown else ""
        return InputError(f"{self.flag_of(column)}: {path} has no column '{column}'{names}")

    @property
    def item_names(self) -> tuple[str, ...]:
        """Names of the output columns that hold an item: `item`, or the composite's own names."""
        return self.item_columns if len(self.item_columns) > 1 else ("item",)

    @property
    def declared_types(self) -> tuple[str, ...]:
        """Types of the items where no schema tells: as declared, else strings."""
        return self.item_types or (STRING,) * max(len(self.item_columns), 1)

    def validate(self) -> None:
        """Check all that needs no file. Raises InputError."""
        _one_of("--input_format", self.format, FORMATS)
        _one_of("--input_layout", self.layout, LAYOUTS)
        _one_of("--text_layout", self.text_layout, TEXT_LAYOUTS)
        _one_of("--on_null", self.on_null, ("error", "drop"))
        _one_of("--on_bad_row", self.on_bad_row, ("error", "skip"))
        if self.format in TEXT_FORMATS:
            _refuse(bool(self.columns), "--user_column, --item_column", f"{self.format} has no columns")
            needs = f"{self.format} needs one of " + ", ".join(TOKENIZERS)
            _refuse(self.tokenizer is None, "--tokenizer", needs)
        else:
            self._validate_columns()
        self._validate_tokenizer()
        self._validate_types()
        self._validate_crawl()

    def _validate_types(self) -> None:
        for item_type in self.item_types or ():
            _one_of("--item_type", item_type, KINDS)
        if self.item_types is not None:
            columns = max(len(self.item_columns), 1)
            if len(self.item_types) != columns:
                raise InputError(
                    f"--item_type: {len(self.item_types)} types for {columns} item columns; give one for all, or "
                    "one each in the order of --item_column"
                )
            _refuse(
                self.tokenizer is not None and self.item_types != (STRING,),
                "--item_type",
                "tokens are strings; leave it out",
            )
        _refuse(self.csv_multiline and self.format != "csv", "--csv_multiline", "is for --input_format=csv")

    def _validate_crawl(self) -> None:
        _one_of("--user", self.user, CRAWL_USERS)
        for language in self.languages:
            _refuse(
                re.fullmatch("[a-z]{3}", language) is None,
                "--language",
                f"expected three small letters of ISO 639-3, such as eng, got '{language}'",
            )
        for status in self.http_statuses:
            _refuse(not 100 <= status <= 599, "--http_status", f"must lie in [100, 599], got {status}")

    def _validate_columns(self) -> None:
        if not self.item_columns:
            raise InputError(
                f"--item_column is required for --input_format={self.format}: name the column of items"
            )
        for flag, name in [("--user_column", self.user_column)] + [
            ("--item_column", n) for n in self.item_columns
        ]:
            _refuse(name == "", flag, "must not be empty")
        if len(set(self.item_columns)) < len(self.item_columns):
            raise InputError("--item_column: the same column is named twice")
        if self.layout == "pairs":
            if self.user_column is None:
                raise InputError(
                    "--user_column is required for --input_layout=pairs: name the column of users, "
                    "or pass --input_layout=grouped if every row is one user"
                )
            if self.user_column in self.item_columns:
                raise InputError(
                    f"--item_column: '{self.user_column}' is also --user_column; every user would be an item"
                )
        elif len(self.item_columns) > 1:
            raise InputError("--item_column: --input_layout=grouped takes one column, the list of items")
        elif self.format in ("csv", "tsv") and self.tokenizer is None:
            raise InputError(
                f"--input_layout=grouped: {self.format} has no lists; pass --tokenizer to take items from a "
                "text column, or use parquet or jsonl"
            )
        if self.tokenizer is not None and len(self.item_columns) > 1:
            raise InputError("--tokenizer: needs a single --item_column, which holds the text")

    def _validate_tokenizer(self) -> None:
        if self.tokenizer is None:
            _refuse(
                self.lowercase, "--lowercase", "needs --tokenizer: items without one are taken as they are"
            )
            _refuse(self.ngrams != (1, 1), "--ngrams", "needs --tokenizer")
        else:
            _one_of("--tokenizer", self.tokenizer, TOKENIZERS)
        if self.tokenizer == "regex":
            if self.token_pattern is None:
                raise InputError("--tokenizer=regex needs --token_pattern")
            compile_pattern(self.token_pattern)
        else:
            _refuse(self.token_pattern is not None, "--token_pattern", "needs --tokenizer=regex")
        parse_ngrams(self.ngrams)

    def describe(self) -> dict[str, object]:
        """The spec as plain data, for plans and display."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile --token_pattern. Raises InputError if it is not a regular expression or has several groups."""
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"--token_pattern: not a regular expression: {error}") from None
    if compiled.groups > 1:
        raise InputError(
            f"--token_pattern: has {compiled.groups} groups, at most one may capture; "
            "write (?:...) for the others"
        )
    return compiled


def parse_ngrams(value: str | int | Sequence[int] | None) -> tuple[int, int]:
    """(lo, hi) of `--ngrams N` (exactly N tokens) or `--ngrams N:M` (N to M tokens)."""
    if value is None:
        return (1, 1)
    parts = (
        value.split(":") if isinstance(value, str) else ([value] if isinstance(value, int) else list(value))
    )
    try:
        numbers = [int(part) for part in parts]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) == 1:
        numbers *= 2
    if len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1] <= MAX_NGRAM:
        shown = value if isinstance(value, (str, int)) else ":".join(map(str, parts))
        raise InputError(f"--ngrams: expected N or N:M with 1 <= N <= M <= {MAX_NGRAM}, got '{shown}'")
    return (numbers[0], numbers[1])


def _each(types: Sequence[str] | None, columns: int) -> tuple[str, ...] | None:
    """A type for every column; one stands for all."""
    if types is None:
        return None
    return tuple(types) * columns if len(types) == 1 else tuple(types)


def _one_of(flag: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InputError(f"{flag}: expected one of {', '.join(choices)}, got '{value}'")


def _refuse(condition: bool, flag: str, reason: str) -> None:
    if condition:
        raise InputError(f"{flag}: {reason}")
