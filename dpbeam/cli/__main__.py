"""`python -m dpbeam.cli` is the `dpbeam` command."""

import sys

from dpbeam.cli import main

sys.exit(main())
