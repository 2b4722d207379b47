"""Claims and leases: who works on which node, and what happens when they no longer do.

    ready?   one read: is anything ready now, and when is the next thing due
    claim    commit 1 of a session: node pending → running, attempt + 1, lease, session row; after a quick session
             it rides on that one's checkpoint
    extend   before each call: the lease must still be ours
    release  a graceful stop gives the node back and counts nothing
    reclaim  a repeated sweep: the lease expired, or its owner is provably dead on this machine

Every update looks at its row count: work runs only on what its own update changed (FIELD 26).
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from store.asking import Ask, ask_person
from store.database import Database, marks
from store.errors import CheckpointConflict
from store.events import Events
from store.keys import spread
from store.text import death_words

DELAYS_AFTER_FAILURE_S = (2.0, 10.0, 60.0, 300.0)
MAX_CRASH_DELAY_S = 60.0
SPREAD_SHARE = 0.2

_READY = "state = 'pending' AND not_before_at IS NULL AND held = 0 AND kind <> 'human'"
_ASLEEP = "state = 'pending' AND not_before_at IS NOT NULL AND held = 0 AND kind <> 'human'"


class Ready(NamedTuple):
    """The answer to "is there work?". ``next_due_at``: when the next sleeping node wakes or lease ends, or None."""

    now: int
    next_due_at: float | None


class Claim(NamedTuple):
    """A session's right to one node, and the versions its checkpoint is guarded by."""

    session_id: int
    item_id: str
    node_id: str
    queue: str
    token: str
    attempt: int
    node_version: int
    plan_version: int
    deadline_at: float


class Order(NamedTuple):
    """What a worker asks for: who it is, the queues in their turn, seconds of the lease and until the deadline."""

    queues: Sequence[str]
    owner: str
    daemon: str
    trigger: str
    lease_s: float
    deadline_s: float


class Lease(NamedTuple):
    """A running node as others see it."""

    node_id: str
    item_id: str
    queue: str
    session_id: int
    token: str
    owner: str
    daemon: str
    expires_at: float
    heartbeat_at: float
    deadline_at: float | None


class Reclaimed(NamedTuple):
    """A node taken back: ``flag_id`` is set when it was its last try and a person is asked instead."""

    node_id: str
    item_id: str
    queue: str
    session_id: int
    cause: str
    crashes: int
    flag_id: str | None


class _NothingReady(Exception):
    """Rolls a claim back that found nothing: an empty queue costs no write."""


class Claims:
    """See the module's head."""

    def __init__(self, db: Database, events: Events) -> None:
        self._db = db
        self._events = events

    def ready(self, queues: Sequence[str], *, now: float, limit: int = 16) -> Ready:
        """How many nodes of these queues are ready now (counted up to ``limit``), and the next due time."""
        with self._db.read() as conn:
            open_queues = _unpaused(conn, queues)
            count = 0
            for queue in open_queues:
                count += conn.execute(
                    f"SELECT count(*) FROM (SELECT 1 FROM nodes WHERE queue = ? AND {_READY} LIMIT ?)",
                    (queue, limit - count),
                ).fetchone()[0]
                if count >= limit:
                    break
            woken, due_at = 0, None
            if open_queues and count < limit:
                woken = conn.execute(
                    f"SELECT count(*) FROM (SELECT 1 FROM nodes WHERE {_ASLEEP} AND not_before_at <= ? "
                    f"AND queue IN ({marks(open_queues)}) LIMIT ?)",
                    (now, *open_queues, limit - count),
                ).fetchone()[0]
                due_at = conn.execute(
                    f"SELECT not_before_at FROM nodes WHERE {_ASLEEP} AND not_before_at > ? "
                    f"AND queue IN ({marks(open_queues)}) ORDER BY not_before_at LIMIT 1",
                    (now, *open_queues),
                ).fetchone()
            lease = conn.execute("SELECT min(expires_at) FROM leases").fetchone()[0]
        due = [at for at in (due_at[0] if due_at else None, lease) if at is not None]
        return Ready(count + woken, min(due) if due else None)

    def claim(self, order: Order, *, now: float) -> Claim | None:
        """Take the first ready node of the first queue that has one; None when nothing is ready."""
        try:
            with self._db.write(point="claim") as conn:
                held = take(conn, order, now=now)
                if held is None:
                    raise _NothingReady
        except _NothingReady:
            return None
        return held

    def extend(self, claim: Claim, *, now: float, until_at: float) -> None:
        """Hold the lease until ``until_at``. Raises CheckpointConflict when it is no longer ours.

        A lease that is long enough already is only looked at, so a quick session pays no commit for it.
        """
        rows = self._db.rows(
            "SELECT expires_at FROM leases WHERE node_id = ? AND token = ?", (claim.node_id, claim.token)
        )
        if not rows:
            raise lost(claim)
        if rows[0]["expires_at"] >= until_at:
            return
        with self._db.write(point="extend") as conn:
            done = conn.execute(
                "UPDATE leases SET expires_at = ?, heartbeat_at = ?, deadline_at = ? WHERE node_id = ? AND token = ?",
                (until_at, now, claim.deadline_at, claim.node_id, claim.token),
            ).rowcount
            if done != 1:
                raise lost(claim)

    def release(self, held: Claim | Lease, *, now: float, why: str) -> bool:
        """Give the node back uncounted (a graceful stop). False when the claim was lost before."""
        with self._db.write(point="release") as conn:
            if not drop_lease(conn, held.node_id, held.token):
                return False
            conn.execute(
                "UPDATE nodes SET state = 'pending', version = version + 1, attempt = attempt - 1, changed_at = ?, "
                "held = (SELECT paused FROM items WHERE items.id = nodes.item_id), why = ? "
                "WHERE id = ? AND state = 'running'",
                (now, why, held.node_id),
            )
            end_session(conn, held.session_id, outcome="released", cause=why, now=now)
            self._events.add(
                conn,
                now=now,
                kind="release",
                queue=held.queue,
                item_id=held.item_id,
                session_id=held.session_id,
                data={"why": why},
            )
        return True

    def leases(self) -> list[Lease]:
        """Every running node."""
        with self._db.read() as conn:
            rows = conn.execute(
                "SELECT l.node_id, l.item_id, s.queue, l.session_id, l.token, l.owner, l.daemon, l.expires_at, "
                "l.heartbeat_at, l.deadline_at FROM leases l JOIN sessions s ON s.id = l.session_id "
                "ORDER BY l.session_id"
            ).fetchall()
        return [Lease(*row) for row in rows]

    def overtaken(self, session_ids: Sequence[int]) -> set[int]:
        """Those of these sessions that lost their node (aborted, revised, stopped): whatever they do is for nothing."""
        with self._db.read() as conn:
            rows = conn.execute(
                f"SELECT id FROM sessions WHERE id IN ({marks(session_ids)}) AND outcome = 'conflict'",
                tuple(session_ids),
            ).fetchall()
        return {row[0] for row in rows}

    def reclaim(self, dead: Iterable[tuple[Lease, str]], *, now: float, crash_limit: int) -> list[Reclaimed]:
        """Take back the nodes of dead or expired leases, each with its cause (``worker``, ``daemon``, ``deadline``…).

        The caller has judged the owners and killed what still lived. A node that crashed ``crash_limit`` times in
        a row is flagged instead of retried; the queue goes on.
        """
        found = list(dead)
        if not found:
            return []
        with self._db.write(point="reclaim") as conn:
            back = [self._take_back(conn, lease, cause, now, crash_limit) for lease, cause in found]
        return [one for one in back if one is not None]

    def _take_back(
        self, conn: sqlite3.Connection, lease: Lease, cause: str, now: float, crash_limit: int
    ) -> Reclaimed | None:
        if not drop_lease(conn, lease.node_id, lease.token):
            return None
        row = conn.execute(
            "UPDATE nodes SET crashes = crashes + 1, version = version + 1, changed_at = ? "
            "WHERE id = ? AND state = 'running' RETURNING crashes, id, attempt, title, reentrant",
            (now, lease.node_id),
        ).fetchone()
        if row is None:
            return None
        crashes = int(row["crashes"])
        end_session(conn, lease.session_id, outcome="crashed", cause=cause, now=now)
        flag_id = None
        if crashes >= crash_limit or not row["reentrant"]:
            flag_id = ask_person(
                conn, _crash_ask(lease, crashes, cause, reentrant=bool(row["reentrant"])), now=now
            )
        else:
            wait_s = delay_after_crash(crashes, cause=cause, key=lease.node_id)
            conn.execute(
                "UPDATE nodes SET state = 'pending', not_before_at = ?, why = ?, "
                "held = (SELECT paused FROM items WHERE items.id = nodes.item_id) WHERE id = ?",
                (now + wait_s if wait_s else None, f"after crash {crashes} ({cause})", lease.node_id),
            )
        self._events.add(
            conn,
            now=now,
            kind="crash",
            queue=lease.queue,
            item_id=lease.item_id,
            session_id=lease.session_id,
            data={"cause": cause, "crashes": crashes, "limit": crash_limit, "flag": flag_id},
        )
        return Reclaimed(lease.node_id, lease.item_id, lease.queue, lease.session_id, cause, crashes, flag_id)


def delay_after_crash(crashes: int, *, cause: str, key: str) -> float:
    """Seconds before a node's next try after its nth crash in a row: 0, 1, 2, 4 … 60; after a daemon's death 0."""
    if cause == "daemon" or crashes <= 1:
        return 0.0
    base = min(2.0 ** (crashes - 2), MAX_CRASH_DELAY_S)
    return base + spread(key, base * SPREAD_SHARE * 0.99)


def delay_after_failure(failures: int, *, key: str) -> float:
    """Seconds before the next try after a decider's nth failure in a row: 2, 10, 60, then 300, spread by key."""
    base = DELAYS_AFTER_FAILURE_S[min(failures, len(DELAYS_AFTER_FAILURE_S)) - 1]
    return base + spread(key, base * SPREAD_SHARE * 0.99)


def drop_lease(conn: sqlite3.Connection, node_id: str, token: str) -> bool:
    """End a lease if it is still this one."""
    return conn.execute("DELETE FROM leases WHERE node_id = ? AND token = ?", (node_id, token)).rowcount == 1


def end_session(conn: sqlite3.Connection, session_id: int, *, outcome: str, cause: str, now: float) -> None:
    """Close a session's row that had no checkpoint of its own."""
    conn.execute(
        "UPDATE sessions SET outcome = ?, cause = ?, ended_at = ?, end_version = NULL "
        "WHERE id = ? AND outcome = 'running'",
        (outcome, cause, now, session_id),
    )


def lost(claim: Claim) -> CheckpointConflict:
    """The error for a claim that is no longer held."""
    return CheckpointConflict(
        f"session {claim.session_id} no longer holds {claim.item_id}: it was taken over, revised, stopped or aborted "
        "meanwhile; nothing of this session was written"
    )


def _unpaused(conn: sqlite3.Connection, queues: Sequence[str]) -> list[str]:
    paused = {row[0] for row in conn.execute("SELECT queue FROM paused_queues")}
    return [queue for queue in queues if queue not in paused]


def take(conn: sqlite3.Connection, order: Order, *, now: float) -> Claim | None:
    """The claim itself, inside somebody's transaction; None when nothing is ready."""
    row = next(filter(None, (_first(conn, queue, now) for queue in _unpaused(conn, order.queues))), None)
    if row is None:
        return None
    item = conn.execute(  # of its own: SQLite walks through all items for a subquery of RETURNING
        "SELECT version, plan_version FROM items WHERE id = ?", (row["item_id"],)
    ).fetchone()
    started = conn.execute(
        "INSERT INTO sessions (item_id, node_id, queue, trigger, attempt, start_version, started_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (row["item_id"], row["id"], row["queue"], order.trigger, row["attempt"], item["version"], now),
    )
    held = Claim(
        session_id=started.lastrowid or 0,
        item_id=row["item_id"],
        node_id=row["id"],
        queue=row["queue"],
        token=secrets.token_hex(16),
        attempt=row["attempt"],
        node_version=row["version"],
        plan_version=item["plan_version"],
        deadline_at=now + order.deadline_s,
    )
    conn.execute(
        "INSERT INTO leases (node_id, item_id, session_id, token, owner, daemon, expires_at, heartbeat_at, "
        "deadline_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (held.node_id, held.item_id, held.session_id, held.token, order.owner, order.daemon, now + order.lease_s, now,
         held.deadline_at),
    )  # fmt: skip
    return held


def _first(conn: sqlite3.Connection, queue: str, now: float) -> sqlite3.Row | None:
    """The first ready node of a queue, which is now running."""
    _wake_due(conn, queue, now)
    row: sqlite3.Row | None = conn.execute(
        "UPDATE nodes SET state = 'running', version = version + 1, attempt = attempt + 1, parked = 0, "
        f"changed_at = ? WHERE seq = (SELECT seq FROM nodes WHERE queue = ? AND {_READY} "
        "ORDER BY priority DESC, seq LIMIT 1) AND state = 'pending' "
        "RETURNING id, item_id, queue, attempt, version",
        (now, queue),
    ).fetchone()
    return row


def _wake_due(conn: sqlite3.Connection, queue: str, now: float) -> None:
    conn.execute(
        f"UPDATE nodes SET not_before_at = NULL, parked = 0 WHERE {_ASLEEP} AND not_before_at <= ? AND queue = ?",
        (now, queue),
    )


def _crash_ask(lease: Lease, crashes: int, cause: str, *, reentrant: bool) -> Ask:
    times = "1 session" if crashes == 1 else f"{crashes} sessions"
    stuck = f"crashed {times} in a row (the last time {death_words(cause)})"
    if not reentrant:
        stuck += "; it must not be repeated unasked"
    return Ask(
        item_id=lease.item_id,
        about_node_id=lease.node_id,
        queue=lease.queue,
        kind="exception",
        cause="crash",
        stuck=stuck,
        questions=(
            {
                "question": "Try it again, or give this item up?",
                "kind": "exception",
                "options": [
                    {"label": "try again", "cost": "another crash if nothing changed", "does": "retry"},
                    {"label": "give it up", "cost": "the item is aborted", "does": "abort"},
                ],
                "recommendation": {
                    "option": 1,
                    "reason": "when the cause is found and mended, it will go through",
                },
            },
        ),
        evidence=(json.dumps({"sessions": [lease.session_id]}),),
    )
