"""Counts of the items of a public list: the job of `dpbeam count`, as a module to run."""

import sys

from dpbeam.cli.count import main
from dpbeam.cli.loading import be_a_command

__all__ = ["main"]

if __name__ == "__main__":
    be_a_command()
    sys.exit(main())
