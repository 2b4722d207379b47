"""Times and ages as all rooms say them. What is said in a person's own zone is worded by the command line."""

from __future__ import annotations

import time

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def iso(at: float) -> str:
    """ISO 8601 in UTC, for programs: ``2026-03-01T12:00:00Z``."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def utc_minute(at: float) -> str:
    """For files that people in any zone read: ``2026-03-01 12:00 UTC``."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def age(seconds: float) -> str:
    """Short: ``40s``, ``20m``, ``3h``, ``2d 4h``. Ages below zero are zero."""
    left = max(int(seconds), 0)
    for index, (unit, size) in enumerate(_UNITS):
        if left >= size:
            text = f"{left // size}{unit}"
            if unit in "dh" and left < 10 * size:
                smaller, smaller_size = _UNITS[index + 1]
                rest = left % size // smaller_size
                return f"{text} {rest}{smaller}" if rest else text
            return text
    return "0s"
