"""Durations and sizes as people write them: ``90s 5m 2h 3d 1h30m 250ms``, ``512B 64KiB 1MiB 2GB``.

Pure and light: the command line uses it without the configuration's models. A unit is always needed: a bare
number is read as seconds by one person and as minutes by the next.
"""

from __future__ import annotations

import re

LONGEST_S = 3650 * 86400.0
LARGEST_BYTES = 1 << 50

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_NUMBER = r"[0-9]{1,16}(?:\.[0-9]{1,9})?"
_DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|s|m|h|d)")
_SIZE = re.compile(rf"({_NUMBER}) ?(B|KB|MB|GB|KiB|MiB|GiB|TiB)")


def parse_duration(text: str) -> float:
    """Seconds of a duration such as ``90s`` or ``1h30m``. ValueError says what is wrong with it."""
    stripped = text.strip()
    if not _DURATION.fullmatch(stripped):
        hint = f'; "{stripped}s" means seconds' if stripped.isdecimal() else ""
        raise ValueError(f"must be a duration such as 90s, 5m, 2h or 3d{hint}")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(stripped))
    if seconds > LONGEST_S:
        raise ValueError("must be at most 3650d")
    return seconds


def parse_size(text: str) -> int:
    """Bytes of a size such as ``1MiB``. ValueError says what is wrong with it."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("must be a size such as 512B, 64KiB or 1MiB")
    size = round(float(match[1]) * _BYTES[match[2]])
    if size > LARGEST_BYTES:
        raise ValueError("must be at most 1024TiB")
    return size


def duration_text(seconds: float) -> str:
    """The shortest exact way to write ``seconds``; ``parse_duration`` gives them back. 5400 is ``90m``."""
    for unit in ("d", "h", "m"):
        count = seconds / _SECONDS[unit]
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    if seconds == int(seconds):
        return f"{int(seconds)}s"
    millis = round(seconds * 1000)
    return f"{millis}ms" if millis * 0.001 == seconds else f"{seconds:.9f}".rstrip("0") + "s"


def size_text(size: int) -> str:
    """The shortest exact way to write ``size`` bytes: 1048576 is ``1MiB``, 1000 is ``1000B``."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"
