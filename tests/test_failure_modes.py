"""The six ways in which long-running work fails, each with its test as the field describes it, and what it costs.

The sentences are those of the third seed document, "Failure modes"; each test does what "how to test for it" says.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from crash_world import CrashWorld
from notify_receivers import web
from session_world import World as SessionWorld
from session_world import answer

from sessions.session import run_session
from store.claims import Order
from store.errors import CheckpointConflict
from store.intake import Handed
from store.sqlite import open_store

GUIDE = """# Letters

A walrus answers by letter, except in winter.

# Refunds

A refund needs a signature.
"""


@pytest.fixture
def world(tmp_path):
    made = CrashWorld(tmp_path)
    yield made
    made.kill()


# ------------------------------------------------------------------ notes drift from what they summarized


def test_notes_drift_from_what_they_summarized(tmp_path):
    """Pick a note several sessions old and compare it against the source section it was written from.

    The section has changed since: the note says so itself, with what it said and when, in the context of every later
    session; what rests on the section is stale. One whose section still says the same is left alone.
    """
    world = SessionWorld(tmp_path)
    guide = world.doc("guide.md", GUIDE)

    def cites(request):
        passage = next(
            one for one in request["passages"] if request["item"]["title"].split()[0] in one["text"]
        )
        return json.dumps({**answer(passage["text"][:60], note=f"{request['item']['title']}: {passage['text']}"),
                           "citations": [passage["id"]]})  # fmt: skip

    world.decider.script = [cites]
    letter, refund = world.hand("walrus answers how?"), world.hand("refund needs what?")
    world.drain()
    world.decider.script = [answer("nothing to cite")]
    for number in range(5):
        world.hand(f"other {number}")
    world.drain()

    guide.write_text(GUIDE.replace("by letter, except in winter", "by telegram"))
    os.utime(guide, ns=(1, 1))
    world.now += 3600
    world.hand("walrus refund again")
    world.drain()
    notes = world.decider.requests[-1]["notes"]
    old = [one for one in notes if "by letter, except in winter" in json.dumps(one, ensure_ascii=False)]
    assert old, notes
    assert all(one["stale"] for one in old)
    still = [one for one in notes if "needs a signature" in json.dumps(one)]
    assert still
    assert not any(one["stale"] for one in still)
    assert world.item(letter)["stale"]
    assert not world.item(refund)["stale"]
    world.close()


# ------------------------------------------------------------------ a crash loses or repeats completed work


@pytest.mark.parametrize("place", ["decider.call.after", "checkpoint.before"])
def test_a_crash_loses_or_repeats_completed_work(world, place):
    """Kill the process between a model call finishing and the checkpoint being written, then check the state.

    A completed answer survives, the interrupted question is still in the queue, not marked done and not duplicated.
    """
    world.add("answer first")
    world.start()
    world.until_quiet()
    world.stop()
    first = finished(world)
    interrupted = world.add("answer second")
    world.start(ready=False, env=world.armed(place))
    world.until_fired()
    world.until_dead()
    assert finished(world) == first
    assert world.rows("SELECT state FROM items WHERE id = ?", interrupted) == [("open",)]
    assert world.value("SELECT count(*) FROM items") == 2
    assert world.value("SELECT count(*) FROM decisions WHERE item_id = ?", interrupted) == 0
    world.start()
    world.until_quiet()
    world.assert_whole()
    assert [row for row in finished(world) if row[0] != interrupted] == first
    assert sum(call[0] == interrupted for call in world.calls()) == 2  # asked again, once for the crash
    assert world.value("SELECT count(*) FROM decisions WHERE item_id = ?", interrupted) == 1


def finished(world):
    return world.rows("SELECT id, result, version FROM items WHERE state = 'done' ORDER BY seq")


# ------------------------------------------------------------------ a flagged item never gets resolved


def test_a_flagged_item_never_gets_resolved(tmp_path):
    """Check the age of the oldest pending item. Too old, and somebody is paged, with the command that resolves it."""
    with web() as receiver:
        (tmp_path / "page.url").write_text(f"json://127.0.0.1:{receiver.port}/")
        notify = '[notify]\nservices = [{ url_file = "page.url" }]\nflag_age = "2s"\n'
        world = CrashWorld(tmp_path, extra=notify)
        world.flagged.add("flag it")
        world.add("flag it")
        world.start()
        try:
            world.until_quiet()
            shown = json.loads(world.command("flags", "--json").stdout)
            assert shown["count"] == 1
            assert 0 <= shown["oldest_age_s"] < 60
            status = json.loads(world.command("status", "--json").stdout)
            assert 0 <= status["queues"]["beta"]["oldest_waiting_age_s"] < 60
            for number in range(
                3
            ):  # sessions go on and succeed, and the queue shrinks: it is paged all the same
                world.add(f"answer {number}")
            world.until(lambda: receiver.ids, 30)
            page = receiver.got[0]["message"]
            assert "flag_age:beta" in page
            assert "1 flag waits in queue beta" in page
            assert "shiftwork flags" in page
            assert "shiftwork resolve" in page
            world.until_quiet()
            world.answer_flags()
            world.until_quiet()
            world.assert_whole()
            assert json.loads(world.command("flags", "--json").stdout)["count"] == 0
            assert len(set(receiver.ids)) == len(receiver.ids) == 1
        finally:
            world.kill()


# ------------------------------------------------------------------ nothing needed doing, but a session runs anyway


def test_the_trigger_fires_and_nothing_needed_doing_but_a_session_runs_anyway(tmp_path):
    """Trigger a session against an empty queue and confirm no model call happens; no write and no process either."""
    timer = '[triggers.tick]\nkind = "timer"\nqueues = ["alpha", "beta"]\nevery = "1s"\n'
    world = CrashWorld(tmp_path, extra=timer)
    world.add("answer one")
    world.start(env=world.witnessed())
    try:
        world.until_quiet()
        assert len(world.started()) in (
            3,
            4,
        )  # daemon, the process that starts workers, one worker, its decider's fork
        world.until(lambda: len(world.family()) <= 1)  # its worker went home
        (
            tmp_path / "state" / "bell"
        ).touch()  # somebody rings: the mark of the written file rides on no other commit
        world.until(world.all_marked)
        time.sleep(7)  # it has had its rest
        before = (len(world.calls()), world.commits(), stamps(world.state), world.family())
        started = world.started()
        time.sleep(5)  # five ticks of the timer
        (tmp_path / "state" / "bell").touch()  # and somebody rings
        time.sleep(1)
        after = (len(world.calls()), world.commits(), stamps(world.state, but="bell"), world.family())
        assert after == (before[0], before[1], {k: v for k, v in before[2].items() if k != "bell"}, before[3])
        assert world.started() == started
        assert len(world.calls()) == 1
    finally:
        world.kill()


def test_three_questions_cost_three_sessions_and_three_calls_and_once_more_costs_nothing(world):
    """0 calls, 0 writes (commit counter and file times), 0 processes started."""
    for number in range(3):
        world.add(f"answer {number}")
    world.command("run", "--drain")
    assert len(world.calls()) == 3
    before = everything(world)
    done = world.command("run", "--drain", env=world.witnessed())
    assert "0 sessions ran" in done.stderr
    assert everything(world) == before
    [command, *others] = world.started()
    assert command.endswith("daemon run") or "daemon" in command
    assert len(others) <= 1  # the process that would start workers, and no worker
    assert all("zygote.py" in one for one in others)
    assert len(world.calls()) == 3
    assert world.rows("SELECT outcome FROM sessions") == [("answered",)] * 3
    world.assert_whole()


def everything(world) -> dict[str, tuple[int, int, bytes]]:
    """Every file of the state folder and of the folders for people: when it was written, its size, its bytes.

    The lock's own note about who holds it is the process's, not the work's. Nothing is opened by SQLite here.
    """
    folders = [
        world.state,
        *(world.folder / f"{kind}-{queue}" for kind in ("in", "out") for queue in ("alpha", "beta")),
    ]
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size, path.read_bytes())
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "daemon.lock" and ".crash-" not in str(path)
    }


def stamps(state: Path, but: str = "") -> dict[str, int]:
    return {
        one.name: one.stat().st_mtime_ns
        for one in state.iterdir()
        if not one.name.endswith("-shm") and one.name != but
    }


# ------------------------------------------------------------------ a half-written checkpoint corrupts the next session


@pytest.mark.parametrize("place", ["checkpoint.before", "checkpoint.after"])
def test_a_half_written_checkpoint_corrupts_the_next_session(world, place):
    """Kill the process while it is writing the checkpoint, not while it is working: the next one reads the old,
    complete checkpoint or the new, complete one, never a part of either.
    """
    item = world.add("answer it")
    world.start()
    world.until_quiet()
    world.stop()
    item = world.add("answer the other")
    world.start(ready=False, env=world.armed(place))
    world.until_fired()
    world.until_dead()
    state = {
        "item": world.value("SELECT state FROM items WHERE id = ?", item),
        "node": world.value("SELECT state FROM nodes WHERE item_id = ?", item),
        "session": world.value("SELECT outcome FROM sessions WHERE item_id = ?", item),
        "lease": world.value("SELECT count(*) FROM leases"),
        "decisions": world.value("SELECT count(*) FROM decisions WHERE item_id = ?", item),
        "notes": world.value("SELECT count(*) FROM notes WHERE item_id = ?", item),
        "papers": world.value("SELECT count(*) FROM papers WHERE item_id = ?", item),
        "events": world.value("SELECT count(*) FROM events WHERE item_id = ? AND kind = 'decision'", item),
    }
    old = ("open", "running", "running", 1, 0, 0, 0, 0)
    new = ("done", "succeeded", "answered", 0, 1, 1, 1, 1)
    assert tuple(state.values()) == (old if place.endswith("before") else new)
    world.start()
    world.until_quiet()
    world.assert_whole()


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGE = {
    "truncated": half,
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
    "hand-edited": lambda path: path.write_text("{}"),
    "another program's": lambda path: path.write_bytes(
        path.read_bytes()[:68] + b"\0\0\0\1" + path.read_bytes()[72:]
    ),
    "a newer one's": lambda path: (
        sqlite3.connect(path).execute("PRAGMA user_version = 99").connection.close()
    ),
    "garbled in the middle": lambda path: path.write_bytes(
        path.read_bytes()[:4096] + os.urandom(8192) + path.read_bytes()[12288:]
    ),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_the_queue_is_not_started_over(world, how):
    """Hand the loader a damaged file on purpose: starting the queue over is the worse of the two outcomes."""
    world.add("answer one")
    world.add("answer two")
    world.command("run", "--drain")
    path = world.state / "shiftwork.db"
    calls, before = len(world.calls()), path.read_bytes()
    DAMAGE[how](path)
    damaged = path.read_bytes() if path.exists() else None
    for _ in range(2):  # every scheduled tick after it says so, too
        refused = world.command("run", "--drain", check=70)
        assert "shiftwork.db" in refused.stderr
    assert (path.read_bytes() if path.exists() else None) == damaged
    assert len(world.calls()) == calls
    path.write_bytes(before)
    world.command("run", "--drain")
    assert len(world.calls()) == calls
    world.assert_whole()


# ------------------------------------------------------------------ two sessions run at the same time


def test_two_sessions_run_at_the_same_time(tmp_path):
    """Load the checkpoint twice, write from both: the second write is refused, and nothing of it is written."""
    world = SessionWorld(tmp_path)
    item = world.hand("once")
    first = world.claim()
    world.store.claims.reclaim([(world.store.claims.leases()[0], "worker")], now=world.now, crash_limit=9)
    other = open_store(world.state)
    second = other.claims.claim(
        Order(["q"], owner="other", daemon="d", trigger="test", lease_s=60, deadline_s=60), now=world.now
    )
    world.decider.script = [answer("of the second")]
    assert run_session(world.room._replace(store=other), second).outcome == "answered"
    before = dump(world.store)
    world.decider.script = [answer("of the first", note="a note that must not stay")]
    lost = run_session(world.room, first)
    assert lost.outcome == "conflict"
    assert "no longer holds" in lost.why
    assert dump(world.store) == before
    with pytest.raises(CheckpointConflict):
        world.store.claims.extend(first, now=world.now, until_at=world.now + 9999)
    assert world.item(item)["result"]["text"] == "of the second"
    other.close()
    world.close()


def dump(store) -> dict[str, list[tuple]]:
    with store.db.read() as conn:
        tables = [
            row[0]
            for row in conn.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'search_%'"
            )
        ]
        return {table: [tuple(row) for row in conn.execute(f"SELECT * FROM {table}")] for table in tables}


# ------------------------------------------------------------------ cost


def cost_of_the_next(world) -> tuple[int, int, int, int]:
    """Commits, calls, bytes of the request and characters of the context of one session."""
    commits, calls = world.commits(), world.decider.calls
    assert world.session().outcome == "answered"
    request = world.decider.requests[-1]
    chars = world.item(request["item"]["id"])["sessions"][-1]["context_chars"]
    return world.commits() - commits, world.decider.calls - calls, len(json.dumps(request)), chars


def hand_many(world, count: int) -> None:
    batch = [
        Handed("q", f"question {number:06d}", "cli", title=f"question {number:06d}")
        for number in range(count)
    ]
    for start in range(0, count, 500):
        world.store.intake.hand_in(batch[start : start + 500], now=world.now, caps={"q": 10**6})


def test_a_session_costs_the_same_at_depth_3_and_3000(tmp_path):
    """A queue that grows costs more sessions, not slower ones: two commits, one call, the same context."""
    costs = {}
    for depth in (3, 3000):
        world = SessionWorld(tmp_path / str(depth), answer("the same"))
        hand_many(world, depth)
        costs[depth] = cost_of_the_next(world)
        world.close()
    print(costs)
    assert costs[3][:2] == (2, 1)
    assert costs[3] == costs[3000]


def test_a_session_costs_the_same_with_30_and_with_3000_sessions_behind_it(tmp_path):
    """No transcript: what came before is notes up to a cap, however much there was of it."""
    costs = {}
    for depth in (30, 3000):
        world = SessionWorld(tmp_path / str(depth), answer("the same", note="as before: " + "n" * 100))
        hand_many(world, depth + 1)
        assert len(world.drain(depth)) == depth
        costs[depth] = cost_of_the_next(world)
        world.close()
    print(costs)
    assert costs[30][:2] == costs[3000][:2] == (2, 1)
    more_digits = 2 * 20  # the numbers of twenty notes: n-0030, n-3000
    assert 0 <= costs[3000][2] - costs[30][2] <= more_digits
    assert 0 <= costs[3000][3] - costs[30][3] <= more_digits


def test_a_killed_daemon_is_no_reason_to_pay_twice_for_what_was_stored(world):
    """Frozen decisions: what was stored is never asked again, however often the daemon dies after it."""
    world.add("answer once")
    world.start(ready=False, env=world.armed("checkpoint.after"))
    world.until_fired()
    world.until_dead()
    for _ in range(3):
        world.start()
        world.until_quiet()
        world.stop(signal.SIGKILL)
    world.assert_whole()
    assert len(world.calls()) == 1
