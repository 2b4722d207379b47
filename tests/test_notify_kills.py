"""R12: SIGKILL anywhere on a message's way loses nothing and doubles at most one, under the same id.

The pager runs in a process of its own against a real receiver; it is killed at each named point, started again, and
runs until nothing is due.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from notify_receivers import web

from store.alerts import Alerts
from store.database import Database
from store.events import Events
from store.opening import prepare

ROOM = Path(__file__).parent.parent
PLACES = [
    f"notify.{name}.{side}" for name in ("step", "claim", "send", "record") for side in ("before", "after")
]

PROGRAM = """
import sys, time
from pathlib import Path
from typing import NamedTuple
from notify.pager import Pager
from notify.policy import Channel, Policy
from store.alerts import Alerts
from store.database import Database
from store.events import Events

class Store(NamedTuple):
    alerts: Alerts

state, urls, flag_age_s = Path(sys.argv[1]), sys.argv[2].split(","), float(sys.argv[3])
db = Database(state)
channels = tuple(Channel(url, ("page", "ticket")) for url in urls)
pager = Pager(Store(Alerts(db, Events(db))), Policy(channels, flag_age_s=flag_age_s, clear_hold_s=0), clock=time.time)
while (due_at := pager.turn()) is not None and due_at <= time.time() + 1:
    pass
"""


@pytest.fixture
def state(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    prepare(folder)
    return folder


@pytest.fixture
def receiver():
    with web() as one:
        yield one


def open_alerts(state):
    db = Database(state)
    return db, Alerts(db, Events(db))


def raise_one(state, key="store:full"):
    db, alerts = open_alerts(state)
    alerts.raise_problem(key, queue=None, kind="full", detail="disk full", now=time.time())
    db.close()


def pager(state, urls, *, crash_at=None, popen=False):
    env = {**os.environ, "SHIFTWORK_CRASH_DIR": str(state.parent)}
    if crash_at:
        env["SHIFTWORK_CRASH_AT"] = crash_at
    argv = [sys.executable, "-c", PROGRAM, str(state), urls, "1"]
    if popen:
        return subprocess.Popen(argv, env=env, cwd=ROOM)
    return subprocess.run(argv, env=env, cwd=ROOM, timeout=60, check=False).returncode


def url_file(tmp_path, receiver, name="pager"):
    path = tmp_path / name
    path.write_text(f"json://127.0.0.1:{receiver.port}/{name}", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("place", PLACES)
def test_a_kill_at_each_point_loses_nothing_and_doubles_at_most_one_under_its_id(
    tmp_path, state, receiver, place
):
    raise_one(state)
    url = url_file(tmp_path, receiver)
    assert pager(state, url, crash_at=place) == -signal.SIGKILL
    assert pager(state, url) == 0
    assert 1 <= len(receiver.got) <= 2
    assert set(receiver.ids) == {"E-0001"}
    if place not in {"notify.send.after", "notify.record.before"}:
        assert len(receiver.got) == 1
    db, alerts = open_alerts(state)
    assert alerts.outbox.due(owner="me", now=time.time() + 3600) == []
    db.close()


def test_two_channels_and_a_kill_double_one_message_at_most(tmp_path, state, receiver):
    raise_one(state)
    urls = ",".join(url_file(tmp_path, receiver, name) for name in ("first", "second"))
    assert pager(state, urls, crash_at="notify.send.after") == -signal.SIGKILL
    assert pager(state, urls) == 0
    assert sorted(receiver.paths) == ["/first", "/first", "/second"]


def test_a_restart_sends_nothing_again(tmp_path, state, receiver):
    """R13."""
    raise_one(state)
    url = url_file(tmp_path, receiver)
    for _ in range(3):
        assert pager(state, url) == 0
    assert receiver.ids == ["E-0001"]


def test_a_page_that_may_have_arrived_before_the_kill_is_followed_by_its_resolved(tmp_path, state, receiver):
    """R3 where nobody can know: the notice had arrived, its sender died, and meanwhile all is well again."""
    raise_one(state)
    url = url_file(tmp_path, receiver)
    assert pager(state, url, crash_at="notify.send.after") == -signal.SIGKILL
    db, alerts = open_alerts(state)
    alerts.clear_problem("store:full")
    db.close()
    assert pager(state, url) == 0
    assert receiver.ids == ["E-0001", "E-0002"]
    assert "resolved" in receiver.got[1]["title"]


def test_an_ack_after_the_kill_keeps_the_page_from_being_repeated_and_its_end_is_told(
    tmp_path, state, receiver
):
    raise_one(state)
    url = url_file(tmp_path, receiver)
    assert pager(state, url, crash_at="notify.send.after") == -signal.SIGKILL
    db, alerts = open_alerts(state)
    alerts.ack("store", by="anna", now=time.time())
    assert pager(state, url) == 0
    assert receiver.ids == ["E-0001"]
    alerts.clear_problem("store:full")
    assert pager(state, url) == 0
    assert [one["title"].split()[1] for one in receiver.got] == ["the", "resolved:"]
    db.close()


def test_a_sending_child_that_is_killed_has_not_delivered_and_is_tried_again_later(tmp_path, state, receiver):
    raise_one(state)
    receiver.sleep_s = 20
    process = pager(state, url_file(tmp_path, receiver), popen=True)
    try:
        child = _child_of(process.pid)
        while not receiver.got:
            time.sleep(0.02)
        os.kill(child, signal.SIGKILL)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()
    db, alerts = open_alerts(state)
    (message,) = alerts.outbox.due(owner="me", now=time.time() + 61)
    assert (message.attempts, message.failure) == (1, "the sending process ended without an answer (exit -9)")
    assert message.next_attempt_at > time.time() + 40
    db.close()


@pytest.mark.slow
def test_30_kills_at_random_moments_lose_nothing_and_double_at_most_one_each(tmp_path, state, receiver):
    url = url_file(tmp_path, receiver)
    dice = random.Random(11)
    kills = 0
    for number in range(30):
        raise_one(state, f"inbox{number}:full")
        process = pager(state, url, popen=True)
        time.sleep(dice.uniform(0.15, 1.4))
        if process.poll() is None:
            kills += 1
            process.kill()
        process.wait()
    assert pager(state, url) == 0
    assert len(set(receiver.ids)) == 30
    assert len(receiver.ids) - 30 <= kills
    assert max(receiver.ids.count(one) for one in set(receiver.ids)) <= 1 + kills


def _child_of(pid: int) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        if words:
            return int(words[0])
        time.sleep(0.02)
    raise AssertionError("no child was started")
