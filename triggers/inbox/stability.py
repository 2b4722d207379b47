"""Is a dropped file finished? Nobody can know; these are the signs that are taken for it (FIELD 1).

    stable      size, mtime and inode the same for ``stable_for``
    moved in    a rename put the whole file there (the watcher saw it)
    no writer   a read lease was granted: at this moment nobody has it open for writing

The last two let a file be taken at once (``inbox_immediate``). A sign may be wrong: a lease says "no writer now", not
"finished". So bytes that come later are looked for after the file was taken (``late.py``).

Everything here but ``no_writer`` is values in, values out.
"""

from __future__ import annotations

import fcntl
import os
import signal
from typing import NamedTuple

EMPTY_FOR_S = 30.0
"""An empty file is refused when it has been empty for so long (FIELD 5)."""
UNSTABLE_FOR_S = 3600.0
"""A file that is not finished after so long is named in one alert; it is still waited for."""


class Look(NamedTuple):
    """What a file looked like: bytes, nanoseconds, and which file it was."""

    size: int
    mtime_ns: int
    inode: int
    device: int

    @staticmethod
    def of(status: os.stat_result) -> Look:
        """The look in a stat result."""
        return Look(status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev)


class Seen(NamedTuple):
    """A file over several scans: its last look, since when it is the same, and when its name was first met."""

    look: Look
    same_since_at: float
    first_at: float


def observe(before: Seen | None, look: Look, *, now: float, changed_at: float | None) -> Seen:
    """What is known of a file after this look.

    ``changed_at``: its ctime, where this machine's clock set it; it lets a file that lay there before the daemon
    started count as stable at once. A ctime in the future says nothing.
    """
    if before is not None and before.look == look:
        return before if now >= before.same_since_at else before._replace(same_since_at=now)
    since = changed_at if before is None and changed_at is not None and changed_at <= now else now
    return Seen(look, since, before.first_at if before is not None else now)


def ready_at(seen: Seen, *, stable_for_s: float) -> float:
    """When the file counts as stable (UTC epoch seconds), if nothing changes it until then."""
    return seen.same_since_at + (EMPTY_FOR_S if seen.look.size == 0 else stable_for_s)


def is_overdue(seen: Seen, *, now: float) -> bool:
    """Whether the file has been unfinished for so long that a person should know."""
    return now - seen.first_at >= UNSTABLE_FOR_S


def no_writer(fd: int) -> bool | None:
    """Whether nobody has this file open for writing; None when the kernel does not say.

    Only the file's owner and root are told, and only on file systems with leases. The lease is given back at once: a
    program that opens the file meanwhile waits for microseconds. The signal that would announce it is one that is
    ignored by default.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return False
    except OSError:
        return None
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return None
    return True
