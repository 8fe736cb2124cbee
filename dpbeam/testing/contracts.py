"""The tests of a contract by name, to run them where there is no pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def checks(contract: object) -> Iterator[tuple[str, Callable[[], None]]]:
    """Name and test of each `test_` method but those that a class takes out, in the order of their base classes."""
    names = [
        name for one in reversed(type(contract).__mro__) for name in vars(one) if name.startswith("test_")
    ]
    for name in dict.fromkeys(names):
        if callable(test := getattr(contract, name)):
            yield name.removeprefix("test_"), test


def check_contract(contract: object) -> None:
    """Run all tests of a contract.

    Raises:
      AssertionError: of the first that fails, or what it raised.
    """
    for _, test in checks(contract):
        test()


#: The same, by the names of what is tried.
check_selector = check_format = check_kind = check_store = check_contract
