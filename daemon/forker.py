"""The daemon's handle on its zygote: starts it, asks it for workers, hears who died, notices when it is gone.

    down → starting → up → down       lost: it ended, refused, or did not answer; whoever holds this decides what next

One zygote serves until it is lost. Its workers die with it, by the kernel's hand.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from daemon import zygote
from store.errors import ShiftworkError

FORK_WAIT_S = 10.0
START_WAIT_S = 60.0
_ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "BLIS_NUM_THREADS",
    ),
    "1",
)


class CannotStart(ShiftworkError):
    """No worker can be started now; the message says why. Trying again later is right."""

    retryable = True


class Forked(NamedTuple):
    """A worker that was started. ``start`` in clock ticks since boot; ``sock`` is our end of its socket."""

    pid: int
    start: int
    sock: socket.socket


class Forker:
    """At most one zygote. The callbacks run in the loop: ``on_died(pid, status)``, ``on_lost(why)``."""

    def __init__(
        self,
        *,
        on_died: Callable[[int, int], None],
        on_lost: Callable[[str], None],
        entry: str = zygote.ENTRY,
        preload: Sequence[str] = (),
    ) -> None:
        self.pid: int | None = None
        """The zygote's pid while it is up."""
        self._on_died, self._on_lost = on_died, on_lost
        self._entry, self._preload = entry, tuple(preload)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready: asyncio.Future[int] | None = None
        self._asked: dict[int, asyncio.Future[tuple[int, int]]] = {}
        self._last_id = 0

    async def start(self) -> None:
        """Exec a zygote and wait for its imports. CannotStart says what stands in the way."""
        await self.end()
        loop = asyncio.get_running_loop()
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own.setblocking(False)
        with other:
            self._process = _spawn(other.fileno(), self._entry, self._preload)
        self._control, self._ready = own, loop.create_future()
        loop.add_reader(own.fileno(), self._hear, own)
        try:
            self.pid = await asyncio.wait_for(self._ready, START_WAIT_S)
        except TimeoutError:
            raise CannotStart(
                f"the process that starts workers was not ready after {START_WAIT_S:g} s"
            ) from None
        finally:
            self._ready = None
            if self.pid is None:
                self.kill()
                await self.end()

    async def fork(self, job: Mapping[str, Any], memory_bytes: int | None) -> Forked:
        """Start one worker on a job (any size). Raises CannotStart.

        A worker whose start is in doubt gets no life: its socket is closed, and a zygote that does not answer is
        killed with all it forked.
        """
        if self._control is None or self.pid is None:
            raise CannotStart("the process that starts workers is not ready")
        self._last_id += 1
        number = self._last_id
        own, other = socket.socketpair()
        own.setblocking(False)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            with other:
                _request(self._control, {"id": number, "memory": memory_bytes}, other.fileno(), job)
            pid, start = await asyncio.wait_for(asked, FORK_WAIT_S)
        except TimeoutError:
            own.close()
            self.kill()
            raise CannotStart(f"no worker was started within {FORK_WAIT_S:g} s") from None
        except BaseException:
            own.close()
            raise
        finally:
            self._asked.pop(number, None)
        return Forked(pid, start, own)

    def kill(self) -> None:
        """End the zygote now. Its workers follow; ``on_lost`` says when it is gone."""
        if self._process is not None:
            self._process.kill()  # our own child, not waited for: the pid is still its own

    async def end(self) -> None:
        """Hang up; the zygote kills what workers are left and ends. Returns when it did."""
        self._hang_up()
        process, self._process = self._process, None
        if process is None:
            return
        for _ in range(200):
            if process.poll() is not None:
                return
            await asyncio.sleep(0.01)
        process.kill()
        process.wait()

    def _hang_up(self) -> None:
        control, self._control, self.pid = self._control, None, None
        if control is not None:
            asyncio.get_running_loop().remove_reader(control.fileno())
            control.close()

    def _hear(self, control: socket.socket) -> None:
        while control is self._control:
            try:
                data = control.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lose("it ended")
                return
            self._take(json.loads(data))

    def _take(self, report: Mapping[str, Any]) -> None:
        kind = report["type"]
        if kind == "ready":
            if self._ready is not None and not self._ready.done():
                self._ready.set_result(report["pid"])
        elif kind == "refused":
            self._lose(report["error"])
        elif kind == "died":
            self._on_died(report["pid"], report["status"])
        elif (asked := self._asked.get(report["id"] or 0)) is not None and not asked.done():
            if kind == "forked":
                asked.set_result((report["pid"], report["start"]))
            else:
                asked.set_exception(CannotStart(f"cannot start a worker: {report['error']}"))

    def _lose(self, why: str) -> None:
        self._hang_up()
        problem = CannotStart(f"the process that starts workers: {why}")
        for waiting in [self._ready, *self._asked.values()]:
            if waiting is not None and not waiting.done():
                waiting.set_exception(problem)
        if self._ready is None:  # else start() says so
            self._on_lost(str(problem))


def _request(control: socket.socket, request: Mapping[str, Any], sock: int, job: Mapping[str, Any]) -> None:
    memory_file = os.memfd_create("job", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(memory_file), "wb") as file:
            file.write(json.dumps(job, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        socket.send_fds(control, [json.dumps(request).encode()], [sock, memory_file])
    except OSError as problem:
        raise CannotStart(f"the process that starts workers does not answer: {problem}") from problem
    finally:
        os.close(memory_file)


def _spawn(control: int, entry: str, preload: Sequence[str]) -> subprocess.Popen[bytes]:
    """Exec the zygote. Its stdout is our stderr: what a worker prints is never data."""
    argv = [sys.executable, "-P", str(Path(zygote.__file__).resolve())]
    argv += ["--control", str(control), "--parent", str(os.getpid()), "--entry", entry]
    for name in preload:
        argv += ["--preload", name]
    environment = os.environ | _ONE_THREAD | {"SHIFTWORK_DAEMON_PID": str(os.getpid())}
    with suppress(OSError):
        sys.stderr.flush()
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=2,
        pass_fds=(control,),
        start_new_session=True,
        env=environment,
    )
