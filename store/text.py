"""Text from outside, made safe to show and to read. Stored text is never changed; only what goes to a terminal is."""

from __future__ import annotations

import json
import unicodedata
from typing import Any, TypeVar

T = TypeVar("T", list[Any], dict[str, Any])

_RISKY = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})


_DEATHS = {
    "daemon": "the daemon died with it",
    "worker": "its process died",
    "deadline": "it was killed past its deadline",
    "expired": "it held its claim too long",
    "gate": "it was killed: it hung while holding the store's write gate",
}


def death_words(cause: str) -> str:
    """How a session ended that crashed, for a person; ``cause`` as it is stored."""
    return _DEATHS.get(cause, cause)


def shown(text: str, limit: int | None = None) -> str:
    r"""``text`` on one line with every control, format and bidi character escaped; cut to ``limit`` characters.

    A name that was not UTF-8 (surrogate escapes) shows its bytes as ``\xNN``.
    """
    if not text.isascii() or not text.isprintable():
        text = "".join(char if _plain(char) else _escaped(char) for char in text)
    if limit is not None and len(text) > limit:
        return text[: max(limit - 1, 0)] + "…"
    return text


def shown_block(text: str) -> str:
    """Like ``shown`` line by line: line breaks and tabs stay."""
    return "\n".join(shown(line.expandtabs(4)) for line in text.split("\n"))


def first_line(text: str, limit: int = 120) -> str:
    """The first line with words in it, Markdown heading marks off, cut to ``limit`` characters."""
    for line in text.splitlines():
        stripped = line.strip().lstrip("#").strip()
        if stripped:
            return stripped if len(stripped) <= limit else stripped[: limit - 1] + "…"
    return ""


as_json = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
"""A value as it is stored; the encoder is made once."""


def parsed(text: str | None, otherwise: T) -> T:
    """JSON of one row, or ``otherwise`` where there is none, it does not parse, or it is of another type."""
    if not isinstance(text, str):
        return otherwise
    try:
        found = json.loads(text)
    except ValueError:
        return otherwise
    return found if isinstance(found, type(otherwise)) else otherwise


def _plain(char: str) -> bool:
    return unicodedata.category(char) not in _RISKY or char == "\u200d"


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if char in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[char]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
