"""Settings of a series, and its plan: everything public about the window, fixed before the first night."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpbeam.accounting.accountant import sigma_beside
from dpbeam.accounting.budget import calibrates, two_parts
from dpbeam.accounting.events import ComposedEvent, SavedNormEvent
from dpbeam.accounting.ledger import Ledger, guarantee_note, key_source
from dpbeam.accounting.noise import NoiseMismatchError
from dpbeam.accounting.versions import code_revision, versions
from dpbeam.engine.planned import check_plan
from dpbeam.errors import SettingError, param
from dpbeam.selection.ledger import one_value_of
from dpbeam.selectors.base import filled_in
from dpbeam.series.calibration import SeriesCalibration, calibrate_series
from dpbeam.series.counts import SeriesCounts
from dpbeam.series.program import SeriesProgram
from dpbeam.series.saved import FULL, LARGEST_NORM

if TYPE_CHECKING:
    from dpbeam.series.family import SeriesConfig

METHOD = "series"


@dataclass(frozen=True)
class SeriesPlan:
    """A calibrated series; `counts` is what makes noisy counts, None without.

    Raises:
      NoiseMismatchError: the caps of ranks are none that the tests pay for; and as `check_plan`.
    """

    config: SeriesConfig
    calibration: SeriesCalibration
    counts: SeriesCounts | None = None

    def __post_init__(self) -> None:
        config, tests = self.config, self.calibration.event().parts[-1]
        drawn = [] if self.counts is None else [self.counts.noise]
        budget = config.epsilon, config.delta
        check_plan(self.program, self.event, *budget, "a series", drawn=drawn, by_rank=[tests])
        self._check_weights()

    def _check_weights(self) -> None:
        """Hold what the program lets a user give against what noise and thresholds pay for."""
        tests, program = self.calibration.event().parts[-1], self.program
        if tests.caps != tuple(program.caps[1:]):
            raise NoiseMismatchError("the ledger states other caps than the program has")
        saved = [part for part in self.calibration.event().parts if type(part) is SavedNormEvent]
        if [part.largest for part in saved] != ([] if program.saving is None else [LARGEST_NORM]):
            raise NoiseMismatchError(
                "the ledger states another bound on a user's norm than the program holds"
            )
        for part in saved:
            paid = zip(part.shares, program.saving.shares if program.saving else (), strict=True)
            if any(share * FULL > taken for share, taken in ((Fraction(s), t) for s, t in paid)):
                raise NoiseMismatchError(
                    "in a round the program takes less of a user's norm than the ledger states"
                )
        if self.counts is not None and self.counts.items != self.config.max_items_per_user:
            raise NoiseMismatchError("noisy counts are calibrated for another number of items per user")

    @property
    def composition(self) -> str:
        """How rounds are composed, for the ledger's readers."""
        return self.event.kind

    @functools.cached_property
    def event(self) -> ComposedEvent:
        """What the ledger records of the whole window."""
        selection = self.calibration.event()
        if self.counts is None:
            return selection
        parts = (selection, self.counts.event)
        return ComposedEvent("gaussian", parts, label=METHOD, epsilon=self.config.epsilon)

    @functools.cached_property
    def program(self) -> SeriesProgram:
        """What runs."""
        config = self.config
        return SeriesProgram(
            self.calibration,
            config.resolved_schedule,
            config.score,
            filled_in(config.aims),
            config.growth,
            config.saved_norm,
        )


@calibrates
def plan_series(config: SeriesConfig) -> SeriesPlan:
    """Calibrates a series; needs no data.

    Noisy counts get what the rounds and tests leave of the whole, which compose with them as Gaussian mechanisms.
    """
    epsilon, delta = config.epsilon, config.delta
    if config.noisy_count_share is not None:
        epsilon, delta = two_parts(epsilon, delta, config.noisy_count_share)[0]
    calibration = calibrate_series(
        epsilon,
        delta,
        config.resolved_schedule,
        delta_gauss_share=config.delta_share,
        max_items=config.max_items_per_user,
        c0=config.cap,
        rise=filled_in(config.rise),
        rank_power=config.rank_power,
        saves_norm=config.saved_norm is not None,
    )
    if config.noisy_count_share is None:
        return SeriesPlan(config, calibration)
    sigma = sigma_beside((calibration.event(),), config.epsilon, config.delta)
    if sigma is None:
        raise SettingError(f"{param('noisy_count_share')} leaves nothing for the counts: raise it")
    rounds = config.resolved_schedule.rounds
    return SeriesPlan(config, calibration, SeriesCounts(sigma, config.max_items_per_user, rounds + 1))


def series_ledger(
    plan: SeriesPlan,
    *,
    series_id: str,
    fixed_key: bool,
    user_column: str | None = None,
    night: int | None = None,
    known_items: bool = False,
) -> Ledger:
    """The ledger of the window, or of one of its nights.

    Both state what the whole window costs, once: a night's says that it is part of the series `series_id` and which
    rounds it has made, and costs nothing besides.

    Args:
      fixed_key: whether the key is a fixed one of tests.
      user_column: whose values are users, where it has a name that is known for all nights.
      known_items: whether the series was opened with items that are known already.
    """
    config = plan.config
    parameters = {**config.parameters(plan), "series": series_id}
    if night is not None:
        rounds = config.resolved_schedule.of_night(night)
        parameters |= {"night": config.name_of(night), "rounds": [rounds.start + 1, rounds.stop]}
    return Ledger(
        method=METHOD,
        epsilon=config.epsilon,
        delta=config.delta,
        accounting=plan.event.kind,
        events=plan.event,
        privacy_unit=one_value_of(user_column),
        guarantee_note=guarantee_note([METHOD]),
        parameters=parameters,
        key_source=key_source(fixed=fixed_key),
        versions=versions(),
        code_revision=code_revision(),
        public_items=known_items,
    )
