"""Looks at private data or at made-up inputs: quality of releases, bounds, oracles, tuning. No Beam here."""
