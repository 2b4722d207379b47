"""Alerts and the heartbeat beside the loop: evaluated in a thread of their own, at most once a second.

A service that hangs holds that thread up to half a minute and nothing else. The thread is a daemon thread: it never
keeps a stopping process from ending.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from notify.pager import Pager
from notify.policy import Policy
from notify.start_alert import Scene, forget, page_store_problem
from store.errors import ShiftworkError
from store.sqlite import SqliteStore

T = TypeVar("T")

NOT_SOONER_S = 1.0
AGAIN_S = 5.0


class Paging:
    """See the module's head. ``changed`` asks for an evaluation."""

    def __init__(
        self,
        store: SqliteStore,
        policy: Policy,
        *,
        scene: Scene,
        said: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._pager = Pager(store, policy, clock=clock)
        self._scene, self._said, self._clock = scene, said, clock
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._trouble: str | None = None
        self._trouble_told: str | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last_fault = ""

    def start(self) -> None:
        """Begin; the first evaluation follows at once."""
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def changed(self) -> None:
        """Something happened that an alert may be about."""
        self._wanted.set()

    def reconfigure(self, policy: Policy, scene: Scene) -> None:
        """Use another policy from the next evaluation on."""
        self._pager.policy = policy
        self._scene = scene
        self.changed()

    def store_trouble(self, words: str | None) -> None:
        """The store cannot be written (words), or can again (None): told by the path that needs no store."""
        self._trouble = words
        self.changed()

    async def stop(self, wait_s: float) -> None:
        """Let a running evaluation end, for ``wait_s`` at most; start no other."""
        self._stopping.set()
        self.changed()
        if self._task is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._task, wait_s)

    async def _serve(self) -> None:
        due_at: float | None = None
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                wait_s = None if due_at is None else max(due_at - self._clock(), 0.0)
                await asyncio.wait_for(self._wanted.wait(), wait_s)
            if self._stopping.is_set():
                return
            self._wanted.clear()
            due_at = await self._turn()
            await asyncio.sleep(NOT_SOONER_S)

    async def _turn(self) -> float | None:
        try:
            await self._tell_trouble()
            if self._trouble is not None:
                return None
            due_at = await in_daemon_thread(self._pager.turn)
        except (ShiftworkError, sqlite3.Error, OSError) as fault:
            if str(fault) != self._last_fault:
                self._last_fault = str(fault)
                self._said(f"alerts cannot be evaluated now: {fault}; tried again")
            return self._clock() + AGAIN_S
        self._last_fault = ""
        return due_at

    async def _tell_trouble(self) -> None:
        words = self._trouble
        if words == self._trouble_told:
            return
        scene, now = self._scene, self._clock()
        if words is None:
            await in_daemon_thread(lambda: forget("store", scene))
        else:
            await in_daemon_thread(lambda: page_store_problem(words, scene, now=now))
        self._trouble_told = words


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread that the interpreter does not wait for when it ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(result: Sequence[T], error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result[0])

    def run() -> None:
        result: list[T] = []
        error: BaseException | None = None
        try:
            result.append(work())
        except BaseException as raised:  # noqa: BLE001 – handed to whoever waits
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=run, name="pager", daemon=True).start()
    return await future
