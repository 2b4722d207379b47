"""The best-supported quotation for a question, from passages alone: no model, no network.

A candidate is a window of up to `WINDOW_UNITS` consecutive units (sentences) of one passage, quoted verbatim.
Its support, 0 to 1, estimates how likely the answer lies inside the quotation: a logistic function of a dozen
signs of agreement between question and window. The candidates of an extraction come from distinct passages,
best first; support never rises along the list. The same question and passages give the same extraction.

All functions are pure. Nothing here decides: what is enough support is the caller's threshold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from sessions import question as asking
from sessions.question import ASKING, Question, Word
from sessions.sentences import units

WINDOW_UNITS: Final = 3
WINDOW_CHARS: Final = 1_500
"""A window longer than this is cut to fewer units; one unit is always quoted whole."""

CANDIDATES_MAX: Final = 5

DOUBTFUL_MAX: Final = 0.5

_TERMS_MIN: Final = 2.0
_TERMS_MAX: Final = 8.0

_ALIKE: Final = 0.8  # two windows that share this much of their words say the same: no rivals
_HEADING_MATCH: Final = 0.7  # a term that only the heading or the file name holds
_PREFIX_MATCH: Final = 0.8  # "intercept" and "interception" have different stems
_NEAR: Final = 4  # words apart in a sentence that still make a pair
_FAR: Final = 15.0  # distance of an answer that is not there
_LEAD_ALONE: Final = 0.3
_LEAD_MAX: Final = 0.8


class Passage(NamedTuple):
    """A passage as shown to a session: its id, its text, the source it was cut from, the headings above it."""

    id: str
    text: str
    source: str
    heading: str = ""


class Candidate(NamedTuple):
    """One quotation: ``passage.text[start:end]``, its support (0..1), and the signs it was computed from.

    `evidence` is the best sentence of the window, as (start, end) in the passage.
    """

    passage: Passage
    start: int
    end: int
    evidence: tuple[int, int]
    support: float
    signs: dict[str, float]

    @property
    def quote(self) -> str:
        """The quotation, a verbatim part of the passage."""
        return self.passage.text[self.start : self.end]

    @property
    def sentence(self) -> str:
        """The sentence of the quotation that supports the answer best."""
        return self.passage.text[slice(*self.evidence)]


class Extraction(NamedTuple):
    """A question as read and its candidates, best first; empty when no passage shares a term with it."""

    question: Question
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate | None:
        """The best-supported candidate, if there is one."""
        return self.candidates[0] if self.candidates else None


def extract(question: str, passages: Sequence[Passage]) -> Extraction:
    """The best window of each passage that shares a term with `question`, best first, at most `CANDIDATES_MAX`."""
    read = asking.read(question)
    found = [best for passage in passages if (best := _best_window(read, passage)) is not None]
    found.sort(key=lambda candidate: -agreement(candidate.signs))  # stable: the retrieval's order breaks ties
    ranked: list[Candidate] = []
    for place, candidate in enumerate(found[:CANDIDATES_MAX]):
        rivals = [other for other in found if other is not candidate and not _alike(other, candidate)]
        signs = candidate.signs | {"lead": _lead(candidate, rivals)}
        bound = ranked[place - 1].support if ranked else 1.0
        ranked.append(candidate._replace(signs=signs, support=min(support(signs), bound)))
    return Extraction(read, tuple(ranked))


def agreement(signs: Mapping[str, float]) -> float:
    """How well a window agrees with the question, for ordering windows and passages; about 0 to 1.6."""
    return signs["window"] + 0.3 * signs["sentence"] + 0.1 * (1 - signs["no_answer"]) + 0.2 * signs["pairs"]


def support(signs: Mapping[str, float]) -> float:
    """The estimate that the answer lies in the window, 0..1; at most `DOUBTFUL_MAX` where it is doubtful."""
    total = BIAS + sum(weight * signs[name] for name, weight in WEIGHTS.items())
    estimate = 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))
    return min(estimate, DOUBTFUL_MAX) if is_doubtful(signs) else estimate


def is_doubtful(signs: Mapping[str, float]) -> bool:
    """Whether a match proves little, whatever else agrees.

    The passage lacks a whole name or number of the question (who asks about Wilhelm is not answered with what Anna
    did), or the question has only one word that weighs.
    """
    return signs["names_lost"] >= 1 or signs["numbers_lost"] >= 1 or signs["terms"] * _TERMS_MAX < _TERMS_MIN


class _Unit(NamedTuple):
    start: int
    end: int
    words: tuple[Word, ...]
    forms: frozenset[str]
    heads: frozenset[str]  # their first four characters, to rule out a common beginning cheaply
    context: frozenset[str]
    asks: bool
    line: str

    def repeats(self, question: Question) -> bool:
        """Whether it asks itself, or holds the very question: it may lead to the answer, but is none."""
        return self.asks or (len(question.words) > 2 and question.line in self.line)


@lru_cache(maxsize=512)
def _read_passage(text: str, above: str) -> tuple[_Unit, ...]:
    """The units of a passage; `above` is what its source and headings are called."""
    named = _forms(asking.words(re.sub(r"[/_.]", " ", above)))
    read = []
    for unit in units(text):
        found = asking.words(text[unit.start : unit.end])
        context = named | _forms(asking.words(unit.heading))
        forms = _forms(found)
        heads = frozenset(form[:4] for form in forms)
        asks = text[: unit.end].rstrip("\"'”’)*_` ").endswith(ASKING)
        line = " ".join(word.low for word in found)
        read.append(_Unit(unit.start, unit.end, found, forms, heads, context, asks, line))
    return tuple(read)


def _forms(words: Sequence[Word]) -> frozenset[str]:
    return frozenset(form for word in words for form in word.forms)


def _best_window(question: Question, passage: Passage) -> Candidate | None:
    read = _read_passage(passage.text, f"{passage.source} {passage.heading}")
    matches = [_matches(question, unit) for unit in read]
    if not any(map(any, matches)):
        return None
    whole = [max(column) for column in zip(*matches, strict=True)]
    best: tuple[float, Candidate] | None = None
    for first, last in _windows(read):
        signs, evidence = _signs(question, read[first:last], matches[first:last], whole)
        centred = 0.001 if 0 < evidence < last - first - 1 else 0.0  # both neighbours are quoted too
        score = agreement(signs) - 0.01 * signs["far"] + centred
        if best is None or score > best[0]:
            unit = read[first + evidence]
            span = (unit.start, unit.end)
            best = score, Candidate(passage, read[first].start, read[last - 1].end, span, 0.0, signs)
    return best[1] if best else None


def _windows(read: Sequence[_Unit]) -> list[tuple[int, int]]:
    """Ranges of units: as many as a window takes, fewer where the text ends, a heading stands or it gets long."""
    found: list[tuple[int, int]] = []
    for first in range(len(read)):
        last = first + 1
        while (
            last < len(read)
            and last - first < WINDOW_UNITS
            and read[last].context == read[first].context
            and read[last].end - read[first].start <= WINDOW_CHARS
        ):
            last += 1
        if not found or last > found[-1][1]:  # a window inside the one before says less
            found.append((first, last))
    return found


def _matches(question: Question, unit: _Unit) -> list[float]:
    """How well a unit matches each term, 0..1; one that only repeats the question no better than a heading would."""
    most = _HEADING_MATCH if unit.repeats(question) else 1.0
    return [min(most, _match(term.form, term.is_number, unit)) for term in question.terms]


def _match(form: str, is_number: bool, unit: _Unit) -> float:  # noqa: FBT001 - a term's own property
    if form in unit.forms:
        return 1.0
    if not is_number and len(form) >= 4 and form.isalpha():
        prefix = form[: max(4, int(len(form) * 0.75))]
        if form[:4] in unit.heads and any(
            other.startswith(prefix) and abs(len(other) - len(form)) <= 4 for other in unit.forms
        ):
            return _PREFIX_MATCH
    return _HEADING_MATCH if form in unit.context else 0.0


def _signs(
    question: Question, window: Sequence[_Unit], matches: Sequence[Sequence[float]], whole: Sequence[float]
) -> tuple[dict[str, float], int]:
    """The signs of one window, and the index of its best sentence in it."""
    terms = question.terms
    total = question.weight
    asked = question.forms
    inside = [max(column) for column in zip(*matches, strict=True)]
    shares = [
        0.0 if unit.repeats(question) else _share(question, row)
        for unit, row in zip(window, matches, strict=True)
    ]
    at = shares.index(max(shares))
    best = window[at]
    forms = frozenset().union(*(unit.forms for unit in window))
    hits = [i for i, word in enumerate(best.words) if not word.is_stop and word.forms[0] in asked]
    hits = hits if shares[at] else []  # nothing but repetitions of the question
    found = asking.answers(best.words, question, asked)
    elsewhere = found or any(asking.answers(unit.words, question, asked) for unit in window)
    signs = {
        "window": _share(question, inside),
        "sentence": shares[at],
        "passage": _share(question, whole),
        "pairs": _pairs(question, [unit for unit in window if not unit.repeats(question)]),
        "names_lost": min(3.0, sum(1 - m for t, m in zip(terms, whole, strict=True) if t.is_name)),
        "numbers_lost": min(2.0, sum(1 - m for t, m in zip(terms, whole, strict=True) if t.is_number)),
        "terms_lost": min(6.0, sum(m == 0 and t.weight == 1 for t, m in zip(terms, inside, strict=True))),
        "insists_lost": float(len(question.insists - forms)),
        "opposite": float(any(word.low in question.opposites for unit in window for word in unit.words)),
        "denial": float(question.is_negative and not asking.negative(best.words)),
        "no_answer": 0.0 if found else 0.5 if elsewhere else 1.0,
        "far": _distance(found, hits) / 10,
        "density": min(1.0, 2 * len(hits) / max(1, len(best.words))),
        "terms": min(total, _TERMS_MAX) / _TERMS_MAX,
    }
    return signs, at


def _share(question: Question, matches: Sequence[float]) -> float:
    got = sum(term.weight * match for term, match in zip(question.terms, matches, strict=True))
    return got / question.weight


def _pairs(question: Question, window: Sequence[_Unit]) -> float:
    """The share of neighbouring words of the question that stand near each other in a sentence, 0..1."""
    content = [word.forms[0] for word in question.words if not word.is_stop]
    pairs = list(pairwise(content))
    if not pairs:
        return 0.0
    places: list[dict[str, list[int]]] = []
    wanted = set(content)
    for unit in window:
        seen: dict[str, list[int]] = {}
        for i, word in enumerate(unit.words):
            if word.forms[0] in wanted:
                seen.setdefault(word.forms[0], []).append(i)
        places.append(seen)
    return sum(any(_close(seen.get(a, ()), seen.get(b, ())) for seen in places) for a, b in pairs) / len(
        pairs
    )


def _close(left: Sequence[int], right: Sequence[int]) -> bool:
    return any(0 < abs(i - j) <= _NEAR for i in left for j in right)


def _distance(found: Sequence[int], hits: Sequence[int]) -> float:
    """Mean distance in words from the nearest possible answer to the matched words; `_FAR` without one."""
    if not found or not hits:
        return _FAR
    return min(_FAR, *(sum(abs(i - j) for j in hits) / len(hits) for i in found))


def _lead(candidate: Candidate, rivals: Sequence[Candidate]) -> float:
    """How far ahead of the best rival a candidate is, 0..`_LEAD_MAX`.

    Without a rival it is a middling lead: that nothing else was found proves little in a small corpus.
    """
    if not rivals:
        return _LEAD_ALONE
    lead = agreement(candidate.signs) - max(agreement(rival.signs) for rival in rivals)
    return max(0.0, min(_LEAD_MAX, lead))


def _alike(left: Candidate, right: Candidate) -> bool:
    """Whether two quotations say the same in the same words: a copy of a document is no rival of it."""
    a, b = _forms_of(left.quote), _forms_of(right.quote)
    return len(a & b) >= _ALIKE * max(1, len(a | b))


@lru_cache(maxsize=1_024)
def _forms_of(quote: str) -> frozenset[str]:
    return _forms(asking.words(quote))


# How the constants were made: `python benchmarks/extractive.py --freeze` fits them by ridge logistic regression
# on all 48 articles of XQuAD (English), the paragraphs of 40 % of the questions hidden, twelve times, together
# with made-up questions that look answerable and are not; then scales them so that, on the real questions
# alone, support is the share of right answers. What they are worth on articles they were not fitted on is what
# `python benchmarks/extractive.py` prints, and docs/extractive.md tells.
BIAS: Final = -2.80
WEIGHTS: Final[dict[str, float]] = {
    "sentence": 2.05,
    "passage": 1.36,
    "pairs": 0.55,
    "names_lost": -2.02,
    "numbers_lost": -2.72,
    "terms_lost": -0.28,
    "insists_lost": -1.12,
    "opposite": -2.10,
    "denial": -7.21,
    "no_answer": -0.41,
    "far": -0.30,
    "density": 1.61,
    "terms": 2.00,
    "lead": 1.87,
}

THRESHOLD: Final = 0.8
"""The strict default: precision 0.96 on held-out articles, about two of five questions answered."""
