"""memory/recall/dates.py: days and periods in questions."""

from __future__ import annotations

import datetime

import pytest
from recalld.memory.recall.dates import Period, parse_day, periods_in

D = datetime.date
TODAY = D(2026, 3, 1)


@pytest.mark.parametrize(
    ("text", "periods"),
    [
        ("on 2025-08-16", [(D(2025, 8, 16), D(2025, 8, 16))]),
        ("in 2025-08", [(D(2025, 8, 1), D(2025, 8, 31))]),
        ("on 7 may 2023", [(D(2023, 5, 7), D(2023, 5, 7))]),
        ("on may 7th, 2023", [(D(2023, 5, 7), D(2023, 5, 7))]),
        ("in february 2024", [(D(2024, 2, 1), D(2024, 2, 29))]),
        ("in 2021", [(D(2021, 1, 1), D(2021, 12, 31))]),
        ("what did we do yesterday", [(D(2026, 2, 28), D(2026, 2, 28))]),
        ("two weeks ago", [(D(2026, 2, 12), D(2026, 2, 18))]),
        ("it may march on", []),
        ("version 2025.3", []),
        ("on 31 february 2024", [(D(2024, 2, 1), D(2024, 2, 29))]),
        ("in 2025-13", [(D(2025, 1, 1), D(2025, 12, 31))]),
        ("on 2025-02-30", []),
        ("", []),
    ],
)
def test_periods(text: str, periods: list[tuple[datetime.date, datetime.date]]) -> None:
    """Days, months, years and relative times; of an impossible day, what is left of it."""
    assert [(period.first, period.last) for period in periods_in(text, TODAY)] == periods


def test_a_month_of_no_year_fits_every_year() -> None:
    """ "in June" fits any June, and knows how far other days are."""
    (june,) = periods_in("in june", TODAY)
    assert june.holds(D(2024, 6, 3))
    assert june.holds(D(2019, 6, 30))
    assert june.distance(D(2024, 7, 2)) == 2


def test_distance() -> None:
    """Days from the nearer end; nothing inside."""
    period = Period(D(2025, 1, 10), D(2025, 1, 20))
    assert [period.distance(D(2025, 1, day)) for day in (5, 10, 15, 25)] == [5, 0, 0, 5]


@pytest.mark.parametrize(
    ("text", "day"), [("2025-01-02", D(2025, 1, 2)), ("2025-01-02T10:00", D(2025, 1, 2)), ("soon", None)]
)
def test_parse_day(text: str, day: datetime.date | None) -> None:
    """An ISO day at the start, else None."""
    assert parse_day(text) == day
