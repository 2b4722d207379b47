"""Small jobs for real workers, started by the tests of the process side. ``job["do"]`` names one."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def work(job, link):
    globals()[job["do"]](job, link)


def nothing(job, link):
    pass


def echo(job, link):
    link.send(
        {
            "type": "echo",
            "size": len(job["value"]),
            "tail": job["value"][-3:],
            "pid": os.getpid(),
            "sid": os.getsid(0),
        }
    )


def look(job, link):
    """What a worker inherited."""
    fds = {
        fd: os.readlink(f"/proc/self/fd/{fd}") for fd in map(int, os.listdir("/proc/self/fd")) if _open(fd)
    }
    link.send(
        {
            "type": "look",
            "fds": {str(fd): target for fd, target in fds.items()},
            "threads": len(os.listdir("/proc/self/task")),
            "blas": os.environ.get("OPENBLAS_NUM_THREADS"),
            "daemon": os.environ.get("SHIFTWORK_DAEMON_PID"),
            "badness": Path("/proc/self/oom_score_adj").read_text().strip(),
            "limits": Path("/proc/self/limits").read_text(),
        }
    )


def _open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def segfault(job, link):
    link.send(
        {"type": "session_started", "session": 1, "item": "q-1", "node": "n", "deadline_at": time.time() + 60}
    )
    ctypes.string_at(0)


def kill_self(job, link):
    link.send({"type": "last words"})
    os.kill(os.getpid(), signal.SIGKILL)


def eat_memory(job, link):
    hoard = []
    while True:
        hoard.append(bytearray(16 << 20))


def fail(job, link):
    raise ValueError(job["why"])


def leave(job, link):
    sys.exit(job["code"])


def hang(job, link):
    """Declares a deadline, tells its child's pid, and ignores every plea."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "1000"])
    link.send(
        {
            "type": "session_started",
            "session": 1,
            "deadline_at": time.time() + job["seconds"],
            "child": child.pid,
        }
    )
    while True:
        time.sleep(10)


def leave_a_child(job, link):
    """Ends by itself and leaves a child running in its group."""
    link.send({"type": "child", "pid": subprocess.Popen(["sleep", "1000"]).pid})


def sessions_until_stopped(job, link):
    """Short sessions one after the other until asked to stop; says how many were finished."""
    done = 0
    while not link.stop_asked():
        link.send({"type": "session_started", "session": done, "deadline_at": time.time() + 30})
        time.sleep(job.get("each", 0.05))
        done += 1
        link.send({"type": "session_ended", "session": done})
    link.send({"type": "idle", "done": done})


def short_then_long(job, link):
    """A short deadline that is extended before it passes."""
    for number in range(job["times"]):
        link.send(
            {
                "type": "session_started" if number == 0 else "call",
                "deadline_at": time.time() + job["seconds"],
            }
        )
        time.sleep(job["seconds"] / 2)
    link.send({"type": "session_ended"})


def noise(job, link):
    """Everything a daemon should not fall over."""
    for line in (b"not json\n", b"[1]\n", b'{"no": "type"}\n', b"\xff\xfe\n"):
        link._sock.sendall(line)
    link.send({"type": "good"})


def endless_line(job, link):
    while True:
        link._sock.sendall(b"x" * 65536)


def flood(job, link):
    for number in range(job["count"]):
        link.send({"type": "n", "number": number})


def hang_before_anything(job, link):
    time.sleep(1000)
