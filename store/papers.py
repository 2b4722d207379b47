"""Files for people, as rows: what is to be written into an outbox, and what was.

    due → written → unwanted → removed        (a ``waiting`` paper whose flag is answered is unwanted)
    due → unwanted                            (perhaps written, and a crash ate the mark)
    due → removed                             (there is nothing to write)

The file is written after the checkpoint that wants it; its mark rides on the next commit. A row that is
still ``due`` at start is looked at again. A written file that is gone or edited belongs to the person.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from store.database import Database, marks
from store.text import parsed


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

    def due(self, *, item_id: str | None = None) -> Iterator[Paper]:
        """Papers to write or to remove, oldest first, of one item or of all: each that is due now comes once."""
        if item_id is not None:
            yield from self._of_item(item_id)
            return
        keys = self._db.rows(
            "SELECT item_id, kind, about FROM papers WHERE state IN ('due', 'unwanted') ORDER BY at"
        )
        for key in keys:  # read one by one: a folder may take its time, and no snapshot is held over it
            paper = self._still_due(tuple(key))
            if paper is not None:
                yield paper

    def _of_item(self, item_id: str) -> list[Paper]:
        with self._db.read() as conn:
            rows = conn.execute(
                "SELECT * FROM papers WHERE item_id = ? AND +state IN ('due', 'unwanted') ORDER BY at",
                (item_id,),
            ).fetchall()
            return [_paper(conn, row) for row in rows]

    def _still_due(self, key: tuple[str, ...]) -> Paper | None:
        with self._db.read() as conn:
            row = conn.execute(
                "SELECT * FROM papers WHERE item_id = ? AND kind = ? AND about = ? AND state IN ('due', 'unwanted')",
                key,
            ).fetchone()
            return None if row is None else _paper(conn, row)

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
    """A row that cannot be read makes a poor paper, not a daemon that stops."""
    item = dict(
        conn.execute(
            "SELECT id, queue, name, title, result, finished_at FROM items WHERE id = ?", (row["item_id"],)
        ).fetchone()
    )
    if item["result"] is not None:
        item["result"] = parsed(item["result"], {"text": "(the recorded answer cannot be read)"})
    flag = None
    if row["kind"] == "waiting":
        flag = dict(conn.execute("SELECT * FROM flags WHERE id = ?", (row["about"],)).fetchone())
        flag["questions"] = parsed(flag["questions"], []) or [{"question": "(the question cannot be read)"}]
    refs = (item["result"] or {}).get("citations", [])
    item["cited"] = _cited(conn, item["queue"], refs) if refs else []
    return Paper(
        row["item_id"], row["kind"], row["about"], row["state"], row["path"], row["digest"], item, flag
    )


def _cited(conn: sqlite3.Connection, queue: str, refs: Sequence[str]) -> list[dict[str, Any]]:
    found = conn.execute(
        "SELECT p.ref, p.text, p.heading, s.path FROM passages p JOIN sources s ON s.id = p.source_id "
        f"WHERE p.queue = ? AND p.gone_at IS NULL AND p.ref IN ({marks(refs)})",
        (queue, *refs),
    )
    return [dict(one) for one in found]
