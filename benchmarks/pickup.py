"""From a rename into the inbox of an idle daemon to the start of its session.

    python benchmarks/pickup.py [--files 30] [--rest 4]
    python benchmarks/pickup.py --files 60 --rest 60       the long form, an hour: a minute of rest before each

The session starts at the time its claim has in the store. The raw reference, in turn with it on the same disk: a bare
process that reads inotify, forks, and whose child commits one row with synchronous=FULL.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import struct
import sys
import time
from functools import partial
from pathlib import Path

from service_world import Figure, Service, folder_in, median, parser, percentile, question, report

MOVED_TO = 0x80
DONE = "SELECT count(*) FROM items WHERE state = 'done'"


class Raw:
    """The reference: it tells through a pipe when its child had committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        conn = sqlite3.connect(folder / "raw.db")
        conn.executescript("PRAGMA journal_mode=WAL; CREATE TABLE t (at REAL)")
        conn.close()
        libc = ctypes.CDLL(None)
        watch = libc.inotify_init1(os.O_CLOEXEC)
        libc.inotify_add_watch(watch, os.fsencode(folder), MOVED_TO)
        self.told, tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            while True:
                os.read(watch, 4096)
                if os.fork() == 0:
                    self.commit(tell)
                    os._exit(0)
                os.wait()

    def commit(self, tell: int) -> None:
        """What the child does."""
        conn = sqlite3.connect(self.folder / "raw.db", isolation_level=None)
        conn.execute("PRAGMA synchronous=FULL")
        conn.execute("INSERT INTO t VALUES (?)", (time.time(),))
        os.write(tell, struct.pack("d", time.time()))

    def pick_up(self, number: int) -> float:
        """Seconds from a rename to the commit."""
        ready = self.folder.parent / f".raw-{number}"
        ready.write_text("x")
        at = time.time()
        ready.rename(self.folder / f"{number}.md")
        told: float = struct.unpack("d", os.read(self.told, 8))[0]
        return told - at

    def end(self) -> None:
        """End the reference."""
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


def _done_with(service: Service, number: int) -> bool:
    return bool(service.value(DONE) > number)


def measure(service: Service, raw: Raw, files: int, rest_s: float) -> tuple[list[float], list[float]]:
    """Milliseconds of each file, ours and raw."""
    ours, theirs = [], []
    try:
        service.start()
        for number in range(files):
            time.sleep(rest_s)
            theirs.append(1000 * raw.pick_up(number))
            at = service.drop(f"{number}.md", question(number))
            service.until(partial(_done_with, service, number), every_s=0.2)
            last = service.value("SELECT started_at FROM sessions ORDER BY id DESC LIMIT 1")
            ours.append(1000 * (last - at))
    finally:
        service.stop()
        raw.end()
    return ours, theirs


def main() -> int:
    words = parser(__doc__)
    words.add_argument("--files", type=int, default=30)
    words.add_argument("--rest", type=float, default=4.0, help="seconds of rest before each file")
    options = words.parse_args()
    with folder_in(options.folder) as folder:
        ours, theirs = measure(Service(folder), Raw(folder / "raw"), options.files, options.rest)
    print(f"{options.files} files, {options.rest:g} s of rest before each")
    return report(
        [
            Figure("rename to session start, p50", median(ours), "ms"),
            Figure("rename to session start, p99", percentile(ours, 0.99), "ms", at_most=50),
            Figure("raw inotify, fork and commit, p50", median(theirs), "ms"),
            Figure("raw inotify, fork and commit, p99", percentile(theirs, 0.99), "ms"),
            Figure("rename to session start, p50, of raw", median(ours) / median(theirs), "×"),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
