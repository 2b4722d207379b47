"""What may become an episode, and under which trust. Nothing is remembered unasked (FIELD 37).

A lesson is refused, with the reason, when

    it has no evidence and is no failed attempt
    it says "looked, found nothing" and is no failed attempt
    it says what a shown episode or note says already: what was recalled is not written back
    all its evidence is recalled memory
    it is known: the same words once more (the store refuses those of earlier sessions by digest)

Failed attempts are kept unconditionally, as long as they are news. The trust of an episode is the lowest of everything
outside that stood in the context it was learned in (FIELD 40). Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from memory.context import Context
from memory.tokens import tokens
from store.checkpoints import Lesson, Note
from store.keys import digest
from store.loading import Loaded

RECALLED_KEPT: Final = 256
_NOTHING: Final = re.compile(
    r"\b(?:found|finds?|saw|yielded|returned|gave) (?:nothing|no\b)"
    r"|\bnothing (?:was )?(?:found|there|new|relevant|of note)"
    r"|\bno (?:results?|hits?|match(?:es)?|relevant|useful)\b|\bnot found\b|\bwithout (?:a )?results?\b|\bnone found\b"
    r"|\b(?:was|is|were|are) (?:all )?empty\b|没有找到|未找到|没有结果|什么也没|没有发现|一无所获",
    re.IGNORECASE,
)
# Words after which an empty search says what to do instead, or what it means.
_MEANS: Final = re.compile(
    r"\b(?:but|instead|because|so|therefore|hence|use|try|look|ask|must|should|means?|renamed|moved|replaced|only)\b|→"
    r"|因此|所以|应该|改用|但是?|因为",
    re.IGNORECASE,
)
_WORDS: Final = re.compile(r"[+-]?\d+(?:[.,:]\d+)*|\w+")
_DENIALS: Final = "not no never none neither nor cannot without isn doesn don didn won 不 没 未"
_FILLERS: Final = (
    "a an the of in on at to for from by with as and or is are was were be been it its this that these those there "
    "has have had do does did will would we i you they he she also then than which who what when"
)


class Refused(NamedTuple):
    """A lesson that is not kept, and why."""

    text: str
    why: str


class Sifted(NamedTuple):
    """Lessons to store with the checkpoint, and the others."""

    kept: tuple[Lesson, ...]
    refused: tuple[Refused, ...]


def accept(lessons: Iterable[Mapping[str, Any]], *, loaded: Loaded, context: Context) -> tuple[Lesson, ...]:
    """The lessons (``{text, evidence, failed}``) of a decision that are worth keeping."""
    return sift(lessons, loaded=loaded, context=context).kept


def sift(lessons: Iterable[Mapping[str, Any]], *, loaded: Loaded, context: Context) -> Sifted:
    """Judge the lessons of a decision made in this context."""
    lessons = list(lessons)
    recalled = [_said(text) for text in context.recalled] if lessons else []
    kept: dict[str, Lesson] = {}
    refused = []
    for one in lessons:
        text = " ".join(str(one["text"]).split())
        evidence, failed = tuple(one.get("evidence", ())), bool(one.get("failed", False))
        lesson = lesson_of(
            text, evidence=evidence, failed=failed, source=source_of(loaded), trust=context.trust
        )
        why = (
            "the same lesson twice"
            if lesson.digest in kept
            else _fault(text, evidence, recalled, failed=failed)
        )
        if why:
            refused.append(Refused(text, why))
        else:
            kept[lesson.digest] = lesson
    return Sifted(tuple(kept.values()), tuple(refused))


def of_notes(notes: Iterable[Note], *, loaded: Loaded, context: Context) -> tuple[Lesson, ...]:
    """Episodes for what compaction may take out of the notes one day: conclusions with evidence, rejected paths."""
    worth = [
        note for note in notes if note.kind == "rejected" or (note.kind == "conclusion" and note.sources)
    ]
    about = f"{loaded.item_id}: "
    return accept(
        [
            {
                "text": note.text.removeprefix(about),
                "evidence": note.sources,
                "failed": note.kind == "rejected",
            }
            for note in worth
        ],
        loaded=loaded,
        context=context,
    )


def lesson_of(
    text: str,
    *,
    evidence: Sequence[str] = (),
    failed: bool = False,
    source: str = "",
    trust: str = "untrusted",
) -> Lesson:
    """A lesson as the store takes it. Code that tells a failed attempt itself (a crash, a refusal) starts here."""
    return Lesson(
        text=text,
        digest=same_words(text, failed=failed),
        tokens=tokens(text),
        evidence=evidence,
        failed=failed,
        source=source,
        trust=trust,
    )


def same_words(text: str, *, failed: bool) -> str:
    """A digest that case, spacing and punctuation do not change; numbers and every word do."""
    return digest("lesson", failed, _WORDS.findall(unicodedata.normalize("NFKC", text).casefold()))


def source_of(loaded: Loaded) -> str:
    """Where a lesson of this item comes from, in words: ``file hello.md, q-0007``."""
    return f"{loaded.door} {loaded.origin}".strip() + f", {loaded.item_id}"


class _Said:
    """What a text says, for comparing: its words without fillers, its denials."""

    def __init__(self, text: str) -> None:
        found = frozenset(tokens(text))
        denials, fillers = _plain_words()
        self.denials = found & denials
        self.words = found - denials - fillers

    def says_no_more_than(self, other: _Said) -> bool:
        return bool(self.words) and self.words <= other.words and self.denials == other.denials


@lru_cache(maxsize=RECALLED_KEPT)
def _said(text: str) -> _Said:
    """What is recalled is much the same from session to session, and reading it was a third of a session's CPU."""
    return _Said(text)


@cache
def _plain_words() -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(tokens(_DENIALS)), frozenset(tokens(_FILLERS))


def _fault(text: str, evidence: Sequence[str], recalled: Sequence[_Said], *, failed: bool) -> str:
    if not text:
        return "it is empty"
    if not failed and not evidence:
        return "it has no evidence"
    if not failed and _NOTHING.search(text) and not _MEANS.search(text):
        return "it says that nothing was found"
    said = _said(text)
    if any(said.says_no_more_than(other) for other in recalled):
        return "it says what was recalled"
    if not failed and all(one.startswith(("e-", "m-")) for one in evidence):
        return "it rests on recalled memory alone"
    return ""
