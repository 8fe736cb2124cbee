"""Kinds of releases, and what the commands, `verify` and the report ask of each (docs/how-to/add_a_family.md)."""
