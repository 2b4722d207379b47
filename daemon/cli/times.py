"""Times as people say them: in their own zone, no longer than needed."""

from __future__ import annotations

import time

_WEEK_S = 6 * 86400.0


def moment(at: float, now: float) -> str:
    """Local time to the minute: ``14:02`` today, ``Tuesday 13:02`` within six days, ``2026-12-01 09:00`` else."""
    then = time.localtime(at)
    if then[:3] == time.localtime(now)[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%A %H:%M" if abs(at - now) < _WEEK_S else "%Y-%m-%d %H:%M", then)


def at_moment(at: float, now: float) -> str:
    """The same in a sentence: ``at 14:02``, ``on Tuesday 13:02``, ``on 2026-12-01 09:00``."""
    same_day = time.localtime(at)[:3] == time.localtime(now)[:3]
    return f"{'at' if same_day else 'on'} {moment(at, now)}"


def stamp(at: float, *, dated: bool) -> str:
    """Local time to the second for columns, with the date or without it."""
    return time.strftime("%Y-%m-%d %H:%M:%S" if dated else "%H:%M:%S", time.localtime(at))


def one_day(times: list[float], now: float) -> bool:
    """Whether all ``times`` are of today."""
    today = time.localtime(now)[:3]
    return all(time.localtime(at)[:3] == today for at in times)
