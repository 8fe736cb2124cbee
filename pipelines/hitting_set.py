"""Items that as many users as possible hold one of: the job of `dpbeam hitting-set`, as a module to run."""

import sys

from dpbeam.cli.hitting_set import main
from dpbeam.cli.loading import be_a_command

__all__ = ["main"]

if __name__ == "__main__":
    be_a_command()
    sys.exit(main())
