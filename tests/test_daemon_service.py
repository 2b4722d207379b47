"""The daemon as a process: woken, killed, stopped, reloaded, and never in the way of its own work."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from daemon_world import ENVIRONMENT, World, alive, children
from notify_receivers import web
from small_disks import fill, small_disk

from daemon import books, engine, service, starting
from daemon.terminal import Terminal
from store import gate


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.kill()


def busy(world):
    """The item and worker of the decider that was called last and still runs."""
    return world.until(lambda: [call for call in world.calls() if alive(call[1])])[-1]


# ------------------------------------------------------------------ work


def test_a_dropped_file_is_answered_within_a_second_or_two(world):
    world.start()
    dropped = time.monotonic()
    world.drop("hello.md", "answer this")
    world.until(lambda: list((world.folder / "out-work").glob("hello.answer.md")))
    print(f"drop to answer {time.monotonic() - dropped:.2f} s")
    world.until(lambda: "answered in" in world.said())
    assert world.stop() == 0
    assert "nothing is left to do" in world.said()


def test_what_was_there_before_the_start_is_taken_too(world):
    world.drop("early.md", "answer early")
    world.add("answer by command")
    world.start()
    world.until_done(2)
    assert len(world.calls()) == 2


def test_a_command_wakes_the_daemon_at_once(world):
    """The bell: no polling of the store."""
    world.start()
    time.sleep(0.5)
    for _ in range(3):
        before = len(world.calls())
        world.add(f"answer {before}")
        handed_in = time.monotonic()
        world.until(lambda before=before: len(world.calls()) > before)
        assert time.monotonic() - handed_in < 5
    world.until_done(3)


def test_an_idle_daemon_writes_nothing_starts_nothing_and_asks_nobody(world):
    """FIELD and DESIGN 12: no write, no model call, no new process on an empty queue."""
    world.start()
    world.drop("one.md", "answer one")
    world.until_done(1)
    world.until(lambda: len(world.family()) <= 1, 10)  # the zygote alone
    time.sleep(7)  # it has had its rest
    before = (world.commits(), _stamps(world.state), world.family(), len(world.calls()))
    ticks, switches = _cpu(world.process.pid), _switches(world.process.pid)
    newest = int(Path("/proc/loadavg").read_text().split()[-1])
    time.sleep(5)
    assert (world.commits(), _stamps(world.state), world.family(), len(world.calls())) == before
    print(
        f"idle 5 s: {_switches(world.process.pid) - switches} wake-ups, {_cpu(world.process.pid) - ticks} ticks,"
        f" {int(Path('/proc/loadavg').read_text().split()[-1]) - newest} pids given out on the whole machine"
    )
    assert _cpu(world.process.pid) - ticks <= 10


def test_three_questions_take_three_sessions_and_three_calls_and_once_more_none(world):
    for number in range(3):
        world.add(f"answer {number}")
    world.command("run", "--drain")
    assert len(world.calls()) == 3
    assert world.value("SELECT count(*) FROM sessions") == 3
    commits = world.commits()
    world.command("run", "--drain")
    assert (world.commits(), len(world.calls())) == (commits, 3)


def test_sessions_run_beside_each_other_up_to_max_sessions(tmp_path):
    world = World(tmp_path, daemon="max_sessions = 3")
    for number in range(6):
        world.add(f"sleep 1.5 {number}")
    world.start()
    world.until(lambda: sum(alive(call[1]) for call in world.calls()) == 3)
    most = 0
    while world.value("SELECT count(*) FROM items WHERE state = 'done'") < 6:
        most = max(most, world.value("SELECT count(*) FROM leases"))
        time.sleep(0.02)
    assert most == 3
    assert len({call[2] for call in world.calls()}) >= 3
    world.stop()


# ------------------------------------------------------------------ deaths


def test_the_process_that_starts_workers_may_die_while_the_daemon_starts(world):
    world.add("answer all the same")  # makes the store, so that the daemon's first child is the zygote
    world.start(ready=False)
    world.until(lambda: children(world.process.pid))
    os.kill(children(world.process.pid)[0], signal.SIGKILL)
    world.until_done(1)
    assert world.stop() == 0


def test_kill_nine_of_the_daemon_loses_nothing_and_leaves_nothing_behind(world):
    item = world.add("sleep 30")
    world.add("answer")
    world.start()
    _, decider, worker = busy(world)
    zygote = children(world.process.pid)[0]
    world.kill()
    world.until(lambda: not any(alive(pid) for pid in (decider, worker, zygote)), 10)
    assert not world.daemon().running
    (world.folder / "decider.py").write_text(
        (world.folder / "decider.py").read_text().replace("time.sleep(float", "(float")
    )
    world.start()
    world.until_done(2)
    assert world.rows("SELECT outcome, cause FROM sessions WHERE item_id = ? ORDER BY id", item) == [
        ("crashed", "daemon"),
        ("answered", "r"),
    ]
    assert world.value("SELECT attempt FROM nodes WHERE item_id = ?", item) == 2


def test_a_killed_worker_costs_its_own_node_one_crash_and_nobody_else_anything(tmp_path):
    """Reclaimed at once, not when the lease expires (FIELD 25, 26)."""
    world = World(tmp_path, daemon='max_sessions = 2\nlease = "10m"')
    other = world.add("sleep 3")
    bad = world.add("kill-worker")
    world.start()
    world.until(lambda: world.value("SELECT crashes FROM nodes WHERE item_id = ?", bad) >= 1)
    pid = world.process.pid
    world.until(lambda: world.value("SELECT state FROM items WHERE id = ?", other) == "done")
    flag = world.until(lambda: world.value("SELECT id FROM flags WHERE item_id = ?", bad))
    assert world.process.pid == pid
    assert world.process.poll() is None
    assert world.value("SELECT crashes FROM nodes WHERE id = (SELECT about_node_id FROM flags)") == 3
    assert world.value("SELECT count(*) FROM sessions WHERE item_id = ?", other) == 1
    assert "killed by SIGKILL" in world.said()
    world.until(lambda: f"show {flag}" in world.said())
    after = world.add("answer after")
    world.until(lambda: world.value("SELECT state FROM items WHERE id = ?", after) == "done")
    assert world.stop() == 0


def test_a_frozen_worker_is_killed_at_its_hard_deadline_with_its_children(tmp_path):
    """A hang is no reason to wait for a lease (FIELD 27)."""
    world = World(tmp_path, daemon='session_timeout = "3s"\ncrash_limit = 1')
    world.add("spawn")
    world.start()
    _, decider, worker = busy(world)
    child = int(world.until(lambda: _text(tmp_path / "child.pid")))
    os.kill(worker, signal.SIGSTOP)
    world.until(lambda: not any(alive(pid) for pid in (decider, worker, child)), 20)
    world.until(lambda: world.value("SELECT count(*) FROM flags") == 1)
    assert world.value("SELECT cause FROM sessions") == "deadline"
    world.until(lambda: "killed past its deadline" in world.said() or "waits for you" in world.said())
    world.stop()


def test_a_killed_zygote_is_replaced_and_its_sessions_run_again(world):
    item = world.add("sleep 2")
    world.start()
    _, decider, worker = busy(world)
    os.kill(children(world.process.pid)[0], signal.SIGKILL)
    world.until(lambda: not alive(worker) and not alive(decider))
    world.until_done(1)
    assert world.rows("SELECT outcome FROM sessions WHERE item_id = ? ORDER BY id", item) == [
        ("crashed",),
        ("answered",),
    ]
    assert world.stop() == 0


def test_a_worker_that_hangs_with_the_write_gate_is_killed_and_everybody_goes_on(tmp_path):
    """MEASURED: a holder that is our own hung worker is killed after 2 s and counted."""
    world = World(tmp_path, daemon='session_timeout = "5m"')
    for number in range(60):
        world.add(f"answer {number}")
    world.start()
    lock = world.state / "store.lock"
    frozen = 0
    end = time.monotonic() + 60
    while not frozen:
        assert time.monotonic() < end, "never caught a worker with the gate"
        pid = gate.holder(lock)
        if pid is None or pid == world.process.pid:
            continue
        os.kill(pid, signal.SIGSTOP)
        if gate.holder(lock) == pid:
            frozen = pid
        else:
            os.kill(pid, signal.SIGCONT)
    started = time.monotonic()
    world.add("answer from a command that has to wait")
    assert time.monotonic() - started < 9
    world.until(lambda: "hangs while it holds" in world.said())
    assert not alive(frozen)
    world.until_done(61, 90)
    world.stop()


# ------------------------------------------------------------------ ends


def test_sigterm_lets_the_running_session_finish_and_starts_no_other(world):
    """FIELD 31."""
    first = world.add("sleep 2")
    second = world.add("answer later")
    world.start()
    busy(world)
    assert world.stop() == 0
    assert world.states() == {"sleep 2": "done", "answer later": "open"}
    said = world.said()
    assert f"waits up to 20 s for 1 running session ({first})" in said
    assert "1 open item to go on with" in said
    assert world.out.read_text().rstrip().endswith("run")
    assert world.value("SELECT attempt FROM nodes WHERE item_id = ?", second) == 0


def test_a_session_that_outlasts_the_grace_is_given_back_uncounted(tmp_path):
    world = World(tmp_path, daemon='grace = "1s"')
    item = world.add("sleep 30")
    world.start()
    _, decider, worker = busy(world)
    started = time.monotonic()
    assert world.stop() == 0
    assert time.monotonic() - started < 15
    assert not alive(worker)
    assert not alive(decider)
    assert world.rows("SELECT outcome, cause FROM sessions") == [("released", "stopped")]
    assert world.rows("SELECT state, attempt, crashes FROM nodes WHERE item_id = ?", item) == [
        ("pending", 0, 0)
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once(world, number):
    world.add("sleep 60")
    world.start()
    busy(world)
    world.send(number)
    world.until(lambda: "Once more" in world.said())
    started = time.monotonic()
    assert world.stop(number) == 0
    assert time.monotonic() - started < 10
    assert world.rows("SELECT outcome FROM sessions") == [("released",)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_that_comes_while_the_daemon_starts_is_an_orderly_one(world, number):
    world.start(ready=False)
    world.until(lambda: world.daemon().running)
    assert world.stop(number) == 0
    assert "Start again:" in world.said()
    assert not world.daemon().running


def test_a_reload_that_comes_while_the_daemon_starts_does_not_end_it(world):
    world.start(ready=False)
    world.until(lambda: world.daemon().running)
    world.send(signal.SIGHUP)
    world.until(lambda: "it is in force" in world.said())
    assert world.process.poll() is None


def test_a_file_edited_while_the_daemon_starts_is_seen_to_have_changed(world):
    world.start(ready=False)
    world.until(lambda: world.daemon().digest)
    world.config.write_text(world.config.read_text() + "# later\n")
    assert "configuration changed on disk" in world.command("status").stdout


def test_the_stop_verb_is_sigterm_and_waits_for_the_end(world):
    world.start()
    pid = world.process.pid
    done = world.command("stop")
    assert f"stopped (pid {pid})" in done.stderr
    assert world.process.wait(5) == 0
    assert "no daemon is running" in world.command("stop").stderr


def test_a_clean_stop_leaves_a_note_and_no_lock(world):
    world.start()
    assert world.daemon().pid == world.process.pid
    world.stop()
    assert (world.state / "clean.json").exists()
    assert not world.daemon().running


@pytest.mark.parametrize("target", ["item", "queue", "--all"])
def test_stop_with_a_target_ends_its_sessions_now_and_leaves_the_items_paused(world, target):
    item = world.add("sleep 60")
    world.start()
    _, decider, worker = busy(world)
    words = {"item": item, "queue": "work", "--all": "--all"}[target]
    done = world.command("stop", words)
    assert f"stopped {item}; it is paused" in done.stdout
    world.until(lambda: not alive(worker) and not alive(decider), 5)
    assert world.value("SELECT paused FROM items WHERE id = ?", item) == 1
    assert world.value("SELECT crashes FROM nodes WHERE item_id = ?", item) == 0
    after = world.add("answer after")  # the daemon goes on
    world.until(lambda: world.value("SELECT state FROM items WHERE id = ?", after) == "done")
    assert world.value("SELECT count(*) FROM sessions WHERE item_id = ?", item) == 1
    assert "nothing is running" in world.command("stop", words).stderr
    world.command("resume", "work" if target == "queue" else item)
    world.until(lambda: world.value("SELECT count(*) FROM sessions WHERE item_id = ?", item) == 2)


def test_stop_with_a_target_works_while_the_daemon_hangs(world):
    item = world.add("sleep 60")
    world.start()
    _, decider, worker = busy(world)
    world.send(signal.SIGSTOP)
    try:
        world.command("stop", item)
        world.until(lambda: not alive(worker) and not alive(decider), 5)
        assert world.value("SELECT paused FROM items WHERE id = ?", item) == 1
    finally:
        world.send(signal.SIGCONT)
    world.until(lambda: "its session was ended" in world.said())
    assert world.stop() == 0
    assert world.value("SELECT crashes FROM nodes WHERE item_id = ?", item) == 0


def test_stop_of_something_unknown_says_so(world):
    world.start()
    assert world.command("stop", "q-9999", check=3).stderr
    world.command("stop", "x", "--all", check=2)


# ------------------------------------------------------------------ starts


def test_a_second_daemon_is_refused_whatever_way_it_is_started(world):
    world.start()
    for words in (["run"], ["run", "--once"], ["run", "--drain"]):
        done = world.command(*words, check=4)
        assert f"pid {world.process.pid}" in done.stderr
    assert world.stop() == 0


def test_a_refused_configuration_leaves_nothing_behind(world):
    world.config.write_text(world.config.read_text() + '\nsurprise = "x"\n')
    assert "surprise" in world.command("run", check=78).stderr
    assert not world.state.exists()


def test_a_state_folder_that_cannot_be_made_is_told_with_its_path(world):
    world.config.write_text(f'state_dir = "{world.folder}/decider.py/state"\n' + world.config.read_text())
    assert f"{world.folder}/decider.py/state cannot be written" in world.command("run", check=78).stderr


def test_a_damaged_store_is_refused_and_the_lock_let_go(world):
    world.add("answer")
    (world.state / "shiftwork.db").write_bytes(b"nonsense" * 1000)
    for _ in range(2):
        assert "is not an SQLite file" in world.command("run", check=70).stderr
    assert not world.daemon().running


def test_a_store_that_is_replaced_under_the_daemon_ends_it(world):
    """FIELD 22: writes would go nowhere."""
    world.add("answer")
    world.start()
    world.until_done(1)
    copy = world.state / "copy.db"
    shutil.copy(world.state / "shiftwork.db", copy)
    copy.rename(world.state / "shiftwork.db")
    (world.state / "bell").touch()
    assert world.process.wait(20) == 70
    assert "was replaced or removed" in world.said()
    assert not world.daemon().running


def test_a_file_dropped_after_the_store_was_unlinked_is_not_archived(world):
    """FIELD 22: it would be a file that counts as taken, and no item."""
    world.add("answer")
    world.start()
    world.until_done(1)

    (world.state / "shiftwork.db").unlink()
    world.drop("late.md", "answer late")
    assert world.process.wait(20) == 70
    assert not list((world.folder / "in-work").glob("archive/*late*"))
    assert [file.name for file in (world.folder / "in-work").rglob("*") if "late" in file.name]


# ------------------------------------------------------------------ reload


def test_a_changed_configuration_counts_from_sighup_on_and_a_bad_one_changes_nothing(world):
    world.start()
    digest = world.daemon().digest
    world.write_config(queues=("work", "more"))
    world.drop("early.md", "answer early", queue="more")
    world.drop("one.md", "answer one")
    world.until_done(1)
    assert world.daemon().digest == digest
    world.send(signal.SIGHUP)
    world.until(lambda: "it is in force" in world.said())
    assert world.daemon().digest != digest
    world.until_done(2)
    world.config.write_text(world.config.read_text().replace("decider =", "decidr ="))
    world.send(signal.SIGHUP)
    world.until(lambda: "the old one stays in force" in world.said())
    assert 'did you mean "decider"' in world.said()
    world.drop("two.md", "answer two", queue="more")
    world.until_done(3)
    assert world.stop() == 0


def test_a_reload_does_not_cut_a_running_session(world):
    world.add("sleep 2")
    world.start()
    busy(world)
    world.send(signal.SIGHUP)
    world.until(lambda: "it is in force" in world.said())
    world.until_done(1)
    assert world.rows("SELECT outcome FROM sessions") == [("answered",)]
    world.stop()


# ------------------------------------------------------------------ once, drain


def test_once_runs_one_session_and_drain_the_rest(world):
    for number in range(3):
        world.drop(f"{number}.md", f"answer {number}")
    done = world.command("run", "--once")
    assert "1 session ran" in done.stderr
    assert world.value("SELECT count(*) FROM items") == 3  # scanned first
    assert "2 sessions ran; nothing is left to do" in world.command("run", "--drain").stderr
    assert "0 sessions ran" in world.command("run", "--once").stderr
    assert not world.daemon().running
    assert len(list((world.folder / "out-work").iterdir())) == 3


def test_drain_waits_for_nothing_that_sleeps_and_ends_well_when_a_person_is_asked(world):
    world.add("answer later", "--not-before", "2h")
    world.add("flag")
    world.add("fail")
    started = time.monotonic()
    done = world.command("run", "--drain")
    assert time.monotonic() - started < 20
    assert "1 item waits for you and 2 open items" in done.stderr
    assert len(world.calls()) == 2


def test_drain_gives_a_crashed_session_its_tries_and_then_asks_a_person(tmp_path):
    world = World(tmp_path, daemon="crash_limit = 2")
    world.add("kill-worker")
    world.add("answer")
    world.command("run", "--drain")
    assert world.states() == {"kill-worker": "open", "answer": "done"}
    assert world.value("SELECT count(*) FROM flags") == 1


def test_sigterm_ends_a_drain_like_a_daemon(world):
    world.add("sleep 60")
    drain = subprocess.Popen(
        [sys.executable, "-P", "-m", "daemon", "run", "--drain"], cwd=world.folder, env=ENVIRONMENT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    busy(world)
    drain.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    drain.send_signal(signal.SIGTERM)
    _, err = drain.communicate(timeout=20)
    assert drain.returncode == 0, err
    assert world.rows("SELECT outcome FROM sessions") == [("released",)]


# ------------------------------------------------------------------ the clock and the disk


def serve_here(world, monkeypatch, story):
    """Run the service in this process while ``story(running, said)`` goes on; all that was printed."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    monkeypatch.chdir(world.folder)
    said = []

    async def whole():
        terminal = Terminal()
        monkeypatch.setattr(terminal, "_print", lambda line, _stream: said.append(line))
        running = service.Service(starting.open_up(world.config, warn=said.append), terminal)
        task = asyncio.create_task(running.run())
        try:
            await asyncio.wait_for(story(running, said), 60)
        finally:
            running._asked_to_stop()
            await asyncio.wait_for(task, 20)

    asyncio.run(whole())
    return said


async def comes(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


def test_a_reload_that_finds_the_store_busy_leaves_no_port_open_that_nobody_serves(world, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def story(running, said):
        await comes(lambda: any("Drop a file" in line for line in said))
        running._store.db.wait_s = 0.2
        text = world.config.read_text()
        world.config.write_text(
            text.replace("[queues.work]\n", '[queues.work]\nconstraints = ["a new one"]\n')
            + f'[http]\nbind = "127.0.0.1:{port}"\n'
        )
        with (world.state / "store.lock").open("r+") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            running._asked_to_reload()
            await comes(lambda: any("is not in force yet" in line for line in said))
        await asyncio.sleep(0.1)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)
        running._asked_to_reload()
        await comes(lambda: any("it is in force" in line for line in said))
        socket.create_connection(("127.0.0.1", port), 5).close()

    serve_here(world, monkeypatch, story)


def test_a_jump_of_the_clock_is_written_down_once_and_makes_no_burst(world, monkeypatch):
    world.add("answer later", "--not-before", "2h")
    offset = [service.monotonic_offset()]
    monkeypatch.setattr(service, "monotonic_offset", lambda: offset[0])

    async def story(running, said):
        await comes(lambda: any("Drop a file" in line for line in said))
        await asyncio.sleep(0.5)
        offset[0] += 1000.0
        for _ in range(3):
            running._rung()
            await asyncio.sleep(0.3)

    said = serve_here(world, monkeypatch, story)
    jumps = [json.loads(data) for (data,) in world.rows("SELECT data FROM events WHERE kind = 'clock'")]
    assert jumps == [{"jump_s": 1000}]
    assert sum("the clock moved by +1000 s" in line for line in said) == 1
    assert len(world.calls()) == 0


def test_a_grown_write_ahead_log_is_folded_away_when_nothing_goes_on(world, monkeypatch):
    """FIELD 23."""
    monkeypatch.setattr(books, "WAL_WORTH_BYTES", 1)
    monkeypatch.setattr(service, "REST_AFTER_S", 0.5)

    async def story(running, said):
        world.drop("one.md", "answer one")
        await comes(lambda: any("answered" in line for line in said))
        await comes(lambda: (world.state / "shiftwork.db-wal").stat().st_size == 0)
        commits = world.commits()
        await asyncio.sleep(1.5)
        assert world.commits() == commits

    serve_here(world, monkeypatch, story)


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", "size=2m") as folder:
        yield folder


def test_a_full_disk_that_only_an_inbox_runs_into_is_paged_too_and_commands_say_so(
    tmp_path, disk, monkeypatch
):
    """FIELD 21."""
    monkeypatch.setattr(engine, "TROUBLE_S", 1.0)
    with web() as receiver:
        url = tmp_path / "url"
        url.write_text(f"json://127.0.0.1:{receiver.port}/\n")
        world = World(tmp_path, extra='[notify]\nservices = [{ url_file = "url" }]\n')
        world.state = disk / "state"
        world.config.write_text(f'state_dir = "{world.state}"\n' + world.config.read_text())

        async def story(running, said):
            await comes(lambda: any("Drop a file" in line for line in said))
            await comes(lambda: list(world.state.glob("inboxes/*")))  # the first scan needs room for its note
            await asyncio.sleep(0.3)
            filler = fill(disk)
            add = partial(world.command, "add", "-", input="much " * 4000, check=75)
            done = await asyncio.to_thread(add)
            assert "the store cannot be written: database or disk is full" in done.stderr
            assert "Traceback" not in done.stderr
            world.drop("a.md", "text " * 4000)
            await comes(lambda: receiver.got)
            assert (tmp_path / "in-work" / "a.md").exists()
            filler.unlink()
            await comes(lambda: any("can be written again" in line for line in said))

        serve_here(world, monkeypatch, story)
        assert "cannot use its store" in receiver.got[0]["title"]


def test_a_full_disk_is_paged_once_costs_no_crash_and_recovers_alone(tmp_path, disk, monkeypatch):
    """FIELD 21."""
    monkeypatch.setattr(engine, "TROUBLE_S", 1.0)
    with web() as receiver:
        url = tmp_path / "url"
        url.write_text(f"json://127.0.0.1:{receiver.port}/\n")
        world = World(tmp_path, extra='[notify]\nservices = [{ url_file = "url" }]\n')
        world.state = disk / "state"
        world.config.write_text(f'state_dir = "{world.state}"\n' + world.config.read_text())
        item = world.add("answer when there is room", "--not-before", "4s")

        async def story(running, said):
            await comes(lambda: any("Drop a file" in line for line in said))
            await asyncio.sleep(0.3)
            filler = fill(disk)
            await comes(lambda: receiver.got)
            await asyncio.sleep(2.5)  # more tries fail meanwhile
            assert len(receiver.got) == 1
            filler.unlink()
            await comes(lambda: any(f"{item}  answered" in line for line in said))

        said = serve_here(world, monkeypatch, story)
        assert "cannot use its store" in receiver.got[0]["title"]
        assert sum("the store cannot be written" in line for line in said) == 1
        assert any("can be written again" in line for line in said)
        assert world.value("SELECT crashes FROM nodes WHERE item_id = ?", item) == 0


def test_a_refused_start_pages_once_until_one_succeeds(world):
    with web() as receiver:
        (world.folder / "url").write_text(f"json://127.0.0.1:{receiver.port}/\n")
        good = world.config.read_text() + '[notify]\nservices = [{ url_file = "url" }]\n'
        world.config.write_text("surprise = 1\n" + good)
        for _ in range(2):
            world.command("run", check=78)
        assert [one["title"].partition(" on ")[0] for one in receiver.got] == ["[Shiftwork] did not start"]
        world.config.write_text(good)
        world.command("run", "--once")
        world.config.write_text("surprise = 1\n" + good)
        world.command("run", check=78)
        assert len(receiver.got) == 2


def test_the_heartbeat_is_pinged_while_the_daemon_is_well(world):
    with web() as receiver:
        (world.folder / "beat").write_text(f"http://127.0.0.1:{receiver.port}/ping/x\n")
        world.config.write_text(world.config.read_text() + '[notify]\nheartbeat_url_file = "beat"\n')
        world.start()
        world.until(lambda: receiver.paths == ["/ping/x"])
        world.stop()


def _stamps(state):
    return {
        entry.name: entry.stat().st_mtime_ns for entry in state.iterdir() if entry.name != "shiftwork.db-shm"
    }


def _cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _switches(pid):
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        total += int(status.split("voluntary_ctxt_switches:")[1].split()[0])
    return total


def _text(path):
    return path.read_text() if path.exists() else ""
