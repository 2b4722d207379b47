"""Whether the inbox is there, and still the same folder (FIELD 9).

    never seen   created, once: this is the first run
    there        device and inode are compared at each look; another folder in its place is watched anew
    missing      gone, no folder, or a mount that is not mounted: waited for, never created again

What was seen is noted beside the store (``state/inboxes/QUEUE``), so that a folder that vanished while the daemon was
down is not taken for a first run.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import NamedTuple

from store import files
from store.mounts import mount_of


class Place(NamedTuple):
    """The folder as it is now. ``mounted``: it is a mount point itself. ``silent``: its file system tells no events."""

    device: int
    inode: int
    mounted: bool
    silent: bool


class Missing(NamedTuple):
    """There is no inbox to look into; ``why`` is for people."""

    why: str


def look(folder: Path, state_dir: Path, queue: str) -> Place | Missing:
    """The inbox now, created if it was never seen, noted if it was not noted before."""
    note = state_dir / "inboxes" / queue
    known = _read(note, folder)
    found = look_only(folder)
    if isinstance(found, Missing):
        if known is not None or os.path.lexists(folder):
            return found
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            return Missing(f"cannot be created: {error.strerror}")
        found = look_only(folder)
        if isinstance(found, Missing):
            return found
    if known and not found.mounted:
        return Missing(f"not mounted (it was a mount point before; if that is over, remove {note})")
    if known is None or known != found.mounted:
        note.parent.mkdir(exist_ok=True)
        text = json.dumps({"folder": os.fspath(folder), "mounted": found.mounted})
        files.replace_own(note, text.encode("utf-8", "surrogateescape"), point="inbox.mark")
    return found


def look_only(folder: Path) -> Place | Missing:
    """The inbox now, without creating or noting anything."""
    try:
        status = os.stat(folder)
        above = os.stat(os.path.dirname(os.path.realpath(folder)))
    except OSError as error:
        return Missing(
            "not there" if isinstance(error, FileNotFoundError) else (error.strerror or "unreachable")
        )
    if not stat.S_ISDIR(status.st_mode):
        return Missing("not a folder")
    mount = mount_of(folder)
    mounted = status.st_dev != above.st_dev or mount.point == os.path.realpath(folder)
    return Place(status.st_dev, status.st_ino, mounted, mount.silent)


def _read(note: Path, folder: Path) -> bool | None:
    """Whether the inbox was a mount point when it was last seen; None when it (by this path) never was."""
    try:
        value = json.loads(note.read_bytes().decode("utf-8", "surrogateescape"))
        return bool(value["mounted"]) if value["folder"] == os.fspath(folder) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
