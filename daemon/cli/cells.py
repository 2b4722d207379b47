"""How wide text is on a terminal, and tables and paragraphs that are measured by it, not by characters.

Chinese, Japanese, Korean and most emoji take two cells, combining marks none. Texts are already escaped.
"""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 80
LABEL = 10


def width(text: str) -> int:
    """The cells that ``text`` takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def cut(text: str, cells: int) -> str:
    """``text`` in at most ``cells`` cells; what is cut off shows as ``…``."""
    if width(text) <= cells:
        return text
    kept, used = "", 0
    for char in text:
        used += _cells(char)
        if used > cells - 1:
            break
        kept += char
    return kept.rstrip() + "…" if cells > 0 else ""


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """``text`` filled up with blanks to ``cells`` cells; ``right`` sets it to the right."""
    blanks = " " * max(cells - width(text), 0)
    return blanks + text if right else text + blanks


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    give: int,
    limit: int = WIDTH,
) -> list[str]:
    """Lines of columns two blanks apart, at most ``limit`` cells wide: the column ``give`` is cut where needed."""
    widths = [max(width(row[column]) for row in (head, *rows)) for column in range(len(head))]
    over = sum(widths) + 2 * (len(widths) - 1) - limit
    widths[give] = max(
        widths[give] - max(over, 0), min(width(head[give]), widths[give]), 8 if over > 0 else 0
    )
    lines = []
    for row in (head, *rows):
        cells = [
            pad(cut(cell, widths[column]), widths[column], right=column in right)
            for column, cell in enumerate(row)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def wrap(text: str, *, first: str = "", rest: str | None = None, limit: int = WIDTH) -> list[str]:
    """``text`` as lines of at most ``limit`` cells, the first behind ``first``, the others behind ``rest``."""
    rest = " " * width(first) if rest is None else rest
    lines, line, empty = [], first, True
    for word in _pieces(text.split(" "), limit - max(width(first), width(rest))):
        if not empty and width(line) + 1 + width(word) > limit:
            lines.append(line)
            line, empty = rest, True
        line += word if empty else f" {word}"
        empty = False
    return [*lines, line.rstrip()]


def labelled(label: str, text: str) -> list[str]:
    """A paragraph behind a short label in capitals; line breaks in ``text`` stay."""
    lines = []
    for index, line in enumerate(text.split("\n")):
        lines += wrap(line, first=pad(label if index == 0 else "", LABEL), rest=" " * LABEL)
    return lines


def _pieces(words: Sequence[str], room: int) -> list[str]:
    """The words, those longer than a line cut into pieces."""
    pieces = []
    for word in words:
        piece = ""
        for char in word if width(word) > room else ():
            if width(piece) + _cells(char) > room:
                pieces.append(piece)
                piece = ""
            piece += char
        pieces.append(piece if width(word) > room else word)
    return pieces


def _cells(char: str) -> int:
    if char < "\x7f":
        return 1
    from unicodedata import category, east_asian_width

    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in ("W", "F") else 1
