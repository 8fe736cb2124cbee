"""From parsed flags to the settings objects of the library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpbeam.errors import InputError
from dpbeam.selection.config import SelectionConfig
from dpbeam.selectors.registry import DEFAULT_METHOD, all_settings

if TYPE_CHECKING:
    from dpbeam.io.spec import InputSpec


_COMMON = ("max_items_per_user", "min_users", "preset", "noisy_weights")


def selection_config(given: Mapping[str, Any]) -> SelectionConfig:
    """The selection settings among the given flags; the flags' names are the fields' names."""
    chosen = {name: given[name] for name in ("method", *selection_flags(given)) if name in given}
    return SelectionConfig(given["epsilon"], given["delta"], **chosen)


def check_selection(given: Mapping[str, Any], method: str = DEFAULT_METHOD) -> None:
    """Refuse a method or settings that no plan takes, before anything large is imported.

    Args:
      method: where the flags name none.

    Raises:
      InputError: naming the flag.
    """
    selection_config({"method": method, **given}).request()


@contextlib.contextmanager
def naming_selector() -> Iterator[None]:
    """The method of a domain's selection is named by --selector.

    Raises:
      InputError: as within.
    """
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace("--method", "--selector")) from None


def selection_flags(given: Mapping[str, Any]) -> list[str]:
    """Names of the given flags that set a selection, its budget and method apart."""
    known = {*_COMMON, *all_settings()}
    return [name for name in given if name in known]


def input_spec(given: dict[str, Any]) -> InputSpec:
    """The input that the flags describe."""
    from dpbeam.io.spec import InputSpec

    return InputSpec.create(
        given.get("input", ()),
        format=given.get("input_format"),
        layout=given.get("input_layout"),
        user_column=given.get("user_column"),
        item_columns=given.get("item_column", ()),
        text_layout=given.get("text_layout"),
        tokenizer=given.get("tokenizer"),
        token_pattern=given.get("token_pattern"),
        lowercase=given.get("lowercase", False),
        ngrams=given.get("ngrams"),
        on_null=given.get("on_null", "error"),
        on_bad_row=given.get("on_bad_row", "error"),
        item_types=given.get("item_type"),
        csv_multiline=given.get("csv_multiline", False),
        csv_delimiter=given.get("csv_delimiter"),
        partitions=given.get("partition", ()),
        table_version=given.get("table_version"),
        user=given.get("user"),
        languages=given.get("language", ()),
        http_statuses=given.get("http_status", ()),
    )
