"""The outbox: which messages may be sent now, and what became of them.

    unsent → sending (claimed by one sender) → delivered (the row is gone) | unsent again, later

A claim looks at the alert again in its own transaction (R10). The visible id ``E-1432`` is the message's
number and stays over re-sends (R12). What a dead sender left behind is sent again under the same id: at
most one duplicate.
"""

from __future__ import annotations

import sqlite3

from store.alert_rows import ALERT_COLUMNS, LIVE_COLUMNS, Alert, Claimed, Live, visible_id
from store.database import Database
from store.events import Events

LONGEST_RETRY_S = 30 * 60.0  # R9


class Outbox:
    """See the module's head."""

    def __init__(self, db: Database, events: Events) -> None:
        self._db = db
        self._events = events

    def due(self, *, owner: str, now: float) -> list[Live]:
        """Messages to send now, oldest first: unsent and due, or left behind by a sender that is gone.

        One whose next try is further away than any backoff is due too: the machine's clock was set back.
        """
        with self._db.read() as conn:
            rows = conn.execute(
                f"SELECT {LIVE_COLUMNS} FROM outbox WHERE (state = 'unsent' "
                "AND (next_attempt_at <= :now OR next_attempt_at > :now + :longest)) "
                "OR (state = 'sending' AND owner <> :owner) ORDER BY number",
                {"now": now, "owner": owner, "longest": LONGEST_RETRY_S},
            ).fetchall()
        return [Live(*row) for row in rows]

    def claim(self, number: int, *, owner: str, mark: int, now: float) -> Claimed | None:
        """Take one message to send it. None: it is gone or taken, or the alert no longer wants it said (R10).

        One that a dead sender left behind counts as said when it is no longer wanted: it may have arrived.
        """
        with self._db.write(point="notify.claim") as conn:
            row = conn.execute(f"SELECT {LIVE_COLUMNS} FROM outbox WHERE number = ?", (number,)).fetchone()
            if row is None:
                return None
            message = Live(*row)
            again = message.state == "sending"
            if again and message.owner == owner:
                return None
            alert = Alert(
                *conn.execute(
                    f"SELECT {ALERT_COLUMNS} FROM alerts WHERE key = ?", (message.alert_key,)
                ).fetchone()
            )
            if not _wanted(message, alert, now):
                conn.execute("DELETE FROM outbox WHERE number = ?", (number,))
                if again and message.claimed_at is not None:
                    _told(conn, message, at=min(message.claimed_at, now))
                touch(conn, alert.key)
                return None
            conn.execute(
                "UPDATE outbox SET state = 'sending', owner = ?, claimed_at = ?, mark = max(mark, ?) "
                "WHERE number = ?",
                (owner, now, mark, number),
            )
            touch(conn, alert.key)
            row = conn.execute(f"SELECT {LIVE_COLUMNS} FROM outbox WHERE number = ?", (number,)).fetchone()
        return Claimed(Live(*row), alert)

    def record_delivered(self, message: Live, *, owner: str, now: float) -> bool:
        """Note a delivery: the message is gone, its channel's clocks start (R1). False: it was not ours."""
        with self._db.write(point="notify.record") as conn:
            if not conn.execute(
                "DELETE FROM outbox WHERE number = ? AND state = 'sending' AND owner = ?",
                (message.number, owner),
            ).rowcount:
                return False
            _told(conn, message, at=now)
            touch(conn, message.alert_key)
            self._note(conn, message, now, "delivered")
        return True

    def record_failed(
        self, message: Live, *, owner: str, failure: str, now: float, retry_at: float | None
    ) -> bool:
        """Note a try that failed; the next one is at ``retry_at``, None gives the message up."""
        with self._db.write(point="notify.record") as conn:
            done = conn.execute(
                "UPDATE outbox SET state = 'unsent', owner = NULL, claimed_at = NULL, "
                "attempts = attempts + 1, failure = ?, next_attempt_at = ? "
                "WHERE number = ? AND state = 'sending' AND owner = ?",
                (failure, now if retry_at is None else retry_at, message.number, owner),
            ).rowcount
            if not done:
                return False
            if retry_at is None:
                conn.execute("DELETE FROM outbox WHERE number = ?", (message.number,))
            if failure != message.failure or retry_at is None:  # a dead channel is one event, not one a try
                self._note(conn, message, now, failure if retry_at is not None else f"given up: {failure}")
        return True

    def _note(self, conn: sqlite3.Connection, message: Live, now: float, outcome: str) -> None:
        self._events.add(
            conn,
            now=now,
            kind="notice",
            queue=message.alert_key.partition(":")[2] or None,
            data={
                "alert": message.alert_key,
                "id": visible_id(message.number),
                "what": message.kind,
                "channel": message.channel,
                "outcome": outcome,
            },
        )


def _wanted(message: Live, alert: Alert, now: float) -> bool:
    if message.kind == "resolved":
        return alert.state != "firing" and alert.episode == message.episode
    acked = alert.acked_until_at is not None and now < alert.acked_until_at
    return alert.state == "firing" and alert.episode == message.episode and not acked


def _told(conn: sqlite3.Connection, message: Live, *, at: float) -> None:
    """A notice reached its channel: start or move that channel's clocks."""
    if message.kind == "resolved":
        return
    conn.execute(
        "INSERT INTO alert_channels "
        "(alert_key, channel, episode, first_at, last_at, escalated, mark, number) "
        "VALUES (:alert, :channel, :episode, :at, :at, :escalated, :mark, :number) "
        "ON CONFLICT (alert_key, channel) DO UPDATE SET "
        "first_at = CASE WHEN episode = excluded.episode THEN first_at ELSE excluded.first_at END, "
        "escalated = CASE WHEN episode = excluded.episode THEN max(escalated, excluded.escalated) "
        "ELSE excluded.escalated END, "
        "last_at = excluded.last_at, mark = excluded.mark, number = excluded.number, "
        "episode = excluded.episode",
        {
            "alert": message.alert_key,
            "channel": message.channel,
            "episode": message.episode,
            "at": at,
            "escalated": int(message.kind == "escalation"),
            "mark": message.mark,
            "number": message.number,
        },
    )


def touch(conn: sqlite3.Connection, key: str) -> None:
    """A step computed before this is out of date."""
    conn.execute("UPDATE alerts SET version = version + 1 WHERE key = ?", (key,))
