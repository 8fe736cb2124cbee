"""Items that as many users as possible hold one of: the job of `dpbeam hitting-set`, as a module to run."""

import sys

from dpbeam.cli.hitting_set import main
from dpbeam.cli.loading import leave_out_unused

__all__ = ["main"]

if __name__ == "__main__":
    leave_out_unused()
    sys.exit(main())
