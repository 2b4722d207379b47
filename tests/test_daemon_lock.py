"""One daemon per store, and nobody believes a stale pid (DESIGN 3)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.lock import NAME, Lock, read_daemon
from store import owners
from store.errors import AlreadyRunning

ROOT = Path(__file__).parent.parent
HOLDER = """
import sys, time
from pathlib import Path
from daemon.lock import Lock
lock = Lock.acquire(Path(sys.argv[1]), now=1000.0)
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_daemon_is_refused_and_told_who_runs(tmp_path, holder):
    with pytest.raises(AlreadyRunning, match=f"pid {holder.pid}") as refused:
        Lock.acquire(tmp_path, now=2000.0)
    assert refused.value.exit_code == 4
    assert "shiftwork stop" in str(refused.value)


def test_status_sees_who_runs_and_since_when(tmp_path, holder):
    daemon = read_daemon(tmp_path)
    assert daemon.running
    assert (daemon.pid, daemon.since_at) == (holder.pid, 1000.0)
    assert owners.verdict(daemon.owner) == "alive"


def test_a_killed_daemon_leaves_its_note_but_no_lock(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert json.loads((tmp_path / NAME).read_text())["pid"] == holder.pid
    assert not read_daemon(tmp_path).running
    Lock.acquire(tmp_path, now=2000.0).release()


def test_a_note_whose_pid_was_given_to_another_process_is_not_believed(tmp_path):
    stale = owners.parse(owners.me())._replace(start=1)
    note = {"owner": ":".join(map(str, stale)), "pid": os.getpid(), "since_at": 1.0}
    (tmp_path / NAME).write_text(json.dumps(note))
    assert not read_daemon(tmp_path).running


def test_a_holder_of_another_namespace_is_seen_by_its_lock(tmp_path):
    lock = Lock.acquire(tmp_path, now=1.0)
    hidden = ":".join(map(str, owners.parse(owners.me())._replace(namespace="1")))
    (tmp_path / NAME).write_text(json.dumps({"owner": hidden, "pid": 7, "since_at": 1.0}))
    assert read_daemon(tmp_path).pid == 7
    os.close(lock._fd)
    assert not read_daemon(tmp_path).running


def test_a_released_lock_leaves_no_note(tmp_path):
    lock = Lock.acquire(tmp_path, now=1.0)
    assert read_daemon(tmp_path).running
    lock.release()
    lock.release()
    assert read_daemon(tmp_path) == (False, None, None, "", "", "")


def test_looking_creates_nothing(tmp_path):
    assert not read_daemon(tmp_path / "state").running
    assert not read_daemon(tmp_path).running
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"owner": 3}', b"\xff", b"4711\n"])
def test_a_note_that_cannot_be_read_is_no_daemon(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    assert not read_daemon(tmp_path).running


def test_a_lock_file_that_was_removed_is_locked_anew(tmp_path):
    """Whoever removes a "stale" lock file would let a second daemon in beside the first."""
    lock = Lock.acquire(tmp_path, now=1.0)
    lock.note(digest="abc")
    lock.keep()
    (tmp_path / NAME).unlink()
    lock.keep()
    assert read_daemon(tmp_path).digest == "abc"
    with pytest.raises(AlreadyRunning):
        Lock.acquire(tmp_path, now=2.0)
    (tmp_path / NAME).unlink()
    second = Lock.acquire(tmp_path, now=3.0)
    with pytest.raises(AlreadyRunning):
        lock.keep()
    second.release()


def test_what_the_daemon_read_stands_in_its_note(tmp_path):
    lock = Lock.acquire(tmp_path, now=1.0)
    lock.note(config="/etc/x.toml", digest="0123")
    lock.note(digest="4567")
    seen = read_daemon(tmp_path)
    assert (seen.config, seen.digest, seen.pid) == ("/etc/x.toml", "4567", os.getpid())
    lock.release()


def test_no_child_holds_the_lock(tmp_path):
    lock = Lock.acquire(tmp_path, now=1.0)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        lock.release()
        Lock.acquire(tmp_path, now=2.0).release()
        child.kill()
