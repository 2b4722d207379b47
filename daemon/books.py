"""The daemon's own dealings with the store: one look, everything in it, in the store's thread.

    is it still our file · marks of files that workers wrote · nodes of dead workers · leases whose time is over ·
    files for people still due · parked flags whose time came · is there work, and when is the next thing due

A look on an idle store reads and writes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from daemon import sweep, terminal
from daemon.cli import screen
from daemon.config import Config
from daemon.workers import Death, Worker
from sessions import papers
from store import files, owners
from store.alert_rows import Problem
from store.claims import Lease
from store.errors import StoreBusy
from store.papers import Mark
from store.sqlite import SqliteStore
from triggers import build

SWEEP_EVERY_S = 60.0
PAPERS_AGAIN_S = 60.0
WAL_WORTH_BYTES = 1 << 20
_DISK_WORDS = (
    "disk is full",
    "disk I/O error",
    "readonly database",
    "No space left",
    "Disk quota",
    "Read-only",
)


class Orders(NamedTuple):
    """What a look is about, gathered in the loop. ``mine``: owner lines of living workers; ``trouble``: what is
    to be over before anything else is done; ``sessions``: those that living workers are in; ``left_alone``: queues that
    nobody can decide now; ``deciders``: those that went away, with the reason, or came back, with none.
    """

    deaths: Sequence[Death]
    marks: Sequence[Mark]
    mine: Collection[str]
    room: bool
    trouble: str
    now: float
    sessions: Sequence[int] = ()
    left_alone: Collection[str] = ()
    deciders: Sequence[tuple[str, str]] = ()


class Looked(NamedTuple):
    """What a look brought. ``lines`` are for the terminal, ``ready`` is None where nobody asked.

    ``overtaken``: running sessions that lost their node.
    """

    ready: int | None
    due_at: float | None
    lines: Sequence[str]
    changed: bool
    overtaken: Collection[int] = ()


class Books:
    """See the module's head. Its methods run in the store's thread, one at a time."""

    def __init__(
        self, store: SqliteStore, config: Config, note: Callable[[str], None], commands: Callable[..., str]
    ) -> None:
        self.config = config
        self._commands = commands
        self._store = store
        self._note = note
        self._me = owners.me()
        self._sweep_at = 0.0
        self._flag_due_at: float | None = 0.0
        self._papers_at: float | None = 0.0
        self._tidy = False
        self._judged_by = ""

    def look_around(self) -> None:
        """Let the next look take in everything: somebody else changed the store."""
        self._sweep_at = 0.0
        self._flag_due_at = 0.0
        self.paper_due(0.0)

    def paper_due(self, at: float) -> None:
        """Some file for people could not be written; try from ``at`` on."""
        self._papers_at = at if self._papers_at is None else min(self._papers_at, at)

    def look(self, orders: Orders) -> Looked:
        """Raises StoreGone, StoreBusy, sqlite3.Error, OSError: what was done is done, and doing it again harmless."""
        now = orders.now
        self._store.db.refuse_if_gone()
        if orders.trouble:  # only a write proves that it is over
            self._store.events.note(now=now, kind="store", data={"over": orders.trouble})
        if orders.deaths or not self._tidy:
            self._clear_away()
            self._tidy = True
        if self._judged_by != self.config.digest:
            self._forget_what_is_gone(now)
            self._judged_by = self.config.digest
        self._ride(orders.marks, now)
        lines = self._settle_deaths(orders.deaths, now)
        if now >= self._sweep_at:
            lines += self._sweep(orders.mine, now)
            self._sweep_at = now + SWEEP_EVERY_S
        if orders.deaths:
            # one may have died between its checkpoint and its files, or before their marks rode
            self.paper_due(now)
        papers_at = self._papers_due_at(alone=bool(orders.deaths) or not orders.mine)
        if papers_at is not None and now >= papers_at:
            self._settle_papers(now)
        self._note_deciders(orders.deciders, now)
        changed = self._wake_flags(now) > 0 or bool(lines) or bool(orders.deciders)
        overtaken = self._store.claims.overtaken(orders.sessions) if orders.sessions else ()
        if not orders.room:
            return Looked(None, self._sweep_at, lines, changed, overtaken)
        queues = [name for name in self.config.queues if name not in orders.left_alone]
        ready = self._store.claims.ready(queues, now=now)
        if ready.next_due_at is not None and ready.next_due_at > now:  # it may be a lease that ends then
            self._sweep_at = min(self._sweep_at, ready.next_due_at)
        due_at = self._due_at(ready.next_due_at, now, alone=not orders.mine)
        return Looked(ready.now, due_at, lines, changed, overtaken)

    def close(self, orders: Orders) -> Looked:
        """The last look: claims of ended workers are given back, what rides is written."""
        lines = self._settle_deaths(orders.deaths, orders.now)
        self._ride(orders.marks, orders.now)
        self._flush_riders()
        return Looked(None, None, lines, changed=False)

    def shrink(self) -> None:
        """Fold the write-ahead log away when it has grown and nobody minds."""
        with suppress(StoreBusy, OSError):
            wal = Path(f"{self._store.db.path}-wal")
            if wal.stat().st_size >= WAL_WORTH_BYTES:
                self._store.db.shrink_wal()

    def _due_at(self, next_due_at: float | None, now: float, *, alone: bool) -> float | None:
        """When something falls due by itself. A lease that is over is looked at by the sweep, not before.

        ``alone``: no worker runs.
        """
        times = [self._flag_due_at, self._papers_due_at(alone=alone)]
        if next_due_at is not None:
            times.append(next_due_at if next_due_at > now else self._sweep_at)
        return min((at for at in times if at is not None), default=None)

    def _note_deciders(self, news: Sequence[tuple[str, str]], now: float) -> None:
        """A decider that cannot be asked is a problem that people are paged about when it lasts."""
        for name, words in news:
            key = f"decider:{name}"
            if words:
                said = words.removeprefix("its decider ").removeprefix("cannot be asked: ")
                self._store.alerts.raise_problem(
                    key, queue=None, kind="away", detail=f"{name}: {said}", now=now
                )
            else:
                self._store.alerts.clear_problem(key)

    def _forget_what_is_gone(self, now: float) -> None:
        """Problems of what the configuration no longer has are over: nobody else would ever end them."""
        for problem in self._store.alerts.facts(now=now, flag_age_s=0.0).problems:
            if _is_gone(problem, self.config):
                self._store.alerts.clear_problem(problem.key)

    def _clear_away(self) -> None:
        """Half-written files that the dead left where they wrote."""
        state = self._store.state_dir
        outboxes = [queue.outbox for queue in self.config.queues.values() if queue.outbox is not None]
        for folder in (state, state / "inboxes", state / "timers", *outboxes):
            with suppress(OSError):
                files.remove_leftovers(folder)

    def _papers_due_at(self, *, alone: bool) -> float | None:
        """Files are left to running workers, but not for as long as there is work: that may be days."""
        if self._papers_at is None or alone:
            return self._papers_at
        return self._papers_at + PAPERS_AGAIN_S

    def _settle_deaths(self, deaths: Sequence[Death], now: float) -> list[str]:
        """Nodes of workers that died: given back when we ended them, the disk did, or the session they were claimed for
        had not begun; else a crash is counted.
        """
        leases = self._store.claims.leases() if deaths else []
        lines: list[str] = []
        for death in deaths:
            held = [lease for lease in leases if owners.same_process(lease.owner, death.worker.owner)]
            session = death.worker.session
            if session is not None and session.get("token") not in {lease.token for lease in held}:
                lines.append(self._without_claim(session, death))
            why = "stopped" if death.cause == "stopped" else "the disk" if is_disk(death.worker.error) else ""
            if why:
                lines += self._give_back(held, why, now)
                continue
            cause = death.cause if death.cause in {"deadline", "gate"} else "worker"
            innocent = [lease for lease in held if _not_begun(lease, death.worker)]
            lines += self._give_back(innocent, f"its session had not begun ({death.words()})", now)
            guilty: list[tuple[Lease, str]] = [(lease, cause) for lease in held if lease not in innocent]
            lines += self._reclaim(guilty, death.words(), now)
        return lines

    def _without_claim(self, session: Mapping[str, Any], death: Death) -> str:
        """A session that held nothing any more when its worker died: an abort, a revision, a person's stop took its
        claim, or it was through.
        """
        taken = self._store.claims.overtaken([session["session"]])
        what = "its session was ended" if taken else "was recorded before its worker ended"
        return f"{session.get('queue')}  {session.get('item')}  {what}: {death.words()}"

    def _give_back(self, held: Sequence[Lease], why: str, now: float) -> list[str]:
        return [
            f"{lease.queue}  {lease.item_id}  given back: {why}"
            for lease in held
            if self._store.claims.release(lease, now=now, why=why)
        ]

    def _sweep(self, mine: Collection[str], now: float) -> list[str]:
        judged = sweep.judge(self._store.claims.leases(), now=now, me=self._me, mine=mine)
        return self._reclaim(sweep.make_sure(judged), "", now)

    def _reclaim(self, dead: list[tuple[Lease, str]], how: str, now: float) -> list[str]:
        limit = self.config.daemon.crash_limit
        taken = self._store.claims.reclaim(dead, now=now, crash_limit=limit)
        return [terminal.crash_words(one, how, limit, self._commands) for one in taken]

    def _wake_flags(self, now: float) -> int:
        if self._flag_due_at is None or now < self._flag_due_at:
            return 0
        woken = self._store.people.wake_flags(now=now)
        self._flag_due_at = self._store.people.next_flag_due_at()
        return woken

    def _ride(self, marks: Sequence[Mark], now: float) -> None:
        """Files that workers wrote are marked by our next commit, whatever it is about."""
        if marks:
            self._store.db.ride_along(lambda conn: self._store.papers.mark(conn, marks, now=now))

    def _flush_riders(self) -> None:
        if self._store.db.riders:
            with self._store.db.write(point="papers.mark"):
                pass  # the riders are all there is to write

    def _settle_papers(self, now: float) -> None:
        """Files for people that are still due: after a crash, or where an outbox could not be written."""
        self._papers_at = None
        outboxes = {name: queue.outbox for name, queue in self.config.queues.items()}
        try:
            self._flush_riders()
            papers.settle_and_mark(
                self._store, outboxes, now=now, command=screen.command_anywhere(self.config.file)
            )
        except OSError as error:
            self._papers_at = now + PAPERS_AGAIN_S
            what = f"{terminal.path_words(error.filename or 'outbox')}: {error.strerror}"
            told = self._store.alerts.raise_problem(
                "store:outbox", queue=None, kind="outbox", detail=what, now=now
            )
            if told:
                self._note(f"a file for people cannot be written ({what}); tried again every minute")
            return
        self._store.alerts.clear_problem("store:outbox")


def _not_begun(lease: Lease, worker: Worker) -> bool:
    """Whether a claim that rode on a checkpoint waited for its turn when its worker died of something else.

    Only a worker that had come to a session before: one that dies of its first claim is not tried for ever uncounted.
    """
    return worker.sessions > 0 and (worker.session is None or worker.session.get("token") != lease.token)


def _is_gone(problem: Problem, config: Config) -> bool:
    family, _, name = problem.key.partition(":")
    if family == "trigger":
        return name not in build.plugin_names(config.triggers)
    if family == "decider":
        return name not in {queue.decider for queue in config.queues.values()}
    if family == "inbox":
        queue = config.queues.get(problem.queue or "")
        return queue is None or queue.inbox is None
    return family == "sources" and problem.queue not in config.queues


def is_disk(words: str) -> bool:
    """Whether a worker's last words say that the disk, not the work, was at fault."""
    return any(word in words for word in _DISK_WORDS)
