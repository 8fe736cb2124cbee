"""What a command says on stderr, less what it says on the way."""

import re


def without_progress(err: str) -> str:
    """Errors and warnings alone: the lines `dpbeam COMMAND: STAGE` left out."""
    kept = [line for line in err.splitlines(keepends=True) if not _PROGRESS.match(line)]
    return "".join(kept)


def key_warning(command: str) -> str:
    """What every run with a fixed key says, also under --quiet."""
    return (
        f"dpbeam {command}: warning: NOT PRIVATE: --insecure_test_key fixes the key of this run; "
        "never release its output\n"
    )


_PROGRESS = re.compile(r"dpbeam [a-z-]+: (?!error: |warning: )")
