"""What a trigger is: something that wakes the drain and may bring items in. The door for new kinds of triggers.

A trigger never drains by itself. It stores rows (through ``hand_in`` or, for dropped files, a scan) and calls ``wake``;
only the service loop acts (STYLE, habit 5). Blocking work runs in the executor that the daemon gives it.

    trigger = TimerTrigger(…)            made from configuration, nothing runs yet
    await trigger.start(wake, hand_in)   from here on it may call both, always on the event loop
    trigger.failed                       done with an exception when it cannot go on: the daemon decides
    await trigger.stop()                 no call after this returns; never raises
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from store.intake import Handed, Taken


class Wake(Protocol):
    """Says that ``queues`` may have work now. Never blocks; called from the event loop."""

    def __call__(self, queues: Sequence[str], *, why: str) -> None:
        """``why`` is for the log: the trigger's name and what happened."""


class HandIn(Protocol):
    """Stores a batch in one commit, off the event loop."""

    async def __call__(self, batch: Sequence[Handed]) -> list[Taken]:
        """Raises CapReached, StoreBusy; then nothing of the batch is stored."""
        ...


class Trigger(Protocol):
    """See the module's head."""

    @property
    def name(self) -> str:
        """What it is called in the configuration and in logs."""
        ...

    @property
    def failed(self) -> asyncio.Future[None]:
        """Pending while all is well. There from ``start`` on."""
        ...

    async def start(self, wake: Wake, hand_in: HandIn) -> None:
        """Begin; returns when the trigger misses nothing any more."""

    async def stop(self) -> None:
        """End, and wait until work in the executor has ended."""
