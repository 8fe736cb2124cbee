"""Every method with every combination of options, calibrated for small data.

At these budgets thresholds lie between 1 and 9, so that a hundred users release, keep, bias and reroute.
"""

from __future__ import annotations

from dpbeam.engine.program import Program
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan

_MAD = {"max_adaptive_degree": 6, "adaptive_excess": 0.1}
_BIAS = {"min_bias": 0.75, "lower_confidence": 0.5}  # users of two items are adaptive in the second round too
_SPLIT = {
    "basic": (0.1, 0.9),
    "gaussian": (0.03, 0.97),
}  # the first round finds few, the second has heavy items
VARIANTS: dict[str, dict] = {
    "basic": {"method": "basic"},
    "mad": {"method": "mad", **_MAD},
    "gsu2": {"method": "gsu", "rounds": 2},
    "gsu2 no score": {"method": "gsu", "rounds": 2, "gsu_score": False},
    "gsu8": {"method": "gsu", "rounds": 8},
    "gsu8 no score": {"method": "gsu", "rounds": 8, "gsu_score": False},
}
for _accounting in ("basic", "gaussian"):
    for _resample in (False, True):
        _name = f"{_accounting}{' resampled' if _resample else ''}"
        _options = {"accounting": _accounting, "resample": _resample}
        VARIANTS[f"dp-sips {_name}"] = {"method": "dp-sips", **_options}
        VARIANTS[f"mad2r {_name}"] = {
            "method": "mad2r",
            "budget_split": _SPLIT[_accounting],
            **_options,
            **_MAD,
            **_BIAS,
        }


def config(
    name: str, epsilon: float | None = None, delta: float = 0.02, max_items: int = 8
) -> SelectionConfig:
    """Settings of a variant; mad2r gets a larger epsilon, at which items are heavy in its second round too."""
    options = VARIANTS[name]
    epsilon = epsilon or (12.0 if options["method"] == "mad2r" else 4.0)
    return SelectionConfig(epsilon, delta, max_items_per_user=max_items, **options)


def program(name: str, epsilon: float | None = None, delta: float = 0.02, max_items: int = 8) -> Program:
    return make_plan(config(name, epsilon, delta, max_items)).program
