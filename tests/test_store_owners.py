"""Who runs a session is told by boot, namespace, pid and start time, never by a pid alone (FIELD 26, 27)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from store import owners


def _sleeper(**kwargs):
    return subprocess.Popen(["sleep", "60"], **kwargs)


def _with(line, **changes):
    return ":".join(str(part) for part in owners.parse(line)._replace(**changes))


def test_a_process_sees_itself_alive_under_one_line():
    line = owners.me()
    assert owners.verdict(line) == "alive"
    assert owners.me() == line
    assert owners.parse(line).pid == os.getpid()


def test_a_forked_child_has_a_line_of_its_own():
    line = owners.me()
    out, into = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(into, owners.me().encode())
        os._exit(0)
    child = os.read(out, 1000).decode()
    os.waitpid(pid, 0)
    os.close(out)
    os.close(into)
    assert child != line
    assert owners.parse(child).pid == pid
    assert owners.verdict(child) == "dead"


def test_a_zombie_counts_as_dead():
    child = subprocess.Popen(["true"])
    line = owners.of(child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{child.pid}/stat").exists()  # not reaped yet
    assert owners.verdict(line) == "dead"
    child.wait()
    assert owners.verdict(line) == "dead"


def test_a_pid_that_was_given_to_another_process_is_not_its_old_owner():
    line = owners.me()
    assert owners.verdict(_with(line, start=owners.parse(line).start - 1)) == "dead"


def test_another_boot_is_dead_and_another_namespace_is_unknown():
    line = owners.me()
    assert owners.verdict(_with(line, boot="0f0f0f0f-0000-0000-0000-000000000000")) == "dead"
    assert owners.verdict(_with(line, namespace="4026532999")) == "unknown"


@pytest.mark.parametrize("line", ["", "x", "a:b:c:d:e", "a:b:1", "::::", "a:b:-1:2:c"])
def test_what_is_no_owner_line_proves_nothing(line):
    assert owners.verdict(line) == "unknown"
    assert not owners.kill_group(line)


def test_a_name_with_blanks_and_brackets_does_not_confuse_the_reader(tmp_path):
    odd = tmp_path / "a) Z 1 (b"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(odd), "60"])
    try:
        assert owners.verdict(owners.of(child.pid)) == "alive"
    finally:
        child.kill()
        child.wait()


def test_killing_takes_the_whole_group_of_a_leader():
    leader = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess as s; print(s.Popen(['sleep', '60']).pid, flush=1); input()",
        ],
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with leader:
        grandchild = owners.of(int(leader.stdout.readline()))
        assert owners.kill_group(owners.of(leader.pid))
        assert leader.wait(5) == -signal.SIGKILL
    deadline = time.monotonic() + 5
    while owners.verdict(grandchild) == "alive" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert owners.verdict(grandchild) == "dead"


def test_what_a_dead_leader_left_in_its_session_can_be_killed():
    script = "import subprocess as s; print(s.Popen(['sleep', '60']).pid, flush=True); input()"
    leader = subprocess.Popen(
        [sys.executable, "-c", script],
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with leader:
        orphan = owners.of(int(leader.stdout.readline()))
        line = owners.of(leader.pid)
        assert owners.kill_remains(line) == 0  # it lives
        leader.kill()
        leader.wait()
        assert owners.verdict(orphan) == "alive"
        assert owners.kill_remains(line) == 1
    deadline = time.monotonic() + 5
    while owners.verdict(orphan) == "alive" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert owners.verdict(orphan) == "dead"


def test_an_owner_in_someone_elses_group_is_killed_alone():
    child = _sleeper()  # in this test's own group
    assert owners.kill_group(owners.of(child.pid))
    assert child.wait(5) == -signal.SIGKILL


def test_nothing_is_killed_when_the_start_time_differs():
    child = _sleeper(start_new_session=True)
    try:
        stale = _with(owners.of(child.pid), start=1)
        assert not owners.kill_group(stale)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_a_process_never_kills_itself_as_an_owner():
    assert not owners.kill_group(owners.me())


def test_two_lines_of_one_process_are_the_same_process():
    assert owners.same_process(owners.me(), owners.of(os.getpid()))
    assert not owners.same_process(owners.me(), owners.of(os.getppid()))
    assert not owners.same_process("", "")


def test_a_verdict_is_cheap_enough_to_ask_for_every_lease():
    """Measured at about 0.1 ms; the bound here only catches a change of kind."""
    line = owners.me()
    started = time.perf_counter()
    for _ in range(200):
        owners.verdict(line)
    assert (time.perf_counter() - started) / 200 < 0.002
