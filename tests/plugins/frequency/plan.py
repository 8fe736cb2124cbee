"""Calibration of shares of users: two Gaussian rounds."""

from __future__ import annotations

from dataclasses import dataclass

from frequency.family import FrequencyConfig
from frequency.program import Shares

from dpbeam.accounting.accountant import sigma_beside
from dpbeam.accounting.budget import calibrates
from dpbeam.accounting.events import ComposedEvent, GaussianEvent
from dpbeam.accounting.gaussian import split_sigma
from dpbeam.counts.gathered import NO_ITEMS, public_domain
from dpbeam.engine.planned import check_plan
from dpbeam.kernels.columns import Columns


@dataclass(frozen=True)
class FrequencyPlan:
    """Calibrated shares.

    Attributes:
      users_sigma, sums_sigma: noise of the number of all users and of the sums of items; event: for the ledger.
    """

    config: FrequencyConfig
    users_sigma: float
    sums_sigma: float
    event: ComposedEvent
    composition: str = "gaussian"

    def __post_init__(self) -> None:
        self.program(public_domain(NO_ITEMS))

    def program(self, domain: Columns) -> Shares:
        """What runs on all pairs, for a list from `public_domain`.

        Raises: as `check_plan`.
        """
        config = self.config
        program = Shares(self.users_sigma, self.sums_sigma, config.clip, domain)
        check_plan(program, self.event, config.epsilon, config.delta, "frequency")
        return program


@calibrates
def plan_frequency(config: FrequencyConfig) -> FrequencyPlan:
    """Check and calibrate; needs no data.

    Raises:
      InputError: more noise than the fixed-point weights hold.
    """
    sigma = sigma_beside((), config.epsilon, config.delta)
    assert sigma is not None  # nothing stands beside it
    users, sums = split_sigma(sigma, [config.users_share, 1 - config.users_share])
    parts = (GaussianEvent(users, round=1, label="all users"), GaussianEvent(sums, round=2, label="sums"))
    event = ComposedEvent("gaussian", parts, epsilon=config.epsilon, label="frequency")
    return FrequencyPlan(config, users, sums, event)
