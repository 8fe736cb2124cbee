"""What forks Python workers on this machine: Spark's own daemon, with Beam and dpbeam loaded before the first fork.

Otherwise every worker would load them for itself, for a second or two. Spark starts it by its name, from the setting
`spark.python.daemon.module`, and needs dpbeam to be installed where it runs.
"""

import logging

from pyspark.daemon import manager

logging.getLogger().setLevel(logging.ERROR)  # Beam warns of what else it could load
from dpbeam.runners.pyspark import bundle as _bundle  # noqa: E402, F401

if __name__ == "__main__":
    manager()
