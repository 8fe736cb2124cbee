"""Starting quickly: the modules of a job come in with the garbage collector at rest, those that none uses stay out.

Importing Beam, scipy and pyarrow makes half a million objects that live to the end; walking them, again and again
during the imports and once more at the end of the program, takes a fifth of a second of a small job's one and a half.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder

from dpbeam.runners.instructions import sort_without_slow_stores
from dpbeam.signals import deferring


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """What is made here is taken to live as long as the program; does nothing once a job has been loaded.

    A signal that stops the program waits for the imports: a module that is imported in part fails whoever uses it next.
    """
    if "dpbeam.jobs.job" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        with deferring() as came:
            yield
        gc.freeze()
    finally:
        gc.enable()
    if came:
        raise KeyboardInterrupt


#: Beam and pyarrow import them where they are installed, a quarter of a second, and do without where they are not.
UNUSED = ("pandas", "pymongo", "bson")


class _Refusing(MetaPathFinder):
    """Modules of these names are not there; in `sys.modules`, None in their place would mislead pyarrow."""

    def find_spec(self, name: str, *_: object) -> None:
        if name in UNUSED:
            raise ModuleNotFoundError(f"no command of dpbeam uses {name}", name=name)


def be_a_command() -> None:
    """For a process that is a command and nothing else: imports of what no command uses fail from now on, and numpy
    will sort by the instructions that are fast here."""
    sys.meta_path.insert(0, _Refusing())
    sort_without_slow_stores()
