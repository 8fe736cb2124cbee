"""Items that as many users as possible hold one of: the job of `dpbeam hitting-set`, as a module to run."""

import sys

from dpbeam.cli.hitting_set import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
