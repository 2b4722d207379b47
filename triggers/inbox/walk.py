"""Lists an inbox: its files and folders, without opening or following anything."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from triggers.inbox.names import RESERVED, ignored

MAX_DEPTH = 32
"""Folders deeper than this are not scanned; a bind mount of the inbox into itself ends here."""


class Found(NamedTuple):
    """One entry that is no folder. ``file`` is its path relative to the inbox."""

    file: str
    path: Path
    status: os.stat_result

    @property
    def special(self) -> str | None:
        """``link``, ``fifo``, ``socket`` or ``device`` for what is no regular file (FIELD 5)."""
        return kind_of(self.status.st_mode)


class Listing(NamedTuple):
    """All of an inbox, oldest file first. ``closed``: folders that could not be listed, with the reason."""

    files: list[Found]
    folders: list[Path]
    ignored: Counter[str]
    closed: list[tuple[str, str]]


def kind_of(mode: int) -> str | None:
    """The name of what is not a regular file; None for a regular one."""
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISFIFO(mode):
        return "fifo"
    return "socket" if stat.S_ISSOCK(mode) else "device"


def walk(folder: Path, patterns: Sequence[str] = ()) -> Listing:
    """Every entry below ``folder`` but our own folders and ignored names, links not followed.

    What vanishes meanwhile is not there. Raises OSError when ``folder`` itself cannot be listed.
    """
    listing = Listing([], [], Counter(), [])
    waiting = [("", 0)]
    while waiting:
        below, depth = waiting.pop()
        try:
            waiting += _list(folder, below, depth, patterns, listing)
        except FileNotFoundError:
            if not below:
                raise
        except OSError as error:
            if not below:
                raise
            listing.closed.append((below, error.strerror or "unreachable"))
    listing.files.sort(key=lambda found: (found.status.st_mtime_ns, found.file))
    return listing


def _list(
    folder: Path, below: str, depth: int, patterns: Sequence[str], listing: Listing
) -> list[tuple[str, int]]:
    inner: list[tuple[str, int]] = []
    here = folder / below if below else folder
    with os.scandir(here) as entries:
        listing.folders.append(here)
        for entry in entries:
            if not below and entry.name in RESERVED:
                continue
            file = f"{below}/{entry.name}" if below else entry.name
            rule = ignored(file, patterns)
            if rule is not None:
                listing.ignored[rule.pattern] += 1
            elif entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH:
                    inner.append((file, depth + 1))
                else:
                    listing.closed.append((file, f"more than {MAX_DEPTH} folders deep"))
            else:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                listing.files.append(Found(file, Path(entry.path), status))
    return inner
