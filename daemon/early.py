"""Signals that come while the daemon starts: kept until its loop can take them, so that none of them kills a start.

Without this a SIGHUP between the lock and the loop would end the daemon, and a SIGTERM would end it without a word. A
second SIGTERM or Ctrl-C ends the process at once; a store that is being made or checked is as safe as from kill -9.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPS = (signal.SIGTERM, signal.SIGINT)


class Early:
    """The signals that came so far, in order."""

    def __init__(self) -> None:
        self._came: list[int] = []

    def note(self, number: int, _frame: FrameType | None) -> None:
        """The handler."""
        if number in STOPS:
            if any(one in STOPS for one in self._came):
                os._exit(128 + number)
            # print() may be what was interrupted
            os.write(2, b"stopping when the start is through; once more ends it at once\n")
        self._came.append(number)

    def take(self) -> list[int]:
        """Those that came; each is given out once. Call it after the loop has taken over."""
        came, self._came = self._came, []
        return came


@contextmanager
def signals() -> Iterator[Early]:
    """Keep SIGTERM, SIGINT and SIGHUP from now on; the loop's own handlers take their places."""
    early = Early()
    before = {number: signal.signal(number, early.note) for number in (*STOPS, signal.SIGHUP)}
    try:
        yield early
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
