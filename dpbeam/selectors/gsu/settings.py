"""Settings of gsu, filled in from its presets."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace

from dpbeam.accounting.budget import check_share
from dpbeam.errors import SettingError, constant, param
from dpbeam.selectors.base import Request, Settings, filled_in, setting, value_or
from dpbeam.selectors.gsu.presets import GSU_PRESETS, MAX_ROUNDS, GsuPreset

# With D0 = 100 a user of full degree may give more to one item than the presets' D0 of 300 or 400 allows for.
_CAP_AT_100 = 0.5
DEFAULT_ROUNDS = 8
_SCORE_NAMES = ("a", "a1", "k1", "kk", "b", "k2", "g")
_LOG_WIDTH = 130 * math.log(10)


@dataclass(frozen=True)
class GsuSettings(Settings):
    """Constants of gsu; what is None comes from the preset of the number of rounds, or of the nearest."""

    rounds: int | None = setting(
        None,
        f"rounds: {', '.join(str(p.rounds) for p in GSU_PRESETS.values())} (default {DEFAULT_ROUNDS})",
        kind=int,
        metavar="R",
    )
    gsu_score: bool = setting(True, "aim weight by score; without it all items still open count fully")
    gsu_fractions: tuple[float, ...] | None = setting(
        None, "f_r, sum 1; for other numbers of rounds", kind=tuple, metavar="F,..."
    )
    gsu_final_spending: float | None = setting(
        None, "share of the threshold's delta that the last round spends", kind=float, metavar="X"
    )
    gsu_delta_share: float | None = setting(None, "delta_G / delta", kind=float, metavar="X")
    gsu_cap: float | None = setting(
        None, "c0, the weight cap of a user with D0 items", kind=float, metavar="X"
    )
    gsu_growth: float | None = setting(
        None, "eta, the growth of the rounds' coefficients", kind=float, metavar="X"
    )
    gsu_score_constants: tuple[float, ...] | None = setting(
        None, "score of gsu", kind=tuple, metavar=",".join(_SCORE_NAMES)
    )


def resolve_gsu(request: Request) -> Request:
    """`request` with every gsu setting present.

    Raises:
      InputError: rounds without a preset and without fractions, or a value out of range.
    """
    settings: GsuSettings = request.settings
    settings.check()
    preset = preset_of(settings)
    max_items = value_or(request.max_items, preset.max_items)
    fractions = tuple(value_or(settings.gsu_fractions, preset.fractions))
    resolved = replace(
        settings,
        rounds=len(fractions),
        gsu_fractions=fractions,
        gsu_final_spending=value_or(settings.gsu_final_spending, preset.fin),
        gsu_delta_share=value_or(settings.gsu_delta_share, preset.delta_gauss_share),
        gsu_cap=value_or(settings.gsu_cap, _CAP_AT_100 if max_items <= 100 else preset.c0),
        gsu_growth=value_or(settings.gsu_growth, preset.eta),
        gsu_score_constants=value_or(settings.gsu_score_constants, astuple(preset.score)),
    )
    _check(resolved, request.delta)
    return replace(request, max_items=max_items, settings=resolved)


def preset_of(settings: GsuSettings) -> GsuPreset:
    """The preset of the number of rounds, or the nearest. Raises InputError."""
    if settings.gsu_fractions is not None:
        rounds = len(settings.gsu_fractions)
        if settings.rounds not in (None, rounds):
            raise SettingError(
                f"{constant('rounds')} ({settings.rounds}) and the number of {constant('gsu_fractions')} ({rounds}) "
                "differ"
            )
        return min(GSU_PRESETS.values(), key=lambda p: abs(math.log(p.rounds / max(rounds, 1))))
    name = f"gsu{value_or(settings.rounds, DEFAULT_ROUNDS)}"
    if name not in GSU_PRESETS:
        known = ", ".join(str(p.rounds) for p in GSU_PRESETS.values())
        raise SettingError(
            f"{constant('rounds')} must be one of {known}, or give {constant('gsu_fractions')}; got {settings.rounds}"
        )
    return GSU_PRESETS[name]


def _check(settings: GsuSettings, delta: float) -> None:
    fractions = filled_in(settings.gsu_fractions)
    if not 1 <= len(fractions) <= MAX_ROUNDS:
        raise SettingError(
            f"{constant('gsu_fractions')} needs 1 to {MAX_ROUNDS} values, got {len(fractions)}"
        )
    bad = [f for f in fractions if not (math.isfinite(f) and f > 0)]
    if bad or abs(math.fsum(fractions) - 1) > 1e-9:
        raise SettingError(f"{constant('gsu_fractions')} must be positive and sum to 1")
    for name in ("gsu_final_spending", "gsu_cap"):
        if not 0 < getattr(settings, name) <= 1:
            raise SettingError(
                f"{constant(name)} must be a number above 0 and at most 1, got {getattr(settings, name)}"
            )
    share = filled_in(settings.gsu_delta_share)
    check_share("gsu_delta_share", share, constant)
    if not delta * (1 - share) < 0.5:
        raise SettingError(
            f"{param('delta')} ({delta:g}) leaves a threshold share of 1/2 or more, at which gsu says nothing; "
            f"lower it, or raise {constant('gsu_delta_share')}"
        )
    growth = filled_in(settings.gsu_growth)
    if not -100 <= growth <= 100:
        raise SettingError(f"{constant('gsu_growth')} must be a number from -100 to 100, got {growth}")
    constants = filled_in(settings.gsu_score_constants)
    if len(constants) != len(_SCORE_NAMES) or not all(map(math.isfinite, constants)):
        raise SettingError(
            f"{constant('gsu_score_constants')} needs the {len(_SCORE_NAMES)} numbers {','.join(_SCORE_NAMES)}"
        )
    a, a1, k1, kk, _, k2, _ = constants
    if k1 <= 0 or k2 <= 0:
        raise SettingError(f"{constant('gsu_score_constants')}: k1 and k2 must be above 0")
    if not math.isfinite(abs(a) + abs(a1)) or abs(math.log(k1)) + abs(kk) / 2 > _LOG_WIDTH:
        raise SettingError(
            f"{constant('gsu_score_constants')}: a + a1 (V - 1/2) must be finite for V from 0 to 1, and "
            "k1 exp(kk (V - 1/2)) between 1e-130 and 1e+130"
        )
