"""Release the items that many users hold: the job of `dpbeam select`, as a module to run."""

import sys

from dpbeam.cli.loading import leave_out_unused
from dpbeam.cli.select import main

__all__ = ["main"]

if __name__ == "__main__":
    leave_out_unused()
    sys.exit(main())
