"""What the author of a plug-in trigger imports. Stable: names are added here and never removed within a major version.

    from triggers.plugin import Given, HandIn, Item, Settings, Trigger, Wake

A distribution names its class in the group ``shiftwork.triggers`` of its entry points; the entry's name is the ``kind``
of a table ``[triggers.NAME]``. Subclass ``Trigger`` and write ``run``; or bring any class that is made with a ``Given``
and has ``start(wake, hand_in)`` and ``stop()`` (and ``failed``, a future, if it can fail later). ``docs/plugins.md`` is
the guide.

It runs in a thread and an event loop of its own, inside the daemon's process: a call that blocks holds up nobody else.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from store.errors import InputRefused
from store.intake import Taken
from store.settings import Duration, Many, RelativePath, Section, Size, Text

__all__ = [
    "Duration", "Given", "HandIn", "InputRefused", "Item", "Many", "RelativePath", "Section", "Settings", "Size",
    "Taken", "Text", "Trigger", "Wake",
]  # fmt: skip


class Settings(Section):
    """The plug-in's own keys: subclass it, a field a key. Unknown keys are refused with the nearest known one."""


S = TypeVar("S", bound=Section)


class Given(NamedTuple, Generic[S]):
    """What a trigger is made with.

    ``name`` is the table's, ``queues`` those it names, ``settings`` what its own keys say; ``folder`` is the
    configuration's, where relative paths start. ``state`` is a folder of its own below the state folder, for what it
    has to remember; it is no part of backups. ``say`` puts a line on the daemon's terminal, from any thread.
    """

    name: str
    queues: tuple[str, ...]
    settings: S
    folder: Path
    state: Path
    say: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Item:
    """One thing to hand in. It is checked as a dropped file is (docs/handing-in.md).

    ``delivery`` names this thing where it comes from (a message id, a row's number): the same one again, after a crash
    on either side, is the same item. Without ``key`` it is the key, too. Without both, the same text is the same item.
    ``queue`` is one of the trigger's, and may be left out where it has only one. ``not_before`` has its time zone.
    A constraint is a text, or a mapping with ``text`` and ``kind``.
    """

    body: str
    delivery: str = ""
    queue: str = ""
    title: str | None = None
    key: str | None = None
    priority: int = 0
    not_before: datetime | None = None
    constraints: Sequence[str | dict[str, str]] = ()


class Wake(Protocol):
    """Says that the trigger's queues may have work now; ``hand_in`` says it by itself. Never blocks."""

    def __call__(self, why: str = "") -> None:
        """``why`` is for the log."""


class HandIn(Protocol):
    """Stores items in one commit, all or none, and wakes their queues."""

    async def __call__(self, items: Sequence[Item]) -> list[Taken]:
        """What became of each, in order, once it is stored for good: ``Taken(id, outcome, state, key)``.

        Waits while a queue is full or the disk is. Raises InputRefused when one of them can never be taken; then none
        of them is.
        """
        ...


class Trigger(ABC, Generic[S]):
    """The base of a plug-in trigger: set ``settings_model`` if it has keys of its own, write ``run``.

    One that fails is named, started again later, and never harms the rest. ``stop`` cancels ``run`` and waits for it.
    """

    settings_model: ClassVar[type[Settings]] = Settings

    def __init__(self, given: Given[S]) -> None:
        self.given = given
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The name of its table."""
        return self.given.name

    @property
    def settings(self) -> S:
        """What its own keys say."""
        return self.given.settings

    @property
    def failed(self) -> asyncio.Future[Any]:
        """Done with an exception when ``run`` raised one. There from ``start`` on."""
        if self._task is None:
            raise RuntimeError("it was not started")
        return self._task

    async def start(self, wake: Wake, hand_in: HandIn) -> None:
        """Begin ``run``."""
        self._task = asyncio.create_task(self.run(wake, hand_in), name=self.name)

    async def stop(self) -> None:
        """Cancel ``run`` and wait until it has ended."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._task

    @abstractmethod
    async def run(self, wake: Wake, hand_in: HandIn) -> None:
        """Bring work in until cancelled. Returning means that there is nothing more to come."""
