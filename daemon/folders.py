"""May we do in a folder what will be done there? Tried, not guessed: write a file, rename it, delete it (FIELD 10).

A folder that does not exist yet is fine where the first run may create it.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import uuid
from pathlib import Path

PROBE = ".shiftwork-probe-"


def trial(folder: Path) -> str | None:
    """What fails in ``folder``, in words for people; None when everything works. Leaves nothing behind."""
    there = nearest_existing(folder)
    if not there.is_dir():
        return f"{there} is not a folder"
    probe = there / f"{PROBE}{uuid.uuid4().hex[:12]}"
    renamed = probe.with_name(f"{probe.name}-renamed")
    step = "create a file"
    try:
        with open(probe, "xb") as stream:
            stream.write(b"may be deleted\n")
        step = "rename a file"
        os.rename(probe, renamed)
        step = "delete a file"
        os.unlink(renamed)
    except OSError as error:
        _sweep(probe, renamed)
        return f"{there}: cannot {step}: {error.strerror}{_who(there, error)}"
    return None


def foreign_files_stay(folder: Path) -> bool:
    """Whether files that other users drop here cannot be moved away by us (a sticky folder of another owner)."""
    try:
        status = os.stat(folder)
    except OSError:
        return False
    return bool(status.st_mode & stat.S_ISVTX) and os.geteuid() not in (0, status.st_uid)


def nearest_existing(folder: Path) -> Path:
    """``folder`` or the first of its parents that exists: where creating it would begin."""
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder


def user_name(uid: int) -> str:
    """The name of a user, or ``uid 1234`` when it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _who(folder: Path, error: OSError) -> str:
    if error.errno not in (errno.EACCES, errno.EPERM):
        return ""
    status = os.stat(folder)
    mode = stat.filemode(status.st_mode)
    return f" (owner {user_name(status.st_uid)}, {mode}; you are {user_name(os.geteuid())})"


def _sweep(*files: Path) -> None:
    for file in files:
        try:
            os.unlink(file)
        except OSError:
            continue  # it was never made, or it cannot be removed: that is what is being reported
