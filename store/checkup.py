"""What ``doctor`` asks the store: whether the file is whole, and whether all that waits has something to wake it.

Reads only. Each lost wait names the item and what is missing (FIELD 28); a store that is worked on at this very
moment gives none, since each question is one statement in one snapshot.
"""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

from store import owners
from store.database import Database

MOST = 20
_NO_STEP = """
SELECT i.id, NULL FROM items i WHERE i.state = 'open' AND NOT EXISTS (
    SELECT 1 FROM nodes n WHERE n.item_id = i.id AND n.state IN ('pending', 'running', 'blocked'))
"""
_NOT_HELD = """
SELECT n.item_id, n.id FROM nodes n WHERE n.state IN ('running', 'blocked', 'failed') AND n.state = 'running'
    AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.node_id = n.id)
"""
_NOT_RUNNING = """
SELECT l.item_id, l.node_id FROM leases l LEFT JOIN nodes n ON n.id = l.node_id
    WHERE n.id IS NULL OR n.state <> 'running'
"""
_NOBODY_ASKED = """
SELECT n.item_id, n.waits_for FROM nodes n WHERE n.state IN ('running', 'blocked', 'failed') AND n.state = 'blocked'
    AND NOT EXISTS (SELECT 1 FROM flags f WHERE f.item_id = n.item_id AND f.node_id = n.waits_for
                    AND f.state IN ('waiting', 'parked'))
    AND NOT EXISTS (SELECT 1 FROM nodes w WHERE w.id = n.waits_for AND w.kind <> 'human'
                    AND w.state IN ('pending', 'running', 'blocked'))
"""
_ENDED = """
SELECT f.item_id, f.id FROM flags f JOIN items i ON i.id = f.item_id
    WHERE f.state IN ('waiting', 'parked') AND i.state <> 'open'
"""
_HELD = """
SELECT i.id, n.id FROM nodes n JOIN items i ON i.id = n.item_id
    WHERE n.held = 1 AND n.state = 'pending' AND i.paused = 0 AND i.state = 'open'
"""
_LOST = (
    ("nothing of it is ready, running or waiting", _NO_STEP),
    ("runs, but no session holds it", _NOT_HELD),
    ("a session holds it, but it does not run", _NOT_RUNNING),
    ("waits for an answer that nobody is asked for", _NOBODY_ASKED),
    ("a question waits, but its item ended", _ENDED),
    ("held, but neither it nor anything says paused", _HELD),
)


class Lost(NamedTuple):
    """A wait that nothing ends. ``about`` is the node or flag it hangs on, empty when there is none."""

    item_id: str
    what: str
    about: str


class Held(NamedTuple):
    """A lease whose owner is provably dead, or whose time is over."""

    item_id: str
    session_id: int
    dead: bool
    expires_at: float


def lost_waits(db: Database) -> list[Lost]:
    """Waits whose waker is gone, at most ``MOST`` of each sort."""
    with db.read() as conn:
        return [
            Lost(row[0], what, row[1] or "")
            for what, sql in _LOST
            for row in conn.execute(f"{sql} LIMIT {MOST}").fetchall()
        ]


def ended_leases(db: Database, *, now: float) -> list[Held]:
    """Leases that only a daemon's next look will end."""
    with db.read() as conn:
        rows = conn.execute(
            "SELECT item_id, session_id, owner, expires_at FROM leases ORDER BY session_id"
        ).fetchall()
    held = [Held(row[0], row[1], owners.verdict(row[2]) == "dead", row[3]) for row in rows]
    return [one for one in held if one.dead or one.expires_at <= now]


def paused_items(db: Database) -> tuple[int, list[str]]:
    """How many items are paused, and the first of them."""
    with db.read() as conn:
        count = conn.execute("SELECT count(*) FROM items WHERE paused = 1 AND state = 'open'").fetchone()[0]
        rows = conn.execute(
            "SELECT id FROM items WHERE paused = 1 AND state = 'open' ORDER BY seq LIMIT 5"
        ).fetchall()
    return count, [row[0] for row in rows]


def problems(db: Database) -> list[dict[str, Any]]:
    """Stored problems (inbox gone, files refused …), the oldest first: key, kind, detail, since_at, count."""
    with db.read() as conn:
        rows = conn.execute(
            "SELECT key, kind, detail, since_at, count FROM problems ORDER BY since_at"
        ).fetchall()
    return [dict(row) for row in rows]


def papers_due(db: Database) -> int:
    """Files for people that are owed: not written, or no longer true and not removed."""
    with db.read() as conn:
        found: int = conn.execute(
            "SELECT count(*) FROM papers WHERE state IN ('due', 'unwanted')"
        ).fetchone()[0]
    return found


def integrity(db: Database) -> str | None:
    """What SQLite's full check finds, None when the file is whole. Slow: it reads every page."""
    try:
        found = [row[0] for row in db.connection().execute("PRAGMA integrity_check(3)")]
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if found == ["ok"] else "; ".join(found)


def sqlite_has_reset_bug(version: tuple[int, int, int]) -> bool:
    """Whether this SQLite can lose commits when the WAL is reset beside another writer: 3.7.0 to 3.51.2."""
    return (3, 7, 0) <= version <= (3, 51, 2)
