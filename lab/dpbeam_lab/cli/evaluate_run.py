"""`dpbeam evaluate run FILE.py`: methods over datasets, budgets and settings. NOT PRIVATE."""

from __future__ import annotations

import os

from dpbeam.cli.flags import FlagParser, entry_point
from dpbeam.errors import SettingError
from dpbeam.jobs.console import tell
from dpbeam.jobs.options import FOLDER, READ, WRITTEN_PREFIX, Options, flag, switch
from dpbeam_lab.cli.bar import counted
from dpbeam_lab.room import check_memory

#: The folder of datasets, unless --data names it.
DATA_VARIABLE = "DPBEAM_DATA"
_DATA = os.path.join(os.pardir, "shared", "data")


class ExperimentOptions(Options):
    """Which experiment, and where its results go."""

    experiment: str | None = flag(
        "FILE.py", "see lab/docs/how-to/evaluate.md; required", type=READ, nargs="?", positional=True
    )
    output: str = flag(
        "PREFIX",
        "PREFIX.parquet, PREFIX.md, PREFIX.NAME.svg and .png; what is finished in PREFIX.cells.jsonl is not run "
        "again; required",
        type=WRITTEN_PREFIX,
        needed=True,
    )
    data: str | None = flag(
        "FOLDER", f"folder of datasets (default: ${DATA_VARIABLE}, or {_DATA})", type=FOLDER
    )
    jobs: int | None = flag("N", "processes (default: one per core that memory allows)")
    overwrite: bool = switch("replace files of the same prefix that are of no earlier run")
    dry_run: bool = switch("check the file, print how many runs it has, and run none")


def make_parser() -> FlagParser[ExperimentOptions]:
    text = (
        "Run the methods of an experiment, a file of Python, over its datasets, budgets and settings, and write "
        "results, tables and plots. All of it is NOT PRIVATE: for public or test data."
    )
    return FlagParser("evaluate run", text, ExperimentOptions, beam=False)


@entry_point("evaluate run", make_parser)
def main(options: ExperimentOptions) -> int:
    path = options.experiment
    if path is None:
        raise SettingError("an experiment file is required; see lab/docs/how-to/evaluate.md")
    if not options.dry_run:
        options.require("output")
    if options.jobs is not None and options.jobs < 1:
        raise SettingError(f"--jobs must be at least 1, got {options.jobs}")
    folder = options.data or os.environ.get(DATA_VARIABLE) or _DATA
    from dpbeam_lab.experiments.define import read_experiment

    experiment = read_experiment(path, folder)
    for name, reason in experiment.absent.items():
        options.say(f"{name} is left out: {reason}")
    for name, source in experiment.sources.items():
        check_memory(f"{path}: datasets.{name}", source.memory())
    if options.dry_run:
        tell(f"{experiment.runs()} runs")
        return 0
    from dpbeam_lab.experiments.journal import Journal
    from dpbeam_lab.experiments.running import run_experiment
    from dpbeam_lab.experiments.writing import check_results, journal_path, write_results

    prefix = options.output
    check_results(prefix, experiment, experiment.reads(), overwrite=options.overwrite)
    journal = Journal(journal_path(prefix))
    try:
        with counted(experiment.title, enabled=not options.quiet) as (begin, advance):
            finished = run_experiment(experiment, journal, options.jobs, begin, advance)
    finally:
        journal.close()
    paths = write_results(prefix, finished)
    options.say(f"{len(finished.cells)} runs, not private: for public or test data; {', '.join(paths)}")
    return 0
