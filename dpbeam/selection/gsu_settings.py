"""Fills in and checks the settings of gsu from its presets."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from dpbeam.accounting.gsu import GSU_PRESETS, MAX_ROUNDS, GsuPreset
from dpbeam.errors import InputError

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
    max_items = config.max_items_per_user or preset.max_items
    cap = config.gsu_cap
    if cap is None:
        cap = _CAP_AT_100 if max_items <= 100 else preset.c0
    resolved = replace(
        config,
        rounds=len(config.gsu_fractions or preset.fractions),
        max_items_per_user=max_items,
        gsu_fractions=tuple(config.gsu_fractions or preset.fractions),
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
    for name, low, high in (
        ("gsu_final_spending", 0.0, 1.0),
        ("gsu_delta_share", 0.0, 1.0),
        ("gsu_cap", 0.0, 1.0),
        ("gsu_growth", -100.0, 100.0),
    ):
        value = getattr(config, name)
        if not (math.isfinite(value) and low <= value <= high):
            raise InputError(f"--{name} must be a number from {low:g} to {high:g}, got {value}")
    constants = config.gsu_score_constants
    if len(constants) != len(_SCORE_NAMES) or not all(map(math.isfinite, constants)):
        raise InputError(
            f"--gsu_score_constants needs the {len(_SCORE_NAMES)} numbers {','.join(_SCORE_NAMES)}"
        )
    if constants[2] <= 0 or constants[5] <= 0:
        raise InputError("--gsu_score_constants: k1 and k2 must be above 0")
