"""Every selector with every option of accounting, sampling and score, as the audit runs it."""

from __future__ import annotations

VARIANTS: dict[str, dict] = {
    "basic": {"method": "basic"},
    **{
        f"{method}, {accounting} accounting, {'fresh samples' if resample else 'one sample'}": {
            "method": method,
            "accounting": accounting,
            "resample": resample,
        }
        for method in ("dp-sips", "mad2r")
        for accounting in ("gaussian", "basic")
        for resample in (True, False)
    },
    "mad": {"method": "mad"},
    **{
        f"gsu{rounds}{'' if score else ', no score'}": {
            "method": "gsu",
            "rounds": rounds,
            "gsu_score": score,
        }
        for rounds in (2, 4, 8)
        for score in (True, False)
    },
}
