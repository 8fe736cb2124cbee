"""Calls in a pool of threads, a few at a time, their results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any


def few_ahead(pool: Executor, ahead: int, work: Callable[..., Any], *parts: Iterable[Any]) -> Iterator[Any]:
    """As `pool.map`, but at most `ahead` calls are at work, wait, or have results that nobody took.

    There may be more results than their taker can hold. And a program that ends makes all calls that wait in a pool
    before it exits, also where it was stopped.
    """
    made: deque[Future[Any]] = deque()
    try:
        for part in zip(*parts, strict=True):
            if len(made) == ahead:
                yield made.popleft().result()
            made.append(pool.submit(work, *part))
        while made:
            yield made.popleft().result()
    finally:
        for future in made:
            future.cancel()
