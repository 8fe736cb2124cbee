"""Writing to a store's writer, and giving up."""

from collections.abc import Callable

import pytest

from dpbeam.storage.remote import Upload

#: How a writer is left that is not closed.
WAYS = ("abort", "exit", "garbage")


def write(writer: Upload, data: bytes, step: int = 7) -> None:
    """Write in steps, each taken whole."""
    for start in range(0, len(data), step):
        assert writer.write(data[start : start + step]) == len(data[start : start + step])


def give_up(make: Callable[[], Upload], way: str) -> None:
    """Leave the writer that is made, by one of WAYS."""
    if way == "exit":
        with pytest.raises(KeyError), make():
            raise KeyError
    else:
        writer = make()
        if way == "abort":
            writer.abort()
        del writer
