"""Moves between the inbox and its own folders: never over an existing file, also across file systems.

On one file system a move is one rename. Elsewhere (a mount inside the inbox, an ``archive/`` on another disk): copy
under a temporary name, fsync, rename, remove the original. A kill in between leaves the original, or both with the same
bytes; ``claim.recover`` and ``archive`` then remove the second one.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

from store import files
from triggers.inbox.stability import Look, no_writer

COPYING = ".shiftwork.copying"
"""The unfinished copy in a target folder. One name suffices: one scan at a time moves files of an inbox."""


class StillWritten(OSError):
    """The file changes while it is copied, or somebody has it open for writing: later bytes would be lost."""


def move(src: Path, dst: Path, *, point: str) -> None:
    """Move ``src`` to the free name ``dst``. Raises NameTaken, StillWritten, or the OSError of the kernel."""
    try:
        files.rename(src, dst, point=point)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_over(src, dst)


def make_below(root: Path, below: str) -> Path:
    """The folder ``below`` (``/`` between names) in ``root``, made where it is missing; ``root`` itself never is.

    Raises FileNotFoundError when ``root`` vanished (FIELD 9).
    """
    folder = root
    for name in below.split("/"):
        if name:
            folder /= name
            if not folder.is_dir():
                folder.mkdir(exist_ok=True)
    return folder


def same_content(one: Path, other: Path) -> bool:
    """Whether both are regular files with the same bytes."""
    try:
        first, second = os.lstat(one), os.lstat(other)
        if not (
            stat.S_ISREG(first.st_mode) and stat.S_ISREG(second.st_mode) and first.st_size == second.st_size
        ):
            return False
        with one.open("rb") as left, other.open("rb") as right:
            while chunk := left.read(1 << 20):
                if chunk != right.read(1 << 20):
                    return False
            return not right.read(1)
    except OSError:
        return False


def same_thing(one: Path, other: Path) -> bool:
    """Whether ``other``, on another file system, is a copy of ``one``: same bytes, same link, or both pipes."""
    try:
        first, second = os.lstat(one), os.lstat(other)
        if first.st_dev == second.st_dev or stat.S_IFMT(first.st_mode) != stat.S_IFMT(second.st_mode):
            return False
        if stat.S_ISLNK(first.st_mode):
            return os.readlink(one) == os.readlink(other)
        return stat.S_ISFIFO(first.st_mode) or same_content(one, other)
    except OSError:
        return False


def _copy_over(src: Path, dst: Path) -> None:
    status = os.lstat(src)
    temporary = dst.parent / COPYING
    temporary.unlink(missing_ok=True)
    if stat.S_ISREG(status.st_mode):
        _copy_bytes(src, temporary)
    elif stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(src), temporary)
    elif stat.S_ISFIFO(status.st_mode):
        os.mkfifo(temporary, stat.S_IMODE(status.st_mode))
    else:
        raise OSError(errno.EXDEV, "cannot be moved to another file system", os.fspath(src))
    try:
        files.rename(temporary, dst, point="inbox.copy")
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    files.fsync_folder(dst.parent)
    files.remove(src, point="inbox.drop")


def _copy_bytes(src: Path, temporary: Path) -> None:
    fd = os.open(src, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as source:
        before = os.fstat(fd)
        with temporary.open("xb") as target:
            shutil.copyfileobj(source, target)
            target.flush()
            os.fchmod(target.fileno(), stat.S_IMODE(before.st_mode) & 0o777)
            os.utime(target.fileno(), ns=(before.st_atime_ns, before.st_mtime_ns))
            os.fsync(target.fileno())
        if Look.of(before) != Look.of(os.fstat(fd)) or no_writer(fd) is False:
            temporary.unlink()
            raise StillWritten(errno.EBUSY, "is still being written", os.fspath(src))
