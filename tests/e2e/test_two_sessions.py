"""Two real processes on one checkpoint: the slower one is refused, and nothing of it is written."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys

from crash_world import CrashWorld
from daemon_world import ENVIRONMENT, alive

SLOW_SESSION = """
import sys, time
from pathlib import Path
from daemon import config as configuration
from sessions import plan
from sessions.link import Link
from sessions.worker import drain
from store import owners
from store.sqlite import open_store

config = configuration.load(Path(sys.argv[1]))
job = plan.plan_of(plan.job(plan.Plan(
    state_dir=config.state_dir, folder=config.folder, limits=config.daemon,
    queues={name: plan.policy_of(queue) for name, queue in config.queues.items()},
    deciders=config.deciders, daemon=owners.me(), trigger="test", sessions_max=1)))
mine, other = Link.pair()
store = open_store(config.state_dir)
drain(job, store, mine)
mine.close()
print(other.makefile().read())
"""


def test_the_slower_of_two_sessions_on_one_checkpoint_is_refused_and_writes_nothing(tmp_path):
    """A session outlives its lease (its machine slept, say); a daemon takes its node over and finishes it. When the
    slow one comes to its checkpoint it is refused, and its outcome, notes and files are nowhere.
    """
    world = CrashWorld(tmp_path)
    world.start()  # the rules of the configuration come to the store with a daemon's start
    world.kill()
    body = "sleep-once 1 both"
    item = world.add(body)
    slow = subprocess.Popen(
        [sys.executable, "-c", SLOW_SESSION, str(world.config)], cwd=tmp_path, env=ENVIRONMENT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        call = world.until(world.calls)[0]
        assert call[2] == slow.pid
        slow.send_signal(
            signal.SIGSTOP
        )  # it cannot be killed as an orphan is: it belongs to another namespace
        expire(world)
        world.start()
        world.until_quiet()
        assert world.value("SELECT state FROM items WHERE id = ?", item) == "done"
        before = everything(world)
        world.until(lambda: not alive(call[1]))  # it gave its answer, which lies in the pipe
        slow.send_signal(signal.SIGCONT)
        out, err = slow.communicate(timeout=30)
        assert slow.returncode == 0, err
        [told] = [one for one in map(json.loads, out.split("\n")[:-2]) if one["type"] == "session_ended"]
        assert told["outcome"] == "conflict"
        assert "no longer holds" in told["why"]
        assert everything(world) == before
        assert world.rows("SELECT outcome FROM sessions ORDER BY id") == [("crashed",), ("answered",)]
        world.assert_whole()
    finally:
        slow.kill()
        slow.communicate()
        world.kill()


def expire(world) -> None:
    """As if the lease's time were over and its owner lived where nobody here can see it."""
    conn = sqlite3.connect(world.state / "shiftwork.db", timeout=10)
    with conn:
        (owner,) = conn.execute("SELECT owner FROM leases").fetchone()
        boot, _namespace, *rest = owner.split(":")
        conn.execute("UPDATE leases SET expires_at = 1, owner = ?", (":".join([boot, "4026000000", *rest]),))
    conn.close()


def everything(world) -> str:
    """All that is recorded, but for what the two commits' own bookkeeping is."""
    tables = [name for (name,) in world.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    rows = {
        name: [tuple(map(repr, row)) for row in world.rows(f"SELECT * FROM {name}")]
        for name in tables
        if not name.startswith(("search_", "sqlite_"))
    }
    files = sorted(path.name for path in world.outbox_files())
    return json.dumps([rows, files])
