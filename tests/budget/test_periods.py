"""Calendar windows against the calendar module, and days as they are typed."""

import calendar
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbeam.budget.periods import PERIODS, Days, parse_day, parse_days, window
from dpbeam.errors import InputError

DAYS = st.dates(date(1900, 1, 1), date(2200, 12, 31))


@given(DAYS)
def test_windows_are_those_of_the_calendar(day):
    last = calendar.monthrange(day.year, day.month)[1]
    assert window("month", day) == Days(day.replace(day=1), day.replace(day=last))
    assert window("year", day) == Days(date(day.year, 1, 1), date(day.year, 12, 31))
    quarter = [month for month in range(1, 13) if (month - 1) // 3 == (day.month - 1) // 3]
    ends = date(day.year, quarter[-1], calendar.monthrange(day.year, quarter[-1])[1])
    assert window("quarter", day) == Days(date(day.year, quarter[0], 1), ends)
    week = window("week", day)
    assert {each.isocalendar()[:2] for each in week} == {day.isocalendar()[:2]} and len(list(week)) == 7
    assert window("day", day) == Days(day, day)


@given(DAYS, st.sampled_from(PERIODS))
def test_windows_part_the_days(day, period):
    """Every day lies in one window, and the next begins where one ends."""
    span = window(period, day)
    assert span.first <= day <= span.last
    assert window(period, span.first) == window(period, span.last) == span
    assert window(period, span.last + timedelta(1)).first == span.last + timedelta(1)


def test_days_are_parsed():
    assert parse_days("2026-02-28", "--x") == Days(date(2026, 2, 28), date(2026, 2, 28))
    assert str(parse_days("2026-02-01:2026-02-28", "--x")) == "2026-02-01:2026-02-28"
    assert len(list(parse_days("2024-02-01:2024-02-29", "--x"))) == 29


@pytest.mark.parametrize(
    "text", ["2026-2-1", "20260201", "2026-02-30", "", "yesterday", "2026-02-01:", "2026-02-01T00"]
)
def test_other_days_are_refused(text):
    with pytest.raises(InputError, match=r"^--x: expected a day such as 2026-01-31, got '"):
        parse_days(text, "--x")


def test_days_run_forward_and_not_for_ever():
    with pytest.raises(InputError, match="ends before it begins"):
        parse_days("2026-02-02:2026-02-01", "--x")
    with pytest.raises(InputError, match="more than ten years"):
        parse_days("2000-01-01:2026-02-01", "--x")
    with pytest.raises(InputError):
        Days(parse_day("2026-02-02", "--x"), parse_day("2026-02-01", "--x"))
