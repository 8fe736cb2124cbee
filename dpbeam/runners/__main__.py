"""`dpbeam-worker`, also as `python -m dpbeam.runners`: what numpy is told comes before Beam, which imports numpy."""

import sys

from dpbeam.runners.instructions import prepare_numpy


def main() -> int:
    """Run one worker; returns the exit code."""
    prepare_numpy()
    from dpbeam.runners.worker import main as work

    return work()


if __name__ == "__main__":
    sys.exit(main())
