"""One daemon per store: a lock file in the state folder, held by flock for the daemon's life.

``daemon.lock`` also says who holds it (owner line and since when), for ``status`` and ``stop``. That note is only
believed while the process it names lives: a kill -9 leaves the note, never the lock. The descriptor is
close-on-exec and no child gets it. The folder must be on a local disk, like the store.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import NamedTuple

from store import owners
from store.errors import AlreadyRunning

NAME = "daemon.lock"
_TRIES = 20
_PAUSE_S = 0.02


class Daemon(NamedTuple):
    """What can be said about the daemon of a state folder. ``owner`` is empty unless it is running."""

    running: bool
    pid: int | None
    since_at: float | None
    owner: str


_NONE = Daemon(running=False, pid=None, since_at=None, owner="")


class Lock:
    """The held lock; ``acquire`` makes one."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def acquire(cls, state_dir: Path, *, now: float, purpose: str = "run") -> Lock:
        """Hold the state folder's lock. AlreadyRunning (exit 4) names who does.

        A short while is allowed for, since a reader may look at the lock by trying it.
        """
        path = state_dir / NAME
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        try:
            _hold(fd, state_dir)
            if not _same_file(fd, path):  # removed or replaced between open and lock
                os.close(fd)
                return cls.acquire(state_dir, now=now, purpose=purpose)
        except BaseException:
            os.close(fd)
            raise
        note = {"owner": owners.me(), "pid": os.getpid(), "since_at": now, "purpose": purpose}
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(note).encode() + b"\n", 0)
        return cls(path, fd)

    def still_ours(self) -> bool:
        """Whether the path still names the file that is locked; if not, a second daemon could start."""
        return _same_file(self._fd, self.path)

    def release(self) -> None:
        """Let go and leave no note behind."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


def read_daemon(state_dir: Path) -> Daemon:
    """Who holds the lock of a state folder, without taking it. Creates nothing."""
    path = state_dir / NAME
    try:
        note = json.loads(path.read_bytes())
        owner, pid, since_at = str(note["owner"]), int(note["pid"]), float(note["since_at"])
    except (OSError, ValueError, TypeError, KeyError):
        return _NONE
    verdict = owners.verdict(owner)
    if verdict == "dead" or (verdict == "unknown" and not _is_held(path)):
        return _NONE
    return Daemon(running=True, pid=pid, since_at=since_at, owner=owner)


def _hold(fd: int, state_dir: Path) -> None:
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if left == 0:
                raise AlreadyRunning(_who(state_dir)) from None
            time.sleep(_PAUSE_S)


def _who(state_dir: Path) -> str:
    daemon = read_daemon(state_dir)
    name = f"a daemon (pid {daemon.pid})" if daemon.running else "another process"
    return f"{name} is already running on {state_dir}. Look: shiftwork status   End it: shiftwork stop"


def _same_file(fd: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _is_held(path: Path) -> bool:
    """By trying a shared lock for a moment: only for a holder whose process cannot be seen from here."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)
