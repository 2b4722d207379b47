"""What can never be taken moves to ``rejected/`` with a ``.reason`` beside it (FIELD 5, 6).

    1  the reason is written     2  event and problem are committed     3  the file moves

A kill between them leaves the file where it was, and the next scan starts again at 1: an orphaned reason is written
anew, so there is never a second one, and never a rejected file without its reason.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from store import files
from store.errors import InputRefused, NameTaken
from store.text import shown
from triggers.inbox import moves
from triggers.inbox.names import REJECTED, escaped, free_names, numbered

SUFFIX = ".reason"


class Refusal(NamedTuple):
    """A file (where it lies now, and its path below the inbox) and why it is refused.

    ``recovered``: an earlier scan was killed while it had it in hand.
    """

    file: str
    path: Path
    why: InputRefused
    recovered: bool = False


def half_moved(folder: Path, refusal: Refusal) -> Path | None:
    """The place of a file whose move to another file system was killed after the copy got its name, or None.

    Its reason and its event are there already; what is left is to remove the original.
    """
    below, _, name = escaped(refusal.file).rpartition("/")
    place = folder / REJECTED / below / numbered(name, "", room=len(SUFFIX))
    if refusal.recovered and moves.same_thing(refusal.path, place):
        return place
    return None


def write_reason(folder: Path, refusal: Refusal, *, queue: str, at: str) -> Path:
    """Write the reason; the free place in ``rejected/`` that it speaks of. Raises OSError."""
    below, _, name = escaped(refusal.file).rpartition("/")
    target = moves.make_below(folder, f"{REJECTED}/{below}")
    stamp = "".join(char for char in at if char.isalnum())
    for free in free_names(name, "", plain=True, stamp=stamp, room=len(SUFFIX)):
        place = target / free
        if os.path.lexists(place):
            continue
        reason = target / (free + SUFFIX)
        text = reason_text(refusal, queue=queue, folder=folder, at=at).encode("utf-8", "backslashreplace")
        if not files.write_new(reason, text, point="inbox.reason"):
            if not reason.is_file() or reason.is_symlink():
                continue
            files.replace_own(reason, text, point="inbox.reason")
        return place
    raise AssertionError("free_names never ends")


def reason_text(refusal: Refusal, *, queue: str, folder: Path, at: str) -> str:
    """What the person who dropped the file reads."""
    return (
        f"Not taken: {refusal.why}\n"
        f"Rule: {refusal.why.rule}\n"
        f"File: {shown(refusal.file)}\n"
        f"Queue: {queue}\n"
        f"At: {at}\n"
        f"To hand it in again, mend it and move it back into {shown(os.fspath(folder))}\n"
    )


def move_away(refusal: Refusal, place: Path) -> Path | None:
    """Move the refused file itself (a link, not its target) to ``place``; None when it was gone.

    A name that was taken meanwhile leaves the file where it is: the next scan finds another. Raises OSError.
    """
    with suppress(FileNotFoundError, NameTaken):
        moves.move(refusal.path, place, point="inbox.reject")
        return place
    return None
