"""Deliveries and kills: what was answered 202 is there, and what was sent again is there once (FIELD 14, 15).

Kills at the points of an accept are in ``test_crash_points``; here are those that no point names, and clients that die.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import pytest
from crash_world import CrashWorld
from hook_sender import Flood, Hook

KILLS = 4


@pytest.fixture
def world(tmp_path):
    made = CrashWorld(tmp_path, hook=Hook())
    yield made
    made.kill()


def test_a_kill_right_after_a_202_loses_nothing_and_a_redelivery_is_the_same_item(world):
    for number in range(KILLS):
        world.start()
        body, delivery = f"answer right after {number}", f"msg-{number}"
        first = world.deliver(body, delivery)
        os.kill(world.process.pid, signal.SIGKILL)
        assert first.status == 202
        world.until_dead()
        assert world.rows("SELECT id FROM items WHERE body = ?", body) == [(first.id,)]
        world.start()
        assert world.redeliver(body, delivery) == first.id
        world.until_quiet()
        world.kill()
    world.assert_whole()
    assert world.value("SELECT count(*) FROM items") == KILLS


def test_a_kill_in_a_flood_keeps_each_202_and_everything_else_is_sent_again_into_one_item(world):
    """Sixteen connections; batches, answers and requests are under way when the daemon dies."""
    chance = random.Random(7)
    for number in range(3):
        world.start()
        flood = Flood(world.hook, 16, fresh=20 * (number + 1))
        flood.start()
        world.until(lambda flood=flood: len(flood.told) > 10)
        time.sleep(chance.uniform(0, 0.1))  # the moment of the kill, not a proof of anything
        os.kill(world.process.pid, signal.SIGKILL)
        flood.stop()
        world.until_dead()
        there = dict(world.rows("SELECT body, id FROM items"))
        for delivery, answer in flood.told:
            if answer.status in (200, 202):
                assert there.get(flood.sent[delivery]) == answer.id
        world.start()
        for delivery, body in flood.sent.items():
            item = world.redeliver(body, delivery)
            assert there.get(body, item) == item
        world.until_quiet(60)
        world.assert_whole()
        world.kill()


def test_a_sender_whose_connection_died_before_the_answer_ends_with_one_item(world):
    """It hangs up at every stage of a request, then delivers again as its kind does."""
    world.start()
    shares = [0.0, 0.05, 0.5, 0.9, 0.99, 1.0, 1.0, 1.0]
    for number, share in enumerate(shares):
        world.hook.hang_up(f"answer cut {number}", f"cut-{number}", share)
    for number in range(len(shares)):
        world.redeliver(f"answer cut {number}", f"cut-{number}")
    world.until_quiet()
    world.assert_whole()
    assert world.value("SELECT count(*) FROM items") == len(shares)
    assert world.stop() == 0, world.said()


def test_the_same_delivery_over_many_connections_at_once_is_one_item(world):
    world.start()
    told = []
    start = threading.Barrier(12)

    def send() -> None:
        start.wait()
        told.append(world.deliver("answer at once", "at-once"))

    threads = [threading.Thread(target=send) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status for answer in told) == [200] * 11 + [202]
    assert len({answer.id for answer in told}) == 1
    world.until_quiet()
    world.assert_whole()


def test_a_stop_in_a_flood_answers_what_it_takes_and_takes_nothing_else(world):
    """SIGTERM: each 202 is in the store, what had no answer is sent again into one item, the exit is clean."""
    world.start()
    flood = Flood(world.hook, 16, fresh=60)
    flood.start()
    world.until(lambda: len(flood.told) > 40)
    world.send(signal.SIGTERM)
    code = world.process.wait(40)
    flood.stop()
    said = world.said()
    world.process = None
    assert code == 0, said
    assert "Traceback" not in said, said
    assert {answer.status for _, answer in flood.told} <= {200, 202, 503, None}
    there = dict(world.rows("SELECT body, id FROM items"))
    taken = {flood.sent[delivery]: answer.id for delivery, answer in flood.told if answer.id}
    assert taken.items() <= there.items()
    world.start()
    for delivery, body in flood.sent.items():
        item = world.redeliver(body, delivery)
        assert there.get(body, item) == item
    world.until_quiet(60)
    world.assert_whole()
    assert world.value("SELECT count(*) FROM items") == len(flood.sent)
