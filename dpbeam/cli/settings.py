"""From parsed flags to the settings objects of the library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpbeam.errors import InputError
from dpbeam.jobs.options import BudgetOptions, InputOptions, Options
from dpbeam.selection.config import SelectionConfig

if TYPE_CHECKING:
    from dpbeam.io.spec import InputSpec


_SELECTION = ("max_items_per_user", "min_users", "preset", "noisy_weights")


def selection_config(options: BudgetOptions, method: str | None = None) -> SelectionConfig:
    """The selection settings among the flags, whose names are the fields' names.

    Args:
      method: where --method is no flag of the command.
    """
    chosen = {name: options.said[name] for name in ("method", *_SELECTION) if name in options.said}
    if method is not None:
        chosen["method"] = method
    return SelectionConfig(options.epsilon, options.delta, settings=options.said.get("set"), **chosen)


def check_selection(options: BudgetOptions, method: str | None = None) -> None:
    """Refuse a method or settings that no plan takes, before anything large is imported; `method`: as above.

    Raises:
      InputError: naming the flag.
    """
    selection_config(options, method).request()


@contextlib.contextmanager
def naming_selector(name: str = "--selector") -> Iterator[None]:
    """A method is named by something else than --method: that of a domain's selection by --selector.

    Raises:
      InputError: as within.
    """
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace("--method", name)) from None


def selection_flags(options: Options) -> list[str]:
    """Names of the flags that set a selection, its budget and method apart."""
    return [name for name in options.said if name in (*_SELECTION, "set")]


def input_spec(options: InputOptions) -> InputSpec:
    """The input that the flags describe."""
    from dpbeam.io.spec import InputSpec

    return InputSpec.create(
        options.input or (),
        format=options.input_format,
        layout=options.input_layout,
        user_column=options.user_column,
        item_columns=options.item_column or (),
        text_layout=options.text_layout,
        tokenizer=options.tokenizer,
        token_pattern=options.token_pattern,
        lowercase=options.lowercase,
        ngrams=options.ngrams,
        on_null=options.on_null,
        on_bad_row=options.on_bad_row,
        item_types=options.item_type,
        csv_multiline=options.csv_multiline,
        csv_delimiter=options.csv_delimiter,
        partitions=options.partition or (),
        table_version=options.table_version,
        user=options.user,
        languages=options.language or (),
        http_statuses=options.http_status or (),
    )
