"""BM25 with the statistics of all documents, and the choices that keep its cost flat as they grow.

The one file that knows rank-bm25. Its own statistics are those of the few candidates it is given, which
rank worse (0.05 to 0.1 nDCG@10) and fail or turn negative on none and on one: ours are injected.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from rank_bm25 import BM25Okapi

POSTINGS: Final = 40_000
"""Most postings the full-text index reads for one search."""

TERMS_MAX: Final = 128
"""Most terms in one full-text query, whose cost grows with terms times matches."""

_DEPTH = (
    100  # 300 find nothing more among the best ten on any of the labelled sets, and cost a third of a session
)
_DEPTH_DOCS = 2_000
_DEPTH_GROWTH = 0.08


def depth(docs: int) -> int:
    """How many candidates of `docs` documents are ranked: 100, some more where many compete."""
    return int(_DEPTH * max(1.0, docs / _DEPTH_DOCS) ** _DEPTH_GROWTH)


def rarest(frequencies: Mapping[str, int], *, postings: int = POSTINGS, most: int = TERMS_MAX) -> list[str]:
    """The terms to look for: rarest first while their postings stay within budget, at least one."""
    chosen: list[str] = []
    for term in sorted(frequencies, key=lambda term: (frequencies[term], term))[:most]:
        postings -= frequencies[term]
        if postings < 0 and chosen:
            break
        chosen.append(term)
    return chosen


def idf(docs_with: int, docs: int) -> float:
    """The weight of a term that `docs_with` of `docs` documents hold; always positive."""
    return math.log1p((docs - docs_with + 0.5) / (docs_with + 0.5))


def scores(
    query: Sequence[str],
    documents: Sequence[tuple[Iterable[str], int]],
    *,
    frequencies: Mapping[str, int],
    docs: int,
    length: int,
) -> list[float]:
    """The BM25 score of each of `documents` (tokens, number of tokens) for the tokens of `query`.

    `frequencies`, `docs` and `length` are the document frequencies, number and total tokens of everything
    that is searched. Terms without a frequency weigh nothing; repeated terms of the query weigh each time.
    """
    if not documents or not frequencies:
        return [0.0] * len(documents)
    weights = {term: idf(count, docs) for term, count in frequencies.items()}
    model = _GlobalBM25(documents, weights, length / docs)
    return [float(score) for score in model.get_scores([term for term in query if term in weights])]


class _GlobalBM25(BM25Okapi):  # type: ignore[misc] # rank-bm25 has no types
    """BM25Okapi over some documents of many."""

    def __init__(
        self, documents: Sequence[tuple[Iterable[str], int]], weights: Mapping[str, float], mean_length: float
    ) -> None:
        self._lengths = np.array([length for _, length in documents])
        self._weights = weights
        self._mean_length = mean_length
        super().__init__([tokens for tokens, _ in documents])

    def _initialize(self, corpus: Sequence[Iterable[str]]) -> Mapping[str, int]:
        """Count the query's terms in each document, which is all that scores need; the other numbers are given."""
        self.corpus_size = len(corpus)
        self.doc_freqs = [Counter(filter(self._weights.__contains__, tokens)) for tokens in corpus]
        self.doc_len = self._lengths
        self.avgdl = self._mean_length
        return {}

    def _calc_idf(self, _: Mapping[str, int]) -> None:
        self.idf = self._weights
