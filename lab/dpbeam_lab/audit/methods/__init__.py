"""Planted faults and hard inputs of the methods: one file for each program, one line here for each method."""

from __future__ import annotations

import importlib

from dpbeam_lab.audit.planted import Study

#: Method -> the module below this package, and the name in it, of its study.
STUDIES = {
    "basic": "uniform:BASIC",
    "dp-sips": "uniform:DP_SIPS",
    "mad": "mad:MAD",
    "mad2r": "mad:MAD2R",
    "gsu": "gsu:GSU",
    "laplace": "laplace:LAPLACE",
    "vote": "vote:VOTE",
    "bits": "bits:BITS",
}


def study(method: str) -> Study:
    """Of a method by its name; a method from outside of dpbeam has none of its own."""
    if method not in STUDIES:
        return Study(())
    module, name = STUDIES[method].split(":")
    found: Study = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return found
