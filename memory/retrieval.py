"""What of the past and of the sources bears on a question: one path, whatever the size.

tokens → document frequencies → the rarest terms within a postings budget → the full-text index's best
candidates and the unindexed tail → BM25 with the statistics of everything → recency → the best, ties newest
first, one place kept for the best failed attempt.

A hit holds at least one of the looked-up terms; no score is too low for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from memory import ranking
from memory.tokens import tokens
from store.contract import SearchPart
from store.search import Doc, Kind

QUERY_TOKENS: Final = 2_000
QUERY_CHARS: Final = 40_000
"""A query is known by its beginning; a whole file of it would cost more than it tells."""

RECENCY_SHARE: Final = 0.1
"""By how much of its score a brand-new episode gains on an infinitely old one."""

RECENCY_HALF_LIFE_S: Final = 30 * 86_400.0


class Hit(NamedTuple):
    """A found episode or passage: `ref` is its row id; `score` is above 0 and compares within one search."""

    kind: Kind
    ref: int
    score: float
    failed: bool
    observed_at: float


def retrieve(
    search: SearchPart,
    query: str | Sequence[str],
    *,
    queue: str,
    kinds: Collection[Kind],
    limit: int,
    now: float,
) -> list[Hit]:
    """The up to `limit` best documents of `queue` for `query` (any text, or tokens), best first.

    An empty list says that no document of the queue shares a word with the query.
    """
    asked = list(tokens(query[:QUERY_CHARS]) if isinstance(query, str) else query)[:QUERY_TOKENS]
    if limit < 1 or not asked:
        return []
    with search.view(queue, kinds) as view:
        frequencies = view.frequencies(asked)
        terms = ranking.rarest(frequencies)
        over = sum(frequencies[term] for term in terms) > ranking.POSTINGS
        newest = ranking.POSTINGS if over else None
        found = view.candidates(terms, limit=ranking.depth(view.docs), newest=newest)
        docs, length = view.docs, view.length
    scores = ranking.scores(
        asked,
        [(doc.tokens.split(" "), doc.length) for doc in found],
        frequencies=frequencies,
        docs=docs,
        length=length,
    )
    hits = [_hit(doc, score, now) for doc, score in zip(found, scores, strict=True)]
    hits.sort(key=lambda hit: (hit.score, hit.observed_at, hit.ref), reverse=True)
    return keep_one_failed(hits, limit)


def keep_one_failed(hits: Sequence[Hit], limit: int) -> list[Hit]:
    """The first `limit` of `hits`; the last place goes to the best failed attempt when none is among them."""
    best = list(hits[:limit])
    if limit > 1 and not any(hit.failed for hit in best):
        best[limit - 1 :] = [hit for hit in hits[limit:] if hit.failed][:1] or best[limit - 1 :]
    return best


def _hit(doc: Doc, score: float, now: float) -> Hit:
    if doc.kind == "episode":  # when a passage was read says nothing about its worth
        age_s = max(0.0, now - doc.observed_at)
        score *= 1 + RECENCY_SHARE * 0.5 ** (age_s / RECENCY_HALF_LIFE_S)
    return Hit(doc.kind, doc.ref, score, doc.failed, doc.observed_at)
