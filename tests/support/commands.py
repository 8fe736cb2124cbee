"""Commands, here and as programs of their own, and what they say on stderr."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator

import pyarrow.parquet as pq

from dpbeam.cli import main
from tests.support.instances import power_law_table

#: Of pairs: what the columns are called.
COLUMNS = ["--user_column=user", "--item_column=item"]


def run(capsys, *arguments) -> tuple[int, str, str]:
    """A command in this process: its exit code, and what it says on both streams."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_job(capsys, *arguments) -> tuple[int, str, str]:
    """The same, errors and warnings alone on the second stream."""
    code, out, err = run(capsys, *arguments)
    return code, out, without_progress(err)


def without_progress(err: str) -> str:
    """Errors and warnings alone: the lines `dpbeam COMMAND: STAGE` left out."""
    kept = [line for line in err.splitlines(keepends=True) if not _PROGRESS.match(line)]
    return "".join(kept)


def select_flags(pairs: str, output, temp) -> list[str]:
    """Of `dpbeam select` on (user, item) pairs."""
    return [
        *(f"--input={pairs}", *COLUMNS, "--epsilon=1", "--delta=1e-6"),
        *(f"--output={output}", f"--temp_location={temp}"),
    ]


def select_command(pairs: str, output, temp) -> list[str]:
    """The same as a program of its own."""
    return [sys.executable, "-m", "pipelines.select_items", *select_flags(pairs, output, temp)]


@contextlib.contextmanager
def standard_input(path) -> Iterator[None]:
    """The file is what this process reads on its standard input."""
    kept = os.dup(0)
    with open(path, "rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def small_pairs(folder, users: int = 500) -> str:
    """A glob of (user, item) pairs."""
    pq.write_table(power_law_table(users, 100, 15 * users), folder / "small-1.parquet")
    return str(folder / "small-*.parquet")


def key_warning(command: str) -> str:
    """What every run with a fixed key says, also under --quiet."""
    return (
        f"dpbeam {command}: warning: NOT PRIVATE: --insecure_test_key fixes the key of this run; "
        "never release its output\n"
    )


_PROGRESS = re.compile(r"dpbeam [a-z-]+: (?!error: |warning: )")
