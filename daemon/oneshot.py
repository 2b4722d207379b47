"""``run --once`` and ``run --drain``: what is ready now, in the foreground, for cron and systemd timers.

Takes the daemon's lock, takes back what dead sessions held, scans the inboxes once, hands in what timers owe,
runs one session (``--once``) or sessions until nothing is ready (``--drain``), evaluates alerts, ends. Nothing is
waited for: a node that sleeps and a file that is still being written are for the next call. Exit 0 also when nothing
was ready or a person is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from daemon import early, starting, terminal
from daemon.cli import screen
from daemon.early import STOPS, Early
from daemon.engine import Engine
from daemon.paging import AGAIN_S, in_daemon_thread
from daemon.service import AT_ONCE_S, end_anyway
from daemon.starting import Opened
from daemon.terminal import Terminal
from notify.pager import Pager
from notify.policy import policy_from
from store.errors import CapReached, StoreBusy
from store.opening import note_clean_stop
from triggers.build import inbox_specs, timer_specs
from triggers.inbox.scan import scan_once
from triggers.inbox.spec import InboxMemory
from triggers.ticks import run_due

Mode = Literal["once", "drain"]

PAGER_WAIT_S = 60.0
LOOK_EVERY_S = 1.0


class OneShot:
    """One call."""

    def __init__(
        self,
        opened: Opened,
        said: Terminal,
        mode: Mode,
        *,
        early: Early | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._early = early or Early()
        self._opened, self._said, self._mode, self._clock = opened, said, mode, clock
        self._wake = asyncio.Event()
        self._stops = 0
        self._engine = Engine(
            opened.config,
            opened.store,
            said,
            wake=self._wake.set,
            sessions_max=1 if mode == "once" else None,
            most_workers=1 if mode == "once" else None,
            clock=clock,
        )
        self._engine.trigger = f"run --{mode}"

    async def run(self) -> None:
        """Do what is ready. Raises what ended it."""
        loop = asyncio.get_running_loop()
        for number in STOPS:
            loop.add_signal_handler(number, self._asked_to_stop)
        for came in self._early.take():
            if came in STOPS:
                self._asked_to_stop()
        try:
            await asyncio.gather(self._engine.start(), self._engine.in_store(self._scan))
            await self._drain()
        finally:
            await self._engine.stop(self._opened.config.daemon.grace if self._stops < 2 else 0.0)
            await self._page()
            await self._engine.in_store(self._put_away)
            self._engine.close()
            self._opened.lock.release()

    async def _drain(self) -> None:
        while not self._stops:
            self._wake.clear()
            if self._mode == "drain" or not self._engine.workers_started:
                await self._engine.turn()
            if self._engine.trouble:
                raise StoreBusy(self._engine.trouble)
            if not len(self._engine.pool) and self._is_over():
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self._wake.wait(), LOOK_EVERY_S if not len(self._engine.pool) else None
                )

    def _is_over(self) -> bool:
        if self._mode == "once" and self._engine.workers_started:
            return True
        return self._engine.ready == 0 and not self._engine.unsettled

    def _scan(self) -> None:
        config, store = self._opened.config, self._opened.store
        for spec in inbox_specs(config.queues, config.caps()):
            report = scan_once(spec, store, self._clock(), InboxMemory())
            for line in report.said:
                self._said.warn(line)
        timers = timer_specs(config.triggers)
        try:
            for _ in run_due(timers, store.intake, config.state_dir, now=self._clock(), caps=config.caps()):
                pass
        except CapReached as full:
            self._said.warn(f"{full}; the timer's item is handed in at a later call")

    async def _page(self) -> None:
        pager = Pager(self._opened.store, policy_from(self._opened.config.notify), clock=self._clock)
        with suppress(TimeoutError, StoreBusy):
            await asyncio.wait_for(in_daemon_thread(pager.turn), PAGER_WAIT_S if self._stops < 2 else AGAIN_S)

    def _put_away(self) -> None:
        left = self._opened.store.views.left()
        note_clean_stop(self._opened.store.db)
        self._opened.store.close()
        done = screen.count(self._engine.sessions_done, "session")
        self._said.note(f"{done} ran; {terminal.rest_words(left)}")

    def _asked_to_stop(self) -> None:
        self._stops += 1
        if self._stops == 1:
            busy = [worker.session for worker in self._engine.pool.workers.values() if worker.session]
            self._said.note(terminal.waiting_words(busy, self._opened.config.daemon.grace))
        else:
            self._said.note("ending at once")
            self._engine.pool.kill_all("stopped")
            end_anyway(AT_ONCE_S)
        self._wake.set()


def run(file: Path, said: Terminal, mode: Mode) -> None:
    """Open up, do what is ready, end. Raises what ended it."""
    with early.signals() as came:
        opened = starting.open_up(file, warn=said.warn)
        for line in opened.told:
            said.note(line)
        asyncio.run(_go(partial(OneShot, opened, said, mode, early=came)))


async def _go(make: Callable[[], OneShot]) -> None:
    await make().run()
