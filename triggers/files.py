"""The files trigger: watches the inboxes of all queues and scans the one in which something happened.

Per inbox one task: scan (in the executor) → watch what the scan found → wait for an event or the next due time.

    events      inotify in the event loop, on local folders             inbox/watch.py
    polling     watchfiles, on network and FUSE mounts, or when the kernel's watch limit is reached
    safety net  watchfiles on local folders; a full scan every 5 min; device and inode every 30 s

Each of them only wakes a scan; only the scan decides (FIELD 2, 8, 9).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from store.text import shown
from triggers.inbox import place
from triggers.inbox.names import RESERVED, ignored
from triggers.inbox.net import Net
from triggers.inbox.problems import Problems
from triggers.inbox.scan import scan_once
from triggers.inbox.spec import InboxMemory, InboxSpec, InboxStore, ScanReport
from triggers.inbox.watch import Event, Watch, WatchLimit
from triggers.intake import passes
from triggers.protocol import HandIn, Wake

LOOK_EVERY_S = 30.0
SHORTEST_WAIT_S = 0.005

T = TypeVar("T")


class Tuning(NamedTuple):
    """How an inbox is watched. ``watch``: ``auto``, ``events`` or ``poll``."""

    watch: str = "auto"
    poll_every_s: float = 5.0
    rescan_every_s: float = 300.0
    safety_net: bool = True


@dataclass
class _Box:
    """One inbox at run time.

    ``polling``: why it is polled (empty: it is not; None: not decided yet). ``limited``: watches ran out for it.
    """

    spec: InboxSpec
    tuning: Tuning
    memory: InboxMemory = field(default_factory=InboxMemory)
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    moved_in: set[str] = field(default_factory=set)
    folders: tuple[Path, ...] = ()
    scanned_at: float = 0.0
    next_at: float | None = None
    polling: str | None = None
    limited: str = ""

    def holds(self, folder: Path) -> bool:
        return folder == self.spec.folder or self.spec.folder in folder.parents

    def stir(self, event: Event) -> None:
        """Wake for what may be work; our own moves and ignored names are not."""
        if event.name:
            file = os.path.relpath(event.folder / event.name, self.spec.folder)
            if file.partition("/")[0] in RESERVED or ignored(file, self.spec.ignore) is not None:
                return
            if event.moved_in:
                if file in self.memory.returned:
                    return
                self.moved_in.add(file)
        self.stirred.set()


class FilesTrigger:
    """See the module's head. ``said`` gets lines for the terminal; ``clock`` gives UTC epoch seconds."""

    name = "files"

    def __init__(
        self,
        inboxes: Sequence[tuple[InboxSpec, Tuning]],
        *,
        store: InboxStore,
        executor: Executor,
        said: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._boxes = [_Box(spec, tuning) for spec, tuning in inboxes]
        self._store = store
        self._executor = executor
        self._said = said
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._watch: Watch | None = None
        self._no_watch = ""
        self._nets: dict[float | None, Net] = {}
        self._stopping = False
        self._failed: asyncio.Future[None] | None = None
        self._wake: Wake | None = None
        self.reports: dict[str, ScanReport] = {}
        """Queue → what its last scan saw."""

    @property
    def failed(self) -> asyncio.Future[None]:
        """Done with an exception when a scan met what it cannot answer, such as a damaged store."""
        if self._failed is None:
            self._failed = asyncio.get_running_loop().create_future()
        return self._failed

    async def start(self, wake: Wake, hand_in: HandIn) -> None:  # noqa: ARG002 - a scan hands in by itself
        """Watch every inbox, then scan each once and go on in the background."""
        self._wake = wake
        try:
            self._watch = Watch(self._on_event)
        except OSError as error:
            self._no_watch = error.strerror or str(error)
        for box in self._boxes:
            await self._watch_folders(box, [box.spec.folder])
        self._tasks = [
            asyncio.create_task(self._serve(box), name=f"inbox {box.spec.queue}") for box in self._boxes
        ]

    async def stop(self) -> None:
        """No scan begins after this; a running one is waited for."""
        self._stopping = True
        self.rescan()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(net.stop() for net in self._nets.values()), return_exceptions=True)
        if self._watch is not None:
            self._watch.close()
        if self._failed is not None and not self._failed.done():
            self._failed.cancel()

    def rescan(self) -> None:
        """Scan all inboxes now."""
        for box in self._boxes:
            box.stirred.set()

    async def _serve(self, box: _Box) -> None:
        try:
            while not self._stopping:
                await self._scan(box)
                await self._wait(box)
        except Exception as error:  # noqa: BLE001 - handed on to the daemon, which decides
            if not self.failed.done():
                self.failed.set_exception(error)

    async def _scan(self, box: _Box) -> None:
        """Scan, tell, and watch the folders it found; what came before they were watched stirs the next scan."""
        box.stirred.clear()
        moved_in = frozenset(box.moved_in)
        box.moved_in.clear()
        box.scanned_at = self._clock()
        report = await self._off_loop(
            lambda: scan_once(box.spec, self._store, self._clock(), box.memory, moved_in=moved_in)
        )
        self.reports[box.spec.queue] = report
        box.next_at = report.next_at
        for line in report.said:
            self._said(line)
        if report.new and self._wake is not None:
            self._wake([box.spec.queue], why=f"{report.new} new in {shown(str(box.spec.folder))}")
        if report.missing or report.folders:
            await self._watch_folders(box, report.folders)

    async def _wait(self, box: _Box) -> None:
        """Until something stirs, the next file is due, the rescan is due, or the folder is another one."""
        while not (self._stopping or box.stirred.is_set()):
            now = self._clock()
            due_at = box.scanned_at + box.tuning.rescan_every_s
            if box.next_at is not None:
                due_at = min(due_at, box.next_at)
            if now >= due_at or now < box.scanned_at:  # a clock that was set back must not put the scan off
                break
            try:
                wait_s = max(min(due_at - now, LOOK_EVERY_S), SHORTEST_WAIT_S)
                await asyncio.wait_for(box.stirred.wait(), wait_s)
            except TimeoutError:
                if await self._off_loop(lambda: place.look_only(box.spec.folder)) != box.memory.place:
                    break
        if self._clock() - box.scanned_at < SHORTEST_WAIT_S:
            await asyncio.sleep(SHORTEST_WAIT_S)  # at our own pace: a flood of events makes the batches grow

    async def _watch_folders(self, box: _Box, folders: Sequence[Path]) -> None:
        """Watch exactly these folders for this inbox, by the means that fit."""
        box.folders = tuple(folders)
        reason = self._why_polled(box)
        if not reason and self._watch is not None:
            try:
                if self._watch.sync(self._folders_of(lambda one: one is box or not one.polling)):
                    box.stirred.set()
            except WatchLimit as limit:
                reason = limit.strerror or str(limit)
                box.limited = reason
        await self._tell_polling(box, reason)
        if reason and self._watch is not None:
            self._watch.sync(self._folders_of(lambda one: not one.polling))
        self._spread_nets()

    def _why_polled(self, box: _Box) -> str:
        if box.tuning.watch == "poll":
            return "as configured"
        silent = box.memory.place is not None and box.memory.place.silent
        if silent and box.tuning.watch == "auto":
            return "its file system tells no events"
        return self._no_watch

    async def _tell_polling(self, box: _Box, reason: str) -> None:
        """Say how the inbox is watched when that changes; a limit is a problem a person can mend."""
        if reason == box.polling:
            return
        every = f"{box.tuning.poll_every_s:g} s"
        queue, folder = box.spec.queue, shown(str(box.spec.folder))
        if reason:
            self._said(f"{queue}: {folder} is polled every {every}: {reason}")
        elif box.polling is not None:
            self._said(f"{queue}: {folder} is watched again")
        box.polling = reason
        limit = reason if box.limited or self._no_watch else ""
        box.limited = ""
        detail = f"{limit}; raise it with sysctl. Polling every {every} meanwhile" if limit else ""
        problems = Problems(self._store, queue, box.memory)
        try:
            await self._off_loop(lambda: problems.tell("watch", detail, now=self._clock()))
        except Exception as error:
            if not passes(error):
                raise
            box.polling = None  # said again after the next scan, when the store may be written

    def _spread_nets(self) -> None:
        wanted: dict[float | None, list[Path]] = {key: [] for key in self._nets}
        for box in self._boxes:
            if box.polling:
                wanted.setdefault(box.tuning.poll_every_s, []).extend(box.folders)
            elif box.tuning.safety_net:
                wanted.setdefault(None, []).extend(box.folders)
        for poll_every_s, folders in wanted.items():
            if poll_every_s not in self._nets:
                self._nets[poll_every_s] = Net(self._on_net, poll_every_s=poll_every_s)
            self._nets[poll_every_s].want(folders)

    def _folders_of(self, chosen: Callable[[_Box], bool]) -> list[Path]:
        return [folder for box in self._boxes if chosen(box) for folder in box.folders]

    def _on_event(self, event: Event | None) -> None:
        for box in self._boxes:
            if event is None:
                box.stirred.set()
            elif box.holds(event.folder):
                box.stir(event)

    def _on_net(self, folder: Path) -> None:
        for box in self._boxes:
            if box.holds(folder):
                box.stirred.set()

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
