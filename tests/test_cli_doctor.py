"""``doctor`` and ``calibrate``: what is or may become wrong, and how often quotations would be right."""

from __future__ import annotations

import json
import os
import re
import time

import pytest
from cli_world import Desk
from daemon_world import World as Daemon
from session_world import answer, flag

from daemon.cli import cells, doctor_machine, light, screen
from store import checkup


@pytest.fixture
def desk(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(screen, "program", lambda: "shiftwork")
    desk = Desk(tmp_path, capsys)
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nThe licence of this thing is Apache 2.\n")
    desk.config.write_text(
        desk.config.read_text().replace('outbox = "out"', 'outbox = "out"\nsources = ["docs/*.md"]')
    )
    yield desk
    desk.close()


def findings(desk, *levels):
    desk.run("doctor", "--json")
    found = json.loads(desk.out)["findings"]
    return [one for one in found if not levels or one["level"] in levels]


def about(desk, word):
    return " ".join(f"{one['level']}: {one['words']}" for one in findings(desk) if one["about"] == word)


# --- doctor -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "bug"),
    [((3, 6, 23), False), ((3, 7, 0), True), ((3, 40, 1), True), ((3, 51, 2), True), ((3, 51, 3), False)],
)
def test_sqlite_versions_with_the_wal_reset_bug_are_named(version, bug):
    """FIELD 23."""
    assert checkup.sqlite_has_reset_bug(version) is bug
    found = doctor_machine._sqlite(version, ".".join(map(str, version)))
    assert found.level == ("look" if bug else "good")
    assert ("3.7.0 to 3.51.2" in found.words and "behind the same gate" in found.words) is bug


def test_a_sound_place_is_all_good_before_and_after_the_first_run(desk):
    assert desk.run("doctor") == 0
    assert not (desk.folder / "state").exists()
    assert "none yet in" in desk.out
    world = desk.world(answer())
    world.hand("x")
    world.session()
    assert desk.run("doctor") == 0
    assert not findings(desk, "bad")
    assert "whole" in about(desk, "store")
    assert "1 inbox can be watched" in about(desk, "watches")
    assert "everything that waits has something to wake it" in about(desk, "waits")
    desk.run("doctor")
    plain = [line for line in desk.out.splitlines() if "shiftwork " not in line]
    assert all(cells.width(line) <= 80 for line in plain)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM leases", "runs, but no session holds it"),
        ("UPDATE nodes SET state = 'pending'", "a session holds it, but it does not run"),
        ("UPDATE nodes SET state = 'abandoned'", "nothing of it is ready, running or waiting"),
    ],
)
def test_a_wait_whose_waker_is_gone_is_named_with_its_item(desk, damage, said):
    """FIELD 28."""
    world = desk.world()
    item = world.hand("x")
    world.claim()
    assert not findings(desk, "bad")
    with world.store.db.write(point="extend") as conn:
        conn.execute(damage)
    assert desk.run("doctor") == 1
    assert f"{item} will wait for ever: {said}" in about(desk, "waits")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE flags SET state = 'withdrawn'", "waits for an answer that nobody is asked for"),
        (
            "UPDATE items SET state = 'aborted', finished_at = created_at",
            "a question waits, but its item ended",
        ),
        ("UPDATE nodes SET held = 1", None),
    ],
)
def test_a_question_that_nobody_or_nothing_waits_for_is_named(desk, damage, said):
    item, _ = desk.flagged(flag())
    assert not findings(desk, "bad")
    with desk.worlds[0].store.db.write(point="extend") as conn:
        conn.execute(damage)
    if said is None:
        assert f"{item} will wait for ever: held, but neither it nor anything says paused" in about(
            desk, "waits"
        )
    else:
        assert f"{item} will wait for ever: {said}" in about(desk, "waits")


def test_a_session_that_died_and_a_queue_that_left_are_told(desk):
    world = desk.world()
    item = world.hand("x")
    world.hand("y", queue="r")
    world.claim("q")
    with world.store.db.write(point="extend") as conn:
        conn.execute("UPDATE leases SET owner = 'an-earlier-boot:1:1:1:'")
    assert f"look: {item}: session 1 died; the next start takes it back" in about(desk, "waits")
    desk.config.write_text(desk.config.read_text().replace("[queues.r]", "[queues.new]"))
    assert desk.run("doctor") == 1
    assert "queue r is not in the configuration; nothing takes its 1 open item" in about(desk, "waits")


def test_what_is_held_on_purpose_and_what_is_stored_as_wrong_is_listed(desk):
    world = desk.world()
    item = world.hand("x")
    world.store.people.pause(item, by="x", now=world.now)
    world.store.people.pause_queue("r", by="x", now=world.now)
    world.store.alerts.raise_problem(
        "inbox:q", queue="q", kind="inbox", detail="the folder is gone", now=world.now
    )
    assert desk.run("doctor") == 0
    assert f"queue r look: 1 item: {item}" in about(desk, "paused")
    assert "inbox:q: the folder is gone (since " in about(desk, "problem")


def test_a_damaged_store_is_bad_and_the_rest_is_still_looked_at(desk):
    world = desk.world()
    for number in range(200):
        world.hand(f"{number} " + "x" * 500)
    world.store.db.shrink_wal()
    desk.close()
    desk.worlds.clear()
    path = desk.folder / "state" / "shiftwork.db"
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 1024 * 1024)
        file.write(b"\xff" * 1024)
    assert desk.run("doctor") == 1
    assert "is damaged" in about(desk, "store")
    assert "free of" in about(desk, "disk")
    path.write_bytes(b"")
    assert desk.run("doctor") == 1
    assert "is empty (0 bytes)" in about(desk, "store")
    path.unlink()
    assert "is missing, but this folder held a store" in about(desk, "store") or "none yet" in about(
        desk, "store"
    )


def test_errors_in_the_file_are_bad_and_lead_to_check_config(desk):
    desk.config.write_text(desk.config.read_text() + "[queues.r2]\ndecidr = 1\n")
    assert desk.run("doctor") == 1
    (one,) = [one for one in findings(desk, "bad") if one["about"] == "config"]
    assert re.fullmatch(r"\d errors?", one["words"])
    assert "check-config" in one["command"]


def test_a_folder_that_cannot_be_used_is_bad(desk):
    (desk.folder / "in").rmdir()
    (desk.folder / "in").write_text("a file")
    assert desk.run("doctor") == 1
    assert "q inbox:" in about(desk, "folder")


def test_little_disk_is_said_before_it_is_none(monkeypatch, tmp_path):
    whole = os.statvfs(tmp_path)

    def disk(free):
        fields = list(whole)
        fields[1], fields[2], fields[4] = 4096, 10_000_000, free // 4096
        monkeypatch.setattr(doctor_machine.os, "statvfs", lambda _path: os.statvfs_result(fields))
        return doctor_machine._space(tmp_path).level

    assert [disk(free) for free in (30 << 30, 500 << 20, 10 << 20)] == ["good", "look", "bad"]


def test_a_log_that_grows_is_said(monkeypatch):
    from daemon.cli.doctor_store import _wal

    assert [_wal(size << 20).level for size in (1, 100, 300)] == ["good", "look", "bad"]


def test_watches_that_are_used_up_name_the_sysctl(desk, monkeypatch):
    class Libc:
        def inotify_init1(self, _flags):
            return -1

    monkeypatch.setattr(doctor_machine.ctypes, "CDLL", lambda *_args, **_more: Libc())
    (found,) = doctor_machine._watches(light.read_places(desk.config))
    assert found.level == "look"
    assert found.command.startswith("sysctl fs.inotify.max_user_instances=")


def test_it_runs_beside_a_daemon(tmp_path):
    daemon = Daemon(tmp_path)
    daemon.start()
    try:
        daemon.command("add", "-", input="answer me")
        done = daemon.command("doctor", "--json")
        found = json.loads(done.stdout)
        assert found["bad"] == 0
        assert any(f"running (pid {daemon.process.pid})" in one["words"] for one in found["findings"])
    finally:
        daemon.process.kill()
        daemon.process.wait()


# --- calibrate ----------------------------------------------------------------------------------------------------


def test_calibrate_measures_a_queues_own_sources_before_the_first_run(desk):
    lines = [{"question": "What is the licence of this thing?", "answers": ["Apache 2"]}] * 12
    lines += [{"question": "Who built Rome?", "answers": []}] * 3
    data = desk.folder / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, lines)))
    assert desk.run("calibrate", "q", "--data", str(data)) == 0
    assert "15 questions, 3 of them without an answer in the sources" in desk.out
    assert all(len(line) <= 80 for line in desk.out.splitlines())
    assert "In force for q: [deciders.x] threshold = 0.8" in desk.err
    found = desk.json("calibrate", "q", "--data", str(data), "--target", "0.9")
    assert found["target"] == 0.9
    assert found["levels"][0]["questions"] == 15
    assert found["flag_everything"] == (found["threshold"] == 1.0)
    answered = [level["answered"] for level in found["levels"]]
    assert answered == sorted(answered, reverse=True)
    assert answered[0] >= 12


def test_data_that_cannot_be_read_names_its_lines(desk):
    data = desk.folder / "data.jsonl"
    data.write_text('{"question": "x"}\n{}\nno\n')
    assert desk.run("calibrate", "q", "--data", str(data)) == 1
    assert "data.jsonl:" in desk.err
    assert "line 3: not JSON" in desk.err
    data.write_bytes(b"\xff")
    assert desk.run("calibrate", "q", "--data", str(data)) == 1
    assert "not UTF-8 at byte 0" in desk.err
    assert desk.run("calibrate", "q", "--data", str(desk.folder / "no")) == 1
    assert desk.run("calibrate", "nope", "--data", str(data)) == 3
    assert desk.run("calibrate", "q") == 2
    for target in ("0", "1.5", "x"):
        assert desk.run("calibrate", "q", "--data", str(data), "--target", target) == 2
    data.write_text('{"question": "x", "answers": []}\n')
    assert desk.run("calibrate", "r", "--data", str(data)) == 2
    assert "[queues.r] has no sources" in desk.err


def test_a_store_that_is_worked_on_gives_no_lost_waits(desk):
    """Each question is one statement: what moves between two of them is no finding."""
    world = desk.world(answer())
    for number in range(5):
        world.hand(f"{number}")
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        world.drain(1)
        assert checkup.lost_waits(world.store.db) == []
