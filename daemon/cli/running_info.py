"""Whether a daemon runs on a state folder, since when, and whether it knows the configuration as it is on disk."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from daemon.lock import read_daemon


class Running(NamedTuple):
    """What is known about the daemon; ``config_changed`` is False while none runs."""

    running: bool
    pid: int | None
    since_at: float | None
    config: str
    config_changed: bool


def running_info(state_dir: Path) -> Running:
    """Ask the lock of ``state_dir``. Creates nothing."""
    daemon = read_daemon(state_dir)
    return Running(
        daemon.running,
        daemon.pid,
        daemon.since_at,
        daemon.config,
        daemon.running and bool(daemon.digest) and _digest_of(daemon.config) != daemon.digest,
    )


def _digest_of(file: str) -> str:
    from store.keys import bytes_digest

    try:
        return bytes_digest(Path(file).read_bytes())
    except OSError:
        return ""
