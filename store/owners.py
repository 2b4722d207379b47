"""Who runs a session: a process identity that outlives the number of a process.

An owner is one line of text, ``BOOT:NAMESPACE:PID:START:UUID``: the machine's boot, the pid namespace, the
pid, when the process started (clock ticks since boot) and a fresh number of this process. Pids are given out
again and machines restart; the whole line never means a second process.

``verdict`` says what can be proven from here, and only that:

    alive    the very same process still runs
    dead     it ended (a zombie ended, too), its pid went to another process, or the machine was booted since
    unknown  it lives in another pid namespace, or /proc does not show it: nothing may be taken from it yet

Nothing is ever killed on a pid alone: the start time is compared first.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

Verdict = Literal["alive", "dead", "unknown"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
_GONE_STATES = ("Z", "X", "x")


class Owner(NamedTuple):
    """An owner line taken apart. ``start`` is in clock ticks since boot; ``uuid`` is empty for ``of``."""

    boot: str
    namespace: str
    pid: int
    start: int
    uuid: str


class _Own:
    """This process's own line, made once; ``pid`` tells a forked child that the line is its parent's."""

    pid = 0
    line = ""


def me() -> str:
    """The owner line of this process. A forked child gets its own."""
    if _Own.pid != os.getpid():
        _Own.pid = os.getpid()
        _Own.line = of(_Own.pid) + os.urandom(8).hex()
    return _Own.line


def of(pid: int) -> str:
    """The owner line of a process of this namespace, without a uuid. Raises ProcessLookupError."""
    seen = _state_and_start(pid)
    if seen is None:
        raise ProcessLookupError(f"no process {pid}")
    return line_of(pid, seen[1])


def line_of(pid: int, start: int) -> str:
    """The owner line, without a uuid, of a process of this boot and namespace with a known start time."""
    return f"{_boot()}:{_namespace()}:{pid}:{start}:"


def parse(line: str) -> Owner | None:
    """An owner line taken apart; None when it is none."""
    parts = line.split(":")
    if len(parts) != 5 or not parts[2].isdecimal() or not parts[3].isdecimal():
        return None
    return Owner(parts[0], parts[1], int(parts[2]), int(parts[3]), parts[4])


def same_process(one: str, other: str) -> bool:
    """Whether two lines name one process; the uuid, which only the process itself knows, is not compared."""
    return one.rpartition(":")[0] == other.rpartition(":")[0] != ""


def verdict(line: str) -> Verdict:
    """What is provable about an owner from this process: ``alive``, ``dead`` or ``unknown``. About 50 µs."""
    owner = parse(line)
    if owner is None:
        return "unknown"
    if owner.boot != _boot():
        return "dead"
    if owner.namespace != _namespace():
        return "unknown"
    seen = _state_and_start(owner.pid)
    if seen is None:
        return "unknown" if _hidden(owner.pid) else "dead"
    state, start = seen
    return "alive" if start == owner.start and state not in _GONE_STATES else "dead"


def kill_group(line: str, number: int = signal.SIGKILL) -> bool:
    """Send a signal to an owner's process group, if that very process still lives. False: nothing was sent.

    A worker leads a group of its own, so its children go with it. An owner that leads no group is signalled
    alone: its group may hold a person's shell.
    """
    pid = _living(line)
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
            return True
    return kill_alone(line, number)


def kill_remains(line: str) -> int:
    """Kill what a group leader that has just died left in its session; how many were.

    Only right after the death: while a member lives the kernel gives the number to no one else, but once all
    are gone it may, and nothing here could tell.
    """
    owner = parse(line)
    if owner is None or owner.namespace != _namespace() or verdict(line) != "dead":
        return 0
    killed = 0
    for entry in Path("/proc").iterdir():
        fields = _stat_fields(int(entry.name)) if entry.name.isdecimal() else None
        if fields is not None and int(fields[3]) == owner.pid and int(fields[19]) >= owner.start:
            with suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
    return killed


def kill_alone(line: str, number: int) -> bool:
    """Send a signal to the owner but not to its children, if that very process still lives."""
    pid = _living(line)
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def _living(line: str) -> int | None:
    """The pid that may be signalled: the owner's, proven alive, and not this process itself."""
    owner = parse(line)
    if owner is None or owner.pid == os.getpid() or verdict(line) != "alive":
        return None
    return owner.pid


def _state_and_start(pid: int) -> tuple[str, int] | None:
    """State letter and start time of a process; None when there is none."""
    fields = _stat_fields(pid)
    return None if fields is None else (fields[0].decode("ascii"), int(fields[19]))


def _stat_fields(pid: int) -> list[bytes] | None:
    """/proc/PID/stat from the state on; the name before it may hold anything, so it is cut at its end."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields if len(fields) > 19 else None


def _hidden(pid: int) -> bool:
    """Whether the process exists although /proc does not show it (mounted with hidepid)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _boot() -> str:
    """The boot's id. Not kept: a read costs 10 µs, and a machine's snapshot may wake up as another boot."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown-boot"


def _namespace() -> str:
    """The pid namespace's number, ``4026531836``."""
    return str(_NAMESPACE.readlink()).strip("pid:[]")
