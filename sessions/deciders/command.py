"""``kind = "command"``: any program. One JSON object on stdin, one on stdout (``shiftwork.request/1``).

The program runs without a shell, with a small environment and no secret in it. It stays in the session's process
group, so that whoever kills the session kills it too; whatever it started is ended with it. Exit code 0 and a reply are
needed; anything else is a decider failure.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import IO, Any, Literal

from sessions.decider import DeciderFailure, Reply

KEPT_ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "USER",
    "LOGNAME",
    "VIRTUAL_ENV",
)
STDERR_KEPT_BYTES = 64 * 1024
_CHUNK = 64 * 1024
_KILL_ROUNDS = 20
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


class CommandDecider:
    """Runs ``argv`` once a decision. ``max_output`` caps its stdout, in bytes."""

    kind = "command"
    decided_by: Literal["code", "model"] = "model"
    must_cite = False

    def __init__(self, argv: tuple[str, ...], *, timeout_s: float, max_output: int, folder: str) -> None:
        self._argv = argv
        self._timeout_s = timeout_s
        self._max_output = max_output
        self._folder = folder

    def decide(self, request: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """Run the program with this request. Raises DeciderFailure."""
        limit_s = min(timeout_s, self._timeout_s)
        _adopt_orphans(True)
        before = _descendants()
        data = json.dumps({**request, "deadline_s": round(limit_s, 3)}, ensure_ascii=False).encode(
            "utf-8", "replace"
        )
        try:
            process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._folder,
                env={name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ},
                preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509 - a worker decides in its one thread
            )
        except OSError as error:
            _adopt_orphans(False)
            raise DeciderFailure(  # the program is the same for every item: none is to blame
                f"{self._argv[0]} cannot be started: {error.strerror}", away=True
            ) from error
        talk = _Talk(process, data, self._max_output)
        try:
            talk.run(limit_s)
        finally:
            _end(process, before)
            _adopt_orphans(False)
        return self._judged(process, talk, limit_s)

    def _judged(self, process: subprocess.Popen[bytes], talk: _Talk, limit_s: float) -> Reply:
        stderr = bytes(talk.stderr).decode("utf-8", "replace")
        raw = bytes(talk.stdout).decode("utf-8", "replace")
        said = f"\n{stderr.strip()[-500:]}" if stderr.strip() else ""
        if talk.timed_out:
            raise DeciderFailure(f"{self._argv[0]} took over {limit_s:g} s and was ended{said}", raw=raw)
        if talk.too_much:
            raise DeciderFailure(
                f"{self._argv[0]} printed over {self._max_output} bytes and was ended", raw=raw[:4000]
            )
        if process.returncode != 0:
            code = process.returncode
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise DeciderFailure(f"{self._argv[0]} {how}{said}", raw=raw)
        try:
            return Reply(bytes(talk.stdout).decode("utf-8"), stderr)
        except UnicodeDecodeError as error:  # a mended reply would be one that nobody gave
            raise DeciderFailure(
                f"{self._argv[0]} printed what is not UTF-8 (byte {error.start})", raw=raw
            ) from None


class _Talk:
    """Feeds stdin and drains both outputs at once, within a time and a size.

    The program's own end ends it, also where something it left behind holds the outputs open.
    """

    def __init__(self, process: subprocess.Popen[bytes], data: bytes, max_output: int) -> None:
        self.process = process
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.timed_out = False
        self.too_much = False
        self._data = memoryview(data)
        self._max_output = max_output
        self._selector = selectors.DefaultSelector()

    def run(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        process = self.process
        for stream, mask in (
            (process.stdin, selectors.EVENT_WRITE),
            (process.stdout, selectors.EVENT_READ),
            (process.stderr, selectors.EVENT_READ),
        ):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, mask)
        ended = os.pidfd_open(process.pid)
        self._selector.register(ended, selectors.EVENT_READ)
        try:
            self._exchange(deadline, ended)
        finally:
            self._selector.close()
            os.close(ended)
        if self.timed_out:
            return
        if not self.too_much:
            try:
                process.wait(max(deadline - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                self.timed_out = True

    def _exchange(self, deadline: float, ended: int) -> None:
        over = False
        while self._selector.get_map() and not self.too_much:
            left = deadline - time.monotonic()
            if left <= 0:
                self.timed_out = True
                return
            events = self._selector.select(0 if over else left)
            if over and not events:  # all it printed is read
                return
            for key, _ in events:
                if key.fileobj == ended:
                    over = True
                    self._selector.unregister(ended)
                    self._hang_up()
                elif not key.fileobj.closed:  # type: ignore[union-attr]
                    self._serve(key.fileobj)  # type: ignore[arg-type]

    def _hang_up(self) -> None:
        stream = self.process.stdin
        if stream is not None and not stream.closed:
            self._done(stream)

    def _serve(self, stream: IO[bytes]) -> None:
        if stream is self.process.stdin:
            try:
                sent = os.write(stream.fileno(), self._data[:_CHUNK])
                self._data = self._data[sent:]
            except BrokenPipeError:  # a program that reads nothing may still decide
                self._data = self._data[:0]
            if not self._data:
                self._done(stream)
            return
        chunk = os.read(stream.fileno(), _CHUNK)
        if not chunk:
            self._done(stream)
        elif stream is self.process.stderr:
            self.stderr += chunk
            del self.stderr[:-STDERR_KEPT_BYTES]
        else:
            self.stdout += chunk
            self.too_much = len(self.stdout) > self._max_output

    def _done(self, stream: IO[bytes]) -> None:
        self._selector.unregister(stream)
        with contextlib.suppress(BrokenPipeError):
            stream.close()


def _end(process: subprocess.Popen[bytes], before: set[int]) -> None:
    """Nothing that the program started outlives the call, also after a good reply."""
    if process.poll() is None:
        process.kill()
    process.wait()
    for _ in range(_KILL_ROUNDS):
        left = _descendants() - before
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None and not stream.closed:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _die_with(parent: int) -> Callable[[], None]:
    """For the child before it runs the program: it is killed when its worker is, however that dies."""

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def _adopt_orphans(adopt: bool) -> None:  # noqa: FBT001 - on for one call, off again
    """Children of children that lose their parent become ours, so that they can be found and ended."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def _descendants() -> set[int]:
    found: set[int] = set()
    todo = [os.getpid()]
    while todo:
        for pid in _children(todo.pop()):
            if pid not in found:
                found.add(pid)
                todo.append(pid)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found
