"""Retrieval against its bounds: how well it ranks, how close it stays to exact BM25, what it costs.

    python benchmarks/retrieval.py [--entries 100000] [--hostile 100000]

Needs the labelled data sets (``SHIFTWORK_DATA``, default ``../shared/data``). The entries are made from them
deterministically: each is two to four sentences of one text and sometimes one of another. Costs are
ratios taken in the same run, query by query, against plain FTS5 that ranks all terms of the same tokens.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import sqlite3
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from memory.ranking import idf  # noqa: E402
from memory.retrieval import Hit, retrieve  # noqa: E402
from memory.tokens import tokens  # noqa: E402
from store.search import SEARCH_DDL, Kind, Search, add_doc, fold_if_due  # noqa: E402

DATA = Path(os.environ.get("SHIFTWORK_DATA") or ROOT / ".." / "shared" / "data")
K1, B = 1.5, 0.75
PASSAGES: tuple[Kind, ...] = ("passage",)


class Bound(NamedTuple):
    """A figure that has to hold."""

    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the figure is within its bound."""
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)


class Memory:
    """An index of its own, in memory or in a file, filled as sessions fill it: one transaction a batch."""

    def __init__(self, path: str = ":memory:") -> None:
        self.conn = sqlite3.connect(path, isolation_level=None)
        self.conn.executescript("PRAGMA page_size = 1024;" + SEARCH_DDL)
        self.search = Search(self)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """As the store gives it."""
        yield self.conn

    def fill(self, documents: Sequence[Sequence[str]], *, queue: str = "q", batch: int = 64) -> None:
        """Add `documents` as passages, each under its place."""
        for start in range(0, len(documents), batch):
            self.conn.execute("BEGIN IMMEDIATE")
            for ref, words in enumerate(documents[start : start + batch], start):
                add_doc(self.conn, queue=queue, kind="passage", ref=ref, tokens=words, at=float(ref))
            fold_if_due(self.conn)
            self.conn.execute("COMMIT")

    def ask(self, query: str | Sequence[str], *, limit: int = 10, queue: str = "q") -> list[Hit]:
        """The best passages."""
        return retrieve(self.search, query, queue=queue, kinds=PASSAGES, limit=limit, now=0.0)


class Exact:
    """BM25 of every document for a query, counted without the index: what retrieval is measured against."""

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        self.lengths = np.array([len(words) for words in documents], dtype=float)
        held: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for ref, words in enumerate(documents):
            for term, count in Counter(words).items():
                held[term][0].append(ref)
                held[term][1].append(count)
        self.held = {term: (np.array(refs), np.array(counts)) for term, (refs, counts) in held.items()}

    def best(self, query: Sequence[str], limit: int = 10) -> list[int]:
        """The places of the best documents, ties newest first."""
        scores = np.zeros(len(self.lengths))
        norm = K1 * (1 - B + B * self.lengths / self.lengths.mean())
        for term in query:
            if term in self.held:
                refs, counts = self.held[term]
                scores[refs] += idf(len(refs), len(self.lengths)) * counts * (K1 + 1) / (counts + norm[refs])
        newest_first = np.arange(len(scores))[::-1]
        order = newest_first[np.argsort(-scores[newest_first].round(9), kind="stable")][:limit]
        return [int(ref) for ref in order if scores[ref] > 0]


def read_set(name: str) -> tuple[list[dict[str, str]], list[dict[str, str]], dict[str, set[str]]]:
    """Documents, queries and the relevant documents of each query of a labelled set."""
    folder = DATA / "retrieval" / name
    docs, queries = (
        [json.loads(line) for line in (folder / f"{part}.jsonl").read_text("utf-8").splitlines()]
        for part in ("docs", "queries")
    )
    relevant: dict[str, set[str]] = defaultdict(set)
    for line in (folder / "qrels.tsv").read_text("utf-8").splitlines():
        query, doc, _ = line.split("\t")
        relevant[query].add(doc)
    return docs, queries, relevant


def ndcg(ranked: Sequence[str], relevant: set[str]) -> float:
    """nDCG@10 with binary judgements."""
    gain = sum(1 / math.log2(place + 2) for place, doc in enumerate(ranked[:10]) if doc in relevant)
    return gain / sum(1 / math.log2(place + 2) for place in range(min(10, len(relevant))))


def quality(name: str) -> float:
    """Mean nDCG@10 of a labelled set."""
    docs, queries, relevant = read_set(name)
    memory = Memory()
    memory.fill([tokens(doc["text"]) for doc in docs])
    gains = [
        ndcg([docs[hit.ref]["id"] for hit in memory.ask(query["text"])], relevant[query["id"]])
        for query in queries
        if query["id"] in relevant
    ]
    return statistics.fmean(gains)


def entries(number: int, *, seed: int = 7) -> list[str]:
    """`number` texts made of the sets' sentences, the same for the same arguments."""
    texts = [doc["text"] for name in ("cranfield", "cmrc2018_zh") for doc in read_set(name)[0]]
    squad = json.loads((DATA / "qa" / "xquad.en.json").read_text("utf-8"))["data"]
    texts += [part["context"] for article in squad for part in article["paragraphs"]]
    cut = [[s for s in re.split(r"(?<=[.!?\u3002\uff01\uff1f])\s*", text) if len(s) > 8] for text in texts]
    cut = [sentences for sentences in cut if sentences]
    draw = random.Random(seed)
    made = []
    for _ in range(number):
        text = draw.choice(cut)
        start = draw.randrange(len(text))
        some = text[start : start + draw.randint(2, 4)]
        if draw.random() < 0.5:
            some.append(draw.choice(draw.choice(cut)))
        made.append(" ".join(some))
    return made


def questions(number: int, *, seed: int = 7) -> list[str]:
    """`number` questions of the sets, English and Chinese in turn."""
    draw = random.Random(seed)
    kinds = [[query["text"] for query in read_set(name)[1]] for name in ("cranfield", "cmrc2018_zh")]
    squad = json.loads((DATA / "qa" / "xquad.en.json").read_text("utf-8"))["data"]
    kinds.append([qa["question"] for a in squad for part in a["paragraphs"] for qa in part["qas"]])
    for kind in kinds:
        draw.shuffle(kind)
    return [text for three in zip(*kinds, strict=False) for text in three][:number]


_SYNTAX = (
    '"', "'", "*", "^", "(", ")", ":", "-", "+", "{", "}", "NEAR(", "AND", "OR", "NOT", "terms:", "\0", "\n",
    "\ud800", "\udfff", "\u202e", "\u0301", "%", ";--", "\\",
    "ERR-1042", "foo_bar", "战国", "ﷺ", "👩‍👩‍👧", "İ", "search_index",
)  # fmt: skip


def hostile(number: int, *, seed: int = 7) -> Iterator[str]:
    """`number` query strings that mean harm: search syntax, controls, lone surrogates, any code point."""
    draw = random.Random(seed)
    for _ in range(number):
        parts = []
        for _ in range(draw.randint(0, 12)):
            kind = draw.random()
            if kind < 0.6:
                parts.append(draw.choice(_SYNTAX))
            elif kind < 0.8:
                parts.append(chr(draw.randrange(0x110000)))
            else:
                parts.append("".join(chr(draw.randrange(1, 128)) for _ in range(draw.randint(1, 8))))
        yield draw.choice(("", " ")).join(parts)


def overlap_and_cost(number: int, asked: Sequence[str]) -> tuple[float, float, dict[str, float]]:
    """Overlap@10 with exact BM25, cost as a share of plain FTS5, and figures to read (ms, seconds)."""
    documents = [tokens(text) for text in entries(number)]
    memory = Memory()
    began = time.perf_counter()
    memory.fill(documents)
    filled_s = time.perf_counter() - began
    plain = sqlite3.connect(":memory:", isolation_level=None)
    plain.execute("CREATE VIRTUAL TABLE plain USING fts5(t, content='', tokenize=\"ascii tokenchars '_'\")")
    plain.executemany(
        "INSERT INTO plain (rowid, t) VALUES (?, ?)", ((i, " ".join(d)) for i, d in enumerate(documents))
    )
    exact = Exact(documents)
    shared, ours, theirs = [], [], []
    for text in asked:
        words = tokens(text)
        best = exact.best(words)
        began = time.perf_counter()
        found = memory.ask(text)
        ours.append(time.perf_counter() - began)
        match = " OR ".join(f'"{term}"' for term in dict.fromkeys(words))
        began = time.perf_counter()
        plain.execute(
            "SELECT rowid FROM plain WHERE plain MATCH ? ORDER BY rank LIMIT 10", (match,)
        ).fetchall()
        theirs.append(time.perf_counter() - began)
        if best:
            shared.append(len(set(best) & {hit.ref for hit in found}) / len(best))
    figures = {
        "fill_s": filled_s,
        "ours_ms_mean": 1000 * statistics.fmean(ours),
        "ours_ms_max": 1000 * max(ours),
        "plain_ms_mean": 1000 * statistics.fmean(theirs),
    }
    return statistics.fmean(shared), sum(ours) / sum(theirs), figures


def main() -> int:
    parser = argparse.ArgumentParser(description="Retrieval against its bounds.")
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--hostile", type=int, default=100_000)
    options = parser.parse_args()
    if not DATA.is_dir():
        print(f"no data at {DATA}; set SHIFTWORK_DATA")
        return 0
    bounds = [
        Bound("nDCG@10, Cranfield", quality("cranfield"), at_least=0.51),
        Bound("nDCG@10, Chinese", quality("cmrc2018_zh"), at_least=0.96),
    ]
    overlap, cost, figures = overlap_and_cost(options.entries, questions(options.questions))
    bounds += [
        Bound(f"overlap@10 with exact BM25, {options.entries:,} entries", overlap, at_least=0.98),
        Bound(f"cost, share of plain FTS5, {options.entries:,} entries", cost, at_most=0.35),
    ]
    memory = Memory()
    memory.fill([tokens(text) for text in entries(500)])
    began = time.perf_counter()
    answered = sum(1 for text in hostile(options.hostile) if memory.ask(text) is not None)
    figures["hostile_s"] = time.perf_counter() - began
    bounds.append(Bound("hostile queries answered, share", answered / max(1, options.hostile), at_least=1.0))
    for bound in bounds:
        print(f"{'ok ' if bound.holds else 'BAD'} {bound.value:7.4f}  {bound.name}")
    print(" ".join(f"{name}={value:.1f}" for name, value in figures.items()))
    return 0 if all(bound.holds for bound in bounds) else 1


if __name__ == "__main__":
    raise SystemExit(main())
