"""What to read: files, format, layout, columns, tokeniser, and what to do with bad rows.

`InputSpec` is plain data that travels to the workers. Everything that can be checked without opening a file
is checked by `validate`, and each message names the command-line flag that fixes it.

Layouts:

- `pairs`: a row is one (user, item) pair, or one (user, text) pair with a tokeniser. Rows of a user may lie
  anywhere.
- `grouped`: a row is one user with a list of items, or with one text. Without a user column each row is, by
  declaration, one whole user; with one, rows of the same user are merged.
- text files: a line, or a whole file, is one whole user.
- crawls: a page is a text; its user is the page, its host or its registered domain, whose pages may lie anywhere, or
  the record itself, one whole user.

The type of the items is settled before any row is seen, for it shows in the output: the schema of Parquet declares it,
elsewhere `item_types` does, strings by default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from dpbeam.errors import DataError, InputError, SettingError, advice
from dpbeam.io.formats import find, formats, infer_format
from dpbeam.io.formats.base import Format
from dpbeam.io.partitions import Filter
from dpbeam.io.paths import check_text, local_path
from dpbeam.io.patterns import of_folder
from dpbeam.io.tables import Table
from dpbeam.kernels.canonical import ID_KINDS, STRING

LAYOUTS = ("pairs", "grouped")
TEXT_LAYOUTS = ("line", "file")
CRAWL_USERS = ("record", "page", "host", "domain")
TOKENIZERS = ("words", "whitespace", "regex")

MAX_NGRAM = 20
MAX_SHOWN = 30  # columns in a message
USER, ITEM = "user", "item"  # columns that nobody has to name
#: Where a field's flag has another name.
FLAG_OF = {"languages": "language", "http_statuses": "http_status"}
# What surely is a name: a first line without a header could hold anything else.
_NAME = re.compile(r"[^\W\d][\w .:/#-]{0,63}")


@dataclass(frozen=True)
class InputSpec:
    """A complete description of the input. `InputSpec.create` fills defaults and validates.

    Attributes:
      patterns: files or globs (`--input`).
      format: name of a `Format` (`--input_format`).
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
      csv_delimiter: the character between two fields of CSV (`--csv_delimiter`).
      user: one of CRAWL_USERS (`--user`); crawls only.
      languages: ISO 639-3 codes of the first language of the pages to read; none: all (`--language`); wet only.
      http_statuses: of the responses to read (`--http_status`); warc only.
      partitions: comparisons that folders such as `day=2026-11-01` must meet (`--partition`).
      table_version: version or snapshot of a table (`--table_version`); None: the current one, until it is looked up.
      table: what the launcher has found of it.
      defaulted: columns that nobody named, taken because most files call them so.
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
    csv_delimiter: str = ","
    user: str = "page"
    languages: tuple[str, ...] = ()
    http_statuses: tuple[int, ...] = (200,)
    partitions: tuple[str, ...] = ()
    table_version: int | None = None
    table: Table | None = None
    defaulted: tuple[str, ...] = ()

    @classmethod
    def create(
        cls,
        patterns: Sequence[str],
        *,
        format: str | None = None,
        layout: str | None = None,
        user_column: str | None = None,
        item_columns: Sequence[str] | None = None,
        tokenizer: str | None = None,
        token_pattern: str | None = None,
        lowercase: bool = False,
        ngrams: str | int | Sequence[int] | None = None,
        on_null: str = "error",
        on_bad_row: str = "error",
        item_types: Sequence[str] | None = None,
        **options: Any,
    ) -> InputSpec:
        """Fill in what was left open (None), check everything, and return the spec.

        Defaults: the format from the extensions, layout `pairs`, columns `user` (of pairs) and `item`, and for text, or
        where a token pattern is given, a tokeniser (`words`, `regex`). One item type stands for all item columns.

        Args:
          options: fields that are for some formats alone; None or empty stands for their default.

        Raises:
          InputError: naming the flag at fault.
        """
        item_columns = item_columns or ()
        patterns = tuple(of_folder(local_path(pattern, "--input")) for pattern in patterns)
        if not patterns:
            raise SettingError("--input: no file or pattern given")
        format = format or infer_format(patterns)
        form = find(format)
        if not form.has_columns:
            instead, users = form.instead
            _refuse(layout is not None, "--input_layout", f"{format} has no columns: use {instead}")
            _refuse(user_column is not None, "--user_column", f"{format} has no columns: {users}")
            _refuse(
                bool(item_columns),
                "--item_column",
                f"{format} has no columns: items are tokens (--tokenizer)",
            )
        chosen: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in options.items()}
        chosen = {n: v for n, v in chosen.items() if not (v is None or v is False or v == ())}
        if chosen.get("csv_delimiter") == "\\t":  # as people type it
            chosen["csv_delimiter"] = "\t"
        if tokenizer is None and token_pattern is not None:
            tokenizer = "regex"
        if tokenizer is None and not form.has_columns:
            tokenizer = "words"
        layout = layout or ("pairs" if form.has_columns else "grouped")
        defaulted = []
        if form.has_columns and user_column is None and layout == "pairs":
            defaulted.append(user_column := USER)
        if form.has_columns and not item_columns:
            defaulted.append(ITEM)
            item_columns = (ITEM,)
        spec = cls(
            patterns=patterns,
            format=format,
            layout=layout,
            user_column=user_column,
            item_columns=tuple(item_columns),
            tokenizer=tokenizer,
            token_pattern=token_pattern,
            lowercase=lowercase,
            ngrams=parse_ngrams(ngrams),
            on_null=on_null,
            on_bad_row=on_bad_row,
            item_types=_each(item_types, max(len(item_columns), 1)),
            defaulted=tuple(defaulted),
            **chosen,
        )
        spec._refuse_options(chosen)
        spec.validate()
        return spec

    @property
    def file_format(self) -> Format:
        """What is known of the format."""
        return find(self.format)

    @property
    def complete_users(self) -> bool:
        """Whether each row, line or file is, by declaration, one whole user."""
        return self.file_format.complete_users(self)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that hold numbers, in place of items."""
        return ()

    @property
    def lists(self) -> tuple[str, ...]:
        """The columns that hold a list in each row."""
        return self.item_columns if self.layout == "grouped" else ()

    @property
    def fix_row(self) -> str:
        """What to do about a bad row of text."""
        return "fix the line, or pass --on_bad_row=skip"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read, without repetition."""
        names = (() if self.user_column is None else (self.user_column,)) + self.item_columns
        return tuple(dict.fromkeys(names))

    def flag_of(self, column: str) -> str:
        """The flag that names a column."""
        return "--user_column" if column == self.user_column else "--item_column"

    def no_columns(
        self, path: str, present: Sequence[str], shown: Sequence[str], hint: str = ""
    ) -> InputError:
        """The error for columns that a file lacks, all at once, or that it has several times.

        Args:
          present: the columns of the file.
          shown: those that surely are names, and no data.
        """
        missing = [name for name in self.columns if name not in present]
        if not missing:
            twice = next(name for name in self.columns if present.count(name) > 1)
            return DataError(f"{self.flag_of(twice)}: {path} has several columns '{twice}'")
        flags = ", ".join(dict.fromkeys(map(self.flag_of, missing)))
        names = [name for name in shown if _NAME.fullmatch(name)][:MAX_SHOWN]
        more = f" and {len(shown) - len(names)} more" if len(shown) > len(names) else ""
        there = f", only {', '.join(names)}{more}" if names else ""
        blank = [name for name in missing if any(name == other.strip() for other in present)]
        if blank and not hint:
            hint = f"; blanks stand around '{blank[0]}' in its header: fix it, or name the column with them"
        what = "column" if len(missing) == 1 else "columns"
        listed = ", ".join(f"'{name}'" for name in missing)
        if set(missing) <= set(self.defaulted):
            flags += " is required" if len(missing) == 1 else " are required"
            if self.user_column in missing and not hint:
                hint = advice("; pass --input_layout=grouped if every row is one user")
        return DataError(f"{flags}: {path} has no {what} {listed}{there}{hint}")

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
        form = self.file_format
        for pattern in self.patterns:
            check_text(pattern, "--input", "; rename it")
        for text in self.partitions:
            check_text(text, "--partition")
        check_text(self.token_pattern or "", "--token_pattern")
        _one_of("--input_layout", self.layout, LAYOUTS)
        _one_of("--text_layout", self.text_layout, TEXT_LAYOUTS)
        _one_of("--on_null", self.on_null, ("error", "drop"))
        _one_of("--on_bad_row", self.on_bad_row, ("error", "skip"))
        if form.has_columns:
            self._validate_columns()
        else:
            _refuse(bool(self.columns), "--user_column, --item_column", f"{self.format} has no columns")
            needs = f"{self.format} needs one of " + ", ".join(TOKENIZERS)
            _refuse(self.tokenizer is None, "--tokenizer", needs)
        self._refuse_options(f.name for f in fields(self) if getattr(self, f.name) != f.default)
        self._validate_tokenizer()
        self._validate_types()
        self._validate_crawl()
        for text in self.partitions:
            Filter.parse(text)
        one = len(self.csv_delimiter) == 1 and self.csv_delimiter.isascii()
        if not one or self.csv_delimiter.isalnum() or self.csv_delimiter in '"\r\n\0':
            raise SettingError(
                f"--csv_delimiter: expected one character of ASCII, no letter or digit, got '{self.csv_delimiter}'"
            )

    def _validate_types(self) -> None:
        for item_type in self.item_types or ():
            _one_of("--item_type", item_type, ID_KINDS)
        if self.item_types is not None:
            columns = max(len(self.item_columns), 1)
            if len(self.item_types) != columns:
                raise SettingError(
                    f"--item_type: {len(self.item_types)} types for {columns} item columns; give one for all, or "
                    "one each in the order of --item_column"
                )
            _refuse(
                self.tokenizer is not None and self.item_types != (STRING,),
                "--item_type",
                "tokens are strings; leave it out",
            )

    def _refuse_options(self, options: Iterable[str]) -> None:
        """Refuse options that are for other formats alone."""
        for name in options:
            of = [format.name for format in formats() if name in format.options]
            _refuse(
                bool(of) and self.format not in of,
                f"--{FLAG_OF.get(name, name)}",
                f"is for --input_format={' or '.join(of)}, not {self.format}",
            )

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
            raise SettingError(
                f"--item_column is required for --input_format={self.format}: name the column of items"
            )
        _refuse(self.user_column == "", "--user_column", "must not be empty")
        _refuse("" in self.item_columns, "--item_column", "must not be empty")
        if len(set(self.item_columns)) < len(self.item_columns):
            raise SettingError("--item_column: the same column is named twice")
        if self.layout == "pairs":
            if self.user_column is None:
                raise SettingError(
                    "--user_column is required for --input_layout=pairs: name the column of users, "
                    "or pass --input_layout=grouped if every row is one user"
                )
            if self.user_column in self.item_columns:
                raise SettingError(
                    f"--item_column: '{self.user_column}' is also --user_column; every user would be an item"
                )
        elif len(self.item_columns) > 1:
            raise SettingError("--item_column: --input_layout=grouped takes one column, the list of items")
        elif not self.file_format.has_lists and self.tokenizer is None:
            others = [format.name for format in formats() if format.has_lists and not format.is_table]
            raise SettingError(
                f"--input_layout=grouped: {self.format} has no lists; pass --tokenizer to take items from a "
                f"text column, or use {', '.join(others[:-1])} or {others[-1]}"
            )
        if self.tokenizer is not None and len(self.item_columns) > 1:
            raise SettingError("--tokenizer: needs a single --item_column, which holds the text")

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
                raise SettingError("--tokenizer=regex needs --token_pattern")
            compile_pattern(self.token_pattern)
        else:
            _refuse(self.token_pattern is not None, "--token_pattern", "needs --tokenizer=regex")
        parse_ngrams(self.ngrams)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile --token_pattern. Raises InputError if it is empty, no regular expression, or has several groups."""
    if not pattern:
        raise SettingError("--token_pattern: is empty, and no token ever matches it")
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise SettingError(f"--token_pattern: not a regular expression: {error}") from None
    if compiled.groups > 1:
        raise SettingError(
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
    if isinstance(value, str) and not re.fullmatch("[0-9:]*", value):
        numbers = []  # int takes underscores, blanks and digits of other scripts
    if len(numbers) == 1:
        numbers *= 2
    if len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1] <= MAX_NGRAM:
        shown = value if isinstance(value, (str, int)) else ":".join(map(str, parts))
        raise SettingError(f"--ngrams: expected N or N:M with 1 <= N <= M <= {MAX_NGRAM}, got '{shown}'")
    return (numbers[0], numbers[1])


def _each(types: Sequence[str] | None, columns: int) -> tuple[str, ...] | None:
    """A type for every column; one stands for all."""
    if types is None:
        return None
    return tuple(types) * columns if len(types) == 1 else tuple(types)


def _one_of(flag: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise SettingError(f"{flag}: expected one of {', '.join(choices)}, got '{value}'")


def _refuse(condition: bool, flag: str, reason: str) -> None:
    if condition:
        raise SettingError(f"{flag}: {reason}")
