"""Public schedules of a series: which round belongs to which night, what each spends, and how weights should grow.

A schedule is fixed when the series is opened and looks at nothing. The presets were tuned on public data
(docs/explanation/series.md); privacy does not depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpbeam.errors import SettingError, param
from dpbeam.selectors.gsu.presets import MAX_ROUNDS, ScoreConstants

# Within a night each round spends this much more noise than the one before; its last round takes half of its tests.
_WITHIN_NIGHT, _LAST_OF_NIGHT = 1.1, 0.5


#: Aims of the score: (factor, summand, weight). The item is scored towards the end of night floor(factor t + summand),
#: t being the night of the round that it is scored for; a factor of None stands for the last night.
Aims = tuple[tuple[float | None, float, float], ...]
AIMS: Aims = ((1.2, 0.0, 1.0), (1.5, 1.0, 0.8), (None, 0.0, 0.15))
_NEAR_AIMS: Aims = ((1.1, 0.0, 1.0), (1.3, 1.0, 0.6), (None, 0.0, 0.15))
RISE = 1.0


@dataclass(frozen=True)
class Preset:
    """How a schedule follows from the number of nights.

    Attributes:
      decay: night t gets noise in proportion to t^-decay, before the first and the last night get their extra.
      first, last: extra shares of the noise.
      opening: rounds of the first nights; every other night but the last has one.
      closing: rounds of the last night.
      final_spending: share of delta_threshold that the last round of all spends.
      saved_norm, rise, aims: see `SeriesConfig`.
    """

    decay: float
    first: float
    last: float
    opening: tuple[int, ...]
    closing: int
    final_spending: float
    saved_norm: float | None = None
    rise: float = RISE
    aims: Aims = AIMS


_OPENING = (6, 4, 3, 2, 2, 2)
PRESETS = {
    "steady": Preset(0.4, 0.04, 0.10, _OPENING, 12, 0.2, 2.5, 2.0, _NEAR_AIMS),
    "balanced": Preset(0.3, 0.04, 0.20, _OPENING, 12, 0.4, 1.0, 2.0, _NEAR_AIMS),
    "toward-end": Preset(0.0, 0.01, 0.40, (4, 2, 2), 12, 0.6, 0.0, 2.0, _NEAR_AIMS),
    "last-night": Preset(0.0, 0.01, 0.60, (4, 2, 2), 12, 0.6, 0.0, 2.0, _NEAR_AIMS),
    # Of version 1, in which every night stands for itself: for its ledgers and open windows.
    "early": Preset(0.25, 0.03, 0.20, _OPENING, 12, 0.4),
    "early-flat": Preset(0.25, 0.03, 0.08, _OPENING, 12, 0.4),
    "late": Preset(0.0, 0.01, 0.40, (4, 2, 2), 12, 0.6),
}
DEFAULT_PRESET = "balanced"

SCORE = ScoreConstants(a=0.89, a1=-0.69, k1=0.88, kk=-0.36, b=-0.57, k2=2.4, g=1.1)
GROWTH = 0.125  # the weight of an item on night t is expected to be (t/T)^GROWTH of what it is in the end


@dataclass(frozen=True)
class Schedule:
    """Public numbers of every round of a window.

    Attributes:
      nights: (R,) the night of each round, from 1, every night at least once, ascending.
      fractions: (R,) f_r, sum 1; spending: (R,) shares of delta_threshold, sum 1.
    """

    nights: tuple[int, ...]
    fractions: tuple[float, ...]
    spending: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.nights or len(self.nights) > MAX_ROUNDS:
            raise SettingError(f"a series has 1 to {MAX_ROUNDS} rounds, got {len(self.nights)}")
        steps = [later - night for night, later in zip((0, *self.nights), self.nights)]
        if steps[0] != 1 or not set(steps) <= {0, 1}:
            raise SettingError("nights must be numbered from 1, each with at least one round, in order")
        if not len(self.nights) == len(self.fractions) == len(self.spending):
            raise SettingError("nights, fractions and spending must have one value for each round")
        if any(not share > 0 for share in (*self.fractions, *self.spending)):
            raise SettingError("fractions and spending must be above 0 in every round")

    @property
    def rounds(self) -> int:
        """How many rounds all nights have."""
        return len(self.nights)

    @property
    def last_night(self) -> int:
        """Its number, from 1."""
        return self.nights[-1]

    def of_night(self, night: int) -> range:
        """The rounds of a night, numbered from 0."""
        first = self.nights.index(night)
        return range(first, first + self.nights.count(night))

    def end_of(self, night: int) -> int:
        """The last round of a night, numbered from 0."""
        return self.of_night(night)[-1]


def preset_named(name: str) -> Preset:
    """A preset.

    Raises:
      InputError: there is none of this name.
    """
    if name not in PRESETS:
        raise SettingError(f"{param('preset')} must be one of {', '.join(PRESETS)}, got '{name}'")
    return PRESETS[name]


def preset_schedule(name: str, nights: int) -> Schedule:
    """The schedule of a preset for a window of so many nights.

    Raises:
      InputError: no such preset, or too many nights.
    """
    preset = preset_named(name)
    if isinstance(nights, bool) or not isinstance(nights, int) or not 1 <= nights <= MAX_ROUNDS:
        raise SettingError(f"{param('nights')} must be an integer from 1 to {MAX_ROUNDS}, got {nights}")
    share = [t**-preset.decay for t in range(1, nights + 1)]
    share = [s / math.fsum(share) for s in share]
    for night, extra in ((0, preset.first), (-1, preset.last)):
        share = [s * (1 - extra) for s in share]
        share[night] += extra
    counts = _rounds(preset, nights)
    fractions = [f for s, count in zip(share, counts) for f in _parts(s, _geometric(count))]
    tests = [(1 - preset.final_spending) / nights] * nights
    spending = [p for s, count in zip(tests, counts) for p in _parts(s, _tests(count))]
    spending[-1] += preset.final_spending
    numbers = [night for night, count in enumerate(counts, start=1) for _ in range(count)]
    return Schedule(tuple(numbers), _normalised(fractions), _normalised(spending))


def _rounds(preset: Preset, nights: int) -> list[int]:
    """Rounds of each night; where the window is long, nights with many rounds give some back."""
    counts = [1] * nights
    for night, count in zip(range(nights - 1), preset.opening):
        counts[night] = count
    counts[-1] = preset.closing
    while sum(counts) > MAX_ROUNDS:
        counts[max(range(nights), key=lambda night: counts[night])] -= 1
    return counts


def _geometric(count: int) -> list[float]:
    return [_WITHIN_NIGHT**n for n in range(count)]


def _tests(count: int) -> list[float]:
    return [1.0] if count == 1 else [*[(1 - _LAST_OF_NIGHT) / (count - 1)] * (count - 1), _LAST_OF_NIGHT]


def _parts(whole: float, weights: Sequence[float]) -> list[float]:
    total = math.fsum(weights)
    return [whole * weight / total for weight in weights]


def _normalised(values: Sequence[float]) -> tuple[float, ...]:
    total = math.fsum(values)
    return tuple(value / total for value in values)
