"""``pause``, ``resume``, ``retry``, ``abort``, ``backup``, ``debug``: twice is the same as once, nothing hangs."""

from __future__ import annotations

import os
import pty
import sqlite3
import stat
import subprocess
import sys

import pytest
from cli_world import ROOT, Desk, spawn
from session_world import answer, failure, flag

from store.points import names


@pytest.fixture
def desk(tmp_path, capsys):
    desk = Desk(tmp_path, capsys)
    yield desk
    desk.close()


def commits(world):
    return world.commits()


# --- pause and resume ---------------------------------------------------------------------------------------------


def test_a_paused_item_is_not_claimed_until_it_is_resumed(desk):
    world = desk.world(answer())
    item = world.hand("x")
    assert desk.run("pause", item, "--by", "anna") == 0
    assert desk.out == f"paused {item}, by anna\n"
    assert world.session() is None
    assert desk.json("show", item)["state"] == "paused"
    assert desk.run("resume", item, "--by", "anna") == 0
    assert desk.out == f"{item} goes on, by anna\n"
    assert "No daemon is running" in desk.err
    assert world.session().outcome == "answered"


@pytest.mark.parametrize("target", ["q-0001", "q"])
def test_pausing_and_resuming_twice_is_the_same_as_once(desk, target):
    """FIELD 48."""
    world = desk.world(answer())
    world.hand("x")
    assert desk.json("pause", target)["changed"] is True
    before = world.item("q-0001")["version"]
    assert desk.run("pause", target) == 0
    assert desk.out == f"{target} is paused already\n"
    assert desk.json("pause", target)["changed"] is False
    assert world.item("q-0001")["version"] == before
    assert desk.json("resume", target)["changed"] is True
    assert desk.run("resume", target) == 0
    assert desk.out == f"{target} is not paused\n"


def test_a_paused_queue_holds_all_of_its_items_and_no_other(desk):
    world = desk.world(answer())
    world.hand("x")
    other = world.hand("y", queue="r")
    assert desk.run("pause", "q") == 0
    assert [ended.item_id for ended in world.drain()] == [other]
    assert "q is paused; go on:" in "\n".join(desk.lines("status"))
    assert desk.json("status")["queues"]["q"]["queue_paused"] is True
    assert desk.run("resume", "q") == 0
    assert len(world.drain()) == 1


def test_a_queue_can_be_paused_before_the_first_run(desk):
    assert desk.run("pause", "q") == 0
    assert desk.json("status")["paused_queues"] == ["q"]


def test_pausing_while_a_session_runs_says_that_it_ends_first(desk):
    world = desk.world(answer())
    item = world.hand("x")
    claim = world.claim()
    assert desk.run("pause", item) == 0
    assert "its session runs to the end; end now:" in desk.err
    assert f"stop {item}" in desk.err
    world.store.claims.release(claim, now=world.now, why="stopped")
    assert world.session() is None


def test_resuming_says_what_still_holds_the_item(desk):
    world = desk.world()
    item = world.hand("x")
    desk.run("pause", item)
    desk.run("pause", "q")
    assert desk.run("resume", item) == 0
    assert "Its queue is paused, too; go on:" in desk.err


def test_what_is_neither_item_nor_queue_is_three_and_what_ended_is_five(desk):
    assert desk.run("pause", "q-0001") == 3
    assert not (desk.folder / "state").exists()
    world = desk.world(answer())
    item = world.hand("x")
    world.session()
    for verb in ("pause", "resume"):
        assert desk.run(verb, "nope") == 3
        assert desk.err.startswith('there is no item and no queue "nope"; queues: q, r')
        assert desk.run(verb, item) == 5
        assert f"{item} is done already" in desk.err


# --- retry --------------------------------------------------------------------------------------------------------


def test_retry_ends_a_wait_answers_a_failure_and_begins_a_new_generation(desk):
    world = desk.world(failure("boom"))
    item = world.hand("x")
    world.session()
    assert desk.run("retry", item) == 0
    assert desk.out == f"{item}: it is ready now\n"
    for _ in range(5):
        world.session()
        world.now += 3600
    asked = desk.json("show", item)["flags"][0]["id"]
    assert desk.run("retry", item) == 0
    assert desk.out == f"{item}: {asked} is answered with try again\n"
    assert desk.json("flags")["count"] == 0
    world.decider.script = [answer()]
    world.session()
    assert desk.json("show", item)["state"] == "done"
    assert desk.run("retry", item) == 0
    assert desk.out == f"{item}: it begins generation 2\n"
    assert desk.json("show", item)["state"] == "queued"


def test_retry_of_what_runs_or_waits_for_an_answer_is_five(desk):
    item, asked = desk.flagged(flag())
    assert desk.run("retry", item) == 5
    assert f"resolve {asked}" in desk.err
    other = desk.worlds[0].hand("y")
    desk.worlds[0].claim()
    assert desk.run("retry", other) == 5
    assert "is running now" in desk.err
    assert desk.run("retry", "q-0099") == 3


# --- abort --------------------------------------------------------------------------------------------------------


def test_abort_without_a_terminal_needs_yes_and_changes_nothing_without(desk):
    """FIELD 48."""
    item, _ = desk.flagged(flag())
    before = commits(desk.worlds[0])
    assert desk.run("abort", item) == 2
    assert "nobody can be asked here" in desk.err
    assert f"abort {item} --yes" in desk.err
    assert commits(desk.worlds[0]) == before


def test_a_dry_run_says_exactly_what_would_change_and_changes_nothing(desk):
    item, asked = desk.flagged(flag())
    world = desk.worlds[0]
    from sessions import papers

    papers.settle_and_mark(world.store, {"q": desk.folder / "out"}, now=world.now)
    before = commits(world)
    plan = desk.json("abort", item, "--dry-run")
    assert commits(world) == before
    assert (plan["changed"], plan["dry_run"], plan["flags"]) == (False, True, [asked])
    desk.lines("abort", item, "--dry-run")
    assert desk.out.startswith(f"would abort {item}; nothing was changed\n")
    assert "waiting → aborted" in desk.out
    assert f"{asked} → withdrawn" in desk.out
    assert "way.waiting.md → removed" in desk.out
    with world.store.db.read() as conn:
        nodes = {row[0]: row[1] for row in conn.execute("SELECT id, state FROM nodes")}
    assert set(plan["nodes"]) == {node for node, state in nodes.items() if state != "succeeded"}
    assert desk.run("abort", item, "--yes", "--reason", "not wanted", "--by", "anna") == 0
    assert desk.out == f"aborted {item}\n"
    with world.store.db.read() as conn:
        after = {row[0]: row[1] for row in conn.execute("SELECT id, state FROM nodes")}
    assert {node for node in after if after[node] != nodes[node]} == set(plan["nodes"])
    assert not (desk.folder / "out" / "way.waiting.md").exists()
    assert "aborted by anna: not wanted" in "\n".join(desk.lines("log", item))


def test_abort_twice_is_fine_and_of_what_is_done_a_conflict(desk):
    world = desk.world(answer())
    first, second = world.hand("x"), world.hand("y")
    world.session()
    assert desk.run("abort", first, "--yes") == 5
    assert desk.run("abort", first, "--dry-run") == 5
    assert desk.run("abort", second, "--yes") == 0
    assert desk.run("abort", second) == 0
    assert desk.out == f"{second} is aborted already\n"
    assert desk.run("abort", "q-0099", "--yes") == 3


@pytest.mark.parametrize(
    ("typed", "code", "state"), [("y\n", 0, "aborted"), ("n\n", 1, "queued"), ("\n", 1, "queued")]
)
def test_on_a_terminal_abort_shows_what_it_does_and_asks(desk, typed, code, state):
    world = desk.world()
    item = world.hand("x")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "daemon", "abort", item],
        cwd=desk.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(ours, 1000)
    os.write(ours, typed.encode())
    out, _ = process.communicate(timeout=30)
    os.close(ours)
    assert process.returncode == code
    assert b"queued \xe2\x86\x92 aborted" in said
    assert (out == f"aborted {item}\n") == (code == 0)
    assert desk.json("show", item)["state"] == state


def test_the_end_of_the_terminal_is_a_no(desk):
    world = desk.world()
    item = world.hand("x")
    process = spawn(desk.folder, "abort", item)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (2, "")
    assert "--yes" in err


# --- backup -------------------------------------------------------------------------------------------------------


def test_a_backup_is_whole_private_and_never_overwrites(desk):
    """FIELD 24."""
    item, _ = desk.flagged(flag())
    target = desk.folder / "copy.db"
    assert desk.run("backup", str(target)) == 0
    assert "whole and checked" in desk.out
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    copy = sqlite3.connect(target)
    assert copy.execute("SELECT id FROM items").fetchall() == [(item,)]
    copy.close()
    assert desk.run("backup", str(target)) == 5
    assert "not overwritten" in desk.err
    assert desk.run("backup", str(desk.folder / "no" / "such.db")) == 1
    assert [path.name for path in desk.folder.glob(".*")] == []
    found = desk.json("backup", str(desk.folder / "other.db"))
    assert found["bytes"] == (desk.folder / "other.db").stat().st_size


def test_a_backup_put_in_the_stores_place_is_taken_up(desk):
    item, _ = desk.flagged(flag())
    assert desk.run("backup", str(desk.folder / "copy.db")) == 0
    desk.close()
    desk.worlds.clear()
    (desk.folder / "state").rename(desk.folder / "old")
    (desk.folder / "state").mkdir()
    (desk.folder / "copy.db").rename(desk.folder / "state" / "shiftwork.db")
    assert [one["id"] for one in desk.json("list")] == [item]
    assert desk.run("resolve", "f-0001", "--option", "1") == 0


def test_before_the_first_run_there_is_nothing_to_back_up(desk):
    assert desk.run("backup", str(desk.folder / "copy.db")) == 3
    assert list(desk.folder.iterdir()) == [desk.config]


def test_a_long_backup_says_on_a_terminal_how_far_it_is(desk):
    world = desk.world()
    for number in range(400):
        world.hand(f"{number} " + "x" * 4000)
    world.store.db.shrink_wal()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "daemon", "backup", "copy.db"],
        cwd=desk.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    out, _ = process.communicate(timeout=60)
    said = os.read(ours, 10000)
    os.close(ours)
    assert "whole and checked" in out
    assert b"copying" in said


# --- debug --------------------------------------------------------------------------------------------------------


def test_crash_points_are_listed_one_a_line_without_a_configuration(tmp_path):
    process = spawn(tmp_path, "debug", "crash-points")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines() == names()
    assert len(set(names())) == len(names())
