"""From parsed flags to the settings objects of the library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpbeam.errors import InputError
from dpbeam.jobs.options import InputOptions

if TYPE_CHECKING:
    from dpbeam.io.spec import InputSpec


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
