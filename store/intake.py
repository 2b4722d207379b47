"""Handing work in: every door ends here, with the same key rule, the same caps and one commit per batch.

same key, same content   → duplicate: the item that is there
same key, other content  → revision: stored, and the newest body is what sessions see
no key                   → key = digest of queue and content
an aborted item          → does not block: the new one gets KEY#2, KEY#3 …
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from store.claims import end_session
from store.database import Database
from store.errors import CapReached
from store.events import Events
from store.keys import digest, item_id, node_id

ROOT_PATH = "root"
FAR_FROM_CAP = 1000
COUNT_AGAIN_COMMITS = 64


class Constraint(NamedTuple):
    """A rule, verbatim. Kinds: scope, prohibition, acceptance, interface."""

    text: str
    kind: str = "scope"


class Handed(NamedTuple):
    """One thing handed in, already parsed and validated. ``name`` is the base name for files for people.

    ``delivery`` names this very act of handing in (a claim, a planned instant, a sender's delivery id): the same one
    again, after a crash, is the item it made, whatever became of that item since. ``source`` says among whose
    deliveries it is unique; empty means those of this door and queue.
    """

    queue: str
    body: str
    door: str
    key: str | None = None
    title: str = ""
    priority: int = 0
    not_before: float | None = None
    constraints: tuple[Constraint, ...] = ()
    origin: str = ""
    name: str = ""
    delivery: str = ""
    source: str = ""


class Taken(NamedTuple):
    """What became of it: outcome ``new``, ``duplicate`` or ``revision``; ``state`` is the item's (open, done …)."""

    id: str
    outcome: str
    state: str
    key: str


class Intake:
    """See the module's head."""

    def __init__(self, db: Database, events: Events) -> None:
        self._db = db
        self._events = events
        self._counted: dict[str, _Counted] = {}

    def hand_in(
        self, batch: Sequence[Handed], *, now: float, caps: Mapping[str, int], force: bool = False
    ) -> list[Taken]:
        """Take a batch in one commit, in order. ``caps``: the most open items a queue may hold.

        Raises CapReached before anything is written when a new item would go over its queue's cap: hand in fewer,
        or wait. ``force`` makes a new item of a duplicate or revision.
        """
        if not batch:
            return []
        with self._db.write(point="intake") as conn:
            room = _Room(conn, caps, self._counted)
            return [self._one(conn, handed, room, now=now, force=force) for handed in batch]

    def hand_in_waiting(
        self, waiting: Callable[[], Sequence[Handed]], *, now: float, caps: Mapping[str, int], wait_s: float
    ) -> list[Taken | CapReached]:
        """Take what waits by the time the store lets us write, in one commit; one outcome for each, in order.

        ``waiting`` is asked while the write gate is held: what came during the wait joins the batch. A queue that is
        full refuses its own and nobody else's. Raises StoreBusy after ``wait_s`` seconds; then nothing is stored.
        """
        outcomes: list[Taken | CapReached] = []
        with self._db.write(point="webhook.commit", wait_s=wait_s) as conn:
            room = _Room(conn, caps, self._counted)
            for handed in waiting():
                try:
                    outcomes.append(self._one(conn, handed, room, now=now, force=False))
                except CapReached as full:  # before anything of it was written
                    outcomes.append(full)
        return outcomes

    def room(self, queue: str, cap: int) -> int:
        """How many more open items the queue may take now."""
        with self._db.read() as conn:
            return cap - _count_open(conn, queue)

    def _one(
        self, conn: sqlite3.Connection, handed: Handed, room: _Room, *, now: float, force: bool
    ) -> Taken:
        key = handed.key or key_of(handed)
        if _is_unheard_of(conn, handed, key):
            room.take(handed.queue)
            taken = self._new(conn, handed, key, content_digest(handed), seq=room.next_seq(), now=now)
        else:
            known = _delivered(conn, handed)
            if known is not None:
                return known
            taken = self._take(conn, handed, key, room, now=now, force=force)
        if handed.delivery:
            conn.execute(
                "INSERT INTO deliveries (source, delivery_id, item_id, at) VALUES (?, ?, ?, ?)",
                (_source(handed), handed.delivery, taken.id, now),
            )
        return taken

    def _take(
        self, conn: sqlite3.Connection, handed: Handed, key: str, room: _Room, *, now: float, force: bool
    ) -> Taken:
        content = content_digest(handed)
        row, key = _current(conn, handed.queue, key, force=force)
        if row is None:
            room.take(handed.queue)
            return self._new(conn, handed, key, content, seq=room.next_seq(), now=now)
        if row["digest"] == content:
            self._events.add(
                conn, now=now, kind="duplicate", queue=handed.queue, item_id=row["id"],
                data={"door": handed.door, "origin": handed.origin},
            )  # fmt: skip
            return Taken(row["id"], "duplicate", row["state"], key)
        return self._revise(conn, row, handed, content, now)

    def _new(
        self, conn: sqlite3.Connection, handed: Handed, key: str, content: str, *, seq: int, now: float
    ) -> Taken:
        new = item_id(seq)
        constraints = _as_json(handed.constraints)
        conn.execute(
            "INSERT INTO items (seq, id, queue, key, digest, title, body, constraints, priority, name, door, origin, "
            "not_before_at, created_at, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (seq, new, handed.queue, key, content, handed.title, handed.body, constraints, handed.priority,
             handed.name or new, handed.door, handed.origin, handed.not_before, now, now),
        )  # fmt: skip
        not_before = handed.not_before if handed.not_before is not None and handed.not_before > now else None
        insert_root(
            conn, item=new, queue=handed.queue, key=key, generation=1, not_before_at=not_before, now=now
        )
        self._events.add(
            conn, now=now, kind="intake", queue=handed.queue, item_id=new,
            data={"door": handed.door, "origin": handed.origin},
        )  # fmt: skip
        return Taken(new, "new", "open", key)

    def _revise(
        self, conn: sqlite3.Connection, row: sqlite3.Row, handed: Handed, content: str, now: float
    ) -> Taken:
        _keep_revision(conn, row)
        revision = row["revision"] + 1
        stale = f"revised to revision {revision} after it was done" if row["state"] == "done" else None
        conn.execute(
            "UPDATE items SET digest = ?, title = ?, body = ?, constraints = ?, priority = ?, door = ?, origin = ?, "
            "not_before_at = ?, revision = ?, version = version + 1, stale = ?, changed_at = ? "
            "WHERE id = ? AND revision = ?",
            (content, handed.title, handed.body, _as_json(handed.constraints), handed.priority, handed.door,
             handed.origin, handed.not_before, revision, stale, now, row["id"], row["revision"]),
        )  # fmt: skip
        interrupt_running(conn, row["id"], why="revised", now=now)
        _reschedule(conn, row, handed, now)
        self._events.add(
            conn, now=now, kind="revision", queue=handed.queue, item_id=row["id"],
            data={"door": handed.door, "origin": handed.origin, "revision": revision},
        )  # fmt: skip
        return Taken(row["id"], "revision", row["state"], row["key"])


class _Counted(NamedTuple):
    """How many items of a queue were open at most, as of which commit."""

    open: int
    commit: int


class _Room:
    """What is known of the store for the length of one batch: how many open items each queue may still take, and the
    number of the next item. Each is asked for once.

    Counting costs more the more is open, so far from its cap a queue is counted once in a while; ``counted`` is what
    this process remembers from batch to batch. What it hands in itself is added, what others do meanwhile is little.
    """

    def __init__(
        self, conn: sqlite3.Connection, caps: Mapping[str, int], counted: dict[str, _Counted]
    ) -> None:
        self._conn = conn
        self._caps = caps
        self._counted = counted
        self._left: dict[str, int] = {}
        self._seq: int | None = None

    def next_seq(self) -> int:
        """The number of a new item."""
        if self._seq is None:
            self._seq = self._conn.execute("SELECT ifnull(max(seq), 0) FROM items").fetchone()[0]
        self._seq += 1
        return self._seq

    def left(self, queue: str) -> int:
        """How many new items there is room for."""
        if queue not in self._left:
            self._left[queue] = self._caps[queue] - self._open(queue)
        return self._left[queue]

    def take(self, queue: str) -> None:
        """One more; raises CapReached when there is no room."""
        if self.left(queue) <= 0:
            raise CapReached(
                f'queue "{queue}" holds {self._caps[queue]} open items, as many as max_waiting lets it; '
                "try again when some are finished, or raise max_waiting",
                queue=queue,
            )
        self._left[queue] -= 1
        known = self._counted[queue]
        self._counted[queue] = known._replace(open=known.open + 1)

    def _open(self, queue: str) -> int:
        commit = self._conn.execute("SELECT seq FROM commits").fetchone()[0]
        known = self._counted.get(queue)
        if known is None or not (
            0 <= commit - known.commit < COUNT_AGAIN_COMMITS and known.open + FAR_FROM_CAP < self._caps[queue]
        ):
            known = self._counted[queue] = _Counted(_count_open(self._conn, queue), commit)
        return known.open


def _count_open(conn: sqlite3.Connection, queue: str) -> int:
    count: int = conn.execute(
        "SELECT count(*) FROM items WHERE queue = ? AND state = 'open'", (queue,)
    ).fetchone()[0]
    return count


def content_digest(handed: Handed) -> str:
    """What makes two hand-ins the same content."""
    return digest_of_content(
        handed.title, handed.body, handed.constraints, handed.priority, handed.not_before
    )


def digest_of_content(
    title: str, body: str, constraints: Sequence[Constraint], priority: int, not_before: float | None
) -> str:
    """The digest an item's row carries, from its parts."""
    return digest("content", title, body, [list(one) for one in constraints], priority, not_before)


def key_of(handed: Handed) -> str:
    """The key of something handed in without one: a digest of queue and content."""
    rules = [list(one) for one in handed.constraints]
    return "c-" + digest("key", handed.queue, handed.title, handed.body, rules)


def insert_root(
    conn: sqlite3.Connection, *, item: str, queue: str, key: str, generation: int, not_before_at: float | None,
    now: float,
) -> str:  # fmt: skip
    """The first node of an item's generation, titled and held as its item is; its id."""
    root = node_id(key, queue, ROOT_PATH, generation)
    conn.execute(
        "INSERT INTO nodes (id, item_id, queue, path, kind, title, generation, priority, held, not_before_at, "
        "created_at, changed_at) SELECT ?, id, queue, ?, 'decide', title, ?, priority, paused, ?, ?, ? "
        "FROM items WHERE id = ?",
        (root, ROOT_PATH, generation, not_before_at, now, now, item),
    )
    return root


def interrupt_running(conn: sqlite3.Connection, item: str, *, why: str, now: float) -> list[str]:
    """Give an item's running nodes back to pending; the sessions behind them have lost. Their node ids."""
    rows = conn.execute(
        "DELETE FROM leases WHERE item_id = ? RETURNING node_id, session_id", (item,)
    ).fetchall()
    for row in rows:
        conn.execute(
            "UPDATE nodes SET state = 'pending', version = version + 1, attempt = attempt - 1, changed_at = ?, "
            "why = ?, held = (SELECT paused FROM items WHERE items.id = nodes.item_id) "
            "WHERE id = ? AND state = 'running'",
            (now, why, row["node_id"]),
        )
        end_session(conn, row["session_id"], outcome="conflict", cause=why, now=now)
    return [row["node_id"] for row in rows]


def _source(handed: Handed) -> str:
    return handed.source or f"{handed.door}:{handed.queue}"


def _is_unheard_of(conn: sqlite3.Connection, handed: Handed, key: str) -> bool:
    """The common case, in one question: neither this delivery nor this key was ever here."""
    row = conn.execute(
        "SELECT EXISTS (SELECT 1 FROM items WHERE queue = ?1 AND key = ?2) "
        "OR EXISTS (SELECT 1 FROM tombstones WHERE queue = ?1 AND key = ?2) "
        "OR (?4 <> '' AND EXISTS (SELECT 1 FROM deliveries WHERE source = ?3 AND delivery_id = ?4))",
        (handed.queue, key, _source(handed), handed.delivery),
    ).fetchone()
    return not row[0]


def _delivered(conn: sqlite3.Connection, handed: Handed) -> Taken | None:
    """The item that this very delivery made before, also when nothing but its id is left of it."""
    if not handed.delivery:
        return None
    row = conn.execute(
        "SELECT d.item_id, i.state, i.key FROM deliveries d LEFT JOIN items i ON i.id = d.item_id "
        "WHERE d.source = ? AND d.delivery_id = ?",
        (_source(handed), handed.delivery),
    ).fetchone()
    if row is None:
        return None
    return Taken(row["item_id"], "duplicate", row["state"] or "pruned", row["key"] or handed.key or "")


def _current(
    conn: sqlite3.Connection, queue: str, key: str, *, force: bool
) -> tuple[sqlite3.Row | None, str]:
    """The live item of this key, or None and the free key to use (KEY, KEY#2, KEY#3 …)."""
    tried, number = key, 1
    while True:
        row = conn.execute("SELECT * FROM items WHERE queue = ? AND key = ?", (queue, tried)).fetchone()
        buried = row is None and conn.execute(
            "SELECT 1 FROM tombstones WHERE queue = ? AND key = ?", (queue, tried)
        ).fetchone()  # fmt: skip
        if row is None and not buried:
            return None, tried
        if row is not None and row["state"] != "aborted" and not force:
            return row, tried
        number += 1
        tried = f"{key}#{number}"


def _keep_revision(conn: sqlite3.Connection, row: sqlite3.Row) -> None:
    """Row to row: text that cannot be read (it is not UTF-8) is kept as it is, too."""
    conn.execute(
        "INSERT OR IGNORE INTO revisions (item_id, revision, digest, title, body, constraints, door, origin, at) "
        "SELECT id, revision, digest, title, body, constraints, door, origin, changed_at FROM items WHERE id = ?",
        (row["id"],),
    )


def _reschedule(conn: sqlite3.Connection, row: sqlite3.Row, handed: Handed, now: float) -> None:
    """The newest text says when, too. A decision to park and the wait after a failure are not its to end."""
    at = handed.not_before if handed.not_before is not None and handed.not_before > now else None
    conn.execute(
        "UPDATE nodes SET priority = ?, changed_at = ?, not_before_at = CASE WHEN parked = 1 OR kind = 'human' "
        "THEN not_before_at WHEN not_before_at IS ? THEN ? ELSE nullif(max(ifnull(not_before_at, 0), ifnull(?, 0)), 0) "
        "END WHERE item_id = ? AND state = 'pending'",
        (handed.priority, now, row["not_before_at"], at, at, row["id"]),
    )


def _as_json(constraints: Sequence[Constraint]) -> str:
    return json.dumps([one._asdict() for one in constraints], ensure_ascii=False)
