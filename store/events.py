"""The decision log: append-only rows for people and audits. Recovery never reads them.

    handed in    intake, duplicate, revision; rejected (a file refused), inbox (its folder is gone, or back)
    sessions     decision; without one: failed, flagged (failed too often), denied; crash, release
    people       resolve, pause, resume, retry, abort, ack
    the rest     sources (read anew, or not to be read), notice (a message to a service), store, clock

A claim writes none: its session's row tells of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from store.database import Database
from store.text import as_json


class Events:
    """Adds events inside somebody's transaction, or alone."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(
        self,
        conn: sqlite3.Connection,
        *,
        now: float,
        kind: str,
        queue: str | None = None,
        item_id: str | None = None,
        session_id: int | None = None,
        data: Mapping[str, object] | None = None,
    ) -> None:
        """Append one event in the transaction ``conn`` is in."""
        conn.execute(
            "INSERT INTO events (at, kind, queue, item_id, session_id, data) VALUES (?, ?, ?, ?, ?, ?)",
            (now, kind, queue, item_id, session_id, as_json(data or {})),
        )

    def note(self, *, now: float, kind: str, queue: str | None = None, data: Mapping[str, object]) -> None:
        """Append one event in a commit of its own."""
        with self._db.write(point="events.note") as conn:
            self.add(conn, now=now, kind=kind, queue=queue, data=data)
