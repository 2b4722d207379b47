"""Pages that need no store, and the heartbeat: real receivers, real children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from notify_receivers import web

from notify.heartbeat import Heartbeat, ping, progress_holds
from notify.policy import Channel
from notify.start_alert import (
    Scene,
    forget,
    page_start_refused,
    page_store_problem,
    salvage,
    services_of,
    standing,
)
from store.errors import ConfigProblem, StoreRefused

DAMAGED = StoreRefused("state/shiftwork.db is damaged (malformed page 7).\nNothing was written.")


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "run").mkdir()


@pytest.fixture
def receiver():
    with web() as one:
        yield one


@pytest.fixture
def scene(tmp_path, receiver):
    (tmp_path / "state").mkdir()
    (tmp_path / "pager").write_text(f"json://127.0.0.1:{receiver.port}/topsecret", encoding="utf-8")
    channels = [Channel(str(tmp_path / "pager"), ("page",)), Channel(str(tmp_path / "desk"), ("ticket",))]
    return Scene(channels, tmp_path / "shiftwork.toml", tmp_path / "state")


def test_a_refused_start_is_paged_once_until_a_good_start(scene, receiver):
    assert [one.delivered for one in page_start_refused(DAMAGED, scene, now=1000.0)] == [True]
    assert page_start_refused(DAMAGED, scene, now=2000.0) == []
    assert page_start_refused(ConfigProblem("other"), scene, now=2000.0) == []
    assert [(alert, at) for alert, at, _ in standing(scene)] == [("start", 1000.0)]
    forget("start", scene)
    assert standing(scene) == []
    page_start_refused(DAMAGED, scene, now=3000.0)
    assert len(receiver.got) == 2
    assert len(set(receiver.ids)) == 2
    assert "exit code 70" in receiver.got[0]["message"]
    assert "damaged (malformed page 7)" in receiver.got[0]["message"]
    assert "shiftwork doctor" in receiver.got[0]["message"]


def test_a_refused_configuration_is_paged_without_a_word_of_its_content(scene, receiver):
    page_start_refused(ConfigProblem('shiftwork.toml:3 token = "topsecret"'), scene, now=1000.0)
    assert "topsecret" not in json.dumps(receiver.got)
    assert "shiftwork check-config" in receiver.got[0]["message"]


def test_a_page_that_did_not_arrive_is_tried_at_the_next_start_under_the_same_id(scene, receiver):
    receiver.status = 500
    assert not page_start_refused(DAMAGED, scene, now=1000.0)[0].delivered
    receiver.status = 200
    assert page_start_refused(DAMAGED, scene, now=2000.0)[0].delivered
    assert len(receiver.ids) == 2
    assert len(set(receiver.ids)) == 1


def test_a_kill_while_it_is_sent_repeats_it_under_the_same_id(scene, receiver):
    program = f"""
from pathlib import PosixPath
from notify.policy import Channel
from notify.start_alert import Scene, page_start_refused
from store.errors import StoreRefused
page_start_refused(StoreRefused("gone"), {scene!r}, now=1000.0)
"""
    env = {**os.environ, "SHIFTWORK_CRASH_AT": "notify.send.after"}
    run = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=Path(__file__).parent.parent, check=False
    )
    assert run.returncode == -signal.SIGKILL
    page_start_refused(DAMAGED, scene, now=2000.0)
    page_start_refused(DAMAGED, scene, now=2000.0)
    assert len(receiver.ids) == 2
    assert len(set(receiver.ids)) == 1


@pytest.mark.parametrize("state", ["missing", "a file", "unknown"])
def test_without_a_usable_state_folder_it_is_still_told_once(tmp_path, scene, receiver, state):
    place = {"missing": tmp_path / "nowhere", "a file": tmp_path / "pager", "unknown": None}[state]
    scene = scene._replace(state_dir=place)
    page_start_refused(DAMAGED, scene, now=1000.0)
    page_start_refused(DAMAGED, scene, now=2000.0)
    assert len(receiver.got) == 1
    assert not (tmp_path / "nowhere").exists()
    forget("start", scene)
    assert list((tmp_path / "run").iterdir()) == []


def test_a_broken_mark_does_not_silence_the_page(scene, receiver):
    (scene.state_dir / "start-told.json").write_text('{"told": 3}', encoding="utf-8")
    page_start_refused(DAMAGED, scene, now=1000.0)
    page_start_refused(DAMAGED, scene, now=2000.0)
    assert len(receiver.got) == 1


def test_a_store_that_cannot_be_written_has_a_mark_of_its_own(scene, receiver):
    page_store_problem("no space left on the disk of state/", scene, now=1000.0)
    page_store_problem("no space left on the disk of state/", scene, now=2000.0)
    page_start_refused(DAMAGED, scene, now=2000.0)
    assert len(receiver.got) == 2
    forget("start", scene)
    assert [alert for alert, _, _ in standing(scene)] == ["store"]


def test_nothing_is_written_when_nobody_would_be_told(scene):
    assert page_start_refused(DAMAGED, scene._replace(services=scene.services[1:]), now=1.0) == []
    assert list(scene.state_dir.iterdir()) == []


BROKEN = """
state_dir = "there"
[daemon]
max_sessions = = 3
[queues.questions]
inbox = "inbox"
[notify]
services = [{ url_file = "pager", tags = ["page"] }, { url_file = 3 }, "odd", { url_file = "desk" }]
flag_age = "60m"
[queues.broken
"""


def test_a_broken_configuration_still_names_its_services(tmp_path):
    data = salvage(BROKEN)
    assert data["state_dir"] == "there"
    assert "questions" in data["queues"]
    assert services_of(data, tmp_path) == [
        Channel(str(tmp_path / "pager"), ("page",)),
        Channel(str(tmp_path / "desk"), ("page", "ticket")),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[[",
        "\x00",
        "[notify]\nservices = 3",
        "notify = 3",
        "[notify]\nservices = [[1]]",
        "a = " + "[" * 5000,
    ],
)
def test_salvage_takes_anything(text, tmp_path):
    assert services_of(salvage(text), tmp_path) == []


# The heartbeat


def test_a_heartbeat_reaches_the_url_and_no_redirect_is_followed(tmp_path, receiver):
    path = tmp_path / "heartbeat"
    path.write_text(f"http://127.0.0.1:{receiver.port}/ping/topsecret?a=1", encoding="utf-8")
    assert ping(path) == (True, "answered")
    assert receiver.paths == ["/ping/topsecret?a=1"]
    receiver.status, receiver.location = 302, f"http://127.0.0.1:{receiver.port}/elsewhere"
    assert ping(path) == (False, "answered with status 302")
    assert len(receiver.paths) == 2


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a/topsecret",
        "topsecret",
        "http://",
        "http://a:topsecret/",
        "http://127.0.0.1:1/topsecret",
        "",
        "http://a b/topsecret\x07",
    ],
)
def test_a_heartbeat_that_cannot_work_is_said_without_the_url(tmp_path, url):
    path = tmp_path / "heartbeat"
    path.write_text(url, encoding="utf-8")
    result = ping(path)
    assert not result.ok
    assert "topsecret" not in result.words
    assert not ping(tmp_path / "nowhere").ok


def test_a_heartbeat_goes_out_once_a_minute_and_only_while_progress_holds(tmp_path, receiver):
    path = tmp_path / "heartbeat"
    path.write_text(f"http://127.0.0.1:{receiver.port}/", encoding="utf-8")
    heart = Heartbeat(path)
    started = []
    for second in range(0, 600, 15):
        started.append(heart.beat(progress=second < 300, now=1000.0 + second))
        _settle()
    assert [15 * number for number, one in enumerate(started) if one] == [0, 60, 120, 180, 240]
    assert len(receiver.paths) == 5
    assert heart.last == (True, "answered")
    assert heart.beat(progress=True, now=10.0)  # the clock was set back: the next ping is not a day away
    _settle()


def test_a_slow_server_holds_up_neither_the_loop_nor_the_next_minute_twice(tmp_path, receiver):
    path = tmp_path / "heartbeat"
    path.write_text(f"http://127.0.0.1:{receiver.port}/", encoding="utf-8")
    receiver.sleep_s = 1.0
    heart = Heartbeat(path, every_s=0.1)
    began = time.monotonic()
    assert heart.beat(progress=True, now=0.0)
    assert not heart.beat(progress=True, now=5.0)
    assert time.monotonic() - began < 0.5
    _settle()
    assert len(receiver.paths) == 1


def test_progress_holds_unless_work_waits_and_nothing_moves_for_half_an_hour():
    assert progress_holds(ready=0, last_progress_at=0.0, now=10**6)
    assert progress_holds(ready=3, last_progress_at=None, now=10**6)
    assert progress_holds(ready=3, last_progress_at=0.0, now=1799)
    assert not progress_holds(ready=3, last_progress_at=0.0, now=1800)


def _settle():
    for thread in threading.enumerate():
        if thread.name == "heartbeat":
            thread.join(timeout=10)
