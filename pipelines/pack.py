"""Scarce resources for many agents: the job of `dpbeam pack`, as a module to run."""

import sys

from dpbeam.cli.loading import be_a_command
from dpbeam.cli.pack import main

__all__ = ["main"]

if __name__ == "__main__":
    be_a_command()
    sys.exit(main())
