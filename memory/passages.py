"""Cut a document into passages: pieces small enough to show, whole enough to quote.

A passage is a verbatim, contiguous part of the text (with plain line ends). Passages are in order and do not overlap.
Cuts fall between sections first, then between paragraphs, list items, table rows and code blocks, inside a paragraph
only between sentences. A heading or a line that ends in ":" stays with what follows it. About ``TARGET_CHARS`` long,
at most ``MAX_CHARS`` unless one sentence or row is longer; ``HARD_CHARS`` bounds even that.

Pure and deterministic: the same text gives the same passages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

MIN_CHARS: Final = 300
"""A section shorter than this shares its passage with the next one."""

TARGET_CHARS: Final = 850
MAX_CHARS: Final = 1_200
HARD_CHARS: Final = 2_400

_HEADING: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?[ \t]*#*[ \t]*$")
_UNDERLINE: Final = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE: Final = re.compile(r"\s*(```+|~~~+)")
_FRONT_MATTER: Final = re.compile(r"(---|\+\+\+)\n(?:.*\n){0,100}?\1[ \t]*(?:\n|$)")
_ITEM: Final = re.compile(r"\s*(?:[-*+]|\d{1,4}[.)])[ \t]+\S")
_ROW: Final = re.compile(r"\s*\|")
# Only ends that are ends beyond doubt: a missed one makes a longer piece, a wrong one cuts a sentence.
_SENTENCE_END: Final = re.compile(
    r"(?<=[a-z0-9)\]\"'’”`*_]{2})[.!?][\"'”’)\]*_`]*\s+(?=[\"'“‘(\[*_`]*[A-Z0-9])|[。！？][」』”’）]*\s*"  # noqa: RUF001
)
_NO_END: Final = re.compile(
    r"(?:\b(?:etc|approx|resp|incl|vol|fig|prof|dept|corp|no|vs|mr|mrs|ms|dr|st|ca|cf|al|ed|pp)|\b[a-z]\.[a-z])\.\s+$",
    re.IGNORECASE,
)


class Piece(NamedTuple):
    """A passage. ``heading`` is the path of headings it stands under (``Guide / Install``); ``outer`` is the part of
    that path which the text itself does not hold.
    """

    text: str
    heading: str
    outer: str


class _Atom(NamedTuple):
    """``text[start:end]``, cut no further. Kinds: heading, code, item, row, prose, part (of something too long)."""

    start: int
    end: int
    kind: str
    level: int = 0
    title: str = ""


def cut(text: str, *, markdown: bool = True) -> list[Piece]:
    """The passages of `text`; empty for blank text. Without `markdown` only blank lines divide."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    atoms = [part for atom in _atoms(text, markdown=markdown) for part in _split(text, atom)]
    path: list[tuple[int, str]] = []
    pieces = []
    for group in _groups(text, atoms):
        piece = text[group[0].start : group[-1].end].strip("\n").rstrip()
        outer = _above(path, group[0])
        own = outer
        for at, atom in enumerate(group):
            if atom.kind == "heading":
                path = [*_above(path, atom), (atom.level, atom.title)]
                if at == 0 or all(before.kind == "heading" for before in group[:at]):
                    own = path
        if piece.strip():
            pieces.append(Piece(piece, _joined(own), _joined(outer)))
    return pieces


def _above(path: Sequence[tuple[int, str]], atom: _Atom) -> list[tuple[int, str]]:
    return [one for one in path if atom.kind != "heading" or one[0] < atom.level]


def _joined(path: Sequence[tuple[int, str]]) -> str:
    return " / ".join(title[:80] for _, title in path if title)


def _groups(text: str, atoms: Sequence[_Atom]) -> Iterator[list[_Atom]]:
    """Atoms that make one passage together."""
    group: list[_Atom] = []
    for atom in atoms:
        if group and _starts_anew(group, atom):
            held = _held_over(text, group)
            yield group[: len(group) - len(held)]
            group = held
        group.append(atom)
    if group:
        yield group


def _starts_anew(group: Sequence[_Atom], atom: _Atom) -> bool:
    have, would = group[-1].end - group[0].start, atom.end - group[0].start
    if all(one.kind == "heading" for one in group):
        return False
    if atom.kind == "heading":
        return have >= MIN_CHARS or atom.level == 1 or would > TARGET_CHARS
    return would > (MAX_CHARS if have < MIN_CHARS else TARGET_CHARS)


def _held_over(text: str, group: Sequence[_Atom]) -> list[_Atom]:
    """The headings and introducing lines at the end of a group: they belong to what follows."""
    keep = len(group)
    while keep > 1 and _introduces(text, group[keep - 1]):
        keep -= 1
    return list(group[keep:])


def _introduces(text: str, atom: _Atom) -> bool:
    if atom.kind == "heading":
        return True
    line = text[atom.start : atom.end].rstrip()
    return atom.kind == "prose" and len(line) < MIN_CHARS and line.endswith((":", "："))  # noqa: RUF001


def _atoms(text: str, *, markdown: bool) -> Iterator[_Atom]:
    """Headings, fenced code, list items, table rows and paragraphs, by Markdown's rules of thumb."""
    at = begin = 0
    kind, fence = "", ""
    if markdown and (front := _FRONT_MATTER.match(text)):
        yield _Atom(0, front.end(), "code")
        at = begin = front.end()
    for line in text[at:].splitlines(keepends=True):
        start, at = at, at + len(line)
        if fence:
            fence = "" if _closes(line, fence) else fence
            continue
        new = _kind(line, kind, markdown=markdown)
        if new == "same":
            continue
        if new == "underline":
            level = 1 if line.lstrip().startswith("=") else 2
            yield _Atom(begin, at, "heading", level, " ".join(text[begin:start].split()))
            kind = ""
            continue
        if kind:
            yield _Atom(begin, start, kind)
        begin, kind = start, new
        if new == "heading":
            yield _heading(start, at, line)
            kind = ""
        elif new == "code":
            fence = _fence(line)
    if kind:
        yield _Atom(begin, at, kind)


def _heading(start: int, end: int, line: str) -> _Atom:
    mark = _HEADING.match(line.rstrip("\n"))
    return _Atom(start, end, "heading", len(mark[1]) if mark else 1, (mark[2] or "") if mark else "")


def _fence(line: str) -> str:
    mark = _FENCE.match(line)
    return mark[1] if mark else ""


def _closes(line: str, fence: str) -> bool:
    return _fence(line).startswith(fence) and not line.strip().strip(fence[0])


def _kind(line: str, before: str, *, markdown: bool) -> str:
    """What a line begins; ``same`` when it goes on with what was before, "" when it is blank."""
    if not line.strip():
        return ""
    if not markdown:
        return "same" if before else "prose"
    if _FENCE.match(line):
        return "code"
    if _HEADING.match(line.rstrip("\n")):
        return "heading"
    if before == "prose" and _UNDERLINE.match(line.rstrip("\n")):
        return "underline"
    if _ITEM.match(line):
        return "item"
    if _ROW.match(line):
        return "row"
    return "same" if before in ("prose", "item") else "prose"


def _split(text: str, atom: _Atom) -> Iterator[_Atom]:
    """An atom that is too long for one passage, in parts: code by lines, the rest by sentences."""
    if atom.end - atom.start <= MAX_CHARS:  # a heading that long is none
        yield atom
        return
    ends = _line_ends(text, atom) if atom.kind in ("code", "row") else _sentence_ends(text, atom)
    start = atom.start
    for end in [*ends, atom.end]:
        while end - start > HARD_CHARS:
            middle = _blank_before(text, start, start + MAX_CHARS)
            yield _Atom(start, middle, "part")
            start = middle
        if end > start:
            yield _Atom(start, end, "part")
            start = end


def _line_ends(text: str, atom: _Atom) -> list[int]:
    return [match.end() for match in re.compile("\n").finditer(text, atom.start, atom.end)]


def _sentence_ends(text: str, atom: _Atom) -> list[int]:
    found = _SENTENCE_END.finditer(text, atom.start, atom.end)
    return [
        match.end()
        for match in found
        if not _NO_END.search(text, max(atom.start, match.end() - 16), match.end())
    ]


def _blank_before(text: str, start: int, end: int) -> int:
    """The last place up to `end` after a blank; `end` itself where there is none."""
    at = max(text.rfind(" ", start + 1, end), text.rfind("\n", start + 1, end))
    return at + 1 if at > start else end
