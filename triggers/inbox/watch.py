"""An inotify descriptor of our own in the event loop: wakes within a millisecond, costs nothing while idle.

It only wakes (FIELD 2). It watches single folders, not trees: ``sync`` is told after each scan which folders there
are. A folder that was deleted or replaced is seen by its device and inode, since inotify goes silent without an error
when a mount covers it (FIELD 9).
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

_CREATE, _ATTRIB, _CLOSE_WRITE, _MOVED_TO = 0x100, 0x4, 0x8, 0x80
_DELETE_SELF, _MOVE_SELF, _UNMOUNT, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
_ONLYDIR, _ISDIR = 0x01000000, 0x40000000
_MASK = _CREATE | _ATTRIB | _CLOSE_WRITE | _MOVED_TO | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class WatchLimit(OSError):
    """The kernel gives no more watches to this user; the words name the setting that limits them."""

    def __init__(self, code: int, sysctl: str) -> None:
        super().__init__(code, f"the kernel's limit {sysctl} is reached{_value(sysctl)}")


class Event(NamedTuple):
    """Something happened to ``name`` in a watched folder; an empty name means the folder itself.

    ``moved_in``: a file was renamed into place, so it is whole.
    """

    folder: Path
    name: str
    moved_in: bool


class _Watched(NamedTuple):
    folder: Path
    device: int
    inode: int


class Watch:
    """Watches a set of folders. ``told`` gets each event, on the event loop; ``None`` means: events were lost."""

    def __init__(self, told: Callable[[Event | None], None]) -> None:
        self._told = told
        self._watched: dict[int, _Watched] = {}
        self._loop = asyncio.get_running_loop()
        self._fd: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise _limit(ctypes.get_errno(), "fs.inotify.max_user_instances")
        self._loop.add_reader(self._fd, self._read)

    def sync(self, folders: Iterable[Path]) -> bool:
        """Watch exactly these folders; True when one is watched that was not before, so that a scan must follow.

        What vanished meanwhile is left out. Raises WatchLimit; then what was watched still is.
        """
        wanted = {found for found in map(_identify, folders) if found is not None}
        for number in [number for number, one in self._watched.items() if one not in wanted]:
            del self._watched[number]
            _libc.inotify_rm_watch(self._fd, number)
        added = False
        for one in wanted - set(self._watched.values()):
            number = _libc.inotify_add_watch(self._fd, os.fsencode(one.folder), _MASK)
            if number < 0:
                code = ctypes.get_errno()
                if code == errno.ENOSPC:
                    raise _limit(code, "fs.inotify.max_user_watches")
                continue  # gone, or closed to us: the scan says so
            self._watched[number] = one
            added = True
        return added

    def folders(self) -> set[Path]:
        """What is watched now."""
        return {one.folder for one in self._watched.values()}

    def close(self) -> None:
        """Stop. May be called twice."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            number, mask, _, length = _HEAD.unpack_from(data, at)
            name = data[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\x00")
            at += _HEAD.size + length
            self._handle(number, mask, os.fsdecode(name))

    def _handle(self, number: int, mask: int, name: str) -> None:
        if mask & _OVERFLOW:
            self._told(None)
            return
        watched = self._watched.get(number)
        if watched is None:
            return
        if mask & (_IGNORED | _UNMOUNT):
            self._watched.pop(number, None)
        moved_in = bool(mask & _MOVED_TO) and not mask & _ISDIR
        if name or mask & (_DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED):
            self._told(Event(watched.folder, name, moved_in=moved_in))


def _identify(folder: Path) -> _Watched | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return _Watched(folder, status.st_dev, status.st_ino)


def _limit(code: int, sysctl: str) -> OSError:
    if code in {errno.ENOSPC, errno.EMFILE, errno.ENFILE}:
        return WatchLimit(code, sysctl)
    return OSError(code, os.strerror(code))


def _value(sysctl: str) -> str:
    try:
        return f" ({Path('/proc/sys', *sysctl.split('.')).read_text(encoding='ascii').strip()})"
    except OSError:
        return ""
