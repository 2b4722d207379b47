"""The bell: how a command tells the daemon that the store changed, without anybody polling the store.

A writer touches ``state/bell`` after its commit; the daemon waits on that file with inotify and looks
at the store when it moves. A bell nobody hears costs a system call; one that was missed costs nothing
but time, since the daemon also looks when the next thing falls due.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def path(state_dir: Path) -> Path:
    """Where the bell of a state folder hangs."""
    return state_dir / "bell"


def hang(state_dir: Path) -> Path:
    """Create the bell if there is none (the daemon does, before it waits on it); its path."""
    bell = path(state_dir)
    os.close(os.open(bell, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o660))
    return bell


def ring(state_dir: Path) -> None:
    """Say that the store changed. Never raises: the change itself is committed and will be found."""
    with suppress(OSError):
        os.utime(path(state_dir))
