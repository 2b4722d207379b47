"""A random day and a half: whatever people, channels and clocks do, the promises about messages hold."""

from __future__ import annotations

import random
import time

import pytest
from freezegun import freeze_time
from notify_world import DESK, PAGER, World

from notify.policy import Channel, Policy
from store.errors import Conflict, NotFound

CHANNELS = (Channel(PAGER, ("page",)), Channel(DESK, ("page", "ticket")))


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_the_promises_about_messages_hold(tmp_path, seed):
    dice = random.Random(seed)
    with freeze_time("2026-03-02 00:00:00") as frozen:
        world = World(
            tmp_path / "state", Policy(CHANNELS, flag_age_s=1800.0, repeat_s=5400.0, escalate_s=3600.0)
        )
        waiting: list[str] = []
        down: set[str] = set()
        told: dict[tuple[str, str], bool] = {}

        def deliver(channel, message):
            return world.deliver(channel, message)._replace(delivered=channel not in down)

        for _ in range(900):
            _something(world, waiting, down, frozen, dice)
            world.pager._deliver = deliver
            before = len(world.sent)
            world.pager.turn()
            _check(world.sent[before:], told, down)
            frozen.tick(60)

        down.clear()
        for flag in waiting:
            world.answer(flag)
        for _ in range(60):
            world.pager.turn()
            frozen.tick(60)
        assert world.pager.turn() is None
        assert world.rows("outbox") == []
        assert {row["state"] for row in world.rows("alerts")} == {"ok"}
        assert world.sent


def _something(world, waiting, down, frozen, dice):
    """What happens in this minute, mostly nothing."""
    chance = dice.random()
    if chance < 0.03:
        waiting.append(world.ask(dice.choice(["a", "b"]), cause=dice.choice(["decision", "crash"])))
    elif chance < 0.06 and waiting:
        world.answer(waiting.pop(dice.randrange(len(waiting))))
    elif chance < 0.07:
        down ^= {dice.choice([PAGER, DESK])}
    elif chance < 0.08:
        world.open()
    elif chance < 0.09:
        _ack(world, dice.choice(["flag_age:a", "flag_age:b", "crash:a", "crash:b"]), dice)
    elif chance < 0.092:
        frozen.tick(dice.choice([-7200, -600, 600, 7200, 86400]))


def _check(sent, told, down):
    spoken: set[tuple[str, str]] = set()
    for one in sent:
        if one.channel in down:
            continue
        key = one.message.body.split(" · ")[1 if "resolved" in one.message.title else 2].split("\n")[0]
        where = (one.channel, key)
        assert where not in spoken, "two messages for one alert in one evaluation"
        spoken.add(where)
        if "resolved" in one.message.title:
            assert told.get(where), "resolved where nothing was told"
            told[where] = False
        else:
            told[where] = True


def _ack(world, alert, dice):
    try:
        world.store.alerts.ack(alert, by="anna", for_s=dice.choice([600, 7200, 86400]), now=time.time())
    except (Conflict, NotFound):
        return
