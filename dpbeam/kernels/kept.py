"""Items that stay in the memory of one process while numbers stand for them.

Where all steps are made in one process, most items are never looked at again once they have fingerprints: only the
released ones are. To hand over numbers in place of byte strings saves their copies from step to step.
"""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa


class KeptItems:
    """Canonical bytes of items, each under a number from 0 on; threads may keep at once."""

    def __init__(self) -> None:
        self._parts: list[pa.Array] = []
        self._starts = [0]  # the number of each part's first item, and the next that is free
        self._lock = threading.Lock()

    def keep(self, items: pa.Array) -> int:
        """Keep (n,) large_binary; returns the number of the first, the others follow."""
        with self._lock:
            first = self._starts[-1]
            self._parts.append(items)
            self._starts.append(first + len(items))
        return first

    def take(self, numbers: np.ndarray) -> pa.Array:
        """The items of these numbers, (n,) int64 -> (n,) large_binary.

        Raises:
          IndexError: no item has such a number.
        """
        starts = np.array(self._starts)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < starts[-1]:
            raise IndexError(f"items have numbers from 0 to {starts[-1] - 1}")
        order = np.argsort(numbers)
        ordered = numbers.take(order)
        bounds = np.searchsorted(ordered, starts)
        taken = [
            part.take(pa.array(ordered[low:high] - start))
            for part, start, low, high in zip(self._parts, starts, bounds, bounds[1:])
            if low < high
        ]
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return pa.concat_arrays([pa.array([], pa.large_binary()), *taken]).take(pa.array(place))
