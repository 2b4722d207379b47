"""What wakes the loop: the triggers of the configuration and the bell. They set a wake; only the loop acts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from daemon.bellwatch import BellWatch
from daemon.config import Config
from store.intake import Handed, Taken
from store.sqlite import SqliteStore
from triggers import build, intake
from triggers.protocol import Trigger

RESTART_S = 5.0
MAX_RESTART_S = 60.0


class Waking:
    """Runs the triggers of one configuration. ``fatal`` is called with an error that the daemon must end with."""

    def __init__(
        self,
        store: SqliteStore,
        *,
        wake: Callable[[str], None],
        rung: Callable[[], None],
        said: Callable[[str], None],
        fatal: Callable[[BaseException], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._clock = store, clock
        self._wake, self._rung, self._said, self._fatal = wake, rung, said, fatal
        self._executor = ThreadPoolExecutor(4, thread_name_prefix="trigger")
        self._running: list[Trigger] = []
        self._guard: asyncio.Task[None] | None = None
        self._bell: BellWatch | None = None
        self._config: Config | None = None

    async def start(self, config: Config) -> None:
        """Start the bell and all triggers; returns when none of them misses anything any more."""
        self._config = config
        if self._bell is None:
            self._bell = BellWatch(config.state_dir, self._rung, self._said)
        self._running = self._made(config)
        for trigger in self._running:
            await trigger.start(self._woken, partial(self._hand_in, config))
        self._guard = asyncio.get_running_loop().create_task(self._watch())

    async def restart(self, config: Config) -> None:
        """Stop the triggers and start those of ``config``. Nothing dropped meanwhile is missed: starting scans."""
        await self._stop_triggers()
        await self.start(config)

    async def stop(self) -> None:
        """Nothing wakes after this; running scans are waited for."""
        if self._bell is not None:
            await self._bell.stop()
        await self._stop_triggers()
        self._executor.shutdown()

    async def _stop_triggers(self) -> None:
        if self._guard is not None:
            self._guard.cancel()
            with suppress(asyncio.CancelledError):
                await self._guard
        running, self._running = self._running, []
        for trigger in running:
            await trigger.stop()

    def _woken(self, queues: Sequence[str], *, why: str) -> None:
        del queues  # a look asks about all of them at once
        self._wake(why)

    async def _hand_in(self, config: Config, batch: Sequence[Handed]) -> list[Taken]:
        work = partial(intake.hand_in, self._store.intake, batch, now=self._clock(), caps=config.caps())
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _watch(self) -> None:
        """A trigger that cannot go on is started again, with the others; what is fatal ends the daemon."""
        pause_s = RESTART_S
        while self._running:
            waiting = {trigger.failed: trigger for trigger in self._running}
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            failed = next(iter(done))
            error = None if failed.cancelled() else failed.exception()
            if error is None:
                return
            if self._fatal(error):
                return
            trigger = waiting[failed]
            self._said(
                f"trigger {trigger.name} failed ({type(error).__name__}: {error}); again in {pause_s:g} s"
            )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_RESTART_S)
            if self._config is not None:
                await self._replace(trigger)

    async def _replace(self, trigger: Trigger) -> None:
        config = self._config
        if config is None:
            return
        await trigger.stop()
        self._running.remove(trigger)
        for one in self._made(config):
            if one.name == trigger.name:
                await one.start(self._woken, partial(self._hand_in, config))
                self._running.append(one)

    def _made(self, config: Config) -> list[Trigger]:
        return build.triggers(
            config.queues,
            config.triggers,
            caps=config.caps(),
            store=self._store,
            executor=self._executor,
            said=self._said,
        )
