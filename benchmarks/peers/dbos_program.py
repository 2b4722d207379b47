"""DBOS on SQLite: three durable steps an item, one item after the other.

    python dbos_program.py FOLDER COUNT [--wal]      the figure: items a second
    python dbos_program.py FOLDER COUNT --pending    put COUNT items on a queue, begin to work, wait to be killed
    python dbos_program.py FOLDER COUNT --again      the store after the kill: say when the first and when all are done

The first calls a workflow of three steps (take the item, decide at once, record the result) directly: DBOS commits the
workflow's start, each step's output and the workflow's end. Its queue would add more and polls once a second, so it is
left out there. As shipped DBOS leaves SQLite its rollback journal; ``--wal`` sets the file's journal mode before DBOS
opens it, which SQLite keeps in the file. Both sync in full, SQLite's default. The queue of the other two has DBOS's
defaults: no limit of workers. Prints JSON lines; starting up is not counted in the rate.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import threading
import time
from pathlib import Path

from dbos import DBOS, DBOSClient, SetWorkflowID

WARM_UP = 5
WAIT_S = 180.0


class Tally:
    """How many items ended in this process."""

    def __init__(self) -> None:
        self.done = 0
        self._changed = threading.Condition()

    def add(self) -> None:
        """One more."""
        with self._changed:
            self.done += 1
            self._changed.notify_all()

    def wait_for(self, count: int) -> bool:
        """Whether so many ended within ``WAIT_S`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self.done >= count, WAIT_S)


TALLY = Tally()


@DBOS.step()
def take(name: str) -> dict[str, str]:
    return {"item": name, "title": name}


@DBOS.step()
def decide(_item: dict[str, str]) -> dict[str, str]:
    return {"decision": "answer", "reason": "it is so", "text": "forty-two"}


@DBOS.step()
def record(item: dict[str, str], decision: dict[str, str]) -> dict[str, str]:
    return {**item, "result": decision["text"]}


@DBOS.workflow()
def session(name: str) -> dict[str, str]:
    item = take(name)
    done = record(item, decide(item))
    TALLY.add()
    return done


def run(names: list[str]) -> None:
    for name in names:
        with SetWorkflowID(name):
            assert session(name)["result"] == "forty-two"


def rate(path: Path, count: int) -> dict[str, object]:
    run([f"warm-{number}-{time.time_ns()}" for number in range(WARM_UP)])
    names = [f"item-{number}-{time.time_ns()}" for number in range(count)]
    started, cpu = time.perf_counter(), time.process_time()
    run(names)
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    return {"items": count, "seconds": took, "cpu_s": cpu, "mode": mode(path)}


def mode(path: Path) -> str:
    conn = sqlite3.connect(path)
    found: str = conn.execute("PRAGMA journal_mode").fetchone()[0]
    conn.close()
    return found


def unfinished(path: Path) -> int:
    conn = sqlite3.connect(path, timeout=30)
    count: int = conn.execute(
        "SELECT count(*) FROM workflow_status WHERE status IN ('PENDING', 'ENQUEUED')"
    ).fetchone()[0]
    conn.close()
    return count


def launch(path: Path) -> None:
    DBOS(config={"name": "peer", "system_database_url": f"sqlite:///{path}", "log_level": "ERROR"})
    DBOS.launch()


def hand_in(path: Path, count: int) -> None:
    client = DBOSClient(system_database_url=f"sqlite:///{path}")
    for number in range(count):
        client.enqueue({"queue_name": "work", "workflow_name": session.__qualname__}, f"item-{number}")
    client.destroy()


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--wal", action="store_true")
    parser.add_argument("--pending", action="store_true")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    path = options.folder / "dbos.sqlite"
    if options.wal:
        conn = sqlite3.connect(path)
        conn.execute("PRAGMA journal_mode=WAL")
        conn.close()
    if options.pending:
        launch(
            path
        )  # makes the tables, and the application's version, without which nothing can be handed in
        DBOS.destroy()
        hand_in(path, options.count)
    left = unfinished(path) if options.again else 0
    launch(path)
    if options.pending or options.again:
        DBOS.register_queue("work")
    if options.pending:
        TALLY.wait_for(1)
        say(working=True)
        time.sleep(WAIT_S)
    elif options.again:
        TALLY.wait_for(1)
        say(first=left)
        TALLY.wait_for(left)
        say(done=TALLY.done)
    else:
        say(**rate(path, options.count))
    DBOS.destroy()


if __name__ == "__main__":
    main()
