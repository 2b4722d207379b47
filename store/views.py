"""What people and programs look at: plain reads, the same state that recovery uses, nothing kept for show.

An item's shown state is computed from its nodes and flags:

    paused   it or nothing of it may be claimed      running  a session holds it
    waiting  a flag waits for a person               parked   not before a time, by a decision or a person
    queued   ready, or waiting out a retry           stuck    open, and nothing above holds
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from typing import Any

from store import counting
from store.counting import COUNTED, SHOWN, SPECIAL_IDS, Glance, empty_counts
from store.database import Database
from store.errors import no_flag, no_item
from store.text import parsed
from store.view_rows import (
    alert_dict,
    conclusion_dict,
    event_dict,
    flag_dict,
    item_dict,
    item_rules,
    session_dict,
    text_of,
)

__all__ = ["COUNTED", "Views", "empty_counts", "flag_dict"]

_FIRING = """
SELECT a.key, a.severity, a.since_at, a.acked_by, a.acked_until_at, min(c.first_at) AS told_at, max(c.number) AS number
FROM alerts a LEFT JOIN alert_channels c ON c.alert_key = a.key AND c.episode = a.episode
WHERE a.state = 'firing' GROUP BY a.key ORDER BY a.since_at
"""
_PROBLEMS = "SELECT key, kind, detail, since_at FROM problems ORDER BY since_at"
# with the answers that some of its questions have already
_FLAG = """SELECT f.*, CASE WHEN f.state IN ('waiting', 'parked') THEN n.result END AS given
FROM flags f LEFT JOIN nodes n ON n.id = f.node_id"""
_WAITING = f"{_FLAG} WHERE f.state IN ('waiting', 'parked')"
# found in an index alone, however rare; only the rows of the page are read
_OF_STATE = """i.seq IN (SELECT seq FROM items WHERE state = :state
    AND queue IN (SELECT value FROM json_each(:queues)) ORDER BY +seq DESC LIMIT :limit)"""


class Views:
    """See the module's head. ``now`` only turns stored times into ages, and parked times into waits that ended."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def status(self, queues: Sequence[str], *, now: float, history: bool = True) -> dict[str, Any]:
        """Counts per queue (every configured one, and any that holds items), alerts, store and session totals.

        Without ``history`` the hours are not counted: ``depth_history`` is empty.
        """
        with self._db.read() as conn:
            counts = counting.by_queue(conn, queues, now)
            total, failed, last_at = counting.session_totals(conn)
            return {
                "queues": counts,
                "paused_queues": sorted(queue for queue, one in counts.items() if one["queue_paused"]),
                "depth_history": counting.depth_history(conn, counts, now) if history else [],
                "alerts": [alert_dict(row, now) for row in conn.execute(_FIRING)],
                "problems": [
                    {**dict(row), "age_s": max(0.0, now - row["since_at"])} for row in conn.execute(_PROBLEMS)
                ],
                "store": {
                    "bytes": _size(os.fspath(self._db.path)),
                    "wal_bytes": _size(f"{self._db.path}-wal"),
                    "schema": conn.execute("PRAGMA user_version").fetchone()[0],
                },
                "sessions": {"total": total, "failed": failed},
                "last_session_at": last_at,
            }

    def queues(self) -> list[str]:
        """The queues that hold or held items, or are paused."""
        with self._db.read() as conn:
            paused = [row[0] for row in conn.execute("SELECT queue FROM paused_queues")]
            return sorted({*counting.queues_with_items(conn), *paused})

    def items(self, *, queue: str | None, state: str | None, limit: int, now: float) -> list[dict[str, Any]]:
        """Items, newest first: id, queue, title, state (shown), age_s, attempts, version, stale."""
        where: list[str] = []
        if queue is not None:
            where.append("i.queue = :queue")
        if state in ("done", "aborted"):
            where = [_OF_STATE]
        elif state is not None:
            where.append("i.state = 'open' AND s.shown = :state")
            if state != "queued":
                where.append(f"i.id IN ({SPECIAL_IDS})")
        condition = f"WHERE {' AND '.join(where)}" if where else ""
        with self._db.read() as conn:
            queues = [queue] if queue is not None else counting.queues_with_items(conn)
            rows = conn.execute(
                "SELECT i.id, i.queue, i.title, i.state, s.shown, i.created_at, i.version, i.stale, "
                "(SELECT ifnull(sum(attempt), 0) FROM nodes n WHERE n.item_id = i.id "
                "AND n.generation = i.generation) AS attempts "
                f"FROM items i LEFT JOIN ({SHOWN}) s ON s.id = i.id {condition} ORDER BY i.seq DESC LIMIT :limit",
                {"queue": queue, "queues": json.dumps(queues), "state": state, "limit": limit, "now": now},
            ).fetchall()
        return [
            {
                "id": row["id"],
                "queue": row["queue"],
                "title": text_of(row["title"]),
                "state": row["shown"] or row["state"],
                "age_s": max(0.0, now - row["created_at"]),
                "attempts": row["attempts"],
                "version": row["version"],
                "stale": row["stale"],
            }
            for row in rows
        ]

    def item(self, item_id: str, *, now: float) -> dict[str, Any]:
        """One item whole; its queue's constraints stand before its own. Raises NotFound."""
        with self._db.read() as conn:
            item = _item(conn, item_id, now)
            out = item_dict(item, now)
            out["constraints"] = _queue_constraints(conn, item["queue"]) + out["constraints"]
            out["attempts"] = conn.execute(
                "SELECT ifnull(sum(attempt), 0) FROM nodes WHERE item_id = ? AND generation = ?",
                (item_id, item["generation"]),
            ).fetchone()[0]
            out["flags"] = [
                flag_dict(row, now)
                for row in conn.execute("SELECT * FROM flags WHERE item_id = ? ORDER BY seq", (item_id,))
            ]
            out["notes"] = _dicts(
                conn, "SELECT id, kind, text, stale, at FROM notes WHERE item_id = ? ORDER BY id", item_id
            )
            out["conclusions"] = [
                conclusion_dict(row)
                for row in conn.execute(
                    "SELECT id, subject, value, evidence, superseded_by FROM conclusions WHERE item_id = ? ORDER BY id",
                    (item_id,),
                )
            ]
            out["sessions"] = [
                session_dict(row)
                for row in conn.execute("SELECT * FROM sessions WHERE item_id = ? ORDER BY id", (item_id,))
            ]
            out["events"] = [
                event_dict(row)
                for row in conn.execute("SELECT * FROM events WHERE item_id = ? ORDER BY id", (item_id,))
            ]
            out["revisions"] = _dicts(
                conn,
                "SELECT revision, title, body, door, origin, at FROM revisions WHERE item_id = ? ORDER BY revision",
                item_id,
            )
            out["files"] = _dicts(
                conn, "SELECT kind, about, state, path FROM papers WHERE item_id = ? ORDER BY at", item_id
            )
        return out

    def flags(self, *, queue: str | None = None, now: float) -> list[dict[str, Any]]:
        """Flags that wait for a person, oldest first; then those parked for later, the next one first."""
        with self._db.read() as conn:
            rows = conn.execute(
                f"{_WAITING} " + ("AND f.queue = ? " if queue else "") + "ORDER BY f.waiting_since_at, f.seq",
                (queue,) if queue else (),
            ).fetchall()
        flags = [flag_dict(row, now) for row in rows]
        return sorted(
            flags, key=lambda flag: (flag["state"] == "parked", flag["parked_until_at"] or flag["asked_at"])
        )

    def flag(self, flag_id: str, *, now: float) -> dict[str, Any]:
        """One flag whole, with its item's title, origin and constraints. Raises NotFound."""
        with self._db.read() as conn:
            row = conn.execute(f"{_FLAG} WHERE f.id = ?", (flag_id,)).fetchone()
            if row is None:
                raise no_flag(flag_id)
            out = flag_dict(row, now)
            item = conn.execute(
                "SELECT title, door, origin, revision, constraints FROM items WHERE id = ?", (row["item_id"],)
            ).fetchone()
            out["title"], out["door"], out["origin"] = text_of(item["title"]), item["door"], item["origin"]
            out["revised_since"] = item["revision"] > row["revision"]
            out["constraints"] = _queue_constraints(conn, row["queue"]) + item_rules(item["constraints"])
            out["done"] = _dicts(
                conn,
                "SELECT subject, value FROM conclusions WHERE item_id = ? AND superseded_by IS NULL ORDER BY id",
                row["item_id"],
            )
            out["tried"] = _dicts(
                conn,
                "SELECT id, outcome, cause, ended_at FROM sessions WHERE item_id = ? ORDER BY id DESC LIMIT 5",
                row["item_id"],
            )
        return out

    def log(self, item_id: str | None, *, limit: int) -> list[dict[str, Any]]:
        """Events of one item, oldest first; or the newest ``limit`` of all, oldest first. Raises NotFound.

        Each has its ``session`` and its ``decision`` (None where there is none). A session of the item without an
        event of its own (it runs, or it lost) is an entry of kind ``session``.
        """
        with self._db.read() as conn:
            if item_id is None:
                rows = conn.execute("SELECT * FROM events ORDER BY id DESC LIMIT ?", (limit,)).fetchall()
                return [_told(conn, event_dict(row)) for row in reversed(rows)]
            if conn.execute("SELECT 1 FROM items WHERE id = ?", (item_id,)).fetchone() is None:
                raise no_item(item_id)
            rows = conn.execute("SELECT * FROM events WHERE item_id = ? ORDER BY id", (item_id,)).fetchall()
            told = [_told(conn, event_dict(row)) for row in rows]
            heard = {row["session_id"] for row in rows}
            silent = conn.execute(
                "SELECT id, queue, started_at FROM sessions WHERE item_id = ? ORDER BY id", (item_id,)
            ).fetchall()
            for row in silent:
                if row["id"] not in heard:
                    entry = {"id": None, "at": row["started_at"], "kind": "session", "queue": row["queue"],
                             "item_id": item_id, "session_id": row["id"], "data": {}}  # fmt: skip
                    later = (place for place, other in enumerate(told) if other["at"] > entry["at"])
                    told.insert(next(later, len(told)), _told(conn, entry))
        return told

    def why(self, item_id: str, *, now: float) -> dict[str, Any]:
        """What an item waits for and what ends the wait (FIELD 28): its shown state and the facts behind it."""
        with self._db.read() as conn:
            item = _item(conn, item_id, now)
            flag = conn.execute(
                "SELECT * FROM flags WHERE item_id = ? AND state IN ('waiting', 'parked') "
                "ORDER BY state = 'parked', seq LIMIT 1",
                (item_id,),
            ).fetchone()
            node = conn.execute(
                "SELECT seq, state, not_before_at, parked, why, attempt, crashes, failures, priority, waits_for "
                "FROM nodes WHERE item_id = ? AND generation = ? AND kind <> 'human' ORDER BY seq LIMIT 1",
                (item_id, item["generation"]),
            ).fetchone()
            lease = conn.execute("SELECT * FROM leases WHERE item_id = ?", (item_id,)).fetchone()
            queue_paused = conn.execute(
                "SELECT by, at FROM paused_queues WHERE queue = ?", (item["queue"],)
            ).fetchone()
            held = conn.execute(
                "SELECT at, data FROM events WHERE item_id = ? AND kind = 'pause' ORDER BY id DESC LIMIT 1",
                (item_id,),
            ).fetchone()
            ahead = 0 if node is None else _ahead(conn, item["queue"], node)
        return {
            "id": item_id,
            "queue": item["queue"],
            "state": item["shown"] or item["state"],
            "stale": item["stale"],
            "finished_at": item["finished_at"],
            "flag": None if flag is None else flag_dict(flag, now),
            "node": None if node is None else dict(node),
            "lease": None if lease is None else dict(lease),
            "queue_paused": None if queue_paused is None else dict(queue_paused),
            "paused": None
            if held is None or not item["paused"]
            else {**parsed(held["data"], {}), "at": held["at"]},
            "ahead": ahead,
        }

    def problem(self, key: str) -> dict[str, Any] | None:
        """What is wrong under this key: ``{detail, since_at}``; None when nothing is."""
        with self._db.read() as conn:
            row = conn.execute("SELECT detail, since_at FROM problems WHERE key = ?", (key,)).fetchone()
        return None if row is None else dict(row)

    def would_abort(self, item_id: str, *, now: float) -> dict[str, Any]:
        """What an abort would change: the shown state, and the ids of nodes, flags, sessions and files it ends."""
        with self._db.read() as conn:
            item = _item(conn, item_id, now)
            return {
                "id": item_id,
                "queue": item["queue"],
                "title": text_of(item["title"]),
                "state": item["shown"] or item["state"],
                "nodes": _column(
                    conn,
                    "SELECT id FROM nodes WHERE item_id = ? AND state NOT IN ('succeeded', 'abandoned') ORDER BY seq",
                    item_id,
                ),
                "flags": _column(
                    conn,
                    "SELECT id FROM flags WHERE item_id = ? AND state IN ('waiting', 'parked') ORDER BY seq",
                    item_id,
                ),
                "sessions": _column(
                    conn, "SELECT session_id FROM leases WHERE item_id = ? ORDER BY session_id", item_id
                ),
                "files": _column(
                    conn,
                    "SELECT path FROM papers WHERE item_id = ? AND kind = 'waiting' AND state = 'written' ORDER BY at",
                    item_id,
                ),
            }

    def running_items(self, target: str) -> list[str]:
        """Ids of items with a running session: of one item, one queue, or all (``--all``)."""
        with self._db.read() as conn:
            rows = conn.execute(
                "SELECT l.item_id FROM leases l JOIN sessions s ON s.id = l.session_id "
                "WHERE ? IN ('--all', l.item_id, s.queue)",
                (target,),
            ).fetchall()
        return [row[0] for row in rows]

    def open_by_queue(self) -> dict[str, int]:
        """How many open items each queue holds, where it holds any."""
        with self._db.read() as conn:
            rows = conn.execute(
                "SELECT queue, count(*) FROM items WHERE state = 'open' GROUP BY queue"
            ).fetchall()
        return {row[0]: row[1] for row in rows}

    def glance(self, *, now: float) -> Glance:
        """How many items are open, by state, and how long the oldest has waited: cheap enough to ask often."""
        with self._db.read() as conn:
            return counting.glance(conn, now)

    def left(self) -> dict[str, int]:
        """Open items: how many in all, and how many of them wait for a person."""
        with self._db.read() as conn:
            total = conn.execute("SELECT count(*) FROM items WHERE state = 'open'").fetchone()[0]
            waiting = conn.execute(
                "SELECT count(DISTINCT item_id) FROM flags WHERE state IN ('waiting', 'parked') AND state = 'waiting'"
            ).fetchone()[0]
        return {"open": total, "waiting": waiting}


def _item(conn: sqlite3.Connection, item_id: str, now: float) -> sqlite3.Row:
    row: sqlite3.Row | None = conn.execute(
        f"SELECT i.*, s.shown FROM items i LEFT JOIN ({SHOWN} AND i.id = :id) s ON s.id = i.id WHERE i.id = :id",
        {"id": item_id, "now": now},
    ).fetchone()
    if row is None:
        raise no_item(item_id)
    return row


def _queue_constraints(conn: sqlite3.Connection, queue: str) -> list[dict[str, Any]]:
    rows = conn.execute(
        "SELECT id, text, kind, author FROM constraints WHERE queue = ? AND item_id = '' AND removed_at IS NULL "
        "ORDER BY position",
        (queue,),
    )
    return [
        {"id": f"k-{row['id']}", "text": row["text"], "kind": row["kind"], "author": row["author"]}
        for row in rows
    ]


def _ahead(conn: sqlite3.Connection, queue: str, node: sqlite3.Row) -> int:
    """How many ready nodes of the queue are claimed before this one."""
    found: int = conn.execute(
        "SELECT count(*) FROM nodes WHERE queue = ? AND state = 'pending' AND not_before_at IS NULL AND held = 0 "
        "AND kind <> 'human' AND (priority > ? OR (priority = ? AND seq < ?))",
        (queue, node["priority"], node["priority"], node["seq"]),
    ).fetchone()[0]
    return found


def _told(conn: sqlite3.Connection, event: dict[str, Any]) -> dict[str, Any]:
    """An event with the session and the decision it is about."""
    session = decision = None
    if event["session_id"] is not None:
        row = conn.execute("SELECT * FROM sessions WHERE id = ?", (event["session_id"],)).fetchone()
        session = None if row is None else session_dict(row)
        chosen = conn.execute(
            "SELECT kind, decided_by, body FROM decisions WHERE item_id = ? AND session_id = ?",
            (event["item_id"], event["session_id"]),
        ).fetchone()
        decision = None if chosen is None else {**dict(chosen), "body": parsed(chosen["body"], {})}
    return {**event, "session": session, "decision": decision}


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _dicts(conn: sqlite3.Connection, sql: str, item_id: str) -> list[dict[str, Any]]:
    return [dict(row) for row in conn.execute(sql, (item_id,))]


def _column(conn: sqlite3.Connection, sql: str, item_id: str) -> list[Any]:
    return [row[0] for row in conn.execute(sql, (item_id,))]
