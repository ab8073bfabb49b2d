"""When a note stops holding: what its frontmatter says, as one form, and whether that is over."""

from __future__ import annotations

import datetime
import re

_YEAR_FIRST = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)")
_DAY = datetime.timedelta(days=1)


def stated(text: str) -> str:
    """
    ``text`` as YYYY-MM-DD, or as YYYY-MM-DDTHH:MM:SSZ where it names an instant; '' when it is no date.

    An instant without a zone is in UTC, so that a note that is synced expires everywhere at once.
    """
    match = _YEAR_FIRST.match(text.strip())
    if match is None:
        return ""
    try:
        day = datetime.date(*map(int, match.groups()))
        rest = text.strip()[match.end() :].strip().replace(" ", "").lstrip("Tt")
        if not rest:
            return day.isoformat()
        moment = datetime.datetime.fromisoformat(f"{day.isoformat()}T{rest.upper()}")
        zoned = moment.replace(tzinfo=moment.tzinfo or datetime.UTC)
        return zoned.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        return ""


def ends_ms(expires: str) -> int:
    """The first moment, in ms since the epoch, at which a note that states ``expires`` is over; 0 = never. A date holds
    until its day has ended in UTC."""
    known = stated(expires)
    if not known:
        return 0
    try:
        if len(known) == len("YYYY-MM-DD"):
            moment = datetime.datetime.fromisoformat(known).replace(tzinfo=datetime.UTC) + _DAY
        else:
            moment = datetime.datetime.fromisoformat(known)
    except OverflowError:  # the last day of the calendar
        return 0
    return max(1, int(moment.timestamp() * 1000))


def is_past(expires: str, now_ms: int) -> bool:
    """Whether a note that states ``expires`` is over at ``now_ms``."""
    ends = ends_ms(expires)
    return 0 < ends <= now_ms
