"""The alert rules one by one, on a real store with a clock that is moved by hand."""

from __future__ import annotations

import time

import pytest
from freezegun import freeze_time
from notify_world import DESK, PAGER, World

from notify.evaluate import evaluate
from notify.policy import Channel, Policy
from notify.sender import Outcome
from store.errors import Conflict, NotFound, UsageProblem

BOTH = (Channel(PAGER, ("page",)), Channel(DESK, ("page", "ticket")))


@pytest.fixture
def frozen():
    with freeze_time("2026-03-02 00:00:00") as clock:
        yield clock


@pytest.fixture
def world(tmp_path, frozen):
    return World(tmp_path / "state")


def commits(world):
    return world.rows("commits")[0]["seq"]


def look(world):
    """Evaluate without sending."""
    return evaluate(world.store, world.policy, owner="looker", now=time.time())


# Nothing to do


def test_with_nothing_up_nothing_is_written_and_nothing_falls_due(world, frozen):
    before = commits(world)
    assert world.pager.turn() is None
    flag = world.ask()
    world.run(frozen, 90)
    world.answer(flag)
    world.run(frozen, 30)
    assert world.minutes() == [60, 100]
    before = commits(world)
    assert world.pager.turn() is None
    assert commits(world) == before


def test_between_two_notices_nothing_is_written(world, frozen):
    world.ask()
    world.run(frozen, 62)
    before = commits(world)
    world.run(frozen, 100)
    assert commits(world) == before
    assert world.pager.turn() == time.time() + 60


def test_the_next_look_is_when_the_oldest_flag_crosses_and_never_later_than_a_minute(world, frozen):
    world.ask()
    assert world.pager.turn() == time.time() + 60
    frozen.tick(3600 - 7)
    assert world.pager.turn() == time.time() + 7


def test_a_parked_flag_does_not_count(world, frozen):
    flag = world.ask()
    with world.store.db.write(point="people.resolve") as conn:
        conn.execute("UPDATE flags SET state = 'parked', parked_until_at = 1e12 WHERE id = ?", (flag,))
    world.run(frozen, 90)
    assert world.minutes() == []


def test_an_answered_flag_hands_the_age_to_the_next_oldest(world, frozen):
    first = world.ask()
    world.run(frozen, 61, at={20: world.ask, 40: lambda: world.answer(first)})
    assert world.minutes() == []
    world.run(frozen, 30)
    assert world.minutes() == [80]


# R2, R3


def test_resolved_goes_only_where_the_firing_notice_arrived(tmp_path, frozen):
    """R3, with one channel that is down all the while."""
    world = World(tmp_path / "state", Policy(BOTH))
    world.pager._deliver = _down_for(DESK, world.deliver)
    flag = world.ask()
    world.run(frozen, 200, at={90: lambda: world.answer(flag)})
    assert world.minutes(PAGER) == [60, 100]
    assert world.minutes(DESK) == []
    assert world.rows("outbox") == []


def test_a_newer_notice_replaces_the_unsent_one_and_keeps_its_backoff(world, frozen):
    """R2: the escalation at 180 cannot be sent; the resolved that follows waits where the escalation waited."""
    flag = world.ask()
    world.down = lambda minute: 100 <= minute < 230
    world.run(frozen, 204, at={190: lambda: world.answer(flag)})
    rows = world.rows("outbox")
    assert [(row["kind"], row["attempts"], world.minute()) for row in rows] == [("resolved", 5, 204)]
    assert rows[0]["number"] > 2
    world.run(frozen, 60)
    assert world.minutes() == [60, 240]  # 180 181 183 187 195 210 240
    assert "resolved" in world.sent[1].message.title


def test_a_clear_that_nobody_can_be_told_of_is_given_up_after_a_day(world, frozen):
    flag = world.ask()
    world.down = lambda minute: minute > 61
    world.run(frozen, 100, at={62: lambda: world.answer(flag)})
    assert [row["kind"] for row in world.rows("outbox")] == ["resolved"]
    world.run(frozen, 25 * 60)
    assert world.rows("outbox") == []
    assert world.pager.turn() is None


# R4


def test_a_flag_that_comes_after_the_ack_starts_a_new_episode_at_its_own_limit(world, frozen):
    world.ask()
    world.run(frozen, 24 * 60, at={70: world.ack, 100: world.ask})
    assert world.minutes() == [60, 160, 280, 520, 760, 1000, 1240]


def test_an_ack_covers_what_waited_then_even_if_it_crosses_later(world, frozen):
    world.ask()
    world.run(frozen, 300, at={50: world.ask, 70: world.ack})
    assert world.minutes() == [60]


def test_a_flag_that_was_parked_at_the_ack_and_comes_back_is_not_covered(world, frozen):
    parked = world.ask()
    with world.store.db.write(point="people.resolve") as conn:
        conn.execute("UPDATE flags SET state = 'parked', parked_until_at = 1e12 WHERE id = ?", (parked,))

    def back():
        with world.store.db.write(point="people.resolve") as conn:
            conn.execute(
                "UPDATE flags SET state = 'waiting', parked_until_at = NULL, waiting_since_at = ? WHERE id = ?",
                (time.time(), parked),
            )

    world.ask()
    world.run(frozen, 200, at={70: world.ack, 90: back})
    assert world.minutes() == [60, 150]


def test_a_flag_whose_commit_came_after_the_ack_is_not_covered_though_its_time_is_older(world, frozen):
    """A session reads the clock before it commits; the person who acked cannot have seen that flag."""
    world.ask()
    world.run(frozen, 200, at={70: world.ack, 71: lambda: world.ask(at=time.time() - 90)})
    assert world.minutes() == [60, 130]


def test_when_the_ack_ends_and_it_still_fires_it_is_told_again(world, frozen):
    world.ask()
    world.run(frozen, 24 * 60, at={70: lambda: world.ack(for_s=4 * 3600)})
    assert world.minutes() == [60, 310, 550, 790, 1030, 1270]


def test_an_ack_by_the_id_in_the_message_is_the_same_ack(world, frozen):
    world.ask()
    world.run(frozen, 62)
    world.ack(world.sent[0].message.id)
    world.run(frozen, 300)
    assert world.minutes() == [60]


def test_an_ack_needs_an_alert_that_fires_and_an_end(world, frozen):
    world.ask()
    with pytest.raises(NotFound, match="no alert flag_age:questions"):
        world.ack()
    world.run(frozen, 3)
    with pytest.raises(Conflict, match="flag_age:questions is not firing"):
        world.ack()
    for odd in ("E-", "E-99", "E-x", "E-" + "9" * 40, "E-٣", ""):
        with pytest.raises(NotFound):
            world.ack(odd)
    world.run(frozen, 60)
    for for_s in (0, -1, 24 * 3600 + 1, float("nan")):
        with pytest.raises(UsageProblem, match="at most 24 h"):
            world.ack(for_s=for_s)


def test_an_ack_before_the_notice_was_sent_cancels_it(world, frozen):
    world.ask()
    world.down = lambda minute: minute < 65
    world.run(frozen, 64)
    world.ack()
    assert world.rows("outbox") == []
    world.run(frozen, 300)
    assert world.minutes() == []


def test_an_ack_between_the_state_change_and_the_claim_cancels_the_send(world, frozen):
    """R10: the claim looks at the alert in its own transaction."""
    world.ask()
    frozen.tick(3600)
    look(world)
    (message,) = world.store.alerts.outbox.due(owner="sender", now=time.time())
    with world.store.db.write(
        point="notify.ack"
    ) as conn:  # an ack that commits just now, its cleaning still to come
        conn.execute(
            "UPDATE alerts SET acked_at = ?, acked_until_at = ?, acked_by = 'anna', version = version + 1",
            (time.time(), time.time() + 3600),
        )
    assert world.store.alerts.outbox.claim(message.number, owner="sender", mark=0, now=time.time()) is None
    assert world.rows("outbox") == []


def test_an_ack_while_the_message_is_under_way_keeps_it_from_being_tried_again(world, frozen):
    world.ask()
    frozen.tick(3600)
    look(world)
    (message,) = world.store.alerts.outbox.due(owner="sender", now=time.time())
    claimed = world.store.alerts.outbox.claim(message.number, owner="sender", mark=0, now=time.time())
    world.ack()
    world.store.alerts.outbox.record_failed(
        claimed.message, owner="sender", failure="no", now=time.time(), retry_at=time.time()
    )
    world.run(frozen, 200)
    assert world.minutes() == []


# R7


def test_an_acked_crash_is_told_again_when_another_node_crosses(world, frozen):
    world.ask(cause="crash")
    world.run(frozen, 55, at={20: lambda: world.ack("crash:questions"), 40: lambda: world.ask(cause="crash")})
    assert world.minutes() == [5, 45]


def test_a_crash_that_is_answered_within_the_wait_is_not_told(world, frozen):
    flag = world.ask(cause="crash")
    world.run(frozen, 55, at={3: lambda: world.answer(flag)})
    assert world.minutes() == []


# R11, clocks


@pytest.mark.parametrize("jump_s", [600, 7200, 10 * 86400])
def test_a_clock_that_jumps_forward_makes_one_message(world, frozen, jump_s):
    world.ask()
    frozen.tick(60)
    world.pager.turn()
    frozen.tick(3600 + jump_s)
    for _ in range(5):
        world.pager.turn()
    assert len(world.sent) == 1
    frozen.tick(10 * 86400)  # escalation and forty repeats are overdue now
    for _ in range(5):
        world.pager.turn()
    assert len(world.sent) == 2
    assert "still unanswered" in world.sent[1].message.title


def test_a_clock_set_back_delays_nothing_by_its_jump(world, frozen):
    world.ask()
    world.run(frozen, 62)
    assert len(world.sent) == 1
    frozen.move_to("2026-03-01 00:00:00")  # a day back
    with world.store.db.write(point="people.resolve") as conn:
        conn.execute("UPDATE flags SET waiting_since_at = ?", (time.time() - 7200,))
    world.start = time.time()
    world.run(frozen, 300)
    assert world.minutes()[1:] == [120]
    frozen.tick(-10 * 86400)  # now the flag was asked in the future: it still waits, so nothing is resolved
    world.run(frozen, 20)
    assert len(world.sent) == 2


def test_an_ack_keeps_its_length_when_the_clock_is_set_back(world, frozen):
    world.ask(at=time.time() - 30 * 86400)
    world.run(frozen, 3)
    world.ack(for_s=3600)
    frozen.tick(-86400)
    world.start = time.time()
    world.sent.clear()
    world.run(frozen, 140)
    assert world.minutes() == [120]  # the escalation clock began anew, too


def test_a_backoff_from_before_the_clock_was_set_back_ends(world, frozen):
    world.ask(at=time.time() - 30 * 86400)
    world.down = lambda minute: True
    world.run(frozen, 100)
    frozen.tick(-86400)
    world.down = lambda minute: False
    world.run(frozen, 3)
    assert len(world.sent) == 1


# R13


def test_a_reload_that_reorders_services_sends_nothing_again(tmp_path, frozen):
    world = World(tmp_path / "state", Policy(BOTH))
    world.ask()
    world.run(frozen, 62)
    assert world.minutes() == [60, 60]
    world.pager.policy = Policy(BOTH[::-1])
    world.run(frozen, 30)
    world.policy = world.pager.policy
    world.open()
    world.run(frozen, 30)
    assert world.minutes() == [60, 60]


def test_a_service_that_joins_while_it_fires_is_told_once(tmp_path, frozen):
    world = World(tmp_path / "state", Policy(BOTH[:1]))
    world.ask()
    world.run(frozen, 90)
    world.pager.policy = Policy(BOTH)
    world.run(frozen, 20)
    assert world.minutes(PAGER) == [60]
    assert world.minutes(DESK) == [90]


def test_a_service_that_leaves_takes_its_unsent_message_with_it(tmp_path, frozen):
    world = World(tmp_path / "state", Policy(BOTH))
    world.pager._deliver = _down_for(DESK, world.deliver)
    world.ask()
    world.run(frozen, 62)
    assert [row["channel"] for row in world.rows("outbox")] == [DESK]
    world.pager.policy = Policy(BOTH[:1])
    world.run(frozen, 5)
    assert world.rows("outbox") == []
    assert world.minutes() == [60]


def test_retention_of_the_log_sends_nothing_again(world, frozen):
    world.ask()
    world.run(frozen, 70)
    with world.store.db.write(point="events.note") as conn:
        conn.execute("DELETE FROM events")
    world.open()
    world.run(frozen, 70)
    assert world.minutes() == [60]


# Tags


def test_without_any_service_alerts_are_tracked_all_the_same(tmp_path, frozen):
    world = World(tmp_path / "state", Policy())
    world.ask()
    world.run(frozen, 70)
    assert [(row["key"], row["state"]) for row in world.rows("alerts")] == [("flag_age:questions", "firing")]
    assert world.rows("outbox") == []


def test_pages_and_tickets_go_where_their_tags_say(tmp_path, frozen):
    world = World(tmp_path / "state", Policy((Channel(PAGER, ("page",)), Channel(DESK, ("ticket",)))))
    world.ask()
    world.store.alerts.raise_problem(
        "rejected:questions", queue="questions", kind="rejected", detail="a.md: not UTF-8", now=time.time()
    )
    world.run(frozen, 62)
    assert world.minutes(DESK) == [0]
    assert world.minutes(PAGER) == [60]


# Problems


def test_refusals_without_end_make_one_ticket_every_repeat_interval(tmp_path, frozen):
    world = World(tmp_path / "state", Policy(BOTH))

    def refuse():
        world.store.alerts.raise_problem(
            "rejected:questions", queue="questions", kind="rejected", detail="a.md: empty", now=time.time()
        )

    world.run(frozen, 24 * 60, at=dict.fromkeys(range(0, 600, 7), refuse))
    assert world.minutes() == [0, 240, 480, 720]
    assert "35 inputs were refused" in world.sent[1].message.title
    assert world.rows("problems") == []  # forgotten, so that the next refusal counts from 1
    refuse()
    world.run(frozen, 5)
    assert world.minutes()[-1] == 1440
    assert "1 input was refused" in world.sent[-1].message.title


def test_one_refusal_is_one_message_and_its_end_is_none(tmp_path, frozen):
    world = World(tmp_path / "state", Policy(BOTH))
    world.store.alerts.raise_problem(
        "rejected:questions",
        queue="questions",
        kind="rejected",
        detail="a\x1b[31m.md: empty",
        now=time.time(),
    )
    world.run(frozen, 600)
    assert world.minutes() == [0]
    assert "\x1b" not in world.sent[0].message.body
    assert world.pager.turn() is None


@pytest.mark.parametrize("kind", ["missing", "disk"])
def test_an_inbox_that_takes_nothing_for_a_minute_is_a_page_and_its_return_is_told(tmp_path, frozen, kind):
    world = World(tmp_path / "state", Policy(BOTH))
    alerts = world.store.alerts

    def gone():
        alerts.raise_problem(
            f"inbox:questions {kind}",
            queue="questions",
            kind=kind,
            detail="inbox is gone",
            now=time.time(),
        )

    world.run(
        frozen,
        60,
        at=dict.fromkeys(range(10, 30), gone) | {30: lambda: alerts.clear_problem(f"inbox:questions {kind}")},
    )
    assert world.minutes(PAGER) == world.minutes(DESK) == [11, 40]


def test_a_ticket_that_becomes_a_page_is_told_at_once(tmp_path, frozen):
    world = World(tmp_path / "state", Policy((Channel(PAGER, ("page",)), Channel(DESK, ("ticket",)))))
    alerts = world.store.alerts
    alerts.raise_problem(
        "inbox:questions unstable", queue="questions", kind="unstable", detail="big.md grows", now=time.time()
    )
    world.run(
        frozen,
        60,
        at={
            5: lambda: alerts.ack("inbox:questions", by="anna", now=time.time()),
            10: lambda: alerts.raise_problem(
                "inbox:questions missing", queue="questions", kind="missing", detail="gone", now=time.time()
            ),
        },
    )
    assert world.minutes(DESK) == [0]
    assert world.minutes(PAGER) == [11]


def test_a_standing_problem_is_written_once(world, frozen):
    def raised(detail):
        return world.store.alerts.raise_problem(
            "store:full", queue=None, kind="full", detail=detail, now=time.time()
        )

    assert raised("disk full")
    before = commits(world)
    assert not raised("disk full")
    assert not world.store.alerts.clear_problem("store:other")
    assert commits(world) == before
    assert raised("disk full, 0 bytes left")
    world.run(frozen, 1)
    assert "the store: disk full, 0 bytes left" in world.sent[0].message.title


def test_messages_hold_ids_counts_and_commands_and_no_words_of_the_work(world, frozen):
    world.ask()
    world.ask(cause="crash")
    world.run(frozen, 70)
    text = "\n".join(one.message.title + "\n" + one.message.body for one in world.sent)
    assert "secret words" not in text
    assert "2 flags wait in queue questions, the oldest for 1h" in text
    assert "shiftwork resolve f-0002 --option N" in text
    assert "shiftwork ack flag_age:questions" in text


# Cost


def test_a_minute_of_a_store_full_of_answered_flags_reads_only_those_that_wait(world, frozen):
    """The plan of the two hot queries: the index of waiting flags, never the whole table."""
    world.ask(cause="crash")
    plans = []
    with world.store.db.read() as conn:
        seen: list[str] = []
        conn.set_trace_callback(seen.append)
        world.store.alerts.facts(now=time.time(), flag_age_s=60)
        conn.set_trace_callback(None)
        for statement in [one for one in seen if "FROM flags" in one]:
            plans += [row["detail"] for row in conn.execute(f"EXPLAIN QUERY PLAN {statement}")]
    assert len(plans) >= 2
    assert all("flags_waiting" in plan for plan in plans if "flags" in plan), plans


def _down_for(name, deliver):
    def one(channel, message):
        return Outcome(delivered=False, words="down") if channel == name else deliver(channel, message)

    return one
