"""From parsed flags to the settings objects of the library."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dpbeam.io.spec import InputSpec
from dpbeam.selection.config import SelectionConfig

_SELECTION = {field.name for field in fields(SelectionConfig)}


def selection_config(given: dict[str, Any]) -> SelectionConfig:
    """The selection settings among the given flags; the flags' names are the fields' names."""
    return SelectionConfig(**{name: value for name, value in given.items() if name in _SELECTION})


def selection_flags(given: dict[str, Any]) -> list[str]:
    """Names of the given flags that set a selection, its budget apart."""
    return [name for name in given if name in _SELECTION - {"epsilon", "delta"}]


def input_spec(given: dict[str, Any]) -> InputSpec:
    """The input that the flags describe."""
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
    )
