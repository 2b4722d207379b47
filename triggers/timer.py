"""The timer trigger: APScheduler waits, ``ticks.py`` says until when, a tick wakes and hands in (FIELD 30).

One scheduler with a memory job store for all timers. Its trigger is ours: APScheduler's own cron counts weekdays from
Monday and ands day with weekday. ``_Planned`` never gives an instant that has passed, so sleep, downtime of the loop or
a clock that jumped makes one run, never a burst.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.date import DateTrigger

from triggers import ticks
from triggers.intake import passes
from triggers.protocol import HandIn, Wake
from triggers.ticks import TimerSpec

RETRY_S = 60.0
PULSE_S = 60.0
"""The loop's clock stops while the machine sleeps; so often it is compared with the wall's."""
JUMP_S = 5.0


class _Planned(BaseTrigger):  # type: ignore[misc]  # the library has no types
    """The planned instants of one timer, from now on."""

    def __init__(self, spec: TimerSpec) -> None:
        self._spec = spec

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """The first instant after both: what was missed is made up for by one run, not by all."""
        after = max(now, previous_fire_time) if previous_fire_time is not None else now
        at = ticks.next_after(self._spec, after.timestamp())
        return datetime.fromtimestamp(at, UTC) if at is not None else None


class TimerTrigger:
    """All timers of a configuration. ``said`` gets lines for the terminal; ``clock`` gives UTC epoch seconds."""

    name = "timer"

    def __init__(
        self,
        timers: Sequence[TimerSpec],
        *,
        state_dir: Path,
        executor: Executor,
        said: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._timers = tuple(timers)
        self._state_dir = state_dir
        self._executor = executor
        self._said = said
        self._clock = clock
        self._scheduler = AsyncIOScheduler(
            jobstores={"default": MemoryJobStore()},
            executors={"default": AsyncIOExecutor()},
            job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1},
            timezone=UTC,
        )
        self._pulse: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._held_back: set[str] = set()
        self._wake: Wake | None = None
        self._hand_in: HandIn | None = None

    @property
    def failed(self) -> asyncio.Future[None]:
        """Done with an exception when a tick met what it cannot answer."""
        if self._failed is None:
            self._failed = asyncio.get_running_loop().create_future()
        return self._failed

    async def start(self, wake: Wake, hand_in: HandIn) -> None:
        """Make up for what was missed, with one tick a timer, and plan the next ones."""
        self._wake, self._hand_in = wake, hand_in
        for spec in self._timers:
            await self._tick(spec)
            self._scheduler.add_job(self._run, _Planned(spec), args=[spec], id=spec.name)
        self._scheduler.start()
        self._pulse = asyncio.create_task(self._keep_time(), name="timer pulse")

    async def stop(self) -> None:
        """No tick begins after this; a running one is waited for."""
        if self._scheduler.running:
            self._scheduler.pause()
        if self._pulse is not None:
            self._pulse.cancel()
            with suppress(asyncio.CancelledError):
                await self._pulse
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
            await asyncio.sleep(0)  # it shuts down in the loop's next turn
        if self._failed is not None and not self._failed.done():
            self._failed.cancel()

    async def _run(self, spec: TimerSpec) -> None:
        """One tick as a job."""
        task = asyncio.current_task()
        if task is not None:
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        try:
            await self._tick(spec)
            if self._wake is not None:
                self._wake(spec.queues, why=f"timer {spec.name}")
        except Exception as error:  # noqa: BLE001 - handed on to the daemon, which decides
            if not self.failed.done():
                self.failed.set_exception(error)

    async def _tick(self, spec: TimerSpec) -> None:
        """Hand in what is owed; a full queue or a busy store is tried again in a minute, and said once."""
        loop = asyncio.get_running_loop()
        planned = await loop.run_in_executor(self._executor, ticks.due, spec, self._state_dir, self._clock())
        if planned is None or self._hand_in is None:
            return
        try:
            for one in ticks.items(spec, planned):
                await self._hand_in([one])
        except Exception as error:
            if not passes(error):
                raise
            if spec.name not in self._held_back:
                self._held_back.add(spec.name)
                self._said(f"timer {spec.name}: {error}; tried again every minute")
            again = DateTrigger(datetime.fromtimestamp(self._clock() + RETRY_S, UTC))
            self._scheduler.add_job(
                self._run, again, args=[spec], id=f"{spec.name} again", replace_existing=True
            )
            return
        self._held_back.discard(spec.name)
        await loop.run_in_executor(self._executor, ticks.mark, spec, self._state_dir, planned)

    async def _keep_time(self) -> None:
        """Notice sleep and a clock that was moved: look at what is due, and plan anew when time went back."""
        last = self._clock()
        while True:
            await asyncio.sleep(PULSE_S)
            now = self._clock()
            if now < last + PULSE_S - JUMP_S:
                for spec in self._timers:
                    self._scheduler.reschedule_job(spec.name, trigger=_Planned(spec))
            self._scheduler.wakeup()
            last = now
