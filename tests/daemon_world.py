"""A real daemon in a folder of its own: real configuration, processes, signals and files, and a scripted decider.

The decider does what an item's body says, word by word: ``answer`` (the default), ``flag``, ``sleep N``, ``fail``,
``spawn`` (leaves a child in its group and sleeps), ``kill-worker`` (SIGKILLs the worker that asked it).
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from daemon.lock import read_daemon
from store import owners

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}

DECIDER = """
import json, os, signal, subprocess, sys, time
request = json.load(sys.stdin)
body = request["item"]["body"].split()
with open("calls.log", "a") as log:
    log.write(json.dumps([request["item"]["id"], os.getpid(), os.getppid()]) + "\\n")
if body[0] == "sleep":
    time.sleep(float(body[1]))
if body[0] == "fail":
    sys.exit("told to fail")
if body[0] == "kill-worker":
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
if body[0] == "spawn":
    child = subprocess.Popen(["sleep", "600"])
    open("child.pid", "w").write(str(child.pid))
    time.sleep(60)
if body[0] == "flag":
    print(json.dumps({"decision": "flag", "reason": "r", "stuck": "cannot tell", "questions": [{
        "question": "Which?", "kind": "direction",
        "options": [{"label": "a", "cost": "none"}, {"label": "b", "cost": "none"}],
        "recommendation": {"option": 1, "reason": "first"}}]}))
else:
    print(json.dumps({"decision": "answer", "reason": "r", "text": "done: " + " ".join(body), "citations": []}))
"""


class World:
    """One folder with a configuration, and the daemon that may run on it."""

    def __init__(
        self, folder: Path, *, daemon: str = "", queues: tuple[str, ...] = ("work",), extra: str = ""
    ):
        self.folder = folder
        self.state = folder / "state"
        self.config = folder / "shiftwork.toml"
        self.process: subprocess.Popen[str] | None = None
        self.starts = 0
        (folder / "decider.py").write_text(DECIDER)
        self.write_config(daemon=daemon, queues=queues, extra=extra)

    def write_config(self, *, daemon: str = "", queues: tuple[str, ...] = ("work",), extra: str = "") -> None:
        tables = "".join(
            f'[queues.{name}]\ninbox = "in-{name}"\noutbox = "out-{name}"\ndecider = "script"\nstable_for = "0s"\n'
            for name in queues
        )
        for name in queues:
            (self.folder / f"in-{name}").mkdir(exist_ok=True)
            (self.folder / f"out-{name}").mkdir(exist_ok=True)
        self.config.write_text(
            f"[daemon]\n{daemon}\n{tables}"
            f'[deciders.script]\nkind = "command"\nargv = [{json.dumps(sys.executable)}, "-I", "decider.py"]\n{extra}'
        )

    def command(self, *words, check: int | None = 0, timeout: float = 60, env=None, **kwargs):
        """Run one command line to its end."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "daemon", *words], cwd=self.folder, env=ENVIRONMENT | (env or {}),
            check=False,
            capture_output=True, text=True, timeout=timeout, **kwargs,
        )  # fmt: skip
        assert check is None or done.returncode == check, (words, done.returncode, done.stdout, done.stderr)
        return done

    def start(self, *, ready: bool = True, env=None) -> World:
        """Start the daemon; its output goes to files. ``ready``: wait until it serves."""
        self.starts += 1
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "daemon", "run"],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, text=True,
                env=ENVIRONMENT | (env or {}),
            )  # fmt: skip
        if ready:
            self.until(lambda: self.serves() or self.process.poll() is not None)
            assert self.process.poll() is None, self.said()
        return self

    def serves(self) -> bool:
        """Whether the first screen is through: from here on a stop is a graceful one."""
        return any(words in self.said() for words in ("Drop a file", "Hand something in"))

    @property
    def out(self) -> Path:
        return self.folder / f"out-{self.starts}.txt"

    @property
    def err(self) -> Path:
        return self.folder / f"err-{self.starts}.txt"

    def said(self) -> str:
        """All that this start printed."""
        return self.out.read_text() + self.err.read_text()

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 40) -> int:
        """Signal and wait; the exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout)
        self.process = None
        return code

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def drop(self, name: str, body: str, queue: str = "work") -> None:
        """A file renamed into place, as a careful program does."""
        temporary = self.folder / f".{name}"
        temporary.write_text(body)
        temporary.rename(self.folder / f"in-{queue}" / name)

    def add(self, body: str, *words: str, queue: str = "work") -> str:
        """An item by the command line; its id."""
        done = self.command("add", "-", "--queue", queue, "--json", *words, input=body)
        return json.loads(done.stdout)["id"]

    def rows(self, sql: str, *values):
        connection = sqlite3.connect(f"file:{self.state}/shiftwork.db?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def value(self, sql: str, *values):
        rows = self.rows(sql, *values)
        return rows[0][0] if rows else None

    def states(self) -> dict[str, str]:
        """Item body → state."""
        return dict(self.rows("SELECT body, state FROM items"))

    def commits(self) -> int:
        return self.value("SELECT seq FROM commits")

    def calls(self) -> list[list]:
        """[item, pid of the decider, pid of the worker] of each decider call."""
        log = self.folder / "calls.log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def until(self, condition, seconds: float = 40.0):
        end = time.monotonic() + seconds
        while True:
            found = condition()
            if found:
                return found
            assert time.monotonic() < end, self.said()
            time.sleep(0.01)

    def until_done(self, count: int, seconds: float = 40.0) -> None:
        self.until(
            lambda: (
                (self.state / "shiftwork.db").exists()
                and self.value("SELECT count(*) FROM items WHERE state = 'done'") >= count
            ),
            seconds,
        )

    def family(self) -> list[int]:
        """Living descendants of the daemon."""
        pid = self.process.pid
        found, todo = [], [pid]
        while todo:
            for child in children(todo.pop()):
                found.append(child)
                todo.append(child)
        return found

    def daemon(self):
        return read_daemon(self.state)


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def alive(pid: int) -> bool:
    try:
        return owners.verdict(owners.of(pid)) == "alive"
    except ProcessLookupError:
        return False
