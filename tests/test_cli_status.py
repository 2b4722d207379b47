"""``status``: counted when it is asked, quick, and honest before the first run and with the daemon down."""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time

import pytest
from cli_world import ROOT, Desk
from daemon_world import World as Daemon
from session_world import answer, failure, flag, park

from daemon.cli import screen
from store.counting import COUNTED

HEAVY = {
    "pydantic",
    "dataclasses",
    "asyncio",
    "logging",
    "sqlite_utils",
    "httpx",
    "apprise",
    "numpy",
    "ctypes",
}


@pytest.fixture
def desk(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(screen, "program", lambda: "shiftwork")
    desk = Desk(tmp_path, capsys)
    yield desk
    desk.close()


def test_before_the_first_run_there_are_zeros_and_nothing_is_created(desk):
    """FIELD 46."""
    found = desk.json("status")
    assert found["daemon"]["running"] is False
    assert found["daemon"]["pid"] is None
    assert set(found["queues"]) == {"q", "r"}
    for counts in found["queues"].values():
        assert sum(counts[name] for name in COUNTED) == 0
        assert counts["oldest_waiting_age_s"] is None
        assert counts["forced_retries_in_a_row"] == 0
    assert found["store"] == {"bytes": 0, "wal_bytes": 0, "schema": None}
    assert found["sessions"] == {"total": 0, "failed": 0}
    assert desk.lines("status")[0] == "not running · no store yet"
    assert list(desk.folder.iterdir()) == [desk.config]


def test_every_item_is_counted_once_in_the_state_that_list_shows(desk):
    world = desk.world(answer(), flag(), park(), failure("boom"), flag(), ago_s=600)
    for body in ("done", "waits", "parked", "fails", "parked flag"):
        world.hand(body)
        world.session()
    world.store.people.park_flag("f-0002", until_at=time.time() + 900, by="x", reason="", now=world.now)
    world.store.people.pause(world.hand("paused"), by="x", now=world.now)
    world.store.people.abort(world.hand("aborted"), by="x", reason="", now=world.now)
    running = world.hand("runs")
    assert world.claim("q").item_id == running
    world.hand("queued", queue="r")
    world.hand("queued, too", queue="r")
    found = desk.json("status")
    listed = desk.json("list")
    for queue, counts in found["queues"].items():
        for state in COUNTED:
            expected = sum(one["queue"] == queue and one["state"] == state for one in listed)
            assert counts[state] == expected, (queue, state)
    assert sum(counts[state] for counts in found["queues"].values() for state in COUNTED) == len(listed)
    q = found["queues"]["q"]
    assert [q[state] for state in COUNTED] == [1, 1, 1, 2, 0, 0, 1, 1, 1]
    assert q["unverified"] == 1
    assert 600 <= q["oldest_waiting_age_s"] < 610
    assert found["sessions"] == {"total": 6, "failed": 1}
    assert found["store"]["schema"] == 1
    assert found["store"]["bytes"] > 0
    assert found["store"]["wal_bytes"] > 0


def test_a_parked_flag_whose_time_came_waits_again_with_no_daemon_to_say_so(desk):
    _, asked = desk.flagged(flag(), ago_s=600)
    world = desk.worlds[0]
    world.store.people.park_flag(asked, until_at=time.time() - 5, by="x", reason="", now=world.now)
    counts = desk.json("status")["queues"]["q"]
    assert (counts["waiting"], counts["parked"]) == (1, 0)
    assert 5 <= counts["oldest_waiting_age_s"] < 10


def test_the_hours_are_computed_from_arrivals_and_finishes(desk):
    world = desk.world(answer(), ago_s=30 * 3600)
    for number in range(4):
        world.hand(f"{number}")
    world.session()
    world.now = time.time() - 5.5 * 3600
    world.session()
    world.hand("later")
    world.now = time.time() - 1800
    world.store.people.abort("q-0003", by="x", reason="", now=world.now)
    history = desk.json("status")["depth_history"]
    assert len(history) == 24
    assert [one["open"] for one in history] == [3] * 18 + [3] * 5 + [2]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", one["at"]) for one in history)
    counts = desk.json("status")["queues"]["q"]
    assert history[-1]["open"] == sum(counts[name] for name in COUNTED[:-2])


def test_counts_are_right_where_one_class_is_large(desk, monkeypatch):
    """The largest class is what is left of all items."""
    from store import counting

    monkeypatch.setattr(counting, "LARGE", 3)
    world = desk.world(answer())
    for number in range(7):
        world.hand(f"{number}")
        world.hand(f"{number}", queue="r")
    for _ in range(9):
        world.session()
    found = desk.json("status")["queues"]
    assert [found[queue]["done"] + found[queue]["queued"] for queue in ("q", "r")] == [7, 7]
    assert sum(found[queue]["done"] for queue in found) == 9
    assert sum(found[queue]["unverified"] for queue in found) == 9


def test_crashes_in_a_row_are_the_longest_current_run(desk):
    world = desk.world(answer())
    item = world.hand("x")
    for _ in range(2):
        world.claim()
        world.store.claims.reclaim(
            [(lease, "worker") for lease in world.store.claims.leases()], now=world.now, crash_limit=5
        )
        world.now += 5
    assert desk.json("status")["queues"]["q"]["forced_retries_in_a_row"] == 2
    assert desk.json("status")["sessions"]["failed"] == 2
    world.now += 60
    world.session()
    assert desk.json("show", item)["state"] == "done"
    assert desk.json("status")["queues"]["q"]["forced_retries_in_a_row"] == 0


def test_a_session_that_a_person_overtook_did_not_fail(desk):
    world = desk.world(answer())
    item = world.hand("x")
    world.claim()
    world.store.people.abort(item, by="anna", reason="", now=world.now)
    assert desk.json("show", item)["sessions"][-1]["outcome"] == "conflict"
    assert desk.json("status")["sessions"] == {"total": 1, "failed": 0}


def test_the_failed_sessions_are_counted_from_their_index_alone(desk):
    world = desk.world(answer())
    plan = world.store.db.connection().execute(
        "EXPLAIN QUERY PLAN SELECT count(*) FROM sessions WHERE outcome IN ('failed', 'crashed')"
    )
    assert "COVERING INDEX sessions_failed" in plan.fetchone()["detail"]


def test_the_screen_says_what_waits_and_what_to_do_next(desk):
    world = desk.world(flag(), ago_s=2 * 86400 + 4 * 3600 + 60)
    world.hand("x")
    world.session()
    world.store.people.pause_queue("r", by="x", now=world.now)
    lines = desk.lines("status")
    assert re.fullmatch(r"not running · last session 2d 4h ago · store \d+ kB \+ \d+ kB log", lines[0])
    assert lines[1].split() == [
        "QUEUE",
        "queued",
        "running",
        "waiting",
        "parked",
        "done",
        "oldest",
        "waiting",
    ]
    assert lines[2].split() == ["q", "0", "0", "1", "0", "0", "2d", "4h"]
    assert lines[3].split() == ["r", "0", "0", "0", "0", "0", "-"]
    assert lines[4].startswith("r is paused; go on:  shiftwork ")
    assert lines[5].startswith("Answer:  shiftwork ")
    assert lines[6].startswith("Start:   shiftwork ")
    assert all(len(line) <= 80 for line in lines if "--config" not in line)


def test_what_is_rare_leaves_the_table_when_it_would_be_wider_than_the_screen(desk):
    world = desk.world({"decision": "answer", "text": "yes", "reason": "r"})
    for number in range(3):
        world.hand(f"item {number}")
    world.session()
    for item in ("q-0002", "q-0003"):
        assert (
            desk.run("pause" if item == "q-0003" else "abort", item, *(["--yes"] * (item == "q-0002"))) == 0
        )
    lines = desk.lines("status")
    assert max(map(len, lines[:4])) <= 80
    assert lines[1].split() == [
        "QUEUE",
        "queued",
        "running",
        "waiting",
        "parked",
        "done",
        "oldest",
        "waiting",
    ]
    assert "q: 1 paused, 1 aborted, 1 unverified" in lines


def test_alerts_that_fire_are_told_with_their_ids(desk):
    from notify.pager import Pager
    from notify.policy import Channel, Policy
    from notify.sender import Outcome
    from store.sqlite import open_for_command

    desk.flagged(flag(), ago_s=7200)
    store = open_for_command(desk.folder / "state")
    pager = Pager(
        store,
        Policy((Channel("pager", ("page",)),)),
        clock=time.time,
        deliver=lambda channel, message: Outcome(delivered=True, words="ok"),
    )
    pager.turn()
    store.close()
    (alert,) = desk.json("status")["alerts"]
    assert (alert["key"], alert["severity"], alert["acked"]) == ("flag_age:q", "page", False)
    assert alert["id"].startswith("E-")
    lines = desk.lines("status")
    assert lines[0].endswith(" · 1 alert firing")
    assert any(line.startswith("flag_age:q fires for ") for line in lines)
    assert any(f"2h (told {alert['id']})" in line for line in lines)


def test_a_running_daemon_is_named_and_a_changed_file_said(tmp_path):
    daemon = Daemon(tmp_path)
    daemon.start()
    try:
        said = json.loads(daemon.command("status", "--json").stdout)
        assert said["daemon"]["running"] is True
        assert said["daemon"]["pid"] == daemon.process.pid
        assert said["daemon"]["config_changed"] is False
        assert daemon.command("status").stdout.startswith(f"running (pid {daemon.process.pid}) for ")
        daemon.config.write_text(daemon.config.read_text() + "# a thought\n")
        text = daemon.command("status").stdout
        assert (
            f"configuration changed on disk; it counts after a restart or  kill -HUP {daemon.process.pid}"
            in text
        )
        assert json.loads(daemon.command("status", "--json").stdout)["daemon"]["config_changed"] is True
    finally:
        daemon.process.kill()
        daemon.process.wait()
    assert json.loads(daemon.command("status", "--json").stdout)["daemon"] == {
        "running": False,
        "pid": None,
        "since_at": None,
        "age_s": None,
        "config": None,
        "config_changed": False,
    }


# --- quick --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("status",), ("status", "--json"), ("list",), ("flags",), ("log",), ("why", "q-0001")]
)
def test_the_verbs_that_look_import_nothing_heavy(desk, words):
    desk.flagged(flag())
    code = f"import sys; from daemon.cli.main import main; main({list(words)}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=desk.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not HEAVY & set(done.stderr.split())


def test_status_reads_indexes_only(desk):
    """It stays quick with 100,000 items: no statement of it walks through a table."""
    world = desk.world(answer())
    world.hand("x")
    plans = []
    from store import counting
    from store.views import Views

    conn = world.store.db.connection()
    conn.set_trace_callback(plans.append)
    Views(world.store.db).status(["q", "r"], now=time.time())
    conn.set_trace_callback(None)
    assert counting.LARGE < 100_000
    statements = [sql for sql in plans if sql.lstrip().upper().startswith(("SELECT", "WITH"))]
    statements = [sql for sql in statements if not sql.endswith("ORDER BY id DESC LIMIT 1")]  # the newest row
    assert len(statements) > 20
    scans = set()
    for sql in statements:
        for row in conn.execute(f"EXPLAIN QUERY PLAN {sql}"):
            if re.match(
                r"SCAN (items|nodes|sessions|flags|events|decisions|revisions)\b(?!.*USING)", row["detail"]
            ):
                scans.add((row["detail"], sql))
    assert not scans


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("items", [10, 100_000])
def test_a_cold_status_costs_at_most_three_times_import_sqlite3(desk, items, tmp_path_factory):
    world = desk.world()
    from store.intake import Handed

    for start in range(0, items, 2000):
        batch = [
            Handed("q", f"{number} " + "word " * 40, "cli")
            for number in range(start, min(start + 2000, items))
        ]
        world.store.intake.hand_in(batch, now=time.time() - 3600, caps={"q": 10**6})
    with world.store.db.write(point="checkpoint") as conn:  # as many sessions would have left them
        conn.execute(
            "UPDATE items SET state = 'done', result = '{}', unverified = 1, finished_at = created_at WHERE seq % 10"
        )
        conn.execute("UPDATE nodes SET state = 'succeeded', result = '{}' WHERE seq % 10")
    world.store.db.shrink_wal()
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    }
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("compiled"))}

    def cpu_ms(*words):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *words], cwd=desk.folder, env=environment, stdout=subprocess.DEVNULL, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000

    cpu_ms("-m", "daemon", "status")
    pairs = [(cpu_ms("-c", "import sqlite3"), cpu_ms("-m", "daemon", "status")) for _ in range(15)]
    plain, status = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{items} items: import sqlite3 {plain:.1f} ms, status {status:.1f} ms, {status / plain:.2f} ×")
    assert status <= 3 * plain


def test_a_decider_that_is_away_stands_where_its_alert_points_to(desk):
    world = desk.world()
    world.store.alerts.raise_problem(
        "decider:model",
        queue=None,
        kind="away",
        detail="model: refused: the server answered 401",
        now=world.now,
    )
    assert re.search(
        r"^decider model: away for \d+[sm]: refused: the server answered 401$",
        "\n".join(desk.lines("status")),
        re.MULTILINE,
    )
