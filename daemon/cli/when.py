"""UNTIL: a time in the future as people write it, in their own zone.

2h  90m  3d            from now                    18:00  today 18:00       today
tomorrow  tomorrow 09:00                           friday  friday 09:00     the next one
2026-12-01  2026-12-01 09:00                       2026-12-01T09:00:00Z     with its own zone
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as clock_time

from store.units import LONGEST_S, parse_duration

FORMS = 'such as 2h, 3d, 18:00, "tomorrow 09:00", "friday 09:00", "2026-12-01 09:00" or 2026-12-01T09:00:00Z'
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MORNING = clock_time(9, 0)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


def parse_until(text: str, *, now: float, zone: tzinfo | None = None) -> float:
    """UTC seconds of a time after ``now``. ``zone``: the local one when None. ValueError says what is wrong."""
    wanted = " ".join(text.split())
    at = _at(wanted, now, zone)
    if at <= now:
        local = datetime.fromtimestamp(now, UTC).astimezone(zone)
        raise ValueError(f"is over already: it is now {local:%Y-%m-%d %H:%M} {local:%Z}".rstrip())
    if at - now > LONGEST_S:
        raise ValueError("is more than ten years away")
    return at


def _at(text: str, now: float, zone: tzinfo | None) -> float:
    try:
        return now + parse_duration(text)
    except ValueError as error:
        if "at most" in str(error):
            raise
    if text.isdecimal():
        raise ValueError(f'has no unit: "{text}m" means minutes, "{text}h" hours')
    today = datetime.fromtimestamp(now, UTC).astimezone(zone).date()
    day, _, rest = text.lower().partition(" ")
    if _CLOCK.fullmatch(text):
        return _local(today, _clock(text), zone)
    if day in ("today", "tomorrow") or day in _WEEKDAYS:
        clock = _clock(rest) if rest else _MORNING
        return _local(_day(day, today), clock, zone)
    return _iso(text, zone)


def _day(word: str, today: date) -> date:
    if word == "today":
        return today
    if word == "tomorrow":
        return today + timedelta(days=1)
    ahead = (_WEEKDAYS.index(word) - today.weekday()) % 7
    return today + timedelta(days=ahead or 7)


def _clock(text: str) -> clock_time:
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError(f"must be a time {FORMS}")
    try:
        return clock_time(int(match[1]), int(match[2]), int(match[3] or 0))
    except ValueError:
        raise ValueError(f"{text} is no time of day") from None


def _iso(text: str, zone: tzinfo | None) -> float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        if re.match(r"\d{4}-\d{2}-\d{2}", text):
            raise ValueError("is no day or time that exists") from None
        raise ValueError(f"must be a time {FORMS}") from None
    try:
        if found.tzinfo is not None:
            return found.timestamp()
        return _local(found.date(), found.time(), zone)
    except (OverflowError, OSError):
        raise ValueError("is out of reach") from None


def _local(day: date, clock: clock_time, zone: tzinfo | None) -> float:
    """A wall clock's time as UTC seconds; an hour that summer time skips counts as the one after it."""
    return datetime.combine(day, clock, tzinfo=zone).timestamp()
