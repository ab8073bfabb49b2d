"""Dates and spans of time that a question mentions, and the dates that notes carry."""

from __future__ import annotations

import calendar
import datetime
import re

import msgspec

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_name) if name}
_MONTHS |= {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name} | {"sept": 9}
_MONTH = "|".join(sorted((name for name in _MONTHS if name != "may"), key=len, reverse=True))
_ISO = re.compile(r"\b(\d{4})-(\d{1,2})(?:-(\d{1,2}))?\b")
_DAY_MONTH = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH}|may)\b\.?(?:,?\s+(\d{{4}}))?")
_MONTH_DAY = re.compile(rf"\b({_MONTH}|may)\b\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s+(\d{{4}}))?")
_MONTH_YEAR = re.compile(rf"\b({_MONTH}|may)\b\.?,?\s+(?:of\s+)?(\d{{4}})\b")
_MONTH_ALONE = re.compile(rf"\b(?:in|during|since|last|this|of)\s+({_MONTH}|may)\b")
_YEAR = re.compile(r"\b(?:in|during|since|of|from|year)\s+((?:19|20)\d{2})\b")
_AGO = re.compile(r"\b(\d{1,3}|a|an|one|two|three|four|five|six)\s+(day|week|month|year)s?\s+ago\b")
_COUNT = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_NAMED = (
    (re.compile(r"\btoday\b|\bheute\b|\bhoje\b|今天|今日|오늘|сегодня"), 0, 0),
    (re.compile(r"\byesterday\b|\bgestern\b|\bontem\b|昨天|昨日|어제|вчера"), 1, 1),
    (re.compile(r"\blast week\b|\bletzte woche\b|上周|先週|지난주"), 13, 1),
    (re.compile(r"\bthis week\b|\bdiese woche\b|本周|今週|이번 주"), 6, 0),
    (re.compile(r"\blast month\b|\bletzten monat\b|上个月|先月|지난달"), 61, 1),
)


class Period(msgspec.Struct, frozen=True, array_like=True):
    """Days ``first`` to ``last``, inclusive; ``month_only`` when the question names a month or day of no year."""

    first: datetime.date
    last: datetime.date
    yearless: bool = False

    def holds(self, day: datetime.date) -> bool:
        if self.yearless:
            return self.first.month == day.month and (self.first != self.last or self.first.day == day.day)
        return self.first <= day <= self.last

    def distance(self, day: datetime.date) -> int:
        """Days between ``day`` and the period; 0 inside."""
        if self.holds(day):
            return 0
        if self.yearless:
            return min(_apart(edge, day) for edge in (self.first, self.last))
        return max((self.first - day).days, (day - self.last).days)


def parse_day(text: str) -> datetime.date | None:
    """An ISO day at the start of ``text``; None when there is none."""
    try:
        return datetime.date.fromisoformat(text[:10])
    except ValueError:
        return None


def periods_in(folded: str, today: datetime.date) -> tuple[Period, ...]:
    """Spans of time in a folded question, in the order of precision: days, months, years, "yesterday"."""
    found: list[Period] = []
    for match in _ISO.finditer(folded):
        found += _span(int(match[1]), int(match[2]), int(match[3]) if match[3] else 0)
    for pattern, day, month in ((_DAY_MONTH, 1, 2), (_MONTH_DAY, 2, 1)):
        for match in pattern.finditer(folded):
            found += _span(int(match[3] or 0), _MONTHS[match[month]], int(match[day]))
    if not found:
        for match in _MONTH_YEAR.finditer(folded):
            found += _span(int(match[2]), _MONTHS[match[1]], 0)
    if not found:
        for match in _MONTH_ALONE.finditer(folded):
            found += _span(0, _MONTHS[match[1]], 0)
    if not found:
        for match in _YEAR.finditer(folded):
            year = int(match[1])
            found.append(Period(datetime.date(year, 1, 1), datetime.date(year, 12, 31)))
    if not found:
        found += _relative(folded, today)
    return tuple(dict.fromkeys(found))


def _relative(folded: str, today: datetime.date) -> list[Period]:
    for match in _AGO.finditer(folded):
        count = int(match[1]) if match[1].isdigit() else _COUNT[match[1]]
        unit = {"day": 1, "week": 7, "month": 30, "year": 365}[match[2]]
        middle = today - datetime.timedelta(days=count * unit)
        slack = datetime.timedelta(days=unit // 2)
        return [Period(middle - slack, middle + slack)]
    for pattern, first, last in _NAMED:
        if pattern.search(folded):
            return [Period(today - datetime.timedelta(days=first), today - datetime.timedelta(days=last))]
    return []


def _span(year: int, month: int, day: int) -> list[Period]:
    """A day (or, with day 0, a month) as a period; year 0 = of any year. Nothing for what is no date."""
    if not 1 <= month <= 12 or (year and not 1 <= year <= 9998):
        return []
    yearless, year = not year, year or 2000
    last_day = calendar.monthrange(year, month)[1]
    if day > last_day or day < 0:
        return []
    first, last = (day, day) if day else (1, last_day)
    return [Period(datetime.date(year, month, first), datetime.date(year, month, last), yearless)]


def _apart(edge: datetime.date, day: datetime.date) -> int:
    try:
        same = edge.replace(year=day.year)
    except ValueError:
        same = edge.replace(year=day.year, day=28)
    days = abs((same - day).days)
    return min(days, 365 - days)
