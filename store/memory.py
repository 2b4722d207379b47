"""What survives a session, as rows: constraints, notes, conclusions, episodes, sources and their passages.

Nothing here is written by a model unasked: notes and lessons come with a decision, the rest from code and people
(FIELD 37). Compaction marks notes as dropped; it deletes nothing and never touches constraints (FIELD 38).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from store.checkpoints import Outcome
from store.claims import Claim
from store.database import Database, marks
from store.search import add_doc, fold_if_due
from store.text import as_json


class NoteRow(NamedTuple):
    """A live note."""

    id: int
    item_id: str
    node_id: str
    kind: str
    text: str
    sources: tuple[str, ...]
    pinned: bool
    cited: bool
    stale: str | None
    merged: int
    at: float


class ConstraintRow(NamedTuple):
    """A constraint as it was given; ``id`` is shown as ``k-ID``."""

    id: int
    text: str
    kind: str
    author: str


class EpisodeRow(NamedTuple):
    """An action and its conclusion; ``id`` is shown as ``e-ID``."""

    id: int
    item_id: str
    text: str
    evidence: tuple[str, ...]
    failed: bool
    source: str
    trust: str
    stale: str | None
    observed_at: float


class Memory:
    """See the module's head."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._shelf = _Shelf()

    # constraints

    def sync_constraints(self, queue: str, wanted: Sequence[tuple[str, str]], *, now: float) -> None:
        """Make the queue's operator constraints equal to the configuration's, in its order; no change, no write."""
        with self._db.read() as conn:
            have = [(row["text"], row["kind"]) for row in _operator_constraints(conn, queue)]
        if have == list(wanted):
            return
        with self._db.write(point="memory.constraints") as conn:
            rows = {(row["text"], row["kind"]): row["id"] for row in _operator_constraints(conn, queue)}
            for position, (text, kind) in enumerate(wanted):
                if (text, kind) in rows:
                    conn.execute(
                        "UPDATE constraints SET position = ? WHERE id = ?", (position, rows.pop((text, kind)))
                    )
                else:
                    conn.execute(
                        "INSERT INTO constraints (queue, text, kind, author, position, at) "
                        "VALUES (?, ?, ?, 'operator', ?, ?)",
                        (queue, text, kind, position, now),
                    )
            conn.executemany(
                "UPDATE constraints SET removed_at = ? WHERE id = ?", [(now, one) for one in rows.values()]
            )

    def constraints(self, queue: str) -> list[ConstraintRow]:
        """The queue's constraints, in order."""
        rows = _operator_constraints(self._db.connection(), queue)
        return [ConstraintRow(row["id"], row["text"], row["kind"], row["author"]) for row in rows]

    # notes, conclusions, episodes

    def notes(self, queue: str, item_id: str = "") -> list[NoteRow]:
        """Live notes, oldest first: the conclusions and rejected paths of the queue, and all of this item's."""
        return self._shelf.live(self._db.connection(), queue, item_id)

    def past_notes(self, queue: str, *, limit: int) -> list[NoteRow]:
        """The queue's notes, newest first, those that compaction took out included: what leaves stays findable."""
        with self._db.read() as conn:
            rows = conn.execute(
                f"{_NOTES} WHERE n.queue = ? ORDER BY n.id DESC LIMIT ?", (queue, limit)
            ).fetchall()
        return [_note(row) for row in rows]

    def conclusions(self, item_id: str) -> list[dict[str, Any]]:
        """An item's conclusions that stand, oldest first: id, subject, value, evidence."""
        rows = self._db.rows(
            "SELECT id, subject, value, evidence FROM conclusions WHERE item_id = ? AND superseded_by IS NULL "
            "ORDER BY id",
            (item_id,),
        )
        return [{**dict(row), "evidence": json.loads(row["evidence"])} for row in rows]

    def episodes(self, ids: Sequence[int]) -> list[EpisodeRow]:
        """Episodes by id, in the order asked; superseded ones are left out."""
        with self._db.read() as conn:
            rows = {
                row["id"]: row
                for row in conn.execute(
                    f"SELECT * FROM episodes WHERE superseded_by IS NULL AND id IN ({marks(ids)})",
                    tuple(ids),
                )
            }
        return [_episode(rows[one]) for one in ids if one in rows]

    def remember(
        self, conn: sqlite3.Connection, claim: Claim, outcome: Outcome, *, now: float,
        compact: Callable[[Sequence[NoteRow]], Sequence[tuple[int, str | None]]] | None,
    ) -> None:  # fmt: skip
        """Notes, conclusions and lessons of a session, inside its checkpoint; then what compaction drops."""
        conn.executemany(
            "INSERT INTO notes (queue, item_id, node_id, kind, text, sources, pinned, at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (claim.queue, claim.item_id, claim.node_id, note.kind, note.text, as_json(note.sources),
                 int(note.pinned), now)
                for note in outcome.notes
            ],
        )  # fmt: skip
        for one in outcome.conclusions:
            _add_conclusion(conn, claim, one, now)
        for lesson in outcome.lessons:
            _add_episode(
                conn, queue=claim.queue, item_id=claim.item_id, node_id=claim.node_id, text=lesson.text,
                digest=lesson.digest, tokens=lesson.tokens, evidence=lesson.evidence, failed=lesson.failed,
                source=lesson.source, trust=lesson.trust, now=now,
            )  # fmt: skip
        if outcome.lessons:
            fold_if_due(conn)
        if compact is not None and outcome.notes:
            for note_id, text in compact(self._shelf.live(conn, claim.queue, claim.item_id)):
                if text is None:
                    conn.execute("UPDATE notes SET dropped_at = ? WHERE id = ?", (now, note_id))
                else:
                    conn.execute(
                        "UPDATE notes SET text = ?, merged = merged + 1 WHERE id = ?", (text, note_id)
                    )


def _add_conclusion(conn: sqlite3.Connection, claim: Claim, one: Any, now: float) -> None:
    new = conn.execute(
        "INSERT INTO conclusions (queue, item_id, node_id, subject, value, evidence, at) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "RETURNING id",
        (
            claim.queue,
            claim.item_id,
            claim.node_id,
            one["subject"],
            one["value"],
            as_json(one["evidence"]),
            now,
        ),
    ).fetchone()[0]
    conn.execute(
        "UPDATE conclusions SET superseded_by = ? "
        "WHERE item_id = ? AND subject = ? AND superseded_by IS NULL AND id <> ?",
        (new, claim.item_id, one["subject"], new),
    )


def _add_episode(
    conn: sqlite3.Connection, *, queue: str, item_id: str, node_id: str, text: str, digest: str, tokens: Sequence[str],
    evidence: Sequence[str], failed: bool, source: str, trust: str, now: float,
) -> bool:  # fmt: skip
    row = conn.execute(
        "INSERT INTO episodes (queue, item_id, node_id, text, digest, evidence, failed, source, trust, observed_at, "
        "verified_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (queue, digest) DO NOTHING RETURNING id",
        (
            queue,
            item_id,
            node_id,
            text,
            digest,
            as_json(evidence),
            int(failed),
            source,
            trust,
            now,
            now,
        ),
    ).fetchone()
    if row is None:
        return False
    add_doc(conn, queue=queue, kind="episode", ref=row["id"], tokens=tokens, at=now, failed=failed)
    return True


def _operator_constraints(conn: sqlite3.Connection, queue: str) -> list[sqlite3.Row]:
    return conn.execute(
        "SELECT id, text, kind, author FROM constraints WHERE queue = ? AND item_id = '' AND removed_at IS NULL "
        "ORDER BY position",
        (queue,),
    ).fetchall()


_NOTES = (
    "SELECT n.id, n.item_id, n.node_id, n.kind, n.text, n.sources, n.pinned, i.state = 'open', n.stale, n.merged, n.at "
    "FROM notes n JOIN items i ON i.id = n.item_id"
)


_SHORT = (
    "SELECT n.id, n.merged, n.pinned, n.stale, i.state = 'open' FROM notes n JOIN items i ON i.id = n.item_id "
    "WHERE n.dropped_at IS NULL"
)
_LIVE = (
    f"{_SHORT} AND n.queue = ? AND n.kind IN ('conclusion', 'rejected') UNION ALL "
    f"{_SHORT} AND n.item_id = ? AND n.kind NOT IN ('conclusion', 'rejected') ORDER BY n.id"
)


class _Shelf:
    """The notes that were live at the last look. Each session looks twice, and hardly any of them has changed.

    A note's words are written once, or anew with ``merged`` counted up; so what changes of it is its key here.
    """

    def __init__(self) -> None:
        self._notes: dict[tuple[Any, ...], NoteRow] = {}

    def live(self, conn: sqlite3.Connection, queue: str, item_id: str) -> list[NoteRow]:
        """Read from two narrow indexes: thousands of items that wait, each with its question, cost nothing."""
        cursor = conn.cursor()
        cursor.row_factory = None  # plain tuples
        keys: list[tuple[Any, ...]] = cursor.execute(_LIVE, (queue, item_id)).fetchall()
        known = self._notes
        new = [key[0] for key in keys if key not in known]
        if new:
            found = {
                row[0]: _note(row) for row in cursor.execute(f"{_NOTES} WHERE n.id IN ({marks(new)})", new)
            }
            known = {**known, **{key: found[key[0]] for key in keys if key not in known}}
        self._notes = {key: known[key] for key in keys}
        return list(self._notes.values())


def _note(row: Sequence[Any]) -> NoteRow:
    """Columns by their places: every session reads all the notes that its queue shares."""
    one, item_id, node_id, kind, text, sources, pinned, cited, stale, merged, at = row
    said = () if sources == "[]" else tuple(json.loads(sources))
    return NoteRow(one, item_id, node_id, kind, text, said, pinned != 0, cited != 0, stale, merged, at)


def _episode(row: sqlite3.Row) -> EpisodeRow:
    return EpisodeRow(
        row["id"], row["item_id"], row["text"], tuple(json.loads(row["evidence"])), bool(row["failed"]), row["source"],
        row["trust"], row["stale"], row["observed_at"],
    )  # fmt: skip
