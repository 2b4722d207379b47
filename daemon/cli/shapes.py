"""What ``--json`` prints: the store's own objects, with times as ISO 8601 in UTC and durations rounded."""

from __future__ import annotations

from typing import Any

from daemon.cli import screen
from store import moments


def plain(value: Any) -> Any:
    """``value`` with every number under ``at`` or ``*_at`` as a UTC time, and every ``*_s`` to the millisecond."""
    if isinstance(value, dict):
        return {key: _member(key, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def out(value: Any) -> None:
    """``value`` as one JSON document on stdout."""
    screen.json_out(plain(value))


def flags(found: list[dict[str, Any]]) -> dict[str, Any]:
    """``flags --json``: how many, how old the oldest that waits is, and each of them."""
    waiting = [flag for flag in found if flag["state"] == "waiting"]
    return {
        "count": len(found),
        "waiting": len(waiting),
        "parked": len(found) - len(waiting),
        "oldest_age_s": max((flag["age_s"] for flag in waiting), default=None),
        "flags": found,
    }


def _member(key: str, value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if key == "at" or key.endswith("_at"):
            return moments.iso(value)
        if key.endswith("_s"):
            return round(value, 3)
    return plain(value)
