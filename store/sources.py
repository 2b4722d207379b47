"""A queue's sources and their passages, as rows.

    source   known → changed → … → gone (its row stays, its passages leave)
    passage  live → gone; never edited: a changed text is another passage

A change marks what cited a passage that is no longer there, word for word, as stale: items, notes, episodes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from store.database import Database, marks
from store.events import Events
from store.search import add_doc, drop_doc, fold_if_due


class PassageRow(NamedTuple):
    """A piece of a source that answers cite by ``ref`` (``resolve.md#3``)."""

    id: int
    source_id: int
    ref: str
    path: str
    heading: str
    text: str
    digest: str


class SourceRow(NamedTuple):
    """What the store knows of one source file. ``problem`` says why it has no passages."""

    id: int
    path: str
    digest: str
    bytes: int
    mtime_ns: int
    problem: str | None
    gone_at: float | None


class NewPassage(NamedTuple):
    """A passage cut from a source, with its search tokens."""

    ref: str
    heading: str
    text: str
    digest: str
    tokens: Sequence[str]


class SourceChange(NamedTuple):
    """A source that is new, changed, gone (``digest`` empty) or unusable (``problem``)."""

    path: str
    digest: str
    bytes: int
    mtime_ns: int
    passages: Sequence[NewPassage] = ()
    problem: str | None = None


class Sources:
    """See the module's head."""

    def __init__(self, db: Database, events: Events) -> None:
        self._db = db
        self._events = events

    def known(self, queue: str) -> list[SourceRow]:
        """Every source ever seen of this queue, by path."""
        with self._db.read() as conn:
            rows = conn.execute(
                "SELECT id, path, digest, bytes, mtime_ns, problem, gone_at FROM sources WHERE queue = ? ORDER BY path",
                (queue,),
            ).fetchall()
        return [SourceRow(*row) for row in rows]

    def counts(self, queue: str) -> tuple[int, int]:
        """How many sources and passages the queue has now."""
        with self._db.read() as conn:
            sources = conn.execute(
                "SELECT count(*) FROM sources WHERE queue = ? AND gone_at IS NULL AND problem IS NULL",
                (queue,),
            ).fetchone()[0]
            passages = conn.execute(
                "SELECT count(*) FROM passages WHERE queue = ? AND gone_at IS NULL", (queue,)
            ).fetchone()[0]
        return sources, passages

    def change(self, queue: str, changes: Sequence[SourceChange], *, now: float) -> dict[str, int]:
        """Record changed sources in one commit: old passages leave, new ones come, what rested on them is stale.

        Counts of ``changed`` and ``stale``.
        """
        if not changes:
            return {"changed": 0, "stale": 0}
        with self._db.write(point="memory.sources") as conn:
            stale = sum(_change_source(conn, queue, one, now) for one in changes)
            while fold_if_due(conn):
                pass
            self._events.add(
                conn, now=now, kind="sources", queue=queue,
                data={"changed": [one.path for one in changes][:20], "count": len(changes), "stale": stale},
            )  # fmt: skip
        return {"changed": len(changes), "stale": stale}

    def touch(self, queue: str, seen: Sequence[tuple[str, int]]) -> None:
        """Remember new times of files whose content is the same (path, mtime in ns)."""
        if not seen:
            return
        with self._db.write(point="memory.sources") as conn:
            conn.executemany(
                "UPDATE sources SET mtime_ns = ? WHERE queue = ? AND path = ?",
                [(mtime_ns, queue, path) for path, mtime_ns in seen],
            )

    def passages(self, ids: Sequence[int]) -> list[PassageRow]:
        """Live passages by id, in the order asked."""
        with self._db.read() as conn:
            rows = {
                row["id"]: PassageRow(*row)
                for row in conn.execute(
                    "SELECT p.id, p.source_id, p.ref, s.path, p.heading, p.text, p.digest FROM passages p "
                    f"JOIN sources s ON s.id = p.source_id WHERE p.gone_at IS NULL AND p.id IN ({marks(ids)})",
                    tuple(ids),
                )
            }
        return [rows[one] for one in ids if one in rows]


def _change_source(conn: sqlite3.Connection, queue: str, change: SourceChange, now: float) -> int:
    gone_at = now if not change.digest else None
    row = conn.execute(
        "INSERT INTO sources (queue, path, digest, bytes, mtime_ns, problem, indexed_at, gone_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (queue, path) DO UPDATE SET digest = excluded.digest, "
        "bytes = excluded.bytes, mtime_ns = excluded.mtime_ns, problem = excluded.problem, "
        "indexed_at = excluded.indexed_at, gone_at = excluded.gone_at RETURNING id",
        (queue, change.path, change.digest, change.bytes, change.mtime_ns, change.problem, now, gone_at),
    ).fetchone()
    source = row["id"]
    old = conn.execute(
        "SELECT id, ref, digest FROM passages WHERE source_id = ? AND gone_at IS NULL", (source,)
    ).fetchall()
    kept = {(p.ref, p.digest) for p in change.passages} & {(p["ref"], p["digest"]) for p in old}
    for passage in old:
        if (passage["ref"], passage["digest"]) not in kept:
            conn.execute("UPDATE passages SET gone_at = ? WHERE id = ?", (now, passage["id"]))
            drop_doc(conn, queue=queue, kind="passage", ref=passage["id"])
    for new in change.passages:
        if (new.ref, new.digest) in kept:
            continue
        passage_id = conn.execute(
            "INSERT INTO passages (queue, source_id, ref, heading, text, digest, indexed_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
            (queue, source, new.ref, new.heading, new.text, new.digest, now),
        ).fetchone()[0]
        add_doc(conn, queue=queue, kind="passage", ref=passage_id, tokens=new.tokens, at=0.0)
    gone = {p["digest"] for p in old} - {p.digest for p in change.passages}
    return _mark_stale(conn, source, change.path, gone, now) if gone else 0


def mark_overtaken(
    conn: sqlite3.Connection, item_id: str, node_id: str, cited: Iterable[tuple[int, str, str]], *, now: float
) -> None:
    """A source may be indexed anew while a session thinks: what it then cites of the old text is stale from birth.

    ``cited``: source, ref and digest of each passage.
    """
    for source, ref, digest in cited:
        live = conn.execute(
            "SELECT 1 FROM passages WHERE source_id = ? AND digest = ? AND gone_at IS NULL", (source, digest)
        ).fetchone()
        if live is None:
            row = conn.execute("SELECT path FROM sources WHERE id = ?", (source,)).fetchone()
            _mark_one(conn, item_id, node_id, _why(row["path"] if row else "", ref, now), ref)


def _mark_stale(conn: sqlite3.Connection, source: int, path: str, gone: set[str], now: float) -> int:
    """What cited a passage that is no longer there, word for word, is stale: items, notes, episodes."""
    rows = [
        row for row in conn.execute("SELECT * FROM shown WHERE source_id = ? AND cited = 1", (source,))
        if row["digest"] in gone
    ]  # fmt: skip
    for row in rows:
        _mark_one(conn, row["item_id"], row["node_id"], _why(path, row["ref"], now), row["ref"])
    return len({row["item_id"] for row in rows})


def _why(path: str, ref: str, now: float) -> str:
    return json.dumps({"source": path, "said": ref, "at": now})


def _mark_one(conn: sqlite3.Connection, item_id: str, node_id: str, stale: str, ref: str) -> None:
    conn.execute(
        "UPDATE items SET stale = ?, version = version + 1 WHERE id = ? AND state = 'done'",
        (f"{ref} changed", item_id),
    )
    conn.execute(
        "UPDATE notes SET stale = ? WHERE node_id = ? AND kind = 'conclusion' AND stale IS NULL "
        "AND dropped_at IS NULL",
        (stale, node_id),
    )
    conn.execute("UPDATE episodes SET stale = ? WHERE node_id = ? AND stale IS NULL", (stale, node_id))
