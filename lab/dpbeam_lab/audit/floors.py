"""How near to its claim the audit must come: an estimate surely below this is an alarm, or it is explained here.

Audits at delta 0.05, epsilon 1 to 4 and D0 8 to 16 (lab/docs/explanation/audit.md). A new selector has the general
floor.
"""

from __future__ import annotations

FLOOR = 0.45

_ADDED_UP = "budgets of rounds are added up, which overstates what all rounds together cost"
_EXPLAINED = {
    "dp-sips published": (0.4, _ADDED_UP),
    "dp-sips basic accounting": (0.4, _ADDED_UP),
    "mad2r published": (0.2, _ADDED_UP),
    "mad2r basic accounting": (0.2, _ADDED_UP),
    "bits": (0.2, "the accountant bounds all levels of D0 items at once; the worst single level costs less"),
}
_EXPLAINED |= dict.fromkeys(("bits one round", "bits four full items"), _EXPLAINED["bits"])


def floor(variant: str) -> tuple[float, str]:
    """Share of the claimed delta that the audit of a variant must reach, and why it is low; "" where it is not."""
    return _EXPLAINED.get(variant, (FLOOR, ""))
