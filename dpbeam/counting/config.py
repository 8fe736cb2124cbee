"""Settings and plan of a count.

The list is public and all of its items are counted, so there is nothing to select and no threshold: the whole budget is
noise. As of a selection's counts, a part of it buys the histogram of how many listed items users hold, from which the
clip follows, and the rest the noise on sums of clipped weights (docs/explanation/counts.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbeam.accounting.accountant import sigma_beside
from dpbeam.accounting.budget import calibrates
from dpbeam.accounting.events import ComposedEvent
from dpbeam.counts.counted import CountProgram
from dpbeam.counts.gathered import NO_ITEMS, public_domain
from dpbeam.counts.listed import ListedCounts
from dpbeam.counts.selection import CountNoises
from dpbeam.engine.planned import check_plan
from dpbeam.kernels.columns import Columns

if TYPE_CHECKING:
    from dpbeam.counting.family import CountConfig


@dataclass(frozen=True)
class CountPlan:
    """A calibrated count.

    Attributes:
      noises: of the histogram and of the sums; event: what the ledger records.
    """

    config: CountConfig
    noises: CountNoises
    event: ComposedEvent
    composition: str = "gaussian"

    def __post_init__(self) -> None:
        self.program(public_domain(NO_ITEMS))

    def program(self, domain: Columns) -> ListedCounts:
        """What runs on the pairs of a list, from `public_domain`.

        Raises: see `check_plan`.
        """
        program = ListedCounts(CountProgram(), self.noises, domain)
        check_plan(program, self.event, self.config.epsilon, self.config.delta, "a count")
        return program


@calibrates
def plan_count(config: CountConfig) -> CountPlan:
    """Check and calibrate; needs no data.

    Raises:
      InputError: more noise than the fixed-point weights hold.
    """
    sigma = sigma_beside((), config.epsilon, config.delta)
    assert sigma is not None  # nothing stands beside it
    noises = CountNoises.calibrate(sigma, 1)
    event = ComposedEvent("gaussian", noises.events, epsilon=config.epsilon, label="count")
    return CountPlan(config, noises, event)
