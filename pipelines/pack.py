"""Scarce resources for many agents: the job of `dpbeam pack`, as a module to run."""

import sys

from dpbeam.cli.loading import leave_out_unused
from dpbeam.cli.pack import main

__all__ = ["main"]

if __name__ == "__main__":
    leave_out_unused()
    sys.exit(main())
