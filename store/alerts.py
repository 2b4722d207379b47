"""Alerts and the stored problems some of them come from: facts, guarded steps, acks.

The state machine itself is pure (``notify.machine``). Here a step is committed with the messages it owes,
guarded by the alert's version: a step computed from an older row is not written. A newer message replaces an
unsent one in place: it gets a new number and keeps its place in the backoff (R2). Tables: ``alert_rows``;
sending: ``outbox``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from store.alert_rows import (
    ALERT_COLUMNS,
    ALERTS_DDL,
    COUNTED_PROBLEMS,
    LIVE_COLUMNS,
    Alert,
    Change,
    Crashed,
    Facts,
    Line,
    Live,
    Problem,
    Waiting,
)
from store.database import Database
from store.errors import Conflict, NotFound, UsageProblem
from store.events import Events
from store.outbox import Outbox

__all__ = ["ACK_MAX_S", "ALERTS_DDL", "Alerts"]

ACK_MAX_S = 24 * 3600.0  # R4

# said as the index flags_waiting says it, or a store with many answered flags is read whole every minute
_WAITING = "state IN ('waiting', 'parked') AND state = 'waiting'"


class Alerts:
    """See the module's head."""

    def __init__(self, db: Database, events: Events) -> None:
        self._db = db
        self._events = events
        self.outbox = Outbox(db, events)

    # reading

    def facts(self, *, now: float, flag_age_s: float) -> Facts:
        """Everything an evaluation needs. A few short index reads; nothing is written."""
        with self._db.read() as conn:
            waiting = conn.execute(
                "SELECT queue, count(*), min(waiting_since_at), "
                "total(waiting_since_at <= :limit), "
                "ifnull(max(CASE WHEN waiting_since_at <= :limit THEN seq END), 0), "
                "ifnull(max(CASE WHEN waiting_since_at <= :limit THEN waiting_since_at END), 0) "
                f"FROM flags WHERE {_WAITING} GROUP BY queue",
                {"limit": now - flag_age_s},
            ).fetchall()
            crashed = (
                conn.execute(
                    "SELECT queue, id, seq, item_id, about_node_id, waiting_since_at FROM flags "
                    f"WHERE {_WAITING} AND cause = 'crash' ORDER BY +seq"
                ).fetchall()
                if waiting
                else []
            )
            problems = conn.execute(
                "SELECT key, queue, kind, detail, since_at, seen_at, count FROM problems"
            ).fetchall()
            alerts = {row["key"]: Alert(*row) for row in conn.execute(f"SELECT {ALERT_COLUMNS} FROM alerts")}
            lines = _lines(conn)
        return Facts(
            waiting=tuple(Waiting(row[0], row[1], row[2], int(row[3]), row[4], row[5]) for row in waiting),
            crashed=tuple(Crashed(*row) for row in crashed),
            problems=tuple(Problem(*row) for row in problems),
            alerts=alerts,
            lines=lines,
        )

    # the machine's steps

    def apply(self, changes: Sequence[Change], *, now: float) -> list[Change]:
        """Commit steps with their messages, each only if its alert is still the row it was computed from.

        Returns those that were written; the others lost a race (an ack, a delivery) and are due again.
        """
        written = []
        with self._db.write(point="notify.step") as conn:
            for change in changes:
                if _save(conn, change.alert):
                    self._write_step(conn, change, now)
                    written.append(change)
        return written

    def _write_step(self, conn: sqlite3.Connection, change: Change, now: float) -> None:
        key = change.alert.key
        for channel in change.drops:
            conn.execute("DELETE FROM outbox WHERE alert_key = ? AND channel = ?", (key, channel))
        for put in change.puts:
            old = conn.execute(
                "DELETE FROM outbox WHERE alert_key = ? AND channel = ? "
                "RETURNING attempts, failure, next_attempt_at",
                (key, put.channel),
            ).fetchone()
            conn.execute(
                "INSERT INTO outbox (alert_key, channel, episode, kind, mark, attempts, failure, created_at, "
                "next_attempt_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    key,
                    put.channel,
                    change.alert.episode,
                    put.kind,
                    put.mark,
                    old["attempts"] if old else 0,
                    old["failure"] if old else "",
                    now,
                    old["next_attempt_at"] if old else now,
                ),
            )
        for line in change.lines:
            conn.execute(
                "UPDATE alert_channels SET first_at = ?, last_at = ? WHERE alert_key = ? AND channel = ?",
                (line.first_at, line.last_at, key, line.channel),
            )
        for problem, seen_at in change.forget:
            conn.execute("DELETE FROM problems WHERE key = ? AND seen_at = ?", (problem, seen_at))

    # people

    def ack(self, alert: str, *, by: str, for_s: float = ACK_MAX_S, now: float) -> Alert:
        """Quiet a firing alert (by key or its last message's id) until it clears or ``for_s`` seconds passed.

        It covers the flags there are now; one that comes later starts a new episode. Raises NotFound,
        Conflict when the alert does not fire, UsageProblem when ``for_s`` is not within 0 to 24 h.
        """
        if not 0 < for_s <= ACK_MAX_S:
            raise UsageProblem(
                "an ack lasts at most 24 h; when it ends and the alert still fires, it is told again"
            )
        with self._db.write(point="notify.ack") as conn:
            key = _key_of(conn, alert)
            row = conn.execute(
                "UPDATE alerts SET acked_at = ?, acked_until_at = ?, acked_by = ?, version = version + 1, "
                "acked_mark = (SELECT ifnull(max(seq), 0) FROM flags) WHERE key = ? AND state = 'firing' "
                f"RETURNING {ALERT_COLUMNS}",
                (now, now + for_s, by, key),
            ).fetchone()
            if row is None:
                raise Conflict(f"{key} is not firing, so there is nothing to quiet; see:  shiftwork alerts")
            conn.execute(
                "DELETE FROM outbox WHERE alert_key = ? AND state = 'unsent' AND kind <> 'resolved'", (key,)
            )
            self._events.add(
                conn,
                now=now,
                kind="ack",
                queue=key.partition(":")[2] or None,
                data={"alert": key, "by": by, "until_at": now + for_s},
            )
        return Alert(*row)

    # problems

    def raise_problem(self, key: str, *, queue: str | None, kind: str, detail: str, now: float) -> bool:
        """Store that something is wrong, such as ``inbox:questions missing``. Writes only when it is news.

        ``key`` begins with the alert's family (``inbox:``, ``rejected:``, ``store:``). True when written.
        """
        if kind not in COUNTED_PROBLEMS:
            with self._db.read() as conn:
                known = conn.execute(
                    "SELECT queue, kind, detail FROM problems WHERE key = ?", (key,)
                ).fetchone()
            if known is not None and tuple(known) == (queue, kind, detail):
                return False
        with self._db.write(point="notify.problem") as conn:
            self.note_problem(conn, key, queue=queue, kind=kind, detail=detail, now=now)
        return True

    def note_problem(
        self, conn: sqlite3.Connection, key: str, *, queue: str | None, kind: str, detail: str, now: float
    ) -> None:
        """Raise a problem in the caller's transaction; a standing one keeps its ``since_at`` and counts up."""
        conn.execute(
            "INSERT INTO problems (key, queue, kind, detail, since_at, seen_at) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (key) DO UPDATE SET queue = excluded.queue, kind = excluded.kind, "
            "detail = excluded.detail, seen_at = excluded.seen_at, count = count + 1",
            (key, queue, kind, detail, now, now),
        )

    def clear_problem(self, key: str) -> bool:
        """Store that it is over. Writes only when there was such a problem; True when written."""
        with self._db.read() as conn:
            if conn.execute("SELECT 1 FROM problems WHERE key = ?", (key,)).fetchone() is None:
                return False
        with self._db.write(point="notify.problem") as conn:
            return conn.execute("DELETE FROM problems WHERE key = ?", (key,)).rowcount == 1


def _save(conn: sqlite3.Connection, alert: Alert) -> bool:
    """Insert the alert's first row or move its row on, if nobody did meanwhile."""
    values = alert._replace(version=alert.version + 1)
    if alert.version == 0:
        marks = ", ".join("?" * len(values))
        sql = f"INSERT INTO alerts ({ALERT_COLUMNS}) VALUES ({marks}) ON CONFLICT (key) DO NOTHING"
        return conn.execute(sql, values).rowcount == 1
    names = ", ".join(f"{name} = ?" for name in Alert._fields[1:])
    sql = f"UPDATE alerts SET {names} WHERE key = ? AND version = ?"
    return conn.execute(sql, (*values[1:], alert.key, alert.version)).rowcount == 1


def _lines(conn: sqlite3.Connection) -> dict[str, dict[str, Line]]:
    lines: dict[str, dict[str, Line]] = {}
    for row in conn.execute(
        "SELECT alert_key, channel, episode, first_at, last_at, escalated, mark, number FROM alert_channels"
    ):
        line = Line(row[1], row[2], row[3], row[4], bool(row[5]), row[6], row[7])
        lines.setdefault(row[0], {})[line.channel] = line
    for row in conn.execute(f"SELECT {LIVE_COLUMNS} FROM outbox"):
        live = Live(*row)
        told = lines.setdefault(live.alert_key, {})
        told[live.channel] = told.get(live.channel, Line(live.channel))._replace(live=live)
    return lines


def _key_of(conn: sqlite3.Connection, alert: str) -> str:
    """The alert's key for a key or a visible id."""
    digits = alert[2:] if alert[:2].upper() == "E-" else ""
    if digits.isascii() and digits.isdigit() and len(digits) <= 18:
        row = conn.execute(
            "SELECT alert_key FROM alert_channels WHERE number = :number "
            "UNION ALL SELECT alert_key FROM outbox WHERE number = :number",
            {"number": int(digits)},
        ).fetchone()
    else:
        row = conn.execute("SELECT key FROM alerts WHERE key = ?", (alert,)).fetchone()
    if row is None:
        raise NotFound(f"there is no alert {alert}; see:  shiftwork alerts")
    return str(row[0])
