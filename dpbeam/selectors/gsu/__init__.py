"""GSU, the group-sequential union: noise spent over rounds, weight for undecided items (docs/explanation/gsu.md)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from dpbeam.selectors.base import (
    D0_TRIED,
    FEW_ITEMS,
    FEW_RARE_ITEMS,
    MANY_ITEMS,
    Advice,
    Calibration,
    Request,
    RoundPlan,
    Selector,
    filled_in,
    holds_few,
    sureness,
)
from dpbeam.selectors.gsu.presets import GSU_PRESETS
from dpbeam.selectors.gsu.settings import DEFAULT_ROUNDS, GsuSettings, preset_of, resolve_gsu

if TYPE_CHECKING:
    from dpbeam.selectors.gsu.program import GsuProgram

# Best D0 of public datasets, about (lab/docs/reference/results.md): users differ, a few hold many times the average.
_D0_OF_AVERAGE, _LARGEST_D0 = 10, 400


class Gsu(Selector):
    """R rounds; items are tested on the sum of all rounds so far."""

    name = "gsu"
    summary = "spends the noise over rounds and aims weight at undecided items"
    settings_type = GsuSettings
    takes_min_users = True
    variants = {  # noqa: RUF012
        f"gsu{DEFAULT_ROUNDS}": {"rounds": DEFAULT_ROUNDS},
        **{f"gsu{preset.rounds}": {"rounds": preset.rounds} for preset in GSU_PRESETS.values()},
        "gsu8 no score": {"rounds": 8, "gsu_score": False},
    }

    tunable = {  # noqa: RUF012
        "max_items_per_user": D0_TRIED,
        "rounds": tuple(preset.rounds for preset in GSU_PRESETS.values()),
    }

    def resolve(self, request: Request) -> Request:
        return resolve_gsu(request)

    def default_items(self, settings: GsuSettings) -> int:
        return preset_of(settings).max_items

    def plan(self, request: Request) -> Calibration:
        from dpbeam.accounting.noise import NoiseSpec
        from dpbeam.selectors.gsu.calibration import calibrate_gsu
        from dpbeam.selectors.gsu.presets import ScoreConstants, spending
        from dpbeam.selectors.gsu.program import GsuProgram

        settings: GsuSettings = request.settings
        rounds = filled_in(settings.rounds)
        constants = calibrate_gsu(
            request.epsilon,
            request.delta,
            filled_in(settings.gsu_fractions),
            spending(rounds, filled_in(settings.gsu_final_spending)),
            filled_in(settings.gsu_delta_share),
            filled_in(request.max_items),
            filled_in(settings.gsu_cap),
            filled_in(settings.gsu_growth),
        )
        program = GsuProgram(
            sigma=constants.sigma,
            fractions=constants.fractions,
            round_sigmas=constants.round_sigmas,
            coefficients=constants.a,
            drifts=constants.G,
            variances=constants.V,
            thresholds=constants.thresholds,
            caps=constants.caps,
            max_items=constants.max_items,
            score=ScoreConstants(*filled_in(settings.gsu_score_constants)) if settings.gsu_score else None,
        )
        plans = tuple(
            RoundPlan(
                noise=program.noise(k),
                threshold=float(constants.thresholds[k]),
                statistic=NoiseSpec("gaussian", float(constants.sigma * math.sqrt(constants.V[k])), k + 1),
                weight_factor=float(constants.G[k]),
            )
            for k in range(rounds)
        )
        return Calibration(program, plans, constants.event())

    def advice(self, items_per_user: float, rare_items: float | None = None) -> Advice | None:
        if holds_few(items_per_user, rare_items) or items_per_user > MANY_ITEMS:
            return None
        held = f"{FEW_ITEMS:g} items" if rare_items is None else f"{FEW_RARE_ITEMS:g} rare items, if any"
        why = f"rounds that aim weight at undecided items release most where users hold more than {held}"
        max_items = round(min(_LARGEST_D0, _D0_OF_AVERAGE * items_per_user))
        return Advice(
            {"max_items_per_user": max_items, "rounds": 16},
            why + sureness(items_per_user, rare_items),
        )

    def weight(self, calibration: Calibration, degree: int) -> float:
        program = cast("GsuProgram", calibration.program)
        return min(1.0 / math.sqrt(degree), float(program.caps[degree]))

    def keep_probability(self, calibration: Calibration, users: int, degree: int) -> float:
        """Of the last checkpoint alone; the true probability is a little larger."""
        return calibration.rounds[-1].release_probability(users * self.weight(calibration, degree))
