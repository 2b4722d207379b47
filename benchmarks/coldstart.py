"""A cold `status`, against `python -c "import sqlite3"` in the same rounds, with a small store and a large one.

    python benchmarks/coldstart.py [--rounds 15] [--items 100000]

Two ratios: the wall clock, which a busy machine stretches, and the CPU of the process, which it does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from service_world import ENVIRONMENT, Figure, Service, folder_in, median, parser, report

from store.intake import Handed
from store.sqlite import open_store


def fill(service: Service, count: int) -> None:
    """Old items, nine in ten of them done, as many sessions would have left them."""
    store = open_store(service.state)
    for start in range(0, count, 2000):
        batch = [
            Handed("q", f"{number} " + "word " * 40, "cli")
            for number in range(start, min(start + 2000, count))
        ]
        store.intake.hand_in(batch, now=time.time() - 3600, caps={"q": 10**7})
    with store.db.write(point="checkpoint") as conn:
        conn.execute(
            "UPDATE items SET state = 'done', result = '{}', unverified = 1, finished_at = created_at WHERE seq % 10"
        )
        conn.execute("UPDATE nodes SET state = 'succeeded', result = '{}' WHERE seq % 10")
    store.db.shrink_wal()
    store.close()


def run(folder: Path, words: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """One process: wall and CPU, in ms."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words], cwd=folder, env=environment, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return wall * 1000, (used.ru_utime + used.ru_stime) * 1000


def figures(folder: Path, items: int, rounds: int) -> list[Figure]:
    """The ratios on a store of so many items."""
    service = Service(folder)
    service.command("add", "-", body="the first")
    fill(service, items)
    skipped = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    environment = {k: v for k, v in ENVIRONMENT.items() if k not in skipped}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    status, raw = ["-P", "-m", "daemon", "status"], ["-c", "import sqlite3"]
    for words in (status, raw):
        run(folder, words, environment)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(run(folder, status, environment))
        theirs.append(run(folder, raw, environment))
    wall, cpu = (
        median([one[side] / other[side] for one, other in zip(ours, theirs, strict=True)]) for side in (0, 1)
    )
    of = f"{items:,} items" if items > 1 else "a new store"
    ms = median([one[0] for one in ours])
    return [
        Figure(f"cold status, {of}: wall clock, of import sqlite3", wall, "×", at_most=3),
        Figure(f"cold status, {of}: CPU, of import sqlite3", cpu, "×", at_most=3),
        Figure(f"cold status, {of}: wall clock", ms, "ms"),
    ]


def main() -> int:
    words = parser(__doc__)
    words.add_argument("--rounds", type=int, default=15)
    words.add_argument("--items", type=int, default=100_000)
    options = words.parse_args()
    found = []
    for items in (1, options.items):
        with folder_in(options.folder) as folder:
            found += figures(folder, items, options.rounds)
    return report(found)


if __name__ == "__main__":
    sys.exit(main())
