"""The classical weighted Laplace mechanism: every user spreads one unit of l1 weight evenly.

Korolova et al. 2009; Gopi et al. 2020, weighted Laplace. Guarantee: the noisy weights of the whole universe are
(epsilon, 0)-DP, since one user's weights have an l1 norm of at most 1; the threshold lets one of a user's novel items
pass with probability at most delta, which stands outside the factor exp(epsilon) (docs/explanation/privacy.md).
"""

from __future__ import annotations

from dpbeam.selectors.base import Calibration, Request, Selector, filled_in


class Laplace(Selector):
    """One round of Laplace noise of scale 1/epsilon; all of delta goes to the threshold."""

    name = "laplace"
    peer_reviewed = True
    summary = "each user spreads one unit of l1 weight evenly, with Laplace noise"
    presets = {"published": {}}  # noqa: RUF012
    variants = {"laplace": {}}  # noqa: RUF012
    # Weights fall like 1/d: of 1, 2, 3, 5, 10, 30 and 100 items, one released most on all of three public sets.
    default_max_items = 1
    takes_min_users = True
    tunable = {"max_items_per_user": (1, 2, 3, 10, 30)}  # noqa: RUF012

    def plan(self, request: Request) -> Calibration:
        from dpbeam.accounting.events import ComposedEvent
        from dpbeam.accounting.noise import NoiseSpec
        from dpbeam.selectors.rounds import Round
        from dpbeam.selectors.uniform.program import UniformProgram

        # The event's epsilon, 1/scale rounded up, stays within the budget.
        noise = NoiseSpec("laplace", 1.0 / request.epsilon * (1.0 + 1e-15))
        max_items = filled_in(request.max_items)
        only = Round.create(noise, request.delta, 1.0, max_items, self.name)
        program = UniformProgram(noises=[noise], thresholds=[only.threshold], max_items=max_items)
        return Calibration(program, (only.plan,), ComposedEvent("pure", only.events, label=self.name))

    def count_units(self, max_items: int) -> int:
        from dpbeam.kernels.grid import uniform_l1_units

        return int(uniform_l1_units(max_items)[max_items])

    def weight(self, calibration: Calibration, degree: int) -> float:
        return 1.0 / degree
