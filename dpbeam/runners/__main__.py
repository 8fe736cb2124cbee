"""`dpbeam-worker`, also as `python -m dpbeam.runners`: what numpy is told comes before Beam, which imports numpy."""

import gc
import sys

from dpbeam.runners.instructions import prepare_numpy


def main() -> int:
    """Run one worker; returns the exit code."""
    prepare_numpy()
    gc.disable()  # what Beam makes when it is imported stays: to walk it again and again takes a seventh of the imports
    from dpbeam.runners.worker import main as work

    gc.freeze()
    gc.enable()
    return work()


if __name__ == "__main__":
    sys.exit(main())
