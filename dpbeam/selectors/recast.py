"""Copies of programs with another class: how planted faults are made."""

from __future__ import annotations

import copy

from dpbeam.engine.program import Program


def recast(program: Program, kind: type) -> Program:
    """A copy of `program` whose class is `kind`."""
    other = copy.copy(program)
    other.__class__ = kind
    return other
