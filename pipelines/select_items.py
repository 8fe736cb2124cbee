"""Release the items that many users hold: the job of `dpbeam select`, as a module to run."""

import sys

from dpbeam.cli.loading import be_a_command
from dpbeam.cli.select import main

__all__ = ["main"]

if __name__ == "__main__":
    be_a_command()
    sys.exit(main())
