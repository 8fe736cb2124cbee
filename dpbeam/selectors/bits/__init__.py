"""bits: an item is released by a coin that depends on who holds it, nothing else is shown; docs/explanation/bits.md."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpbeam.errors import SettingError, constant, param
from dpbeam.selectors.base import (
    MANY_ITEMS,
    Advice,
    Calibration,
    Request,
    RoundPlan,
    Selector,
    Settings,
    check_range,
    holds_few,
    setting,
)
from dpbeam.selectors.multi_round import MAX_SHARES, POOL

# Best of what was tried on public datasets; constants, so they cost no privacy.
_SPLIT = (0.05, 0.1, 0.2, 0.65)
_MOST_ITEMS = 1_000_000


@dataclass(frozen=True)
class BitsSettings(Settings):
    """Public numbers of bits; each is a flag of its own."""

    budget_split: tuple[float, ...] = setting(_SPLIT, "shares of the rounds, sum 1", metavar="A,B,...")
    bits_full_items: int = setting(
        16,
        "users of up to so many items give each a weight of 1; with more items, less to each",
        low=1,
        high=_MOST_ITEMS,
        metavar="N",
    )
    round_items: tuple[float, ...] | None = setting(
        None,
        "items of a user that count in each round (default: --max_items_per_user in all)",
        kind=tuple,
        metavar="N,N,...",
    )

    def check(self) -> None:
        super().check()
        from dpbeam.accounting.budget import split_amount

        if not 1 <= len(self.budget_split) <= MAX_SHARES:
            raise SettingError(
                f"{constant('budget_split')} needs 1 to {MAX_SHARES} shares, got {len(self.budget_split)}"
            )
        split_amount(1.0, self.budget_split)
        if self.round_items is not None:
            if len(self.round_items) != len(self.budget_split):
                raise SettingError(
                    f"{constant('round_items')} needs one number a round, {len(self.budget_split)}, got "
                    f"{len(self.round_items)}"
                )
            for items in self.round_items:
                check_range("round_items", items, 1, _MOST_ITEMS, integer=True, named=constant)


class Bits(Selector):
    """Coins of known probabilities on exact weights; released items leave every user's set for later rounds."""

    name = "bits"
    summary = "releases by coins on exact weights and shows nothing else; where users hold hundreds of items"
    settings_type = BitsSettings
    variants = {  # noqa: RUF012
        "bits": {},
        "bits one round": {"budget_split": (1.0,)},
        "bits four full items": {"bits_full_items": 4},
    }
    tunable = {  # noqa: RUF012
        "max_items_per_user": (50, 200, 400),
        "budget_split": (_SPLIT, (1.0,)),
        "bits_full_items": (4, 16),
    }
    default_max_items = 200
    shows_weights = False
    takes_min_users = True

    def resolve(self, request: Request) -> Request:
        asked = request.max_items
        request = super().resolve(request)
        settings: BitsSettings = request.settings
        most = request.max_items or self.default_max_items
        items = tuple(int(n) for n in settings.round_items or (most,) * len(settings.budget_split))
        if asked not in (None, max(items)):
            raise SettingError(
                f"{param('max_items_per_user')} ({asked}) and the largest of {constant('round_items')} ({max(items)}) "
                "differ: drop one of them"
            )
        settings = replace(settings, budget_split=tuple(settings.budget_split), round_items=items)
        return replace(request, max_items=max(items), settings=settings)

    def plan(self, request: Request) -> Calibration:
        from dpbeam.accounting.events import ComposedEvent
        from dpbeam.selectors.bits.calibration import calibrate_bits
        from dpbeam.selectors.bits.program import BitsProgram

        settings: BitsSettings = request.settings
        sizes = tuple(int(items) for items in settings.round_items or ())
        rows = calibrate_bits(
            request.epsilon, request.delta, settings.budget_split, sizes, settings.bits_full_items
        )
        events = tuple(row.event(number, self.name) for number, row in enumerate(rows, start=1))
        program = BitsProgram(
            coins=[event.noise for event in events],
            moves=[row.moves for row in rows],
            pool=POOL if len(events) > 1 else None,
        )
        rounds = tuple(
            RoundPlan(event.noise, event.noise.threshold, event.noise, 1.0, event.outside_delta())
            for event in events
        )
        event = ComposedEvent("renyi", events, epsilon=request.epsilon, label=self.name)
        return Calibration(program, rounds, event)

    def advice(self, items_per_user: float, rare_items: float | None = None) -> Advice | None:
        if holds_few(items_per_user, rare_items) or items_per_user <= MANY_ITEMS:
            return None
        return Advice(
            {"max_items_per_user": 400},
            f"coins that show the released items alone release most where users hold more than {MANY_ITEMS:g} items; "
            "gsu, with 16 rounds, where noisy weights are wanted too",
        )

    def weight(self, calibration: Calibration, degree: int) -> float:
        event = calibration.event.parts[-1]
        return event.steps(min(degree, event.max_items)) / event.curve.grid

    def keep_probability(self, calibration: Calibration, users: int, degree: int) -> float:
        """Rounds are independent; where a round takes fewer items than users hold, with the expected count."""
        missed = 1.0
        for row, event in zip(calibration.rounds, calibration.event.parts, strict=True):
            held = min(event.max_items, degree)
            counted = users * held // degree
            steps = counted * event.steps(held) - round(row.floor * event.curve.grid)
            missed *= 1.0 - float(event.curve.law.release_probability(max(0, steps)))
        return 1.0 - missed
