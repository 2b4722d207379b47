"""What people and programs look at: plain reads, the same state that recovery uses, nothing kept for show.

An item's shown state is computed from its nodes and flags:

    paused   it or nothing of it may be claimed      running  a session holds it
    waiting  a flag waits for a person               parked   not before a time, by a decision or a person
    queued   ready, or waiting out a retry           stuck    open, and nothing above holds
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from store.database import Database
from store.errors import NotFound

COUNTED = ("queued", "running", "waiting", "parked", "stalled", "stuck", "paused", "done", "aborted")

# the shown state of open items that are not plainly queued, one row each
_SPECIAL = """
SELECT i.id, i.queue, CASE
    WHEN EXISTS (SELECT 1 FROM leases l WHERE l.item_id = i.id) THEN 'running'
    WHEN i.paused THEN 'paused'
    WHEN EXISTS (SELECT 1 FROM flags f WHERE f.item_id = i.id AND f.state = 'waiting') THEN 'waiting'
    WHEN EXISTS (SELECT 1 FROM flags f WHERE f.item_id = i.id AND f.state = 'parked') THEN 'parked'
    WHEN EXISTS (SELECT 1 FROM nodes n WHERE n.item_id = i.id AND n.kind <> 'human' AND n.state = 'pending'
                 AND n.parked = 0) THEN 'queued'
    WHEN EXISTS (SELECT 1 FROM nodes n WHERE n.item_id = i.id AND n.state = 'pending' AND n.parked = 1)
        THEN 'parked'
    ELSE 'stuck' END AS shown
FROM items i WHERE i.state = 'open'
"""
_SPECIAL_IDS = """
 AND i.id IN (SELECT item_id FROM nodes WHERE state IN ('running', 'blocked', 'failed')
              UNION SELECT item_id FROM nodes WHERE state = 'pending' AND not_before_at IS NOT NULL AND parked = 1
              UNION SELECT id FROM items WHERE paused = 1 AND state = 'open')
"""


class Views:
    """See the module's head. ``now`` only turns stored times into ages."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def status(self, queues: Sequence[str], *, now: float) -> dict[str, Any]:
        """Counts per queue (every configured one, and any that still holds items), store and session totals."""
        with self._db.read() as conn:
            counts = {queue: empty_counts() for queue in queues}
            for row in conn.execute("SELECT queue, state, count(*), sum(unverified) FROM items GROUP BY queue, state"):
                one = counts.setdefault(row[0], empty_counts())
                one["queued" if row[1] == "open" else row[1]] = row[2]
                if row[1] == "done":
                    one["unverified"] = row[3]
            for row in conn.execute(f"SELECT queue, shown, count(*) FROM ({_SPECIAL}{_SPECIAL_IDS}) GROUP BY queue, shown"):
                if row[1] != "queued":
                    counts[row[0]]["queued"] -= row[2]
                    counts[row[0]][row[1]] += row[2]
            for row in conn.execute(
                "SELECT queue, min(waiting_since_at) FROM flags WHERE state = 'waiting' GROUP BY queue"
            ):
                counts[row[0]]["oldest_waiting_age_s"] = max(0.0, now - row[1])
            for row in conn.execute(
                "SELECT queue, max(crashes) FROM nodes WHERE state IN ('pending', 'running', 'blocked', 'failed') "
                "GROUP BY queue"
            ):
                counts[row[0]]["forced_retries_in_a_row"] = row[1]
            paused = sorted(row[0] for row in conn.execute("SELECT queue FROM paused_queues"))
            total = conn.execute("SELECT ifnull(max(id), 0) FROM sessions").fetchone()[0]
            failed = conn.execute(
                "SELECT count(*) FROM sessions WHERE outcome IN ('failed', 'crashed', 'conflict')"
            ).fetchone()[0]
            last = conn.execute("SELECT max(id), ended_at FROM sessions").fetchone()[1]
            depth = _depth_history(conn, now)
        return {
            "queues": counts,
            "paused_queues": paused,
            "sessions": {"total": total, "failed": failed},
            "last_session_at": last,
            "depth_history": depth,
        }

    def items(self, *, queue: str | None, state: str | None, limit: int, now: float) -> list[dict[str, Any]]:
        """Items, newest first: id, queue, title, state (shown), age_s, attempts, version."""
        where, values = [], []
        if queue is not None:
            where.append("i.queue = ?")
            values.append(queue)
        if state in ("done", "aborted"):
            where.append("i.state = ?")
            values.append(state)
        elif state is not None:
            where.append("i.state = 'open' AND s.shown = ?")
            values.append(state)
        condition = f"WHERE {' AND '.join(where)}" if where else ""
        with self._db.read() as conn:
            rows = conn.execute(
                "SELECT i.id, i.queue, i.title, i.state, s.shown, i.created_at, i.version, i.stale, "
                "(SELECT ifnull(sum(attempt), 0) FROM nodes n WHERE n.item_id = i.id AND n.generation = i.generation) AS attempts "
                f"FROM items i LEFT JOIN ({_SPECIAL}) s ON s.id = i.id {condition} ORDER BY i.seq DESC LIMIT ?",
                (*values, limit),
            ).fetchall()
        return [
            {
                "id": row["id"],
                "queue": row["queue"],
                "title": row["title"],
                "state": row["shown"] or row["state"],
                "age_s": max(0.0, now - row["created_at"]),
                "attempts": row["attempts"],
                "version": row["version"],
                "stale": row["stale"],
            }
            for row in rows
        ]

    def item(self, item_id: str, *, now: float) -> dict[str, Any]:
        """One item whole. Raises NotFound."""
        with self._db.read() as conn:
            item = conn.execute(
                f"SELECT i.*, s.shown FROM items i LEFT JOIN ({_SPECIAL} AND i.id = ?) s ON s.id = i.id WHERE i.id = ?",
                (item_id, item_id),
            ).fetchone()
            if item is None:
                raise NotFound(f'there is no item "{item_id}"; see them all:  shiftwork list')
            out = _item_dict(item, now)
            out["attempts"] = conn.execute(
                "SELECT ifnull(sum(attempt), 0) FROM nodes WHERE item_id = ? AND generation = ?", (item_id, item["generation"])
            ).fetchone()[0]
            out["flags"] = [
                flag_dict(row, now)
                for row in conn.execute("SELECT * FROM flags WHERE item_id = ? ORDER BY seq", (item_id,))
            ]
            out["notes"] = _dicts(conn, "SELECT id, kind, text, stale, at FROM notes WHERE item_id = ? ORDER BY id", item_id)
            out["conclusions"] = _dicts(
                conn, "SELECT id, subject, value, evidence, superseded_by FROM conclusions WHERE item_id = ? ORDER BY id", item_id
            )
            out["sessions"] = _sessions(conn, item_id)
            out["events"] = _events(conn, item_id)
            out["revisions"] = _dicts(
                conn, "SELECT revision, title, body, door, origin, at FROM revisions WHERE item_id = ? ORDER BY revision", item_id
            )
            out["files"] = _dicts(conn, "SELECT kind, state, path FROM papers WHERE item_id = ? ORDER BY id", item_id)
        return out

    def flags(self, *, queue: str | None = None, now: float) -> list[dict[str, Any]]:
        """Flags that wait for a person or are parked, oldest first."""
        with self._db.read() as conn:
            rows = conn.execute(
                "SELECT * FROM flags WHERE state IN ('waiting', 'parked') "
                + ("AND queue = ? " if queue else "")
                + "ORDER BY waiting_since_at, seq",
                (queue,) if queue else (),
            ).fetchall()
        return [flag_dict(row, now) for row in rows]

    def flag(self, flag_id: str, *, now: float) -> dict[str, Any]:
        """One flag whole, with its item's title and origin. Raises NotFound."""
        with self._db.read() as conn:
            row = conn.execute("SELECT * FROM flags WHERE id = ?", (flag_id,)).fetchone()
            if row is None:
                raise NotFound(f'there is no flag "{flag_id}"; see what waits:  shiftwork flags')
            out = flag_dict(row, now)
            item = conn.execute(
                "SELECT title, door, origin, revision FROM items WHERE id = ?", (row["item_id"],)
            ).fetchone()
            out["title"], out["door"], out["origin"] = item["title"], item["door"], item["origin"]
            out["revised_since"] = item["revision"] > row["revision"]
            out["tried"] = [
                dict(one)
                for one in conn.execute(
                    "SELECT id, outcome, cause, ended_at FROM sessions WHERE item_id = ? ORDER BY id DESC LIMIT 5",
                    (row["item_id"],),
                )
            ]
        return out

    def log(self, item_id: str | None, *, limit: int) -> list[dict[str, Any]]:
        """Events of one item, oldest first; or the newest ``limit`` of all, oldest first."""
        with self._db.read() as conn:
            if item_id is not None:
                if conn.execute("SELECT 1 FROM items WHERE id = ?", (item_id,)).fetchone() is None:
                    raise NotFound(f'there is no item "{item_id}"; see them all:  shiftwork list')
                return _events(conn, item_id)
            rows = conn.execute("SELECT * FROM events ORDER BY id DESC LIMIT ?", (limit,)).fetchall()
        return [_event(row) for row in reversed(rows)]

    def why(self, item_id: str, *, now: float) -> dict[str, Any]:
        """What an item waits for and what ends the wait (FIELD 28): its shown state and the facts behind it."""
        with self._db.read() as conn:
            item = conn.execute(
                f"SELECT i.*, s.shown FROM items i LEFT JOIN ({_SPECIAL} AND i.id = ?) s ON s.id = i.id WHERE i.id = ?",
                (item_id, item_id),
            ).fetchone()
            if item is None:
                raise NotFound(f'there is no item "{item_id}"; see them all:  shiftwork list')
            flag = conn.execute(
                "SELECT id, asked_at, waiting_since_at, state, parked_until_at, expires_at, stuck FROM flags "
                "WHERE item_id = ? AND state IN ('waiting', 'parked') ORDER BY seq LIMIT 1",
                (item_id,),
            ).fetchone()
            node = conn.execute(
                "SELECT state, not_before_at, parked, why, attempt, crashes, failures FROM nodes WHERE item_id = ? "
                "AND generation = ? AND kind <> 'human' ORDER BY seq LIMIT 1",
                (item_id, item["generation"]),
            ).fetchone()
            lease = conn.execute("SELECT * FROM leases WHERE item_id = ?", (item_id,)).fetchone()
            queue_paused = conn.execute("SELECT by, at FROM paused_queues WHERE queue = ?", (item["queue"],)).fetchone()
            ahead = conn.execute(
                "SELECT count(*) FROM nodes n JOIN nodes me ON me.item_id = ? AND me.kind <> 'human' WHERE n.queue = me.queue "
                "AND n.state = 'pending' AND n.not_before_at IS NULL AND n.held = 0 AND n.kind <> 'human' "
                "AND (n.priority > me.priority OR (n.priority = me.priority AND n.seq < me.seq))",
                (item_id,),
            ).fetchone()[0]
        return {
            "id": item_id,
            "queue": item["queue"],
            "state": item["shown"] or item["state"],
            "stale": item["stale"],
            "finished_at": item["finished_at"],
            "flag": None if flag is None else dict(flag),
            "node": None if node is None else dict(node),
            "lease": None if lease is None else dict(lease),
            "queue_paused": None if queue_paused is None else dict(queue_paused),
            "ahead": ahead,
        }

    def queue_of_sessions(self, target: str) -> list[str]:
        """Ids of items with a running session: of one item, one queue, or all (``--all``)."""
        with self._db.read() as conn:
            rows = conn.execute(
                "SELECT l.item_id FROM leases l JOIN sessions s ON s.id = l.session_id "
                "WHERE ? IN ('--all', l.item_id, s.queue)",
                (target,),
            ).fetchall()
        return [row[0] for row in rows]

    def left(self) -> dict[str, int]:
        """Open items: how many in all, and how many of them wait for a person."""
        with self._db.read() as conn:
            total = conn.execute("SELECT count(*) FROM items WHERE state = 'open'").fetchone()[0]
            waiting = conn.execute("SELECT count(DISTINCT item_id) FROM flags WHERE state = 'waiting'").fetchone()[0]
        return {"open": total, "waiting": waiting}


def empty_counts() -> dict[str, Any]:
    """A queue's counts before anything happened."""
    return {
        **dict.fromkeys(COUNTED, 0),
        "unverified": 0,
        "oldest_waiting_age_s": None,
        "forced_retries_in_a_row": 0,
    }


def flag_dict(row: sqlite3.Row, now: float) -> dict[str, Any]:
    """A flag as verbs print it: its first question on top, every question with its options."""
    questions = _parsed(row["questions"], [])
    first = questions[0] if questions else {}
    return {
        "id": row["id"],
        "item": row["item_id"],
        "queue": row["queue"],
        "stuck": row["stuck"],
        "question": first.get("question", ""),
        "kind": row["kind"],
        "options": first.get("options", []),
        "recommendation": first.get("recommendation"),
        "questions": questions,
        "state": row["state"],
        "cause": row["cause"],
        "evidence": _parsed(row["evidence"], []),
        "asked_at": row["asked_at"],
        "age_s": max(0.0, now - row["asked_at"]),
        "parked_until_at": row["parked_until_at"],
        "expires_at": row["expires_at"],
        "expired": row["expires_at"] is not None and row["expires_at"] <= now and row["state"] == "waiting",
        "resolved_at": row["resolved_at"],
        "resolved_by": row["resolved_by"],
        "answer": _parsed(row["answer"], None),
    }


def _item_dict(item: sqlite3.Row, now: float) -> dict[str, Any]:
    return {
        "id": item["id"],
        "queue": item["queue"],
        "key": item["key"],
        "title": item["title"],
        "state": item["shown"] or item["state"],
        "age_s": max(0.0, now - item["created_at"]),
        "version": item["version"],
        "generation": item["generation"],
        "revision": item["revision"],
        "priority": item["priority"],
        "door": item["door"],
        "origin": item["origin"],
        "stale": item["stale"],
        "created_at": item["created_at"],
        "finished_at": item["finished_at"],
        "body": item["body"],
        "constraints": _parsed(item["constraints"], []),
        "result": _parsed(item["result"], None),
    }


def _sessions(conn: sqlite3.Connection, item_id: str) -> list[dict[str, Any]]:
    rows = conn.execute("SELECT * FROM sessions WHERE item_id = ? ORDER BY id", (item_id,)).fetchall()
    return [{**dict(row), "steps": _parsed(row["steps"], [])} for row in rows]


def _events(conn: sqlite3.Connection, item_id: str) -> list[dict[str, Any]]:
    return [_event(row) for row in conn.execute("SELECT * FROM events WHERE item_id = ? ORDER BY id", (item_id,))]


def _event(row: sqlite3.Row) -> dict[str, Any]:
    return {**dict(row), "data": _parsed(row["data"], {})}


def _dicts(conn: sqlite3.Connection, sql: str, item_id: str) -> list[dict[str, Any]]:
    return [dict(row) for row in conn.execute(sql, (item_id,))]


def _parsed(text: str | None, otherwise: Any) -> Any:
    """JSON of one row; a row that does not parse is shown as nothing, the rest goes on."""
    if text is None:
        return otherwise
    try:
        return json.loads(text)
    except ValueError:
        return otherwise


def _depth_history(conn: sqlite3.Connection, now: float, *, hours: int = 24) -> list[dict[str, Any]]:
    """Open items at the end of each of the last ``hours`` hours, computed from arrivals and finishes."""
    start = now - hours * 3600.0
    depth = conn.execute(
        "SELECT (SELECT count(*) FROM items) - (SELECT count(*) FROM items WHERE created_at > ?) - "
        "(SELECT count(*) FROM items WHERE finished_at <= ?)",
        (start, start),
    ).fetchone()[0]
    moves = dict.fromkeys(range(hours), 0)
    for column, sign in (("created_at", 1), ("finished_at", -1)):
        for hour, count in conn.execute(
            f"SELECT min(CAST(({column} - ?) / 3600 AS INTEGER), ?), count(*) FROM items WHERE {column} > ? GROUP BY 1",
            (start, hours - 1, start),
        ):
            moves[hour] += sign * count
    history = []
    for hour in range(hours):
        depth += moves[hour]
        history.append({"at": start + (hour + 1) * 3600.0, "open": depth})
    return history
