"""The daemon's ear for ``state/bell``: one inotify watch on the state folder, no polling of the store.

Where the kernel gives no watch the bell's time is looked at every ``POLL_S``; that is said once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from store import bell
from triggers.inbox.watch import Event, Watch

POLL_S = 2.0


class BellWatch:
    """Calls ``rung`` in the loop when the bell was touched, or when the state folder itself went away."""

    def __init__(self, state_dir: Path, rung: Callable[[], None], said: Callable[[str], None]) -> None:
        self._bell = bell.hang(state_dir)
        self._rung = rung
        self._watch: Watch | None = None
        self._poll: asyncio.Task[None] | None = None
        try:
            self._watch = Watch(self._told)
            self._watch.sync([state_dir])
        except OSError as error:
            said(f"changes by commands are noticed within {POLL_S:g} s only: {error.strerror}")
            self._poll = asyncio.get_running_loop().create_task(self._look())

    async def stop(self) -> None:
        """No call after this."""
        if self._watch is not None:
            self._watch.close()
        if self._poll is not None:
            self._poll.cancel()
            with suppress(asyncio.CancelledError):
                await self._poll

    def _told(self, event: Event | None) -> None:
        if event is None or event.name in {"", self._bell.name}:
            self._rung()

    async def _look(self) -> None:
        last = self._time()
        while True:
            await asyncio.sleep(POLL_S)
            now = self._time()
            if now != last:
                last = now
                self._rung()

    def _time(self) -> int | None:
        try:
            return self._bell.stat().st_mtime_ns
        except OSError:
            return None
