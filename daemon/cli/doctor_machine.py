"""What ``doctor`` looks at outside the store: SQLite itself, disk space, mounts, watches, our package names."""

from __future__ import annotations

import ctypes
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from daemon import packages, platform
from daemon.cli import light, screen
from daemon.cli.doctor import Finding
from daemon.folders import nearest_existing, trial
from store import checkup, mounts
from store.errors import ShiftworkError
from store.text import shown

LITTLE_BYTES = 1 << 30
NONE_BYTES = 64 << 20
LITTLE_SHARE = 0.05
_ONLYDIR_CREATE = 0x01000000 | 0x100


def findings(places: light.Places) -> Iterator[Finding]:
    """Everything about the machine."""
    yield from _platform()
    yield _sqlite(sqlite3.sqlite_version_info, sqlite3.sqlite_version)
    yield from _packages()
    yield from _folders(places)
    yield from _watches(places)


def _platform() -> Iterator[Finding]:
    try:
        platform.require_linux()
    except ShiftworkError as problem:
        yield Finding("bad", "system", str(problem))


def _sqlite(version: tuple[int, int, int], name: str) -> Finding:
    if not checkup.sqlite_has_reset_bug(version):
        return Finding("good", "SQLite", name)
    return Finding(
        "look",
        "SQLite",
        f"{name} has the WAL-reset bug (3.7.0 to 3.51.2): two connections that write or fold the log at the same "
        "instant can damage the file. Here every write waits at one gate, and the truncating fold runs behind the "
        "same gate, so it does not come to that; keep other programs from writing to the store.",
    )


def _packages() -> Iterator[Finding]:
    strangers = packages.strangers()
    for line in strangers:
        yield Finding("bad", "packages", shown(line))
    if not strangers:
        yield Finding("good", "packages", "each of our package names is ours alone")


def _folders(places: light.Places) -> Iterator[Finding]:
    """Space, mount and rights of each folder; folders on one disk share their line about space."""
    folders = {"state_dir": places.state_dir}
    for name, queue in places.queues.items():
        folders |= {
            f"{name} {kind}": path
            for kind, path in (("inbox", queue.inbox), ("outbox", queue.outbox))
            if path
        }
    seen: set[int] = set()
    for name, folder in folders.items():
        there = nearest_existing(folder)
        problem = trial(folder)
        if problem:
            yield Finding("bad", "folder", f"{shown(name)}: {shown(problem)}")
        device = os.stat(there).st_dev
        if device not in seen:
            seen.add(device)
            yield _space(there)
        mount = mounts.mount_of(there)
        if mount.foreign:
            yield _foreign(name, folder, mount.kind)


def _space(folder: Path) -> Finding:
    disk = os.statvfs(folder)
    free, whole = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    words = f"{screen.size(free)} free of {screen.size(whole)} where {shown(str(folder))} is"
    if disk.f_files and disk.f_favail < 1000:
        return Finding("bad", "disk", f"{words}; it has no room for more files (inodes)")
    if free < NONE_BYTES:
        return Finding("bad", "disk", f"{words}; free some: work stops when it is full")
    little = free < LITTLE_BYTES and free < whole * LITTLE_SHARE
    return Finding("look" if little else "good", "disk", words)


def _foreign(name: str, folder: Path, kind: str) -> Finding:
    where = f"{shown(name)} {shown(str(folder))} is on {kind}"
    if name == "state_dir":
        return Finding(
            "bad", "mount", f"{where}, where the store is not safe; point state_dir to a local disk"
        )
    return Finding("look", "mount", f"{where}, which may tell nothing about changes: it is polled")


def _watches(places: light.Places) -> Iterator[Finding]:
    """Tried, not guessed: one watch of our own on each inbox, given back at once."""
    inboxes = [
        queue.inbox for queue in places.queues.values() if queue.inbox is not None and queue.inbox.is_dir()
    ]
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    if fd < 0:
        yield _limit("max_user_instances")
        return
    try:
        for inbox in inboxes:
            if (
                libc.inotify_add_watch(fd, os.fsencode(inbox), _ONLYDIR_CREATE) < 0
                and ctypes.get_errno() == errno.ENOSPC
            ):
                yield _limit("max_user_watches")
                return
    finally:
        os.close(fd)
    yield Finding(
        "good",
        "watches",
        f"{screen.count(len(inboxes), 'inbox', 'inboxes')} can be watched (limit {_sysctl('max_user_watches')})",
    )


def _limit(name: str) -> Finding:
    key = f"fs.inotify.{name}"
    words = f"the kernel's limit {key} ({_sysctl(name)}) is reached, so inboxes are polled; raise it"
    return Finding("look", "watches", words, f"sysctl {key}={_more(name)}")


def _more(name: str) -> int:
    now = _sysctl(name)
    return 4 * int(now) if now.isdecimal() else 524288


def _sysctl(name: str) -> str:
    try:
        return Path(f"/proc/sys/fs/inotify/{name}").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
