"""Temporary folders that name their process, so that `dpbeam clean` finds those of one that was killed."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator

from dpbeam.engine.beam import owner


@contextlib.contextmanager
def owned_folder() -> Iterator[str]:
    """A folder of this process, removed at the end."""
    with tempfile.TemporaryDirectory(prefix=owner.EVALUATION_FOLDER) as folder:
        owner.mark(folder)
        yield folder
