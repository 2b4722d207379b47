"""The daemon under a service manager: what it says of itself, and when.

    starting ──READY=1──▶ ready ⇄ reloading          any ──STOPPING=1──▶ stopping

READY=1 is said when nothing is missed any more. A reload ends with READY=1 whether or not the new configuration was
taken; the status line says which. WATCHDOG=1 comes from the event loop at half the time that is asked for, and only
while ``well`` says so; withheld pings are looked at again every second. A status is said when its words change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from daemon import sdnotify
from daemon.sdnotify import Line
from store import moments
from store.counting import Glance

STATUS_EVERY_S = 2.0
AGAIN_S = 1.0

State = Literal["starting", "ready", "reloading", "stopping"]


class Supervision:
    """See the module's head. ``well``: may the watchdog be fed; ``clock`` gives UTC epoch seconds."""

    def __init__(self, line: Line, *, well: Callable[[], bool], clock: Callable[[], float]) -> None:
        self.state: State = "starting"
        self.trouble = ""
        """What is wrong with the store, or nothing."""
        self.refused = ""
        """What is wrong with the configuration that was to be read last, or nothing."""
        self._line, self._well, self._clock = line, well, clock
        self._glance: Glance | None = None
        self._said = ""
        self._changed = True
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Feed the watchdog from now on, in this thread's loop."""
        if self._line and self._line.watchdog_s is not None:
            self._ping()

    def ready(self) -> None:
        """Everything that was to be started is; or the reload is over."""
        if self.state in {"starting", "reloading"}:
            self.state = "ready"
            self._line.say("READY=1", *self._news())

    def reloading(self) -> None:
        """A reload is asked for. Nothing is said before the first READY=1: the start covers it."""
        if self.state == "ready":
            self.state = "reloading"
            self._line.say("RELOADING=1", sdnotify.monotonic_usec())

    def stopping(self, words: str, needs_s: float) -> None:
        """The end has begun and may take ``needs_s`` seconds. Said once."""
        if self.state != "stopping":
            self.state = "stopping"
            self._line.say("STOPPING=1", f"STATUS={words}", sdnotify.patience(needs_s))

    def close(self) -> None:
        """Nothing is said after this."""
        if self._timer is not None:
            self._timer.cancel()
        self._line.close()

    # ---------------------------------------------------------------- the status line

    def changed(self) -> None:
        """Something happened that the status may be about."""
        self._changed = True

    def due_at(self) -> float | None:
        """When the status is to be looked at; None: not before something changes."""
        return self._not_before if self._line and self._changed and self.state != "stopping" else None

    def wants_status(self) -> bool:
        """Whether to look now how things stand. A look that fails is not tried again before the next change."""
        due_at = self.due_at()
        if due_at is None or due_at > self._clock():
            return False
        self._changed = False
        self._not_before = self._clock() + STATUS_EVERY_S
        return True

    def show(self, glance: Glance) -> None:
        """Say how things stand, if that is news."""
        self._glance = glance
        self._line.say(*self._news())

    def _news(self) -> list[str]:
        if self.state == "stopping" or self._glance is None:
            return []
        words = status_words(self._glance, self._clock(), self.trouble or self.refused)
        if words == self._said:
            return []
        self._said = words
        return [f"STATUS={words}"]

    # ---------------------------------------------------------------- the watchdog

    def _ping(self) -> None:
        watchdog_s = self._line.watchdog_s or 0.0
        pause_s = min(AGAIN_S, watchdog_s / 4)
        if self._well():
            self._line.say("WATCHDOG=1", *self._news())
            pause_s = watchdog_s / 2
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._ping)


def status_words(glance: Glance, now: float, trouble: str = "") -> str:
    """One line, like ``2 queued, 1 running, 1 waiting for a person (oldest 3h)``."""
    waiting = ""
    if glance.waiting:
        oldest = glance.oldest_waiting_at
        age = f" (oldest {moments.age(now - oldest)})" if oldest is not None else ""
        waiting = f"{glance.waiting} waiting for a person{age}"
    others = ("queued", "running", "parked", "paused", "stuck")
    counts = {name: f"{number} {name}" if (number := getattr(glance, name)) else "" for name in others}
    parts = [
        counts["queued"],
        counts["running"],
        waiting,
        counts["parked"],
        counts["paused"],
        counts["stuck"],
    ]
    words = ", ".join(part for part in parts if part) or "nothing to do"
    return f"{trouble}; {words}" if trouble else words
