"""The service: one loop that sleeps until something wakes it, looks, and starts what there is to start.

    wakes     a trigger · the bell (a command changed the store) · a worker's words or death · the next due time
    SIGHUP    the configuration is read again; a bad one changes nothing
    SIGTERM   (or Ctrl-C) no new session, running ones get their grace, then their claims go back uncounted; again:
              at once

With nothing ready there is no write, no process and no model call: the loop waits for a descriptor. Every wake does
the same work, so a lost or doubled one costs nothing (FIELD 2). Whatever the daemon knows beyond the store it may
forget: a kill -9 at any line loses nothing.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from daemon import config as configuration
from daemon import early, starting, terminal
from daemon.banner import banner
from daemon.cli import screen
from daemon.config import Config
from daemon.early import Early
from daemon.engine import Engine
from daemon.http import listening
from daemon.http.door import Door
from daemon.paging import Paging
from daemon.sdnotify import Line, patience
from daemon.starting import Opened
from daemon.supervision import Supervision
from daemon.terminal import Terminal
from daemon.waking import Waking
from notify.heartbeat import Heartbeat, progress_holds
from notify.policy import policy_from
from store.errors import ConfigProblem, ShiftworkError, StoreBusy, StoreRefused
from store.opening import note_clean_stop

JUMP_S = 300.0
REST_AFTER_S = 5.0
SOONEST_S = 0.05
LATEST_S = 60.0
"""A wait for a time is looked at again after this long: the wall clock may be set and the machine may sleep."""
PAGER_WAIT_S = 10.0
STUCK_S = 300.0
"""A turn of the loop that lasts longer is stuck: the watchdog is no longer fed. The store's waits are far shorter."""
PUT_AWAY_S = 30.0
"""What the end may take beyond the grace."""
START_S = 1200.0
"""What a start may take: a migration has ten minutes, then the store is checked and workers are prepared."""
AT_ONCE_S = 5.0


class Service:
    """One run of the daemon on an opened store."""

    def __init__(
        self,
        opened: Opened,
        said: Terminal,
        *,
        early: Early | None = None,
        manager: Line | None = None,
        sockets: Sequence[socket.socket] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._early = early or Early()
        self._manager = Supervision(manager or Line(), well=self._is_well, clock=clock)
        self._turn_ends_by = time.monotonic() + STUCK_S
        self._config, self._lock, self._store = opened.config, opened.lock, opened.store
        self._said, self._clock = said, clock
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._reload = False
        self._stops = 0
        self._fatal: ShiftworkError | None = None
        self._ended_well = False
        self._offset = monotonic_offset()
        self._rested = False
        self._heartbeat = _heartbeat(opened.config)
        self._paging = Paging(
            opened.store,
            policy_from(opened.config.notify),
            scene=starting.scene_of(opened.config),
            said=said.warn,
            clock=clock,
        )
        self._engine = Engine(
            opened.config,
            opened.store,
            said,
            wake=self._wake.set,
            on_change=self._paging.changed,
            on_trouble=self._paging.store_trouble,
            clock=clock,
        )
        self._door = Door(
            opened.store,
            wake=lambda _queues, why: self._woken(why),
            fatal=self._end_with,
            said=said.note,
            trouble=self._cannot_take,
            sockets=sockets,
            clock=clock,
        )
        self._waking = Waking(
            opened.store,
            wake=self._woken,
            rung=self._rung,
            said=self._trigger_said,
            fatal=self._end_with,
            clock=clock,
        )

    async def run(self) -> None:
        """Until it is told to stop. Raises what the daemon had to end with, after everything was put away."""
        self._listen_to_signals()
        loop = asyncio.get_running_loop()
        self._store.db.on_disk_trouble = lambda error: _later(loop, partial(self._engine.disk_trouble, error))
        try:
            for line in banner(self._config, self._store, self._door.url(self._config)):
                self._said.plain(line)
            self._paging.start()
            await asyncio.gather(self._engine.start(), self._waking.start(self._config))
            await self._door.start(self._config)
            self._manager.watch()
            self._manager.ready()
            await self._loop()
            self._ended_well = True
        except ShiftworkError as error:
            self._fatal = self._fatal or error
        finally:
            await self._put_away()
        if self._fatal is not None:
            raise self._fatal

    async def _loop(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self._turn_ends_by = time.monotonic() + STUCK_S
            if self._reload:
                self._reload = False
                self._manager.reloading()
                self._manager.refused = await self._read_configuration()
                self._manager.ready()
            self._keep_lock()
            await self._mind_the_clock()
            due_at = await self._engine.turn()
            self._beat()
            await self._show_status()
            await self._wait(due_at)

    def _keep_lock(self) -> None:
        try:
            self._lock.keep()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._store.db.gone() from error

    async def _wait(self, due_at: float | None) -> None:
        now = self._clock()
        times = [due_at, self._heartbeat.due_at(now) if self._heartbeat else None, self._manager.due_at()]
        due = [max(min(at - now, LATEST_S), SOONEST_S) for at in times if at is not None]
        if not self._rested:
            due.append(REST_AFTER_S)
        self._turn_ends_by = math.inf
        try:
            await asyncio.wait_for(self._wake.wait(), min(due, default=None))
        except TimeoutError:
            if due_at is not None and due_at <= self._clock():
                self._manager.changed()
            if not self._rested and (due_at is None or due_at > self._clock()):
                self._rested = True
                await self._engine.rest()
        else:
            self._rested = False
            self._manager.changed()

    # ---------------------------------------------------------------- wakes

    def _woken(self, why: str) -> None:
        self._engine.trigger = why
        self._wake.set()

    def _cannot_take(self) -> list[str]:
        """Why a delivery could not be stored now: a store in trouble is left alone until a look finds it well."""
        stopping = ["stopping"] if self._stop.is_set() else []
        return stopping + (["the store cannot be written"] if self._engine.trouble else [])

    def _trigger_said(self, line: str) -> None:
        """A refused file, a folder that is gone or back: what a trigger says, an alert may be about."""
        self._said.warn(line)
        self._paging.changed()

    def _rung(self) -> None:
        """A command changed the store: anything may be different."""
        self._engine.trigger = "command"
        self._engine.look_around()
        self._paging.changed()
        self._wake.set()

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        asked = {
            signal.SIGTERM: self._asked_to_stop,
            signal.SIGINT: self._asked_to_stop,
            signal.SIGHUP: self._asked_to_reload,
        }
        for number, do in asked.items():
            loop.add_signal_handler(number, do)
        for came in self._early.take():
            asked[signal.Signals(came)]()

    def _asked_to_stop(self) -> None:
        self._stops += 1
        if self._stops == 1:
            busy = [worker.session for worker in self._engine.pool.workers.values() if worker.session]
            words = terminal.waiting_words(busy, self._config.daemon.grace)
            self._manager.stopping(words.partition(". ")[0], self._config.daemon.grace + PUT_AWAY_S)
            self._said.note(words)
        else:
            self._said.note("ending at once")
            self._engine.pool.kill_all("stopped")
            end_anyway(AT_ONCE_S)
        self._stop.set()
        self._wake.set()

    def _asked_to_reload(self) -> None:
        self._manager.reloading()
        self._reload = True
        self._wake.set()

    def _end_with(self, error: BaseException) -> bool:
        """Whether a trigger's error is one that the daemon must end with."""
        if not isinstance(error, StoreRefused):
            return False
        self._fatal = error
        self._stop.set()
        self._wake.set()
        return True

    # ---------------------------------------------------------------- now and then

    async def _read_configuration(self) -> str:
        """The new configuration in force, or words for why the old one still is."""
        file = self._config.file
        try:
            fresh = await asyncio.to_thread(configuration.load, file)
            if fresh.state_dir != self._config.state_dir:
                raise ConfigProblem(
                    f"{file}: state_dir cannot change while the daemon runs; stop it and start again"
                )
            self._door.admit(self._config, fresh)
        except ConfigProblem as problem:
            check = screen.command("check-config", config=file)
            self._said.warn(
                f"the new configuration is refused, the old one stays in force. See:  {check}\n{problem}"
            )
            return "the new configuration is refused, the old one stays in force"
        try:
            await self._engine.in_store(
                partial(starting.sync_constraints, self._store, fresh, now=self._clock())
            )
        except (StoreBusy, sqlite3.OperationalError, OSError) as error:
            self._said.warn(f"the new configuration is not in force yet: {error}; send SIGHUP again")
            if not self._config.listens:
                await self._door.stop()  # what was let in listens, and nobody would answer
            return "the new configuration is not in force yet"
        self._config = fresh
        self._engine.reconfigure(fresh)
        self._paging.reconfigure(policy_from(fresh.notify), starting.scene_of(fresh))
        self._heartbeat = _heartbeat(fresh)
        await self._waking.restart(fresh)
        await self._door.start(fresh)
        self._lock.note(digest=fresh.digest)
        self._said.note(f"read {terminal.path_words(file)} again; it is in force")
        return ""

    async def _mind_the_clock(self) -> None:
        """A jump of the wall clock (or a sleep of the machine) is written down; it makes one look, no burst."""
        offset = monotonic_offset()
        jump_s, self._offset = offset - self._offset, offset
        if abs(jump_s) <= JUMP_S:
            return
        self._said.note(f"the clock moved by {jump_s:+.0f} s (it was set, or the machine slept)")
        self._engine.look_around()
        self._paging.changed()
        note = partial(
            self._store.events.note, now=self._clock(), kind="clock", data={"jump_s": round(jump_s)}
        )
        with suppress(ShiftworkError, OSError):
            await self._engine.in_store(note)

    def _beat(self) -> None:
        if self._heartbeat is None:
            return
        now = self._clock()
        progress = progress_holds(
            ready=self._engine.ready, last_progress_at=self._engine.last_progress_at, now=now
        )
        self._heartbeat.beat(progress=progress and not self._engine.trouble, now=now)

    async def _show_status(self) -> None:
        """What a service manager shows of us: the words of ``status`` in a line. Without one nothing is read."""
        if not self._manager.wants_status():
            return
        with suppress(ShiftworkError, sqlite3.Error, OSError):
            now = self._clock()
            self._manager.trouble = self._engine.trouble
            self._manager.show(await self._engine.in_store(partial(self._store.views.glance, now=now)))

    def _is_well(self) -> bool:
        """FIELD 52: the loop turns or waits, the store answers it, and no worker outlives its own deadline."""
        return time.monotonic() < self._turn_ends_by and self._engine.pool.all_in_time()

    # ---------------------------------------------------------------- the end

    async def _put_away(self) -> None:
        """Everything that runs is ended, everything that is known is written, the lock is let go."""
        self._turn_ends_by = time.monotonic() + self._config.daemon.grace + 2 * PUT_AWAY_S
        self._manager.stopping("stopping", self._config.daemon.grace + PUT_AWAY_S)
        if self._fatal is None:
            await asyncio.gather(self._door.stop(), self._waking.stop(), self._engine.stop(self._grace_s()))
        else:
            self._paging.store_trouble(str(self._fatal) if isinstance(self._fatal, StoreRefused) else None)
            await asyncio.gather(self._door.stop(), self._waking.stop(), self._engine.abandon())
        await self._paging.stop(PAGER_WAIT_S if self._stops < 2 else 0.1)
        left = None
        if self._fatal is None:
            with suppress(Exception):
                left = await self._engine.in_store(self._store.views.left)
                await self._engine.in_store(partial(note_clean_stop, self._store.db))
        self._engine.close()
        self._store.db.on_disk_trouble = None
        self._store.close()
        self._lock.release()
        self._manager.close()
        self._said.plain(terminal.left_words(left, screen.command("run", config=self._config.file)))
        if self._waking.hosted:  # a thread that a plug-in left behind is not waited for
            fault = 0 if self._ended_well else 1
            end_anyway(AT_ONCE_S, status=fault if self._fatal is None else self._fatal.exit_code)

    def _grace_s(self) -> float:
        return self._config.daemon.grace if self._stops < 2 else 0.0


def run(file: Path, said: Terminal, manager: Line) -> None:
    """Open up and serve until told to stop. Raises what ended it."""
    with early.signals() as came:
        manager.say("STATUS=opening the store", patience(START_S))
        opened = starting.open_up(file, warn=said.warn)
        try:
            sockets = listening.listen(opened.config.http) if opened.config.listens else []
        except ShiftworkError:
            opened.store.close()
            opened.lock.release()
            raise
        for line in opened.told:
            said.note(line)
        asyncio.run(_serve(opened, said, came, manager, sockets))


async def _serve(
    opened: Opened, said: Terminal, came: Early, manager: Line, sockets: Sequence[socket.socket]
) -> None:
    await Service(opened, said, early=came, manager=manager, sockets=sockets).run()


def _later(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    """From another thread."""
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(work)


def end_anyway(seconds: float, *, status: int = 1) -> None:
    """End this process after so long even if a disk or a network hangs; what is open is taken up at the next start."""
    timer = threading.Timer(seconds, os._exit, [status])
    timer.daemon = True
    timer.start()


def monotonic_offset() -> float:
    """Wall clock minus monotonic clock: it moves when the wall clock is set or the machine slept."""
    return time.time() - time.monotonic()


def _heartbeat(config: Config) -> Heartbeat | None:
    url_file = config.notify.heartbeat_url_file
    return None if url_file is None else Heartbeat(url_file)
