"""Starting quickly: the modules of a job come in with the garbage collector at rest.

Importing Beam, scipy and pyarrow makes half a million objects that live to the end; walking them, again and again
during the imports and once more at the end of the program, takes a fifth of a second of a small job's one and a half.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """What is made here is taken to live as long as the program; does nothing once a job has been loaded."""
    if "dpbeam.cli.job" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
