"""Basic (the Weighted Gaussian Mechanism) and DP-SIPS: every user spreads one unit of l2 weight evenly."""

from __future__ import annotations

import math

from dpbeam.selectors.base import D0_TRIED, Calibration, Request, Selector, filled_in
from dpbeam.selectors.multi_round import (
    POOL,
    PUBLISHED,
    MultiRoundSettings,
    multi_round_variants,
    with_split,
)

# Best of the splits tried on public datasets; constants, so they cost no privacy.
_SPLITS = {"gaussian": (0.1, 0.2, 0.7), "basic": (0.1, 0.9)}


class _Even(Selector):
    takes_min_users = True

    def weight(self, calibration: Calibration, degree: int) -> float:
        return 1.0 / math.sqrt(degree)


class Basic(_Even):
    """One round. Korolova et al. 2009, Gopi et al. 2020."""

    name = "basic"
    peer_reviewed = True
    aliases = ("wgm",)
    summary = "each user spreads one unit of weight evenly"
    presets = {"published": {}}  # noqa: RUF012
    variants = {"basic": {}}  # noqa: RUF012

    def plan(self, request: Request) -> Calibration:
        return _plan(self.name, request, (1.0,), "gaussian", pool=None)

    def count_units(self, max_items: int) -> int:
        from dpbeam.kernels.grid import uniform_l2_units

        return int(uniform_l2_units(max_items)[max_items])


class DpSips(_Even):
    """Basic, repeated on what was not released. Swanberg et al. 2023."""

    name = "dp-sips"
    peer_reviewed = True
    summary = "Basic, repeated on what was not released"
    settings_type = MultiRoundSettings
    presets = {"published": PUBLISHED}  # noqa: RUF012
    variants = multi_round_variants("dp-sips")
    tunable = {"max_items_per_user": D0_TRIED, "budget_split": ((0.1, 0.2, 0.7), (0.3, 0.7))}  # noqa: RUF012

    def resolve(self, request: Request) -> Request:
        return with_split(super().resolve(request), _SPLITS)

    def plan(self, request: Request) -> Calibration:
        settings = request.settings
        pool = POOL if settings.resample else None
        return _plan(self.name, request, settings.budget_split, settings.accounting, pool=pool)


def _plan(
    label: str, request: Request, shares: tuple[float, ...], accounting: str, pool: int | None
) -> Calibration:
    from dpbeam.selectors.rounds import gaussian_rounds
    from dpbeam.selectors.uniform.program import UniformProgram

    rounds, event = gaussian_rounds(
        request, shares=shares, novel=(1.0,) * len(shares), accounting=accounting, label=label
    )
    program = UniformProgram(
        noises=[r.noise for r in rounds],
        thresholds=[r.threshold for r in rounds],
        max_items=filled_in(request.max_items),
        pool=pool,
    )
    return Calibration(program, tuple(r.plan for r in rounds), event)
