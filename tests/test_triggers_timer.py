"""Timers: cron as cron means it, through changes of the clock; one run after sleep and downtime (FIELD 30)."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triggers_world import make_world, python

from store.errors import CapReached
from store.points import POINTS
from triggers import cron, ticks
from triggers.ticks import TimerSpec, cron_problem, next_times
from triggers.timer import TimerTrigger

BERLIN = "Europe/Berlin"


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def times(line: str, start: str, count: int = 3, zone: str = BERLIN) -> list[str]:
    spec = TimerSpec("t", ("q",), cron=line, timezone=zone)
    found = next_times(spec, now=at(start), count=count)
    return [datetime.fromtimestamp(one, ZoneInfo(zone)).isoformat(timespec="minutes") for one in found]


# weekdays


@pytest.mark.parametrize("line", ["0 0 * * 0", "0 0 * * 7", "0 0 * * sun", "0 0 * * SUN", "@weekly"])
def test_weekday_0_and_7_are_sunday(line):
    assert times(line, "2026-01-01T00:00+01:00", 2) == ["2026-01-04T00:00+01:00", "2026-01-11T00:00+01:00"]


def test_weekday_ranges_count_from_sunday_too():
    assert times("0 12 * * 1-5", "2026-01-02T13:00+01:00", 2) == [
        "2026-01-05T12:00+01:00",
        "2026-01-06T12:00+01:00",
    ]
    assert times("0 12 * * 5-7", "2026-01-01T00:00+01:00", 3) == [
        "2026-01-02T12:00+01:00",
        "2026-01-03T12:00+01:00",
        "2026-01-04T12:00+01:00",
    ]
    assert times("0 12 * * */3", "2026-01-01T00:00+01:00", 3) == [
        "2026-01-03T12:00+01:00",  # Saturday, 6
        "2026-01-04T12:00+01:00",  # Sunday, 0
        "2026-01-07T12:00+01:00",  # Wednesday, 3
    ]


def test_a_range_of_weekdays_may_end_on_sunday():
    assert cron.parse("0 0 * * mon-sun").weekdays == frozenset(range(7))
    assert cron.parse("0 0 * * sat-sun").weekdays == {6, 0}
    assert cron.parse("0 0 * * sun-mon").weekdays == {0, 1}


def test_a_day_or_a_weekday_is_enough():
    """Cron's own rule: Friday and the 13th, not only Friday the 13th."""
    assert times("0 0 13 * 5", "2026-04-01T00:00+02:00", 4) == [
        "2026-04-03T00:00+02:00",
        "2026-04-10T00:00+02:00",
        "2026-04-13T00:00+02:00",
        "2026-04-17T00:00+02:00",
    ]


# the clock is changed


def test_spring_a_time_that_is_skipped_fires_once_an_hour_later():
    assert times("30 2 * * *", "2026-03-28T03:00+01:00") == [
        "2026-03-29T03:30+02:00",
        "2026-03-30T02:30+02:00",
        "2026-03-31T02:30+02:00",
    ]


def test_autumn_a_time_that_comes_twice_fires_once_at_its_first_coming():
    assert times("30 2 * * *", "2026-10-24T03:00+02:00") == [
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
        "2026-10-27T02:30+01:00",
    ]


def test_spring_an_hourly_line_follows_real_time():
    assert times("30 * * * *", "2026-03-29T01:00+01:00") == [
        "2026-03-29T01:30+01:00",
        "2026-03-29T03:30+02:00",
        "2026-03-29T04:30+02:00",
    ]


def test_autumn_an_hourly_line_fires_in_both_hours():
    assert times("30 * * * *", "2026-10-25T02:00+02:00") == [
        "2026-10-25T02:30+02:00",
        "2026-10-25T02:30+01:00",
        "2026-10-25T03:30+01:00",
    ]


def test_a_minutely_line_has_neither_gap_nor_double_in_real_time():
    for start in ("2026-03-29T00:30+01:00", "2026-10-25T01:30+02:00"):
        spec = TimerSpec("t", ("q",), cron="*/10 * * * *", timezone=BERLIN)
        found = next_times(spec, now=at(start), count=24)
        assert {later - earlier for earlier, later in pairwise(found)} == {600.0}


def test_the_key_of_a_planned_instant_is_in_utc():
    spec = TimerSpec(
        "nightly", ("a", "b"), cron="30 2 * * *", timezone="UTC", body="What changed?", title="Night"
    )
    planned = ticks.last_until(spec, at("2026-03-29T05:00+00:00"))
    handed = ticks.items(spec, planned)
    assert [(one.queue, one.key, one.title, one.body, one.door, one.origin) for one in handed] == [
        ("a", "nightly@2026-03-29T02:30:00Z", "Night", "What changed?", "timer", "nightly"),
        ("b", "nightly@2026-03-29T02:30:00Z", "Night", "What changed?", "timer", "nightly"),
    ]


@pytest.mark.parametrize(
    "zone", [BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia"]
)
@given(
    line=st.sampled_from(
        ["30 2 * * *", "*/20 * * * *", "15 0,23 * * 1", "7 */5 1,15 * *", "0 1-3 * * *", "59 23 * * *"]
    ),
    now=st.floats(min_value=1.3e9, max_value=1.9e9),
)
def test_next_and_last_agree_and_nothing_lies_between(zone, line, now):
    parsed, here = cron.parse(line), ZoneInfo(zone)
    following = cron.next_after(parsed, here, now)
    previous = cron.last_until(parsed, here, now)
    assert previous <= now < following
    assert cron.next_after(parsed, here, previous) == following
    assert cron.last_until(parsed, here, following) == following


def test_the_29th_of_february_is_found_over_a_year_that_leaps_not():
    assert times("0 0 29 2 *", "2096-03-01T00:00+00:00", 1, "UTC") == ["2104-02-29T00:00+00:00"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0 2 * *", "4 fields, cron needs 5 (minute hour day month weekday)"),
        ("hourly", "1 field, cron needs 5 (minute hour day month weekday)"),
        ("0 0 * * * *", "6 fields, cron needs 5 (minute hour day month weekday)"),
        ("60 * * * *", "minute: 60 is outside 0-59"),
        ("* 24 * * *", "hour: 24 is outside 0-23"),
        ("* * 0 * *", "day: 0 is outside 1-31"),
        ("* * * * 8", "weekday: 8 is outside 0-7"),
        ("* * * foo *", 'month: "foo" is not a number or one of jan, feb'),
        ("5-1 * * * *", 'minute: "5-1" runs backwards'),
        ("*/0 * * * *", 'minute: "*/0" needs a step such as */5'),
        ("1, * * * *", 'minute: "" is not a number'),
        ("0 0 31 2,4 *", "no month of 2,4 has a day 31: it would never fire"),
    ],
)
def test_a_cron_line_that_is_off_is_told_by_field(line, words):
    assert words in cron_problem(line, "UTC")


def test_a_good_line_has_no_problem_and_an_unknown_zone_has():
    assert cron_problem("*/15 8-18 * jan-mar mon-fri", BERLIN) is None
    assert "Mars/Olympus" in cron_problem("* * * * *", "Mars/Olympus")


# every


def test_every_ticks_at_multiples_since_the_epoch_so_that_a_restart_plans_the_same():
    spec = TimerSpec("t", ("q",), every=90.0)
    assert next_times(spec, now=1000.0, count=2) == [1080.0, 1170.0]
    assert ticks.last_until(spec, 1080.0) == 1080.0


# ticks and marks


def test_a_first_start_has_missed_nothing(tmp_path):
    world = make_world(tmp_path)
    spec = TimerSpec("t", ("questions",), every=60.0, body="tick")
    assert (
        list(ticks.run_due([spec], world.intake, world.db.state_dir, now=1000.0, caps={"questions": 9})) == []
    )
    assert ticks.read_mark(spec, world.db.state_dir) == 1000.0


def test_downtime_over_many_instants_makes_one_item_for_the_latest(tmp_path):
    world = make_world(tmp_path)
    spec = TimerSpec("t", ("questions",), every=60.0, body="tick")

    def run(now):
        return list(ticks.run_due([spec], world.intake, world.db.state_dir, now=now, caps={"questions": 9}))

    run(1000.0)
    assert [one.key for one in run(10_000.0)] == [f"t@{ticks.instant_text(9960.0)}"]
    assert run(10_010.0) == []
    assert len(world.items()) == 1


def test_a_kill_between_the_item_and_its_mark_makes_no_second_item(tmp_path):
    world = make_world(tmp_path)
    spec = TimerSpec("t", ("questions",), every=60.0, body="tick")
    ticks.mark(spec, world.db.state_dir, 1000.0)
    code = (
        "import sys; from pathlib import Path; from triggers_world import open_world; from triggers import ticks\n"
        "world = open_world(Path(sys.argv[1]))\n"
        "spec = ticks.TimerSpec('t', ('questions',), every=60.0, body='tick')\n"
        "print(list(ticks.run_due([spec], world.intake, world.db.state_dir, now=10_000.0, caps={'questions': 9})))"
    )
    for place in ("intake.before", "intake.after", "timer.mark.before", "timer.mark.after"):
        assert place.rpartition(".")[0] in POINTS
        assert python(code, str(tmp_path), env={"SHIFTWORK_CRASH_AT": place}).returncode in {-9, 0}
    assert python(code, str(tmp_path)).returncode == 0
    assert len(world.items()) == 1
    assert ticks.read_mark(spec, world.db.state_dir) == 9960.0


def test_a_timer_without_an_item_writes_nothing(tmp_path):
    world = make_world(tmp_path)
    before = sorted(world.folder.rglob("*"))
    spec = TimerSpec("t", ("questions",), every=60.0)
    assert (
        list(ticks.run_due([spec], world.intake, world.db.state_dir, now=1000.0, caps={"questions": 9})) == []
    )
    assert sorted(world.folder.rglob("*")) == before


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf"])
def test_a_mark_that_cannot_be_read_counts_as_a_first_start(tmp_path, text):
    world = make_world(tmp_path)
    spec = TimerSpec("t", ("questions",), every=60.0, body="tick")
    ticks.mark(spec, world.db.state_dir, 1.0)
    (world.db.state_dir / "timers" / "t").write_text(text)
    assert ticks.due(spec, world.db.state_dir, 5000.0) is None


# the running trigger


class Clock:
    """A wall clock that can be moved."""

    def __init__(self):
        self.shift = 0.0

    def __call__(self):
        return time.time() + self.shift


@asynccontextmanager
async def running(world, *timers, clock=time.time, hand_in=None):
    woken: list[tuple[tuple[str, ...], str]] = []
    said: list[str] = []

    async def store(batch):
        return world.intake.hand_in(batch, now=time.time(), caps={"questions": 100})

    def wake(queues, *, why):
        woken.append((tuple(queues), why))

    with ThreadPoolExecutor(1) as executor:
        trigger = TimerTrigger(
            timers, state_dir=world.db.state_dir, executor=executor, said=said.append, clock=clock
        )
        await trigger.start(wake, hand_in or store)
        trigger.woken, trigger.said_lines = woken, said
        yield trigger
        await trigger.stop()
        if trigger.failed.done() and not trigger.failed.cancelled():
            trigger.failed.result()


def test_it_ticks_on_time_wakes_its_queues_and_hands_in_one_item_each(tmp_path):
    world = make_world(tmp_path)

    async def story():
        tick = TimerSpec("tick", ("questions",), every=1.0, body="tick")
        wakes = TimerSpec("wakes", ("questions", "letters"), every=1.0)
        async with running(world, tick, wakes) as trigger:
            await asyncio.sleep(2.6)
        assert 2 <= trigger.woken.count((("questions",), "timer tick")) <= 3
        assert 2 <= trigger.woken.count((("questions", "letters"), "timer wakes")) <= 3
        count = len(trigger.woken)
        await asyncio.sleep(1.2)
        assert len(trigger.woken) == count  # stopped

    asyncio.run(story())
    assert 2 <= len(world.items()) <= 3
    keys = [row[0] for row in world.rows("SELECT key FROM items ORDER BY seq")]
    assert len(set(keys)) == len(keys)


def test_a_stopped_and_started_daemon_makes_up_with_one_run(tmp_path):
    world = make_world(tmp_path)

    async def story():
        tick = TimerSpec("tick", ("questions",), every=3600.0, body="tick")
        async with running(world, tick):
            pass
        assert world.items() == []
        ticks.mark(tick, world.db.state_dir, time.time() - 10 * 3600)
        async with running(world, tick):
            pass
        async with running(world, tick):
            pass

    asyncio.run(story())
    assert len(world.items()) == 1


def test_sleep_over_many_instants_makes_one_run(tmp_path):
    """The scheduler sees a wall clock far ahead, as after a suspend: ``_Planned`` skips what has passed."""
    from triggers.timer import _Planned

    planned = _Planned(TimerSpec("t", ("q",), every=60.0))
    first = planned.get_next_fire_time(None, datetime.fromtimestamp(1000.0, UTC))
    assert first.timestamp() == 1020.0
    later = planned.get_next_fire_time(first, datetime.fromtimestamp(100_000.0, UTC))
    assert later.timestamp() == 100_020.0


def test_a_full_queue_is_said_once_and_tried_again(tmp_path, monkeypatch):
    world = make_world(tmp_path)
    monkeypatch.setattr("triggers.timer.RETRY_S", 0.3)
    tries = []

    async def full(batch):
        tries.append(batch)
        if len(tries) < 3:
            raise CapReached("queue is full", queue="questions")
        return world.intake.hand_in(batch, now=time.time(), caps={"questions": 100})

    async def story():
        tick = TimerSpec("tick", ("questions",), every=3600.0, body="tick")
        ticks.mark(tick, world.db.state_dir, time.time() - 2 * 3600)
        async with running(world, tick, hand_in=full) as trigger:
            await asyncio.sleep(1.5)
        assert len(trigger.said_lines) == 1

    asyncio.run(story())
    assert len(tries) == 3
    assert len(world.items()) == 1


def test_a_clock_that_was_set_back_does_not_silence_a_timer(tmp_path, monkeypatch):
    world = make_world(tmp_path)
    monkeypatch.setattr("triggers.timer.PULSE_S", 0.3)
    monkeypatch.setattr("triggers.timer.JUMP_S", 0.2)

    async def story():
        clock = Clock()
        async with running(world, TimerSpec("t", ("questions",), every=3600.0), clock=clock) as trigger:
            job = trigger._scheduler.get_job("t")
            job.modify(
                next_run_time=datetime.fromtimestamp(time.time() + 50_000, UTC)
            )  # planned before the jump
            await asyncio.sleep(0.5)
            clock.shift = -50_000
            await asyncio.sleep(0.5)
            assert trigger._scheduler.get_job("t").next_run_time.timestamp() <= time.time() + 3600

    asyncio.run(story())
