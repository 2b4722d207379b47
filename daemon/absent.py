"""Deciders that cannot be asked: their queues are left alone for a time, instead of failing item after item.

    well ──a session found nobody to ask──▶ away until T ──T, or a command changed something──▶ tried with one session
      ▲                                        ▲                                                   │
      └──────────────a session was decided─────┼──────────────────────────it failed the same way───┘  longer each time

Kept in memory: after a restart one more session finds out. What is stored is each item's own wait.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

FIRST_S: Final = 5.0
LONGEST_S: Final = 300.0
FIRST_PERMANENT_S: Final = 60.0
LONGEST_PERMANENT_S: Final = 3600.0
"""Where only a person helps, each try flags one more item: few tries."""

ASKED: Final = ("answered", "flagged", "parked", "failed")
"""Outcomes of sessions whose decider was there."""


class _Away(NamedTuple):
    until_at: float
    times: int


class Absent:
    """Which deciders are away, until when. ``news`` is what changed: (decider, words), "" for well again."""

    def __init__(self) -> None:
        self._away: dict[str, _Away] = {}
        self._well: set[str] = set()
        self._news: list[tuple[str, str]] = []

    def heard(self, decider: str, message: Mapping[str, Any], *, now: float) -> None:
        """A session of this decider ended; ``message["away"]`` says whether nobody could be asked."""
        away = message.get("away")
        if away is not None and decider in self._away and now < self._away[decider].until_at:
            return  # another session had asked at the same time
        if away is not None:
            times = self._away[decider].times + 1 if decider in self._away else 1
            first, longest = (
                (FIRST_PERMANENT_S, LONGEST_PERMANENT_S) if away["permanent"] else (FIRST_S, LONGEST_S)
            )
            wait_s = max(min(first * 2.0 ** min(times - 1, 20), longest), away["asked_s"])
            self._away[decider] = _Away(now + wait_s, times)
            self._well.discard(decider)
            self._news.append((decider, str(message["why"])))
        elif message["outcome"] in ASKED and decider not in self._well:
            self._away.pop(decider, None)
            self._well.add(decider)
            self._news.append((decider, ""))

    def queues(self, deciders: Mapping[str, str], *, now: float) -> set[str]:
        """The queues that are left alone now. ``deciders``: queue → its decider."""
        away = {name for name, one in self._away.items() if now < one.until_at}
        return {queue for queue, decider in deciders.items() if decider in away}

    def until(self, deciders: Collection[str], *, now: float) -> float | None:
        """When the first of these deciders is tried again, None when none is away."""
        times = [one.until_at for name, one in self._away.items() if name in deciders and now < one.until_at]
        return min(times, default=None)

    def try_now(self) -> None:
        """Somebody changed something: each is tried with the next session."""
        self._away = {name: one._replace(until_at=0.0) for name, one in self._away.items()}

    def news(self) -> list[tuple[str, str]]:
        """What changed since the last time this was asked."""
        news, self._news = self._news, []
        return news

    def unsaid(self, news: Sequence[tuple[str, str]]) -> None:
        """It could not be written down: it is news still."""
        self._news = [*news, *self._news]
