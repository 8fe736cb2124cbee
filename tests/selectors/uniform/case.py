"""Basic and DP-SIPS in the tests."""

from __future__ import annotations

from tests.selectors.case import SelectorCase
from tests.selectors.multi_round import variants
from tests.selectors.uniform.reference import uniform_rounds
from tests.support.reference import Data, Trace

TOLERANCE = 2e-7  # fixed point loses up to one step of 2^-30 a user


def reference(data: Data, p, power: float = 0.5) -> Trace:
    return uniform_rounds(
        data,
        power=power,
        noises=p.noises(),
        thresholds=p.thresholds,
        cap=p.cap,
        max_items=p.max_items,
        resample=p.resample,
    )


CASES = [
    SelectorCase("basic", reference, TOLERANCE, {"basic": {}}, tight=("basic",)),
    SelectorCase("dp-sips", reference, TOLERANCE, variants("dp-sips"), tight=("dp-sips one sample",)),
]
