"""The zygote: a small process with everything imported, which forks a worker whenever the daemon asks for one.

It runs one thread, holds no store, no lock and no descriptor of the daemon but one end of a socket pair (SEQPACKET,
one JSON object a packet):

    daemon → zygote   {"id": 4, "memory": 1073741824}  with two descriptors (SCM_RIGHTS):
                      the worker's socket, and a memory file with its job as JSON
    zygote → daemon   {"type": "ready", "pid": …}                      once, after the imports
                      {"type": "refused", "error": …}                  once instead: it cannot serve
                      {"type": "forked", "id": 4, "pid": …, "start": …}
                      {"type": "not_forked", "id": 4, "error": …}
                      {"type": "died", "pid": …, "start": …, "status": …}   status as os.wait gives it

A worker leads a session of its own, so a signal to its group reaches its children and nobody else. When a worker
ends, whatever it left in its group is killed before its pid is given back, and then what left that group, since
orphans come to the zygote. When the daemon ends, so do all groups and orphans.
Run as a file with ``python -P`` so that nothing in the current folder can stand in for our modules.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

ENTRY = "sessions.worker:work"
WORKER_BADNESS = 500  # oom_score_adj: when memory runs out the kernel takes a worker, not the daemon
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ORPHAN_ROUNDS = 50
_ORPHAN_PAUSE_S = 0.002
_DAEMON_DIED = signal.SIGUSR1
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the daemon alone says when the zygote ends


class Child(NamedTuple):
    """A forked worker; ``start`` in clock ticks since boot."""

    pid: int
    start: int


class Zygote:
    """The loop: fork on request, report the dead, end with the daemon."""

    def __init__(self, control: socket.socket, entry: str) -> None:
        self._control = control
        self._entry = entry
        self._children: dict[int, Child] = {}  # by pidfd
        self._poll = select.poll()

    def serve(self) -> None:
        """Until the daemon hangs up; then every worker's group is killed."""
        signal.signal(_DAEMON_DIED, lambda _number, _frame: self._end(1))
        self._poll.register(self._control, select.POLLIN)
        self._send({"type": "ready", "pid": os.getpid()})
        while True:
            for fd, _event in self._poll.poll():
                if fd != self._control.fileno():
                    self._report_death(fd)
                elif not self._take_request():
                    self._end(0)

    def _take_request(self) -> bool:
        try:
            data, fds, _flags, _address = socket.recv_fds(self._control, 65536, 4, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            return False
        if not data:
            return False
        try:
            request = json.loads(data)
            sock, job = fds
            self._fork(request, sock, job)
        except (OSError, KeyError, ValueError) as problem:
            self._send({"type": "not_forked", "id": _id_in(data), "error": str(problem)})
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _fork(self, request: dict[str, Any], sock: int, job: int) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(parent, sock, job, request.get("memory"))
        child = Child(pid, _start_of(pid))
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = child
        self._poll.register(pidfd, select.POLLIN)
        self._send({"type": "forked", "id": request["id"], "pid": child.pid, "start": child.start})

    def _become_worker(self, parent: int, sock: int, job: int, memory: int | None) -> NoReturn:
        status = 1
        try:
            self._control.close()
            for pidfd in self._children:
                os.close(pidfd)
            die_with(parent, signal.SIGKILL)
            os.setsid()
            _limit(memory)
            signal.signal(_DAEMON_DIED, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            gc.enable()
            status = _work(socket.socket(fileno=sock), job, self._entry)
        except BaseException:  # noqa: BLE001 – nothing of a worker may run on in the zygote's loop
            traceback.print_exc()
        finally:
            with suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _report_death(self, pidfd: int) -> None:
        child = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _kill_group(child.pid)  # its pid is ours until the wait below, so this can hit nobody else
        _, status = os.waitpid(child.pid, 0)
        self._end_orphans()
        self._send({"type": "died", "pid": child.pid, "start": child.start, "status": status})

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._control.send(json.dumps(message).encode())
        except OSError:
            self._end(1)

    def _end_orphans(self) -> None:
        """Kill what dead workers left outside their groups; a child of one that is killed comes to us in its turn."""
        mine = {child.pid for child in self._children.values()}
        for _ in range(_ORPHAN_ROUNDS):
            orphans = [pid for pid in _children_of_this() if pid not in mine]
            if not orphans:
                return
            for pid in orphans:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_ORPHAN_PAUSE_S)
            for pid in orphans:  # one in an uninterruptible wait is not waited for
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _end(self, status: int) -> NoReturn:
        children, self._children = list(self._children.values()), {}
        for child in children:
            _kill_group(child.pid)
        self._end_orphans()
        os._exit(status)


def die_with(parent: int, number: int) -> None:
    """Have the kernel send ``number`` to this process when its parent ends; ends at once if it already did."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _work(sock: socket.socket, job: int, entry: str) -> int:
    """Run the entry on the job. Exit code: 0 it returned, 1 it raised (told to the daemon)."""
    from sessions.link import Link
    from store.errors import ShiftworkError

    link = Link(sock)
    link.stop_on_sigterm()
    try:
        with os.fdopen(job, "rb") as file:
            file.seek(0)
            task = json.load(file)
        module, _, name = entry.partition(":")
        getattr(importlib.import_module(module), name)(task, link)
    except Exception as problem:  # noqa: BLE001 – the worker's boundary: said to the daemon, and exit 1
        if not (isinstance(problem, (ShiftworkError, OSError, MemoryError)) or "disk" in str(problem)):
            traceback.print_exc()  # a fault of ours: where it was matters; the others say all in a line
        link.send({"type": "error", "error": f"{type(problem).__name__}: {problem}"})
        return 1
    return 0


def _limit(memory: int | None) -> None:
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold secrets and fill the disk
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(WORKER_BADNESS), encoding="ascii")


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # in the moment before it led a group


def _children_of_this() -> list[int]:
    with suppress(OSError):
        return [int(word) for word in Path("/proc/thread-self/children").read_bytes().split()]
    return []


def _start_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])


def _id_in(data: bytes) -> int | None:
    with suppress(ValueError, AttributeError):
        found = json.loads(data).get("id")
        return found if isinstance(found, int) else None
    return None


def _prepare(preload: list[str]) -> str | None:
    """Import what workers need and freeze it, so that forks share its pages. What is wrong, or None."""
    gc.disable()
    try:
        for name in preload:
            importlib.import_module(name)
    except Exception as problem:  # noqa: BLE001 – any fault of an import is told to the daemon, not to a terminal
        return f"cannot import {name}: {type(problem).__name__}: {problem}"
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1 or threading.active_count() != 1:
        return f"importing {', '.join(preload)} started threads ({threads}); a fork would break them"
    gc.collect()
    gc.freeze()
    return None


def main() -> int:
    """`zygote.py --control FD --parent PID [--entry MODULE:NAME] [--preload MODULE]…`; started by the daemon."""
    parser = argparse.ArgumentParser(description="Started by the daemon; forks its workers.")
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--entry", default=ENTRY)
    parser.add_argument("--preload", action="append", default=[])
    options = parser.parse_args()
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    die_with(options.parent, _DAEMON_DIED)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    control = socket.socket(fileno=options.control)
    control.set_inheritable(False)
    root = str(Path(__file__).resolve().parent.parent)
    if root not in sys.path:
        sys.path.insert(0, root)
    problem = _prepare(options.preload or [options.entry.partition(":")[0]])
    if problem is not None:
        control.send(json.dumps({"type": "refused", "error": problem}).encode())
        return 1
    Zygote(control, options.entry).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
