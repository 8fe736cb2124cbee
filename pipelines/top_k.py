"""The k items that most users hold: the job of `dpbeam top-k`, as a module to run."""

import sys

from dpbeam.cli.loading import be_a_command
from dpbeam.cli.top_k import main

__all__ = ["main"]

if __name__ == "__main__":
    be_a_command()
    sys.exit(main())
