"""Counts of the items of a public list: the job of `dpbeam count`, as a module to run."""

import sys

from dpbeam.cli.count import main
from dpbeam.cli.loading import leave_out_unused

__all__ = ["main"]

if __name__ == "__main__":
    leave_out_unused()
    sys.exit(main())
