"""Commands as programs of their own, and what they say on stderr."""

import re
import sys


def without_progress(err: str) -> str:
    """Errors and warnings alone: the lines `dpbeam COMMAND: STAGE` left out."""
    kept = [line for line in err.splitlines(keepends=True) if not _PROGRESS.match(line)]
    return "".join(kept)


def select_command(pairs: str, output, temp) -> list[str]:
    """`dpbeam select` on (user, item) pairs, as its module."""
    return [
        *(sys.executable, "-m", "pipelines.select_items", "--input", pairs, "--epsilon=1", "--delta=1e-6"),
        *("--user_column=user", "--item_column=item", f"--output={output}", f"--temp_location={temp}"),
    ]


def key_warning(command: str) -> str:
    """What every run with a fixed key says, also under --quiet."""
    return (
        f"dpbeam {command}: warning: NOT PRIVATE: --insecure_test_key fixes the key of this run; "
        "never release its output\n"
    )


_PROGRESS = re.compile(r"dpbeam [a-z-]+: (?!error: |warning: )")
