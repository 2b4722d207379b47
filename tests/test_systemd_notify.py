"""What the daemon says on NOTIFY_SOCKET, datagram by datagram: no manager is needed to hear it (FIELD 51, 52)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from contextlib import suppress

import pytest
from daemon_world import ROOT, World

from daemon import journal, sdnotify, service, starting
from daemon.supervision import Supervision, status_words
from daemon.terminal import Terminal
from daemon.workers import Pool, Worker
from store.counting import Glance

NOTHING = Glance(0, 0, 0, 0, 0, 0, None)


class Ear:
    """The manager's end."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.heard: list[dict[str, str]] = []

    def next(self, seconds: float = 30.0) -> dict[str, str]:
        self.socket.settimeout(seconds)
        text = self.socket.recv(65536).decode()
        self.heard.append(dict(line.split("=", 1) for line in text.split("\n")))
        return self.heard[-1]

    def until(self, key: str, value: str | None = None) -> dict[str, str]:
        end = time.monotonic() + 40
        while time.monotonic() < end:
            one = self.next()
            if key in one and (value is None or one[key] == value):
                return one
        raise AssertionError(self.heard)


@pytest.fixture
def ear(tmp_path):
    one = Ear(str(tmp_path / "notify"))
    yield one
    one.socket.close()


@pytest.fixture
def world(tmp_path):
    one = World(tmp_path)
    yield one
    one.kill()


def test_it_tells_of_its_start_of_reloads_good_and_bad_and_of_its_end(ear, world):
    usec = {"WATCHDOG_USEC": "4000000"}
    world.start(env={"NOTIFY_SOCKET": ear.address, **usec}, ready=False)
    first = ear.next()
    assert first["STATUS"] == "opening the store"
    assert int(first["EXTEND_TIMEOUT_USEC"]) >= 600e6  # a migration may take ten minutes
    ear.until("READY", "1")
    assert "Drop a file" in world.said()
    ear.until("STATUS", "nothing to do")
    ear.until("WATCHDOG", "1")

    good = world.config.read_text()
    for text, status in (
        (good + "[nonsense]\n", "the new configuration is refused"),
        (good, "nothing to do"),
    ):
        world.config.write_text(text)
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        world.send(signal.SIGHUP)
        reloading = ear.until("RELOADING", "1")
        assert (
            before <= int(reloading["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        )
        ready = ear.until("READY", "1")
        assert ready["STATUS"].startswith(status)

    world.send(signal.SIGTERM)
    stopping = ear.until("STOPPING", "1")
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 20e6  # the grace and what it takes to put things away
    assert world.stop() == 0
    assert sum("READY" in one for one in ear.heard) == 3


def test_nobody_whom_it_starts_can_speak_in_its_name(ear, world):
    (world.folder / "decider.py").write_text(
        "import json, os\n"
        "seen = [open(f'/proc/{pid}/environ').read() for pid in ('self', os.getppid())]\n"
        "open('seen.json', 'w').write(json.dumps(seen))\n"
        "print(json.dumps({'decision': 'answer', 'reason': 'r', 'text': 't', 'citations': []}))\n"
    )
    world.start(env={"NOTIFY_SOCKET": ear.address, "WATCHDOG_USEC": "60000000"})
    world.add("answer")
    world.until_done(1)
    for environment in json.loads((world.folder / "seen.json").read_text()):
        assert not [name for name in sdnotify.VARIABLES if name in environment]


def test_a_watchdog_meant_for_another_process_is_not_fed():
    environ = {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1", "PATH": "/bin"}
    assert sdnotify.take(environ).watchdog_s is None
    assert environ == {"PATH": "/bin"}
    mine = {"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}
    assert sdnotify.take(mine).watchdog_s == 1.5


def test_an_abstract_socket_hears_it_too():
    ear = Ear(f"@shiftwork-{os.getpid()}")
    line = sdnotify.Line(ear.address)
    line.say("READY=1", "STATUS=two\nlines")
    assert ear.next() == {"READY": "1", "STATUS": "two lines"}
    line.close()
    ear.socket.close()


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "/nowhere/at/all"])
def test_without_anybody_who_listens_nothing_is_an_error(address):
    line = sdnotify.Line(address)
    line.say("READY=1")
    line.close()
    line.say("READY=1")


def test_pings_stop_while_something_is_stuck_and_go_on_when_it_is_over(ear):
    """FIELD 52."""
    well = [False]

    async def story() -> None:
        line = sdnotify.Line(ear.address, 0.4)
        one = Supervision(line, well=lambda: well[0], clock=time.time)
        one.watch()
        await asyncio.sleep(1.0)
        ear.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            ear.socket.recv(100)
        well[0] = True
        await asyncio.sleep(1.0)
        assert ear.socket.recv(100) == b"WATCHDOG=1"
        one.close()

    asyncio.run(story())


def test_a_turn_of_the_loop_that_hangs_is_not_vouched_for(ear, world, monkeypatch):
    """FIELD 52: the event loop turns on, and what it should do does not: here a reload that can read no file."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(world.folder)
    monkeypatch.setattr(service, "STUCK_S", 1.0)
    good = world.config.read_bytes()

    async def quiet(seconds: float) -> bool:
        """Whether nothing is heard for so long."""
        ear.socket.setblocking(False)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(0.05)
            with suppress(BlockingIOError):
                ear.socket.recv(65536)
                return False
        return True

    async def until(what, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not await what():
            assert time.monotonic() < end

    async def not_quiet() -> bool:
        return not await quiet(3.0)

    async def story() -> None:
        line = sdnotify.Line(ear.address, 1.0)
        running = service.Service(starting.open_up(world.config, warn=print), Terminal(), manager=line)
        task = asyncio.create_task(running.run())
        await until(not_quiet)
        world.config.unlink()
        os.mkfifo(world.config)
        try:
            running._asked_to_reload()
            await until(lambda: quiet(3.0))
        finally:
            await asyncio.to_thread(world.config.write_bytes, good)
        await until(not_quiet)
        running._asked_to_stop()
        await asyncio.wait_for(task, 30)

    asyncio.run(story())


def test_a_worker_is_late_only_when_it_outlives_its_own_deadline(tmp_path):
    """FIELD 52: however long a session is, until the deadline that it declared all is well."""

    async def story() -> None:
        pool = Pool(on_message=lambda *_: None, on_death=lambda _: None)
        ours, theirs = socket.socketpair()
        worker = Worker(pool_forked(ours), {})
        pool.workers[worker.pid] = worker
        pool._take(
            worker, json.dumps({"type": "session_started", "deadline_at": time.time() + 3600}).encode()
        )
        assert pool.all_in_time()
        worker.bound_at = asyncio.get_running_loop().time() - 60  # killed a minute ago, and still there
        assert not pool.all_in_time()
        worker.timer.cancel()
        ours.close()
        theirs.close()

    def pool_forked(sock):
        from daemon.forker import Forked

        return Forked(os.getpid(), 1, sock)

    asyncio.run(story())


def test_a_status_is_said_once_and_not_too_often(ear):
    now = [1000.0]

    async def story() -> None:
        one = Supervision(sdnotify.Line(ear.address), well=lambda: True, clock=lambda: now[0])
        one.ready()
        assert one.wants_status()
        one.show(NOTHING)
        assert (one.due_at(), one.wants_status()) == (None, False)  # nothing changed: nothing is read
        one.changed()
        assert one.due_at() > now[0]
        assert not one.wants_status()
        now[0] = one.due_at()
        assert one.wants_status()
        one.show(NOTHING)
        one.show(NOTHING._replace(queued=2, running=1))
        one.close()

    asyncio.run(story())
    assert [ear.next() for _ in range(3)] == [
        {"READY": "1"},
        {"STATUS": "nothing to do"},
        {"STATUS": "2 queued, 1 running"},
    ]


@pytest.mark.parametrize(
    ("glance", "words"),
    [
        (NOTHING, "nothing to do"),
        (Glance(2, 1, 1, 0, 0, 0, 1000.0), "2 queued, 1 running, 1 waiting for a person (oldest 3h)"),
        (Glance(0, 0, 0, 3, 4, 5, None), "3 parked, 4 paused, 5 stuck"),
    ],
)
def test_the_status_line_says_what_status_says(glance, words):
    assert status_words(glance, 1000.0 + 3 * 3600) == words
    assert status_words(glance, 1000.0 + 3 * 3600, "the store is full") == f"the store is full; {words}"


def test_a_glance_counts_what_status_counts(world):
    world.start()
    for body in ("flag", "flag two", "answer"):
        world.add(body)
    world.until(
        lambda: len(world.rows("SELECT 1 FROM sessions WHERE outcome IN ('flagged', 'answered')")) == 3
    )
    world.add("sleep 60")
    world.until(lambda: world.rows("SELECT 1 FROM leases"))
    world.add("queued behind it")
    world.command("pause", world.add("held by a person"))
    from store.sqlite import open_for_reading

    store = open_for_reading(world.state)
    now = time.time()
    seen, counts = store.views.glance(now=now), store.views.status(["work"], now=now)["queues"]["work"]
    store.close()
    for name in ("queued", "running", "waiting", "parked", "paused", "stuck"):
        assert getattr(seen, name) == counts[name], name
    assert (seen.queued, seen.running, seen.waiting, seen.paused) == (1, 1, 2, 1)
    assert now - seen.oldest_waiting_at == pytest.approx(counts["oldest_waiting_age_s"])


def test_in_the_journal_lines_carry_no_time_and_warnings_their_level(tmp_path, monkeypatch):
    with (tmp_path / "journal").open("w+") as stream:
        said = Terminal(out=stream, err=stream)
        said.warn("to a file")
        status = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        said.say("work")
        said.warn("two\nlines")
        stream.seek(0)
        dated, *rest = stream.read().splitlines()
    assert dated.endswith("  to a file")
    assert dated != "to a file"
    assert rest == ["work", f"{journal.WARNING}two", f"{journal.WARNING}lines"]
