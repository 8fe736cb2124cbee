"""Writes what an experiment found: Parquet, a report in Markdown, figures. Files appear whole, or not at all."""

from __future__ import annotations

import io
import os

import pyarrow.parquet as pq

from dpbeam.errors import InputError
from dpbeam.experiments.markdown import report
from dpbeam.experiments.results import rows_of, to_table
from dpbeam.experiments.running import Finished
from dpbeam.experiments.schema import Experiment
from dpbeam.io.files import write_atomically

FORMATS = ("svg", "png")


def check_prefix(prefix: str, experiment: Experiment) -> None:
    """Refuse a place that cannot be written, or plots that cannot be drawn, before anything runs.

    Raises:
      InputError: naming the flag or what is missing.
    """
    folder = os.path.dirname(prefix)
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InputError(f"--output: cannot make '{folder}': {error.strerror}") from None
    if experiment.plots:
        from dpbeam.experiments.plots import check_matplotlib

        check_matplotlib()


def write_results(prefix: str, finished: Finished) -> list[str]:
    """Write everything; returns the paths.

    Raises:
      OSError: a file cannot be written.
    """
    found = io.BytesIO()
    pq.write_table(to_table(finished), found)
    files = {f"{prefix}.parquet": found.getvalue()}
    figures = []
    if finished.experiment.plots:
        from dpbeam.experiments.plots import draw

        rows = rows_of(finished)
        for spec in finished.experiment.plots:
            for format, data in draw(rows, spec, FORMATS).items():
                files[f"{prefix}.{spec.name}.{format}"] = data
            figures.append((spec.title or spec.name, f"{os.path.basename(prefix)}.{spec.name}.svg"))
    files[f"{prefix}.md"] = report(finished, figures).encode()
    for path, data in files.items():
        write_atomically(path, lambda file, data=data: _put(file, data))  # type: ignore[misc]
    return list(files)


def _put(file: io.IOBase, data: bytes) -> None:
    file.write(data)
