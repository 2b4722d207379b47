"""What a day must count: the table of the alert rules, row by row, on a real store with one-minute evaluation.

Expected numbers are message minutes. Where a rule and a count disagreed the rule would stand; in these rows they agree.
"""

from __future__ import annotations

import pytest
from freezegun import freeze_time
from notify_world import PAGER, World

from notify.policy import Channel, Policy


@pytest.fixture
def frozen():
    with freeze_time("2026-03-02 00:00:00") as clock:
        yield clock


@pytest.fixture
def world(tmp_path, frozen):
    return World(tmp_path / "state")


def kinds(world):
    return [one.message.title for one in world.sent]


def test_a_condition_that_never_clears_sends_7(world, frozen):
    world.ask()
    world.run(frozen)
    assert world.minutes() == [60, 180, 420, 660, 900, 1140, 1380]
    assert "still unanswered" in kinds(world)[1]
    assert [title for title in kinds(world) if "still unanswered" in title] == [kinds(world)[1]]


@pytest.mark.parametrize("offset", range(8))
def test_a_daemon_killed_every_7_minutes_and_down_for_one_sends_the_same_7(world, frozen, offset):
    world.ask()
    world.run(frozen, alive=lambda minute: (minute + offset) % 8 != 7)
    expected = [60, 180, 420, 660, 900, 1140, 1380]
    assert len(world.sent) == 7
    late = [got - wanted for got, wanted in zip(world.minutes(), expected, strict=True)]
    assert all(0 <= one <= 2 for one in late), late
    assert len({one.message.id for one in world.sent}) == 7


def test_a_condition_that_clears_at_59_sends_nothing(world, frozen):
    flag = world.ask()
    world.run(frozen, at={59: lambda: world.answer(flag)})
    assert world.minutes() == []
    assert world.rows("outbox") == []


def test_a_condition_that_clears_at_300_sends_3(world, frozen):
    flag = world.ask()
    world.run(frozen, at={300: lambda: world.answer(flag)})
    assert world.minutes() == [60, 180, 310]
    assert "resolved" in kinds(world)[2]


def test_an_ack_at_70_leaves_1(world, frozen):
    world.ask()
    world.run(frozen, at={70: world.ack})
    assert world.minutes() == [60]


def test_an_ack_at_70_cleared_at_600_and_back_at_700_sends_6(world, frozen):
    flag = world.ask()
    world.run(frozen, at={70: world.ack, 600: lambda: world.answer(flag), 700: world.ask})
    assert world.minutes() == [60, 610, 760, 880, 1120, 1360]


def test_a_condition_that_flaps_30_on_30_off_sends_nothing(world, frozen):
    asked: list[str] = []
    events = {minute: lambda: asked.append(world.ask()) for minute in range(0, 1440, 60)}
    events |= {minute: lambda: world.answer(asked[-1]) for minute in range(30, 1440, 60)}
    world.run(frozen, at=events)
    assert len(asked) == 24
    assert world.minutes() == []


def test_a_channel_that_is_down_from_60_to_180_gets_6(world, frozen):
    """R1: both clocks start at the delivery at 180, not at the firing at 60. R9: the tries are 1, 2, 4 … apart."""
    world.ask()
    world.down = lambda minute: 60 <= minute < 180
    world.run(frozen)
    assert world.minutes() == [180, 300, 540, 780, 1020, 1260]
    assert len({one.message.id for one in world.sent}) == 6


def test_a_channel_that_is_down_all_day_leaves_exactly_1_row(world, frozen):
    world.ask()
    world.down = lambda minute: True
    world.run(frozen)
    assert world.minutes() == []
    rows = world.rows("outbox")
    assert [(row["state"], row["kind"], row["channel"]) for row in rows] == [("unsent", "firing", PAGER)]
    assert rows[0]["attempts"] == world.tries == 6 + (1440 - 1 - 90) // 30  # 60 61 63 67 75 90, then every 30


def test_30_nodes_that_cross_the_crash_limit_one_per_2_minutes_send_8(tmp_path, frozen):
    """R7. The row is derived without escalation; it speaks of grouping alone."""
    world = World(tmp_path / "state", Policy((Channel(PAGER, ("page",)),), escalate_s=None, flag_age_s=10**9))
    world.run(frozen, at={2 * number: lambda: world.ask(cause="crash") for number in range(30)})
    assert world.minutes() == [5, 35, 65, 305, 545, 785, 1025, 1265]
    assert "3 nodes crashed" in kinds(world)[0]
    assert "18 nodes crashed" in kinds(world)[1]
    assert "30 nodes crashed" in kinds(world)[2]
    assert "q-0001 node n-1, asked as f-0001" in world.sent[0].message.body
    assert "and 20 more" in world.sent[2].message.body
