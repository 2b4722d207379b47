"""Cut a passage into units that can be quoted: sentences, list items, table rows, code blocks.

A unit is a half-open range of the passage's own characters, never a changed copy, so that a quotation is
verbatim by construction. Units are in order, do not overlap, hold no white space at their ends, and are at
most `UNIT_CHARS` long. A heading is no unit: it names what the units below it are about, and no quotation
runs across one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

UNIT_CHARS: Final = 1_000
"""Longest unit, in characters; text without sentence ends (a log, a dump) is cut at white space."""

# A full stop after one of these ends no sentence.
_ABBREVIATIONS: Final = (
    "mr mrs ms dr prof st vs etc no fig vol sr jr gen col sgt lt capt gov sen rep rev hon inc ltd co corp dept "
    "approx cf ca al e.g i.e u.s u.k jan feb mar apr jun jul aug sep sept oct nov dec"
)
_END: Final = re.compile(r"[.!?]+[\"'”’)\]*_`]*(?=\s|$)|[。！？]+[」』”’）]*")  # noqa: RUF001 - CJK sentence ends
_INITIALS: Final = re.compile(r"(?:[A-Za-z]\.)*[A-Za-z]")
_LAST_WORD: Final = re.compile(r"[A-Za-z.]+$")
_FENCE: Final = re.compile(r"\s*(?:```|~~~)")
_HEADING: Final = re.compile(r"#{1,6}\s")
_OWN_LINE: Final = re.compile(r"\s*(?:[-*+]\s|\d{1,3}[.)]\s|\||>)")


class Unit(NamedTuple):
    """One quotable piece: ``text[start:end]``, and the words of the heading it stands under (or "")."""

    start: int
    end: int
    heading: str


def units(text: str) -> list[Unit]:
    """The units of `text`, in order; empty for blank text and for text that is all headings."""
    found: list[Unit] = []
    heading = ""
    for start, end, kind in _blocks(text):
        if kind == "heading":
            heading = text[start:end].strip("# \t\n")
        elif kind == "code":
            found += (Unit(a, b, heading) for a, b in _cut(text, start, end))
        else:
            found += (Unit(a, b, heading) for a, b in _sentences(text, start, end))
    return found


def _blocks(text: str) -> Iterator[tuple[int, int, str]]:
    """Paragraphs, list items, table rows, headings and fenced code, by Markdown's rules of thumb."""
    at = begin = 0
    fenced = False
    for line in text.splitlines(keepends=True):
        end = at + len(line)
        fence = _FENCE.match(line) is not None
        if fenced:
            if fence:
                yield begin, end, "code"
                begin, fenced = end, False
        elif fence or _HEADING.match(line) or not line.strip() or _OWN_LINE.match(line):
            if begin < at:
                yield begin, at, "prose"
            begin, fenced = at, fence
            if not fence and _HEADING.match(line):
                yield at, end, "heading"
                begin = end
        at = end
    if begin < at:
        yield begin, at, "code" if fenced else "prose"


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    begin = start
    for match in _END.finditer(text, start, end):
        if _ends_here(text, match, end):
            yield from _cut(text, begin, match.end())
            begin = match.end()
    yield from _cut(text, begin, end)


def _ends_here(text: str, match: re.Match[str], end: int) -> bool:
    """Whether a sentence ends at this full stop, and not an abbreviation, an initial or a number."""
    if match.group()[0] in "。！？":  # noqa: RUF001 - CJK sentence ends
        return True
    after = text[match.end() : min(match.end() + 4, end)].lstrip()
    if after[:1].islower():
        return False
    if match.group() != ".":
        return True
    before = _LAST_WORD.search(text, max(0, match.start() - 12), match.start())
    if before is None:
        return True
    word = before.group()
    return word.lower() not in _ABBREVIATIONS.split() and not (
        _INITIALS.fullmatch(word) and word != word.lower()
    )


def _cut(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The range without white space at its ends, in pieces of at most `UNIT_CHARS`."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    while end - start > UNIT_CHARS:
        cut = max(
            text.rfind(" ", start + 1, start + UNIT_CHARS), text.rfind("\n", start + 1, start + UNIT_CHARS)
        )
        cut = cut if cut > start else start + UNIT_CHARS
        yield from _cut(text, start, cut)
        start = cut
        while start < end and text[start].isspace():
            start += 1
    if start < end:
        yield start, end
