"""Top-k selection on a histogram: known-domain mechanisms, limited domain, noisy counts, error measures.

Pure mathematics on numpy arrays, no Beam. Every mechanism maps (counts, fingerprints, key) to positions in
rank order, and the answer is a function of the histogram and the key: not of the order of items, and not of
how often it is computed.
"""

from dpbeam.counts.noisy_counts import NoisyCounts
from dpbeam.topk.limited_domain import LimitedDomainEvent
from dpbeam.topk.measures import TopkErrors, topk_errors
from dpbeam.topk.mechanisms import (
    MECHANISMS,
    CdpPeel,
    FastJoint,
    Joint,
    LimitedDomain,
    Mechanism,
    PnfPeel,
    choice_range,
)

__all__ = [
    "MECHANISMS",
    "CdpPeel",
    "FastJoint",
    "Joint",
    "LimitedDomain",
    "LimitedDomainEvent",
    "Mechanism",
    "NoisyCounts",
    "PnfPeel",
    "TopkErrors",
    "choice_range",
    "topk_errors",
]
