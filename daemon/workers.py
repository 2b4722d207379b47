"""The worker processes of one daemon: started, listened to, and ended when they must be.

    asked for → running → dead            a worker runs sessions until nothing is ready, then returns
                   ├─ asked to stop       message and SIGTERM; it finishes its session, within the grace
                   └─ killed              past its own deadline, past the grace, or with the zygote

- A worker is always within a declared deadline: ``QUIET_S`` from its start and from each message outside a
  session that declares none, otherwise the ``deadline_at`` it declared last. Past it its whole group is killed.
- Every worker that was started is reported dead exactly once, after it really is.
- A lost zygote takes its workers with it; another one is started, later each time it dies soon.
- Only ``start``, ``stop`` and ``start_worker`` wait; everything else happens in the loop's callbacks.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from daemon import zygote
from daemon.forker import CannotStart, Forked, Forker
from store import owners

__all__ = ["CannotStart", "Death", "Pool", "Worker"]

START_TRIES = 3
"""How often the process that starts workers may end while it starts, before that ends the daemon."""
QUIET_S = 60.0
"""How long a worker may say nothing while it is in no session and waits for nothing it declared."""
_KILL_AGAIN_S = 5.0
_SOON_S = 10.0
_MAX_LINE_BYTES = 1 << 20

Cause = Literal["returned", "failed", "killed", "deadline", "gate", "stopped", "zygote"]


class Worker:
    """A running worker: who it is, what it does, until when it may."""

    def __init__(self, forked: Forked, job: Mapping[str, Any]) -> None:
        self.pid = forked.pid
        self.owner = owners.line_of(forked.pid, forked.start)
        self.job = job
        self.sock = forked.sock
        self.session: Mapping[str, Any] | None = None
        """The last ``session_started`` without its ``session_ended``."""
        self.sessions = 0
        """How many it has started."""
        self.error = ""
        """What it said before it failed."""
        self.deadline_at: float | None = None
        """What it declared last, UTC seconds."""
        self.asked_to_stop = False
        self.ended_by: Cause | None = None
        self.buffer = b""
        self.timer: asyncio.TimerHandle | None = None
        self.bound_at = 0.0
        """Until when it may go on, on the loop's clock."""


class Death(NamedTuple):
    """How a worker ended. ``status`` as os.wait gives it; None when its zygote died before it could tell."""

    worker: Worker
    status: int | None
    cause: Cause

    def words(self) -> str:
        """For a person: ``killed by SIGSEGV``, ``killed past its deadline``, ``exit 1: MemoryError``."""
        if self.cause == "deadline":
            return "killed past its deadline"
        if self.cause == "gate":
            return "killed: it hung while it held the store's write gate"
        if self.cause == "stopped":
            return "stopped"
        if self.status is None:
            return "died with the process that starts workers"
        code = os.waitstatus_to_exitcode(self.status)
        if code < 0:
            return f"killed by {_signal_name(-code)}"
        return f"exit {code}" + (f": {self.worker.error}" if self.worker.error else "")


class Pool:
    """All workers of this daemon. ``on_message`` and ``on_death`` are called in the loop and must not block."""

    def __init__(
        self,
        *,
        on_message: Callable[[Worker, Mapping[str, Any]], None],
        on_death: Callable[[Death], None],
        memory_bytes: int | None = None,
        preload: Sequence[str] = (),
        entry: str = zygote.ENTRY,
        log: Callable[[str], None] = lambda _line: None,
        quiet_s: float = QUIET_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.memory_bytes = memory_bytes
        self.workers: dict[int, Worker] = {}
        """By pid."""
        self.zygotes_lost = 0
        self._stop_asked = asyncio.Event()
        self._on_message, self._on_death, self._log = on_message, on_death, log
        self._quiet_s, self._clock = quiet_s, clock
        self._forker = Forker(on_died=self._died, on_lost=self._lost, entry=entry, preload=preload)
        self._early_deaths: dict[int, int] = {}
        self._starting = 0
        self._lost_soon = 0
        self._up_since = 0.0
        self._changed = asyncio.Event()
        self._recovery: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self.workers) + self._starting

    def stopping(self) -> bool:
        """Whether ``stop`` was called: no worker is started any more."""
        return self._stop_asked.is_set()

    @property
    def zygote_pid(self) -> int | None:
        """The zygote's pid, None while there is none."""
        return self._forker.pid

    async def start(self) -> None:
        """Get ready to start workers. CannotStart says what stands in the way, also at the last of a few tries."""
        for tries_left in range(START_TRIES - 1, -1, -1):
            try:
                await self._forker.start()
                break
            except CannotStart as problem:
                if not tries_left:
                    raise
                self._log(f"{problem}; tried again")
        self._up_since = time.monotonic()

    async def start_worker(self, job: Mapping[str, Any]) -> Worker:
        """Start a worker on a job. Raises CannotStart; then no worker is left behind."""
        if self.stopping():
            raise CannotStart("the daemon is stopping")
        self._starting += 1
        try:
            worker = Worker(await self._forker.fork(job, self.memory_bytes), job)
            self.workers[worker.pid] = worker
        finally:
            self._starting -= 1
            self._changed.set()
        worker.sock.setblocking(False)
        asyncio.get_running_loop().add_reader(worker.sock.fileno(), self._hear, worker)
        self._bind(worker, self._quiet_s)
        if worker.pid in self._early_deaths:
            self._bury(worker, self._early_deaths.pop(worker.pid))
        elif self.stopping():
            self.ask_to_stop(worker)
        return worker

    def ask_to_stop(self, worker: Worker) -> None:
        """Let it finish its session and take no other."""
        worker.asked_to_stop = True
        with suppress(OSError):
            worker.sock.send(b'{"type": "stop"}\n')
        owners.kill_alone(worker.owner, signal.SIGTERM)

    def kill(self, worker: Worker, cause: Cause) -> None:
        """End it now, with its group. Its death is reported like any other, with this cause."""
        worker.ended_by = worker.ended_by or cause
        owners.kill_group(worker.owner)

    def all_in_time(self) -> bool:
        """Whether no worker lives on past its deadline, beyond what killing it takes."""
        now = asyncio.get_running_loop().time()
        return all(worker.bound_at + 2 * _KILL_AGAIN_S > now for worker in self.workers.values())

    def kill_all(self, cause: Cause = "stopped") -> None:
        """End all workers now."""
        for worker in list(self.workers.values()):
            self.kill(worker, cause)

    async def stop(self, grace_s: float) -> None:
        """Ask all workers to finish, kill what is left after ``grace_s`` seconds, then end the zygote."""
        self._stop_asked.set()
        for worker in list(self.workers.values()):
            self.ask_to_stop(worker)
        if not await self._empty_within(grace_s):
            self.kill_all("stopped")
            await self._empty_within(_KILL_AGAIN_S)
        if self._recovery is not None:
            self._recovery.cancel()
        await self._forker.end()

    # ---------------------------------------------------------------- what workers say

    def _hear(self, worker: Worker) -> None:
        while True:
            try:
                chunk = worker.sock.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            *lines, worker.buffer = (worker.buffer + chunk).split(b"\n")
            for line in lines:
                self._take(worker, line)
            if len(worker.buffer) > _MAX_LINE_BYTES:
                self._log(f"worker {worker.pid} sent a line without an end; killed")
                self.kill(worker, "failed")
                chunk = b""
            if not chunk:
                asyncio.get_running_loop().remove_reader(worker.sock.fileno())
                return

    def _take(self, worker: Worker, line: bytes) -> None:
        try:
            message = json.loads(line)
            kind = message["type"]
        except (ValueError, TypeError, KeyError):
            self._log(f"worker {worker.pid} sent a line that is no message")
            return
        if kind == "session_started":
            worker.session = message
            worker.sessions += 1
        elif kind == "session_ended":
            worker.session = None
        elif kind == "error":
            worker.error = str(message.get("error", ""))
        self._heed_deadline(worker, message.get("deadline_at"))
        self._on_message(worker, message)

    def _heed_deadline(self, worker: Worker, declared: object) -> None:
        """From here on the monotonic clock counts: a jump of the wall clock kills nobody."""
        if isinstance(declared, int | float):
            worker.deadline_at = float(declared)
            self._bind(worker, max(declared - self._clock(), 0.0))
        elif worker.session is None:
            worker.deadline_at = None
            self._bind(worker, self._quiet_s)

    def _bind(self, worker: Worker, seconds: float) -> None:
        worker.bound_at = asyncio.get_running_loop().time() + seconds
        self._look_after(worker, seconds)

    def _look_after(self, worker: Worker, seconds: float) -> None:
        if worker.timer is not None:
            worker.timer.cancel()
        worker.timer = asyncio.get_running_loop().call_later(seconds, self._overdue, worker)

    def _overdue(self, worker: Worker) -> None:
        self.kill(worker, "deadline")
        self._look_after(worker, _KILL_AGAIN_S)  # a process in an uninterruptible wait dies later: look again

    # ---------------------------------------------------------------- how workers end

    def _died(self, pid: int, status: int) -> None:
        worker = self.workers.get(pid)
        if worker is not None:
            self._bury(worker, status)
        elif self._starting:  # it died before start_worker was resumed
            self._early_deaths[pid] = status

    def _bury(self, worker: Worker, status: int | None) -> None:
        """Everything a dead worker still said is heard first; then its death is reported, once."""
        if worker.pid not in self.workers:
            return
        self._hear(worker)
        del self.workers[worker.pid]
        if worker.timer is not None:
            worker.timer.cancel()
        asyncio.get_running_loop().remove_reader(worker.sock.fileno())
        worker.sock.close()
        self._on_death(Death(worker, status, worker.ended_by or _cause(status)))
        self._changed.set()

    def _lost(self, why: str) -> None:
        if not self.stopping():
            self.zygotes_lost += 1
            self._lost_soon = self._lost_soon + 1 if time.monotonic() - self._up_since < _SOON_S else 0
            self._log(f"{why}; starting another")
        self._recovery = asyncio.get_running_loop().create_task(self._recover())

    async def _recover(self) -> None:
        """The kernel kills a lost zygote's workers; see them dead, report them, start another zygote."""
        self._forker.kill()
        while self.workers:
            for worker in list(self.workers.values()):
                worker.ended_by = worker.ended_by or "zygote"
                if not owners.kill_group(worker.owner):
                    owners.kill_remains(worker.owner)
                    self._bury(worker, None)
            await asyncio.sleep(0.01)
        self._early_deaths.clear()
        pause_s = min(2.0**self._lost_soon - 1, 60.0)
        while not self.stopping():
            await asyncio.sleep(pause_s)
            try:
                await self.start()
            except (CannotStart, OSError) as problem:
                pause_s = min(max(pause_s * 2, 1.0), 60.0)
                self._log(f"{problem}; trying again in {pause_s:g} s")
            else:
                self._changed.set()
                return

    async def _empty_within(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while len(self) and loop.time() < end:
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), end - loop.time())
        return not len(self)


def _cause(status: int | None) -> Cause:
    if status is None:
        return "zygote"
    if os.WIFSIGNALED(status):
        return "killed"
    return "returned" if status == 0 else "failed"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
