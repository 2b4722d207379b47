"""File moves that never overwrite, each at a named crash point.

A name that exists belongs to somebody: ``rename`` and ``write_new`` refuse it with ``NameTaken`` or ``False``.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

from store import owners
from store.errors import NameTaken
from store.points import reach

_PREFIX, _SUFFIX = ".shiftwork-", ".tmp"  # .shiftwork-PID-….tmp
_RENAME_NOREPLACE = 1
_AT_FDCWD = -100
_numbers = itertools.count(1)
_libc = ctypes.CDLL(None, use_errno=True)


def rename(src: Path | str, dst: Path | str, *, point: str) -> None:
    """Move ``src`` to the free name ``dst`` on the same file system.

    Raises NameTaken when ``dst`` exists, OSError (EXDEV: another file system) as the kernel says it.
    """
    reach(f"{point}.before")
    _rename_exclusive(os.fspath(src), os.fspath(dst))
    reach(f"{point}.after")


def replace(src: Path | str, dst: Path | str, *, point: str) -> None:
    """Move our own ``src`` over our own ``dst``: only for files nobody else may own (marks, the lock's notes)."""
    reach(f"{point}.before")
    os.replace(src, dst)
    reach(f"{point}.after")


def write_new(path: Path, data: bytes, *, point: str, mode: int = 0o666, fsync: bool = False) -> bool:
    """Create ``path`` whole or not at all. False when the name exists; its content is then left alone.

    ``fsync`` costs one disk flush and is for what nobody could write again.
    """
    temporary = _temporary_beside(path, data, mode=mode, fsync=fsync)
    try:
        reach(f"{point}.before")
        try:
            _rename_exclusive(temporary, os.fspath(path))
        except NameTaken:
            os.unlink(temporary)
            return False
        reach(f"{point}.after")
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    return True


def replace_own(path: Path, data: bytes, *, point: str, mode: int = 0o666, fsync: bool = False) -> None:
    """Write our own file whole, over an earlier one of ours."""
    temporary = _temporary_beside(path, data, mode=mode, fsync=fsync)
    replace(temporary, path, point=point)


def remove(path: Path, *, point: str) -> bool:
    """Remove a file; False when it was gone already."""
    reach(f"{point}.before")
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    reach(f"{point}.after")
    return True


def remove_leftovers(folder: Path) -> int:
    """Remove temporaries of writers that died before they gave them their name; how many."""
    removed = 0
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        pid = path.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not _lives(int(pid)):
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def fsync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _temporary_beside(path: Path, data: bytes, *, mode: int, fsync: bool) -> str:
    fd, temporary = _new_beside(os.fspath(path), mode)
    try:
        with open(fd, "wb", buffering=0) as out:
            rest = memoryview(data)
            while rest:
                rest = rest[out.write(rest) :]
            if fsync:
                os.fsync(fd)
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def _new_beside(path: str, mode: int) -> tuple[int, str]:
    """A file of a name that nobody has, in the folder of ``path``, with ``mode`` under the umask."""
    start = f"{os.path.dirname(path) or '.'}/{_PREFIX}{os.getpid()}-"
    while True:
        temporary = f"{start}{next(_numbers)}{_SUFFIX}"
        with suppress(FileExistsError):  # of a process long gone that had our number
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            return os.open(temporary, flags, mode), temporary


def _rename_exclusive(src: str, dst: str) -> None:
    done = _libc.renameat2(_AT_FDCWD, os.fsencode(src), _AT_FDCWD, os.fsencode(dst), _RENAME_NOREPLACE)
    if done == 0:
        return
    code = ctypes.get_errno()
    if code == errno.EEXIST:
        raise NameTaken(f"{dst} exists and is not overwritten")
    if code in (errno.EINVAL, errno.ENOSYS):  # a file system without the flag: a link is exclusive too
        try:
            os.link(src, dst, follow_symlinks=False)
        except FileExistsError:
            raise NameTaken(f"{dst} exists and is not overwritten") from None
        os.unlink(src)
        return
    raise OSError(code, os.strerror(code), src, None, dst)


@cache
def _lives(pid: int) -> bool:
    try:
        return owners.verdict(owners.of(pid)) != "dead"  # a zombie writes nothing any more
    except ProcessLookupError:
        return False
