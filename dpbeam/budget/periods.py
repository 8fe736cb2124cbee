"""Calendar periods after which a budget renews, and ranges of days: of the data, as the operator names them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from dpbeam.errors import SettingError

#: Months of a period that begins on the first of a month.
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
PERIODS = ("day", "week", *_MONTHS)
_MOST_DAYS = 3_700


@dataclass(frozen=True, order=True)
class Days:
    """Days from `first` to `last`, both included."""

    first: date
    last: date

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise SettingError(f"the days {self} end before they begin")

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}:{self.last}"

    def __iter__(self) -> Iterator[date]:
        return (self.first + timedelta(n) for n in range((self.last - self.first).days + 1))

    def overlaps(self, other: Days) -> bool:
        """Whether the two have a day in common."""
        return self.first <= other.last and other.first <= self.last


#: All of time.
ALWAYS = Days(date.min, date.max)


def parse_day(text: str, flag: str) -> date:
    """A day written YYYY-MM-DD.

    Raises: InputError naming the flag.
    """
    try:
        if len(text) != 10:
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        raise SettingError(f"{flag}: expected a day such as 2026-01-31, got '{text}'") from None


def parse_days(text: str, flag: str) -> Days:
    """A day, or FIRST:LAST.

    Raises: InputError naming the flag; also on more than ten years.
    """
    first, colon, last = text.partition(":")
    begin = parse_day(first, flag)
    end = parse_day(last, flag) if colon else begin
    if end < begin:
        raise SettingError(f"{flag}: '{text}' ends before it begins")
    if (end - begin).days > _MOST_DAYS:
        raise SettingError(f"{flag}: '{text}' is more than ten years")
    return Days(begin, end)


def window(period: str, day: date) -> Days:
    """The calendar period in which a day lies; weeks begin on Monday (ISO 8601)."""
    if period == "day":
        return Days(day, day)
    if period == "week":
        monday = day - timedelta(day.weekday())
        return Days(monday, date.fromordinal(min(monday.toordinal() + 6, date.max.toordinal())))
    months = _MONTHS[period]
    first = date(day.year, (day.month - 1) // months * months + 1, 1)
    year, month = divmod(first.year * 12 + first.month - 1 + months, 12)
    return Days(first, date.max if year > date.max.year else date(year, month + 1, 1) - timedelta(1))
