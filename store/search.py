"""The search index over episodes and passages: documents, their terms, how often each term occurs.

A document is one episode or passage as its tokens. It belongs to a *scope*: one queue, one kind, failed or
not. Terms are indexed as ``SCOPE_term`` and counted per scope, so a search reads no other queue's postings.

    pending  1   searched from the row itself; not yet in the full-text index or the counts
    pending  0   in the full-text index and the counts
    pending -1   dropped: no search finds it; still to be taken out of the index and the counts

Adding or dropping writes one row in the caller's own transaction; ``fold_if_due`` settles waiting rows in
batches. Invariant: counts + waiting rows = what the live documents hold, at every commit, so a search is
exact whether or not a batch was folded.

The full-text table keeps no copy of the text: its content is the view ``search_text`` of the documents.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Literal, NamedTuple, Protocol

from store.database import marks

Kind = Literal["episode", "passage"]

TAIL_DOCS: Final = 64
"""Most documents that wait to be folded after ``fold_if_due`` was called once for each batch added."""

FOLD_DOCS: Final = 256
"""Most documents that one fold settles, so that it holds the write gate for tens of milliseconds."""

_VARIABLES = 500  # bound values in one statement

SEARCH_DDL: Final = """
CREATE TABLE search_scopes (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL CHECK (queue <> ''),
    kind TEXT NOT NULL CHECK (kind IN ('episode', 'passage')),
    failed INTEGER NOT NULL CHECK (failed IN (0, 1)),
    docs INTEGER NOT NULL DEFAULT 0 CHECK (docs >= 0),
    length INTEGER NOT NULL DEFAULT 0 CHECK (length >= 0),
    UNIQUE (queue, kind, failed)
);

CREATE TABLE search_docs (
    id INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL REFERENCES search_scopes (id),
    ref INTEGER NOT NULL,
    pending INTEGER NOT NULL DEFAULT 1 CHECK (pending IN (-1, 0, 1)),
    observed_at REAL NOT NULL,
    length INTEGER NOT NULL CHECK (length >= 0),
    tokens TEXT NOT NULL
);
CREATE UNIQUE INDEX search_docs_by_ref ON search_docs (scope, ref) WHERE pending >= 0;
CREATE INDEX search_docs_pending ON search_docs (scope, pending) WHERE pending <> 0;

CREATE TABLE search_terms (
    scope INTEGER NOT NULL,
    term TEXT NOT NULL,
    docs INTEGER NOT NULL CHECK (docs >= 0),
    PRIMARY KEY (scope, term)
) WITHOUT ROWID;

CREATE VIEW search_text (id, terms) AS
    SELECT id, CASE tokens WHEN '' THEN '' ELSE scope || '_' || replace(tokens, ' ', ' ' || scope || '_') END
    FROM search_docs WHERE pending <= 0;

CREATE VIRTUAL TABLE search_index USING fts5 (
    terms, content = 'search_text', content_rowid = 'id', tokenize = "ascii tokenchars '_'"
);
"""


class Doc(NamedTuple):
    """A document as a search reads it; ``tokens`` are joined by spaces, ``length`` is their number."""

    id: int
    kind: Kind
    ref: int
    failed: bool
    observed_at: float
    length: int
    tokens: str


class Readable(Protocol):
    """What gives read snapshots of the store."""

    def read(self) -> AbstractContextManager[sqlite3.Connection]:
        """One consistent snapshot."""
        ...


class Search:
    """The part of the store that retrieval reads."""

    def __init__(self, db: Readable) -> None:
        self._db = db

    @contextmanager
    def view(self, queue: str, kinds: Collection[Kind]) -> Iterator[SearchView]:
        """The documents of `queue` of these `kinds`, as of one moment."""
        with self._db.read() as conn:
            yield SearchView(conn, queue, kinds)


class SearchView:
    """The documents of one queue and some kinds within one snapshot.

    ``docs`` and ``length`` count the live documents and their tokens.
    """

    def __init__(self, conn: sqlite3.Connection, queue: str, kinds: Collection[Kind]) -> None:
        self._conn = conn
        rows = conn.execute(
            "SELECT id, kind, failed, docs, length FROM search_scopes"
            f" WHERE queue = ? AND kind IN ({marks(kinds)})",
            (queue, *kinds),
        ).fetchall()
        self._scopes: dict[int, tuple[Kind, bool]] = {row[0]: (row[1], bool(row[2])) for row in rows}
        self._indexed = {row[0]: row[3] for row in rows}
        waiting = self._waiting() if rows else []
        self.tail = [self._doc(row) for row in waiting if row[6] > 0]
        self._dropped = [self._doc(row) for row in waiting if row[6] < 0]
        self.docs: int = sum(row[3] for row in rows) + len(self.tail) - len(self._dropped)
        self.length: int = sum(row[4] for row in rows) + sum(row[4] * row[6] for row in waiting)

    def _waiting(self) -> list[sqlite3.Row]:
        """Documents that the index does not hold yet, or still holds."""
        return self._conn.execute(
            "SELECT id, scope, ref, observed_at, length, tokens, pending FROM search_docs"
            f" WHERE pending <> 0 AND scope IN ({marks(self._scopes)})",
            tuple(self._scopes),
        ).fetchall()

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """In how many live documents each of `terms` occurs; those that occur in none are left out."""
        wanted = dict.fromkeys(terms)
        found: Counter[str] = Counter()
        names = list(wanted)
        for scope in self._scopes:
            for start in range(0, len(names), _VARIABLES):
                some = names[start : start + _VARIABLES]
                sql = f"SELECT term, docs FROM search_terms WHERE scope = ? AND term IN ({marks(some)})"
                for term, docs in self._conn.execute(sql, (scope, *some)):
                    found[term] += docs
        for doc in self.tail:
            found.update(wanted.keys() & doc.tokens.split(" "))
        for doc in self._dropped:
            found.subtract(wanted.keys() & doc.tokens.split(" "))
        return {term: found[term] for term in names if found[term] > 0}

    def candidates(self, terms: Sequence[str], *, limit: int, newest: int | None = None) -> list[Doc]:
        """Live documents that hold one of `terms`: of each scope's index the `limit` best, of the tail all.

        With `newest` the index ranks only that many matches, the newest ones: for a term that nearly all hold.
        """
        found: list[Doc] = []
        ranked = _RANKED if newest is None else _RANKED_NEWEST
        for scope in self._scopes:
            if terms and self._indexed[scope]:
                bound = {
                    "match": _match(scope, terms),
                    "newest": newest,
                    "limit": limit + len(self._dropped),
                }
                rows = self._conn.execute(_FETCH.format(ranked=ranked), bound)
                found += [self._doc(row) for row in rows][:limit]
        wanted = set(terms)
        return found + [doc for doc in self.tail if not wanted.isdisjoint(doc.tokens.split(" "))]

    def _doc(self, row: Sequence[Any]) -> Doc:
        kind, failed = self._scopes[row[1]]
        return Doc(row[0], kind, row[2], failed, row[3], row[4], row[5])


_FETCH = """
    SELECT id, scope, ref, observed_at, length, tokens
    FROM ({ranked} ORDER BY score, id DESC LIMIT :limit) JOIN search_docs USING (id)
    WHERE pending = 0
    ORDER BY score, id DESC
"""
_RANKED = """
    SELECT rowid AS id, bm25(search_index) AS score FROM search_index WHERE search_index MATCH :match
"""
_RANKED_NEWEST = f"SELECT id, score FROM ({_RANKED} ORDER BY rowid DESC LIMIT :newest)"


def add_doc(
    conn: sqlite3.Connection,
    *,
    queue: str,
    kind: Kind,
    ref: int,
    tokens: Sequence[str],
    at: float,
    failed: bool = False,
) -> bool:
    """Let searches find episode or passage `ref` by `tokens`, from this transaction on.

    `at` is when it was observed (UTC seconds). Call ``fold_if_due`` at the transaction's end. False: it was there
    already, nothing is overwritten.
    """
    scope = _scope(conn, queue, kind, failed=failed)
    done = conn.execute(
        "INSERT INTO search_docs (scope, ref, observed_at, length, tokens) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (scope, ref, at, len(tokens), " ".join(tokens)),
    )
    return done.rowcount == 1


def drop_doc(conn: sqlite3.Connection, *, queue: str, kind: Kind, ref: int) -> bool:
    """Let no search find `ref` from this transaction on. False: it was not there."""
    scopes = [
        row[0]
        for row in conn.execute("SELECT id FROM search_scopes WHERE queue = ? AND kind = ?", (queue, kind))
    ]
    where = f"pending >= 0 AND scope IN ({marks(scopes)}) AND ref = ?"  # as its index says
    unsettled = conn.execute(
        f"DELETE FROM search_docs WHERE {where} AND pending = 1", (*scopes, ref)
    ).rowcount
    settled = conn.execute(
        f"UPDATE search_docs SET pending = -1 WHERE {where} AND pending = 0", (*scopes, ref)
    ).rowcount
    return unsettled + settled > 0


def fold_if_due(conn: sqlite3.Connection) -> int:
    """If more than ``TAIL_DOCS`` documents wait, settle up to ``FOLD_DOCS``; how many were settled."""
    waiting = conn.execute("SELECT count(*) FROM search_docs WHERE pending <> 0").fetchone()[0]
    return fold(conn) if waiting > TAIL_DOCS else 0


def fold(conn: sqlite3.Connection) -> int:
    """Settle up to ``FOLD_DOCS`` waiting documents, the oldest first; how many were settled."""
    sql = "SELECT id, scope, length, tokens, pending FROM search_docs WHERE pending <> 0 ORDER BY id LIMIT ?"
    rows = conn.execute(sql, (FOLD_DOCS,)).fetchall()
    terms: Counter[tuple[int, str]] = Counter()
    totals: Counter[int] = Counter()
    lengths: Counter[int] = Counter()
    for _, scope, length, tokens, sign in rows:
        for term in set(tokens.split()):
            terms[scope, term] += sign
        totals[scope] += sign
        lengths[scope] += sign * length
    added = [(row[0],) for row in rows if row[4] > 0]
    gone = [(row[0],) for row in rows if row[4] < 0]
    conn.executemany("UPDATE search_docs SET pending = 0 WHERE id = ?", added)
    text = "SELECT id, terms FROM search_text WHERE id = ?"
    conn.executemany(f"INSERT INTO search_index (rowid, terms) {text}", added)
    conn.executemany(
        f"INSERT INTO search_index (search_index, rowid, terms) SELECT 'delete', id, terms FROM ({text})",
        gone,
    )
    conn.executemany("DELETE FROM search_docs WHERE id = ?", gone)
    _count(conn, terms)
    conn.executemany(
        "UPDATE search_scopes SET docs = docs + ?, length = length + ? WHERE id = ?",
        [(totals[scope], lengths[scope], scope) for scope in totals],
    )
    return len(rows)


def _count(conn: sqlite3.Connection, terms: Counter[tuple[int, str]]) -> None:
    """Add these differences to the document frequencies."""
    more = sorted((scope, term, n) for (scope, term), n in terms.items() if n > 0)
    less = sorted((scope, term, n) for (scope, term), n in terms.items() if n < 0)
    conn.executemany(
        "INSERT INTO search_terms VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET docs = docs + excluded.docs",
        more,
    )
    conn.executemany("UPDATE search_terms SET docs = docs + ?3 WHERE scope = ?1 AND term = ?2", less)
    conn.executemany(
        "DELETE FROM search_terms WHERE scope = ? AND term = ? AND docs = 0", [row[:2] for row in less]
    )


def _scope(conn: sqlite3.Connection, queue: str, kind: Kind, *, failed: bool) -> int:
    key = (queue, kind, int(failed))
    find = "SELECT id FROM search_scopes WHERE queue = ? AND kind = ? AND failed = ?"
    row = conn.execute(find, key).fetchone()
    if row is None:
        conn.execute("INSERT INTO search_scopes (queue, kind, failed) VALUES (?, ?, ?)", key)
        row = conn.execute(find, key).fetchone()
    scope: int = row[0]
    return scope


def _match(scope: int, terms: Iterable[str]) -> str:
    """A full-text query made of our own tokens alone: each quoted, any of them may match."""
    return " OR ".join(f'"{scope}_{term}"' for term in terms)
