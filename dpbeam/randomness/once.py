"""A permission for one use, of a key or of what holds one."""

from __future__ import annotations

import os
import threading


class Once:
    """May be taken once, in the process that made it: a forked process has a copy, and would use it a second time.

    Args:
      taken: by somebody before.
    """

    __slots__ = ("_process", "_taken")

    def __init__(self, *, taken: bool = False):
        self._process = os.getpid()
        self._taken = threading.Lock()  # held for good: of several threads one gets it
        if taken:
            self.take()

    def take(self) -> bool:
        """Whether this is the one use."""
        return self._process == os.getpid() and self._taken.acquire(blocking=False)
