"""Claiming a dropped file, and what becomes of it: the moves that a kill may interrupt at any line (FIELD 3).

    inbox/a.md ──claim──▶ .work/TOKEN/a.md ──hand in, commit──▶ archive/a.md     or  rejected/a.md with its reason
                                   │
                                   └──put back (busy store, full queue, a writer came)──▶ inbox/a.md

The file lies in exactly one of these places. ``.work`` keeps its path below the inbox, so what a kill left there is
known by name: every scan hands it in first. If it was stored before the kill, the store says "duplicate" and the file
goes to the archive; if not, it is stored now. ``.work`` is locked while a scan works in it.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from store import files
from store.errors import InputRefused, NameTaken
from store.intake import Taken
from triggers.inbox import moves
from triggers.inbox.names import ARCHIVE, REJECTED, WORK, free_names
from triggers.inbox.stability import Look, no_writer
from triggers.inbox.walk import Found, kind_of

_TOKEN = re.compile(r"[0-9a-f]{16}")

STABLE = "stable"
MOVED_IN = "moved in"
NO_WRITER = "no writer"
LATE = "late"
RECOVERED = "recovered"
REFUSED = "refused"


class Claimed(NamedTuple):
    """A file in ``.work``. ``file``: its path below the inbox. ``ground``: why it was taken for finished."""

    file: str
    path: Path
    ground: str


class Content(NamedTuple):
    """A claimed file's bytes, and its look. ``late``: somebody may still write to it."""

    data: bytes
    look: Look
    late: bool


class NotFinished(Exception):
    """The claimed file changed under the reader, or somebody has it open for writing."""


class BenchTaken(Exception):
    """Another process moves files in this inbox."""


class Bench:
    """``.work/`` of one inbox, held by one scan. ``claimed`` is what lies in it now and is not settled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / WORK
        self.claimed: dict[Path, Claimed] = {}
        self._token = secrets.token_hex(8)
        self._lock: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            _prune(self.root)
            os.close(self._lock)
            self._lock = None

    def open(self, *, create: bool) -> bool:
        """Hold ``.work``; False when there is none (and none was to be made). Raises BenchTaken, OSError."""
        if self._lock is not None:
            return True
        if create:
            with suppress(FileExistsError):
                self.root.mkdir()
        try:
            lock = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise BenchTaken from None
        except OSError:  # a file system without locks: the store's own lock keeps a second daemon away
            pass
        self._lock = lock
        return True

    def recover(self) -> list[Claimed]:
        """What an earlier scan left in ``.work``, each file in this one place only."""
        left: list[Claimed] = []
        for folder, folders, names in os.walk(self.root):
            for name in [*names, *(one for one in folders if os.path.islink(os.path.join(folder, one)))]:
                path = Path(folder, name)
                if name == moves.COPYING:
                    path.unlink()  # a copy that never got its name: the original is still in its place
                    continue
                claimed = Claimed(self._file_of(path), path, RECOVERED)
                self._drop_original(claimed)
                self.claimed[path] = claimed
                left.append(claimed)
        if left:
            for half in (self.folder / REJECTED).rglob(".shiftwork-*.tmp"):
                half.unlink()  # a reason that never got its name
        return sorted(left)

    def claim(self, found: Found, ground: str) -> Claimed:
        """Move a dropped file here. Raises OSError; the file is then where it was."""
        path = self.path_for(found.file)
        moves.move(found.path, path, point="inbox.claim")
        claimed = self.claimed[path] = Claimed(found.file, path, ground)
        return claimed

    def path_for(self, file: str) -> Path:
        """The place in ``.work`` for a file of this path below the inbox; its folder is made."""
        below, _, name = file.rpartition("/")
        return moves.make_below(self.folder, f"{WORK}/{self._token}/{below}") / name

    def put_back(self, claimed: Claimed) -> bool:
        """Move a claimed file back to its place in the inbox; False when that place is taken (it stays here)."""
        below, _, name = claimed.file.rpartition("/")
        target = moves.make_below(self.folder, below) / name
        try:
            moves.move(claimed.path, target, point="inbox.put-back")
        except NameTaken:
            return False
        del self.claimed[claimed.path]
        return True

    def archive(self, claimed: Claimed, taken: Taken, *, stamp: str) -> Path:
        """Move a stored file to ``archive/`` under a free name; its new place.

        A duplicate says so in its name. What a kill left half moved is not archived twice.
        """
        recovered = claimed.ground == RECOVERED
        duplicate = taken.outcome == "duplicate" and not recovered
        mark = f" (duplicate of {taken.id})" if duplicate else f".{taken.id}"
        below, _, name = claimed.file.rpartition("/")
        folder = moves.make_below(self.folder, f"{ARCHIVE}/{below}")
        for free in free_names(name, mark, plain=not duplicate, stamp=stamp):
            target = folder / free
            if recovered and moves.same_content(claimed.path, target):
                files.remove(claimed.path, point="inbox.drop")
                return self._settled(claimed, target)
            with suppress(NameTaken):
                moves.move(claimed.path, target, point="inbox.archive")
                return self._settled(claimed, target)
        raise AssertionError("free_names never ends")

    def _settled(self, claimed: Claimed, target: Path) -> Path:
        del self.claimed[claimed.path]
        return target

    def _file_of(self, path: Path) -> str:
        parts = path.relative_to(self.root).parts
        if len(parts) > 1 and _TOKEN.fullmatch(parts[0]):
            parts = parts[1:]
        return "/".join(parts)

    def _drop_original(self, claimed: Claimed) -> None:
        """Finish a move from another file system that was cut after the copy got its name."""
        original = self.folder / claimed.file
        if moves.same_content(claimed.path, original) and _mtime(claimed.path) == _mtime(original):
            files.remove(original, point="inbox.drop")


def read(claimed: Claimed, *, max_bytes: int) -> Content:
    """A claimed file's bytes, never through a link and never waiting for a writer (FIELD 5).

    Raises InputRefused (no regular file, too large), NotFinished, OSError.
    """
    fd = open_plain(claimed.path)
    with os.fdopen(fd, "rb") as source:
        before = os.fstat(fd)
        special = kind_of(before.st_mode)
        if special is not None:
            raise special_refused(special)
        if before.st_size > max_bytes:
            from triggers.intake import too_large

            raise too_large(before.st_size, max_bytes)
        alone = no_writer(fd)
        if claimed.ground == NO_WRITER and alone is False:
            raise NotFinished
        data = source.read(max_bytes + 1)
        if Look.of(os.fstat(fd)) != Look.of(before) or not data:
            raise NotFinished
    return Content(data, Look.of(before), late=alone is not True)


def open_plain(path: Path) -> int:
    """A descriptor for reading that follows no link and does not wait at a FIFO. Raises InputRefused for a link."""
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        special = kind_of(os.lstat(path).st_mode)
        if special is not None:
            raise special_refused(special) from None
        raise


def special_refused(kind: str) -> InputRefused:
    """The refusal of what is no regular file."""
    article = {"link": "a symbolic link", "fifo": "a named pipe"}.get(kind, f"a {kind}")
    return InputRefused(f"{article}, not a regular file; it was not opened", rule=kind)


def _mtime(path: Path) -> int:
    return os.lstat(path).st_mtime_ns


def _prune(root: Path) -> None:
    """Remove the empty folders below ``root``, deepest first."""
    for folder, _, _ in os.walk(root, topdown=False):
        if folder != os.fspath(root):
            with suppress(OSError):
                os.rmdir(folder)
