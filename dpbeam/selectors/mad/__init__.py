"""MAD and MAD2R (Chen et al. 2025): the excess weight of popular items goes back to their users' other items."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpbeam.errors import SettingError, constant, param
from dpbeam.selectors.base import (
    D0_TRIED,
    Calibration,
    Request,
    Selector,
    Settings,
    filled_in,
    setting,
)
from dpbeam.selectors.mad.degrees import MAX_ADAPTIVE_DEGREE, MIN_ADAPTIVE_DEGREE
from dpbeam.selectors.multi_round import (
    POOL,
    PUBLISHED,
    MultiRoundSettings,
    multi_round_variants,
    with_split,
)

if TYPE_CHECKING:
    from dpbeam.selectors.mad.program import MadRound
    from dpbeam.selectors.rounds import Round

_ADAPTIVE_DEGREE = 50
# Best of the splits tried on public datasets; constants, so they cost no privacy.
_SPLITS = {"gaussian": (0.3, 0.7), "basic": (0.1, 0.9)}


@dataclass(frozen=True)
class MadSettings(Settings):
    """d_max and beta."""

    max_adaptive_degree: int | None = setting(
        None,
        "d_max of MAD (default 50, or D0)",
        kind=int,
        low=MIN_ADAPTIVE_DEGREE,
        high=MAX_ADAPTIVE_DEGREE,
        metavar="N",
    )
    adaptive_excess: float = setting(2.0, "beta of MAD", low=0.0, high=1e6, metavar="X")


@dataclass(frozen=True)
class Mad2rSettings(MultiRoundSettings, MadSettings):
    """MAD's, those of rounds, and b_min, b_max, C_lb, C_ub."""

    min_bias: float = setting(0.5, "b_min of MAD2R", low=0.5, high=1.0, metavar="X")
    max_bias: float = setting(2.0, "b_max of MAD2R", low=1.0, high=1e6, metavar="X")
    lower_confidence: float = setting(1.0, "C_lb of MAD2R", low=0.0, high=1e6, metavar="X")
    upper_confidence: float = setting(3.0, "C_ub of MAD2R", low=0.0, high=1e6, metavar="X")


class _Rerouting(Selector):
    """What MAD and MAD2R share."""

    takes_min_users = True

    def resolve(self, request: Request) -> Request:
        request = super().resolve(request)
        degree, max_items = request.settings.max_adaptive_degree, filled_in(request.max_items)
        if degree is None:
            degree = min(_ADAPTIVE_DEGREE, max_items)
            if degree < MIN_ADAPTIVE_DEGREE:
                raise SettingError(
                    f"{param('max_items_per_user')} must be at least {MIN_ADAPTIVE_DEGREE} for "
                    f"{param('method')}={self.name}, got {degree}"
                )
            request = replace(request, settings=replace(request.settings, max_adaptive_degree=degree))
        if degree > max_items:
            raise SettingError(
                f"{constant('max_adaptive_degree')} ({degree}) must not exceed {param('max_items_per_user')} "
                f"({max_items}): no user would hold so many items"
            )
        return request

    def weight(self, calibration: Calibration, degree: int) -> float:
        return 1.0 / math.sqrt(degree)


class Mad(_Rerouting):
    """One round of MaxAdaptiveDegree."""

    name = "mad"
    peer_reviewed = True
    summary = "Basic with the excess of popular items rerouted"
    settings_type = MadSettings
    presets = {"published": {}}  # noqa: RUF012
    variants = {"mad": {}}  # noqa: RUF012

    def plan(self, request: Request) -> Calibration:
        from dpbeam.selectors.mad.program import MadProgram
        from dpbeam.selectors.rounds import gaussian_rounds

        rounds, event = gaussian_rounds(
            request, shares=(1.0,), novel=(1.0,), accounting="gaussian", label=self.name
        )
        floor = request.min_users - 1
        program = MadProgram(
            round=_mad_round(request.settings, rounds[0], 1.0, floor),
            max_items=filled_in(request.max_items),
            count_users=floor > 0,
        )
        return Calibration(program, tuple(r.plan for r in rounds), event)


class Mad2r(_Rerouting):
    """MAD, then MAD with biases learnt from the first round's noisy weights."""

    name = "mad2r"
    peer_reviewed = True
    summary = "MAD twice, the second round biased by the first"
    settings_type = Mad2rSettings
    presets = {"published": PUBLISHED}  # noqa: RUF012
    variants = multi_round_variants("mad2r")
    tunable = {"max_items_per_user": D0_TRIED, "budget_split": ((0.1, 0.9), (0.3, 0.7))}  # noqa: RUF012

    def resolve(self, request: Request) -> Request:
        request = with_split(super().resolve(request), _SPLITS)
        shares = request.settings.budget_split
        if len(shares) != 2:
            raise SettingError(f"{constant('budget_split')} of mad2r needs two shares, got {len(shares)}")
        return request

    def plan(self, request: Request) -> Calibration:
        from dpbeam.selectors.mad.program import Mad2rProgram
        from dpbeam.selectors.rounds import gaussian_rounds

        settings = request.settings
        rounds, event = gaussian_rounds(
            request,
            shares=settings.budget_split,
            novel=(1.0, settings.max_bias),
            accounting=settings.accounting,
            label=self.name,
        )
        floor = request.min_users - 1
        program = Mad2rProgram(
            first=_mad_round(settings, rounds[0], 1.0, floor),
            second=_mad_round(settings, rounds[1], settings.min_bias, floor),
            max_items=filled_in(request.max_items),
            b_min=settings.min_bias,
            b_max=settings.max_bias,
            lower_confidence=settings.lower_confidence,
            upper_confidence=settings.upper_confidence,
            pool=POOL if settings.resample else None,
            floor=float(floor) if floor else None,
        )
        return Calibration(program, tuple(r.plan for r in rounds), event)


def _mad_round(settings: MadSettings, noise: Round, b_min: float, floor: int) -> MadRound:
    """A round whose adaptive threshold lies above the weight that a floor on users takes off.

    With tau >= floor + 1 an item of floor + 1 users has no excess, which the proof with a floor rests on.
    """
    from dpbeam.selectors.mad.kernels import MadTables
    from dpbeam.selectors.mad.program import MadRound

    tau = noise.threshold + settings.adaptive_excess * noise.noise.deviation
    if tau < 1.0:
        raise SettingError(
            f"{constant('adaptive_excess')}: MAD needs an adaptive threshold of at least 1, which is "
            f"{tau:.4g} at this epsilon "
            f"and delta; use {param('method')}=basic, or a larger {constant('adaptive_excess')}"
        )
    degree = filled_in(settings.max_adaptive_degree)
    tables = MadTables.create(tau=tau + floor, max_adaptive_degree=degree, b_min=b_min)
    return MadRound(noise.noise, noise.threshold, tables)
