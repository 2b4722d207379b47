"""When the ground moves: the folder goes, an owner cannot be seen, a queue leaves, the gate is held."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from daemon_world import World, alive
from removal import remove

from store.claims import Order
from store.sqlite import open_store


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.kill()


def test_a_state_folder_that_is_removed_ends_the_daemon_as_refused_and_is_not_built_again(world):
    """FIELD 22."""
    world.start()
    world.add("one")
    world.until_done(1)
    remove(world.state)
    world.drop("two.md", "two")
    assert world.process.wait(30) == 70
    assert "was replaced or removed while this ran" in world.said()
    assert "nothing is left to do" not in world.said()
    assert not world.state.exists()
    assert (world.folder / "in-work" / "two.md").exists()


def test_a_whole_folder_that_is_removed_ends_the_daemon_in_words_and_nothing_is_built_again(world):
    """FIELD 9, 22, from that very folder."""
    world.start()
    world.add("one")
    world.until_done(1)
    remove(world.folder)
    assert world.process.wait(60) == 70
    assert not world.folder.exists()


def test_a_lease_whose_owner_cannot_be_seen_from_here_is_taken_back_when_it_ends(world):
    item = world.add("one")
    store = open_store(world.state)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    elsewhere = f"{boot}:1:7:7:0123456789abcdef"  # another pid namespace
    now = os.stat(world.state / "shiftwork.db").st_mtime
    store.claims.claim(
        Order(["work"], owner=elsewhere, daemon=elsewhere, trigger="t", lease_s=6.0, deadline_s=3.0), now=now
    )
    store.close()
    world.start()
    world.until_done(1, seconds=25)  # and not at the next sweep, a minute later
    assert world.rows("SELECT outcome, cause FROM sessions WHERE item_id = ? ORDER BY id", item)[0] == (
        "crashed",
        "expired",
    )


def test_items_of_a_queue_that_left_the_configuration_are_named_at_the_start(tmp_path):
    world = World(tmp_path, queues=("old", "new"))
    world.add("one", queue="old")
    world.write_config(queues=("new",))
    world.start()
    assert "old  not in the configuration: nothing takes its 1 open item" in world.said()
    assert world.stop() == 0


def test_stop_ends_a_session_although_somebody_holds_the_store(world):
    world.start()
    item = world.add("sleep 600")
    world.until(world.calls)
    held = os.open(world.state / "store.lock", os.O_RDWR)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = world.command("stop", item, check=75)
        assert "1 session ended, but the store is held" in done.stderr
        world.until(lambda: not alive(world.calls()[0][1]))
    finally:
        os.close(held)


def test_a_session_that_lost_its_item_gives_up_its_place_at_once(world):
    world.start()
    aborted = world.add("sleep 600")
    world.until(world.calls)
    world.command("abort", aborted, "--yes")
    world.add("next")
    world.until_done(1, seconds=20)
    assert not alive(world.calls()[0][1])
    assert f"{aborted}  its session was ended" in world.said()
    assert world.value("SELECT sum(crashes) FROM nodes") == 0


def test_a_revision_ends_the_session_on_the_older_text_at_once(world):
    world.start()
    item = world.add("sleep 600", "--key", "k")
    world.until(world.calls)
    world.add("short", "--key", "k")
    world.until_done(1, seconds=20)
    assert world.rows("SELECT outcome FROM sessions WHERE item_id = ? ORDER BY id", item) == [
        ("conflict",),
        ("answered",),
    ]
    assert world.value("SELECT crashes FROM nodes WHERE item_id = ?", item) == 0


@pytest.mark.parametrize("place", ["checkpoint.after", "papers.write.before", "papers.write.after"])
def test_a_worker_that_dies_after_a_checkpoint_is_no_crash_of_the_item_claimed_with_it(world, place):
    world.write_config(daemon="crash_limit = 1")
    for number in range(3):
        world.add(f"answer {number}")
    world.start(
        env={"SHIFTWORK_CRASH_AT": f"{place}@self", "SHIFTWORK_CRASH_DIR": str(world.folder)},
    )
    world.until(lambda: world.value("SELECT count(*) FROM items WHERE state = 'done'") == 3)
    assert world.rows("SELECT outcome, count(*) FROM sessions GROUP BY outcome ORDER BY outcome") == [
        ("answered", 3),
        ("released", 1),
    ]
    assert world.rows("SELECT DISTINCT attempt, crashes FROM nodes") == [(1, 0)]
    assert "q-0001  was recorded before its worker ended: killed by SIGKILL" in world.said()
    assert "q-0002  given back: its session had not begun (killed by SIGKILL)" in world.said()
    world.until(lambda: len(list((world.folder / "out-work").iterdir())) == 3)
    assert world.stop() == 0
