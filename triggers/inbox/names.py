"""Which names in an inbox are not work: hidden and temporary ones, the user's patterns, and our own folders.

Ignored files stay where they are and are counted, never touched (FIELD 7). A name is data: it is matched as text and
never reaches a shell, a format string or a raw terminal (FIELD 11).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import count
from typing import NamedTuple

WORK = ".work"
ARCHIVE = "archive"
REJECTED = "rejected"
RESERVED = frozenset({WORK, ARCHIVE, REJECTED})
"""Our own folders at the top of the inbox; everything else is scanned."""

MAX_NAME_BYTES = 255


class Rule(NamedTuple):
    """Why a name is ignored: the pattern it matched and what such files are."""

    pattern: str
    why: str


# The specific before the general, so that an explanation names the program behind the file.
BUILT_IN = (
    Rule(".syncthing.*", "Syncthing is still writing it"),
    Rule(".goutputstream-*", "a GNOME program is still writing it"),
    Rule(".#*", "an Emacs lock"),
    Rule("._*", "a macOS resource fork"),
    Rule("@eaDir", "a Synology index folder"),
    Rule("Thumbs.db", "a Windows thumbnail cache"),
    Rule("~$*", "an Office lock"),
    Rule("*~", "an editor's backup copy"),
    Rule("*.swp", "a Vim swap file"),
    Rule("*.part", "a download in progress"),
    Rule("*.filepart", "an upload in progress (WinSCP)"),
    Rule("*.crdownload", "a download in progress (Chrome)"),
    Rule("*.tmp", "a temporary file"),
    Rule(".*", "a hidden file"),
)


def ignored(path: str, patterns: Sequence[str] = ()) -> Rule | None:
    """The rule that makes ``path`` (relative to the inbox, ``/`` between folders) no work; None: it is work.

    A folder's name counts for all that lies in it. Built-in rules ignore case; the user's ``patterns`` are matched
    against each part of the path and against the whole of it, as written.
    """
    parts = path.split("/")
    for part in parts:
        for rule in BUILT_IN:
            if fnmatchcase(part.lower(), rule.pattern.lower()):
                return rule
    for pattern in patterns:
        if fnmatchcase(path, pattern) or any(fnmatchcase(part, pattern) for part in parts):
            return Rule(pattern, "the queue's own list (ignore)")
    return None


def is_utf8(path: str) -> bool:
    """Whether every byte of this file name is UTF-8 (FIELD 6)."""
    try:
        os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def escaped(path: str) -> str:
    r"""``path`` with each byte that is not UTF-8 written as ``\xNN``; a UTF-8 name is returned as it is."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def base_name(path: str) -> str:
    """The name that files for people are built on: the last part without its suffix, at most 180 bytes."""
    stem = os.path.splitext(path.rpartition("/")[2])[0]
    return cut(stem, 180)


def cut(name: str, max_bytes: int) -> str:
    """``name`` cut to ``max_bytes`` of UTF-8, never inside a character."""
    return name.encode("utf-8", "surrogateescape")[:max_bytes].decode("utf-8", "ignore") or "file"


def numbered(name: str, mark: str, *, room: int = 0) -> str:
    """``name`` with ``mark`` before its suffix (``a.md``, ``.2`` → ``a.2.md``), ``room`` bytes left under the limit.

    An empty mark keeps the name, cut only where ``room`` needs it.
    """
    stem, suffix = os.path.splitext(name)
    if len(os.fsencode(suffix)) > 40:
        stem, suffix = name, ""
    left = MAX_NAME_BYTES - room - len(os.fsencode(mark + suffix))
    return (stem if len(os.fsencode(stem)) <= left else cut(stem, left)) + mark + suffix


def free_names(name: str, mark: str, *, plain: bool, stamp: str, room: int = 0) -> Iterator[str]:
    """Names to try in turn for a file called ``name``: itself (if ``plain``), with ``mark``, with the time, counted."""
    if plain:
        yield numbered(name, "", room=room)
    yield numbered(name, mark, room=room)
    yield numbered(name, f"{mark}.{stamp}", room=room)
    for number in count(2):
        yield numbered(name, f"{mark}.{stamp}.{number}", room=room)
