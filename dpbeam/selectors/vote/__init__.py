"""vote: every user has one vote, which passes from a full item to the next of the user's; docs/explanation/vote.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from dpbeam.errors import SettingError, constant, param
from dpbeam.selectors.base import (
    FEW_ITEMS,
    FEW_RARE_ITEMS,
    Advice,
    Calibration,
    Request,
    RoundPlan,
    Selector,
    Settings,
    filled_in,
    holds_few,
    setting,
    sureness,
)

if TYPE_CHECKING:
    from dpbeam.accounting.geometric import CountNoise
    from dpbeam.selectors.vote.program import VoteProgram

# An item that has more votes than it needs for this probability passes the others on.
_SURE = 0.95
_MOST = 1 << 20


@dataclass(frozen=True)
class VoteSettings(Settings):
    """How votes move; public numbers, none of which the guarantee depends on."""

    vote_trips: int = setting(12, "how often a vote may ask an item", low=1, high=64, metavar="T")
    vote_quota: int | None = setting(
        None, "votes that an item keeps (default: enough for 95 %)", kind=int, low=1, high=_MOST, metavar="N"
    )


class Vote(Selector):
    """One transferable vote per user; the fastest release that the budget allows for such counts."""

    name = "vote"
    summary = "each user casts one vote, which passes from full items to its next; where users hold few items"
    settings_type = VoteSettings
    variants = {"vote": {}}  # noqa: RUF012
    tunable = {"max_items_per_user": (10, 100), "vote_trips": (4, 12)}  # noqa: RUF012
    takes_min_users = True

    def resolve(self, request: Request) -> Request:
        request = super().resolve(request)
        quota = request.settings.vote_quota
        if quota is None:
            quota = _noise(request).law.users_needed(_SURE) + request.min_users - 1
        if quota < request.min_users:
            raise SettingError(
                f"{constant('vote_quota')} ({quota}) must be at least {param('min_users')} ({request.min_users}): an "
                "item would pass on the votes that it needs"
            )
        return replace(request, settings=replace(request.settings, vote_quota=quota))

    def plan(self, request: Request) -> Calibration:
        from dpbeam.accounting.events import ComposedEvent, CountEvent
        from dpbeam.selectors.vote.program import VoteProgram

        noise = _noise(request)
        program = VoteProgram(
            noise=noise,
            quota=request.settings.vote_quota,
            trips=request.settings.vote_trips,
            max_items=filled_in(request.max_items),
        )
        row = RoundPlan(noise=noise, threshold=float(noise.law.threshold), statistic=noise)
        event = CountEvent(noise.epsilon, noise.delta, label=self.name)
        return Calibration(program, (row,), ComposedEvent("pure", (event,), label=self.name))

    def weight(self, calibration: Calibration, degree: int) -> float:
        return 1.0 / degree

    def keep_probability(self, calibration: Calibration, users: int, degree: int) -> float:
        """If each user's vote falls on the item with probability 1/degree; what transfers bring comes on top.

        Of users who have other items the item keeps no more votes than its quota, unless votes never move.
        """
        import numpy as np
        from scipy import stats

        program = cast("VoteProgram", calibration.program)
        law, floor = program.count_noise.law, round(calibration.rounds[0].floor)
        most = len(law.cumulative) - 1  # more votes than these make no difference
        if degree > 1 and program.trips > 1:
            most = min(most, program.quota - floor)
        few, votes = np.arange(most), stats.binom(users, 1.0 / degree)
        rest = votes.sf(floor + most - 1) * law.release_probability(most)
        return float(votes.pmf(floor + few) @ law.release_probability(few) + rest)

    def advice(self, items_per_user: float, rare_items: float | None = None) -> Advice | None:
        if not holds_few(items_per_user, rare_items):
            return None
        held = f"{FEW_ITEMS:g} items" if rare_items is None else f"{FEW_RARE_ITEMS:g} rare items, if any"
        why = f"one whole vote per user releases most where users hold up to {held}"
        return Advice({}, why + sureness(items_per_user, rare_items))


def _noise(request: Request) -> CountNoise:
    """The noise of a request.

    Raises:
      InputError: the budget needs a longer law than there are tables for.
    """
    from dpbeam.accounting.geometric import CountNoise
    from dpbeam.accounting.tables import NoTableError

    noise = CountNoise(request.epsilon, request.delta)
    try:
        noise.law  # noqa: B018  (made here, and checked)
    except NoTableError as needed:
        budget = f"{param('epsilon')} ({request.epsilon:g}) and {param('delta')} ({request.delta:g})"
        raise SettingError(f"{budget} need {needed}; raise one of them") from None
    return noise
