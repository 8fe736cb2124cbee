"""Writes what an experiment found: Parquet, a report in Markdown, figures. Files appear whole, or not at all."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable

import pyarrow.parquet as pq

from dpbeam.errors import StoreError
from dpbeam.io.new_files import NewFile, check_prefix
from dpbeam_lab.experiments.define import Experiment
from dpbeam_lab.experiments.markdown import report
from dpbeam_lab.experiments.results import rows_of, to_table
from dpbeam_lab.experiments.running import Finished

FORMATS = ("svg", "png")


def result_files(prefix: str, experiment: Experiment, reads: Iterable[str] = ()) -> dict[str, NewFile]:
    """The files of the results by what follows the prefix, the report last."""
    figures = [f".{spec.name}.{format}" for spec in experiment.plots for format in FORMATS]
    return {end: NewFile(f"{prefix}{end}", "--output", reads) for end in (".parquet", *figures, ".md")}


def journal_path(prefix: str) -> str:
    """Where the finished cells are."""
    return f"{prefix}.cells.jsonl"


def check_results(
    prefix: str, experiment: Experiment, reads: Iterable[str] = (), *, overwrite: bool = False
) -> None:
    """Refuse a place that cannot be written, or plots that cannot be drawn, before anything runs.

    Where the prefix has finished cells, its results are of this experiment and are written anew.

    Args:
      reads: files that are read.
      overwrite: replace files of others.

    Raises:
      InputError: naming the flag or what is missing.
    """
    check_prefix(prefix)
    journal = NewFile(journal_path(prefix), "--output", reads)
    goes_on = os.path.lexists(journal)
    journal.check(overwrite=True)
    for file in result_files(prefix, experiment, reads).values():
        file.check(overwrite=overwrite or goes_on)
    folder = os.path.dirname(prefix)
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StoreError(f"--output: cannot make '{folder}': {error.strerror}") from None
    if experiment.plots:
        from dpbeam.figures import check_matplotlib

        check_matplotlib("take `plots` out")


def write_results(prefix: str, finished: Finished) -> list[str]:
    """Write everything; returns the paths.

    Raises:
      InputError, UnavailableError: a file cannot be written.
    """
    table = io.BytesIO()
    pq.write_table(to_table(finished), table)
    files = {".parquet": table.getvalue()}
    figures = []
    if finished.experiment.plots:
        from dpbeam_lab.experiments.plots import draw

        rows = rows_of(finished)
        for spec in finished.experiment.plots:
            for format, data in draw(rows, spec, FORMATS).items():
                files[f".{spec.name}.{format}"] = data
            figures.append((spec.title or spec.name, f"{os.path.basename(prefix)}.{spec.name}.svg"))
    files[".md"] = report(finished, figures).encode()
    paths = result_files(prefix, finished.experiment)
    for end, data in files.items():
        paths[end].write(data, overwrite=True)
    return [str(paths[end]) for end in files]
