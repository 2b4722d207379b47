"""Looking something up by hand: what a person finds in episodes, passages and notes, those that left included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from memory import ranking
from memory.blocks import stale_of
from memory.retrieval import retrieve
from memory.tokens import tokens
from store.contract import Store
from store.memory import NoteRow
from store.search import Kind

NOTES_READ: Final = 20_000
"""How many of the newest notes of a queue are looked at."""


class Remembered(NamedTuple):
    """One thing found. ``kind``: episode, failed, passage or note. ``at``: when it was observed; None for passages."""

    id: str
    queue: str
    kind: str
    text: str
    source: str
    at: float | None
    stale: str | None
    trust: str | None
    score: float


def lookup(store: Store, text: str, *, queues: Sequence[str], limit: int, now: float) -> list[Remembered]:
    """Up to `limit` of each kind, episodes first, then notes, then passages; each kind best first."""
    query = tokens(text)
    found = [
        one
        for queue in queues
        for one in (*_indexed(store, queue, query, limit, now), *_notes(store, queue, query))
    ]
    found.sort(key=lambda one: -one.score)
    kinds = (("episode", "failed"), ("note",), ("passage",))
    return [one for some in kinds for one in [one for one in found if one.kind in some][:limit]]


def _indexed(store: Store, queue: str, query: Sequence[str], limit: int, now: float) -> Iterator[Remembered]:
    scores = _scores(store, queue, query, "episode", limit=limit, now=now)
    for row in store.memory.episodes(list(scores)):
        yield Remembered(
            id=f"e-{row.id}",
            queue=queue,
            kind="failed" if row.failed else "episode",
            text=row.text,
            source=row.source,
            at=row.observed_at,
            stale=_stale_words(row.stale),
            trust=row.trust,
            score=scores[row.id],
        )
    scores = _scores(store, queue, query, "passage", limit=limit, now=now)
    for one in store.sources.passages(list(scores)):
        yield Remembered(one.ref, queue, "passage", one.text, one.path, None, None, None, scores[one.id])


def _scores(
    store: Store, queue: str, query: Sequence[str], kind: Kind, *, limit: int, now: float
) -> dict[int, float]:
    hits = retrieve(store.search, query, queue=queue, kinds=(kind,), limit=limit, now=now)
    return {hit.ref: hit.score for hit in hits}


def _notes(store: Store, queue: str, query: Sequence[str]) -> list[Remembered]:
    notes = store.memory.past_notes(queue, limit=NOTES_READ)
    documents = [tokens(note.text) for note in notes]
    wanted = set(query)
    frequencies = Counter(term for document in documents for term in wanted.intersection(document))
    scores = ranking.scores(
        query,
        [(document, len(document)) for document in documents],
        frequencies=frequencies,
        docs=len(documents),
        length=sum(map(len, documents)),
    )
    return [_note(note, queue, score) for note, score in zip(notes, scores, strict=True) if score > 0]


def _note(note: NoteRow, queue: str, score: float) -> Remembered:
    return Remembered(
        f"m-{note.id}", queue, "note", note.text, note.item_id, note.at, _stale_words(note.stale), None, score
    )


def _stale_words(stale: str | None) -> str | None:
    found = stale_of(stale)
    if found is None:
        return None
    return f"{found['said']} changed {found['at']}" if found["source"] else str(found["said"])
