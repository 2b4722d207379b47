"""Whether the best passages contradict each other about what was asked.

Two candidates contradict each other when they are supported nearly equally, match the same terms of the
question, and then say different things: other numbers or dates where one is asked for, other numbers in
otherwise the same words, or the same words once denied and once not. It is a check of the surface, made to be
cautious: what it finds goes to a person, and a contradiction in other words stays unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sessions import question as asking
from sessions.extract import Candidate, Extraction, agreement
from sessions.question import Question, Word
from sessions.sentences import units

NEAR_EQUAL: Final = 0.8
"""The other's agreement with the question, as a share of the best one's, from which it counts as a rival."""

_SAME_SUBJECT: Final = 0.8
_SAME_WORDS: Final = 0.6

Sentence = tuple[Word, ...]


class Contradiction(NamedTuple):
    """The best candidate, the one that says otherwise, and how they differ, in words."""

    best: Candidate
    other: Candidate
    words: str


def contradiction(extraction: Extraction) -> Contradiction | None:
    """The first candidate that contradicts the best one, if there is any."""
    if extraction.best is None:
        return None
    best = extraction.best
    for other in extraction.candidates[1:]:
        if agreement(other.signs) < NEAR_EQUAL * agreement(best.signs):
            continue
        if words := _difference(extraction.question, best, other):
            return Contradiction(best, other, words)
    return None


def _difference(question: Question, best: Candidate, other: Candidate) -> str:
    left, right = asking.words(best.sentence), asking.words(other.sentence)
    if question.kind in {"number", "date"} and _same_subject(question, left, right):
        ours, theirs = _amounts(left, question), _amounts(right, question)
        if ours and theirs and not ours & theirs:
            return _says(best, ours, other, theirs)
    for left, right in _twins(question, best, other):
        ours, theirs = _amounts(left, question), _amounts(right, question)
        if ours - theirs and theirs - ours:
            return _says(best, ours - theirs, other, theirs - ours)
        if asking.negative(left) != asking.negative(right):
            denies, states = (best, other) if asking.negative(left) else (other, best)
            return f"{denies.passage.id} denies what {states.passage.id} says"
    return ""


def _same_subject(question: Question, left: Sentence, right: Sentence) -> bool:
    terms = {term.form for term in question.terms}
    subject = _forms(left) & terms
    return bool(subject) and len(subject & _forms(right)) >= _SAME_SUBJECT * len(subject)


def _twins(question: Question, best: Candidate, other: Candidate) -> Iterator[tuple[Sentence, Sentence]]:
    """Sentences of the two quotations that say nearly the same and share a term with the question."""
    terms = {term.form for term in question.terms}
    theirs = [asking.words(sentence) for sentence in _sentences(other.quote)]
    for sentence in _sentences(best.quote):
        left = asking.words(sentence)
        if not _forms(left) & terms:
            continue
        for right in theirs:
            if _alike(left, right):
                yield left, right


def _sentences(quote: str) -> list[str]:
    return [quote[unit.start : unit.end] for unit in units(quote)]


def _forms(sentence: Sentence) -> frozenset[str]:
    return frozenset(form for word in sentence for form in word.forms)


def _alike(left: Sentence, right: Sentence) -> bool:
    a, b = (
        {word.forms[0] for word in sentence if not word.is_stop and not asking.is_quantity(word)}
        for sentence in (left, right)
    )
    return len(a & b) >= _SAME_WORDS * max(1, len(a | b))


def _amounts(sentence: Sentence, question: Question) -> frozenset[str]:
    """The numbers of a sentence that could answer the question: not its own, and dates only for a date."""
    asked = question.forms
    found = [
        word
        for word in sentence
        if asking.is_quantity(word) and not word.is_stop and word.forms[0] not in asked
    ]
    dates = [word for word in found if asking.is_date(word)]
    if question.kind == "date":
        found = dates
    elif question.kind == "number":
        found = [word for word in found if word not in dates] or dates
    return frozenset(asking.amount(word) for word in found)


def _says(best: Candidate, ours: frozenset[str], other: Candidate, theirs: frozenset[str]) -> str:
    return f"{best.passage.id} says {_list(ours)}, {other.passage.id} says {_list(theirs)}"


def _list(values: frozenset[str]) -> str:
    return " and ".join(sorted(values)[:3])
