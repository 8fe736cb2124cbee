"""Starting quickly: the modules of a job come in with the garbage collector at rest, those that none uses stay out.

Importing Beam, scipy and pyarrow makes half a million objects that live to the end; walking them, again and again
during the imports and once more at the end of the program, takes a fifth of a second of a small job's one and a half.

A `dpbeam select` of 900 pairs took 0.92 s of CPU and 176 MB, and 1.45 s and 206 MB when Beam still brought its files on
stores and BigQuery, and scipy numpy's f2py, in an environment with all extras (medians of eight, in turns).
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader

from dpbeam.runners.instructions import prepare_numpy
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


#: Beam and pyarrow import them where they are installed, and do without where they are not. For files on stores dpbeam
#: has its own ways (`dpbeam.storage`), and none for tables of BigQuery.
UNUSED = (
    "pandas",
    "pymongo",
    "bson",
    "apache_beam.io.hadoopfilesystem",
    "apache_beam.io.aws.s3filesystem",
    "apache_beam.io.azure.blobstoragefilesystem",
    "apache_beam.io.gcp.bigquery",
)
#: Scipy and Beam import them for what no command calls: they run when somebody asks for a name in them. In a job Beam
#: does, which weighs what a worker remembers by the globals of all modules; what runs no job does without them.
LATE = ("numpy.f2py", "httplib2")


class _Sparing(MetaPathFinder):
    """Modules of UNUSED are not there (None in `sys.modules` would mislead pyarrow), those of LATE wait."""

    def find_spec(self, name: str, path: Sequence[str] | None, _: object = None) -> ModuleSpec | None:
        if name in UNUSED:
            raise ModuleNotFoundError(f"no command of dpbeam uses {name}", name=name)
        spec = PathFinder.find_spec(name, path) if name in LATE else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def be_a_command() -> None:
    """For a process that is a command and nothing else: imports of what no command uses fail from now on, and numpy
    is told what it reads when it is imported."""
    sys.meta_path.insert(0, _Sparing())
    prepare_numpy()
