"""The engine: a look at the store, then as many workers as there is work for. It never acts between looks.

    wake → look (``books``) → start workers up to ``max_sessions`` → wait for a wake or the next due time

All of the store is spoken to in one thread, so that a writer that must wait never stops the loop: it can still kill
the worker everybody waits for. A store that is full or failing is left alone for ``TROUBLE_S`` and tried again; a
worker that came to no session makes the next one wait, longer each time.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from daemon import terminal
from daemon.absent import Absent
from daemon.books import Books, Looked, Orders, is_disk
from daemon.cli import screen
from daemon.config import Config
from daemon.gatewatch import LOOK_EVERY_S, GateWatch
from daemon.workers import CannotStart, Death, Pool, Worker
from sessions import plan
from store import owners
from store.database import DISK_CODES
from store.errors import ShiftworkError, StoreBusy, StoreRefused
from store.opening import damaged
from store.papers import Mark
from store.sqlite import SqliteStore

T = TypeVar("T")

TROUBLE_S = 60.0
BUSY_S = 2.0
SOONEST_S = 0.05
MAX_BACKOFF_S = 60.0
_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_WAITS = _BUSY | DISK_CODES
_REFUSED = ("StoreRefused: ", "DatabaseError: ")


class Engine:
    """Everything between a wake and the workers.

    ``wake`` asks for a turn. ``on_change``: something happened that alerts may care about. ``on_trouble`` gets the
    words when the store cannot be written, None when it can again.
    """

    def __init__(
        self,
        config: Config,
        store: SqliteStore,
        said: terminal.Terminal,
        *,
        wake: Callable[[], None],
        on_change: Callable[[], None] = lambda: None,
        on_trouble: Callable[[str | None], None] = lambda _words: None,
        sessions_max: int | None = None,
        most_workers: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self.store = store
        self.trigger = "start"
        self.ready = 0
        """Nodes that were ready at the last look that asked (counted up to 16)."""
        self.sessions_done = 0
        self.workers_started = 0
        self.last_progress_at = clock()
        self.trouble = ""
        self.hung_killed = 0
        self._commands = partial(screen.command, config=config.file)
        self._books = Books(store, config, said.warn, self._commands)
        self._said, self._wake, self._clock = said, wake, clock
        self._on_change, self._on_trouble = on_change, on_trouble
        self._sessions_max, self._most_workers = sessions_max, most_workers
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._absent = Absent()
        self._deaths: list[Death] = []
        self._marks: list[Mark] = []
        self._hold_until = 0.0
        self._barren = 0
        self._refused = ""
        self._gate = GateWatch(store.db.gate.path)
        self._gate_task: asyncio.Task[None] | None = None
        self.pool = Pool(
            on_message=self._heard,
            on_death=self._died,
            memory_bytes=config.daemon.worker_memory,
            preload=_preload(config),
            log=said.warn,
            clock=clock,
        )

    async def start(self) -> None:
        """Be ready to start workers. Raises CannotStart."""
        await self.pool.start()

    def reconfigure(self, config: Config) -> None:
        """Use a new configuration: running sessions finish with the old one, the next ones have the new one."""
        self._absent.try_now()
        self.config = self._books.config = config
        self.pool.memory_bytes = config.daemon.worker_memory
        for worker in self.pool.workers.values():
            self.pool.ask_to_stop(worker)

    def look_around(self) -> None:
        """Let the next turn look at everything: the store was changed by somebody else, or the clock was set."""
        self._hold_until = min(self._hold_until, self._clock() + TROUBLE_S)
        self._absent.try_now()
        self._books.look_around()

    async def turn(self) -> float | None:
        """One turn; when the next one is due by itself (UTC seconds), None: only after a wake.

        Raises StoreGone, StoreRefused when the daemon must end.
        """
        now = self._clock()
        if self._refused:
            raise StoreRefused(self._refused)
        if self.trouble and now < self._hold_until:
            return self._hold_until
        orders = self._orders(now)
        try:
            looked = await self.in_store(partial(self._books.look, orders))
        except (StoreBusy, sqlite3.Error, OSError) as error:
            self._deaths = [*orders.deaths, *self._deaths]
            self._absent.unsaid(orders.deciders)
            self._meet(error)
            return self._hold_until
        self._be_well()
        self._tell(looked)
        if looked.ready is not None:
            self.ready = looked.ready
            await self._start_workers(looked.ready)
        if looked.ready and self._room() > 0:
            return max(self._hold_until, now + SOONEST_S)
        back_at = self._absent.until(self._deciders().values(), now=now)
        return min((at for at in (looked.due_at, back_at) if at is not None), default=None)

    def disk_trouble(self, error: sqlite3.OperationalError) -> None:
        """A trigger could not write: that is told, and waited for, like what a look runs into."""
        self._meet(error)
        self._wake()

    async def in_store(self, work: Callable[[], T]) -> T:
        """Do something with the store, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def rest(self) -> None:
        """Nothing has been going on for a while: tidy up."""
        if not len(self.pool):
            await self.in_store(self._books.shrink)

    async def stop(self, grace_s: float) -> None:
        """Let sessions finish within the grace, end the others and give their claims back uncounted."""
        await self.pool.stop(grace_s)
        if self._gate_task is not None:
            self._gate_task.cancel()
        try:
            self._tell(await self.in_store(partial(self._books.close, self._orders(self._clock()))))
        except (ShiftworkError, sqlite3.Error, OSError) as error:
            self._said.warn(f"{error}; what is open is taken up at the next start")

    async def abandon(self) -> None:
        """End all sessions now and write nothing: the store is not to be touched any more."""
        await self.pool.stop(0)
        if self._gate_task is not None:
            self._gate_task.cancel()

    def close(self) -> None:
        """End the store's thread."""
        self._thread.shutdown()

    def _orders(self, now: float) -> Orders:
        deaths, self._deaths = self._deaths, []
        marks, self._marks = self._marks, []
        mine = [worker.owner for worker in self.pool.workers.values()]
        sessions = [worker.session["session"] for worker in self.pool.workers.values() if worker.session]
        alone = self._absent.queues(self._deciders(), now=now)
        news = self._absent.news()
        return Orders(deaths, marks, mine, self._room() > 0, self.trouble, now, sessions, alone, news)

    def _deciders(self) -> dict[str, str]:
        return {name: queue.decider for name, queue in self.config.queues.items()}

    @property
    def unsettled(self) -> bool:
        """Whether a worker died and no look has settled yet what it held."""
        return bool(self._deaths)

    def _room(self) -> int:
        """How many more workers there may be."""
        return (self._most_workers or self.config.daemon.max_sessions) - len(self.pool)

    # ---------------------------------------------------------------- workers

    async def _start_workers(self, ready: int) -> None:
        if self.pool.stopping() or self._clock() < self._hold_until:
            return
        for _ in range(min(self._room(), ready)):
            try:
                await self.pool.start_worker(self._job())
                self.workers_started += 1
            except CannotStart as problem:
                if not self._barren:
                    self._said.warn(f"{problem}; tried again soon")
                self._hold(self._backoff())
                return
        if self.pool.workers and (self._gate_task is None or self._gate_task.done()):
            self._gate_task = asyncio.get_running_loop().create_task(self._watch_gate())

    def _job(self) -> dict[str, Any]:
        config = self.config
        alone = self._absent.queues(self._deciders(), now=self._clock())
        return plan.job(
            plan.Plan(
                state_dir=config.state_dir,
                folder=config.folder,
                limits=config.daemon,
                queues={
                    name: plan.policy_of(queue) for name, queue in config.queues.items() if name not in alone
                },
                deciders=config.deciders,
                daemon=owners.me(),
                trigger=self.trigger,
                command=screen.command_anywhere(config.file),
                sessions_max=self._sessions_max,
            )
        )

    def _heard(self, worker: Worker, message: Mapping[str, Any]) -> None:
        kind = message["type"]
        self.last_progress_at = self._clock()
        if kind == "session_started":
            self._barren = 0
        elif kind == "session_ended":
            self._heard_end(message)
        elif kind == "marks":
            self._marks += [Mark(*mark) for mark in message["marks"]]
        elif kind == "error":
            self._said.warn(f"worker {worker.pid}: {message['error']}")

    def _heard_end(self, message: Mapping[str, Any]) -> None:
        self.sessions_done += 1
        decider = self._deciders().get(message["queue"])
        if decider is not None:
            self._absent.heard(decider, message, now=self._clock())
        self._said.say(terminal.session_words(message, self._commands))
        if message["outcome"] != "answered":
            self._on_change()
        queue = self.config.queues.get(message["queue"])
        wants_file = message["outcome"] in {"answered", "flagged", "denied"} and not message.get("files")
        if wants_file and queue is not None and queue.outbox is not None:
            self._books.paper_due(self._clock())
        if self._room() > 0:
            self._wake()

    def _died(self, death: Death) -> None:
        """Reported by the pool. The look that follows settles what it held."""
        worker = death.worker
        if death.cause != "returned" or worker.session is not None:
            self._deaths.append(death)
            self._on_change()
            if worker.session is None and death.cause != "stopped":
                self._said.warn(f"worker {worker.pid} {death.words()} outside a session")
                self._hold(self._backoff())
        elif not worker.sessions:
            self._hold(self._backoff())  # it found nothing to do: no hurry to start the next one
        if is_disk(worker.error):
            self._meet(OSError(worker.error.partition(": ")[2]))
        elif worker.error.startswith(_REFUSED):
            self._refused = worker.error.partition(": ")[2]
        self._wake()

    def _backoff(self) -> float:
        """Seconds before the next worker, after some that did not come to a session."""
        self._barren += 1
        return min(2.0 ** (self._barren - 1) * SOONEST_S, MAX_BACKOFF_S)

    def _hold(self, seconds: float) -> None:
        self._hold_until = max(self._hold_until, self._clock() + seconds)

    async def _watch_gate(self) -> None:
        while self.pool.workers:
            await asyncio.sleep(LOOK_EVERY_S)
            pid = self._gate.hung(time.monotonic())
            worker = self.pool.workers.get(pid) if pid is not None else None
            if worker is not None:
                self.hung_killed += 1
                self._said.warn(f"worker {worker.pid} hangs while it holds the store's write gate; killed")
                self.pool.kill(worker, "gate")

    # ---------------------------------------------------------------- telling

    def _tell(self, looked: Looked) -> None:
        for worker in list(self.pool.workers.values()):
            if worker.session and worker.session["session"] in looked.overtaken:
                self.pool.kill(worker, "stopped")  # it would hold its place for nothing
        for line in looked.lines:
            self._said.say(line)
        if looked.changed:
            self._on_change()

    def _meet(self, error: Exception) -> None:
        """What a look ran into. A full or failing disk is waited for, so is a busy store; anything else ends us."""
        if isinstance(error, sqlite3.DatabaseError) and _code(error) in _BROKEN:
            raise damaged(self.store.db.path, str(error)) from error
        if isinstance(error, sqlite3.Error) and _code(error) not in _WAITS:
            raise error  # a fault of ours
        if isinstance(error, StoreBusy) or _code(error) in _BUSY:
            self._hold(BUSY_S)
            self._said.warn(f"{error}; tried again in {BUSY_S:g} s")
            return
        self._hold(TROUBLE_S)
        if not self.trouble:
            self.trouble = f"the store cannot be written: {error}"
            self._said.warn(f"{self.trouble}; tried again every {TROUBLE_S:g} s, nothing is lost meanwhile")
            self._on_trouble(self.trouble)

    def _be_well(self) -> None:
        if self.trouble:
            self.trouble = ""
            self._said.note("the store can be written again")
            self._on_trouble(None)


MODEL_KINDS = ("anthropic", "ollama", "openai")  # httpx comes with each of them


def _preload(config: Config) -> tuple[str, ...]:
    """What a worker needs anyway is imported once, before the fork. numpy only where passages are ranked."""
    ranks = any(queue.sources for queue in config.queues.values())
    kinds = {config.deciders[queue.decider].kind for queue in config.queues.values()}
    extracts = "extractive" in kinds
    return (
        "sessions.worker",
        "sessions.deciders.command",
        "store.alerts",
        *(("memory.retrieval",) if ranks or extracts else ()),
        *(("sessions.deciders.extractive",) if extracts else ()),
        *(f"sessions.deciders.{kind}" for kind in sorted(kinds) if kind in MODEL_KINDS),
    )


def _code(error: Exception) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
