"""SIGKILL with 1,000 items pending: from exec of `shiftwork run` to the first session, and to the last.

    python benchmarks/restart.py [--items 1000] [--rounds 5]

The daemon is killed in the middle of its work and started again. The decider quotes from one small document, so that
retrieval, context and files for people are in the figure. The raw references of the same round: `import sqlite3`, and
one connection that commits five rows with synchronous=FULL, twice for each session.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from service_world import QUESTION, Figure, Service, folder_in, median, parser, report

from store.intake import Handed
from store.sqlite import open_store

DONE = "SELECT count(*) FROM items WHERE state = 'done'"
STARTED = "SELECT count(*) FROM sessions WHERE started_at >= ?"


def fill(service: Service, count: int) -> None:
    store = open_store(service.state)
    batch = [Handed("q", QUESTION, "cli", key=f"{time.time_ns()}.{n}", name=f"i{n}") for n in range(count)]
    store.intake.hand_in(batch, now=time.time(), caps={"q": 10**7})
    store.close()


def round_of(service: Service, items: int) -> tuple[float, float]:
    """Seconds from exec to the first session's start, and to the last item's end."""
    service.start()
    before = service.value(DONE)
    fill(service, items + 200)
    service.command("pause", "q")
    service.command("resume", "q")  # rings the bell
    service.until(lambda: service.value(DONE) > before + 100)
    service.stop(signal.SIGKILL)
    pending = service.value("SELECT count(*) FROM items WHERE state = 'open'")
    at = service.exec()
    service.until(lambda: service.value(STARTED, at) > 0, every_s=0.02)
    first = service.value("SELECT min(started_at) FROM sessions WHERE started_at >= ?", at) - at
    service.until(lambda: service.value(DONE) >= before + items + 200, every_s=0.1)
    last = service.value("SELECT max(ended_at) FROM sessions") - at
    service.stop()
    return first, last * items / pending


def raw_commits(folder: Path, count: int) -> float:
    """Seconds for so many commits of five rows."""
    conn = sqlite3.connect(folder / "raw.db", isolation_level=None)
    conn.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE IF NOT EXISTS t (b TEXT)"
    )
    began = time.perf_counter()
    for _ in range(count):
        conn.execute("BEGIN IMMEDIATE")
        conn.executemany("INSERT INTO t VALUES (?)", [("x" * 200,)] * 5)
        conn.execute("COMMIT")
    conn.close()
    return time.perf_counter() - began


def raw_import() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import sqlite3"], check=True)
    return time.perf_counter() - began


def main() -> int:
    words = parser(__doc__)
    words.add_argument("--items", type=int, default=1000)
    words.add_argument("--rounds", type=int, default=5)
    options = words.parse_args()
    firsts, lasts, starts, commits = [], [], [], []
    with folder_in(options.folder) as folder:
        service = Service(folder)
        try:
            for number in range(options.rounds):
                starts.append(raw_import())
                commits.append(raw_commits(folder, 2 * options.items))
                first, last = round_of(service, options.items)
                firsts.append(first)
                lasts.append(last)
                print(f"round {number + 1}: first {first:.2f} s, all {last:.2f} s", flush=True)
        finally:
            service.stop()
    return report(
        [
            Figure("exec to the first session", median(firsts), "s", at_most=1),
            Figure(f"exec to all {options.items:,} done", median(lasts), "s", at_most=5),
            Figure("exec to the first session, of import sqlite3", median(firsts) / median(starts), "×"),
            Figure("exec to all done, of raw commits of five rows", median(lasts) / median(commits), "×"),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
