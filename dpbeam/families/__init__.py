"""Kinds of releases, and what the commands, `verify` and the report ask of each (docs/add_a_family.md)."""
