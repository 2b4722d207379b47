"""Many real processes write to one store at once: nobody fails, nobody starves (FIELD 19, MEASURED)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest
from crash_world import CrashWorld
from daemon_world import ENVIRONMENT

COMMANDS = 20
WAIT_LIMIT_S = 1.0

# In each real process: how long every write waited for its turn, from asking for the gate to holding it.
GATE_WITNESS = """
import os, sys, time
from store import gate
locked = gate.WriteGate._locked
def timed(self, *arguments):
    began = time.monotonic()
    fd = locked(self, *arguments)
    log = os.open(os.environ["SHIFTWORK_WAITS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
    os.write(log, f"{os.getpid()} {time.monotonic() - began}\\n".encode())
    os.close(log)
    return fd
gate.WriteGate._locked = timed
"""


def popen(world, *words, body: str | None = None, env=None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "daemon", *words], cwd=world.folder, env=ENVIRONMENT | (env or {}),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if body is not None:
        process.stdin.write(body)
    process.stdin.close()
    process.stdin = None
    return process


def ended(processes) -> None:
    """None of them may have failed."""
    failed = []
    for process in processes:
        out, err = process.communicate(timeout=100)
        if process.returncode != 0:
            failed.append((process.args, process.returncode, out, err))
    assert failed == []


def test_twenty_commands_resolve_and_add_beside_a_busy_daemon_without_an_error(tmp_path):
    """FIELD 19: resolve while the daemon works, twenty at a time."""
    world = CrashWorld(tmp_path, daemon="max_sessions = 2")
    for number in range(COMMANDS // 2):
        world.flagged.add(f"flag {number}")
        world.drop(f"flag-{number}.md", f"flag {number}", "beta")
    world.start()
    try:
        world.until_quiet()
        flags = [flag["id"] for flag in json.loads(world.command("flags", "--json").stdout)["flags"]]
        assert len(flags) == COMMANDS // 2
        for number in range(100):  # keep it busy
            world.drop(f"busy-{number}.md", f"answer busy {number}", "alpha")
        processes = []
        for number, flag in enumerate(flags):
            processes.append(popen(world, "resolve", flag, "--option", "1", "--by", f"person-{number}"))
            body = f"answer added {number}"
            world.handed[body] = "alpha"
            processes.append(popen(world, "add", "-", "--queue", "alpha", body=body))
        assert len(processes) == COMMANDS
        ended(processes)
        world.flagged.clear()
        world.until_quiet(60)
        world.assert_whole()
        for number, flag in enumerate(flags):
            by = world.value("SELECT resolved_by FROM flags WHERE id = ?", flag)
            assert by == f"person-{number}"
    finally:
        world.kill()


@pytest.mark.alone
@pytest.mark.slow
def test_no_writer_waits_over_a_second_beside_a_busy_worker_and_a_flood(tmp_path):
    """One busy worker, an intake flood, twenty commands at once: each write waits less than a second.

    The waits are measured at the gate inside the real processes (commands, daemon, worker), so that the start of
    twenty interpreters is not counted.
    """
    world = CrashWorld(tmp_path)
    for number in range(60):  # work for the one worker, for as long as this takes
        world.drop(f"busy-{number}.md", f"answer busy {number}", "alpha")
    folder = tmp_path / "measured"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(GATE_WITNESS)
    measured = {
        "PYTHONPATH": f"{folder}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}",
        "SHIFTWORK_WAITS": str(folder / "log"),
    }
    world.start(env=measured)
    stop = threading.Event()
    flood = threading.Thread(target=flood_in, args=(world, stop))
    try:
        world.until(lambda: len(world.calls()) > 5)
        sessions = len(world.calls())
        (folder / "log").unlink()
        flood.start()
        processes = [
            popen(world, "add", "-", "--queue", "alpha", body=f"answer measured {number}", env=measured)
            for number in range(COMMANDS)
        ]
        for number in range(COMMANDS):
            world.handed[f"answer measured {number}"] = "alpha"
        ended(processes)
        waits = [line.split() for line in (folder / "log").read_text().splitlines()]
        busy = len(world.calls()) - sessions
        stop.set()
        flood.join()
        commands = {str(process.pid) for process in processes}
        longest = max(float(wait) for _, wait in waits)
        others = sum(pid not in commands for pid, _ in waits)
        print(
            f"{len(waits)} writes, {others} of them not by commands, the longest wait {longest * 1000:.0f} ms;"
        )
        print(f"{busy} sessions meanwhile")
        assert commands <= {pid for pid, _ in waits}
        assert longest < WAIT_LIMIT_S
        assert busy >= 3, "the worker did not starve either"
        assert others >= 6
        world.until_quiet(100)
        world.assert_whole()
    finally:
        stop.set()
        world.kill()


def flood_in(world, stop) -> None:
    """Files as fast as they can be dropped, up to a few thousand."""
    number = 0
    while not stop.is_set() and number < 200:
        world.drop(f"flood-{number}.md", f"answer flood {number}", "beta")
        number += 1
        if number % 20 == 0:
            time.sleep(0.02)
