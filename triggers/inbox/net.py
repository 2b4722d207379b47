"""watchfiles: the poller where the kernel tells nothing, and the safety net where it does.

It sleeps a whole second between looks (``step``): shorter steps cost a wake-up each, for ever. A name that is not UTF-8
ends its generator (FIELD 6): it is started anew, and a scan, which such names do not harm, decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from triggers.inbox.names import RESERVED, ignored

STEP_MS = 1000
SHORTEST_RESTART_S = 1.0
LONGEST_RESTART_S = 60.0


class Net:
    """Watches a set of folders, each by itself. ``woken`` gets the folder in which something appeared or changed.

    Every folder is also woken when watching it begins, since something may have come just before.
    """

    def __init__(self, woken: Callable[[Path], None], *, poll_every_s: float | None = None) -> None:
        """With ``poll_every_s`` it lists the folders so often instead of asking the kernel."""
        self._woken = woken
        self._poll_every_s = poll_every_s
        self._wanted: frozenset[Path] = frozenset()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.restarts = 0
        """How often it ended by itself and was started anew."""

    def want(self, folders: Iterable[Path]) -> None:
        """Watch exactly these folders from soon on. Does not wait."""
        wanted = frozenset(folders)
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()
            if self._task is None:
                self._task = asyncio.create_task(self._run(), name="watchfiles")

    async def stop(self) -> None:
        """End; takes up to one step, since the library's thread sleeps so long."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        wait_s = SHORTEST_RESTART_S
        while True:
            self._changed.clear()
            folders = self._wanted
            if not folders:
                await self._changed.wait()
                continue
            lived_s = await self._watch_until_changed(folders)
            if self._wanted == folders:  # it ended by itself
                self.restarts += 1
                wait_s = (
                    SHORTEST_RESTART_S if lived_s > LONGEST_RESTART_S else min(wait_s * 2, LONGEST_RESTART_S)
                )
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), wait_s)

    async def _watch_until_changed(self, folders: frozenset[Path]) -> float:
        """Watch until other folders are wanted or the library gives up; seconds it lived."""
        clock = asyncio.get_running_loop().time
        started = clock()
        watching = asyncio.create_task(self._watch(folders))
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.sleep(0)  # lets the watch begin
            for folder in folders:
                self._woken(folder)
            await asyncio.wait({watching, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            changed.cancel()
            # Whatever ended it, the answer is the same: start anew, and scan.
            await asyncio.gather(watching, changed, return_exceptions=True)
        return clock() - started

    async def _watch(self, folders: frozenset[Path]) -> None:
        from watchfiles import Change, awatch

        async for changes in awatch(
            *sorted(folders),
            watch_filter=lambda change, path: change != Change.deleted and _is_work(path),
            debounce=STEP_MS,
            step=STEP_MS,
            rust_timeout=0,  # else its thread comes back every 5 s, for nothing; a stop it sees at the next step
            force_polling=self._poll_every_s is not None,
            poll_delay_ms=round((self._poll_every_s or 1.0) * 1000),
            recursive=False,
            ignore_permission_denied=True,
        ):
            for folder in {Path(path).parent for _, path in changes} & folders:
                self._woken(folder)


def _is_work(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name not in RESERVED and ignored(name) is None
