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
from store.database import Database
from store.events import Events
from store.search import add_doc, drop_doc, fold_if_due


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


class Memory:
    """See the module's head."""

    def __init__(self, db: Database, events: Events) -> None:
        self._db = db
        self._events = events

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
        with self._db.read() as conn:
            rows = _operator_constraints(conn, queue)
        return [ConstraintRow(row["id"], row["text"], row["kind"], row["author"]) for row in rows]

    # notes, conclusions, episodes

    def notes(self, queue: str, item_id: str = "") -> list[NoteRow]:
        """Live notes, oldest first: the conclusions and rejected paths of the queue, and all of this item's."""
        with self._db.read() as conn:
            return _live_notes(conn, queue, item_id)

    def past_notes(self, queue: str, *, limit: int) -> list[NoteRow]:
        """The queue's notes, newest first, those that compaction took out included: what leaves stays findable."""
        with self._db.read() as conn:
            rows = conn.execute(
                f"{_NOTES} WHERE n.queue = ? ORDER BY n.id DESC LIMIT ?", (queue, limit)
            ).fetchall()
        return [_note(row) for row in rows]

    def conclusions(self, item_id: str) -> list[dict[str, Any]]:
        """An item's conclusions that stand, oldest first: id, subject, value, evidence."""
        with self._db.read() as conn:
            rows = conn.execute(
                "SELECT id, subject, value, evidence FROM conclusions WHERE item_id = ? AND superseded_by IS NULL "
                "ORDER BY id",
                (item_id,),
            ).fetchall()
        return [{**dict(row), "evidence": json.loads(row["evidence"])} for row in rows]

    def episodes(self, ids: Sequence[int]) -> list[EpisodeRow]:
        """Episodes by id, in the order asked; superseded ones are left out."""
        with self._db.read() as conn:
            rows = {
                row["id"]: row
                for row in conn.execute(
                    f"SELECT * FROM episodes WHERE superseded_by IS NULL AND id IN ({_marks(ids)})",
                    tuple(ids),
                )
            }
        return [_episode(rows[one]) for one in ids if one in rows]

    def remember_episode(
        self, *, queue: str, item_id: str, node_id: str, text: str, digest: str, tokens: Sequence[str], failed: bool,
        source: str, now: float,
    ) -> bool:  # fmt: skip
        """Store an episode that code itself has to tell (a crash, a refusal); False when it is known."""
        with self._db.write(point="memory.episode") as conn:
            return _add_episode(
                conn, queue=queue, item_id=item_id, node_id=node_id, text=text, digest=digest, tokens=tokens,
                evidence=(), failed=failed, source=source, trust="operator", now=now,
            )  # fmt: skip

    def remember(
        self, conn: sqlite3.Connection, claim: Claim, outcome: Outcome, *, now: float,
        compact: Callable[[Sequence[NoteRow]], Sequence[tuple[int, str | None]]] | None,
    ) -> None:  # fmt: skip
        """Notes, conclusions and lessons of a session, inside its checkpoint; then what compaction drops."""
        conn.executemany(
            "INSERT INTO notes (queue, item_id, node_id, kind, text, sources, pinned, at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (claim.queue, claim.item_id, claim.node_id, note.kind, note.text, json.dumps(list(note.sources)),
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
            for note_id, text in compact(_live_notes(conn, claim.queue, claim.item_id)):
                if text is None:
                    conn.execute("UPDATE notes SET dropped_at = ? WHERE id = ?", (now, note_id))
                else:
                    conn.execute(
                        "UPDATE notes SET text = ?, merged = merged + 1 WHERE id = ?", (text, note_id)
                    )

    # sources and passages

    def sources(self, queue: str) -> list[SourceRow]:
        """Every source ever seen of this queue, by path."""
        with self._db.read() as conn:
            rows = conn.execute(
                "SELECT id, path, digest, bytes, mtime_ns, problem, gone_at FROM sources WHERE queue = ? ORDER BY path",
                (queue,),
            ).fetchall()
        return [SourceRow(*row) for row in rows]

    def source_counts(self, queue: str) -> tuple[int, int]:
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

    def change_sources(self, queue: str, changes: Sequence[SourceChange], *, now: float) -> dict[str, int]:
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

    def touch_sources(self, queue: str, seen: Sequence[tuple[str, int]]) -> None:
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
                    f"JOIN sources s ON s.id = p.source_id WHERE p.gone_at IS NULL AND p.id IN ({_marks(ids)})",
                    tuple(ids),
                )
            }
        return [rows[one] for one in ids if one in rows]


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
            json.dumps(one["evidence"]),
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
            json.dumps(list(evidence)),
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


def _mark_stale(conn: sqlite3.Connection, source: int, path: str, gone: set[str], now: float) -> int:
    """What cited a passage that is no longer there, word for word, is stale: items, notes, episodes."""
    rows = [
        row for row in conn.execute("SELECT * FROM shown WHERE source_id = ? AND cited = 1", (source,))
        if row["digest"] in gone
    ]  # fmt: skip
    for row in rows:
        stale = json.dumps({"source": path, "said": row["ref"], "at": now})
        conn.execute(
            "UPDATE items SET stale = ?, version = version + 1 WHERE id = ? AND state = 'done'",
            (f"{row['ref']} changed", row["item_id"]),
        )
        conn.execute(
            "UPDATE notes SET stale = ? WHERE node_id = ? AND kind = 'conclusion' AND stale IS NULL "
            "AND dropped_at IS NULL",
            (stale, row["node_id"]),
        )
        conn.execute(
            "UPDATE episodes SET stale = ? WHERE node_id = ? AND stale IS NULL", (stale, row["node_id"])
        )
    return len({row["item_id"] for row in rows})


def _operator_constraints(conn: sqlite3.Connection, queue: str) -> list[sqlite3.Row]:
    return conn.execute(
        "SELECT id, text, kind, author FROM constraints WHERE queue = ? AND item_id = '' AND removed_at IS NULL "
        "ORDER BY position",
        (queue,),
    ).fetchall()


_NOTES = (
    "SELECT n.id, n.item_id, n.node_id, n.kind, n.text, n.sources, n.pinned, n.stale, n.merged, n.at, "
    "i.state = 'open' AS live FROM notes n JOIN items i ON i.id = n.item_id"
)


def _live_notes(conn: sqlite3.Connection, queue: str, item_id: str) -> list[NoteRow]:
    """Read from two narrow indexes: thousands of items that wait, each with its question, cost a session nothing."""
    shared = "n.dropped_at IS NULL AND n.kind IN ('conclusion', 'rejected')"
    rows = conn.execute(
        f"{_NOTES} WHERE n.queue = ? AND {shared} UNION ALL {_NOTES} WHERE n.item_id = ? "
        "AND n.dropped_at IS NULL AND n.kind NOT IN ('conclusion', 'rejected') ORDER BY n.id",
        (queue, item_id),
    ).fetchall()
    return [_note(row) for row in rows]


def _note(row: sqlite3.Row) -> NoteRow:
    return NoteRow(
        row["id"], row["item_id"], row["node_id"], row["kind"], row["text"], tuple(json.loads(row["sources"])),
        bool(row["pinned"]), bool(row["live"]), row["stale"], row["merged"], row["at"],
    )  # fmt: skip


def _episode(row: sqlite3.Row) -> EpisodeRow:
    return EpisodeRow(
        row["id"], row["item_id"], row["text"], tuple(json.loads(row["evidence"])), bool(row["failed"]), row["source"],
        row["trust"], row["stale"], row["observed_at"],
    )  # fmt: skip


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
