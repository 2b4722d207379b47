"""Deliveries while something is wrong with the store of a real daemon: refused whole (FIELD 15)."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time

import pytest
from crash_world import CrashWorld
from daemon_world import ENVIRONMENT
from hook_sender import Flood, Hook
from small_disks import fill, small_disk

IMPATIENT = "from daemon import engine\nengine.TROUBLE_S = 1.0\n"
"""A store in trouble is tried again after a second instead of a minute."""
FIRST = "answer before the trouble"


@pytest.fixture
def world(tmp_path):
    made = CrashWorld(tmp_path, hook=Hook())
    yield made
    made.kill()


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", "size=8m") as folder:
        yield folder


def test_a_full_disk_refuses_deliveries_whole_and_takes_them_when_there_is_room(world, disk):
    """FIELD 21: whichever of those that wait together runs into it, no part of any is stored."""
    world.state = disk / "state"
    world.config.write_text(f'state_dir = "{world.state}"\n' + world.config.read_text())
    impatient = world.folder / "impatient"
    impatient.mkdir()
    (impatient / "sitecustomize.py").write_text(IMPATIENT)
    world.start(env={"PYTHONPATH": f"{impatient}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"})
    assert world.deliver(FIRST, "first").status == 202
    world.until_quiet()
    filler = fill(disk)
    flood = Flood(world.hook, 8, fresh=16, padding=4_000)
    flood.start()
    world.until(lambda: any(answer.word == "disk" for _, answer in flood.told))
    world.until(
        lambda: any(answer.word == "busy" for _, answer in flood.told), 20
    )  # it is left alone for a while
    flood.stop()
    refused = [answer for _, answer in flood.told if answer.status not in (200, 202)]
    assert {(answer.status, answer.retry_after) for answer in refused} == {(503, "60")}
    taken = {delivery: answer.id for delivery, answer in flood.told if answer.id}
    stored = dict(world.rows("SELECT delivery_id, item_id FROM deliveries WHERE delivery_id <> 'first'"))
    assert stored == taken, "what was refused left nothing, not even its name"
    filler.unlink()
    for delivery, body in flood.sent.items():
        item = world.redeliver(body, delivery)
        assert taken.get(delivery, item) == item
    world.until_quiet(60)
    world.assert_whole()
    assert "can be written again" in world.said()


def test_a_store_that_another_process_keeps_writing_is_a_503_within_seconds(world):
    """And the loop goes on meanwhile: health is answered."""
    world.start()
    assert world.deliver(FIRST, "first").status == 202
    world.until_quiet()
    with (world.state / "store.lock").open("r+") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        began = time.monotonic()
        flood = Flood(world.hook, 8, fresh=8)
        flood.start()
        world.until(lambda: len(flood.sent) == 8)
        flood.stop()  # once each of the eight was answered
        waited_s = time.monotonic() - began
    assert len(flood.told) >= 8
    assert {(answer.status, answer.word, answer.retry_after) for _, answer in flood.told} == {
        (503, "busy", "5")
    }
    assert waited_s < 30
    assert world.value("SELECT count(*) FROM deliveries") == 1
    for delivery, body in flood.sent.items():
        world.redeliver(body, delivery)
    world.until_quiet()
    world.assert_whole()
    assert world.stop() == 0, world.said()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_store_that_goes_away_in_a_flood_ends_the_daemon_and_nothing_is_begun_anew(world, how):
    """FIELD 22. What was answered 202 is in the file that was taken away, and nothing came into the other."""
    world.start()
    assert world.deliver(FIRST, "first").status == 202
    world.until_quiet()
    world.command("pause", "beta")
    flood = Flood(world.hook, 8, fresh=2000)
    flood.start()
    world.until(lambda: len(flood.told) > 40)
    store, kept = world.state / "shiftwork.db", world.folder / "kept"
    kept.mkdir()
    for end in ("", "-wal", "-shm"):
        os.link(f"{store}{end}", kept / f"shiftwork.db{end}")
    other = b"not the store that was there" * 100
    if how == "removed":
        store.unlink()
    else:
        (world.folder / "other").write_bytes(other)
        (world.folder / "other").replace(store)
    code = world.process.wait(40)
    flood.stop()
    said, world.process = world.said(), None
    assert code == 70, said
    assert "Traceback" not in said, said
    assert re.search("replaced or removed|not a database|damaged", said), said
    assert (store.read_bytes() == other) if how == "replaced" else not store.exists()
    taken = {flood.sent[delivery]: answer.id for delivery, answer in flood.told if answer.id}
    assert {answer.status for _, answer in flood.told} <= {200, 202, 503, None}
    world.state = kept
    there = dict(world.rows("SELECT body, id FROM items"))
    assert taken.items() <= there.items()


def test_a_reload_in_a_flood_loses_no_delivery_and_refuses_none(world):
    world.start()
    flood = Flood(world.hook, 8, fresh=40)
    flood.start()
    for number in range(3):
        seen = len(flood.told)
        world.send(signal.SIGHUP)
        world.until(lambda number=number: world.said().count("it is in force") > number)
        world.until(lambda seen=seen: len(flood.told) > seen + 20)
    flood.stop()
    world.handed |= dict.fromkeys(flood.sent.values(), world.hook.queue)
    assert {answer.status for _, answer in flood.told} == {200, 202}
    world.until_quiet(60)
    world.assert_whole()
    assert world.stop() == 0, world.said()
