"""A worker that hangs while it holds the store's write gate would stop every writer: it is found and killed.

Looked at once a second while workers run, and only then. A holder is hung when the same process has held the gate
for ``HUNG_S`` without a commit, somebody waits for it, and it neither computes nor writes; one that is busy with a
large commit gets ``BUSY_S``, as long as other writers wait anyway.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

LOOK_EVERY_S = 1.0
HUNG_S = 2.0
BUSY_S = 10.0


class Look(NamedTuple):
    """What one look saw: who holds the gate, whether anybody waits, the last commit's number, and the holder's work
    so far (CPU ticks and bytes written).
    """

    pid: int | None
    awaited: bool
    commit: bytes
    work: tuple[int, int]


class GateWatch:
    """Remembers looks; ``hung`` says which pid must go."""

    def __init__(self, lock: Path) -> None:
        self._lock = lock
        self._since: float | None = None
        self._idle_since: float | None = None
        self._last: Look | None = None

    def hung(self, now: float, look: Look | None = None) -> int | None:
        """Look (or take ``look``) at ``now`` (monotonic seconds); the pid of a hung holder, or None."""
        seen = look_at(self._lock) if look is None else look
        last, self._last = self._last, seen
        if seen.pid is None or last is None or (seen.pid, seen.commit) != (last.pid, last.commit):
            self._since = self._idle_since = now
            return None
        if seen.work != last.work or self._idle_since is None:
            self._idle_since = now
        if not seen.awaited or self._since is None:
            return None
        is_hung = now - self._idle_since >= HUNG_S or now - self._since >= BUSY_S
        return seen.pid if is_hung else None


def look_at(lock: Path) -> Look:
    """The gate now, from /proc/locks. Where that cannot be read nobody holds it."""
    try:
        status = lock.stat()
        locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        with lock.open("rb") as file:
            commit = file.read(32)
    except OSError:
        return Look(None, awaited=False, commit=b"", work=(0, 0))
    wanted = f":{status.st_ino}"
    ours = [
        words for line in locks if (words := line.split()) and any(w.endswith(wanted) for w in words[5:7])
    ]
    awaited = any("->" in words for words in ours)
    pids = [int(words[4]) for words in ours if "->" not in words and words[1] == "FLOCK"]
    pid = pids[0] if pids else None
    return Look(pid, awaited=awaited, commit=commit, work=_work(pid) if pid is not None else (0, 0))


def _work(pid: int) -> tuple[int, int]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        written = Path(f"/proc/{pid}/io").read_text(encoding="ascii").split("write_bytes:")[1].split()[0]
    except (OSError, IndexError):
        return (0, 0)
    return (int(fields[11]) + int(fields[12]), int(written))
