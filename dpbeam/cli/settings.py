"""From parsed flags to the settings objects of the library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpbeam.errors import InputError
from dpbeam.jobs.options import InputOptions, Options

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
        raise type(error)(str(error).replace("--method", name)) from None


#: Flags of the input -> fields of `InputSpec` that have other names.
_FIELDS = {
    "item_column": "item_columns",
    "item_type": "item_types",
    "input_format": "format",
    "input_layout": "layout",
    "language": "languages",
    "http_status": "http_statuses",
    "partition": "partitions",
}


def input_spec(options: InputOptions) -> InputSpec:
    """The input that the flags describe."""
    from dpbeam.io.spec import InputSpec

    names = set(InputOptions.names()) - {"input", *Options.names()}
    fields = {_FIELDS.get(name, name): getattr(options, name) for name in names}
    return InputSpec.create(options.input or (), **fields)
