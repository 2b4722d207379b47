"""What wakes the loop: the triggers of the configuration and the bell. They set a wake; only the loop acts.

Each trigger has a keeper, a task that starts it again when it cannot go on: ours within a minute, since the daemon is
of little use without them; those of plug-ins after ever longer pauses, and told as a problem until they are well.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from daemon.bellwatch import BellWatch
from daemon.config import Config
from store import plugins
from store.errors import PluginBroken, ShiftworkError
from store.intake import Handed, Taken
from store.sqlite import SqliteStore
from store.text import shown
from triggers import build, intake
from triggers.protocol import Trigger

if TYPE_CHECKING:
    from triggers.hosting import HostedTrigger

T = TypeVar("T")

RESTART_S = 5.0
MAX_RESTART_S = 60.0
PLUGIN_MAX_RESTART_S = 600.0
WELL_S = 30.0
"""A plug-in's trigger is well again when it handed something in, or ran for so long."""


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
        self._keepers: list[asyncio.Task[None]] = []
        self._bell: BellWatch | None = None
        self._left_behind: dict[str, Thread] = {}
        self.hosted = False
        """Whether a plug-in's trigger ever ran: a thread of its own may then keep the process from ending."""

    async def start(self, config: Config) -> None:
        """Start the bell and all triggers; returns when none of ours misses anything any more."""
        if self._bell is None:
            self._bell = BellWatch(config.state_dir, self._rung, self._said)
        loop = asyncio.get_running_loop()
        for trigger in self._made(config):
            started = loop.create_future()
            self._keepers.append(loop.create_task(self._keep(trigger, config, started)))
            await started
        names = build.plugin_names(config.triggers)
        self._keepers += [loop.create_task(self._keep_plugin(name, config)) for name in names]

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
        keepers, self._keepers = self._keepers, []
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)

    def _woken(self, queues: Sequence[str], *, why: str) -> None:
        del queues  # a look asks about all of them at once
        self._wake(why)

    async def _hand_in(self, config: Config, batch: Sequence[Handed]) -> list[Taken]:
        work = partial(intake.hand_in, self._store.intake, batch, now=self._clock(), caps=config.caps())
        return await self._off_loop(work)

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    # ---------------------------------------------------------------- ours

    async def _keep(self, trigger: Trigger, config: Config, started: asyncio.Future[None]) -> None:
        """Keep one of ours running until cancelled; what is fatal ends the daemon. The first start's error too."""
        pause_s, error = RESTART_S, None
        try:
            await self._begin(trigger, config, started)
            while True:
                error = error or await _failure(trigger)
                if self._fatal(error):
                    return
                self._said(
                    f"trigger {trigger.name} failed ({type(error).__name__}: {error}); again in {pause_s:g} s"
                )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, MAX_RESTART_S)
                await trigger.stop()
                trigger = next(one for one in self._made(config) if one.name == trigger.name)
                error = await self._begin_again(trigger, config)
        finally:
            await trigger.stop()

    async def _begin_again(self, trigger: Trigger, config: Config) -> BaseException | None:
        try:
            await trigger.start(self._woken, partial(self._hand_in, config))
        except Exception as error:  # noqa: BLE001 - told, and tried again
            return error
        return None

    async def _begin(self, trigger: Trigger, config: Config, started: asyncio.Future[None]) -> None:
        try:
            await trigger.start(self._woken, partial(self._hand_in, config))
        except Exception as error:
            if not started.done():
                started.set_exception(error)
            raise
        if not started.done():
            started.set_result(None)

    def _made(self, config: Config) -> list[Trigger]:
        return build.triggers(
            config.queues,
            config.triggers,
            caps=config.caps(),
            store=self._store,
            executor=self._executor,
            said=self._said,
        )

    # ---------------------------------------------------------------- those of plug-ins

    async def _keep_plugin(self, name: str, config: Config) -> None:
        """Keep one of a plug-in running until cancelled: whatever it does, the daemon goes on."""
        self.hosted = True
        pause_s, told = RESTART_S, ""
        while True:
            began = time.monotonic()
            error = await self._one_life(name, config)
            if self._fatal(error):
                return
            if time.monotonic() - began > PLUGIN_MAX_RESTART_S:
                pause_s = RESTART_S
            words = shown(str(error), 400)
            await self._tell(name, words)
            self._said(f"trigger {name} is disabled: {words}; tried again in {pause_s:g} s")
            if words != told and error.__cause__ is not None:
                for line in plugins.told(error.__cause__):
                    self._said(f"  {line}")
            told = words
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PLUGIN_MAX_RESTART_S)

    async def _one_life(self, name: str, config: Config) -> BaseException:
        """From a start to the failure that ended it."""
        trigger = build.hosted(
            name,
            config.queues,
            config.triggers,
            caps=config.caps(),
            folder=config.folder,
            state_dir=config.state_dir,
            said=self._said,
            earlier=self._left_behind.get(name),
        )
        try:
            await trigger.start(self._woken, partial(self._hand_in, config))
            await self._wait_until_well(trigger)
            return await _failure(trigger)
        finally:
            await trigger.stop()
            if trigger.left_behind is not None:
                self._left_behind[name] = trigger.left_behind

    async def _wait_until_well(self, trigger: HostedTrigger) -> None:
        proved = asyncio.ensure_future(trigger.proved.wait())
        signs: set[asyncio.Future[Any]] = {proved, trigger.failed}
        try:
            await asyncio.wait(signs, timeout=WELL_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            proved.cancel()
        if not trigger.failed.done():
            await self._tell(trigger.name, "")

    async def _tell(self, name: str, words: str) -> None:
        """Store that it does not run, once, or that it does again. A store that is busy is told the next time."""
        with suppress(ShiftworkError, sqlite3.OperationalError, OSError):
            if await self._off_loop(partial(self._note, name, words)) and not words:
                self._said(f"trigger {name} runs again")

    def _note(self, name: str, words: str) -> bool:
        alerts, key = self._store.alerts, f"trigger:{name}"
        if words:
            news = alerts.raise_problem(key, queue=None, kind="broken", detail=words, now=self._clock())
        else:
            news = alerts.clear_problem(key)
        if news:
            data = {"trigger": name, **({"problem": words} if words else {"over": True})}
            self._store.events.note(now=self._clock(), kind="trigger", data=data)
        return news


async def _failure(trigger: Trigger) -> BaseException:
    """Wait until it cannot go on; with what. Raises CancelledError when this task is cancelled."""
    await asyncio.wait({trigger.failed})
    error = trigger.failed.exception()
    return error if error is not None else PluginBroken("it ended by itself")
