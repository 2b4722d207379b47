"""The engine: durable sessions a second, against raw commits of five rows in the same run.

    python benchmarks/engine.py [--sessions 1000] [--rounds 5] [--behind 100000]

A real worker process runs whole sessions with an instant decider (no passages, episodes or lessons; outbox on). The raw
reference is one connection that commits five rows at a time with synchronous=FULL on the same disk, in turn with it.
Syncs and bytes are counted by the kernel (strace): what is written into the store's file and its log.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from service_world import Figure, report

from sessions.config import DaemonLimits, QueuePolicy
from sessions.decider import Reply
from sessions.link import Link
from sessions.plan import Plan
from sessions.worker import drain
from store.intake import Handed
from store.opening import prepare
from store.sqlite import SqliteStore, open_store

REPLY = Reply(json.dumps({"decision": "answer", "reason": "it is so", "text": "forty-two"}))


class Instant:
    """Decides in no time."""

    kind = "extractive"
    decided_by: Literal["code", "model"] = "code"
    must_cite = False

    def decide(self, _request: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """The one reply."""
        del timeout_s
        return REPLY


NUMBERS = itertools.count()


def fill(store: SqliteStore, count: int, *, now: float) -> None:
    names = [f"question {next(NUMBERS)}" for _ in range(count)]
    for start in range(0, count, 1000):
        batch = [Handed("q", name, "cli", title=name, name=name) for name in names[start : start + 1000]]
        store.intake.hand_in(batch, now=now, caps={"q": 10**9})


def finish_all(store: SqliteStore, now: float) -> None:
    """Make everything that is there old, done work."""
    with store.db.write(point="intake") as conn:
        conn.execute("UPDATE nodes SET state = 'succeeded', result = '{}' WHERE state = 'pending'")
        conn.execute(
            "UPDATE items SET state = 'done', result = '{}', finished_at = ? WHERE state = 'open'", (now,)
        )


def swallow(other: socket.socket) -> None:
    """Read what the worker says, as a daemon does: in a process of its own."""
    while other.recv(65536):
        pass


def work(folder: str, queue: Any) -> None:
    """A worker's life; what it did and how long it took goes into ``queue``."""
    link, other = Link.pair()
    pid = os.fork()
    if pid == 0:
        link.close()
        swallow(other)
        os._exit(0)
    other.close()
    try:
        _work(folder, queue, link)
    finally:
        link.close()
        os.waitpid(pid, 0)


def _work(folder: str, queue: Any, link: Link) -> None:
    state = Path(folder) / "state"
    policy = QueuePolicy(decider="x", outbox=Path(folder) / "outbox")
    plan = Plan(
        state_dir=state, folder=Path(folder), limits=DaemonLimits(), queues={"q": policy}, deciders={}
    )
    store = open_store(state)
    started = time.perf_counter()
    done = drain(plan, store, link, deciders={"x": Instant()})
    queue.put((done, time.perf_counter() - started))
    store.close()


def sessions_per_s(folder: Path, count: int) -> float:
    store = open_store(folder / "state")
    fill(store, count, now=time.time())
    store.close()
    queue = multiprocessing.get_context("fork").Queue()
    child = multiprocessing.get_context("fork").Process(target=work, args=(str(folder), queue))
    child.start()
    done, seconds = queue.get(timeout=600)
    child.join()
    assert done == count, (done, count)
    return float(done / seconds)


def raw_per_s(folder: Path, count: int) -> float:
    path = folder / "raw.db"
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("PRAGMA journal_mode=WAL")
    conn.execute("PRAGMA synchronous=FULL")
    conn.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body TEXT)")
    started = time.perf_counter()
    for _ in range(count):
        conn.execute("BEGIN IMMEDIATE")
        conn.executemany("INSERT INTO t (body) VALUES (?)", [("x" * 200,)] * 5)
        conn.execute("COMMIT")
    took = time.perf_counter() - started
    conn.close()
    return count / took


class Written(NamedTuple):
    """What a session costs the disk: syncs and KB of the store and its log, KB of ``history.db`` and its log."""

    syncs: float
    kilobytes: float
    history_kilobytes: float


def syncs_and_bytes(count: int) -> Written:
    """What a session writes, from a worker of its own under strace."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder / "state")
        store = open_store(folder / "state")
        fill(store, count, now=time.time())
        store.db.shrink_wal()
        store.close()
        trace = folder / "trace"
        subprocess.run(
            [
                *("strace", "-f", "-e", "trace=fsync,fdatasync,pwrite64", "-y", "-o", str(trace)),
                *(sys.executable, __file__, "--work", name),
            ],
            check=True,
            capture_output=True,
        )
        lines = trace.read_text().splitlines()
        synced = sum("sync(" in line for line in lines if "shiftwork.db" in line)
        kilobytes = [
            sum(int(line.rsplit("= ", 1)[1]) for line in lines if "pwrite64(" in line and name in line) / 1024
            for name in ("shiftwork.db", "history.db")
        ]
        return Written(synced / count, kilobytes[0] / count, kilobytes[1] / count)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--behind", type=int, default=100_000)
    parser.add_argument("--work")
    options = parser.parse_args()
    if options.work:
        import queue as queues

        work(options.work, queues.Queue())
        return 0
    ratios, behind_ratios, rates = [], [], []
    fresh, old = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    prepare(fresh / "state")
    prepare(old / "state")
    store = open_store(old / "state")
    fill(store, options.behind, now=time.time())
    finish_all(store, time.time())
    store.close()
    for number in range(options.rounds):
        raw = raw_per_s(fresh, options.sessions)
        rate = sessions_per_s(fresh, options.sessions)
        raw_again = raw_per_s(fresh, options.sessions)
        rate_old = sessions_per_s(old, options.sessions)
        ratios.append(rate / raw)
        behind_ratios.append(rate_old / raw_again)
        rates.append(rate)
        print(
            f"round {number + 1}: {rate:.0f} sessions/s ({rate / raw:.2f} of raw {raw:.0f}/s); "
            f"with {options.behind} items behind {rate_old:.0f} ({rate_old / raw_again:.2f})",
            flush=True,
        )
    print(f"median of {options.rounds}: {statistics.median(rates):.0f} sessions/s")
    found = [
        Figure("sessions, of raw commits of five rows", statistics.median(ratios), "×", at_least=0.15),
        Figure(
            f"the same with {options.behind} items behind, of that without",
            statistics.median(old / new for old, new in zip(behind_ratios, ratios, strict=True)),
            "×",
            at_least=0.85,  # flat, but for what two measurements of the same differ by
        ),
    ]
    if shutil.which("strace"):
        written = syncs_and_bytes(300)
        found += [
            Figure("syncs a session, store and log", written.syncs, at_most=2.1),
            Figure("written a session, store and log", written.kilobytes, "KB", at_most=40),
            Figure("written a session, history.db and its log", written.history_kilobytes, "KB"),
        ]
    else:
        print("syncs not counted: strace is not installed")
    shutil.rmtree(fresh)
    shutil.rmtree(old)
    return report(found)


if __name__ == "__main__":
    sys.exit(main())
