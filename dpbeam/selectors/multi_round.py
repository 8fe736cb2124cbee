"""Settings that selectors with several rounds of their own noise share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dpbeam.errors import SettingError, constant
from dpbeam.selectors.base import Request, Settings, setting

# Distinct items of one user that fresh samples draw from; bounds what a single user may occupy in memory.
# A uniform subset of this size stands for a larger set, which the guarantee allows and utility does not notice.
POOL = 1_000_000
MAX_SHARES = 64
PUBLISHED = {"accounting": "basic", "resample": False, "budget_split": (0.1, 0.9)}


@dataclass(frozen=True)
class MultiRoundSettings(Settings):
    """Attributes as their flags; `budget_split` None takes the selector's best split for the accounting."""

    accounting: str = setting(
        "gaussian",
        "how rounds compose: as one Gaussian mechanism, or basic",
        choices=("gaussian", "basic"),
        metavar="NAME",
    )
    resample: bool = setting(True, "sample each user's items afresh in every round")
    budget_split: tuple[float, ...] | None = setting(
        None, "shares of the rounds, sum 1", kind=tuple, metavar="A,B,..."
    )

    def check(self) -> None:
        super().check()
        if self.budget_split is not None:
            from dpbeam.accounting.budget import split_amount

            shares = tuple(self.budget_split)
            if not 1 <= len(shares) <= MAX_SHARES:
                raise SettingError(
                    f"{constant('budget_split')} needs 1 to {MAX_SHARES} shares, got {len(shares)}"
                )
            split_amount(1.0, shares)


def with_split(request: Request, best: Mapping[str, tuple[float, ...]]) -> Request:
    """The request with a budget split: its own, or the best one for its accounting."""
    settings = request.settings
    if settings.budget_split is not None:
        return request
    return replace(request, settings=replace(settings, budget_split=best[settings.accounting]))


def multi_round_variants(name: str) -> dict[str, dict]:
    """The default, the published setting, and the other combinations of accounting and sampling."""
    return {
        name: {},
        f"{name} published": {"preset": "published"},
        f"{name} one sample": {"resample": False},
        f"{name} basic accounting": {"accounting": "basic"},
    }
