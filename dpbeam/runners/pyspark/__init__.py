"""Beam pipelines on PySpark itself: no job server, no Java of Beam, no image; Spark's own Python workers run them.

    dpbeam select ... --runner=PySparkRunner --spark_master_url=spark://HOST:7077

    with beam.Pipeline(runner=PySparkRunner()) as pipeline:  # in a notebook: on its session
        ...

- `stages`: a pipeline as the stages that Beam's in-process runner makes of it, and what is refused.
- `bundle`: what a worker does with a partition of a stage, by Beam's own worker code.
- `job`: the stages as RDDs.
- `session`: the session that a job runs on.
- `runner`: what Beam sees.

Only `job` needs PySpark to be imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpbeam.runners.pyspark.runner import PySparkOptions, PySparkRunner

__all__ = ["PySparkOptions", "PySparkRunner"]


def __getattr__(name: str) -> Any:
    """What is public, loaded when it is first asked for: Beam's workers' code takes a second."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dpbeam.runners.pyspark import runner

    return getattr(runner, name)
