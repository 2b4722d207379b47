"""``history.db``: raw prompts, replies and tool output, for audits only.

Its tail may be lost in a crash (synchronous=NORMAL) and recovery never reads it: deleted, the work goes on the
same. Secrets are masked before they get here. Texts over 8 KiB are kept zlib-compressed.
"""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from store.database import for_the_group
from store.points import reach

HISTORY_NAME = "history.db"
COMPRESS_OVER_BYTES = 8 * 1024

_DDL = """
CREATE TABLE IF NOT EXISTS raw (
    id INTEGER PRIMARY KEY,
    session_id INTEGER NOT NULL,
    item_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    packed INTEGER NOT NULL,
    body BLOB NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS raw_by_session ON raw (session_id);
"""


class Raw(NamedTuple):
    """One raw text: kinds are ``request``, ``reply``, ``error``, ``stderr``."""

    session_id: int
    item_id: str
    kind: str
    text: str
    at: float


class History:
    """Writes batches; opened at the first one."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / HISTORY_NAME
        self._conn: sqlite3.Connection | None = None

    def add(self, batch: Sequence[Raw]) -> str:
        """Store a batch in one commit; why it could not be kept, or nothing. It never costs a session.

        A damaged history is moved aside and begun anew.
        """
        if not batch:
            return ""
        try:
            try:
                self._insert(batch)
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                    raise
                self._move_aside()
                self._insert(batch)
        except (sqlite3.Error, OSError) as error:
            with contextlib.suppress(sqlite3.Error):
                self.close()
            return str(error)
        return ""

    def _move_aside(self) -> None:
        self.close()
        self.path.replace(self.path.with_suffix(".damaged"))
        for tail in ("-wal", "-shm"):  # they belong to the damaged file and would be read into the new one
            Path(f"{self.path}{tail}").unlink(missing_ok=True)

    def of_session(self, session_id: int) -> list[Raw]:
        """The raw texts of one session; empty when there is no history."""
        if not self.path.exists():
            return []
        rows = self._connection().execute("SELECT * FROM raw WHERE session_id = ? ORDER BY id", (session_id,))
        return [
            Raw(r["session_id"], r["item_id"], r["kind"], _unpack(r["packed"], r["body"]), r["at"])
            for r in rows
        ]

    def close(self) -> None:
        """Close the file."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _insert(self, batch: Sequence[Raw]) -> None:
        conn = self._connection()
        conn.execute("BEGIN IMMEDIATE")
        conn.executemany(
            "INSERT INTO raw (session_id, item_id, kind, packed, body, at) VALUES (?, ?, ?, ?, ?, ?)",
            [(one.session_id, one.item_id, one.kind, *_pack(one.text), one.at) for one in batch],
        )
        reach("history.before")
        conn.execute("COMMIT")
        reach("history.after")

    def _connection(self) -> sqlite3.Connection:
        if self._conn is None:
            for_the_group(self.path)
            conn = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=2)
            self._conn = conn
            conn.row_factory = sqlite3.Row
            conn.execute("PRAGMA journal_mode=WAL")
            conn.execute("PRAGMA synchronous=NORMAL")
            conn.executescript(_DDL)
        return self._conn


def _pack(text: str) -> tuple[int, bytes]:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > COMPRESS_OVER_BYTES:
        return 1, zlib.compress(data, 6)
    return 0, data


def _unpack(packed: int, body: bytes) -> str:
    return (zlib.decompress(body) if packed else body).decode("utf-8", "surrogatepass")
