"""The tests of a contract by name, to run them where there is no pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def checks(contract: object) -> Iterator[tuple[str, Callable[[], None]]]:
    """Name and test of each `test_` method, base classes first, in the order in which they are written."""
    names = [
        name for one in reversed(type(contract).__mro__) for name in vars(one) if name.startswith("test_")
    ]
    for name in dict.fromkeys(names):
        yield name.removeprefix("test_"), getattr(contract, name)
