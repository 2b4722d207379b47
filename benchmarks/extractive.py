"""How often the extractive decider is right, how often it answers, and how its frozen weights were made.

    python benchmarks/extractive.py            the held-out figures: precision and coverage, and what fools it
    python benchmarks/extractive.py --freeze   the constants of sessions/extract.py, fitted on all articles

Data: XQuAD (English), 48 articles, 240 paragraphs, 1,190 questions, found under SHIFTWORK_DATA (default
../shared/data). In each of twelve splits the paragraphs of about 40 % of the questions are hidden, so that
these questions cannot be answered from what is left; weights and threshold come from one half of the
articles, figures from the other half. Every visible paragraph of all articles is searched for each question.
An answer is right when the gold span itself lies inside the quotation, in the gold paragraph.

"Looks answerable and is not" is made from questions whose paragraph is visible: the sentence with the answer
is cut out of it; a name, a number or a word is exchanged for another one; the question is denied.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memory.passages import cut
from memory.tokens import tokens
from sessions.contradiction import contradiction
from sessions.extract import DOUBTFUL_MAX, THRESHOLD, WEIGHTS, Extraction, Passage, extract, is_doubtful
from sessions.sentences import units

DATA = Path(os.environ.get("SHIFTWORK_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
XQUAD = DATA / "qa" / "xquad.en.json"
SPLITS = 12
HIDDEN_SHARE = 0.4
PASSAGES = 6  # passages_max as it comes
TRAIN_PRECISION = 0.95  # the threshold of a split is the lowest that reaches this on the other articles
RIDGE = 3.0
CURVE = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


Array = np.ndarray[Any, Any]


class Ask(NamedTuple):
    """A question, the index of its paragraph, its article, and the gold span in the paragraph."""

    text: str
    paragraph: int
    article: int
    start: int
    end: int


class Piece(NamedTuple):
    """A passage: a paragraph, or a part of a long one that begins at `offset` in it."""

    paragraph: int
    offset: int
    text: str


class Corpus(NamedTuple):
    """All passages and questions; `paragraphs` and `articles` are how many there are."""

    pieces: list[Piece]
    asks: list[Ask]
    articles: int
    paragraphs: int


class Row(NamedTuple):
    """One extraction: what kind of question, its article, the signs, and whether an answer would be right."""

    kind: str
    article: int
    signs: tuple[float, ...] | None
    right: bool
    unanswerable: bool


class Figures(NamedTuple):
    """Shares: right of answered, answered of all, answered of the unanswerable, answered of each look-alike."""

    precision: float
    coverage: float
    wrongly_answered: float
    fooled: dict[str, float]


def load(path: Path = XQUAD) -> Corpus:
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    pieces: list[Piece] = []
    asks: list[Ask] = []
    numbered = [(number, one) for number, article in enumerate(articles) for one in article["paragraphs"]]
    for place, (number, paragraph) in enumerate(numbered):
        for qa in paragraph["qas"]:
            gold = qa["answers"][0]
            start = gold["answer_start"]
            asks.append(Ask(qa["question"], place, number, start, start + len(gold["text"])))
        at = 0
        for piece in cut(paragraph["context"]):
            at = paragraph["context"].index(piece.text, at)
            pieces.append(Piece(place, at, piece.text))
    return Corpus(pieces, asks, len(articles), len(numbered))


class Search:
    """BM25 over passages by number, with the product's tokeniser and its positive IDF."""

    def __init__(self, visible: Mapping[int, str]) -> None:
        counts = {i: _counts(text) for i, text in visible.items()}
        mean = sum(count.total() for count in counts.values()) / len(visible)
        spread = Counter(token for i in visible for token in counts[i])
        self.postings: dict[str, list[tuple[int, float]]] = {}
        for i in visible:
            long = 1.5 * (0.25 + 0.75 * counts[i].total() / mean)
            for token, count in counts[i].items():
                idf = math.log1p((len(visible) - spread[token] + 0.5) / (spread[token] + 0.5))
                self.postings.setdefault(token, []).append((i, idf * count * 2.5 / (count + long)))

    def top(self, query: str) -> list[int]:
        """The numbers of the best `PASSAGES` passages, best first."""
        scores: dict[int, float] = {}
        for token in tokens(query):
            for i, score in self.postings.get(token, ()):
                scores[i] = scores.get(i, 0.0) + score
        return [i for i, _ in sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:PASSAGES]]


@lru_cache(maxsize=1_000)
def _counts(text: str) -> Counter[str]:
    return Counter(tokens(text))


# --- questions that look answerable and are not ---

_NAME = re.compile(r"(?<!^)\b[A-Z][\w'’-]*(?: (?:of |the |and )?[A-Z][\w'’-]*)*")
_NUMBER = re.compile(r"\b\d[\d,]*\b")
_AUXILIARY = re.compile(r"\b(?:did|does|do|was|were|is|are|can|could|has|have|had|would|will)\b")
# Opposites that the product's own list (sessions/question.py) does not hold, and a few that it does.
_TURNED = (
    "won lost", "founded closed", "support oppose", "supported opposed", "male female", "public private",
    "positive negative", "father mother", "sold bought", "born died", "began ended", "increased decreased",
    "major minor", "upper lower", "early late", "minimum maximum", "first last", "largest smallest",
    "included excluded", "joined left", "opened closed", "gained lost", "created destroyed", "strong weak",
    "accepted rejected", "attacked defended", "built demolished", "common rare", "rich poor", "import export",
)  # fmt: skip


def exchange_name(ask: Ask, corpus: Corpus, rng: random.Random) -> str | None:
    """The question with one of its names replaced by another name from the same article's questions."""
    own = _names(ask.text)
    if not own:
        return None
    old = rng.choice(own)
    parts = set(old.lower().split())
    others = {name for other in corpus.asks if other.article == ask.article for name in _names(other.text)}
    fit = sorted(name for name in others if not parts & set(name.lower().split()) and name not in ask.text)
    return ask.text.replace(old, rng.choice(fit)) if fit else None


def _names(text: str) -> list[str]:
    asking = ("what", "who", "when", "where", "which", "how", "why")
    return [m.group() for m in _NAME.finditer(text) if m.start() and m.group().lower() not in asking]


def exchange_number(ask: Ask, _: Corpus, rng: random.Random) -> str | None:
    """The question with one of its numbers changed."""
    found = list(_NUMBER.finditer(ask.text))
    if not found:
        return None
    match = rng.choice(found)
    value = int(match.group().replace(",", "")) + rng.choice((-30, -20, -7, -3, 3, 4, 7, 11, 20))
    return f"{ask.text[: match.start()]}{abs(value)}{ask.text[match.end() :]}"


def turn_word(ask: Ask, _: Corpus, rng: random.Random) -> str | None:
    """The question with one word replaced by its opposite."""
    other = {a: b for pair in _TURNED for a, b in (pair.split(), pair.split()[::-1])}
    found = [m for m in re.finditer(r"\b[a-z]+\b", ask.text) if m.group() in other]
    if not found:
        return None
    match = rng.choice(found)
    return f"{ask.text[: match.start()]}{other[match.group()]}{ask.text[match.end() :]}"


def deny(ask: Ask, _: Corpus, __: random.Random) -> str | None:
    """The question with "not" after its auxiliary verb."""
    match = _AUXILIARY.search(ask.text)
    return f"{ask.text[: match.end()]} not{ask.text[match.end() :]}" if match else None


LOOKALIKES: dict[str, Callable[[Ask, Corpus, random.Random], str | None]] = {
    "another name": exchange_name,
    "another number": exchange_number,
    "opposite word": turn_word,
    "denied": deny,
}
KINDS = ("answer cut out", *LOOKALIKES)


def without_answer(ask: Ask, piece: Piece) -> str:
    """A passage without the sentences the answer touches."""
    start, end = ask.start - piece.offset, ask.end - piece.offset
    return " ".join(
        piece.text[u.start : u.end] for u in units(piece.text) if u.end <= start or u.start >= end
    )


# --- rows ---


def hide(corpus: Corpus, split: int) -> frozenset[int]:
    """Paragraphs that hold about 40 % of the questions, drawn at random."""
    order = list(range(corpus.paragraphs))
    random.Random(split).shuffle(order)
    per = Counter(ask.paragraph for ask in corpus.asks)
    hidden: list[int] = []
    while sum(per[i] for i in hidden) < HIDDEN_SHARE * len(corpus.asks):
        hidden.append(order.pop())
    return frozenset(hidden)


def held_out(corpus: Corpus, split: int) -> frozenset[int]:
    """The half of the articles that a split's figures are taken from."""
    order = list(range(corpus.articles))
    random.Random(1_000 + split).shuffle(order)
    return frozenset(order[: corpus.articles // 2])


def rows(corpus: Corpus, split: int, *, lookalikes: bool = True) -> list[Row]:
    """Every question of a split and every look-alike made from a question whose paragraph is visible."""
    hidden = hide(corpus, split)
    visible = {i: piece.text for i, piece in enumerate(corpus.pieces) if piece.paragraph not in hidden}
    search = Search(visible)
    rng = random.Random(split)
    made: list[Row] = []
    for ask in corpus.asks:
        texts = {i: visible[i] for i in search.top(ask.text)}
        got = extraction(ask.text, texts)
        made.append(
            _row("asked", ask, got, right=is_right(corpus, ask, got), unanswerable=ask.paragraph in hidden)
        )
        if ask.paragraph in hidden or not lookalikes:
            continue
        left = {i: text for i in texts if (text := _left(ask, corpus.pieces[i]))}
        made.append(_row("answer cut out", ask, extraction(ask.text, left)))
        for kind, change in LOOKALIKES.items():
            if changed := change(ask, corpus, rng):
                made.append(
                    _row(kind, ask, extraction(changed, {i: visible[i] for i in search.top(changed)}))
                )
    return made


def extraction(question: str, texts: Mapping[int, str]) -> Extraction:
    return extract(question, [Passage(str(i), text, "") for i, text in texts.items()])


def is_right(corpus: Corpus, ask: Ask, got: Extraction) -> bool:
    """Whether the gold span itself lies inside the quotation."""
    if got.best is None:
        return False
    piece = corpus.pieces[int(got.best.passage.id)]
    start, end = piece.offset + got.best.start, piece.offset + got.best.end
    return piece.paragraph == ask.paragraph and start <= ask.start and ask.end <= end


def _left(ask: Ask, piece: Piece) -> str:
    return without_answer(ask, piece) if piece.paragraph == ask.paragraph else piece.text


def _row(kind: str, ask: Ask, got: Extraction, *, right: bool = False, unanswerable: bool = True) -> Row:
    signs = tuple(got.best.signs[name] for name in WEIGHTS) if got.best else None
    return Row(kind, ask.article, signs, right, unanswerable)


# --- fitting ---


def fit(some: Sequence[Row]) -> Array:
    """The weights of the signs and, last, the bias.

    Ridge logistic regression on questions and look-alikes, then scaled on the questions alone, so that support is the
    share of right answers to be expected of them.
    """
    use = [row for row in some if row.signs is not None]
    x = np.array([row.signs for row in use])
    y = np.array([row.right for row in use], float)
    asked = np.array([row.kind == "asked" for row in use])
    mean, spread = x.mean(0), x.std(0) + 1e-9
    w = _newton((x - mean) / spread, y, RIDGE)
    raw = np.r_[w[:-1] / spread, w[-1] - (w[:-1] * mean / spread).sum()]
    score = x @ raw[:-1] + raw[-1]
    scale = _newton(score[asked, None], y[asked], 0.0)
    made: Array = np.r_[raw[:-1] * scale[0], raw[-1] * scale[0] + scale[1]]
    return made


def _newton(x: Array, y: Array, ridge: float) -> Array:
    x = np.c_[x, np.ones(len(x))]
    penalty = np.r_[np.full(x.shape[1] - 1, ridge), 1e-6]
    w = np.zeros(x.shape[1])
    for _ in range(40):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        w -= np.linalg.solve(
            (x * (p * (1 - p))[:, None]).T @ x + np.diag(penalty), x.T @ (p - y) + penalty * w
        )
    return w


def supports(some: Sequence[Row], weights: Array) -> Array:
    zero = (0.0,) * (len(weights) - 1)
    x = np.array([row.signs or zero for row in some])
    p = 1 / (1 + np.exp(-np.clip(x @ weights[:-1] + weights[-1], -30, 30)))
    doubtful = [
        row.signs is not None and is_doubtful(dict(zip(WEIGHTS, row.signs, strict=True))) for row in some
    ]
    p = np.where(doubtful, np.minimum(p, DOUBTFUL_MAX), p)
    return np.where([row.signs is None for row in some], 0.0, p)


def threshold_for(some: Sequence[Row], support: Array, target: float) -> float:
    """The lowest support at which the questions among `some` are answered with `target` precision."""
    pairs = sorted(
        ((s, row.right) for s, row in zip(support, some, strict=True) if row.kind == "asked"), reverse=True
    )
    found, right = 1.0, 0
    for count, (value, good) in enumerate(pairs, 1):
        right += good
        if right / count >= target:
            found = float(value)
    return found


def figures(some: Sequence[Row], support: Array, threshold: float) -> Figures:
    """What a threshold gives on `some`."""
    taken = [(row, s >= threshold) for row, s in zip(some, support, strict=True)]
    asked = [(row, yes) for row, yes in taken if row.kind == "asked"]
    answered = [row for row, yes in asked if yes]
    gone = [yes for row, yes in asked if row.unanswerable]
    fooled = {kind: _mean([yes for row, yes in taken if row.kind == kind]) for kind in KINDS}
    return Figures(_mean([row.right for row in answered]), len(answered) / len(asked), _mean(gone), fooled)


def _mean(values: Sequence[Any]) -> float:
    return sum(values) / len(values) if values else 0.0


class Split(NamedTuple):
    """The held-out rows of a split, their supports, and the threshold found on the other articles."""

    rows: list[Row]
    support: Array
    threshold: float


def splits(corpus: Corpus, every: Sequence[Sequence[Row]]) -> Iterator[Split]:
    """The twelve splits; `every` holds the rows of each."""
    for number, some in enumerate(every):
        out = held_out(corpus, number)
        learn = [row for row in some if row.article not in out]
        weights = fit(learn)
        test = [row for row in some if row.article in out]
        threshold = threshold_for(learn, supports(learn, weights), TRAIN_PRECISION)
        yield Split(test, supports(test, weights), threshold)


def contradicted(corpus: Corpus) -> tuple[int, int, int]:
    """Questions rightly answered with a number, when a copy of the passage beside it says another number.

    Gives how many there are, how many are flagged for the contradiction, and how many are answered all the same.
    """
    search = Search({i: piece.text for i, piece in enumerate(corpus.pieces)})
    asked = flagged = answered = 0
    for ask in corpus.asks:
        texts = {i: corpus.pieces[i].text for i in search.top(ask.text)[: PASSAGES - 1]}
        got = extraction(ask.text, texts)
        if got.best is None or got.best.support < THRESHOLD or not is_right(corpus, ask, got):
            continue
        text, offset = got.best.passage.text, corpus.pieces[int(got.best.passage.id)].offset
        number = _NUMBER.search(text, ask.start - offset, ask.end - offset)
        if number is None:
            continue
        other = str(int(number.group().replace(",", "")) + 7)
        got = extraction(ask.text, texts | {-1: text[: number.start()] + other + text[number.end() :]})
        found = contradiction(got) is not None
        asked, flagged = asked + 1, flagged + found
        answered += not found and got.best is not None and got.best.support >= THRESHOLD
    return asked, flagged, answered


def mean_figures(found: Sequence[Figures]) -> Figures:
    fooled = {kind: _mean([f.fooled[kind] for f in found]) for kind in KINDS}
    return Figures(
        _mean([f.precision for f in found]),
        _mean([f.coverage for f in found]),
        _mean([f.wrongly_answered for f in found]),
        fooled,
    )


def show(label: str, f: Figures) -> None:
    fooled = "  ".join(f"{f.fooled[kind]:5.1%}" for kind in KINDS)
    print(f"{label:>10}  {f.precision:6.3f}  {f.coverage:7.1%}  {f.wrongly_answered:8.1%}   {fooled}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Held-out figures of the extractive decider.")
    parser.add_argument("--freeze", action="store_true", help="print the constants fitted on all articles")
    options = parser.parse_args()
    if not XQUAD.exists():
        raise SystemExit(f"no data: {XQUAD} is absent; set SHIFTWORK_DATA")
    corpus = load()
    every = [rows(corpus, number) for number in range(SPLITS)]
    if options.freeze:
        freeze(every)
        return
    found = list(splits(corpus, every))
    print("Held-out articles, mean of twelve splits. Unans.: the share of unanswerable questions answered.")
    print("The last five columns are questions that look answerable and are not, and the share answered:")
    print("the answer cut out of its passage, another name, another number, an opposite word, denied.\n")
    print("   support  precis.  coverage    unans.     cut   name   numb   oppo   deny")
    for value in CURVE:
        show(f"{value:.2f}", mean_figures([figures(s.rows, s.support, value) for s in found]))
    show("fitted", mean_figures([figures(s.rows, s.support, s.threshold) for s in found]))
    print(
        "\nfitted: the lowest threshold with precision",
        TRAIN_PRECISION,
        "on the other articles, a split each:",
    )
    print(" ".join(f"{s.threshold:.2f}" for s in found))
    asked, flagged, answered = contradicted(corpus)
    print(
        f"\n{asked} answers are numbers; with a second passage that says another number beside the right one"
    )
    print(
        f"{flagged} are flagged as contradicting, {answered} answered all the same (threshold {THRESHOLD})."
    )


def freeze(every: Sequence[Sequence[Row]]) -> None:
    weights = fit([row for some in every for row in some])
    print(f"BIAS: Final = {weights[-1]:.2f}\nWEIGHTS: Final[dict[str, float]] = {{")
    for name, weight in zip(WEIGHTS, weights, strict=False):
        print(f'    "{name}": {weight:.2f},')
    print("}")


if __name__ == "__main__":
    main()
