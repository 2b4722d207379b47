"""Cron lines, read as cron reads them, in a time zone, through changes of its clock (FIELD 30).

    minute hour day month weekday     * · 5 · 1-5 · */15 · 8-18/2 · 1,15 · jan · mon-fri · @daily

- Weekday 0 and 7 are Sunday. (APScheduler counts from Monday; its cron trigger is not used.)
- A day matches when month fits and day *or* weekday fits; a field that begins with ``*`` leaves it to the other.
- Spring: a time that the clock skips fires once, as much later as the clock was moved (02:30 → 03:30).
- Autumn: a time that comes twice fires at its first coming. With ``*`` in the hour field the line means "every
  hour": then it follows real time, firing in both hours of autumn and not at all in the hour that spring skips.

Pure: instants are UTC epoch seconds.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
SEARCH_DAYS = 366 * 9
"""Longest gap between two days that match: 29 February around a year such as 2100."""


class Cron(NamedTuple):
    """A cron line's sets. Weekdays count from Sunday = 0."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool
    every_hour: bool

    def matches_day(self, day: date) -> bool:
        """Whether the line fires on this day at all."""
        if day.month not in self.months:
            return False
        in_month = day.day in self.days
        in_week = day.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return in_month and in_week
        return in_month or in_week


def parse(line: str) -> Cron:
    """Read a cron line. ValueError says which field is wrong, and how."""
    words = SHORTHANDS.get(line.strip().lower(), line).split()
    if len(words) != 5:
        count = "1 field" if len(words) == 1 else f"{len(words)} fields"
        raise ValueError(f"{count}, cron needs 5 (minute hour day month weekday)")
    minutes, hours, days, months, weekdays = (
        _field(word.lower(), name, low, high) for word, (name, low, high) in zip(words, FIELDS, strict=True)
    )
    found = Cron(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(day % 7 for day in weekdays),
        any_day=words[2].startswith("*"),
        any_weekday=words[4].startswith("*"),
        every_hour=words[1].startswith("*"),
    )
    if next_after(found, UTC_ZONE, 0.0) is None:
        raise ValueError(f"no month of {words[3]} has a day {words[2]}: it would never fire")
    return found


def next_after(cron: Cron, zone: ZoneInfo, after: float) -> float | None:
    """The first instant later than ``after``; None when there is none within nine years."""
    near = _near(cron, zone, after, +1)
    if near is not None:
        return near
    start = datetime.fromtimestamp(after, zone).date()
    for offset in range(-1, SEARCH_DAYS):
        day = start + timedelta(days=offset)
        later = [at for at in _around(cron, zone, day, +1) if at > after]
        if later:
            return min(later)
    return None


def last_until(cron: Cron, zone: ZoneInfo, until: float) -> float | None:
    """The last instant not later than ``until``; None when there is none in the nine years before."""
    near = _near(cron, zone, until, -1)
    if near is not None:
        return near
    start = datetime.fromtimestamp(until, zone).date()
    for offset in range(-1, SEARCH_DAYS):
        day = start - timedelta(days=offset)
        earlier = [at for at in _around(cron, zone, day, -1) if at <= until]
        if earlier:
            return max(earlier)
    return None


def instants_of(cron: Cron, zone: ZoneInfo, day: date) -> list[float]:
    """The instants of one local day's times, sorted (a skipped time may lie in the hour after it)."""
    if not cron.matches_day(day):
        return []
    found: set[float] = set()
    for hour in cron.hours:
        for minute in cron.minutes:
            wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            first, second = wall.timestamp(), wall.replace(fold=1).timestamp()
            if first == second:
                found.add(first)
            elif not cron.every_hour:
                found.add(first)  # skipped: fold 0 shifts it forward; doubled: fold 0 is the first coming
            else:
                found |= {at for at in (first, second) if _wall(at, zone) == wall.replace(tzinfo=None)}
    return sorted(found)


def _near(cron: Cron, zone: ZoneInfo, at: float, step: int) -> float | None:
    """The nearest instant after (+1) or up to (-1) ``at`` within a day, the short way: no clock change is near."""
    here = datetime.fromtimestamp(at, zone)
    shift = here.utcoffset()
    if shift is None or {(here + timedelta(days=days)).utcoffset() for days in (-3, 3)} != {shift}:
        return None
    wall = here.replace(tzinfo=None)
    for day in (wall.date(), wall.date() + timedelta(days=step)):
        if not cron.matches_day(day):
            continue
        for hour in cron.hours[::step]:
            for minute in cron.minutes[::step]:
                time = datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001 - a wall clock's reading
                if time > wall if step > 0 else time <= wall:
                    return (time - shift).replace(tzinfo=UTC).timestamp()
    return None


def _around(cron: Cron, zone: ZoneInfo, day: date, step: int) -> list[float]:
    """A day's instants; with them those of the next day searched, since a clock change may make them overlap."""
    found = instants_of(cron, zone, day)
    return found + instants_of(cron, zone, day + timedelta(days=step)) if found else found


def _wall(at: float, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(at, UTC).astimezone(zone).replace(tzinfo=None)


def _field(word: str, name: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in word.split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isascii() and step.isdigit() and int(step) > 0):
            raise ValueError(f'{name}: "{part}" needs a step such as */5')
        if span == "*":
            first, last = low, 6 if name == "weekday" else high
        else:
            start, dash, end = span.partition("-")
            first = _number(start, name, low, high)
            last = _number(end, name, low, high) if dash else high if slash else first
            if end == "sun":
                last = 7  # at the end of a range the week ends on Sunday: mon-sun
        if first > last:
            raise ValueError(f'{name}: "{span}" runs backwards')
        found.update(range(first, last + 1, int(step) if slash else 1))
    return found


def _number(word: str, name: str, low: int, high: int) -> int:
    names = {"month": MONTHS, "weekday": WEEKDAYS}.get(name, ())
    if word in names:
        return names.index(word) + (1 if name == "month" else 0)
    if not (word.isascii() and word.isdigit() and len(word) < 4):
        raise ValueError(
            f'{name}: "{word}" is not a number' + (f" or one of {', '.join(names)}" if names else "")
        )
    if not low <= int(word) <= high:
        raise ValueError(f"{name}: {word} is outside {low}-{high}")
    return int(word)


UTC_ZONE = ZoneInfo("UTC")
