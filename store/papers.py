"""Files for people, as rows: what is to be written into an outbox, and what was.

    due → written → unwanted → removed        (a ``waiting`` paper whose flag is answered is unwanted)
    due → unwanted                            (perhaps written, and a crash ate the mark)
    due → removed                             (there is nothing to write)

The file is written after the checkpoint that wants it; its mark rides on the next commit. A row that is
still ``due`` at start is looked at again. A written file that is gone or edited belongs to the person.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from store.database import Database


class Paper(NamedTuple):
    """One file to write or remove, with what its text is made of."""

    item_id: str
    kind: str
    about: str
    state: str
    path: str | None
    digest: str | None
    item: dict[str, Any]
    flag: dict[str, Any] | None


class Mark(NamedTuple):
    """What was done about a paper: written at ``path`` with ``digest``, or removed (path None)."""

    item_id: str
    kind: str
    about: str
    path: str | None
    digest: str | None


class Papers:
    """See the module's head."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def due(self, *, item_id: str | None = None, limit: int) -> list[Paper]:
        """Papers to write or to remove, oldest first; of one item, or of all."""
        with self._db.read() as conn:
            rows = conn.execute(
                "SELECT * FROM papers WHERE state IN ('due', 'unwanted') "
                + ("AND item_id = ? " if item_id else "")
                + "ORDER BY at LIMIT ?",
                (item_id, limit) if item_id else (limit,),
            ).fetchall()
            return [_paper(conn, row) for row in rows]

    def mark(self, conn: sqlite3.Connection, marks: Sequence[Mark], *, now: float) -> None:
        """Record what was done, inside somebody's commit."""
        for one in marks:
            if one.path is None:
                conn.execute(
                    "UPDATE papers SET state = 'removed', at = ? WHERE item_id = ? AND kind = ? AND about = ? "
                    "AND state IN ('due', 'unwanted')",
                    (now, *one[:3]),
                )
            else:
                conn.execute(
                    "UPDATE papers SET state = CASE state WHEN 'due' THEN 'written' ELSE 'unwanted' END, path = ?, "
                    "digest = ?, at = ? WHERE item_id = ? AND kind = ? AND about = ? AND state <> 'written'",
                    (one.path, one.digest, now, *one[:3]),
                )

    def mark_now(self, marks: Sequence[Mark], *, now: float) -> None:
        """Record what was done in a commit of its own (repair at start, commands)."""
        if marks:
            with self._db.write(point="papers.mark") as conn:
                self.mark(conn, marks, now=now)


def _paper(conn: sqlite3.Connection, row: sqlite3.Row) -> Paper:
    item = dict(conn.execute("SELECT * FROM items WHERE id = ?", (row["item_id"],)).fetchone())
    item["result"] = json.loads(item["result"]) if item["result"] else None
    flag = None
    if row["kind"] == "waiting":
        flag = dict(conn.execute("SELECT * FROM flags WHERE id = ?", (row["about"],)).fetchone())
        flag["questions"] = json.loads(flag["questions"])
    refs = (item["result"] or {}).get("citations", [])
    item["cited"] = [
        dict(one)
        for one in conn.execute(
            "SELECT p.ref, p.text, p.heading, s.path FROM passages p JOIN sources s ON s.id = p.source_id "
            f"WHERE p.queue = ? AND p.gone_at IS NULL AND p.ref IN ({', '.join('?' * len(refs))})",
            (item["queue"], *refs),
        )
    ]
    return Paper(
        row["item_id"], row["kind"], row["about"], row["state"], row["path"], row["digest"], item, flag
    )
