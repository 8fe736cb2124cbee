"""Settings of partition selection: what may be set, the defaults of each method, and what is refused.

Names equal the command line flags. A field left at None takes the default of the method, or of the preset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from dpbeam.accounting.budget import Budget
from dpbeam.errors import InputError
from dpbeam.selectors.gsu.settings import resolve_gsu
from dpbeam.selectors.mad.kernels import MAX_ADAPTIVE_DEGREE

METHODS = ("basic", "dp-sips", "mad", "mad2r", "gsu")
METHOD_ALIASES = {"wgm": "basic"}
ACCOUNTINGS = ("gaussian", "basic")
GSU_ROUNDS = (2, 4, 8, 16)
MAX_ITEMS_PER_USER = 1_000_000
# Distinct items of one user that fresh samples draw from; bounds what a single user may occupy in memory.
# A uniform subset of this size stands for a larger set, which the guarantee allows and utility does not notice.
POOL = 1_000_000

_MULTI_ROUND = ("dp-sips", "mad2r")
_FIELDS_OF_METHOD = {
    "accounting": _MULTI_ROUND,
    "resample": _MULTI_ROUND,
    "budget_split": _MULTI_ROUND,
    "max_adaptive_degree": ("mad", "mad2r"),
    "adaptive_excess": ("mad", "mad2r"),
    "min_bias": ("mad2r",),
    "max_bias": ("mad2r",),
    "lower_confidence": ("mad2r",),
    "upper_confidence": ("mad2r",),
    "rounds": ("gsu",),
    "gsu_score": ("gsu",),
    "gsu_fractions": ("gsu",),
    "gsu_final_spending": ("gsu",),
    "gsu_delta_share": ("gsu",),
    "gsu_cap": ("gsu",),
    "gsu_growth": ("gsu",),
    "gsu_score_constants": ("gsu",),
}
_MAD_DEFAULTS = {"max_adaptive_degree": 50, "adaptive_excess": 2.0}
_BIAS_DEFAULTS = {"min_bias": 0.5, "max_bias": 2.0, "lower_confidence": 1.0, "upper_confidence": 3.0}
_DEFAULTS = {
    "basic": {"max_items_per_user": 100},
    "dp-sips": {"max_items_per_user": 100, "accounting": "gaussian", "resample": True},
    "mad": {"max_items_per_user": 100, **_MAD_DEFAULTS},
    "mad2r": {
        "max_items_per_user": 100,
        "accounting": "gaussian",
        "resample": True,
        **_MAD_DEFAULTS,
        **_BIAS_DEFAULTS,
    },
    "gsu": {"gsu_score": True},
}
# Best of the splits tried on public datasets; constants, so they cost no privacy.
_SPLITS = {
    ("dp-sips", "gaussian"): (0.1, 0.2, 0.7),
    ("dp-sips", "basic"): (0.1, 0.9),
    ("mad2r", "gaussian"): (0.3, 0.7),
    ("mad2r", "basic"): (0.1, 0.9),
}
_PUBLISHED = {"accounting": "basic", "resample": False, "budget_split": (0.1, 0.9)}
_PRESETS = {
    "published": {
        "basic": {},
        "dp-sips": _PUBLISHED,
        "mad": {},
        "mad2r": _PUBLISHED,
    }
}


@dataclass(frozen=True)
class SelectionConfig:
    """What a job of partition selection is asked to do.

    Attributes:
      epsilon, delta: the total budget of the selection.
      method: one of METHODS, or "wgm".
      max_items_per_user: D0.
      accounting: "gaussian" (noise composes exactly as one Gaussian mechanism) or "basic" (budgets add).
      resample: sample each user's items afresh in every round.
      budget_split: shares per round, sum 1: of epsilon and delta with basic accounting; of 1/sigma^2 and of the
        threshold's delta with Gaussian accounting.
      max_adaptive_degree, adaptive_excess: d_max and beta of MAD.
      min_bias, max_bias, lower_confidence, upper_confidence: b_min, b_max, C_lb, C_ub of MAD2R.
      rounds: of gsu, 2, 4, 8 or 16, or any number with gsu_fractions.
      gsu_score: False makes every item that is not found count fully.
      gsu_fractions, gsu_final_spending, gsu_delta_share, gsu_cap, gsu_growth, gsu_score_constants: f_r, the last
        spending share, delta_G/delta, c0, eta and the seven constants (a, a1, k1, kk, b, k2, g) of gsu.
      preset: "published" takes every setting of the method's paper.
      noisy_weights: report the noisy weight of released items.
    """

    epsilon: float
    delta: float
    method: str = "mad2r"
    max_items_per_user: int | None = None
    accounting: str | None = None
    resample: bool | None = None
    budget_split: tuple[float, ...] | None = None
    max_adaptive_degree: int | None = None
    adaptive_excess: float | None = None
    min_bias: float | None = None
    max_bias: float | None = None
    lower_confidence: float | None = None
    upper_confidence: float | None = None
    rounds: int | None = None
    gsu_score: bool | None = None
    gsu_fractions: tuple[float, ...] | None = None
    gsu_final_spending: float | None = None
    gsu_delta_share: float | None = None
    gsu_cap: float | None = None
    gsu_growth: float | None = None
    gsu_score_constants: tuple[float, ...] | None = None
    preset: str | None = None
    noisy_weights: bool = False

    def resolve(self) -> SelectionConfig:
        """The same with every setting of the method filled in and checked.

        Raises:
          InputError: a value is out of range, or a setting does not belong to the method.
        """
        _budget(self.epsilon, self.delta)
        method = METHOD_ALIASES.get(self.method, self.method)
        if method not in METHODS:
            raise InputError(f"--method must be one of {', '.join((*METHODS, 'wgm'))}, got {self.method!r}")
        for name, methods in _FIELDS_OF_METHOD.items():
            if getattr(self, name) is not None and method not in methods:
                raise InputError(f"--{name} does not apply to --method={method}")
        defaults = {**_DEFAULTS[method], **_preset(self.preset, method)}
        chosen = {f.name: getattr(self, f.name) for f in fields(self)}
        chosen.update({n: v for n, v in defaults.items() if chosen[n] is None}, method=method)
        if chosen["accounting"] not in (None, *ACCOUNTINGS):
            raise InputError(f"--accounting must be gaussian or basic, got {chosen['accounting']!r}")
        if method in _MULTI_ROUND and chosen["budget_split"] is None:
            chosen["budget_split"] = _SPLITS.get((method, chosen["accounting"]))
        resolved = SelectionConfig(**chosen)
        if method == "gsu":
            resolved = resolve_gsu(resolved)
        resolved._check()
        return resolved

    def _check(self) -> None:
        _check_range("max_items_per_user", self.max_items_per_user, 1, MAX_ITEMS_PER_USER, integer=True)
        if self.method in _MULTI_ROUND:
            self._check_split()
        if self.method in ("mad", "mad2r"):
            self._check_mad()

    def _check_split(self) -> None:
        shares = tuple(self.budget_split)
        if self.method == "mad2r" and len(shares) != 2:
            raise InputError(f"--budget_split of mad2r needs two shares, got {len(shares)}")
        if not 1 <= len(shares) <= 64:
            raise InputError(f"--budget_split needs 1 to 64 shares, got {len(shares)}")
        Budget(self.epsilon, self.delta).split(shares)

    def _check_mad(self) -> None:
        _check_range("max_adaptive_degree", self.max_adaptive_degree, 4, MAX_ADAPTIVE_DEGREE, integer=True)
        if self.max_adaptive_degree > self.max_items_per_user:
            raise InputError(
                f"--max_adaptive_degree ({self.max_adaptive_degree}) must not exceed "
                f"--max_items_per_user ({self.max_items_per_user}): no user would hold so many items"
            )
        _check_range("adaptive_excess", self.adaptive_excess, 0.0, 1e6)
        if self.method == "mad2r":
            _check_range("min_bias", self.min_bias, 0.5, 1.0)
            _check_range("max_bias", self.max_bias, 1.0, 1e6)
            _check_range("lower_confidence", self.lower_confidence, 0.0, 1e6)
            _check_range("upper_confidence", self.upper_confidence, 0.0, 1e6)

    def public_parameters(self) -> dict:
        """Resolved settings as JSON values for the ledger, those of the method alone."""
        skip = {"epsilon", "delta", "method"}
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in skip}
        return {n: list(v) if isinstance(v, tuple) else v for n, v in values.items() if v is not None}

    def with_budget(self, epsilon: float, delta: float) -> SelectionConfig:
        """The same settings at another budget."""
        return replace(self, epsilon=epsilon, delta=delta)


def _budget(epsilon: float, delta: float) -> None:
    try:
        Budget(epsilon, delta)
    except InputError as error:
        raise InputError(f"--{error}") from None


def _preset(preset: str | None, method: str) -> dict:
    if preset is None:
        return {}
    if preset not in _PRESETS:
        raise InputError(f"--preset must be one of {', '.join(_PRESETS)}, got {preset!r}")
    if method not in _PRESETS[preset]:
        raise InputError(f"--preset={preset} does not exist for --method={method}")
    return _PRESETS[preset][method]


def _check_range(name: str, value: float, low: float, high: float, *, integer: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or (integer and int(value) != value) or not low <= value <= high:
        kind = "an integer" if integer else "a number"
        raise InputError(f"--{name} must be {kind} from {low:g} to {high:g}, got {value}")
