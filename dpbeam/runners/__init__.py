"""Where jobs run: the tested matrix, the flags that each engine needs, a preflight, and waiting for a job.

    from dpbeam.runners import complete, preflight, run_and_wait

`complete(argv)` turns `--runner=FlinkRunner --flink_master=HOST:PORT` into the full list of Beam flags,
`preflight(argv, paths)` says in one table what is missing, `run_and_wait(pipeline, argv)` runs a job and cancels it
on Ctrl-C.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpbeam.runners.check import Path, Row, preflight
    from dpbeam.runners.job import run_and_wait
    from dpbeam.runners.options import EngineFlags, complete, read

__all__ = ["EngineFlags", "Path", "Row", "complete", "preflight", "read", "run_and_wait"]

_PLACES = {
    **dict.fromkeys(("Path", "Row", "preflight"), "check"),
    "run_and_wait": "job",
    **dict.fromkeys(("EngineFlags", "complete", "read"), "options"),
}


def __getattr__(name: str) -> Any:
    """What is public, loaded when it is first asked for: a worker needs none of it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
