"""The write gate: one writer at a time, in turn, across threads and processes.

SQLite's own busy handler lets two processes starve each other; a blocking flock around each write
transaction is fair. The order is fixed: in-process mutex, flock, BEGIN IMMEDIATE. The descriptor is
close-on-exec and reopened after a fork, so no child ever holds the gate for its parent.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from store.errors import StoreBusy


class WriteGate:
    """The lock file of one store; whoever holds it notes in it how many commits were made (see ``opening``)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._fd = -1
        self._pid = -1

    @contextmanager
    def held(self, wait_s: float) -> Iterator[int]:
        """Hold the gate; the lock file's descriptor. Raises StoreBusy after ``wait_s`` seconds."""
        deadline = time.monotonic() + wait_s
        if not self._mutex.acquire(timeout=wait_s):
            raise StoreBusy(f"{self.path}: this process has been writing for over {wait_s:g} s; try again")
        try:
            fd = self._locked(deadline, wait_s)
            try:
                yield fd
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            self._mutex.release()

    def _locked(self, deadline: float, wait_s: float) -> int:
        fd = self._descriptor()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = _blocking(self.path, deadline - time.monotonic())
            if waited is None:
                pid = holder(self.path)
                who = f"pid {pid}" if pid else "another process"
                raise StoreBusy(
                    f"{self.path}: {who} has been writing for over {wait_s:g} s; try again"
                ) from None
            os.close(fd)
            self._fd = fd = waited
        return fd

    def _descriptor(self) -> int:
        if self._pid != os.getpid():  # a forked child must not share its parent's open file description
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
            self._pid = os.getpid()
        return self._fd

    def close(self) -> None:
        """Close the lock file."""
        with self._mutex:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd, self._pid = -1, -1


def holder(path: Path) -> int | None:
    """The pid that holds the gate now, from /proc/locks; None when it is free or not visible from here."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with open("/proc/locks", encoding="ascii") as locks:
        for line in locks:
            words = line.split()
            if words[1] == "FLOCK" and words[5] == wanted:
                return int(words[4])
    return None


def _blocking(path: Path, wait_s: float) -> int | None:
    """Wait in the kernel's own queue for at most ``wait_s``: the locked descriptor, or None.

    Polling would be unfair to the poller and a blocking flock has no time limit, so a thread blocks for us on a
    descriptor of its own; when we gave up meanwhile, it lets go by itself.
    """
    state_lock = threading.Lock()
    arrived = threading.Event()
    state = {"fd": -1, "gave_up": False}

    def wait() -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        fcntl.flock(fd, fcntl.LOCK_EX)
        with state_lock:
            if state["gave_up"]:
                os.close(fd)
            else:
                state["fd"] = fd
        arrived.set()

    threading.Thread(target=wait, name="write-gate", daemon=True).start()
    arrived.wait(max(wait_s, 0.0))
    with state_lock:
        state["gave_up"] = True
        return state["fd"] if state["fd"] >= 0 else None
