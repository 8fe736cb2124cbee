"""The k items that most users hold: the job of `dpbeam top-k`, as a module to run."""

import sys

from dpbeam.cli.loading import leave_out_unused
from dpbeam.cli.top_k import main

__all__ = ["main"]

if __name__ == "__main__":
    leave_out_unused()
    sys.exit(main())
