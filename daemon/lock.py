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
_NOTE_BYTES = 4096


class Daemon(NamedTuple):
    """What can be said about the daemon of a state folder. The words are empty unless it is running.

    ``config`` is the file it read and ``digest`` that of the file's bytes then.
    """

    running: bool
    pid: int | None
    since_at: float | None
    owner: str
    config: str
    digest: str


_NONE = Daemon(running=False, pid=None, since_at=None, owner="", config="", digest="")


class Lock:
    """The held lock; ``acquire`` makes one."""

    def __init__(self, path: Path, fd: int, note: dict[str, object]) -> None:
        self.path = path
        self._fd = fd
        self._note = note

    @classmethod
    def acquire(cls, state_dir: Path, *, now: float) -> Lock:
        """Hold the state folder's lock. AlreadyRunning (exit 4) names who does."""
        note = {"owner": owners.me(), "pid": os.getpid(), "since_at": now, "config": "", "digest": ""}
        lock = cls(state_dir / NAME, _held_fd(state_dir), note)
        lock.note()
        return lock

    def note(self, **facts: str) -> None:
        """Write down who holds the lock, and more facts about it: one page, so that no reader sees half of it."""
        self._note.update(facts)
        self._write(self._note)

    def keep(self) -> None:
        """See that the lock's file is still there, and lock a new one if somebody removed it.

        Raises AlreadyRunning when a second daemon took the chance.
        """
        if _same_file(self._fd, self.path):
            return
        fd = _held_fd(self.path.parent)
        os.close(self._fd)
        self._fd = fd
        self.note()

    def release(self) -> None:
        """Let go and leave an empty note behind; its page stays, so that the next start needs no room on the disk."""
        if self._fd >= 0:
            self._write({})
            os.close(self._fd)
            self._fd = -1

    def _write(self, note: dict[str, object]) -> None:
        os.pwrite(self._fd, json.dumps(note).encode().ljust(_NOTE_BYTES - 1) + b"\n", 0)


def read_daemon(state_dir: Path) -> Daemon:
    """Who holds the lock of a state folder, without taking it. Creates nothing."""
    path = state_dir / NAME
    try:
        note = json.loads(path.read_bytes())
        owner, pid, since_at = str(note["owner"]), int(note["pid"]), float(note["since_at"])
        config, digest = str(note.get("config", "")), str(note.get("digest", ""))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return _NONE
    verdict = owners.verdict(owner)
    if verdict == "dead" or (verdict == "unknown" and not _is_held(path)):
        return _NONE
    return Daemon(running=True, pid=pid, since_at=since_at, owner=owner, config=config, digest=digest)


def _held_fd(state_dir: Path) -> int:
    """A locked descriptor of the lock's file. A short while is allowed for: a reader may look by trying the lock."""
    path = state_dir / NAME
    for left in reversed(range(_TRIES)):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same_file(fd, path):  # else it was removed or replaced between open and lock
                return fd
        except BlockingIOError:
            if left == 0:
                os.close(fd)
                raise AlreadyRunning(_who(state_dir)) from None
        os.close(fd)
        time.sleep(_PAUSE_S)
    raise AlreadyRunning(f"{path} is replaced again and again; see what does that")


def _who(state_dir: Path) -> str:
    daemon = read_daemon(state_dir)
    name = f"a daemon (pid {daemon.pid})" if daemon.running else "another process"
    return f"{name} is already running on {state_dir}.\nLook:    shiftwork status\nEnd it:  shiftwork stop"


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
