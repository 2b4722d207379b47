"""A session that goes wrong in the worst ways harms nobody else: not the daemon, not its neighbours, not the machine.

The crash is counted for its own node only, and its work comes to its end after all (FIELD 25, 27).
"""

from __future__ import annotations

import signal

import pytest
from crash_world import CrashWorld
from daemon_world import alive

WAYS = {
    "segfaults": (f"kill-once {signal.SIGSEGV}", ("crashed", "worker")),
    "aborts": (f"kill-once {signal.SIGABRT}", ("crashed", "worker")),
    "is killed": (f"kill-once {signal.SIGKILL}", ("crashed", "worker")),
    "hangs": (f"kill-once {signal.SIGSTOP}", ("crashed", "deadline")),
    "takes too long": ("sleep-once 60", ("failed", None)),
    "eats memory": ("eat-once", ("failed", None)),
    "forks children": ("fork-once", ("answered", None)),
    "forks children and dies": ("fork-once kill", ("crashed", "worker")),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_bad_session_harms_nobody_else(tmp_path, way):
    body, (outcome, cause) = WAYS[way]
    timeout = "3s" if way in ("hangs", "takes too long") else "20s"
    limits = f'crash_limit = 5\nmax_sessions = 2\nsession_timeout = "{timeout}"\nworker_memory = "256MiB"'
    world = CrashWorld(tmp_path, daemon=limits)
    world.start()
    pid = world.process.pid
    try:
        world.drop("bad.md", body, "alpha")
        for number in range(6):
            world.drop(f"good-{number}.md", f"sleep-once 0.3 good {number}", "beta")
        world.until_quiet(60)
        world.assert_whole()
        assert world.process.pid == pid
        assert world.process.poll() is None, "the daemon lives"
        bad = world.value("SELECT id FROM items WHERE body = ?", body)
        first = world.rows("SELECT outcome, cause FROM sessions WHERE item_id = ? ORDER BY id", bad)[0]
        assert first[0] == outcome, first
        assert cause is None or first[1] == cause
        others = world.rows("SELECT outcome FROM sessions WHERE item_id <> ?", bad)
        assert others == [("answered",)] * 6, "its neighbours noticed nothing"
        crashes = [count for (count,) in world.rows("SELECT count(*) FROM events WHERE kind = 'crash'")]
        assert crashes == [1 if outcome == "crashed" else 0]
        log = tmp_path / "children.log"
        children = [int(word) for word in log.read_text().split()] if log.exists() else []
        assert len(children) == (5 if way.startswith("forks") else 0)
        world.until(lambda: not any(alive(child) for child in children), 10)
        assert world.stop() == 0
        world.assert_nobody_left()
    finally:
        world.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_that_a_decider_started_outlives_the_daemon(tmp_path, number):
    """Not even children that left the session's group, when the daemon is killed or stopped in the middle."""
    world = CrashWorld(tmp_path, daemon='crash_limit = 5\ngrace = "200ms"')
    world.drop("bad.md", "fork-once and sleep", "alpha")
    world.start()
    log = tmp_path / "children.log"
    try:
        world.until(lambda: log.exists() and len(log.read_text().split()) == 5)
        children = [int(word) for word in log.read_text().split()]
        assert any(alive(child) for child in children)
        world.stop(number)
        world.until(lambda: not any(alive(child) for child in children), 10)
        world.assert_nobody_left()
        world.start()
        world.until_quiet()
        world.assert_whole()
    finally:
        world.kill()


def test_a_hanging_decider_of_one_queue_does_not_hold_up_the_other(tmp_path):
    """With one session at a time, a session that hangs costs the others its time limit, no more."""
    world = CrashWorld(tmp_path, daemon='crash_limit = 5\nsession_timeout = "2s"')
    world.start()
    try:
        world.drop("bad.md", f"kill-once {signal.SIGSTOP}", "alpha")
        world.until(world.calls)
        world.drop("good.md", "answer good", "beta")
        world.until_quiet(30)
        world.assert_whole()
    finally:
        world.kill()
