"""Looks at private data or at made-up worst cases: quality of releases, oracles, the privacy audit. No Beam here."""
