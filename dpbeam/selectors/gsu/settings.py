"""Fills in and checks the settings of gsu from its presets."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from dpbeam.errors import InputError
from dpbeam.selectors.gsu.calibration import GSU_PRESETS, MAX_ROUNDS, GsuPreset

if TYPE_CHECKING:
    from dpbeam.selection.config import SelectionConfig

# With D0 = 100 a user of full degree may give more to one item than the presets' D0 of 300 or 400 allows for.
_CAP_AT_100 = 0.5
_DEFAULT_ROUNDS = 8
_SCORE_NAMES = ("a", "a1", "k1", "kk", "b", "k2", "g")


def resolve_gsu(config: SelectionConfig) -> SelectionConfig:
    """`config` with every gsu setting present.

    Raises:
      InputError: rounds without a preset and without fractions, or a value out of range.
    """
    preset = _preset(config)
    max_items = _or(config.max_items_per_user, preset.max_items)
    fractions = tuple(_or(config.gsu_fractions, preset.fractions))
    cap = config.gsu_cap
    if cap is None:
        cap = _CAP_AT_100 if max_items <= 100 else preset.c0
    resolved = replace(
        config,
        rounds=len(fractions),
        max_items_per_user=max_items,
        gsu_fractions=fractions,
        gsu_final_spending=_or(config.gsu_final_spending, preset.fin),
        gsu_delta_share=_or(config.gsu_delta_share, preset.delta_gauss_share),
        gsu_cap=cap,
        gsu_growth=_or(config.gsu_growth, preset.eta),
        gsu_score_constants=_or(config.gsu_score_constants, astuple(preset.score)),
    )
    _check(resolved)
    return resolved


def _or(value, default):
    return default if value is None else value


def _preset(config: SelectionConfig) -> GsuPreset:
    if config.gsu_fractions is not None:
        if config.rounds not in (None, len(config.gsu_fractions)):
            raise InputError(
                f"--rounds ({config.rounds}) and the number of --gsu_fractions ({len(config.gsu_fractions)}) differ"
            )
        rounds = len(config.gsu_fractions)
        nearest = min(GSU_PRESETS.values(), key=lambda p: abs(math.log(p.rounds / max(rounds, 1))))
        return nearest
    name = f"gsu{_or(config.rounds, _DEFAULT_ROUNDS)}"
    if name not in GSU_PRESETS:
        known = ", ".join(str(p.rounds) for p in GSU_PRESETS.values())
        raise InputError(f"--rounds must be one of {known}, or give --gsu_fractions; got {config.rounds}")
    return GSU_PRESETS[name]


def _check(config: SelectionConfig) -> None:
    if not 1 <= config.rounds <= MAX_ROUNDS:
        raise InputError(f"--gsu_fractions needs 1 to {MAX_ROUNDS} values, got {config.rounds}")
    bad = [f for f in config.gsu_fractions if not (math.isfinite(f) and f > 0)]
    if bad or abs(math.fsum(config.gsu_fractions) - 1) > 1e-9:
        raise InputError("--gsu_fractions must be positive and sum to 1")
    for name in ("gsu_final_spending", "gsu_cap"):
        if not 0 < getattr(config, name) <= 1:
            raise InputError(f"--{name} must be a number above 0 and at most 1, got {getattr(config, name)}")
    if not 0 < config.gsu_delta_share < 1:
        raise InputError(
            f"--gsu_delta_share must be a number strictly between 0 and 1, got {config.gsu_delta_share}"
        )
    if not config.delta * (1 - config.gsu_delta_share) < 0.5:
        raise InputError(
            f"--delta ({config.delta:g}) leaves a threshold share of 1/2 or more, at which gsu says nothing; "
            "lower it, or raise --gsu_delta_share"
        )
    if not -100 <= config.gsu_growth <= 100:
        raise InputError(f"--gsu_growth must be a number from -100 to 100, got {config.gsu_growth}")
    constants = config.gsu_score_constants
    if len(constants) != len(_SCORE_NAMES) or not all(map(math.isfinite, constants)):
        raise InputError(
            f"--gsu_score_constants needs the {len(_SCORE_NAMES)} numbers {','.join(_SCORE_NAMES)}"
        )
    if constants[2] <= 0 or constants[5] <= 0:
        raise InputError("--gsu_score_constants: k1 and k2 must be above 0")
